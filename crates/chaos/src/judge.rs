//! Whether what clients were told can be true: nothing lost, nothing doubled, never two that acknowledge, and no reader
//! that goes back.

use std::collections::BTreeSet;
use std::fmt;

use keelson_rig::history::check;

use crate::cast::{Database, Promise};
use crate::record::{CLIENTS, Read, Record, Write, client_of};

/// What is written between two renewals of a Lease, which says how far its holder is: so much more than `maxLag` may
/// be lost where commits wait for nobody.
const BETWEEN_RENEWALS: u64 = 256 << 10;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Acknowledged under quorum, and not there.
    Lost { rows: Vec<u64> },
    /// Acknowledged where commits wait for nobody, not there, and not at the end of what one primary acknowledged:
    /// the first is gone and the second, which came after it, is not.
    Hole { gone: u64, there: u64 },
    /// Lost of the timeline of whoever leads.
    LostByTheLiving { rows: Vec<u64> },
    /// More bytes of log were lost than `maxLag` allows.
    BeyondBound { timeline: u64, bytes: u64 },
    /// There more than once.
    Doubled { rows: usize },
    /// Acknowledged on an old timeline, though it was sent after a newer one had acknowledged something.
    Two { old: Write, new: Write },
    /// A client read less than it knew to be there.
    WentBack { client: usize, at: u64, of: usize, knew: u64, read: u64 },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Lost { rows } => {
                write!(f, "{} rows are lost that were acknowledged: {rows:?}", rows.len())
            }
            Broken::Hole { gone, there } => {
                write!(f, "row {gone} is lost, and {there} is not, which the same primary acknowledged later")
            }
            Broken::LostByTheLiving { rows } => {
                write!(f, "whoever leads has acknowledged rows that are not there: {rows:?}")
            }
            Broken::BeyondBound { timeline, bytes } => {
                write!(f, "{bytes} bytes of log of timeline {timeline} are lost, more than maxLag allows")
            }
            Broken::Doubled { rows } => write!(f, "{rows} rows are there more than once"),
            Broken::Two { old, new } => write!(
                f,
                "two acknowledge: row {} on timeline {} (through {}) was sent {} ms after row {} was \
                 acknowledged on timeline {} (through {})",
                old.row.id,
                old.timeline,
                old.way,
                old.row.sent.saturating_sub(new.row.answered),
                new.row.id,
                new.timeline,
                new.way
            ),
            Broken::WentBack { client, at, of, knew, read } => write!(
                f,
                "client {client} reads back at {at}: the last row of client {of} was {knew}, and now is {read}"
            ),
        }
    }
}

/// What is found of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) acknowledged: usize,
    pub(crate) direct: usize,
    pub(crate) reads: usize,
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
    pub(crate) broken: Vec<Broken>,
}

/// Judges what clients were told of a database by the rows that are there. What was acknowledged after the rows were
/// asked for need not be among them.
pub(crate) fn judge(database: &Database, records: &[Record], rows: &[u64], asked: u64) -> Judgement {
    let writes: Vec<&Write> = records.iter().filter_map(write).collect();
    let reads: Vec<&Read> = records.iter().filter_map(read).collect();
    let before: Vec<&Write> = writes.iter().filter(|write| write.row.answered < asked).copied().collect();
    let acknowledged: Vec<_> = before.iter().map(|write| write.row).collect();
    let verdict = check(&acknowledged, rows);
    let mut broken = lost(database, &before, rows);
    if verdict.doubled > 0 {
        broken.push(Broken::Doubled { rows: verdict.doubled });
    }
    broken.extend(two(&writes));
    if database.synchronous() {
        broken.extend(went_back(&writes, &reads));
    }
    Judgement {
        acknowledged: writes.len(),
        direct: writes.iter().filter(|write| write.way != crate::record::WRITERS).count(),
        reads: reads.len(),
        lost: verdict.lost,
        doubled: verdict.doubled,
        broken,
    }
}

fn write(record: &Record) -> Option<&Write> {
    match record {
        Record::Write(write) => Some(write),
        Record::Read(_) => None,
    }
}

fn read(record: &Record) -> Option<&Read> {
    match record {
        Record::Read(read) => Some(read),
        Record::Write(_) => None,
    }
}

