//! What is made of the numbers: medians, ratios, and whether the bounds hold.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::measure::Measures;
use crate::audit::Tally;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::table::{conditions, heading, line, median, number, put};

/// The one that is measured beside the others.
const OURS: &str = "kit";
/// How many times less memory the kit has to use than its peer, at least.
const LESS_MEMORY: f64 = 3.0;

/// One contestant in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) contestant: String,
    pub(super) measures: Measures,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) objects: usize,
    /// By key, in the order in which they are shown.
    pub(super) titles: Vec<(String, String)>,
    pub(super) runs: Vec<Run>,
}

/// What the peer may not be better at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Only to be known.
    None,
    /// The peer needs at least so many times as much.
    Times(f64),
}

/// One row: less is better in all of them.
struct Row {
    title: &'static str,
    of: fn(&Measures) -> f64,
    digits: usize,
    bound: Bound,
}

const fn row(title: &'static str, digits: usize, bound: Bound, of: fn(&Measures) -> f64) -> Row {
    Row { title, of, digits, bound }
}

const ROWS: [Row; 16] = [
    row("fresh: time until all is done, s", 1, Bound::Times(1.0), |m| m.fresh.seconds),
    row("fresh: memory, peak, MiB", 1, Bound::Times(LESS_MEMORY), |m| m.fresh.peak_mib),
    row("fresh: memory, 10 s after it came to rest, MiB", 1, Bound::Times(LESS_MEMORY), |m| {
        m.fresh.resident_mib
    }),
    row("fresh: CPU, s", 1, Bound::None, |m| m.fresh.cpu_seconds),
    row("fresh: requests", 0, Bound::None, |m| m.fresh.requests as f64),
    row("fresh: of these, writes", 0, Bound::None, |m| m.fresh.writes as f64),
    row("fresh: of these, refused", 0, Bound::None, |m| m.fresh.refused as f64),
    row("quiet, 30 s: writes but for the Lease", 0, Bound::None, |m| m.quiet.writes as f64),
    row("quiet, 30 s: requests for the Lease", 0, Bound::None, |m| m.quiet.lease_requests as f64),
    row("quiet, 30 s: CPU, s", 2, Bound::None, |m| m.quiet.cpu_seconds),
    row("quiet: memory at its end, MiB", 1, Bound::None, |m| m.quiet.resident_mib),
    row("restart: time until 10 edits are carried out, s", 1, Bound::None, |m| m.restart.seconds),
    row("restart: memory, peak, MiB", 1, Bound::None, |m| m.restart.peak_mib),
    row("restart: memory, 10 s after it came to rest, MiB", 1, Bound::None, |m| m.restart.resident_mib),
    row("restart: CPU, s", 1, Bound::None, |m| m.restart.cpu_seconds),
    row("restart: requests", 0, Bound::None, |m| m.restart.requests as f64),
];

impl Report {
    fn of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Measures> {
        self.runs.iter().filter(move |run| run.contestant == key).map(|run| &run.measures)
    }

    fn median(&self, key: &str, row: &Row) -> Option<f64> {
        median(self.of(key).map(row.of).collect())
    }

    fn peers(&self) -> impl Iterator<Item = &(String, String)> {
        let ours = self.titles.iter().any(|(key, _)| key == OURS);
        self.titles.iter().filter(move |(key, _)| ours && key != OURS)
    }

    /// How many times as much the peer needs.
    fn ratio(&self, peer: &str, row: &Row) -> Option<f64> {
        let (ours, theirs) = (self.median(OURS, row)?, self.median(peer, row)?);
        (ours > 0.0).then(|| theirs / ours)
    }

