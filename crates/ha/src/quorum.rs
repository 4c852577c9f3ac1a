//! Who must have a commit before it counts, and how that changes while commits go on.
//!
//! A quorum is in two places: in the Lease, where it says who may be elected, and in the database program,
//! where commits wait for it. The two can't change in one instant. What must hold at every one:
//! **whoever may be elected by the Lease has, or has heard from somebody who has, all that was ever
//! acknowledged.** [`Quorum::covers`] says whether two of them fit together; [`next`] changes
//! one of the two, by one name, so that they always do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};

/// Instances, and how many of them must have a commit on disk besides the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    /// The instances.
    pub names: BTreeSet<String>,
    /// How many.
    pub count: usize,
}

/// The name of the leader's own acknowledgement, which it gives only while it leads.
pub const FENCE: &str = "keelson_fence";

impl Quorum {
    /// Commits that wait for nobody else wait for the leader's own leave.
    pub fn fence() -> Quorum {
        Quorum { names: BTreeSet::from([FENCE.to_owned()]), count: 1 }
    }

    /// Whether commits wait for the leader's own leave.
    pub fn is_fenced(&self) -> bool {
        self.names.contains(FENCE)
    }

    /// A majority of all, counting the leader as one that has every commit.
    pub fn of(names: impl IntoIterator<Item = String>) -> Quorum {
        let names: BTreeSet<String> = names.into_iter().collect();
        Quorum { count: names.len().div_ceil(2), names }
    }

    /// Whether nobody but the last leader can be elected.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// How many of them must hold still before one may lead: so many that those who are left can't
    /// acknowledge a commit, and that one of them has each commit that was acknowledged.
    pub fn voters(&self) -> usize {
        self.names.len() + 1 - self.count.min(self.names.len())
    }

    /// Whether somebody could be elected while this one does not hold still.
    pub fn elects_without(&self, name: &str) -> bool {
        let others = self.names.iter().filter(|one| *one != name).count();
        others >= self.voters()
    }

    /// Whether all that commits have waited for is known to whoever is elected by this.
    pub fn covers(&self, commits: &Quorum) -> bool {
        if self.is_empty() {
            return true;
        }
        let both = self.names.intersection(&commits.names).count();
        // At worst those who vote, and those who acknowledge, are first of all others than the common ones.
        let voters = self.voters().saturating_sub(self.names.len() - both);
        let acknowledging = commits.count.saturating_sub(commits.names.len() - both);
        voters + acknowledging > both
    }

    fn distance(&self, other: &Quorum) -> usize {
        self.names.symmetric_difference(&other.names).count()
    }
}

/// What to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing, for now.
    Nothing,
    /// The quorum in the Lease.
    Lease(Quorum),
    /// What commits wait for.
    Commits(Quorum),
}

/// The next change on the way to a goal. `settled` says that enough of those that commits wait for have
/// everything that was acknowledged under what commits waited for before.
pub fn next(lease: &Quorum, commits: &Quorum, goal: &Quorum, settled: bool) -> Change {
    if goal.is_empty() && !lease.is_empty() {
        // Nobody is left who could be elected; only then may commits stop waiting.
        return Change::Lease(Quorum::default());
    }
    if lease != commits {
        // Half-way. What is in the Lease may always be waited for; the other way round takes time.
        return match commits.distance(goal) < lease.distance(goal) {
            true if settled => Change::Lease(commits.clone()),
            true if !goal.is_empty() => Change::Nothing,
            _ => Change::Commits(lease.clone()),
        };
    }
    let Some(step) = toward(lease, goal) else { return Change::Nothing };
    let lease_first = step.covers(commits) != planted::is(Bug::CommitsBeforeLease);
    if lease_first { Change::Lease(step) } else { Change::Commits(step) }
}

/// One name more, or else one less.
fn toward(from: &Quorum, goal: &Quorum) -> Option<Quorum> {
    let mut names = from.names.clone();
    if let Some(new) = goal.names.difference(&from.names).next() {
        names.insert(new.clone());
    } else {
        let gone = from.names.difference(&goal.names).next()?;
        names.remove(gone);
    }
    Some(Quorum::of(names))
}

