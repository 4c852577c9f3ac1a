//! Whether it is a replica's own fault that nothing comes to it.

use std::time::{Duration, Instant};

/// Nothing may come for this long before the leader is asked whether it is there.
const ASK: Duration = Duration::from_secs(5);
/// How often it is asked.
const PACE: Duration = Duration::from_secs(1);
/// A leader that has answered for this long, and sent nothing, can't be followed from here. A replica looks for it
/// again twice a second, but may have begun to before the way was open.
const LEFT_BEHIND: Duration = Duration::from_secs(10);

/// How long nothing has come, and for how long it could have.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// When something last came, or the replica was last made to follow.
    since: Instant,
    /// When the leader was last asked.
    asked: Option<Instant>,
    /// Since when it has answered each time.
    answers: Option<Instant>,
}

impl Silence {
    /// Something has come just now, or may come from now on.
    pub fn broken(now: Instant) -> Silence {
        Silence { since: now, asked: None, answers: None }
    }

    /// Whether it is time to ask the leader if it is there.
    pub fn is_to_ask(&self, now: Instant) -> bool {
        now >= self.since + ASK && self.asked.is_none_or(|asked| now >= asked + PACE)
    }

    /// It was asked, and has let this replica in or not.
    pub fn asked(&mut self, answered: bool, now: Instant) {
        self.asked = Some(now);
        self.answers = answered.then(|| self.answers.unwrap_or(now));
    }

    /// Whether the replica has to be brought back by other means than waiting.
    pub fn is_own_fault(&self, now: Instant) -> bool {
        self.answers.is_some_and(|since| now >= since + LEFT_BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks whenever it is time to, and says after how many seconds it is the replica's own fault.
    fn faulty_after(answers: impl Fn(u64) -> bool) -> Option<u64> {
        let start = Instant::now();
        let mut silence = Silence::broken(start);
        (0..120).find(|second| {
            let now = start + Duration::from_secs(*second);
            if silence.is_to_ask(now) {
                silence.asked(answers(*second), now);
            }
            silence.is_own_fault(now)
        })
    }

    #[test]
    fn a_leader_that_answers_and_sends_nothing_can_not_be_followed() {
        assert_eq!(faulty_after(|_| true), Some(15));
    }

    #[test]
    fn one_that_can_not_be_reached_is_waited_for_and_has_time_once_it_can() {
        assert_eq!(faulty_after(|_| false), None);
        for open in 6..60 {
            assert_eq!(faulty_after(|second| second >= open), Some(open + 10));
        }
        assert_eq!(faulty_after(|second| second % 8 != 0), None, "it comes and goes");
    }

    #[test]
    fn nobody_is_asked_before_there_is_a_doubt_nor_all_the_time() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut silence = Silence::broken(start);
        assert!(!silence.is_to_ask(at(4999)) && silence.is_to_ask(at(5000)));
        silence.asked(true, at(5000));
        assert!(!silence.is_to_ask(at(5999)) && silence.is_to_ask(at(6000)));
    }
}
