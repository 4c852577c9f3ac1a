//! Whom readers are led to: a label on the pod, by which their Service finds it.

use std::time::{Duration, Instant};

use keelson_api::instance::{Report, roles};
use keelson_api::v1::Role;

/// kube-proxy takes in what changes about Services once a second at most (`minSyncPeriod`), and what comes first makes all
/// else wait. So when leadership changes, readers are led anew only after writers are.
const CALM: Duration = Duration::from_secs(2);

/// The label of one instance.
#[derive(Debug)]
pub(crate) struct Readers {
    label: &'static str,
    /// The leadership that was last seen, and whether there was ever one.
    epoch: u64,
    known: bool,
    /// When that changed.
    changed: Option<Instant>,
}

impl Readers {
    /// Of an instance of which nothing is known.
    pub(crate) fn new() -> Readers {
        Readers { label: roles::NONE, epoch: 0, known: false, changed: None }
    }

    /// What it is to be now.
    pub(crate) fn label(
        &mut self,
        report: &Report,
        behind: Option<u64>,
        most: u64,
        now: Instant,
    ) -> &'static str {
        if report.epoch != self.epoch {
            self.changed = self.known.then_some(now);
            self.epoch = report.epoch;
            self.known |= report.epoch > 0;
        }
        let wanted = label(&report.role, behind, most, self.label);
        let concerns_readers = (wanted == roles::REPLICA) != (self.label == roles::REPLICA);
        if !concerns_readers || self.wake(now).is_none() {
            self.label = wanted;
        }
        self.label
    }

    /// When to ask again, if it was held back.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        self.changed.map(|changed| changed + CALM).filter(|calm| now < *calm)
    }
}

/// The label by which Services find it. Readers are sent to a replica that lacks no more than so much; one that was left out
/// is taken in again when it lacks no more than half of that, so that one near the limit does not come and go.
fn label(role: &Role, behind: Option<u64>, most: u64, before: &str) -> &'static str {
    let limit = if before == roles::REPLICA { most } else { most / 2 };
    match role {
        Role::Primary => roles::PRIMARY,
        Role::Replica | Role::Synchronous if behind.is_some_and(|behind| behind <= limit) => roles::REPLICA,
        _ => roles::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_not_sent_to_one_that_is_far_behind_or_not_there_yet() {
        let of = |role, behind, before| label(&role, behind, 100, before);
        assert_eq!(of(Role::Replica, Some(0), roles::NONE), roles::REPLICA);
        assert_eq!(of(Role::Synchronous, Some(100), roles::REPLICA), roles::REPLICA);
        assert_eq!(of(Role::Synchronous, Some(101), roles::REPLICA), roles::NONE);
        assert_eq!(of(Role::Replica, None, roles::REPLICA), roles::NONE, "nobody knows how far it is behind");
        assert_eq!(of(Role::Replica, Some(51), roles::NONE), roles::NONE, "it would be gone again soon");
        assert_eq!(of(Role::Replica, Some(50), roles::NONE), roles::REPLICA);
        assert_eq!(of(Role::Joining, Some(0), roles::REPLICA), roles::NONE);
        assert_eq!(of(Role::Primary, None, roles::NONE), roles::PRIMARY);
    }

    #[test]
    fn when_leadership_changes_writers_are_led_first() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let report = |role, epoch| Report { role, epoch, ..Report::default() };
        let mut readers = Readers::new();
        let mut label = |role, epoch, now| {
            let label = readers.label(&report(role, epoch), Some(0), 100, at(now));
            (label, readers.wake(at(now)).is_some())
        };
        assert_eq!(
            label(Role::Replica, 7, 0),
            (roles::REPLICA, false),
            "the first that is seen is no change"
        );
        assert_eq!(label(Role::Replica, 0, 1000), (roles::REPLICA, true), "nobody leads");
        assert_eq!(label(Role::Primary, 8, 1500), (roles::REPLICA, true));
        assert_eq!(label(Role::Primary, 8, 3499), (roles::REPLICA, true));
        assert_eq!(label(Role::Primary, 8, 3500), (roles::PRIMARY, false));
        assert_eq!(label(Role::Unknown, 9, 5000), (roles::NONE, true), "no reader was sent there");
        assert_eq!(label(Role::Replica, 9, 6000), (roles::NONE, true));
        assert_eq!(label(Role::Replica, 9, 7000), (roles::REPLICA, false));
    }
}
