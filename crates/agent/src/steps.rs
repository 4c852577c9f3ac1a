//! What the database program has to do next, so that it comes to do what it should.

use std::time::Duration;

use keelson_engine::{Data, Offline};
use keelson_ha::planted::{self, Bug};
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
    /// Let it take writes.
    Promote {
        /// In this epoch.
        epoch: u64,
        /// In a history of this number, or a greater one.
        history: u64,
        /// Whom its commits wait for.
        commits: Quorum,
    },
    /// Let commits wait for others.
    Commits(Quorum),
    /// Let it follow another, or nobody.
    Follow(Option<Leader>),
    /// Take back what another does not have.
    Rewind(String),
    /// Copy another.
    Clone(String),
    /// Make data of an earlier moment beside that which is there, on a history of this number or a greater one.
    Restore(u64),
    /// Put what was made so in the place of what is there.
    Place,
    /// End it in good order.
    Finish,
    /// End it now.
    Close,
    /// Nothing can be done: a person has to.
    Trouble(String),
}

/// What is known of the volume besides the data on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Whether the data took writes since it was last copied or followed anybody.
    pub led: bool,
    /// Whether its disk has failed the data.
    pub damaged: bool,
    /// The history of the data beside it that the wanted restore has made, if it has.
    pub whole: Option<u64>,
}

/// The next step.
pub fn next(target: &Target, data: &Data, acting: &Acting, volume: Volume, remedy: Remedy) -> Step {
    match (target, acting) {
        // What the disk has failed takes no writes again, not even where nobody else could: what was
        // acknowledged may be missing from it, and nobody would notice.
        (Target::Primary { .. }, Acting::Not | Acting::Replica(_)) if volume.damaged => Step::Trouble(
            "this instance should lead, but its disk has failed (EIO), and what is read back from it can't be trusted: \
             replace the volume and restore a backup, or, to use the data all the same, remove \
             agent/postgres/damaged from the volume"
                .to_owned(),
        ),
        (Target::Wait, _) => Step::Nothing,
        (Target::Close | Target::Finish, Acting::Not) => Step::Nothing,
        (Target::Close, _) => Step::Close,
        (Target::Finish, _) => Step::Finish,
        // What is restored, or is about to be replaced, ends in good order first.
        (Target::Restore { .. } | Target::Place, Acting::Primary(_) | Acting::Replica(_)) => Step::Finish,
        (Target::Restore { history, .. }, Acting::Not) => match volume.whole {
            Some(whole) if whole >= *history => Step::Nothing,
            _ => Step::Restore(*history),
        },
        (Target::Place, Acting::Not) => Step::Place,
        (Target::Copy { .. }, Acting::Primary(_)) => Step::Close,
        (Target::Copy { .. }, Acting::Replica(_)) => Step::Finish,
        (Target::Copy { of, system }, Acting::Not) => match data {
            Data::Present(offline) if offline.system.to_string() != *system => another(offline, system),
            _ => Step::Clone(of.clone()),
        },
        (Target::Create, Acting::Primary(_)) => Step::Nothing,
        (Target::Create, Acting::Not) => match data {
            Data::Absent => Step::Initialise,
            // Nobody knows whose it was: it is neither used nor written over.
            Data::Unusable { why } => Step::Trouble(format!(
                "this instance should make the database, but its volume holds data that can't be used ({why}): \
                 move the folder data away, or remove the volume's claim"
            )),
            Data::Present(_) => Step::Nothing,
        },
        (Target::Create, Acting::Replica(_)) => Step::Nothing,
        (Target::Primary { commits, .. }, Acting::Primary(waits)) if waits == commits => Step::Nothing,
        (Target::Primary { commits, .. }, Acting::Primary(_)) => Step::Commits(commits.clone()),
        (Target::Primary { epoch, history, commits }, Acting::Replica(_)) => {
            Step::Promote { epoch: *epoch, history: *history, commits: commits.clone() }
        }
        (Target::Primary { epoch, commits, .. }, Acting::Not) => match data {
            Data::Absent => Step::Nothing,
            // A replica becomes primary by promotion alone: that begins a timeline of its own.
            Data::Present(Offline { replica: true, .. }) if !planted::is(Bug::StartReplicaAsPrimary) => {
                Step::StartReplica(None)
            }
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
            Data::Present(offline) if offline.system.to_string() != *system => another(offline, system),
            Data::Present(_) if remedy == Remedy::Clone => Step::Clone(of.clone()),
            // What led and ended badly has, most likely, something that nobody else has.
            Data::Present(offline)
                if remedy == Remedy::Rewind || volume.led && !offline.clean && !offline.replica =>
            {
                Step::Rewind(of.clone())
            }
            Data::Present(_) => Step::StartReplica(Some(Leader { name: of.clone(), epoch: *epoch })),
        },
    }
}

