//! What to do after a failure follows from its class, here and nowhere else.

use std::time::Duration;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It may go away by itself: try again, later each time.
    Transient,
    /// It stays until somebody changes something: wait for that, and say so in a condition.
    Permanent,
    /// Somebody else was faster: read anew and try again at once.
    Conflict,
}

impl Class {
    /// The name under which it is counted.
    pub fn label(self) -> &'static str {
        match self {
            Class::Transient => "transient",
            Class::Permanent => "permanent",
            Class::Conflict => "conflict",
        }
    }
}

/// An error that knows its class.
pub trait Classify {
    /// The class.
    fn class(&self) -> Class;
}

/// How long to wait after so many failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The wait after `failures` in a row, the first being 1. It doubles each time. `chance`, between
    /// 0 and 1, spreads it over the upper half, so that a thousand objects that failed together
    /// do not try again together.
    pub fn delay(&self, failures: u32, chance: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let seconds: Vec<u64> = (1..=8).map(|failures| backoff.delay(failures, 1.0).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.delay(u32::MAX, 1.0), backoff.longest);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_longest_nor_shorter_than_half_the_first(failures in 1u32.., chance: f64) {
            let backoff = Backoff::default();
            let delay = backoff.delay(failures, if chance.is_nan() { 0.0 } else { chance });
            prop_assert!(delay <= backoff.longest && delay >= backoff.first / 2);
        }
    }
}
