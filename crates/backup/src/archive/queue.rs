//! What is sent next: a decision without IO.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::{Class, Error};
use crate::wal::WalFile;

/// After a failure of the store, how long to wait until it is tried again, and with how many at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    failures: u32,
}

impl Pace {
    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// While it fails, one at a time is enough to see when it no longer does.
    pub(crate) fn at_once(self, limit: usize) -> usize {
        if self.failures > 0 { 1 } else { limit.max(1) }
    }

    pub(crate) fn wait(self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            failures => Duration::from_secs(1 << (failures - 1).min(5)).min(Duration::from_secs(30)),
        }
    }
}

/// Whether an error is about one file, so that the others may go on.
pub(crate) fn is_about_the_file(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::Segment { .. } | Error::Local { .. })
        || (error.class() == Class::Corrupt)
}

/// The files to begin with now: histories first, then the log from its oldest on, none that is on its way or set
/// aside, and no more than there is room for.
pub(crate) fn next<Aside>(
    ready: &BTreeSet<WalFile>,
    on_the_way: &BTreeSet<WalFile>,
    aside: &BTreeMap<WalFile, Aside>,
    limit: usize,
) -> Vec<WalFile> {
    let room = limit.saturating_sub(on_the_way.len());
    let free = ready.iter().filter(|file| !on_the_way.contains(*file) && !aside.contains_key(*file));
    free.take(room).cloned().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(number: u32) -> WalFile {
        WalFile::Segment(format!("00000001{number:016X}"))
    }

    #[test]
    fn histories_come_before_the_log_and_the_log_in_its_order() {
        let ready = [segment(2), WalFile::History(2), segment(1)].into();
        let none = BTreeMap::<WalFile, ()>::new();
        assert_eq!(next(&ready, &BTreeSet::new(), &none, 2), [WalFile::History(2), segment(1)]);
        let on_the_way = [segment(1)].into();
        assert_eq!(next(&ready, &on_the_way, &none, 2), [WalFile::History(2)]);
        let aside = [(WalFile::History(2), ())].into();
        assert_eq!(next(&ready, &on_the_way, &aside, 2), [segment(2)], "one bad file holds nobody up");
    }

    #[test]
    fn a_store_that_fails_is_asked_less_often_and_by_one_only() {
        let mut pace = Pace::default();
        assert_eq!((pace.wait(), pace.at_once(4)), (Duration::ZERO, 4));
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                pace.failed();
                assert_eq!(pace.at_once(4), 1);
                pace.wait().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        pace.succeeded();
        assert_eq!((pace.wait(), pace.at_once(4)), (Duration::ZERO, 4));
    }

    proptest! {
        #[test]
        fn nothing_is_sent_twice_and_never_more_than_there_is_room_for(
            ready in prop::collection::btree_set(0_u32..20, 0..20),
            on_the_way in prop::collection::btree_set(0_u32..20, 0..6),
            limit in 0_usize..8,
        ) {
            let ready: BTreeSet<WalFile> = ready.into_iter().map(segment).collect();
            let on_the_way: BTreeSet<WalFile> = on_the_way.into_iter().map(segment).collect();
            let chosen = next(&ready, &on_the_way, &BTreeMap::<WalFile, ()>::new(), limit);
            prop_assert!(chosen.iter().all(|file| ready.contains(file) && !on_the_way.contains(file)));
            prop_assert!(chosen.is_empty() || chosen.len() + on_the_way.len() <= limit);
            let left = ready.iter().filter(|file| !on_the_way.contains(*file)).count();
            prop_assert_eq!(chosen.len(), left.min(limit.saturating_sub(on_the_way.len())), "room is used");
        }
    }
}
