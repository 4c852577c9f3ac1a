//! What came of a run, as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::judge::Judgement;
use crate::trouble::{ALL, Kind};

/// What is counted while a run goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    pub(crate) bursts: usize,
    /// The databases, as people are told of them.
    pub(crate) databases: Vec<String>,
    /// How often something was done, and for each database the longest time without writes in a burst that had it.
    pub(crate) kinds: BTreeMap<Kind, (usize, Vec<f64>)>,
    /// What was found of each database in the end, and how often somebody came to lead it.
    pub(crate) found: Vec<(Judgement, u64)>,
    /// The longest that it took until all was well after a burst, in seconds.
    pub(crate) settled: f64,
}

impl Report {
    /// A burst is over: what was done in it, and the longest time without writes of each database.
    pub(crate) fn add(&mut self, done: &[Kind], gaps: &[f64], settled: f64) {
        self.bursts += 1;
        self.settled = self.settled.max(settled);
        for kind in done {
            let (times, longest) = self.kinds.entry(*kind).or_insert_with(|| (0, vec![0.0; gaps.len()]));
            *times += 1;
            for (longest, gap) in longest.iter_mut().zip(gaps) {
                *longest = longest.max(*gap);
            }
        }
    }

    /// As Markdown.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let done: usize = self.kinds.values().map(|(times, _)| times).sum();
        writeln!(
            text,
            "Seed {}, {:.0} minutes: {} bursts, {done} faults of {} kinds; at most {:.0} s until all was well again.\n",
            self.seed,
            self.minutes,
            self.bursts,
            self.kinds.len(),
            self.settled
        )?;
        writeln!(
            text,
            "| database | acknowledged | of them to an instance's own address | reads | lost | doubled | leaderships |"
        )?;
        writeln!(text, "|---|---:|---:|---:|---:|---:|---:|")?;
        for (name, (found, terms)) in self.databases.iter().zip(&self.found) {
            let Judgement { acknowledged, direct, reads, lost, doubled, .. } = found;
            writeln!(
                text,
                "| {name} | {acknowledged} | {direct} | {reads} | {lost} | {doubled} | {terms} |"
            )?;
        }
        let names: Vec<&str> = self.databases.iter().filter_map(|name| name.split(' ').next()).collect();
        writeln!(text, "\nLongest time without writes in a burst with it, in seconds:\n")?;
        writeln!(text, "| fault | times | {} |", names.join(" | "))?;
        writeln!(text, "|---|---:|{}", "---:|".repeat(names.len()))?;
        for kind in ALL {
            let Some((times, longest)) = self.kinds.get(&kind) else { continue };
            let longest: Vec<String> = longest.iter().map(|gap| format!("{gap:.1}")).collect();
            writeln!(text, "| {} | {times} | {} |", kind.title(), longest.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_was_done_and_the_longest_of_all_bursts() {
        let mut report = Report {
            seed: 7,
            minutes: 5.0,
            databases: vec!["three (PostgreSQL 18)".into(), "pair (PostgreSQL 17)".into()],
            ..Report::default()
        };
        report.add(&[Kind::NodeCrashed, Kind::HandedOver], &[4.0, 0.2], 20.0);
        report.add(&[Kind::NodeCrashed], &[1.0, 6.25], 11.0);
        let found = Judgement { acknowledged: 10, direct: 3, reads: 4, ..Judgement::default() };
        report.found = vec![(found.clone(), 2), (found, 1)];
        let text = report.text();
        assert!(text.contains("2 bursts, 3 faults of 2 kinds; at most 20 s"), "{text}");
        assert!(text.contains("| three (PostgreSQL 18) | 10 | 3 | 4 | 0 | 0 | 2 |"), "{text}");
        assert!(text.contains("| fault | times | three | pair |"), "{text}");
        assert!(text.contains("| node crashed | 2 | 4.0 | 6.2 |"), "{text}");
        assert!(text.contains("| handover | 1 | 4.0 | 0.2 |"), "{text}");
    }
}
