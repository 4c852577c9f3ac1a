//! A circuit breaker for an outside system: once it has failed often enough, nobody asks it for a
//! while, and then one does, to see whether it is back.

use std::time::{Duration, Instant};

/// When to stop asking, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many failures in a row open the breaker.
    pub failures: u32,
    /// So long nobody asks.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { failures: 5, pause: Duration::from_secs(30) }
    }
}

/// The breaker of one outside system.
#[derive(Clone, Debug)]
pub struct Breaker {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Everybody may ask; so many failures in a row so far.
    Closed { failures: u32 },
    /// Nobody may ask until then.
    Open { until: Instant },
    /// One is asking, since then; the others wait for what comes of it.
    Trying { since: Instant },
}

/// Whether the system may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Ask, and say how it went.
    Granted,
    /// Not before so long.
    Refused {
        /// How long to wait before asking for a permit again.
        wait: Duration,
    },
}

impl Breaker {
    /// A closed breaker.
    pub fn new(limits: Limits) -> Self {
        Breaker { limits, state: State::Closed { failures: 0 } }
    }

    /// Asks for a permit.
    pub fn permit(&mut self, now: Instant) -> Permit {
        match self.state {
            State::Closed { .. } => Permit::Granted,
            State::Open { until } if now < until => Permit::Refused { wait: until - now },
            // The one that was trying may have been cut off without a word: then somebody else tries.
            State::Trying { since } if now < since + self.limits.pause => {
                Permit::Refused { wait: since + self.limits.pause - now }
            }
            State::Open { .. } | State::Trying { .. } => {
                self.state = State::Trying { since: now };
                Permit::Granted
            }
        }
    }

    /// It answered.
    pub fn succeeded(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// It failed.
    pub fn failed(&mut self, now: Instant) {
        let failures = match self.state {
            State::Closed { failures } => failures + 1,
            State::Open { .. } | State::Trying { .. } => self.limits.failures,
        };
        self.state = if failures >= self.limits.failures {
            State::Open { until: now + self.limits.pause }
        } else {
            State::Closed { failures }
        };
    }

    /// Whether it is open, for a metric and a condition.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { failures: 3, pause: Duration::from_secs(30) };

    #[test]
    fn it_opens_after_failures_in_a_row_and_lets_one_try_after_the_pause() {
        let start = Instant::now();
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..2 {
            breaker.failed(start);
            assert_eq!(breaker.permit(start), Permit::Granted);
        }
        breaker.failed(start);
        assert_eq!(breaker.permit(start), Permit::Refused { wait: LIMITS.pause });

        let later = start + LIMITS.pause;
        assert_eq!(breaker.permit(later), Permit::Granted);
        assert_eq!(breaker.permit(later), Permit::Refused { wait: LIMITS.pause }, "only one tries");
        breaker.failed(later);
        assert_eq!(breaker.permit(later), Permit::Refused { wait: LIMITS.pause });

        let back = later + LIMITS.pause;
        assert_eq!(breaker.permit(back), Permit::Granted);
        breaker.succeeded();
        assert!(!breaker.is_open());
        assert_eq!(breaker.permit(back), Permit::Granted);
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let start = Instant::now();
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..10 {
            breaker.failed(start);
            breaker.failed(start);
            breaker.succeeded();
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn one_that_tried_and_was_never_heard_of_again_does_not_keep_the_others_for_ever() {
        let start = Instant::now();
        let mut breaker = Breaker::new(Limits { failures: 1, ..LIMITS });
        breaker.failed(start);
        assert_eq!(breaker.permit(start + LIMITS.pause), Permit::Granted);
        assert_eq!(breaker.permit(start + 2 * LIMITS.pause), Permit::Granted);
    }
}
