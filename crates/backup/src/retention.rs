//! What may go: a decision without IO.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};

use crate::catalogue::Backup;
use crate::wal::{Segment, SegmentSize};

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every moment of this much of the past can be restored. So the newest backup that is older than that is kept
    /// too: the oldest moments need it.
    For(SignedDuration),
    /// So many backups, whatever they are, and every moment since the oldest of them.
    Count(u32),
}

/// A backup without the note that would make it one: being made, broken off, or half removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its name.
    pub name: String,
    /// When the newest object of it was stored.
    pub newest: Timestamp,
}

/// How long an unfinished backup is left alone: it may still be written to.
pub const UNFINISHED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// What may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// Backups, each before the one that it builds on, so that at no moment one is there without what it needs.
    pub backups: Vec<String>,
    /// Unfinished ones.
    pub unfinished: Vec<String>,
    /// Which of the log stays; `None` if all of it does.
    pub log: Option<Kept>,
}

/// Which segments stay, by number, on every timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// All from this one on.
    pub from: u64,
    /// And these, for backups that are kept for ever: enough to use them, and no more.
    pub also: Vec<RangeInclusive<u64>>,
}

impl Kept {
    /// Whether a segment stays.
    pub fn has(&self, number: u64) -> bool {
        number >= self.from || self.also.iter().any(|range| range.contains(&number))
    }
}

/// Decides what may go now. The newest backup never does, and nothing goes that something which stays needs.
pub fn clear(
    backups: &[Backup],
    unfinished: &[Unfinished],
    policy: Policy,
    now: Timestamp,
    size: SegmentSize,
) -> Clearing {
    let mut sorted: Vec<&Backup> = backups.iter().collect();
    sorted.sort_by(|a, b| (a.finished, &a.name).cmp(&(b.finished, &b.name)));
    let wanted = wanted(&sorted, policy, now);
    let permanent = sorted.iter().filter(|backup| backup.permanent);
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    for backup in wanted.iter().chain(permanent) {
        keep_with_parents(backup, &sorted, &mut kept);
    }
    // The youngest first: what builds on something is younger than that.
    let gone = sorted.iter().rev().filter(|backup| !kept.contains(backup.name.as_str()));
    let old = unfinished.iter().filter(|one| now.duration_since(one.newest) > UNFINISHED_FOR);
    Clearing {
        backups: gone.map(|backup| backup.name.clone()).collect(),
        unfinished: old.map(|one| one.name.clone()).collect(),
        log: log(&wanted, &sorted, size),
    }
}

/// Those that the policy asks for: the newest in any case.
fn wanted<'a>(sorted: &[&'a Backup], policy: Policy, now: Timestamp) -> Vec<&'a Backup> {
    let first = match policy {
        Policy::Count(count) => sorted.len().saturating_sub(count.max(1) as usize),
        Policy::For(past) => {
            let since = now.saturating_sub(past).unwrap_or(Timestamp::MIN);
            let newer = sorted.partition_point(|backup| backup.finished <= since);
            newer.saturating_sub(1)
        }
    };
    sorted[first.min(sorted.len().saturating_sub(1))..].to_vec()
}

fn keep_with_parents<'a>(backup: &'a Backup, all: &[&'a Backup], kept: &mut BTreeSet<&'a str>) {
    let mut next = Some(backup);
    while let Some(backup) = next {
        if !kept.insert(&backup.name) {
            return;
        }
        next = backup.parent.as_deref().and_then(|parent| all.iter().find(|one| one.name == parent)).copied();
    }
}

