//! The same input gives the same history, in every process; and what went wrong once goes well.

use std::process::Command;

use keelson_sim::{Scenario, World, regressions};

fn told(seed: &str) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(["--seed", seed]).output().unwrap();
    assert!(output.stdout.len() > 1000, "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn two_processes_tell_the_same_history_byte_by_byte() {
    for seed in ["3", "17", "4242"] {
        assert!(told(seed) == told(seed), "seed {seed} is told in two ways");
    }
    assert!(told("3") != told("4"));
}

#[test]
fn telling_a_history_does_not_change_it() {
    for seed in 0..20 {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::live(&scenario, true).mark, World::live(&scenario, false).mark, "seed {seed}");
    }
}

#[test]
fn some_seeds_go_well() {
    for seed in 0..60 {
        let outcome = World::live(&Scenario::draw(seed), false);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.acknowledged > 0, "seed {seed} proves nothing");
    }
}

#[test]
fn what_went_wrong_once_goes_well() {
    for (name, scenario) in regressions::all().unwrap() {
        for noise in std::iter::once(scenario.noise).chain(0..20) {
            let outcome = World::live(&Scenario { noise, ..scenario.clone() }, false);
            assert_eq!(outcome.violation, None, "{name}, with noise {noise}");
        }
    }
}
