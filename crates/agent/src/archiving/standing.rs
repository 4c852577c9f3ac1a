//! What is told of the log, and when: a report is a write to the API server, so it is not made for each segment.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use keelson_api::instance::ArchiveReport;
use keelson_backup::archive::State;

use super::place::{self, Trouble};
use crate::room::Room;

/// So often it is told how far the archive is, while all is well.
const CALM: Duration = Duration::from_secs(300);
/// So often, while something waits or is wrong.
const UNEASY: Duration = Duration::from_secs(30);
/// So many files may wait without being worth a word: they are on their way.
const ON_THE_WAY: usize = 2;
/// A rate is taken over so long.
const WINDOW: Duration = Duration::from_secs(120);
/// And over no less than this.
const LEAST: Duration = Duration::from_secs(20);

/// What is in the repository, as last looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// The first moment that can be restored.
    pub first: Option<Timestamp>,
    /// When the last of the backups was complete.
    pub finished: Option<Timestamp>,
    /// The names of the backups, oldest first.
    pub backups: Vec<String>,
    /// When it was looked.
    pub looked: Option<Timestamp>,
}

/// What is known of the log at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// How many files wait, and since when the oldest does.
    pub waiting: usize,
    pub oldest: Option<Timestamp>,
    /// When one was last sent.
    pub last: Option<Timestamp>,
    pub trouble: Option<Trouble>,
    /// What is in the repository, once that is known.
    pub shelf: Option<Shelf>,
}

impl Look {
    pub(crate) fn of(state: &State, shelf: Option<Shelf>) -> Look {
        let trouble = state.trouble.as_ref();
        Look {
            waiting: state.waiting,
            oldest: state.oldest,
            last: state.last.as_ref().map(|(_, at)| *at),
            trouble: trouble.map(|trouble| place::of(trouble.class, trouble.text.clone())),
            shelf,
        }
    }
}

/// What was told, and how the log has grown.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    told: Option<(Instant, ArchiveReport)>,
    /// How many bytes waited, and when.
    waited: Vec<(Instant, u64)>,
    /// When something was last sent, whatever the connection to the store.
    last: Option<Timestamp>,
}

impl Standing {
    /// What is to be told now, given how much a segment holds and what room there is.
    pub(crate) fn tell(&mut self, look: &Look, segment: u64, room: Room, now: Instant) -> ArchiveReport {
        let bytes = (look.waiting as u64).saturating_mul(segment);
        self.waited.retain(|(at, _)| now.saturating_duration_since(*at) < WINDOW);
        self.waited.push((now, bytes));
        self.last = look.last.max(self.last);
        let fresh = self.compose(look, bytes, room);
        let told = match self.told.take() {
            Some((at, told)) if !is_due(&told, &fresh, now.saturating_duration_since(at)) => (at, told),
            _ => (now, fresh),
        };
        self.told.insert(told).1.clone()
    }

    fn compose(&self, look: &Look, bytes: u64, room: Room) -> ArchiveReport {
        let many = look.waiting > ON_THE_WAY;
        let uneasy = many || look.trouble.is_some();
        let (reason, problem) =
            look.trouble.clone().map(|trouble| (trouble.reason.to_owned(), trouble.problem)).unzip();
        let shelf = look.shelf.as_ref();
        let first = shelf.and_then(|shelf| shelf.first);
        ArchiveReport {
            waiting: if many { look.waiting as u64 } else { 0 },
            waiting_bytes: if many { bytes } else { 0 },
            oldest: look.oldest.filter(|_| uneasy),
            last: self.last,
            full_in_seconds: full_in(&self.waited, room).filter(|_| uneasy),
            reason,
            problem,
            first_recoverable: first,
            last_recoverable: first.and(self.last.max(first)),
            last_backup: shelf.and_then(|shelf| shelf.finished),
            backups: shelf.map(|shelf| shelf.backups.clone()),
            looked: shelf.and_then(|shelf| shelf.looked),
        }
    }
}

/// Whether what is known now is told at once, or later, or not at all.
fn is_due(told: &ArchiveReport, fresh: &ArchiveReport, ago: Duration) -> bool {
    if told == fresh {
        return false;
    }
    let at_once = told.reason != fresh.reason
        || told.backups != fresh.backups
        || told.first_recoverable != fresh.first_recoverable
        || (told.waiting == 0) != (fresh.waiting == 0);
    let uneasy = fresh.waiting > 0 || fresh.reason.is_some();
    at_once || ago >= if uneasy { UNEASY } else { CALM }
}

