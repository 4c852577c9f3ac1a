//! What to work on next.
//!
//! A queue of keys, each of which stands for an object. It decides and does not wait: the time is
//! handed in, and [`Queue::next`] says what to start, or when to ask again.
//!
//! - A key is worked on by one at a time. What happens to its object meanwhile is remembered, and the
//!   key comes up once more.
//! - Changes that come close together are one piece of work: a key comes up a short while after its
//!   *first* change, and further changes do not push it back. So an object that changes all the time
//!   is still worked on.
//! - A key does not come up more often than once in [`Limits::gap`], whatever happens to its object: a
//!   storm of edits costs a bounded number of rounds.
//! - At most [`Limits::at_once`] keys are worked on at the same time, and not more are started per
//!   second than [`Limits::per_second`] allows. Who has waited longest comes first.
//! - After a failure a key waits as [`Backoff`] says, per key; a change of its object ends the wait,
//!   since the failure may have been about what has just been changed.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::retry::{Backoff, Class};

/// How much at once, how often.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys worked on at the same time.
    pub at_once: usize,
    /// How long to wait after a first change for others to join it.
    pub debounce: Duration,
    /// The least time between two starts of one key.
    pub gap: Duration,
    /// Starts per second over all keys, on average; a second's worth can be saved up. What a round asks
    /// of the API server is bounded by `at_once`; this is for rounds that ask nothing, as most of those
    /// after a restart do.
    pub per_second: u32,
    /// Waits after transient failures.
    pub backoff: Backoff,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            at_once: 16,
            debounce: Duration::from_millis(50),
            gap: Duration::from_millis(500),
            per_second: 5000,
            backoff: Backoff::default(),
        }
    }
}

/// How a round of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it should be; look again after so long, if anything is to be expected.
    Done {
        /// When to come up again without a change.
        again: Option<Duration>,
    },
    /// It failed.
    Failed(Class),
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// Work on this key, then say how it ended.
    Start(K),
    /// Nothing before then, unless something changes.
    At(Instant),
    /// Nothing until something changes or a round ends.
    Idle,
}

/// The queue.
#[derive(Debug)]
pub struct Queue<K> {
    limits: Limits,
    keys: HashMap<K, Entry>,
    /// Those that wait, by the time when they are due; the number keeps the order of equals.
    waiting: BTreeMap<(Instant, u64), K>,
    sequence: u64,
    running: usize,
    budget: Budget,
}

#[derive(Debug, Default)]
struct Entry {
    /// Where it is in `waiting`.
    due: Option<(Instant, u64)>,
    running: bool,
    /// When it is to come up once more, if something happened while it was being worked on.
    again: Option<Instant>,
    last_start: Option<Instant>,
    failures: u32,
    conflicts: u32,
}

