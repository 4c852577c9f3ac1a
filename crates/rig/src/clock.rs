//! The time of day in milliseconds since 1970, as the one machine has it.

use std::time::{Duration, Instant, SystemTime};

/// The time of day now.
pub fn now() -> u64 {
    Clock::start().now()
}

/// The time of day, which does not jump while this is used.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    then: Duration,
}

impl Clock {
    /// Right now, and not changed by what becomes of the machine's clock.
    pub fn start() -> Clock {
        let then = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), then }
    }

    /// What it shows.
    pub fn now(self) -> u64 {
        u64::try_from((self.then + self.started.elapsed()).as_millis()).unwrap_or_default()
    }
}
