//! What must always be true, and what must be true in the end.
//!
//! Always:
//! - nobody acknowledges a write that is missing where writes are taken in a later epoch; and where commits wait
//!   for nobody, nobody acknowledges anything once another takes writes in a later epoch;
//! - in one epoch, one instance takes writes;
//! - under quorum, whoever takes writes in the newest epoch has all that was ever acknowledged;
//! - where commits wait for nobody, who is elected lacks no more of what the Lease says than `maxLag`; who takes at once
//!   what it is given lacks nothing of it;
//! - a client of `-rw` never reads less than it knows to be there (under quorum);
//! - no instance follows, or goes back to, a history that is not its leader's;
//! - what its disk has failed takes no writes again before it was copied anew;
//! - one database is made, and no other.
//!
//! In the end: one leads and takes writes, all others follow it, the quorum is whole, writers are led to it, and
//! nothing more is written than renewals.

use keelson_ha::{FENCE, Lease, Quorum, Successor};

use super::queue::{Event, Micros, PodId};
use super::{OPERATED_QUIET, OPERATED_SETTLE, QUIET, SECOND, SETTLE, World};
use crate::wal::Place;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In a word.
    pub kind: &'static str,
    /// In a sentence.
    pub what: String,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Check {
    pub violation: Option<Violation>,
    /// Whether all is well, and there is nothing more to see.
    pub over: bool,
    /// Stands for all that happened.
    pub mark: u64,
    pub acknowledged: u64,
    pub terms: u64,
    /// When clients were told that what they wrote is there.
    pub told: Vec<Micros>,
    /// Who began to take writes when, and in which epoch.
    pub leaderships: Vec<(Micros, u64, usize)>,
    /// The newest epoch in which somebody took writes, who, and what it began with.
    newest: Option<(u64, String, Place)>,
    /// How far the log was of who wrote the Lease last.
    promised: Option<(PodId, Place)>,
    /// When somebody last let go of the Lease.
    released: Micros,
    databases: u32,
    /// When all faults ended, and since when all is well.
    calm: Option<Micros>,
    well: Option<Micros>,
}

impl Check {
    /// Adds something that happened.
    pub fn mark(&mut self, what: u64) {
        self.mark = (self.mark ^ what).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(7);
    }
}

impl World {
    /// Something is that must not be. The first counts.
    pub(super) fn violate(&mut self, pod: PodId, kind: &'static str, what: &str) {
        if self.check.violation.is_none() {
            self.tell(pod, |_| format!("VIOLATION {kind}: {what}"));
            let identity = self.identity(pod).holder;
            let at = self.now as f64 / 1e6;
            let what = format!("at {at:.6}, {identity}: {what}");
            self.check.violation = Some(Violation { kind, what });
        }
    }

    /// Who a pod is, from one start of its agent to the next.
    fn who(&self, pod: PodId) -> String {
        format!("{}#{}", self.identity(pod).holder, self.pods[pod].life)
    }

    /// The Lease is written. Whoever takes it must have what is promised.
    pub(super) fn check_taking(&mut self, pod: PodId, before: Option<&Lease>, lease: &Lease) {
        let end = self.end_of(pod);
        let taken = before.is_some_and(|before| lease.epoch > before.epoch && lease.holder.is_some());
        if let (Some(before), Some((last, promised)), Some(end), true) =
            (before, self.check.promised, end, taken)
            && last != pod
        {
            let lacks = promised.offset.saturating_sub(self.wal.shared(promised, end));
            let given = before.holder.is_none()
                && before.end.is_some()
                && before.successor == Some(Successor::Named(self.names[self.pods[pod].ordinal].clone()));
            // One that lacks something has to wait, and to be elected.
            let at_once = self.now < self.check.released + self.scenario.times[1] * 900;
            let bound = if given && at_once { 0 } else { self.scenario.max_lag };
            if !self.scenario.synchronous && lacks > bound {
                let what = format!("takes the Lease and lacks {lacks} bytes, where {bound} are allowed");
                self.violate(pod, "BeyondBound", &what);
            }
        }
        if lease.holder.is_none() {
            self.check.released = self.now;
        }
        if let (Some(position), Some(end)) = (lease.end, end) {
            let place = Place { branch: end.branch, offset: position.offset.min(end.offset) };
            self.check.promised = Some((pod, place));
        } else if taken {
            self.check.promised = None;
        }
    }

    /// A pod begins to take writes.
    pub(super) fn check_taking_over(&mut self, pod: PodId, end: Place) {
        let Some(epoch) = self.pods[pod].program.as_ref().map(|program| program.epoch) else { return };
        if self.is_doomed(pod) {
            return;
        }
        let who = self.who(pod);
        if self.pods[pod].volume.damaged {
            self.violate(pod, "Damaged", "takes writes on a volume that has failed what was written to it");
        }
        self.check.terms += 1;
        self.check.leaderships.push((self.now, epoch, self.pods[pod].ordinal));
        self.check.mark(epoch);
        self.tell(pod, |world| {
            format!(
                "takes writes in epoch {epoch}, on timeline {}, from {:#x} on",
                world.wal.timeline(end),
                end.offset
            )
        });
        match &self.check.newest {
            Some((newest, ..)) if epoch < *newest => return,
            Some((newest, other, _)) if epoch == *newest && *other != who => {
                let what = format!("takes writes in epoch {epoch}, as {other} does");
                self.violate(pod, "TwoPrimaries", &what);
            }
            _ => {}
        }
        if self.scenario.synchronous && !self.wal.has_all(end) {
            self.violate(pod, "LostWrite", "takes writes and lacks what was acknowledged");
        }
        self.check.newest = Some((epoch, who, end));
        if self.settings.system.is_none() && self.cluster.is_none() {
            self.settings.system =
                self.pods[pod].volume.database().map(|database| database.system.to_string());
            self.announce_settings();
        }
    }