/// What holds from the moment that somebody takes the Lease: the quorum in it, and what commits wait for.
pub fn taken(lease: &Quorum, by: &str) -> (Quorum, Quorum) {
    if !lease.names.contains(by) {
        return (lease.clone(), lease.clone());
    }
    let others = Quorum::of(lease.names.iter().filter(|name| *name != by).cloned());
    // The others may lack what only the one that now leads has: as long as commits still follow from the
    // old quorum, it stays in the Lease.
    let enough = others.covers(lease) || planted::is(Bug::TakenDropsOld);
    if enough || others.is_empty() { (others.clone(), others) } else { (lease.clone(), others) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn quorum(names: &[&str], count: usize) -> Quorum {
        Quorum { names: names.iter().map(|name| (*name).to_owned()).collect(), count }
    }

    #[test]
    fn a_majority_has_each_commit_and_another_elects() {
        for (names, count, voters) in [
            (&[][..], 0, 1),
            (&["a"], 1, 1),
            (&["a", "b"], 1, 2),
            (&["a", "b", "c"], 2, 2),
            (&["a", "b", "c", "d"], 2, 3),
        ] {
            let made = Quorum::of(names.iter().map(|name| (*name).to_owned()));
            assert_eq!((made.count, made.voters()), (count, voters), "{names:?}");
        }
    }

    #[test]
    fn what_fits_together_is_told_from_what_does_not() {
        let two = quorum(&["a", "b"], 1);
        assert!(two.covers(&two));
        assert!(two.covers(&quorum(&["a"], 1)), "whoever acknowledges is asked");
        assert!(!quorum(&["a"], 1).covers(&two), "b may be the only one that has it");
        assert!(!two.covers(&Quorum::default()), "nobody need have it");
        assert!(Quorum::default().covers(&Quorum::default()), "nobody is elected");
    }

    #[test]
    fn the_one_that_takes_over_keeps_the_old_quorum_while_the_others_may_lack_something() {
        let (lease, commits) = taken(&quorum(&["a", "b"], 1), "a");
        assert_eq!((lease, commits), (quorum(&["a", "b"], 1), quorum(&["b"], 1)));
        let (lease, commits) = taken(&quorum(&["a", "b", "c"], 2), "a");
        assert_eq!((lease, commits), (quorum(&["b", "c"], 1), quorum(&["b", "c"], 1)));
        assert_eq!(taken(&quorum(&["a"], 1), "a"), (Quorum::default(), Quorum::default()));
        assert_eq!(taken(&quorum(&["a"], 1), "z").0, quorum(&["a"], 1), "the last leader again");
    }

    /// A leader with its standbys, each with so much of the log.
    #[derive(Clone, Debug)]
    struct World {
        leader: String,
        log: BTreeMap<String, u64>,
        acknowledged: u64,
        lease: Quorum,
        commits: Quorum,
        barrier: Option<u64>,
    }

    impl World {
        fn new(instances: usize) -> World {
            let log = (0..instances).map(|number| (format!("i{number}"), 0)).collect();
            let (lease, commits) = (Quorum::default(), Quorum::default());
            World { leader: "i0".into(), log, acknowledged: 0, lease, commits, barrier: None }
        }

        fn end(&self) -> u64 {
            self.log[&self.leader]
        }

        fn have(&self, quorum: &Quorum, end: u64) -> usize {
            quorum.names.iter().filter(|name| self.log[*name] >= end).count()
        }

        fn settled(&self) -> bool {
            self.barrier.is_some_and(|barrier| self.have(&self.commits, barrier) >= self.commits.count)
        }

        fn work(&mut self, goal: &Quorum) {
            match next(&self.lease, &self.commits, goal, self.settled()) {
                Change::Nothing => {}
                Change::Lease(quorum) => self.lease = quorum,
                Change::Commits(quorum) => {
                    self.commits = quorum;
                    self.barrier = Some(self.end());
                }
            }
        }

        fn acknowledge(&mut self) {
            let end = (0..=self.end()).rev().find(|end| self.have(&self.commits, *end) >= self.commits.count);
            self.acknowledged = self.acknowledged.max(end.unwrap_or_default());
        }

        /// Every set of voters that could elect one has one with all that was acknowledged.
        fn check(&self) {
            let names: Vec<&String> = self.lease.names.iter().filter(|name| **name != self.leader).collect();
            for set in 0u32..1 << names.len() {
                let voters: Vec<&&String> = names
                    .iter()
                    .enumerate()
                    .filter(|(bit, _)| set >> bit & 1 == 1)
                    .map(|(_, name)| name)
                    .collect();
                if voters.len() >= self.lease.voters() {
                    let best = voters.iter().map(|name| self.log[**name]).max().unwrap_or_default();
                    assert!(best >= self.acknowledged, "{self:?} elects {voters:?}");
                }
            }
        }

        /// One that is the furthest of some voters takes over.
        fn elect(&mut self, set: u32) {
            let names: Vec<String> =
                self.lease.names.iter().filter(|name| **name != self.leader).cloned().collect();
            let voters: Vec<String> = names
                .iter()
                .enumerate()
                .filter(|(bit, _)| set >> bit & 1 == 1)
                .map(|(_, name)| name.clone())
                .collect();
            if voters.len() < self.lease.voters() {
                return;
            }
            let Some(best) = voters.into_iter().max_by_key(|name| self.log[name]) else { return };
            let end = self.log[&best];
            // What nobody else has is gone: the others go back to where the new leader is.
            self.log.values_mut().for_each(|log| *log = (*log).min(end));
            (self.lease, self.commits) = taken(&self.lease, &best);
            self.leader = best;
            self.barrier = Some(end);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn nothing_that_was_acknowledged_can_be_lost_at_any_moment_of_any_change(
            instances in 2usize..6,
            events in proptest::collection::vec((0u8..6, 0usize..6, 0u32..64), 1..80),
        ) {
            let mut world = World::new(instances);
            let mut goal = Quorum::default();
            for (kind, who, set) in events {
                let name = format!("i{}", who % instances);
                match kind {
                    0 => *world.log.entry(world.leader.clone()).or_default() += 1,
                    1 => {
                        let end = world.end();
                        world.log.insert(name, end);
                    }
                    2 => goal = {
                        let names = (0..instances).filter(|bit| set >> bit & 1 == 1).map(|bit| format!("i{bit}"));
                        Quorum::of(names)
                    },
                    3 => world.elect(set),
                    _ => {
                        let names = goal.names.iter().filter(|name| **name != world.leader).cloned();
                        world.work(&Quorum::of(names));
                    }
                }
                world.acknowledge();
                world.check();
            }
        }

        #[test]
        fn the_goal_is_reached_when_everybody_keeps_up(from in 0u32..32, to in 0u32..32) {
            let set = |bits: u32| Quorum::of((0..5).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("s{bit}")));
            let (mut lease, mut commits, goal) = (set(from), set(from), set(to));
            for _ in 0..40 {
                match next(&lease, &commits, &goal, true) {
                    Change::Nothing => break,
                    Change::Lease(quorum) => lease = quorum,
                    Change::Commits(quorum) => commits = quorum,
                }
            }
            prop_assert_eq!((&lease, &commits), (&goal, &goal));
        }
    }
}