/// In how many seconds the volume is full, at the rate at which what waits has grown.
fn full_in(waited: &[(Instant, u64)], room: Room) -> Option<u64> {
    let ((began, before), (ended, after)) = (waited.first()?, waited.last()?);
    let span = ended.saturating_duration_since(*began);
    let grown = after.checked_sub(*before).filter(|grown| *grown > 0)?;
    if span < LEAST || room.size == 0 {
        return None;
    }
    let left = room.free.saturating_sub(room.reserve());
    let seconds = left as f64 / (grown as f64 / span.as_secs_f64());
    // Anything more exact would be another number each time.
    Some(seconds as u64 / 60 * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;
    const ROOM: Room = Room { size: 10 << 30, free: 5 << 30 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn calm(last: i64) -> Look {
        let shelf = Shelf {
            first: Some(at(10)),
            finished: Some(at(10)),
            backups: vec!["base_1".into()],
            looked: Some(at(20)),
        };
        Look { last: Some(at(last)), shelf: Some(shelf), ..Look::default() }
    }

    fn dead(waiting: usize) -> Look {
        let trouble = place::of(keelson_backup::Class::Unreachable, "it does not answer".into());
        Look { waiting, oldest: Some(at(100)), trouble: Some(trouble), ..calm(100) }
    }

    #[test]
    fn a_segment_a_minute_is_not_a_report_a_minute() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        let told = |standing: &mut Standing, minute: u64| {
            let now = start + Duration::from_secs(60 * minute);
            standing.tell(&calm(60 * minute as i64), SEGMENT, ROOM, now).last
        };
        assert_eq!(told(&mut standing, 1), Some(at(60)));
        for minute in 2..=5 {
            assert_eq!(told(&mut standing, minute), Some(at(60)));
        }
        assert_eq!(told(&mut standing, 6), Some(at(360)));
    }

    #[test]
    fn trouble_and_its_end_are_told_at_once() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        assert_eq!(standing.tell(&calm(100), SEGMENT, ROOM, start).reason, None);
        let said = standing.tell(&dead(1), SEGMENT, ROOM, start + Duration::from_secs(1));
        assert_eq!(said.reason.as_deref(), Some("StoreUnreachable"));
        assert_eq!((said.waiting, said.oldest), (0, Some(at(100))), "one is on its way");
        let over = standing.tell(&calm(103), SEGMENT, ROOM, start + Duration::from_secs(3));
        assert_eq!((over.reason, over.last_recoverable), (None, Some(at(103))));
    }

    #[test]
    fn the_time_until_the_volume_is_full_follows_from_how_what_waits_grows() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        let mut said = ArchiveReport::default();
        // A segment each second: 16 MiB/s into some 4.8 GiB.
        for second in 0..=60 {
            let now = start + Duration::from_secs(second as u64);
            said = standing.tell(&dead(second), SEGMENT, ROOM, now);
        }
        assert_eq!(said.full_in_seconds, Some(300));
        assert!((30..=60).contains(&said.waiting), "{said:?}");
        let steady: Vec<(Instant, u64)> = vec![(start, 5), (start + WINDOW, 5)];
        assert_eq!(full_in(&steady, ROOM), None, "what does not grow fills nothing");
        let short: Vec<(Instant, u64)> = vec![(start, 0), (start + Duration::from_secs(1), SEGMENT)];
        assert_eq!(full_in(&short, ROOM), None, "a moment says nothing");
    }

    #[test]
    fn without_a_backup_nothing_can_be_restored() {
        let mut standing = Standing::default();
        let look = Look { shelf: Some(Shelf::default()), ..calm(100) };
        let said = standing.tell(&look, SEGMENT, ROOM, Instant::now());
        assert_eq!((said.first_recoverable, said.last_recoverable), (None, None));
        assert_eq!(said.backups, Some(vec![]));
        let unknown = Standing::default().tell(&Look::default(), SEGMENT, ROOM, Instant::now());
        assert_eq!(unknown.backups, None, "nobody has looked yet");
    }
}