fn lost(database: &Database, writes: &[&Write], rows: &[u64]) -> Vec<Broken> {
    let there: BTreeSet<u64> = rows.iter().copied().collect();
    let gone: Vec<&Write> = writes.iter().filter(|write| !there.contains(&write.row.id)).copied().collect();
    let ids = |gone: &[&Write]| gone.iter().map(|write| write.row.id).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let bound = match database.promise {
        Promise::Nothing => return vec![Broken::Lost { rows: ids(&gone) }],
        Promise::AtMost(bound) => bound,
    };
    let mut broken = Vec::new();
    let newest = writes.iter().map(|write| write.timeline).max().unwrap_or_default();
    let living: Vec<&Write> = gone.iter().filter(|write| write.timeline == newest).copied().collect();
    if !living.is_empty() {
        broken.push(Broken::LostByTheLiving { rows: ids(&living) });
    }
    let timelines: BTreeSet<u64> = gone.iter().map(|write| write.timeline).collect();
    for timeline in timelines {
        let of = |write: &&&Write| write.timeline == timeline;
        let first = gone.iter().filter(of).min_by_key(|write| write.row.answered);
        let kept = writes.iter().filter(of).filter(|write| there.contains(&write.row.id));
        if let Some(first) = first {
            let later =
                kept.filter(|write| write.row.sent >= first.row.answered).min_by_key(|write| write.row.sent);
            broken.extend(later.map(|kept| Broken::Hole { gone: first.row.id, there: kept.row.id }));
        }
        let places = || gone.iter().filter(of).map(|write| write.place);
        let bytes = places().max().unwrap_or_default() - places().min().unwrap_or_default();
        if bytes > bound + BETWEEN_RENEWALS {
            broken.push(Broken::BeyondBound { timeline, bytes });
        }
    }
    broken
}

/// The first of each timeline that acknowledges what was sent after a newer one had acknowledged something.
fn two(writes: &[&Write]) -> Vec<Broken> {
    let timelines: BTreeSet<u64> = writes.iter().map(|write| write.timeline).collect();
    let found = timelines.iter().filter_map(|&timeline| {
        let newer = writes.iter().filter(|write| write.timeline > timeline);
        let first = newer.min_by_key(|write| write.row.answered)?;
        let late = writes
            .iter()
            .filter(|write| write.timeline == timeline && write.row.sent >= first.row.answered)
            .max_by_key(|write| write.row.sent)?;
        Some(Broken::Two { old: (*late).clone(), new: (*first).clone() })
    });
    found.collect()
}

/// The first time that each client reads less than it knew: of what it was told itself, and of what it has read of
/// others that was acknowledged to them. What was never acknowledged may be seen, and be gone again.
fn went_back(writes: &[&Write], reads: &[&Read]) -> Vec<Broken> {
    let acknowledged: BTreeSet<u64> = writes.iter().map(|write| write.row.id).collect();
    let found = (0..CLIENTS).filter_map(|client| {
        let mut own: Vec<&Write> =
            writes.iter().filter(|write| client_of(write.row.id) == client).copied().collect();
        own.sort_by_key(|write| write.row.answered);
        let mut mine: Vec<&Read> = reads.iter().filter(|read| read.client == client).copied().collect();
        mine.sort_by_key(|read| read.sent);
        let mut own = own.into_iter().peekable();
        let (mut knew, mut answers) = ([0; CLIENTS], Vec::<&Read>::new());
        for read in mine {
            while let Some(write) = own.next_if(|write| write.row.answered <= read.sent) {
                knew[client] = knew[client].max(write.row.id);
            }
            answers.retain(|earlier| {
                let over = earlier.answered <= read.sent;
                if over {
                    learn(&mut knew, &earlier.last, &acknowledged);
                }
                !over
            });
            if let Some(of) = (0..CLIENTS).find(|&of| read.last[of] < knew[of]) {
                let (knew, read, at) = (knew[of], read.last[of], read.sent);
                return Some(Broken::WentBack { client, at, of, knew, read });
            }
            answers.push(read);
        }
        None
    });
    found.collect()
}

