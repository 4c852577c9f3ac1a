//! What a client writes down: a line for everything that it was told.

use keelson_rig::history::Acknowledged;

/// How many clients there are at most: one on each node.
pub(crate) const CLIENTS: usize = 4;
/// So far apart are the numbers of the rows of two clients: more than there are milliseconds since 1970.
pub(crate) const APART: u64 = 100_000_000_000_000;
/// The way through the Service for writers.
pub(crate) const WRITERS: &str = "rw";

/// Something that a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A write was acknowledged.
    Write(Write),
    /// A read through the Service for writers was answered.
    Read(Read),
}

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Which row, and when.
    pub(crate) row: Acknowledged,
    /// `rw`, or the instance to whose own address the session went.
    pub(crate) way: String,
    /// The timeline of whoever wrote it: another one for each that was promoted.
    pub(crate) timeline: u64,
    /// Where in the log it was.
    pub(crate) place: u64,
}

/// A read that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Who read.
    pub(crate) client: usize,
    /// When it was asked.
    pub(crate) sent: u64,
    /// When the answer came.
    pub(crate) answered: u64,
    /// The last row of each client that was seen, or 0.
    pub(crate) last: [u64; CLIENTS],
}

/// The client that a row is of.
pub(crate) fn client_of(id: u64) -> usize {
    usize::try_from(id / APART).unwrap_or(usize::MAX)
}

/// How a record of a database is written down.
pub(crate) fn line(database: &str, record: &Record) -> String {
    match record {
        Record::Write(Write { row, way, timeline, place }) => {
            let Acknowledged { id, sent, answered } = row;
            format!("write {database} {way} {id} {sent} {answered} {timeline} {place}\n")
        }
        Record::Read(Read { client, sent, answered, last }) => {
            let last: Vec<String> = last.iter().map(u64::to_string).collect();
            format!("read {database} {client} {sent} {answered} {}\n", last.join(" "))
        }
    }
}

/// What was written down of one database; other lines are for people. A line that a crash has cut short is none.
pub(crate) fn read(database: &str, text: &str) -> Vec<Record> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| of_line(database, line)).collect()
}

fn of_line(database: &str, line: &str) -> Option<Record> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    match words.as_slice() {
        ["write", name, way, _, _, _, _, _] if *name == database => Some(Record::Write(Write {
            row: Acknowledged { id: number(3)?, sent: number(4)?, answered: number(5)? },
            way: (*way).to_owned(),
            timeline: number(6)?,
            place: number(7)?,
        })),
        ["read", name, _, _, _, last @ ..] if *name == database && last.len() == CLIENTS => {
            let mut seen = [0; CLIENTS];
            for (at, place) in seen.iter_mut().enumerate() {
                *place = number(5 + at)?;
            }
            Some(Record::Read(Read {
                client: usize::try_from(number(2)?).ok()?,
                sent: number(3)?,
                answered: number(4)?,
                last: seen,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_is_read_back_of_its_database_only() {
        let row = Acknowledged { id: 3 * APART + 7, sent: 5, answered: 9 };
        let write = Record::Write(Write { row, way: "three-1".into(), timeline: 4, place: 77 });
        let seen = Record::Read(Read { client: 2, sent: 1, answered: 2, last: [0, 5, 6, 7] });
        let text = line("three", &write) + &line("pair", &seen) + "failed three rw 1 2 no answer\n";
        let text = text + &line("three", &seen) + "write three rw 1 2 3 4";
        assert_eq!(read("three", &text), [write, seen.clone()]);
        assert_eq!(read("pair", &text), [seen]);
        assert_eq!(client_of(3 * APART + 7), 3);
    }
}
