//! Which segments a repository has, in as little memory as will do: a month of them are a few runs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::history::Stretch;
use crate::wal::Segment;

/// A set of segments, as runs without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By timeline and first number.
    runs: BTreeMap<(u32, u64), Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The number after the last.
    end: u64,
    /// When the newest of them was stored.
    newest: Timestamp,
}

/// How far a way through the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The first segment that is not there.
    pub missing: Segment,
    /// Whether later ones are there, on the way: then this is a gap, and not the end.
    pub gap: bool,
    /// When the last one before it was stored; nothing that was written later can be reached.
    pub newest: Option<Timestamp>,
}

impl Coverage {
    /// Adds a segment that was stored at that time.
    pub fn insert(&mut self, segment: Segment, stored: Timestamp) {
        let Segment { timeline, number } = segment;
        let before = self.runs.range(..=(timeline, number)).next_back();
        let (start, mut run) = match before {
            Some((&(of, start), &run)) if of == timeline && run.end >= number => {
                (start, Run { end: run.end.max(number + 1), newest: run.newest.max(stored) })
            }
            _ => (number, Run { end: number + 1, newest: stored }),
        };
        if let Some(further) = self.runs.remove(&(timeline, run.end)) {
            run = Run { end: further.end, newest: run.newest.max(further.newest) };
        }
        self.runs.insert((timeline, start), run);
    }

    /// Whether a segment is there.
    pub fn has(&self, segment: Segment) -> bool {
        self.run_of(segment).is_some()
    }

    fn run_of(&self, Segment { timeline, number }: Segment) -> Option<Run> {
        let (&(of, _), &run) = self.runs.range(..=(timeline, number)).next_back()?;
        (of == timeline && run.end > number).then_some(run)
    }

    /// The latest timeline of which there is anything.
    pub fn latest_timeline(&self) -> Option<u32> {
        self.runs.keys().next_back().map(|(timeline, _)| *timeline)
    }

    /// How far one comes along a way.
    pub fn reach(&self, path: &[Stretch]) -> Option<Reach> {
        let mut newest = None;
        for (at, stretch) in path.iter().enumerate() {
            let first = Segment { timeline: stretch.timeline, number: stretch.first };
            let run = self.run_of(first);
            newest = newest.max(run.map(|run| run.newest));
            let end = run.map_or(stretch.first, |run| run.end);
            if stretch.end.is_some_and(|wanted| end >= wanted) {
                continue;
            }
            let until = (stretch.timeline, stretch.end.unwrap_or(u64::MAX));
            let later = self.runs.range((stretch.timeline, end)..until).next().is_some();
            let further = path[at + 1..].iter().any(|next| {
                self.runs.range((next.timeline, next.first)..(next.timeline, u64::MAX)).next().is_some()
            });
            let missing = Segment { timeline: stretch.timeline, number: end };
            return Some(Reach { missing, gap: later || further, newest });
        }
        None
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

impl FromIterator<(Segment, Timestamp)> for Coverage {
    fn from_iter<I: IntoIterator<Item = (Segment, Timestamp)>>(segments: I) -> Self {
        let mut coverage = Coverage::default();
        segments.into_iter().for_each(|(segment, stored)| coverage.insert(segment, stored));
        coverage
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn segment(timeline: u32, number: u64) -> Segment {
        Segment { timeline, number }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(second.cast_signed()).unwrap()
    }

    /// Each stored at the second of its number.
    fn covering(segments: &[(u32, u64)]) -> Coverage {
        segments.iter().map(|(timeline, number)| (segment(*timeline, *number), at(*number))).collect()
    }

    fn reach(missing: Segment, gap: bool, newest: Option<u64>) -> Option<Reach> {
        Some(Reach { missing, gap, newest: newest.map(at) })
    }

    #[test]
    fn a_gap_is_told_from_the_end() {
        let coverage = covering(&[(1, 1), (1, 2), (1, 3), (1, 5)]);
        let open = |first| [Stretch { timeline: 1, first, end: None }];
        assert_eq!(coverage.reach(&open(1)), reach(segment(1, 4), true, Some(3)));
        assert_eq!(coverage.reach(&open(5)), reach(segment(1, 6), false, Some(5)));
        assert_eq!(coverage.reach(&open(9)), reach(segment(1, 9), false, None));
    }

    #[test]
    fn a_way_leads_over_timelines() {
        let coverage = covering(&[(1, 1), (1, 2), (1, 3), (2, 3), (2, 4)]);
        let stretches = |end| {
            [
                Stretch { timeline: 1, first: 1, end: Some(end) },
                Stretch { timeline: 2, first: end, end: None },
            ]
        };
        assert_eq!(coverage.reach(&stretches(3)), reach(segment(2, 5), false, Some(4)));
        let lost = covering(&[(1, 1), (1, 2), (1, 3), (2, 5)]).reach(&stretches(5));
        assert_eq!(lost, reach(segment(1, 4), true, Some(3)), "the end of the first is lost");
    }

    proptest! {
        #[test]
        fn runs_say_what_a_set_would(numbers in prop::collection::vec((1_u32..4, 0_u64..24), 0..60)) {
            let set: BTreeSet<Segment> = numbers.iter().map(|(t, n)| segment(*t, *n)).collect();
            let coverage = covering(&numbers);
            for timeline in 1..4 {
                for number in 0..26 {
                    let one = segment(timeline, number);
                    prop_assert_eq!(coverage.has(one), set.contains(&one));
                }
                let open = [Stretch { timeline, first: 0, end: None }];
                let end = (0..).find(|number| !set.contains(&segment(timeline, *number))).unwrap();
                let found = coverage.reach(&open).unwrap();
                prop_assert_eq!(found.missing.number, end);
                prop_assert_eq!(found.newest, end.checked_sub(1).map(at));
            }
            let starts = set.iter().filter(|one| one.number == 0 || !set.contains(&segment(one.timeline, one.number - 1)));
            prop_assert_eq!(coverage.runs(), starts.count(), "no run is kept in two pieces");
        }
    }
}