    /// The bounds that do not hold.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for row in &ROWS {
            let Bound::Times(wanted) = row.bound else { continue };
            for (key, title) in self.peers() {
                if let Some(ratio) = self.ratio(key, row).filter(|ratio| *ratio < wanted) {
                    missed.push(format!(
                        "{}: {title} ÷ kit is {ratio:.2}, wanted {wanted:.0} or more",
                        row.title
                    ));
                }
            }
        }
        missed
    }

    /// For people.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# The kit beside Go's controller-runtime\n\n");
        text.push_str(
            "Written by `make bench`; [README.md](README.md) says what is measured and how to read it.\n\n",
        );
        let runs = self.runs.len() / self.titles.len().max(1);
        let what = format!("{} Greetings, medians of {runs} runs", self.objects);
        conditions(&mut text, &self.machine, &what);
        self.table(&mut text);
        self.verdict(&mut text);
        self.requests(&mut text, "Requests of a fresh start", |measures| &measures.fresh.by_verb);
        self.requests(&mut text, "Requests of 30 s of quiet", |measures| &measures.quiet.by_verb);
        self.requests(&mut text, "Requests of a restart", |measures| &measures.restart.by_verb);
        text
    }

    fn table(&self, text: &mut String) {
        let titles = self.titles.iter().map(|(_, title)| title.clone());
        let ratios = self.peers().map(|(_, title)| format!("{title} ÷ kit"));
        heading(text, "less is better", titles.chain(ratios));
        for row in &ROWS {
            let medians = self.titles.iter().map(|(key, _)| number(self.median(key, row), row.digits));
            let ratios = self.peers().map(|(key, _)| number(self.ratio(key, row), 2));
            line(text, row.title, medians.chain(ratios));
        }
        text.push('\n');
    }

    fn verdict(&self, text: &mut String) {
        if self.peers().next().is_none() {
            return;
        }
        put(text, format_args!("Bounds: {LESS_MEMORY} times less memory, and not slower. "));
        match self.missed() {
            missed if missed.is_empty() => text.push_str("All hold.\n\n"),
            missed => put(text, format_args!("Missed:\n\n- {}\n\n", missed.join("\n- "))),
        }
    }

    fn requests(&self, text: &mut String, title: &str, of: fn(&Measures) -> &Tally) {
        let verbs: BTreeSet<&String> = self.runs.iter().flat_map(|run| of(&run.measures).keys()).collect();
        put(text, format_args!("## {title}\n\n"));
        heading(text, "request", self.titles.iter().map(|(_, title)| title.clone()));
        for verb in verbs {
            let counts = self.titles.iter().map(|(key, _)| {
                let counts = self.of(key).map(|measures| of(measures).get(verb).copied().unwrap_or(0) as f64);
                number(median(counts.collect()), 0)
            });
            line(text, verb, counts);
        }
        text.push('\n');
    }

    /// For programs.
    pub(super) fn json(&self) -> Result<String> {
        let medians: BTreeMap<&str, BTreeMap<&str, Option<f64>>> = ROWS
            .iter()
            .map(|row| {
                let of_each = self.titles.iter().map(|(key, _)| (key.as_str(), self.median(key, row)));
                (row.title, of_each.collect())
            })
            .collect();
        let unreadable = |error: serde_json::Error| Error::Unreadable {
            what: "the report".into(),
            why: error.to_string(),
        };
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        value["medians"] = serde_json::to_value(medians).map_err(unreadable)?;
        value["missed"] = self.missed().into();
        Ok(serde_json::to_string_pretty(&value).map_err(unreadable)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Phase, Quiet};
    use super::*;

    fn phase(seconds: f64, mib: f64) -> Phase {
        Phase {
            seconds,
            seconds_to_rest: seconds,
            cpu_seconds: 1.0,
            peak_mib: mib,
            resident_mib: mib,
            requests: 3,
            writes: 2,
            refused: 0,
            by_verb: Tally::from([("create configmaps".to_owned(), 2)]),
        }
    }

    fn run(contestant: &str, seconds: f64, mib: f64) -> Run {
        let quiet = Quiet {
            seconds: 30.0,
            cpu_seconds: 0.0,
            resident_mib: mib,
            writes: 0,
            lease_requests: 15,
            by_verb: Tally::new(),
        };
        let measures = Measures { fresh: phase(seconds, mib), quiet, restart: phase(seconds, mib) };
        Run { contestant: contestant.into(), measures }
    }

    fn report(runs: Vec<Run>) -> Report {
        let machine = Machine {
            date: "2026-11-16".into(),
            cores: 2,
            memory_gib: 8,
            processor: "some".into(),
            load: "1.00".into(),
            versions: vec![("go".into(), "1.26".into())],
        };
        let titles = [("kit", "kit"), ("go", "controller-runtime")];
        let titles = titles.map(|(key, title)| (key.to_owned(), title.to_owned())).into();
        Report { machine, objects: 10, titles, runs }
    }

    #[test]
    fn ratios_say_how_many_times_as_much_the_peer_needs() {
        let runs = vec![run("kit", 10.0, 20.0), run("go", 12.0, 90.0)];
        let report = report(runs);
        let text = report.markdown();
        assert!(text.contains("| fresh: memory, peak, MiB | 20.0 | 90.0 | 4.50 |"), "{text}");
        assert!(text.contains("| quiet, 30 s: writes but for the Lease | 0 | 0 | – |"), "{text}");
        assert!(text.contains("| create configmaps | 2 | 2 |"), "{text}");
        assert!(text.contains("All hold"), "{text}");
        assert_eq!(report.missed(), [""; 0]);
    }

    #[test]
    fn a_bound_that_is_missed_is_named() {
        let missed = report(vec![run("kit", 10.0, 40.0), run("go", 12.0, 90.0)]).missed();
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].contains("memory") && missed[0].contains("2.25"), "{missed:?}");
        let missed = report(vec![run("kit", 13.0, 20.0), run("go", 12.0, 90.0)]).missed();
        assert_eq!(missed.len(), 1, "{missed:?}");
    }

    #[test]
    fn one_contestant_alone_has_no_bounds() {
        let mut report = report(vec![run("go", 12.0, 90.0)]);
        report.titles.remove(0);
        assert_eq!(report.missed(), [""; 0]);
        assert!(report.markdown().contains("| fresh: memory, peak, MiB | 90.0 |"));
    }
}
