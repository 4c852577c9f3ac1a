//! Whether clients are let in.
//!
//! The Service for writers leads for a moment longer to who led before, wherever kube-proxy has not heard of it yet. Who
//! is let in there, by what follows another by then, reads what is old; and a pool keeps such a session, and can't write
//! with it for as long as it lives. So one that led turns clients away until writers have surely been led elsewhere:
//! that is some time after the log of a new leader comes in.

use std::time::{Duration, Instant};

/// kube-proxy takes in what changes about Services once a second at most, and its watch may lag.
const CALM: Duration = Duration::from_secs(3);

/// Of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doors {
    /// Whoever may come in does.
    Open,
    /// It led. Nobody but those who follow it, and its own agent.
    Shut {
        /// Since when the log of another comes in.
        follows: Option<Instant>,
    },
}

impl Doors {
    /// Of an instance of which nothing else is known than whether its data took writes last.
    pub fn new(led: bool) -> Doors {
        if led { Doors::Shut { follows: None } } else { Doors::Open }
    }

    /// It takes writes: open for now, and shut once it does not any more.
    pub fn lead(&mut self) {
        *self = Doors::Shut { follows: None };
    }

    /// It follows another, whose log comes in or not.
    pub fn follow(&mut self, streams: bool, now: Instant) {
        match self {
            Doors::Shut { follows: Some(since) } if now >= *since + CALM => *self = Doors::Open,
            Doors::Shut { follows } => *follows = follows.or(streams.then_some(now)),
            Doors::Open => {}
        }
    }

    /// Whether clients of a replica are let in.
    pub fn are_open(&self) -> bool {
        *self == Doors::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_led_lets_everybody_in() {
        let (mut doors, now) = (Doors::new(false), Instant::now());
        assert!(doors.are_open());
        doors.follow(false, now);
        assert!(doors.are_open());
    }

    #[test]
    fn who_led_lets_nobody_in_until_another_has_led_for_a_while() {
        let (mut doors, start) = (Doors::new(true), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            doors.follow(false, at(second));
            assert!(!doors.are_open(), "nobody else has led yet");
        }
        doors.follow(true, at(10));
        doors.follow(false, at(12));
        assert!(!doors.are_open());
        doors.follow(true, at(13));
        assert!(doors.are_open());
        doors.lead();
        assert!(!doors.are_open(), "shut again once it leads no more");
    }
}
