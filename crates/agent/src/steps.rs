//! What the database program has to do next, so that it comes to do what it should.

use keelson_engine::{Data, Offline};
use keelson_ha::{Quorum, Target};

/// An instance to follow, as leader in an epoch. The same name in another epoch may be another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The instance.
    pub name: String,
    /// The epoch.
    pub epoch: u64,
}

/// What the database program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acting {
    /// It does not run.
    Not,
    /// It was started as primary, or promoted, and its commits wait for these.
    Primary(Quorum),
    /// It was started as a replica of that instance, or of none.
    Replica(Option<Leader>),
}

/// How to bring a replica back that does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// None is needed.
    None,
    /// Take back what the leader does not have.
    Rewind,
    /// Copy the leader.
    Clone,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All is as it should be, or there is something to wait for.
    Nothing,
    /// Make a new database.
    Initialise,
    /// Start it, to take writes in this epoch.
    StartPrimary(u64, Quorum),
    /// Start it, to follow.
    StartReplica(Option<Leader>),
    /// Let it take writes in this epoch.
    Promote(u64, Quorum),
    /// Let commits wait for others.
    Commits(Quorum),
    /// Let it follow another, or nobody.
    Follow(Option<Leader>),
    /// Take back what another does not have.
    Rewind(String),
    /// Copy another.
    Clone(String),
    /// End it in good order.
    Finish,
    /// End it now.
    Close,
    /// Nothing can be done: a person has to.
    Trouble(String),
}

/// The next step. `led` says whether the data took writes since it was last copied or followed anybody.
pub fn next(target: &Target, data: &Data, acting: &Acting, led: bool, remedy: Remedy) -> Step {
    match (target, acting) {
        (Target::Wait, _) => Step::Nothing,
        (Target::Close | Target::Finish, Acting::Not) => Step::Nothing,
        (Target::Close, _) => Step::Close,
        (Target::Finish, _) => Step::Finish,
        (Target::Create, Acting::Primary(_)) => Step::Nothing,
        (Target::Create, Acting::Not) if *data == Data::Absent => Step::Initialise,
        (Target::Create, _) => Step::Nothing,
        (Target::Primary { commits, .. }, Acting::Primary(waits)) if waits == commits => Step::Nothing,
        (Target::Primary { commits, .. }, Acting::Primary(_)) => Step::Commits(commits.clone()),
        (Target::Primary { epoch, commits }, Acting::Replica(_)) => Step::Promote(*epoch, commits.clone()),
        (Target::Primary { epoch, commits }, Acting::Not) => match data {
            Data::Absent => Step::Nothing,
            // A replica becomes primary by promotion alone: that begins a timeline of its own.
            Data::Present(Offline { replica: true, .. }) => Step::StartReplica(None),
            Data::Present(_) => Step::StartPrimary(*epoch, commits.clone()),
            Data::Unusable { why } => Step::Trouble(format!("this instance should lead, but {why}")),
        },
        // Who leads decides; what still takes writes is ended before anything else.
        (Target::Replica { .. } | Target::Hold, Acting::Primary(_)) => Step::Close,
        (Target::Hold, Acting::Replica(None)) => Step::Nothing,
        (Target::Hold, Acting::Replica(Some(_))) => Step::Follow(None),
        (Target::Hold, Acting::Not) => match data {
            Data::Present(Offline { replica: true, .. }) => Step::StartReplica(None),
            // What it led with may be more than anybody has acknowledged: it does not say how far it is.
            _ => Step::Nothing,
        },
        (Target::Replica { .. }, Acting::Replica(_)) if remedy != Remedy::None => Step::Finish,
        (Target::Replica { of, epoch, .. }, Acting::Replica(current)) => {
            let leader = Some(Leader { name: of.clone(), epoch: *epoch });
            if *current == leader { Step::Nothing } else { Step::Follow(leader) }
        }
        (Target::Replica { of, epoch, system }, Acting::Not) => match data {
            Data::Absent | Data::Unusable { .. } => Step::Clone(of.clone()),
            Data::Present(offline) if offline.system.to_string() != *system => Step::Trouble(format!(
                "the volume holds another database (system identifier {}, and not {system}): \
                 move it away, or remove the volume's claim to have this instance copied anew",
                offline.system
            )),
            Data::Present(_) if remedy == Remedy::Clone => Step::Clone(of.clone()),
            // What led and ended badly has, most likely, something that nobody else has.
            Data::Present(offline)
                if remedy == Remedy::Rewind || led && !offline.clean && !offline.replica =>
            {
                Step::Rewind(of.clone())
            }
            Data::Present(_) => Step::StartReplica(Some(Leader { name: of.clone(), epoch: *epoch })),
        },
    }
}

/// How one that can't follow comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayBack {
    /// By taking back what the leader does not have.
    Rewind,
    /// By copying the leader.
    Clone,
    /// Not yet.
    Wait,
}

