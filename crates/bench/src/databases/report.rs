//! What is made of the numbers: medians, the worst, and whether the bounds hold.

use std::collections::BTreeSet;

use serde::Serialize;

use super::few::{self, Creation};
use super::many::{self, Size};
use crate::audit::Tally;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::table::{conditions, heading, line, median, number, put};

/// What was measured of the peer before, on such a machine, and not in this run.
const PEER: &str = "CloudNativePG 1.30";
const PEER_FIRST_WRITE: f64 = 22.0;
const PEER_ALL_READY: f64 = 59.0;
const PEER_IDLE: f64 = 58.0;
const PEER_CHILDREN: f64 = 244.0;
const PEER_REQUESTS: f64 = 42.0;
/// How many times sooner a database is to be there than the peer's.
const SOONER: f64 = 3.0;
/// What the operator may hold when there is nothing to do.
const IDLE_MIB: f64 = 20.0;
/// What it may hold at most with a thousand Databases.
const MANY_MIB: f64 = 64.0;
/// How many requests it may need until a Database has all its children.
const REQUESTS: f64 = 15.0;

/// Everything that was measured. A part that was left out is missing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) size: Size,
    pub(super) few: Option<few::Measures>,
    pub(super) many: Vec<many::Measures>,
}

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Only to be known.
    None,
    /// So much at most.
    Within(f64),
    /// Less than that.
    Under(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::None => true,
            Bound::Within(most) => value <= most,
            Bound::Under(limit) => value < limit,
        }
    }

    fn text(self, digits: usize) -> String {
        match self {
            Bound::None => "–".to_owned(),
            Bound::Within(most) => format!("{most:.digits$} at most"),
            Bound::Under(limit) => format!("under {limit:.0}"),
        }
    }
}

/// One number with its bound. Less is better.
struct Line {
    what: String,
    value: f64,
    worst: Option<f64>,
    digits: usize,
    bound: Bound,
    peer: Option<f64>,
}

fn plain(what: impl Into<String>, value: f64, digits: usize, bound: Bound, peer: Option<f64>) -> Line {
    Line { what: what.into(), value, worst: None, digits, bound, peer }
}

/// The median of several, with the worst beside it.
fn timed(what: &str, values: Vec<f64>, bound: Bound, peer: Option<f64>) -> Option<Line> {
    let worst = values.iter().copied().max_by(f64::total_cmp);
    let value = median(values)?;
    Some(Line { what: what.to_owned(), value, worst, digits: 1, bound, peer })
}

impl Report {
    fn few_lines(&self) -> Vec<Line> {
        let Some(few) = &self.few else { return Vec::new() };
        let of = |creations: &[Creation], which: fn(&Creation) -> f64| creations.iter().map(which).collect();
        let sooner = |peer: f64| (Bound::Within(peer / SOONER), Some(peer));
        let (first, all) = (sooner(PEER_FIRST_WRITE), sooner(PEER_ALL_READY));
        let times = [
            timed(
                "1 instance: apply to first write, s",
                of(&few.one, |one| one.first_write),
                first.0,
                first.1,
            ),
            timed("1 instance: apply to ready, s", of(&few.one, |one| one.all_ready), Bound::None, None),
            timed(
                "3 instances: apply to first write, s",
                of(&few.three, |one| one.first_write),
                Bound::None,
                None,
            ),
            timed("3 instances: apply to all ready, s", of(&few.three, |one| one.all_ready), all.0, all.1),
        ];
        let mut lines: Vec<Line> = times.into_iter().flatten().collect();
        let most = few.idle.iter().map(|(_, memory)| memory.resident_mib).max_by(f64::total_cmp);
        let idle = "operator without a Database: memory, MiB (the one that holds more)";
        lines.extend(most.map(|mib| plain(idle, mib, 1, Bound::Under(IDLE_MIB), Some(PEER_IDLE))));
        lines
    }