fn another(offline: &Offline, system: &str) -> Step {
    Step::Trouble(format!(
        "the volume holds another database (system identifier {}, and not {system}): \
         move it away, or remove the volume's claim to have this instance copied anew",
        offline.system
    ))
}

/// How a replica that runs is brought back, if it has to be. `silent` says that nothing has come for long from a
/// leader that answers: one that does not can't be followed by anybody, and is no reason to end what serves readers.
pub fn remedy(current: Remedy, target: &Target, acting: &Acting, silent: bool, damaged: bool) -> Remedy {
    let follows = matches!((target, acting), (Target::Replica { .. }, Acting::Replica(Some(_))));
    match current {
        // What its disk holds can't be trusted: it could never lead.
        _ if follows && damaged && !planted::is(Bug::NeverRecopied) => Remedy::Clone,
        // Its log and the leader's have parted, or what it needs is no longer there.
        _ if follows && silent => Remedy::Rewind,
        current => current,
    }
}

/// So many starts in a row may come to nothing before that is said, and before a replica is brought back by other means.
pub const STARTS: u32 = 3;
/// The longest pause between two starts.
const LONGEST: Duration = Duration::from_secs(10);

/// A start waits for its turn, if those before it came to nothing: the last ended so long ago.
pub fn paced(step: Step, in_vain: u32, ago: Duration) -> Step {
    let pause = match in_vain {
        // A crash is no reason to wait, and nor is the first start after it.
        0 | 1 => Duration::ZERO,
        more => Duration::from_secs(1u64 << (more - 2).min(8)).min(LONGEST),
    };
    match step {
        Step::StartPrimary(..) | Step::StartReplica(_) if ago < pause => Step::Nothing,
        step => step,
    }
}

/// How a replica is brought back whose starts come to nothing: its log and the leader's have parted, or its data is of no
/// use. What could be taken back and does not start all the same is copied. To be asked after each such start.
pub fn after_start_in_vain(current: Remedy, target: &Target, in_vain: u32) -> Remedy {
    match (target, in_vain) {
        (Target::Replica { .. }, STARTS) => Remedy::Rewind,
        (Target::Replica { .. }, many) if many >= 2 * STARTS => Remedy::Clone,
        _ => current,
    }
}

/// What a person should know of a step that was done, or of why there is none.
pub fn trouble(step: &Step, in_vain: u32) -> Option<String> {
    match step {
        Step::Trouble(why) => Some(why.clone()),
        _ if in_vain >= STARTS => Some(format!(
            "PostgreSQL was started {in_vain} times in a row and ended each time before it was of use: its last words \
             are in the log of this pod's container; it is tried again and again"
        )),
        _ => None,
    }
}

/// How one that can't follow comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayBack {
    /// By taking back what the leader does not have.
    Rewind,
    /// By copying the leader.
    Clone,
    /// By being started once more.
    Restart,
    /// Not yet.
    Wait,
}