    /// A commit of a client is acknowledged.
    pub(super) fn check_acknowledging(&mut self, pod: PodId, epoch: u64, offset: u64) {
        let Some(end) = self.end_of(pod).filter(|_| !self.is_doomed(pod)) else { return };
        let place = Place { branch: end.branch, offset };
        if let Some((newest, other, begin)) = &self.check.newest
            && epoch < *newest
        {
            let missing = !self.wal.contains(*begin, place);
            let what = format!("acknowledges a write of epoch {epoch} while {other} leads in {newest}");
            if missing || !self.scenario.synchronous {
                self.violate(pod, "SplitBrain", &what);
            }
        }
        let branch = &mut self.wal.branches[end.branch];
        branch.acknowledged = branch.acknowledged.max(offset);
        self.check.acknowledged += 1;
        self.check.mark(offset);
    }

    /// A database is made where there was none.
    pub(super) fn check_initialising(&mut self, pod: PodId) {
        self.check.databases += 1;
        let empty = self.pods[pod].volume.database().is_none();
        if self.check.databases > 1 || !empty {
            self.violate(pod, "SecondDatabase", "makes a database where there has been one");
        }
    }

    pub(super) fn begin_to_settle(&mut self) {
        self.check.calm = Some(self.now);
        self.put(SECOND, Event::Look);
    }

    pub(super) fn look_whether_well(&mut self) {
        let Some(calm) = self.check.calm else { return };
        let wrong = self.wrong();
        match (&wrong, self.check.well) {
            (None, None) => self.check.well = Some(self.now),
            (None, Some(since)) if self.api.changed > since => self.check.well = Some(self.now),
            (None, Some(since)) if self.now >= since + self.quiet() => self.check.over = true,
            (None, Some(_)) => {}
            (Some(_), _) => self.check.well = None,
        }
        if self.check.over {
            return;
        }
        let lost = self.scenario.loses_a_volume();
        if lost && self.now > calm + SETTLE / 4 {
            // What was on a volume that is lost may be missed for ever.
            self.check.over = true;
        } else if self.now > calm + self.settle() {
            let what = wrong.unwrap_or_else(|| "it is well, but does not stay so".to_owned());
            self.violate(self.current[0], "NotWhole", &what);
        } else {
            self.put(SECOND, Event::Look);
        }
    }

    /// How long it is looked whether nothing is written any more.
    fn quiet(&self) -> Micros {
        if self.cluster.is_some() { OPERATED_QUIET } else { QUIET }
    }

    /// How long all may take to be well again.
    fn settle(&self) -> Micros {
        if self.cluster.is_some() { OPERATED_SETTLE } else { SETTLE }
    }

    /// Somebody removes the Lease.
    pub(super) fn remove_lease(&mut self) {
        self.api.leases.clear();
        self.api.owner = None;
        self.api.changed = self.now;
        self.check.promised = None;
    }

    /// The database is gone, as it should be. There may be another.
    pub(super) fn forget_database(&mut self) {
        (self.check.databases, self.check.newest, self.check.promised) = (0, None, None);
        self.wal.branches.iter_mut().for_each(|branch| branch.acknowledged = 0);
        self.forget_what_was_read();
    }

    /// What is not as it should be in the end.
    fn wrong(&self) -> Option<String> {
        let leads = |pod: &&PodId| {
            let here = &self.pods[**pod];
            let machine = here.agent.as_ref().is_some_and(|agent| agent.machine.leads(self.clock(**pod)));
            machine && here.program.as_ref().is_some_and(super::Program::takes_writes)
        };
        let wanted = || self.current.iter().take(self.settings.instances as usize);
        let leaders: Vec<PodId> = self.current.iter().filter(leads).copied().collect();
        let [leader] = leaders.as_slice() else { return Some(format!("{} lead", leaders.len())) };
        let program = self.pods[*leader].program.as_ref()?;
        let others = || wanted().filter(|pod| *pod != leader).map(|pod| self.pods[*pod].ordinal);
        let follows = |ordinal: &usize| {
            program
                .senders
                .iter()
                .any(|one| one.name == *ordinal && one.streaming && self.now < one.heard + 2 * SECOND)
        };
        if let Some(lost) = others().find(|ordinal| !follows(ordinal)) {
            return Some(format!("orders-{lost} does not follow"));
        }
        let all = Quorum::of(others().map(|ordinal| self.names[ordinal].clone()));
        let fenced = program.commits.names.contains(FENCE);
        if self.scenario.synchronous && program.commits != all
            || !self.scenario.synchronous && !fenced && self.settings.instances > 1
        {
            return Some(format!("commits wait for {:?}", program.commits));
        }
        let lease = self.api.lease()?;
        if lease.quorum != all || lease.holder.as_ref() != Some(&self.identity(*leader).holder) {
            return Some(format!("the Lease says {lease:?}"));
        }
        if self.api.writers != Some(*leader) {
            return Some(format!("writers are led to {:?}", self.api.writers));
        }
        let lacks =
            self.scenario.synchronous && self.end_of(*leader).is_none_or(|end| !self.wal.has_all(end));
        let lacks = lacks.then(|| "something that was acknowledged is gone".to_owned());
        lacks.or_else(|| self.wrong_in_cluster(*leader))
    }
}
