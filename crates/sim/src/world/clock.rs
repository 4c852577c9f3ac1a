//! A machine's clock: it never goes back, and runs a little too fast or too slow.
//!
//! Left out: the time of day, which nothing is decided by; and clocks whose speed changes.

use std::time::{Duration, Instant};

use super::queue::Micros;

const MILLION: i128 = 1_000_000;

/// A clock.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The beginning of the world on every clock; only distances from it mean anything.
    origin: Instant,
    /// So many millionths too fast.
    drift: i64,
    /// What it showed, and when, in true time.
    shown: (Micros, Micros),
}

impl Clock {
    /// A clock that runs so many millionths too fast.
    pub fn new(origin: Instant, drift: i64) -> Clock {
        Clock { origin, drift, shown: (0, 0) }
    }

    fn shows(&self, now: Micros) -> Micros {
        let (shown, at) = self.shown;
        let passed = i128::from(now.saturating_sub(at));
        shown + u64::try_from(passed * (MILLION + i128::from(self.drift)) / MILLION).unwrap_or_default()
    }

    /// What it shows at a true time.
    pub fn at(&self, now: Micros) -> Instant {
        self.origin + Duration::from_micros(self.shows(now))
    }

    /// The true time at which it shows that, or a moment later.
    pub fn when(&self, moment: Instant) -> Micros {
        let wanted =
            i128::try_from(moment.saturating_duration_since(self.origin).as_micros()).unwrap_or_default();
        let (shown, at) = self.shown;
        let passed = (wanted - i128::from(shown)).max(0);
        at + u64::try_from(passed * MILLION / (MILLION + i128::from(self.drift))).unwrap_or_default() + 1
    }

    /// It stood still between two true times.
    pub fn stood_still(&mut self, from: Micros, until: Micros) {
        self.shown = (self.shows(from), until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_too_fast_is_ahead_and_none_wakes_too_early() {
        let origin = Instant::now();
        for drift in [-10_000, 0, 3, 10_000] {
            let mut clock = Clock::new(origin, drift);
            clock.stood_still(5_000_000, 9_000_000);
            let shown = clock.at(19_000_000) - origin;
            let expected = (15_000_000 * (1_000_000 + drift)) / 1_000_000;
            assert!((shown.as_micros() as i64 - expected).abs() <= 1, "{drift}: {shown:?}");
            let moment = origin + Duration::from_secs(12);
            assert!(clock.at(clock.when(moment)) >= moment, "{drift}");
        }
    }
}
