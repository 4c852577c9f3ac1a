//! What a client has seen, and what can be said of it.

use std::collections::BTreeMap;

/// A write that was acknowledged. Times are milliseconds since 1970, as the one machine has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Of the row.
    pub id: u64,
    /// When it was sent.
    pub sent: u64,
    /// When the answer came.
    pub answered: u64,
}

/// How the client writes one down.
pub fn line(one: &Acknowledged) -> String {
    format!("acknowledged {} {} {}", one.id, one.sent, one.answered)
}

/// What the client has written down; lines of other kinds are for people.
pub fn read(log: &str) -> Vec<Acknowledged> {
    let one = |line: &str| {
        let mut words = line.strip_prefix("acknowledged ")?.split(' ').map(|word| word.parse().ok());
        Some(Acknowledged { id: words.next()??, sent: words.next()??, answered: words.next()?? })
    };
    log.lines().filter_map(one).collect()
}

/// The longest time without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last acknowledgement before.
    pub from: u64,
    /// The first one after.
    pub to: u64,
}

impl Gap {
    /// How long it was.
    pub fn seconds(self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1000.0
    }
}

/// The longest gap that was not over before `since`.
pub fn longest_gap(history: &[Acknowledged], since: u64) -> Option<Gap> {
    let mut times: Vec<u64> = history.iter().map(|one| one.answered).collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| Gap { from: pair[0], to: pair[1] });
    gaps.filter(|gap| gap.to >= since).max_by_key(|gap| gap.to - gap.from)
}

/// What became of the acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Acknowledged, and not there.
    pub lost: usize,
    /// There more than once. The client sends each id once, acknowledged or not.
    pub doubled: usize,
}

/// Compares what was acknowledged with the rows that are there.
pub fn check(history: &[Acknowledged], rows: &[u64]) -> Verdict {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for id in rows {
        *times.entry(*id).or_default() += 1;
    }
    Verdict {
        lost: history.iter().filter(|one| !times.contains_key(&one.id)).count(),
        doubled: times.values().filter(|&&count| count > 1).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[u64]) -> Vec<Acknowledged> {
        let one =
            |(id, &answered): (usize, &u64)| Acknowledged { id: id as u64, sent: answered - 1, answered };
        times.iter().enumerate().map(one).collect()
    }

    #[test]
    fn what_was_written_down_is_read_back_and_other_lines_are_not() {
        let one = Acknowledged { id: 3, sent: 5, answered: 8 };
        let log = format!("failed 2 4 5 refused\n{}\nacknowledged 4 5\nacknowledged x 1 2\n", line(&one));
        assert_eq!(read(&log), [one]);
    }

    #[test]
    fn the_longest_gap_is_found_whatever_the_order_of_answers() {
        let history = at(&[100, 1000, 900, 1050, 1400, 1450]);
        assert_eq!(longest_gap(&history, 0), Some(Gap { from: 100, to: 900 }));
        assert_eq!(longest_gap(&history, 901), Some(Gap { from: 1050, to: 1400 }));
        // One that has begun before and goes on counts whole.
        assert_eq!(longest_gap(&history, 700), Some(Gap { from: 100, to: 900 }));
        assert_eq!(longest_gap(&history, 2000), None);
        assert_eq!(longest_gap(&at(&[5]), 0), None);
        assert_eq!(Gap { from: 1050, to: 1400 }.seconds(), 0.35);
    }

    #[test]
    fn lost_and_doubled_rows_are_counted() {
        let history = at(&[10, 20, 30]);
        assert_eq!(check(&history, &[0, 1, 2]), Verdict { lost: 0, doubled: 0 });
        // 7 was never acknowledged, and may be there all the same.
        assert_eq!(check(&history, &[0, 2, 2, 2, 7]), Verdict { lost: 1, doubled: 1 });
        assert_eq!(check(&history, &[]), Verdict { lost: 3, doubled: 0 });
    }
}
