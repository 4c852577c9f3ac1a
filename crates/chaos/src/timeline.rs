//! What happened when, from all who know of it: what was done, who led, and when nobody was acknowledged.

use std::fmt::Write;

use keelson_rig::history::Gap;

use crate::record::{Record, WRITERS, client_of};

/// Something that happened, at a time of day in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    moments: Vec<Moment>,
}

/// A time without acknowledged writes is told if it is longer than this.
const TOLD: f64 = 1.5;

impl Timeline {
    /// Something happened.
    pub(crate) fn add(&mut self, at: u64, what: impl Into<String>) {
        self.moments.push(Moment { at, what: what.into() });
    }

    /// The same with the times in which the first client of a database was not acknowledged through its Service.
    pub(crate) fn with_gaps(mut self, database: &str, records: &[Record]) -> Timeline {
        for gap in gaps(records).into_iter().filter(|gap| gap.seconds() > TOLD) {
            self.add(
                gap.from,
                format!("{database}: the last write is acknowledged for {:.1} s", gap.seconds()),
            );
            self.add(gap.to, format!("{database}: writes are acknowledged again"));
        }
        self
    }

    /// For people, in order, with seconds since `start`.
    pub(crate) fn text(&self, start: u64) -> String {
        let mut moments: Vec<&Moment> = self.moments.iter().collect();
        moments.sort_by_key(|moment| moment.at);
        let mut text = String::new();
        for Moment { at, what } in moments {
            let seconds = (i128::from(*at) - i128::from(start)) as f64 / 1000.0;
            // Writing to a string can't fail.
            let _ = writeln!(text, "{seconds:>9.3}  {what}");
        }
        text
    }
}

/// From each acknowledgement that the first client got through the Service to the next.
pub(crate) fn gaps(records: &[Record]) -> Vec<Gap> {
    let mut times: Vec<u64> = records
        .iter()
        .filter_map(|record| match record {
            Record::Write(write) if write.way == WRITERS && client_of(write.row.id) == 0 => {
                Some(write.row.answered)
            }
            _ => None,
        })
        .collect();
    times.sort_unstable();
    times.windows(2).map(|pair| Gap { from: pair[0], to: pair[1] }).collect()
}

/// The longest of them that is not over before a time and has begun before another.
pub(crate) fn longest_within(records: &[Record], from: u64, to: u64) -> f64 {
    let within = gaps(records).into_iter().filter(|gap| gap.to >= from && gap.from <= to);
    within.map(Gap::seconds).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use keelson_rig::history::Acknowledged;

    use super::*;
    use crate::record::{APART, Write};

    fn write(id: u64, answered: u64, way: &str) -> Record {
        let row = Acknowledged { id, sent: answered, answered };
        Record::Write(Write { row, way: way.into(), timeline: 1, place: 0 })
    }

    #[test]
    fn all_sources_are_merged_in_order() {
        let records =
            [write(1, 1000, "rw"), write(2, 4000, "rw"), write(3, 2000, "three-0"), write(APART, 2500, "rw")];
        let mut timeline = Timeline::default();
        timeline.add(1500, "node-1: node crashed");
        timeline.add(3900, "three-1 leads");
        let text = timeline.with_gaps("three", &records).text(1000);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "0.000  three: the last write is acknowledged for 3.0 s",
                "0.500  node-1: node crashed",
                "2.900  three-1 leads",
                "3.000  three: writes are acknowledged again",
            ]
        );
    }

    #[test]
    fn the_longest_time_without_writes_is_that_of_the_first_client_through_the_service() {
        let records = [write(1, 1000, "rw"), write(2, 4000, "rw"), write(3, 2000, "x"), write(4, 4100, "rw")];
        assert_eq!(longest_within(&records, 1500, 2000), 3.0);
        assert_eq!(longest_within(&records, 4050, 5000), 0.1);
        assert_eq!(longest_within(&[], 0, 10), 0.0);
    }
}
