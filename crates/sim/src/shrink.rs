//! Finds a shorter history that goes wrong in the same way: faults are taken away in halves, in quarters, and one
//! by one, for as long as what is left still goes wrong. What chance does otherwise changes with every fault that
//! is gone, so each shorter history is tried with some other chances too.

use crate::fault::Fault;
use crate::{Scenario, World};

/// With how many other chances a shorter history is tried.
const CHANCES: u64 = 12;

/// The shortest history that was found to violate the same.
pub fn shrink(scenario: &Scenario, kind: &str) -> Scenario {
    let mut best = scenario.clone();
    loop {
        let before = best.faults.len();
        let mut piece = best.faults.len().div_ceil(2).max(1);
        while piece >= 1 && !best.faults.is_empty() {
            best = without_pieces(best, piece, kind);
            piece /= 2;
        }
        if best.faults.len() == before {
            break;
        }
    }
    for (number, fault) in best.faults.clone().iter().enumerate() {
        // A round number is easier to read.
        let mut simpler = best.clone();
        simpler.faults[number] = Fault { long: round(fault.long), ..fault.clone() };
        best = fails(&simpler, kind).unwrap_or(best);
    }
    let straight = Scenario { drift: vec![0; best.drift.len()], ..best.clone() };
    fails(&straight, kind).unwrap_or(best)
}

fn round(long: u64) -> u64 {
    let unit = 10u64.pow(long.max(1).ilog10());
    long.div_ceil(unit) * unit
}

fn without_pieces(mut best: Scenario, piece: usize, kind: &str) -> Scenario {
    let mut at = 0;
    while at < best.faults.len() {
        let mut shorter = best.clone();
        shorter.faults.drain(at..(at + piece).min(best.faults.len()));
        match fails(&shorter, kind) {
            Some(found) => best = found,
            None => at += piece,
        }
    }
    best
}

/// The history with a chance by which it goes wrong.
fn fails(scenario: &Scenario, kind: &str) -> Option<Scenario> {
    let chances = std::iter::once(scenario.noise).chain(0..CHANCES);
    let mut tries = chances.map(|noise| Scenario { noise, ..scenario.clone() });
    tries.find(|tried| World::live(tried, false).violation.is_some_and(|violation| violation.kind == kind))
}
