//! What is made of the runs: median, worst, and whether the bounds hold.

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::run::Run;
use super::system::System;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::table::{conditions, heading, line, median, put};

/// All runs, also of other times if somebody goes on where it was left.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    #[serde(flatten)]
    pub(super) measured: Measured,
}

/// What outlives one start of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// The version of Patroni, once it has been seen.
    pub(super) patroni: Option<String>,
    pub(super) runs: Vec<Run>,
}

/// What an earlier report has.
pub(super) fn read_back(json: &str) -> Result<Measured> {
    serde_json::from_str(json).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::Unreadable { what: "the report".into(), why: error.to_string() }
}

impl Report {
    fn of(&self, system: System, case: Case) -> Vec<&Run> {
        self.measured.runs.iter().filter(|run| run.system == system && run.case == case).collect()
    }

    fn worst(&self, system: System, case: Case) -> Option<f64> {
        self.of(system, case).iter().map(|run| run.gap).max_by(f64::total_cmp)
    }

    /// What must not be and is.
    pub(super) fn missed(&self) -> Vec<String> {
        let ours = |case| self.of(System::Keelson, case);
        let slow = Case::ALL.into_iter().filter_map(|case| {
            let worst = self.worst(System::Keelson, case).filter(|worst| *worst >= case.bound())?;
            Some(format!("{}: {worst:.2} s, wanted under {:.0} s", case.title(), case.bound()))
        });
        let wrong = Case::ALL.into_iter().filter_map(|case| {
            let (lost, doubled) = sums(&ours(case));
            (lost + doubled > 0).then(|| format!("{}: {lost} lost, {doubled} doubled", case.title()))
        });
        slow.chain(wrong).collect()
    }

    /// For people.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# Time without writes, when something happens to the leader\n\n");
        text.push_str(
            "Written by `make bench`; [README.md](README.md) says what is measured and how to read it.\n\n",
        );
        let runs = self.measured.runs.len();
        conditions(&mut text, &self.machine, &format!("{runs} runs, PostgreSQL 17, 3 instances on 3 nodes"));
        self.verdict(&mut text);
        text.push_str("Seconds, median / worst (runs):\n\n");
        let titles = System::ALL.map(|system| system.title().to_owned());
        heading(&mut text, "case", titles.into_iter().chain(["bound".into(), "holds".into()]));
        for case in Case::ALL {
            let cells = System::ALL.map(|system| times(&self.of(system, case)));
            let bound = [format!("under {:.0}", case.bound()), self.holds(case).to_owned()];
            line(&mut text, case.title(), cells.into_iter().chain(bound));
        }
        text.push_str("\n\\* In some runs it did not serve again until what was wrong was made right.\n\n");
        text.push_str(
            "Acknowledged rows that were lost / rows that were there twice / acknowledged rows:\n\n",
        );
        heading(&mut text, "case", System::ALL.map(|system| system.title().to_owned()).into_iter());
        for case in Case::ALL {
            line(&mut text, case.title(), System::ALL.map(|system| rows(&self.of(system, case))).into_iter());
        }
        text
    }

    fn verdict(&self, text: &mut String) {
        let fewest =
            Case::ALL.iter().map(|case| self.of(System::Keelson, *case).len()).min().unwrap_or_default();
        match self.missed() {
            missed if !missed.is_empty() => {
                put(text, format_args!("Missed:\n\n- {}\n\n", missed.join("\n- ")))
            }
            _ if fewest == 0 => text.push_str("Not all has been measured.\n\n"),
            _ => put(text, format_args!("All bounds hold, in {fewest} or more runs of each case.\n\n")),
        }
    }

    fn holds(&self, case: Case) -> &'static str {
        match self.worst(System::Keelson, case) {
            None => "–",
            Some(worst) if worst < case.bound() => "yes",
            Some(_) => "**no**",
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Result<String> {
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        value["missed"] = self.missed().into();
        Ok(serde_json::to_string_pretty(&value).map_err(unreadable)? + "\n")
    }
}

