//! Where timelines come from: a timeline begins at a point of an earlier one, and its history file says where.

use crate::lsn::{Lsn, hex};
use crate::wal::{Segment, SegmentSize};

/// What a history file says: the timelines before this one, oldest first, and where each was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    timeline: u32,
    left: Vec<(u32, Lsn)>,
}

/// A history file that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the history of timeline {timeline} makes no sense: `{text}`")]
pub struct HistoryError {
    timeline: u32,
    line: usize,
    text: String,
}

impl History {
    /// The first timeline has no history.
    pub fn first(timeline: u32) -> History {
        History { timeline, left: Vec::new() }
    }

    /// Reads a history file.
    pub fn parse(timeline: u32, text: &str) -> Result<History, HistoryError> {
        let mut left: Vec<(u32, Lsn)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let bad = || HistoryError { timeline, line: number + 1, text: line.to_owned() };
            let mut words = trimmed.split_whitespace();
            let before: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            let at: Lsn = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            let follows = left.last().is_none_or(|(earlier, from)| *earlier < before && *from <= at);
            if !follows || before >= timeline {
                return Err(bad());
            }
            left.push((before, at));
        }
        Ok(History { timeline, left })
    }

    /// Whose history this is.
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Up to where a timeline is a part of this history: `None` if it is none, `Some(None)` if it has not been
    /// left.
    fn end_of(&self, timeline: u32) -> Option<Option<Lsn>> {
        if timeline == self.timeline {
            return Some(None);
        }
        self.left.iter().find(|(before, _)| *before == timeline).map(|(_, at)| Some(*at))
    }

    /// Whether what was written on a timeline up to a position is a part of this history.
    pub fn has(&self, timeline: u32, lsn: Lsn) -> bool {
        self.end_of(timeline).is_some_and(|end| end.is_none_or(|end| lsn <= end))
    }

    /// The segments that lead from a position on one of its timelines to its end, as ranges of numbers. The
    /// last has no end. Where a timeline was left in the middle of a segment, the next one has a copy of that
    /// segment's beginning, and recovery takes it from there.
    pub fn path(&self, timeline: u32, from: Lsn, size: SegmentSize) -> Vec<Stretch> {
        let mut first = Segment::at(timeline, from, size).number;
        let mut path = Vec::new();
        let later = self.left.iter().filter(|(before, _)| *before >= timeline);
        for (before, at) in later {
            let next = Segment::at(*before, *at, size).number;
            if next > first {
                path.push(Stretch { timeline: *before, first, end: Some(next) });
            }
            first = first.max(next);
        }
        path.push(Stretch { timeline: self.timeline, first, end: None });
        path
    }
}

/// Segments in a row on one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which timeline.
    pub timeline: u32,
    /// The number of the first.
    pub first: u64,
    /// The number after the last; open where the timeline is the latest.
    pub end: Option<u64>,
}

/// The timeline in the name of a history file as the repository has it, with or without a suffix.
pub(crate) fn timeline_of(name: &str) -> Option<u32> {
    let (timeline, rest) = name.split_at_checked(8)?;
    (rest == ".history" || rest.starts_with(".history.")).then(|| hex(timeline)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1\t0/3000060\tno recovery target specified\n\n2\t0/5000000\tbefore 2026-11-18\n";
    const SIZE: SegmentSize = SegmentSize::DEFAULT;

    #[test]
    fn a_history_says_what_belongs_to_it() {
        let history = History::parse(4, TEXT).unwrap();
        assert!(history.has(1, Lsn(0x3000060)));
        assert!(!history.has(1, Lsn(0x3000061)), "written after the timeline was left, and lost");
        assert!(history.has(2, Lsn(0x4000000)));
        assert!(!history.has(3, Lsn(1)), "another branch");
        assert!(history.has(4, Lsn(u64::MAX)));
    }

    #[test]
    fn the_way_to_its_end_leads_over_the_timelines_before() {
        let history = History::parse(4, TEXT).unwrap();
        let stretch = |timeline, first, end| Stretch { timeline, first, end };
        let all = [stretch(1, 1, Some(3)), stretch(2, 3, Some(5)), stretch(4, 5, None)];
        assert_eq!(history.path(1, Lsn(0x1000028), SIZE), all);
        assert_eq!(history.path(2, Lsn(0x4000028), SIZE), [stretch(2, 4, Some(5)), stretch(4, 5, None)]);
        assert_eq!(history.path(4, Lsn(0x6000028), SIZE), [stretch(4, 6, None)]);
        let within_one_segment = History::parse(3, "1\t0/3000060\n2\t0/3000070\n").unwrap();
        assert_eq!(within_one_segment.path(1, Lsn(0x3000028), SIZE), [stretch(3, 3, None)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["x\t0/1", "1", "1\t0/x", "2\t0/2\n1\t0/3", "1\t0/5\n2\t0/4", "4\t0/1"] {
            assert!(History::parse(4, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_history_is_known_by_its_name() {
        assert_eq!(timeline_of("00000002.history.zst"), Some(2));
        assert_eq!(timeline_of("00000002.history"), Some(2));
        assert_eq!(timeline_of("000000010000000000000002.zst"), None);
    }
}
