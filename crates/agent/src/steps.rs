//! What the database program has to do next, so that it comes to do what it should.

use keelson_engine::{Data, Offline};
use keelson_ha::Target;

/// What the database program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acting {
    /// It does not run.
    Not,
    /// It was started as primary, or promoted.
    Primary,
    /// It was started as a replica of that instance, or of none.
    Replica(Option<String>),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All is as it should be, or there is something to wait for.
    Nothing,
    /// Make a new database.
    Initialise,
    /// Start it, to take writes.
    StartPrimary,
    /// Start it, to follow.
    StartReplica(Option<String>),
    /// Let it take writes.
    Promote,
    /// Let it follow another.
    Follow(String),
    /// Copy another.
    Clone(String),
    /// End it in good order.
    Finish,
    /// End it now.
    Close,
    /// Nothing can be done: a person has to.
    Trouble(String),
}

/// The next step.
pub fn next(target: &Target, data: &Data, acting: &Acting) -> Step {
    match (target, acting) {
        (Target::Wait, _) => Step::Nothing,
        (Target::Close | Target::Finish, Acting::Not) => Step::Nothing,
        (Target::Close, _) => Step::Close,
        (Target::Finish, _) => Step::Finish,
        (Target::Create | Target::Primary { .. }, Acting::Primary) => Step::Nothing,
        (Target::Create | Target::Primary { .. }, Acting::Replica(_)) => Step::Promote,
        (Target::Create | Target::Primary { .. }, Acting::Not) => match data {
            Data::Absent if *target == Target::Create => Step::Initialise,
            Data::Absent => Step::Nothing,
            // A replica becomes primary by promotion alone: that begins a timeline of its own.
            Data::Present(Offline { replica: true, .. }) => Step::StartReplica(None),
            Data::Present(_) => Step::StartPrimary,
            Data::Unusable { why } => Step::Trouble(format!("this instance should lead, but {why}")),
        },
        // Who leads decides; what still takes writes is ended before anything else.
        (Target::Replica { .. }, Acting::Primary) => Step::Close,
        (Target::Replica { of, .. }, Acting::Replica(Some(current))) if current == of => Step::Nothing,
        (Target::Replica { of, .. }, Acting::Replica(_)) => Step::Follow(of.clone()),
        (Target::Replica { of, system, .. }, Acting::Not) => match data {
            Data::Absent | Data::Unusable { .. } => Step::Clone(of.clone()),
            Data::Present(offline) if offline.system.to_string() == *system => {
                Step::StartReplica(Some(of.clone()))
            }
            Data::Present(offline) => Step::Trouble(format!(
                "the volume holds another database (system identifier {}, and not {system}): \
                 move it away, or remove the volume's claim to have this instance copied anew",
                offline.system
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(replica: bool) -> Data {
        Data::Present(Offline {
            system: 7,
            timeline: 1,
            lsn: Default::default(),
            state: "shut down".into(),
            replica,
            clean: true,
        })
    }

    fn replica() -> Target {
        Target::Replica { of: "orders-1".into(), epoch: 2, system: "7".into() }
    }

    #[test]
    fn a_leader_without_data_makes_a_database_only_when_it_is_told_to() {
        assert_eq!(next(&Target::Create, &Data::Absent, &Acting::Not), Step::Initialise);
        assert_eq!(next(&Target::Primary { epoch: 1 }, &Data::Absent, &Acting::Not), Step::Nothing);
    }

    #[test]
    fn what_was_a_replica_is_promoted_and_what_was_primary_is_started() {
        let lead = Target::Primary { epoch: 2 };
        assert_eq!(next(&lead, &present(false), &Acting::Not), Step::StartPrimary);
        assert_eq!(next(&lead, &present(true), &Acting::Not), Step::StartReplica(None));
        assert_eq!(next(&lead, &present(true), &Acting::Replica(None)), Step::Promote);
        assert_eq!(next(&lead, &present(true), &Acting::Primary), Step::Nothing);
    }

    #[test]
    fn a_replica_copies_starts_and_changes_whom_it_follows() {
        assert_eq!(next(&replica(), &Data::Absent, &Acting::Not), Step::Clone("orders-1".into()));
        let started = Step::StartReplica(Some("orders-1".into()));
        assert_eq!(
            next(&replica(), &present(false), &Acting::Not),
            started,
            "also after it has been primary"
        );
        let other = Acting::Replica(Some("orders-0".into()));
        assert_eq!(next(&replica(), &present(true), &other), Step::Follow("orders-1".into()));
        let same = Acting::Replica(Some("orders-1".into()));
        assert_eq!(next(&replica(), &present(true), &same), Step::Nothing);
    }

    #[test]
    fn what_takes_writes_and_should_not_is_ended_first() {
        assert_eq!(next(&replica(), &present(false), &Acting::Primary), Step::Close);
        assert_eq!(next(&Target::Close, &present(false), &Acting::Primary), Step::Close);
        assert_eq!(next(&Target::Close, &present(false), &Acting::Not), Step::Nothing);
        assert_eq!(next(&Target::Finish, &present(false), &Acting::Primary), Step::Finish);
    }

    #[test]
    fn another_database_is_not_touched() {
        let mut other = replica();
        if let Target::Replica { system, .. } = &mut other {
            *system = "8".into();
        }
        let step = next(&other, &present(true), &Acting::Not);
        assert!(
            matches!(&step, Step::Trouble(why) if why.contains("system identifier 7, and not 8")),
            "{step:?}"
        );
    }
}
