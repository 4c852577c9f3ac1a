//! Whether the process is alive and ready, as of the moment when somebody asks.
//!
//! A check is a question that is put each time, not a flag that somebody may have forgotten to take back.
//! *Alive* means that nothing would be better after a restart; *ready*, that requests may come in.
//!
//! ```
//! use keelson_kit::health::Health;
//!
//! let health = Health::new();
//! health.ready("certificate", || Err("it ran out an hour ago".to_owned()));
//! assert_eq!(health.readiness(), (false, "[-] certificate: it ran out an hour ago\n".to_owned()));
//! assert_eq!(health.liveness(), (true, String::new()));
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use crate::telemetry::logs::panic_text;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What to ask before one is called alive or ready. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Health {
    live: Checks,
    ready: Checks,
}

#[derive(Clone, Default)]
struct Checks(Arc<RwLock<Vec<(String, Check)>>>);

impl Health {
    /// Without a check, one is alive and ready.
    pub fn new() -> Self {
        Health::default()
    }

    /// Adds a check without which the process is not alive, and is to be started again. One with the
    /// same name is replaced.
    ///
    /// A check says in a few words why it fails. It must not block, and whoever can reach the port can read
    /// what it says: nothing secret. One that panics has failed.
    pub fn live(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.live.add(name, Arc::new(check));
    }

    /// Adds a check without which no requests are to come in. The same holds as for [`Health::live`].
    pub fn ready(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.ready.add(name, Arc::new(check));
    }

    /// Whether the process is alive, and a line a check.
    pub fn liveness(&self) -> (bool, String) {
        self.live.ask()
    }

    /// Whether it is ready, and a line a check.
    pub fn readiness(&self) -> (bool, String) {
        self.ready.ask()
    }
}

impl Checks {
    fn add(&self, name: &str, check: Check) {
        let mut checks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match checks.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = check,
            None => checks.push((name.to_owned(), check)),
        }
    }

    fn ask(&self) -> (bool, String) {
        // Not under the lock: a check may take its time, or add another.
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = true;
        let mut lines = String::new();
        for (name, check) in checks {
            lines += &match answer(&check) {
                Ok(()) => format!("[+] {name} ok\n"),
                Err(why) => {
                    all = false;
                    format!("[-] {name}: {}\n", why.trim().replace('\n', " "))
                }
            };
        }
        (all, lines)
    }
}

fn answer(check: &Check) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check()))
        .unwrap_or_else(|panic| Err(format!("the check panicked: {}", panic_text(panic.as_ref()))))
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(checks.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn an_answer_is_true_at_the_moment_when_it_is_asked_for() {
        let health = Health::new();
        let alive = Arc::new(AtomicBool::new(true));
        let watched = alive.clone();
        health.ready("watch of greetings", move || match watched.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("no news for 5 min".into()),
        });
        for (state, line) in
            [(true, "[+] watch of greetings ok\n"), (false, "[-] watch of greetings: no news for 5 min\n")]
        {
            alive.store(state, Ordering::SeqCst);
            assert_eq!(health.clone().readiness(), (state, line.to_owned()));
        }
        assert_eq!(health.liveness(), (true, String::new()), "the two are apart");
    }

    #[test]
    fn one_failure_is_enough_and_the_others_are_told_as_well() {
        let health = Health::new();
        health.live("first", || Ok(()));
        health.live("second", || Err("two\nlines".into()));
        health.live("third", || Ok(()));
        let lines = "[+] first ok\n[-] second: two lines\n[+] third ok\n";
        assert_eq!(health.liveness(), (false, lines.to_owned()));
        health.live("second", || Ok(()));
        assert_eq!(health.liveness(), (true, "[+] first ok\n[+] second ok\n[+] third ok\n".to_owned()));
    }

    #[test]
    fn a_check_that_panics_has_failed_and_the_next_question_is_answered() {
        let health = Health::new();
        health.live("odd", || panic!("on purpose"));
        for _ in 0..2 {
            assert_eq!(health.liveness(), (false, "[-] odd: the check panicked: on purpose\n".to_owned()));
        }
    }

    #[test]
    fn a_check_may_ask_for_health_itself() {
        let health = Health::new();
        let same = health.clone();
        health.ready("alive", move || match same.liveness() {
            (true, _) => Ok(()),
            (false, lines) => Err(lines),
        });
        assert_eq!(health.readiness(), (true, "[+] alive ok\n".to_owned()));
    }
}
