//! Lives through many seeds on all cores: each seed in one thread, and the seeds shared out. The first that goes
//! wrong ends it; which that is does not depend on how many threads there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::{Micros, Outcome, Scenario, Violation, World};

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// How many were lived through.
    pub seeds: u64,
    /// How long they were together, in virtual time.
    pub long: Micros,
    /// How many events they had.
    pub events: u64,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How often somebody came to lead.
    pub terms: u64,
    /// The first seed that went wrong, and how.
    pub found: Option<(u64, Violation)>,
}

impl Hunt {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.long += outcome.long;
        self.events += outcome.events;
        self.acknowledged += outcome.acknowledged;
        self.terms += outcome.terms;
        if let Some(violation) = outcome.violation
            && self.found.as_ref().is_none_or(|(first, _)| seed < *first)
        {
            self.found = Some((seed, violation));
        }
    }
}

/// Lives through so many seeds from one on, as `draw` makes histories of them. Each thread is made ready by
/// `prepare`.
pub fn hunt(from: u64, seeds: u64, draw: impl Fn(u64) -> Scenario + Sync, prepare: impl Fn() + Sync) -> Hunt {
    let (next, first) = (AtomicU64::new(from), AtomicU64::new(u64::MAX));
    let hunt = Mutex::new(Hunt::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                prepare();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds || seed > first.load(Ordering::Relaxed) {
                        return;
                    }
                    let outcome = World::live(&draw(seed), false);
                    if outcome.violation.is_some() {
                        first.fetch_min(seed, Ordering::Relaxed);
                    }
                    if let Ok(mut hunt) = hunt.lock() {
                        hunt.add(seed, outcome);
                    }
                }
            });
        }
    });
    hunt.into_inner().unwrap_or_default()
}
