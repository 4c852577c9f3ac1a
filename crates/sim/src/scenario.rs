//! A history to be lived through: settings, clocks and faults. All of it is drawn from a seed, or read from a
//! few lines of text, so that a history that went wrong once is kept whatever becomes of the drawing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use keelson_ha::Settings;

use crate::chance::Chance;
use crate::fault::{ALL, CHANGES, Fault, Kind, OPERATOR};

/// Such a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What chance follows from that is not in here: delays, losses, what clients do.
    pub noise: u64,
    /// How many instances.
    pub instances: usize,
    /// Whether commits wait for standbys.
    pub synchronous: bool,
    /// Whether they also wait where there is none.
    pub required: bool,
    /// Term, look and margin, in milliseconds.
    pub times: [u64; 3],
    /// How much one that is elected may lack, where commits wait for nobody.
    pub max_lag: u64,
    /// By how many millionths each clock is too fast.
    pub drift: Vec<i64>,
    /// Whether there is an operator; and then, whether volumes stay when the Database is deleted.
    pub operator: Option<bool>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When all faults end, in milliseconds.
    pub calm: u64,
}

/// How wrong clocks may be: far more than any real one.
const DRIFT: u64 = 10_000;

impl Scenario {
    /// The history of a seed.
    pub fn draw(seed: u64) -> Scenario {
        let chance = &mut Chance::new(seed, 1);
        let instances = [2, 3, 3, 3, 3, 3, 4, 5][chance.index(8)];
        Scenario::of(seed, instances, chance)
    }

    /// The history of a seed, with so many instances.
    pub fn sized(seed: u64, instances: usize) -> Scenario {
        Scenario::of(seed, instances, &mut Chance::new(seed, 1))
    }

    /// The history of a seed, with an operator, and a person who changes the spec.
    pub fn operated(seed: u64) -> Scenario {
        let chance = &mut Chance::new(seed, 4);
        let instances = [1, 2, 3, 3, 3, 3, 4][chance.index(7)];
        let mut drawn = Scenario::of(seed, instances, chance);
        let few = [0, 1, 1, 4][chance.index(4)];
        // A volume that is lost, or an instance that is elsewhere, is nothing that the operator does.
        drawn.faults.retain(|fault| {
            !matches!(fault.kind, Kind::Lose | Kind::Force | Kind::Shrink) && (few == 4 || fault.at % 4 < few)
        });
        drawn.operator = Some(chance.per_mille(600));
        let often = [300, 600, 900][chance.index(3)];
        let mut kinds: Vec<Kind> = CHANGES.into_iter().filter(|_| chance.per_mille(often)).collect();
        kinds.push(CHANGES[chance.index(CHANGES.len())]);
        let wrong: Vec<Kind> = OPERATOR.into_iter().filter(|_| chance.per_mille(often / 2)).collect();
        let span = drawn.calm.max(60_000);
        for _ in 0..chance.of(1..7) {
            let kind = kinds[chance.index(kinds.len())];
            drawn.add(chance.of(10_000..span), kind, chance);
        }
        for _ in 0..chance.of(0..8).min(wrong.len() as u64 * 3) {
            let kind = wrong[chance.index(wrong.len())];
            drawn.add(chance.of(500..span), kind, chance);
        }
        drawn.faults.sort_by_key(|fault| fault.at);
        let last = drawn.faults.iter().map(|fault| fault.at).max().unwrap_or_default();
        drawn.calm = last + chance.of(100..20_000);
        drawn
    }

    fn add(&mut self, at: u64, kind: Kind, chance: &mut Chance) {
        let other = match kind {
            Kind::Scale => chance.index(5),
            _ => chance.index(12),
        };
        self.faults.push(Fault { at, kind, who: 0, other, long: chance.magnitude(50..30_000) });
    }

    /// How many instances there are at most.
    pub fn most(&self) -> usize {
        let scaled =
            self.faults.iter().filter(|fault| fault.kind == Kind::Scale).map(|fault| fault.other + 1);
        scaled.max().unwrap_or_default().max(self.instances)
    }