    fn many_lines(&self, many: &many::Measures) -> Vec<Line> {
        let each = |requests: u64| requests as f64 / self.size.objects.max(1) as f64;
        let minutes = many.quiet.seconds / 60.0;
        let writes = many.quiet.writes as f64 / minutes;
        let (time, requests) = (Bound::Within(PEER_CHILDREN), Bound::Under(REQUESTS));
        vec![
            plain(
                "all have all their children after, s",
                many.children.seconds,
                1,
                time,
                Some(PEER_CHILDREN),
            ),
            plain(
                "requests until then, each",
                each(many.children.requests),
                2,
                requests,
                Some(PEER_REQUESTS),
            ),
            plain("all run and the operator rests after, s", many.running.seconds, 1, Bound::None, None),
            plain("requests until then, each", each(many.running.requests), 2, Bound::None, None),
            plain("operator: memory, peak, MiB", many.peak_mib, 1, Bound::Under(MANY_MIB), None),
            plain("operator: memory at rest, MiB", many.resident_mib, 1, Bound::None, None),
            plain("operator: CPU until it rested, s", many.cpu_seconds, 1, Bound::None, None),
            plain("nothing changes: API writes a minute", writes, 1, Bound::Within(0.0), None),
            plain(
                "nothing changes: CPU in a minute, s",
                many.quiet.cpu_seconds / minutes,
                2,
                Bound::None,
                None,
            ),
        ]
    }

    /// The bounds that do not hold.
    pub(super) fn missed(&self) -> Vec<String> {
        let few = self.few_lines().into_iter().map(|line| ("one database at a time", line));
        let many = self.many.iter().flat_map(|many| {
            self.many_lines(many).into_iter().map(|line| (share(many), line)).collect::<Vec<_>>()
        });
        let missed = few.map(|(where_, line)| (where_.to_owned(), line)).chain(many);
        missed
            .filter(|(_, line)| !line.bound.holds(line.value))
            .map(|(where_, Line { what, value, digits, bound, .. })| {
                format!("{where_}: {what}: {value:.digits$}, wanted {}", bound.text(digits))
            })
            .collect()
    }

    /// For people.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# Databases, and the operator that looks after them\n\n");
        text.push_str(
            "Written by `make bench`; [README.md](README.md) says what is measured and how to read it.\n\n",
        );
        let Size { objects, instances } = self.size;
        let few = self.few.as_ref().map(|few| format!("{} databases of 1 and of 3, in turn", few.one.len()));
        let many = (!self.many.is_empty())
            .then(|| format!("{objects} Databases of {instances} instances on fake nodes"));
        let what = few.into_iter().chain(many).collect::<Vec<_>>().join("; ");
        conditions(&mut text, &self.machine, &what);
        self.verdict(&mut text);
        if self.few.is_some() {
            text.push_str("## One database at a time, on a cluster of 3 nodes\n\n");
            table(&mut text, &self.few_lines(), true);
        }
        for many in &self.many {
            put(&mut text, format_args!("## {objects} Databases on fake nodes, {}\n\n", share(many)));
            table(&mut text, &self.many_lines(many), false);
        }
        if !self.many.is_empty() {
            put(&mut text, format_args!("{PEER} had 200 clusters, not {objects}.\n\n"));
            self.requests(&mut text, "Requests until all have all their children", |many| {
                &many.children.by_verb
            });
            self.requests(&mut text, "Requests until all run and the operator rests", |many| {
                &many.running.by_verb
            });
            self.requests(&mut text, "Requests while nothing changes", |many| &many.quiet.by_verb);
        }
        text
    }

    fn verdict(&self, text: &mut String) {
        match self.missed() {
            missed if missed.is_empty() => text.push_str("All bounds hold.\n\n"),
            missed => put(text, format_args!("Missed:\n\n- {}\n\n", missed.join("\n- "))),
        }
    }

    fn requests(&self, text: &mut String, title: &str, of: fn(&many::Measures) -> &Tally) {
        let verbs: BTreeSet<&String> = self.many.iter().flat_map(|many| of(many).keys()).collect();
        put(text, format_args!("## {title}\n\n"));
        heading(text, "request", self.many.iter().map(share));
        for verb in verbs {
            let counts = self.many.iter().map(|many| of(many).get(verb).copied().unwrap_or(0).to_string());
            line(text, verb, counts);
        }
        text.push('\n');
    }

    /// For programs.
    pub(super) fn json(&self) -> Result<String> {
        let unreadable = |error: serde_json::Error| Error::Unreadable {
            what: "the report".into(),
            why: error.to_string(),
        };
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        value["missed"] = self.missed().into();
        Ok(serde_json::to_string_pretty(&value).map_err(unreadable)? + "\n")
    }
}