/// So many conflicts in a row are answered at once; with more, something is fighting back, and it is a
/// failure like another.
const CONFLICTS_AT_ONCE: u32 = 3;

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
    pub fn new(limits: Limits, now: Instant) -> Self {
        let budget = Budget {
            per_second: f64::from(limits.per_second.max(1)),
            left: f64::from(limits.per_second.max(1)),
            since: now,
        };
        Queue { limits, keys: HashMap::new(), waiting: BTreeMap::new(), sequence: 0, running: 0, budget }
    }

    /// Something has changed.
    pub fn changed(&mut self, key: K, now: Instant) {
        let due = self.after_gap(&key, now + self.limits.debounce);
        self.come_up(key, due);
    }

    /// The object is gone for good: nothing is remembered of it, unless it is being worked on.
    pub fn forget(&mut self, key: &K) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        if let Some(due) = entry.due.take() {
            self.waiting.remove(&due);
        }
        entry.again = None;
        if !entry.running {
            self.keys.remove(key);
        }
    }

    /// What to do now.
    pub fn next(&mut self, now: Instant) -> Next<K> {
        if self.running >= self.limits.at_once.max(1) {
            return Next::Idle;
        }
        let Some((&due, _)) = self.waiting.first_key_value() else { return Next::Idle };
        if due.0 > now {
            return Next::At(due.0);
        }
        if let Some(wait) = self.budget.wait(now) {
            return Next::At(now + wait);
        }
        let Some(key) = self.waiting.remove(&due) else { return Next::Idle };
        self.budget.spend();
        self.running += 1;
        let entry = self.keys.entry(key.clone()).or_default();
        entry.due = None;
        entry.running = true;
        entry.last_start = Some(now);
        Next::Start(key)
    }

    /// A round has ended. `chance`, between 0 and 1, spreads waits after failures.
    pub fn ended(&mut self, key: &K, outcome: Outcome, now: Instant, chance: f64) {
        let backoff = self.limits.backoff;
        let Some(entry) = self.keys.get_mut(key).filter(|entry| entry.running) else { return };
        self.running -= 1;
        entry.running = false;
        let changed_meanwhile = entry.again.take();
        let conflicts = entry.conflicts + 1;
        entry.conflicts = 0;
        let later = match outcome {
            Outcome::Done { again } => {
                entry.failures = 0;
                again.map(|delay| self.after_gap(key, now + delay))
            }
            Outcome::Failed(Class::Transient) => {
                entry.failures = entry.failures.saturating_add(1);
                Some(now + backoff.delay(entry.failures, chance))
            }
            // It waits for a change.
            Outcome::Failed(Class::Permanent) => None,
            Outcome::Failed(Class::Conflict) if conflicts <= CONFLICTS_AT_ONCE => {
                entry.conflicts = conflicts;
                Some(now)
            }
            Outcome::Failed(Class::Conflict) => {
                entry.conflicts = conflicts;
                entry.failures = entry.failures.saturating_add(1);
                Some(now + backoff.delay(entry.failures, chance))
            }
        };
        match [changed_meanwhile, later].into_iter().flatten().min() {
            Some(due) => self.come_up(key.clone(), due),
            None => self.rest(key, now),
        }
    }

    /// How many keys wait, for a metric.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// How many are being worked on, for a metric.
    pub fn running(&self) -> usize {
        self.running
    }

    /// An object that changes all the time comes up every so often, no more and no less.
    fn after_gap(&self, key: &K, due: Instant) -> Instant {
        let last_start = self.keys.get(key).and_then(|entry| entry.last_start);
        last_start.map_or(due, |start| due.max(start + self.limits.gap))
    }

    fn come_up(&mut self, key: K, due: Instant) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running {
            entry.again = Some(entry.again.map_or(due, |known| known.min(due)));
            return;
        }
        match entry.due {
            Some((known, _)) if known <= due => return,
            Some(known) => drop(self.waiting.remove(&known)),
            None => {}
        }
        self.sequence += 1;
        entry.due = Some((due, self.sequence));
        self.waiting.insert((due, self.sequence), key);
    }

    /// Nothing to do for a key: it is forgotten as soon as nothing needs to be remembered, so that the
    /// queue is as large as the work and not as the cluster.
    fn rest(&mut self, key: &K, now: Instant) {
        let gap = self.limits.gap;
        let spent =
            |entry: &Entry| entry.failures == 0 && entry.last_start.is_none_or(|start| now >= start + gap);
        if self.keys.get(key).is_some_and(spent) {
            self.keys.remove(key);
        }
    }
}

/// A bucket that fills with so many tokens a second, and holds a second's worth.
#[derive(Debug)]
struct Budget {
    per_second: f64,
    left: f64,
    since: Instant,
}

impl Budget {
    /// How long until there is a token; nothing where there is one.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        self.since = now;
        (self.left < 1.0)
            .then(|| Duration::from_secs_f64((1.0 - self.left) / self.per_second) + Duration::from_nanos(1))
    }

    fn spend(&mut self) {
        self.left -= 1.0;
    }
}

#[cfg(test)]
mod tests;