    fn of(seed: u64, instances: usize, chance: &mut Chance) -> Scenario {
        let synchronous = chance.per_mille(650);
        let look = if chance.per_mille(600) { 1000 } else { chance.of(5..21) * 100 };
        let margin = if chance.per_mille(600) { 1000 } else { chance.of(5..21) * 100 };
        let least = margin + 2 * look;
        let ttl = if chance.per_mille(600) && least <= 5000 { 5000 } else { least + chance.of(0..60) * 100 };
        let drift = (0..instances + 4).map(|_| chance.of(0..2 * DRIFT) as i64 - DRIFT as i64).collect();
        let kinds = swarm(chance, synchronous, instances);
        // Now and then things go wrong from the very beginning.
        let mut at = if chance.per_mille(100) { 0 } else { 15_000 };
        let mut faults = Vec::new();
        let (mut volumes, mut failed) = (0, None);
        for _ in 0..chance.of(1..6) {
            for _ in 0..chance.of(1..7) {
                at += chance.magnitude(1..2500);
                let kind = kinds[chance.index(kinds.len())];
                let who = chance.index(instances);
                let other = (who + 1 + chance.index(instances.max(2) - 1))
                    % (instances + usize::from(kind == Kind::Wish));
                volumes += usize::from(takes_a_volume(kind));
                // Where two disks have failed, what each of them has that others lack is for a person to judge.
                let second = kind == Kind::Eio && *failed.get_or_insert(who) != who;
                if volumes > 1 && takes_a_volume(kind) || second {
                    continue;
                }
                faults.push(Fault { at, kind, who, other, long: chance.magnitude(50..30_000) });
            }
            at += chance.magnitude(2_000..30_000);
        }
        let last = faults.iter().map(|fault| fault.at).max().unwrap_or_default();
        Scenario {
            noise: seed,
            instances,
            synchronous,
            required: chance.per_mille(400),
            times: [ttl, look, margin],
            max_lag: [0, 20_000, 1 << 24][chance.index(3)],
            drift,
            operator: None,
            calm: last + chance.of(100..20_000),
            faults,
        }
    }

    /// The settings as leadership takes them.
    pub fn settings(&self) -> Settings {
        let [ttl, look, margin] = self.times.map(Duration::from_millis);
        Settings {
            ttl,
            look,
            margin,
            instances: self.instances as u32,
            system: None,
            existing: false,
            synchronous: self.synchronous,
            required: self.required,
            max_lag: self.max_lag,
            restore: None,
        }
    }

    /// Whether a volume is lost in it: what was on it may be missed for ever.
    pub fn loses_a_volume(&self) -> bool {
        self.faults.iter().any(|fault| takes_a_volume(fault.kind))
    }
}

fn takes_a_volume(kind: Kind) -> bool {
    matches!(kind, Kind::Lose | Kind::Force)
}

/// Which kinds this history has: few of them together find what all of them together would drown.
fn swarm(chance: &mut Chance, synchronous: bool, instances: usize) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    while kinds.is_empty() {
        let often = [120, 250, 500][chance.index(3)];
        kinds = ALL.into_iter().filter(|_| chance.per_mille(often)).collect();
        // A clock that stands still is only a matter where commits wait for others: see ARCHITECTURE.md.
        kinds.retain(|kind| {
            (synchronous || *kind != Kind::Freeze) && (instances > 2 || *kind != Kind::Shrink)
        });
    }
    kinds
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.synchronous { "quorum" } else { "async" };
        let alone = if self.required { "required" } else { "preferred" };
        let [ttl, look, margin] = self.times;
        writeln!(f, "noise {}", self.noise)?;
        writeln!(f, "instances {} {mode} {alone} lag {}", self.instances, self.max_lag)?;
        writeln!(f, "times {ttl} {look} {margin}")?;
        let drift: Vec<String> = self.drift.iter().map(ToString::to_string).collect();
        writeln!(f, "drift {}", drift.join(" "))?;
        if let Some(retain) = self.operator {
            writeln!(f, "operator {}", if retain { "retain" } else { "delete" })?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        writeln!(f, "{} calm", self.calm)
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let empty = Scenario::sized(0, 3);
        let mut found = Scenario { faults: Vec::new(), calm: 0, ..empty };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| {
                let word = words.get(at).ok_or_else(|| format!("`{line}` is too short"))?;
                word.parse::<u64>().map_err(|error| format!("`{word}` in `{line}`: {error}"))
            };
            match words.as_slice() {
                ["noise", _] => found.noise = number(1)?,
                ["instances", _, mode, alone, "lag", _] => {
                    (found.instances, found.max_lag) = (number(1)? as usize, number(5)?);
                    (found.synchronous, found.required) = (*mode == "quorum", *alone == "required");
                }
                ["times", ..] => found.times = [number(1)?, number(2)?, number(3)?],
                ["drift", rest @ ..] => {
                    let parsed: Result<Vec<i64>, _> = rest.iter().map(|word| word.parse()).collect();
                    found.drift = parsed.map_err(|error| format!("`{line}`: {error}"))?;
                }
                ["operator", policy] => found.operator = Some(*policy == "retain"),
                [_, "calm"] => found.calm = number(0)?,
                _ => found.faults.push(line.parse()?),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_comes_back_from_its_text() {
        for seed in 0..200 {
            let drawn = Scenario::draw(seed);
            assert_eq!(drawn.to_string().parse(), Ok(drawn));
        }
    }

    #[test]
    fn settings_are_ones_that_the_schema_would_take() {
        for seed in 0..500 {
            let [ttl, look, margin] = Scenario::draw(seed).times;
            assert!(ttl >= margin + 2 * look, "{seed}: {ttl} {look} {margin}");
        }
    }

    #[test]
    fn all_kinds_of_faults_are_drawn() {
        let both = (0..2000).flat_map(|seed| [Scenario::draw(seed), Scenario::operated(seed)]);
        let drawn: std::collections::BTreeSet<Kind> =
            both.flat_map(|history| history.faults).map(|fault| fault.kind).collect();
        assert_eq!(drawn.len(), crate::fault::every().count());
    }
}