/// How one that can't follow comes back, given the leader's timeline. Only a newer one has parted from this
/// one's: against another, a rewind would first recover from a crash, and so part what had not parted.
pub fn way_back(data: &Data, theirs: u32, remedy: Remedy) -> WayBack {
    let ours = match data {
        Data::Present(offline) => offline.timeline,
        Data::Absent | Data::Unusable { .. } => 0,
    };
    match remedy {
        _ if theirs > ours => WayBack::Rewind,
        // It led, and whoever leads now has not begun yet.
        Remedy::None => WayBack::Wait,
        // There is nothing to take back; what it lacks is no longer to be had in any other way.
        Remedy::Rewind | Remedy::Clone => WayBack::Clone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_parted_is_taken_back() {
        assert_eq!(way_back(&present(true), 2, Remedy::Rewind), WayBack::Rewind);
        assert_eq!(way_back(&present(true), 1, Remedy::Rewind), WayBack::Clone);
        assert_eq!(way_back(&data(false, false), 2, Remedy::None), WayBack::Rewind);
        assert_eq!(way_back(&data(false, false), 1, Remedy::None), WayBack::Wait);
    }

    fn data(replica: bool, clean: bool) -> Data {
        let (lsn, state) = (Default::default(), "shut down".into());
        Data::Present(Offline { system: 7, timeline: 1, lsn, state, replica, clean })
    }

    fn present(replica: bool) -> Data {
        data(replica, true)
    }

    fn replica() -> Target {
        Target::Replica { of: "orders-1".into(), epoch: 2, system: "7".into() }
    }

    fn leader(name: &str, epoch: u64) -> Option<Leader> {
        Some(Leader { name: name.into(), epoch })
    }

    fn lead() -> Target {
        Target::Primary { epoch: 2, commits: Quorum::of(["orders-1".to_owned()]) }
    }

    fn then(target: &Target, data: &Data, acting: &Acting) -> Step {
        next(target, data, acting, false, Remedy::None)
    }

    #[test]
    fn a_leader_without_data_makes_a_database_only_when_it_is_told_to() {
        assert_eq!(then(&Target::Create, &Data::Absent, &Acting::Not), Step::Initialise);
        assert_eq!(then(&lead(), &Data::Absent, &Acting::Not), Step::Nothing);
    }

    #[test]
    fn what_was_a_replica_is_promoted_and_what_was_primary_is_started() {
        let commits = Quorum::of(["orders-1".to_owned()]);
        assert_eq!(then(&lead(), &present(false), &Acting::Not), Step::StartPrimary(2, commits.clone()));
        assert_eq!(then(&lead(), &present(true), &Acting::Not), Step::StartReplica(None));
        let promote = Step::Promote(2, commits.clone());
        assert_eq!(then(&lead(), &present(true), &Acting::Replica(None)), promote);
        assert_eq!(then(&lead(), &present(true), &Acting::Primary(commits.clone())), Step::Nothing);
        let other = Acting::Primary(Quorum::default());
        assert_eq!(then(&lead(), &present(true), &other), Step::Commits(commits));
    }

    #[test]
    fn a_replica_copies_starts_and_changes_whom_it_follows() {
        assert_eq!(then(&replica(), &Data::Absent, &Acting::Not), Step::Clone("orders-1".into()));
        let started = Step::StartReplica(leader("orders-1", 2));
        assert_eq!(then(&replica(), &present(false), &Acting::Not), started, "also after it has led");
        let follow = Step::Follow(leader("orders-1", 2));
        let other = Acting::Replica(leader("orders-0", 1));
        assert_eq!(then(&replica(), &present(true), &other), follow);
        let same = Acting::Replica(leader("orders-1", 2));
        assert_eq!(then(&replica(), &present(true), &same), Step::Nothing);
        let before = Acting::Replica(leader("orders-1", 1));
        assert_eq!(then(&replica(), &present(true), &before), follow, "it may be another process");
    }

    #[test]
    fn one_that_holds_still_follows_nobody() {
        let acting = Acting::Replica(leader("orders-1", 2));
        assert_eq!(then(&Target::Hold, &present(true), &acting), Step::Follow(None));
        assert_eq!(then(&Target::Hold, &present(true), &Acting::Replica(None)), Step::Nothing);
        assert_eq!(then(&Target::Hold, &present(true), &Acting::Not), Step::StartReplica(None));
        assert_eq!(then(&Target::Hold, &present(false), &Acting::Not), Step::Nothing, "it led");
    }

    #[test]
    fn one_that_was_left_behind_is_rewound_or_copied() {
        let rewind = Step::Rewind("orders-1".into());
        let crashed = data(false, false);
        assert_eq!(next(&replica(), &crashed, &Acting::Not, true, Remedy::None), rewind, "it led");
        let copied = then(&replica(), &crashed, &Acting::Not);
        assert!(matches!(copied, Step::StartReplica(_)), "a copy looks the same: {copied:?}");
        assert_eq!(next(&replica(), &present(true), &Acting::Not, false, Remedy::Rewind), rewind);
        let clone = Step::Clone("orders-1".into());
        assert_eq!(next(&replica(), &present(true), &Acting::Not, false, Remedy::Clone), clone);
        let follows = Acting::Replica(leader("orders-1", 2));
        let ends = next(&replica(), &present(true), &follows, false, Remedy::Rewind);
        assert_eq!(ends, Step::Finish, "it ends first");
    }

    #[test]
    fn what_takes_writes_and_should_not_is_ended_first() {
        let leads = Acting::Primary(Quorum::default());
        assert_eq!(then(&replica(), &present(false), &leads), Step::Close);
        assert_eq!(then(&Target::Hold, &present(false), &leads), Step::Close);
        assert_eq!(then(&Target::Close, &present(false), &leads), Step::Close);
        assert_eq!(then(&Target::Close, &present(false), &Acting::Not), Step::Nothing);
        assert_eq!(then(&Target::Finish, &present(false), &leads), Step::Finish);
    }

    #[test]
    fn another_database_is_not_touched() {
        let mut other = replica();
        if let Target::Replica { system, .. } = &mut other {
            *system = "8".into();
        }
        for remedy in [Remedy::None, Remedy::Rewind, Remedy::Clone] {
            let step = next(&other, &present(true), &Acting::Not, false, remedy);
            let said = matches!(&step, Step::Trouble(why) if why.contains("system identifier 7, and not 8"));
            assert!(said, "{step:?}");
        }
    }
}
