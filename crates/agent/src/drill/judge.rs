//! What the marks say that were found in what was restored. Pure.

use jiff::Timestamp;
use keelson_api::instance::{Mark, drill_reasons};
use keelson_engine::postgres::Marks;

use crate::archiving::place::Trouble;

/// What is known by the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub newest: Mark,
    pub count: u64,
    /// How old the newest was when the drill began.
    pub lost_seconds: u64,
}

/// Judges what was found. Where no mark was ever written there is nothing to be known by them; where there are some, all
/// have to be.
pub(super) fn marks(found: Option<Marks>, started: Timestamp) -> Result<Option<Seen>, Trouble> {
    let Some(found) = found else { return Ok(None) };
    let missing = |problem: String| Trouble { reason: drill_reasons::MARKS_MISSING, problem, passes: false };
    if !found.are_whole() {
        return Err(missing(format!(
            "rows are missing from what was restored: of the marks {} to {}, which the primary has written one after the \
             other, there are only {}",
            found.first, found.last.number, found.count
        )));
    }
    let at = Timestamp::from_microsecond(found.last.micros)
        .map_err(|error| missing(format!("the newest mark has no time: {error}")))?;
    // Clocks of two machines may differ.
    let lost_seconds = u64::try_from(started.duration_since(at).as_secs()).unwrap_or_default();
    let newest = Mark { number: found.last.number, at };
    Ok(Some(Seen { newest, count: found.count, lost_seconds }))
}

#[cfg(test)]
mod tests {
    use keelson_engine::postgres::Mark as Found;

    use super::*;

    const STARTED: i64 = 1_800_000_000;

    fn judged(first: i64, last: i64, count: u64, second: i64) -> Result<Option<Seen>, Trouble> {
        let last = Found { number: last, micros: second * 1_000_000 };
        marks(Some(Marks { first, last, count }), Timestamp::from_second(STARTED).unwrap())
    }

    #[test]
    fn what_would_have_been_lost_is_what_came_after_the_newest_mark() {
        let seen = judged(3, 9, 7, STARTED - 42).unwrap().unwrap();
        assert_eq!((seen.newest.number, seen.count, seen.lost_seconds), (9, 7, 42));
    }

    #[test]
    fn a_clock_that_is_ahead_makes_nothing_up() {
        assert_eq!(judged(1, 1, 1, STARTED + 5).unwrap().unwrap().lost_seconds, 0);
    }

    #[test]
    fn a_mark_that_is_missing_fails_it() {
        let trouble = judged(1, 9, 8, STARTED).unwrap_err();
        assert_eq!(trouble.reason, drill_reasons::MARKS_MISSING);
        assert!(trouble.problem.contains("1 to 9") && trouble.problem.contains("only 8"), "{trouble:?}");
    }

    #[test]
    fn without_marks_nothing_is_known_by_them() {
        assert_eq!(marks(None, Timestamp::UNIX_EPOCH), Ok(None));
    }
}