/// How one that can't follow comes back, given the leader's timeline. Only a newer one has parted from this
/// one's: against another, a rewind would first recover from a crash, and so part what had not parted. `waited`
/// says that it has waited for long, `restarted` that it was started once more already and nothing came.
pub fn way_back(data: &Data, theirs: u32, remedy: Remedy, waited: bool, restarted: bool) -> WayBack {
    let ours = match data {
        Data::Present(offline) => offline.timeline,
        Data::Absent | Data::Unusable { .. } => 0,
    };
    match remedy {
        _ if theirs > ours => WayBack::Rewind,
        // It led, and whoever leads now has not begun yet; or has begun a timeline of the same number, as neither
        // knew of the other.
        Remedy::None if !waited => WayBack::Wait,
        // Its log is the leader's, as far as can be told, and a copy of everything is the last resort.
        Remedy::Rewind if theirs == ours && !restarted => WayBack::Restart,
        // There is nothing to take back; what it lacks is no longer to be had in any other way.
        Remedy::None | Remedy::Rewind | Remedy::Clone => WayBack::Clone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_parted_is_taken_back() {
        assert_eq!(way_back(&present(true), 2, Remedy::Rewind, false, false), WayBack::Rewind);
        assert_eq!(way_back(&data(false, false), 2, Remedy::None, false, false), WayBack::Rewind);
        assert_eq!(way_back(&data(false, false), 1, Remedy::None, false, false), WayBack::Wait);
        assert_eq!(
            way_back(&data(false, false), 1, Remedy::None, true, false),
            WayBack::Clone,
            "not for ever"
        );
    }

    #[test]
    fn one_whose_history_is_the_leaders_is_started_once_more_before_it_is_copied() {
        let back = |ours: Data, restarted| way_back(&ours, 1, Remedy::Rewind, false, restarted);
        assert_eq!(back(present(true), false), WayBack::Restart);
        assert_eq!(back(present(true), true), WayBack::Clone);
        let newer = match present(true) {
            Data::Present(offline) => Data::Present(Offline { timeline: 3, ..offline }),
            other => other,
        };
        assert_eq!(back(newer, false), WayBack::Clone, "it has what the leader never had");
    }

    #[test]
    fn starts_that_come_to_nothing_are_told_of_spaced_out_and_ended_by_a_copy() {
        let start = || Step::StartReplica(leader("orders-1", 2));
        let waits = |in_vain, ago| paced(start(), in_vain, Duration::from_millis(ago)) == Step::Nothing;
        assert!(!waits(0, 0) && !waits(1, 0), "one that crashed is back at once");
        assert!(waits(2, 999) && !waits(2, 1000) && waits(4, 3999) && !waits(4, 4000));
        assert!(waits(100, 9999) && !waits(100, 10_000), "not for ever");
        assert_eq!(paced(Step::Close, 100, Duration::ZERO), Step::Close, "only starts wait");

        assert_eq!((trouble(&start(), 2), trouble(&Step::Nothing, 0)), (None, None));
        let said = trouble(&Step::Nothing, 3).unwrap();
        assert!(said.contains("3 times") && said.contains("log"), "{said}");

        let after = |in_vain| after_start_in_vain(Remedy::None, &replica(), in_vain);
        assert_eq!((after(1), after(2)), (Remedy::None, Remedy::None));
        assert_eq!(after(3), Remedy::Rewind);
        assert_eq!((after(4), after(5)), (Remedy::None, Remedy::None), "what was taken back is tried first");
        assert_eq!((after(6), after(7)), (Remedy::Clone, Remedy::Clone));
        assert_eq!(after_start_in_vain(Remedy::None, &lead(), 9), Remedy::None, "there is nobody to copy");
    }

    #[test]
    fn a_replica_that_hears_nothing_or_has_a_bad_disk_is_brought_back() {
        let follows = Acting::Replica(leader("orders-1", 2));
        let of = |silent, damaged| remedy(Remedy::None, &replica(), &follows, silent, damaged);
        assert_eq!(of(false, false), Remedy::None);
        assert_eq!(of(true, false), Remedy::Rewind);
        assert_eq!(of(false, true), Remedy::Clone);
        let holds = remedy(Remedy::None, &Target::Hold, &Acting::Replica(None), true, true);
        assert_eq!(holds, Remedy::None, "there is nobody to copy");
        let begun = remedy(Remedy::Clone, &replica(), &Acting::Not, false, false);
        assert_eq!(begun, Remedy::Clone, "what was begun is gone on with");
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
        Target::Primary { epoch: 2, history: 4, commits: Quorum::of(["orders-1".to_owned()]) }
    }

    fn then(target: &Target, data: &Data, acting: &Acting) -> Step {
        next(target, data, acting, Volume::default(), Remedy::None)
    }

    #[test]
    fn what_its_disk_has_failed_is_made_primary_in_no_way() {
        let failed = Volume { led: true, damaged: true, whole: None };
        for (data, acting) in [
            (data(false, false), Acting::Not),
            (data(true, false), Acting::Not),
            (data(true, true), Acting::Replica(None)),
            (data(true, true), Acting::Replica(leader("orders-1", 2))),
        ] {
            let step = next(&lead(), &data, &acting, failed, Remedy::None);
            assert!(matches!(&step, Step::Trouble(why) if why.contains("EIO")), "{acting:?}: {step:?}");
        }
        let follows = next(&replica(), &present(true), &Acting::Not, failed, Remedy::Clone);
        assert_eq!(follows, Step::Clone("orders-1".into()), "it is copied, and may lead then");
    }

    #[test]
    fn a_leader_without_data_makes_a_database_only_when_it_is_told_to() {
        assert_eq!(then(&Target::Create, &Data::Absent, &Acting::Not), Step::Initialise);
        assert_eq!(then(&lead(), &Data::Absent, &Acting::Not), Step::Nothing);
        assert_eq!(
            then(&Target::Create, &present(false), &Acting::Not),
            Step::Nothing,
            "it is told otherwise soon"
        );
        let broken = Data::Unusable { why: "a rewind of it broke off".into() };
        let step = then(&Target::Create, &broken, &Acting::Not);
        let said = matches!(&step, Step::Trouble(why) if why.contains("a rewind of it broke off") && why.contains("claim"));
        assert!(said, "{step:?}");
    }

    #[test]
    fn what_was_a_replica_is_promoted_and_what_was_primary_is_started() {
        let commits = Quorum::of(["orders-1".to_owned()]);
        assert_eq!(then(&lead(), &present(false), &Acting::Not), Step::StartPrimary(2, commits.clone()));
        assert_eq!(then(&lead(), &present(true), &Acting::Not), Step::StartReplica(None));
        let promote = Step::Promote { epoch: 2, history: 4, commits: commits.clone() };
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
        assert_eq!(
            next(&replica(), &crashed, &Acting::Not, Volume { led: true, ..Volume::default() }, Remedy::None),
            rewind,
            "it led"
        );
        let copied = then(&replica(), &crashed, &Acting::Not);
        assert!(matches!(copied, Step::StartReplica(_)), "a copy looks the same: {copied:?}");
        assert_eq!(next(&replica(), &present(true), &Acting::Not, Volume::default(), Remedy::Rewind), rewind);
        let clone = Step::Clone("orders-1".into());
        assert_eq!(next(&replica(), &present(true), &Acting::Not, Volume::default(), Remedy::Clone), clone);
        let follows = Acting::Replica(leader("orders-1", 2));
        let ends = next(&replica(), &present(true), &follows, Volume::default(), Remedy::Rewind);
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
    fn a_restore_ends_what_runs_is_made_once_and_then_put_in_its_place() {
        let restore = Target::Restore { name: "x".into(), history: 7 };
        let leads = Acting::Primary(Quorum::default());
        for target in [&restore, &Target::Place] {
            assert_eq!(
                then(target, &present(false), &leads),
                Step::Finish,
                "in good order: all of its log is sent"
            );
            assert_eq!(then(target, &present(true), &Acting::Replica(None)), Step::Finish);
        }
        let with = |whole| {
            let volume = Volume { whole, ..Volume::default() };
            next(&restore, &present(false), &Acting::Not, volume, Remedy::None)
        };
        assert_eq!(with(None), Step::Restore(7));
        assert_eq!(with(Some(6)), Step::Restore(7), "it is of an earlier attempt");
        assert_eq!(with(Some(7)), Step::Nothing, "it waits for the word");
        assert_eq!(then(&Target::Place, &present(false), &Acting::Not), Step::Place);
    }

    #[test]
    fn data_of_before_a_restore_is_ended_and_replaced_by_a_copy() {
        let copy = Target::Copy { of: "orders-1".into(), system: "7".into() };
        assert_eq!(then(&copy, &present(true), &Acting::Replica(leader("orders-1", 2))), Step::Finish);
        assert_eq!(then(&copy, &present(false), &Acting::Primary(Quorum::default())), Step::Close);
        assert_eq!(then(&copy, &present(true), &Acting::Not), Step::Clone("orders-1".into()));
        let other = Target::Copy { of: "orders-1".into(), system: "8".into() };
        assert!(matches!(then(&other, &present(true), &Acting::Not), Step::Trouble(_)));
    }

    #[test]
    fn another_database_is_not_touched() {
        let mut other = replica();
        if let Target::Replica { system, .. } = &mut other {
            *system = "8".into();
        }
        for remedy in [Remedy::None, Remedy::Rewind, Remedy::Clone] {
            let step = next(&other, &present(true), &Acting::Not, Volume::default(), remedy);
            let said = matches!(&step, Step::Trouble(why) if why.contains("system identifier 7, and not 8"));
            assert!(said, "{step:?}");
        }
    }
}
