//! A limit on how much is read a second, shared by all who read.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How much may be read.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Option<u64>,
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// In bytes a second; `None` is without limit.
    pub(crate) fn new(rate: Option<u64>) -> Throttle {
        Throttle { rate: rate.filter(|rate| *rate > 0), free_at: Mutex::default() }
    }

    /// Waits until so much more may be read. For threads, not for tasks.
    pub(crate) fn wait(&self, bytes: u64) {
        let wait = self.reserve(bytes, Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    /// How long to wait for it, if one asks now.
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let mut free_at = self.free_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let start = free_at.map_or(now, |free| free.max(now));
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        start - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_takes_the_time_that_it_should() {
        let (throttle, now) = (Throttle::new(Some(1000)), Instant::now());
        assert_eq!(throttle.reserve(500, now), Duration::ZERO);
        assert_eq!(throttle.reserve(500, now), Duration::from_millis(500));
        assert_eq!(
            throttle.reserve(1, now + Duration::from_secs(9)),
            Duration::ZERO,
            "nothing is saved up or owed"
        );
        assert_eq!(Throttle::new(None).reserve(u64::MAX, now), Duration::ZERO);
    }
}