fn times(runs: &[&Run]) -> String {
    let gaps: Vec<f64> = runs.iter().map(|run| run.gap).collect();
    let worst = gaps.iter().copied().max_by(f64::total_cmp);
    let mark = if runs.iter().any(|run| run.had_to_be_healed) { "\\*" } else { "" };
    match (median(gaps), worst) {
        (Some(middle), Some(worst)) => format!("{middle:.2} / {worst:.2}{mark} ({})", runs.len()),
        _ => "–".to_owned(),
    }
}

fn rows(runs: &[&Run]) -> String {
    let (lost, doubled) = sums(runs);
    let acknowledged: usize = runs.iter().map(|run| run.acknowledged).sum();
    if runs.is_empty() { "–".to_owned() } else { format!("{lost} / {doubled} / {acknowledged}") }
}

fn sums(runs: &[&Run]) -> (usize, usize) {
    (runs.iter().map(|run| run.lost).sum(), runs.iter().map(|run| run.doubled).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: System, case: Case, gap: f64) -> Run {
        Run {
            system,
            case,
            gap,
            had_to_be_healed: false,
            acknowledged: 100,
            lost: 0,
            doubled: 0,
            led: ("orders-0".into(), "orders-1".into()),
            times: [1, 2, 3],
        }
    }

    fn report(runs: Vec<Run>) -> Report {
        let machine = Machine {
            date: "2026-11-16".into(),
            cores: 2,
            memory_gib: 8,
            processor: "some".into(),
            load: "1.00".into(),
            versions: vec![("kube".into(), "5".into())],
        };
        Report { machine, measured: Measured { patroni: Some("4".into()), runs } }
    }

    #[test]
    fn the_worst_run_is_held_against_the_bound_and_the_peer_against_none() {
        let good = report(vec![
            run(System::Keelson, Case::HandedOver, 0.4),
            run(System::Keelson, Case::HandedOver, 0.6),
            run(System::Patroni, Case::HandedOver, 9.0),
        ]);
        assert_eq!(good.missed(), [""; 0]);
        let text = good.markdown();
        assert!(text.contains("Not all has been measured."), "{text}");
        let all = report(Case::ALL.map(|case| run(System::Keelson, case, 0.5)).to_vec());
        assert!(all.markdown().contains("All bounds hold, in 1 or more runs"));
        let expected = "| planned handover | 0.50 / 0.60 (2) | 9.00 / 9.00 (1) | – | under 1 | yes |";
        assert!(text.contains(expected), "{text}");
        let bad = report(vec![
            run(System::Keelson, Case::HandedOver, 0.4),
            run(System::Keelson, Case::HandedOver, 1.0),
        ]);
        assert_eq!(bad.missed(), ["planned handover: 1.00 s, wanted under 1 s"]);
        assert!(bad.markdown().contains("| **no** |"));
    }

    #[test]
    fn lost_and_doubled_rows_are_named_and_healing_is_marked() {
        let lost = Run { lost: 2, doubled: 1, ..run(System::Keelson, Case::NodeCutOff, 5.0) };
        let healed =
            Run { had_to_be_healed: true, lost: 7, ..run(System::PatroniFast, Case::VolumeFrozen, 121.0) };
        let report = report(vec![lost, healed]);
        assert_eq!(report.missed(), ["node cut off: 2 lost, 1 doubled"]);
        let text = report.markdown();
        assert!(text.contains("| node cut off | 2 / 1 / 100 | – | – |"), "{text}");
        assert!(text.contains("121.00 / 121.00\\* (1)"), "{text}");
    }

    #[test]
    fn what_was_measured_is_read_back() {
        let report = report(vec![run(System::Keelson, Case::PodDeletedByForce, 0.25)]);
        assert_eq!(read_back(&report.json().unwrap()).unwrap(), report.measured);
    }
}
