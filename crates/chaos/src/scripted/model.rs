//! A history in the simulator, with many chances.

use keelson_sim::{Micros, Scenario, World};

use super::outcome::{Outcome, Range};

/// With how many chances.
const CHANCES: u64 = 60;

/// Lives through it.
pub(crate) fn live(scenario: &Scenario) -> Range {
    let outcomes = (0..CHANCES).map(|noise| once(&Scenario { noise, ..scenario.clone() }));
    Range::of(&outcomes.collect::<Vec<_>>())
}

fn once(scenario: &Scenario) -> Outcome {
    let lived = World::live(scenario, false);
    let (from, to) = window(scenario);
    let before = lived.leaderships.iter().rfind(|(at, ..)| *at < from).map(|(_, epoch, _)| *epoch);
    let last = lived.leaderships.iter().max_by_key(|(_, epoch, _)| *epoch);
    let end = scenario.calm * 1000;
    let mut gap: Micros = 0;
    for pair in lived.told.windows(2) {
        if pair[1] >= from && pair[0] <= end {
            gap = gap.max(pair[1] - pair[0]);
        }
    }
    Outcome {
        leader: last.map_or(usize::MAX, |(.., who)| *who),
        changed: last.map(|(_, epoch, _)| *epoch) != before,
        // What is lost is a violation in the simulator.
        lost: usize::from(lived.violation.is_some()),
        wrote: (to > from).then(|| lived.told.iter().any(|at| (from + (to - from) / 2..to).contains(at))),
        gap: gap as f64 / 1e6,
    }
}

/// From the first fault until the last is over.
fn window(scenario: &Scenario) -> (Micros, Micros) {
    let from = scenario.faults.iter().map(|fault| fault.at).min().unwrap_or_default();
    let to = scenario.faults.iter().map(|fault| fault.at + super::real::lasts(fault)).max();
    (from * 1000, to.unwrap_or_default() * 1000)
}