fn share(many: &many::Measures) -> String {
    match many.limit {
        Some(limit) => format!("operator limited to {limit}m"),
        None => "operator without a limit".to_owned(),
    }
}

fn table(text: &mut String, lines: &[Line], with_worst: bool) {
    let value: &[&str] = if with_worst { &["median", "worst"] } else { &["measured"] };
    let titles = value.iter().chain(&["bound", "holds"]).map(|&title| title.to_owned());
    heading(text, "less is better", titles.chain([format!("{PEER}, measured before on such a machine")]));
    for one in lines {
        let worst = with_worst.then(|| number(one.worst, one.digits));
        let holds = match one.bound {
            Bound::None => "–",
            bound if bound.holds(one.value) => "yes",
            _ => "**no**",
        };
        let rest = [one.bound.text(one.digits), holds.to_owned(), number(one.peer, 0)];
        line(text, &one.what, [number(Some(one.value), one.digits)].into_iter().chain(worst).chain(rest));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::many::{Quiet, Stage};
    use super::*;
    use crate::process::Memory;

    fn creation(first_write: f64, all_ready: f64) -> Creation {
        Creation { first_write, all_ready }
    }

    fn few(idle: f64) -> few::Measures {
        let memory = |mib: f64| Memory { peak_mib: 2.0 * mib, resident_mib: mib };
        few::Measures {
            idle: vec![("a".into(), memory(idle - 1.0)), ("b".into(), memory(idle))],
            one: vec![creation(5.0, 6.0), creation(50.0, 60.0), creation(4.0, 5.0)],
            three: vec![creation(5.0, 19.0)],
        }
    }

    fn many(seconds: f64, requests: u64, peak_mib: f64, writes: u64) -> many::Measures {
        let stage = |seconds, requests| Stage {
            seconds,
            requests,
            by_verb: Tally::from([("patch secrets".to_owned(), requests)]),
        };
        many::Measures {
            limit: Some(100),
            children: stage(seconds, requests),
            running: stage(seconds * 2.0, requests * 2),
            cpu_seconds: 9.0,
            peak_mib,
            resident_mib: peak_mib,
            quiet: Quiet { seconds: 120.0, cpu_seconds: 0.1, writes, by_verb: Tally::new() },
        }
    }

    fn report(few: Option<few::Measures>, many: Vec<many::Measures>) -> Report {
        let machine = Machine {
            date: "2026-11-16".into(),
            cores: 2,
            memory_gib: 8,
            processor: "some".into(),
            load: "1.00".into(),
            versions: vec![("kwok".into(), "0.8.0".into())],
        };
        Report { machine, size: Size { objects: 10, instances: 3 }, few, many }
    }

    #[test]
    fn one_bad_run_does_not_miss_a_bound_and_is_shown() {
        let report = report(Some(few(15.0)), vec![many(200.0, 140, 30.0, 0)]);
        assert_eq!(report.missed(), [""; 0]);
        let text = report.markdown();
        assert!(text.contains("All bounds hold."), "{text}");
        assert!(
            text.contains("| 1 instance: apply to first write, s | 5.0 | 50.0 | 7.3 at most | yes | 22 |"),
            "{text}"
        );
        assert!(text.contains("| requests until then, each | 14.00 | under 15 | yes | 42 |"), "{text}");
        assert!(text.contains("| patch secrets | 140 |"), "{text}");
    }

    #[test]
    fn each_bound_that_is_missed_is_named() {
        let slow =
            few::Measures { one: vec![creation(8.0, 9.0)], three: vec![creation(8.0, 20.0)], ..few(20.0) };
        let missed = report(Some(slow), vec![many(245.0, 150, 64.0, 1)]).missed();
        assert_eq!(missed.len(), 7, "{missed:?}");
        assert!(missed[0].contains("1 instance") && missed[0].contains("8.0"), "{missed:?}");
        assert!(missed[6].contains("100m") && missed[6].contains("0.5, wanted 0.0 at most"), "{missed:?}");
    }

    #[test]
    fn a_part_that_was_left_out_is_neither_shown_nor_judged() {
        let report = report(None, Vec::new());
        assert_eq!(report.missed(), [""; 0]);
        let text = report.markdown();
        assert!(!text.contains("##") && !text.contains("NaN"), "{text}");
    }
}
