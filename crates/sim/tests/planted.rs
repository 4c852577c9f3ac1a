//! Every planted bug is found, and by which seed.

use keelson_ha::planted::{ALL, Bug, OPERATOR, plant};
use keelson_sim::Scenario;
use keelson_sim::hunt::hunt;

/// Within so many seeds.
const SEEDS: u64 = 20_000;
/// Those of the operator within so many, each with an operator.
const OPERATED: u64 = 500;

fn caught(bugs: &[Bug], seeds: u64, draw: impl Fn(u64) -> Scenario + Sync + Copy) {
    let mut missed = Vec::new();
    for bug in bugs {
        match hunt(0, seeds, draw, || plant(Some(*bug))).found {
            Some((seed, violation)) => {
                println!("{bug:?}: seed {seed}, {}: {}", violation.kind, violation.what)
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "nothing of {seeds} seeds catches {missed:?}");
}

#[test]
fn every_planted_bug_is_caught() {
    caught(&ALL, SEEDS, Scenario::draw);
}

#[test]
fn every_bug_that_is_planted_in_the_operator_is_caught() {
    let clean = hunt(0, OPERATED, Scenario::operated, || plant(None)).found;
    assert_eq!(clean.map(|(seed, violation)| (seed, violation.what)), None, "without any");
    caught(&OPERATOR, OPERATED, Scenario::operated);
}