fn learn(knew: &mut [u64; CLIENTS], last: &[u64; CLIENTS], acknowledged: &BTreeSet<u64>) {
    for (of, (knew, seen)) in knew.iter_mut().zip(last).enumerate() {
        let sure = acknowledged.range(..=*seen).next_back().filter(|id| client_of(**id) == of);
        *knew = (*knew).max(sure.copied().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use keelson_rig::history::Acknowledged;

    use super::*;
    use crate::cast::cast;
    use crate::record::{APART, WRITERS};

    fn quorum() -> Database {
        cast().swap_remove(0)
    }

    fn loose() -> Database {
        cast().swap_remove(2)
    }

    /// A row that was sent and acknowledged on a timeline. Its place in the log is its number.
    fn row(id: u64, sent: u64, answered: u64, timeline: u64) -> Record {
        let row = Acknowledged { id, sent, answered };
        Record::Write(Write { row, way: WRITERS.into(), timeline, place: id })
    }

    fn reads(client: usize, sent: u64, last: [u64; CLIENTS]) -> Record {
        Record::Read(Read { client, sent, answered: sent + 1, last })
    }

    fn broken(database: &Database, records: &[Record], rows: &[u64]) -> Vec<Broken> {
        judge(database, records, rows, 1_000_000).broken
    }

    #[test]
    fn a_history_as_it_should_be_breaks_nothing() {
        let records = [
            row(1, 10, 12, 1),
            row(2, 20, 22, 1),
            // Sent before the newer timeline acknowledged anything, told of later: as after a pause.
            row(3, 30, 99, 1),
            row(4, 50, 52, 2),
            reads(0, 60, [4, 0, 0, 0]),
            reads(0, 70, [9, 0, 0, 0]),
        ];
        let found = judge(&quorum(), &records, &[1, 2, 3, 4, 77], 1_000_000);
        assert_eq!(found.broken, []);
        assert_eq!((found.acknowledged, found.lost, found.doubled, found.reads), (4, 0, 0, 2));
    }

    #[test]
    fn what_is_lost_under_quorum_is_found() {
        let records = [row(1, 10, 12, 1), row(2, 20, 22, 1)];
        assert_eq!(broken(&quorum(), &records, &[2]), [Broken::Lost { rows: vec![1] }]);
        // What was acknowledged after the rows were asked for need not be there.
        assert_eq!(judge(&quorum(), &records, &[1], 21).broken, []);
    }

    #[test]
    fn what_is_there_twice_is_found() {
        let records = [row(1, 10, 12, 1)];
        assert_eq!(broken(&quorum(), &records, &[1, 1, 7, 7]), [Broken::Doubled { rows: 2 }]);
    }

    #[test]
    fn two_that_acknowledge_are_found_by_whatever_way() {
        for database in [quorum(), loose()] {
            let old = Record::Write(Write {
                row: Acknowledged { id: 3, sent: 31, answered: 33 },
                way: "three-1".into(),
                timeline: 1,
                place: 3,
            });
            let records = [row(1, 10, 12, 1), row(2, 20, 30, 2), old];
            let found = broken(&database, &records, &[1, 2, 3]);
            assert!(
                matches!(found.as_slice(), [Broken::Two { old, new }] if old.row.id == 3 && new.row.id == 2),
                "{found:?}"
            );
        }
    }

    #[test]
    fn the_end_of_what_an_async_primary_acknowledged_may_be_lost_and_nothing_before_it() {
        let records = [row(1, 10, 12, 1), row(2, 20, 22, 1), row(3, 30, 32, 1), row(4, 50, 52, 2)];
        assert_eq!(broken(&loose(), &records, &[1, 4]), []);
        assert_eq!(judge(&loose(), &records, &[1, 4], 1000).lost, 2);
        assert_eq!(broken(&loose(), &records, &[1, 3, 4]), [Broken::Hole { gone: 2, there: 3 }]);
        assert_eq!(broken(&loose(), &records, &[1, 2, 3]), [Broken::LostByTheLiving { rows: vec![4] }]);
        // Of two that were on their way at once, either may have been first in the log.
        let together = [row(2, 20, 24, 1), row(3, 21, 23, 1), row(4, 50, 52, 2)];
        assert_eq!(broken(&loose(), &together, &[2, 4]), []);
    }

    #[test]
    fn more_than_the_declared_bound_is_found() {
        let far = 3 << 20;
        let records = [row(1, 10, 12, 1), row(2, 20, 22, 1), row(far, 30, 32, 1), row(far + 1, 50, 52, 2)];
        let found = broken(&loose(), &records, &[1, far + 1]);
        assert_eq!(found, [Broken::BeyondBound { timeline: 1, bytes: far - 2 }]);
    }

    #[test]
    fn a_reader_that_goes_back_is_found() {
        let other = APART + 5;
        // It was told of its own.
        let own = [row(8, 10, 12, 1), reads(0, 12, [7, 0, 0, 0])];
        let went = Broken::WentBack { client: 0, at: 12, of: 0, knew: 8, read: 7 };
        assert_eq!(broken(&quorum(), &own, &[8]), [went]);
        // It has read what another had been told.
        let records =
            [row(other, 10, 12, 1), reads(0, 20, [0, other, 0, 0]), reads(0, 30, [0, other - 1, 0, 0])];
        let went = Broken::WentBack { client: 0, at: 30, of: 1, knew: other, read: other - 1 };
        assert_eq!(broken(&quorum(), &records, &[other]), [went]);
        assert_eq!(broken(&loose(), &records, &[other]), []);
    }

    #[test]
    fn what_was_never_acknowledged_may_be_seen_and_be_gone() {
        let records = [row(4, 10, 12, 1), reads(0, 20, [9, 0, 0, 0]), reads(0, 30, [4, 0, 0, 0])];
        assert_eq!(broken(&quorum(), &records, &[4]), []);
        // Two reads on their way at once may be answered in any order.
        let seen = Record::Read(Read { client: 0, sent: 20, answered: 40, last: [4, 0, 0, 0] });
        let records = [row(4, 10, 25, 1), seen, reads(0, 24, [0, 0, 0, 0])];
        assert_eq!(broken(&quorum(), &records, &[4]), []);
    }
}