/// A backup needs the log from where it begins, and not that of those it builds on.
fn log(wanted: &[&Backup], all: &[&Backup], size: SegmentSize) -> Option<Kept> {
    let first = |backup: &&Backup| Segment::at(backup.timeline, backup.start, size).number;
    let from = wanted.iter().map(first).min()?;
    let permanent = all.iter().filter(|backup| backup.permanent);
    let also =
        permanent.map(|backup| first(backup)..=Segment::at(backup.timeline, backup.finish, size).number);
    Some(Kept { from, also: also.filter(|range| *range.start() < from).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lsn::Lsn;

    const SIZE: SegmentSize = SegmentSize::DEFAULT;

    fn day(number: i64) -> Timestamp {
        Timestamp::from_second(number * 86_400).unwrap()
    }

    fn days(number: i64) -> Policy {
        Policy::For(SignedDuration::from_hours(24 * number))
    }

    /// Of that day, and in the segment of that number.
    fn backup(number: u64, parent: Option<u64>) -> Backup {
        let name = |number: u64| format!("base_{}", Segment { timeline: 1, number }.name(SIZE));
        Backup {
            name: name(number),
            timeline: 1,
            start: Lsn(number * SIZE.bytes()),
            finish: Lsn(number * SIZE.bytes() + 9),
            started: day(number as i64),
            finished: day(number as i64),
            parent: parent.map(name),
            depth: 0,
            version: 170_004,
            size: 0,
            stored: 0,
            permanent: false,
            manifest: None,
        }
    }

    fn left(backups: &[Backup], clearing: &Clearing) -> Vec<u64> {
        let stays = backups.iter().filter(|backup| !clearing.backups.contains(&backup.name));
        stays.map(|backup| backup.start.0 / SIZE.bytes()).collect()
    }

    #[test]
    fn every_moment_of_the_window_stays_possible() {
        let backups: Vec<Backup> = (1..=10).map(|number| backup(number, None)).collect();
        let clearing = clear(&backups, &[], days(3), day(10), SIZE);
        assert_eq!(left(&backups, &clearing), [7, 8, 9, 10], "the seventh is for what came after it");
        assert_eq!(clearing.log, Some(Kept { from: 7, also: vec![] }));
        let clearing = clear(&backups, &[], days(3), day(100), SIZE);
        assert_eq!(left(&backups, &clearing), [10], "the newest stays however old it is");
    }

    #[test]
    fn so_many_are_kept_as_were_asked_for_and_never_none() {
        let backups: Vec<Backup> = (1..=5).map(|number| backup(number, None)).collect();
        for (count, stay) in [(0, vec![5]), (1, vec![5]), (2, vec![4, 5]), (9, vec![1, 2, 3, 4, 5])] {
            assert_eq!(left(&backups, &clear(&backups, &[], Policy::Count(count), day(9), SIZE)), stay);
        }
        assert_eq!(clear(&[], &[], Policy::Count(1), day(9), SIZE), Clearing::default());
    }

    #[test]
    fn what_something_newer_builds_on_stays_but_not_its_log() {
        let backups = [backup(1, None), backup(2, Some(1)), backup(3, None), backup(4, Some(2))];
        let clearing = clear(&backups, &[], Policy::Count(1), day(9), SIZE);
        assert_eq!(left(&backups, &clearing), [1, 2, 4]);
        assert_eq!(clearing.log, Some(Kept { from: 4, also: vec![] }));
    }

    #[test]
    fn a_chain_goes_from_its_end() {
        let backups = [backup(1, None), backup(2, Some(1)), backup(3, Some(2)), backup(4, None)];
        let clearing = clear(&backups, &[], Policy::Count(1), day(9), SIZE);
        let order: Vec<&str> = clearing.backups.iter().map(String::as_str).collect();
        assert_eq!(order, [&*backups[2].name, &*backups[1].name, &*backups[0].name]);
    }

    #[test]
    fn what_is_kept_for_ever_keeps_its_own_log_and_no_more() {
        let mut backups: Vec<Backup> = (1..=5).map(|number| backup(number, None)).collect();
        backups[1].permanent = true;
        let clearing = clear(&backups, &[], Policy::Count(1), day(9), SIZE);
        assert_eq!(left(&backups, &clearing), [2, 5]);
        let log = clearing.log.unwrap();
        let stay: Vec<u64> = (0..8).filter(|number| log.has(*number)).collect();
        assert_eq!(stay, [2, 5, 6, 7]);
    }

    #[test]
    fn an_unfinished_one_is_left_alone_for_a_day() {
        let unfinished = |number| Unfinished { name: format!("base_{number}"), newest: day(number) };
        let clearing = clear(&[], &[unfinished(7), unfinished(9)], Policy::Count(1), day(9), SIZE);
        assert_eq!(clearing.unfinished, ["base_7"]);
    }

    fn histories() -> impl Strategy<Value = Vec<Backup>> {
        let one = (any::<prop::sample::Index>(), any::<bool>(), prop::bool::weighted(0.1));
        prop::collection::vec(one, 1..14).prop_map(|drawn| {
            let mut backups: Vec<Backup> = Vec::new();
            for (at, (below, incremental, permanent)) in drawn.into_iter().enumerate() {
                let number = at as u64 + 1;
                let parent = (incremental && at > 0).then(|| below.index(at) as u64 + 1);
                backups.push(Backup { permanent, ..backup(number, parent) });
            }
            backups
        })
    }

    proptest! {
        #[test]
        fn nothing_that_stays_lacks_what_it_needs_at_any_step(
            backups in histories(), count in 0_u32..6, past in 0_i64..12, by_count in any::<bool>(), today in 14_i64..30,
        ) {
            let policy = if by_count { Policy::Count(count) } else { days(past) };
            let clearing = clear(&backups, &[], policy, day(today), SIZE);
            let mut there: Vec<&Backup> = backups.iter().collect();
            // Whole at every step, wherever it breaks off.
            for gone in clearing.backups.iter().map(Some).chain([None]) {
                for backup in &there {
                    if let Some(parent) = &backup.parent {
                        prop_assert!(there.iter().any(|one| one.name == *parent), "{} lacks {parent}", backup.name);
                    }
                }
                there.retain(|backup| Some(&backup.name) != gone);
            }
            prop_assert!(there.iter().any(|backup| backup.name == backups[backups.len() - 1].name), "the newest went");
            prop_assert!(backups.iter().filter(|one| one.permanent).all(|one| !clearing.backups.contains(&one.name)));
            if let Policy::For(past) = policy {
                // What could be restored within the window can be restored still, with the log that it needs.
                let log = clearing.log.clone().unwrap();
                for moment in (0..today * 2).map(|half| Timestamp::from_second(half * 43_200).unwrap()) {
                    if moment < day(today) - past {
                        continue;
                    }
                    let before = backups.iter().rfind(|backup| backup.finished <= moment);
                    let after = there.iter().rfind(|backup| backup.finished <= moment);
                    prop_assert_eq!(before, after.copied());
                    let needed = before.map(|backup| backup.start.0 / SIZE.bytes());
                    prop_assert!(needed.is_none_or(|first| (first..40).all(|number| log.has(number))));
                }
            }
            let stays: Vec<Backup> = there.into_iter().cloned().collect();
            let again = clear(&stays, &[], policy, day(today), SIZE);
            prop_assert_eq!(again.backups, Vec::<String>::new(), "a second time finds nothing");
            prop_assert_eq!(again.log, clearing.log);
        }
    }
}
