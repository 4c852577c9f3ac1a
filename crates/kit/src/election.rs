//! Who of several operators is at work, decided through one Lease.
//!
//! Never two at a time, without synchronised clocks: everybody reads only their own monotonic clock.
//!
//! - The leader counts its term from the moment **before** it sent the write that the API server
//!   accepted, and stops a margin before the term is over.
//! - Everybody else counts the same term from the moment **after** they saw that write. So theirs ends
//!   later, by at least the margin, whatever the time of day on any machine; the margin is for clocks
//!   that run at different speeds and for the time it takes to stop.
//! - Writes are compare-and-swap on the resource version: of two who try to take a free Lease one fails.
//! - A write whose answer was lost changes nothing for the leader: its term is not longer for it. It
//!   reads, finds its own name, and goes on from the version that it read.
//!
//! This is the state machine alone: it is told what happened and when, and says what to do.

use std::time::{Duration, Instant};

/// How long, how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a term is after each renewal.
    pub term: Duration,
    /// How often the leader renews, and the others look.
    pub look: Duration,
    /// How long before the end of its term a leader stops.
    pub margin: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { term: Duration::from_secs(15), look: Duration::from_secs(2), margin: Duration::from_secs(3) }
    }
}

/// What somebody saw in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Changes with every write.
    pub version: String,
    /// Nobody, after a release.
    pub holder: Option<String>,
    /// As the holder wrote it: with another setting than ours, theirs counts for them.
    pub term: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A read was answered; `None` where there is no Lease.
    Read(Option<Lease>),
    /// A write was accepted.
    Written {
        /// The new resource version.
        version: String,
        /// The moment before it was sent.
        sent: Instant,
    },
    /// A read or write failed, was refused by a newer version, or was not answered in time.
    Failed,
    /// The process is to end.
    Stop,
    /// All work has ended, after [`Action::Halt`] or a [`Event::Stop`].
    WorkEnded,
}

/// What to do. A read or a write is asked for only when none is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Write it, with this holder, if its version is still this (or it does not exist, for `None`).
    Write {
        /// Whom to name; nobody, to release it.
        holder: Option<String>,
        /// The version to replace.
        replaces: Option<String>,
    },
    /// Begin to work.
    Work,
    /// Stop all work at once. It must have ended before the margin is over.
    Halt,
    /// Nothing more to do: the process may end.
    End,
}

#[derive(Clone, Debug)]
enum Role {
    /// Somebody else leads, or nobody: what was seen last, and since when.
    Waiting { seen: Option<(Lease, Instant)> },
    /// This one leads until then.
    Leading { until: Instant, version: Version },
    /// The work is being stopped; the Lease may still be its own, and is released when that is done.
    Halting { version: Version, ended: bool },
    /// The release is under way.
    Releasing,
    /// Given up for good.
    Ended,
}

/// The version of its own last write, as far as a leader knows it.
#[derive(Clone, Debug)]
enum Version {
    Known(String),
    /// A write was not answered: the Lease may have a newer version, also its own. Read first.
    Doubtful(String),
}

/// One candidate.
#[derive(Debug)]
pub struct Election {
    name: String,
    timing: Timing,
    role: Role,
    /// Whether a read or a write is under way.
    asking: bool,
    next_look: Option<Instant>,
    stopping: bool,
}

impl Election {
    /// A candidate; the name must be its alone, also among those that were there before.
    pub fn new(name: impl Into<String>, timing: Timing) -> Self {
        let role = Role::Waiting { seen: None };
        Election { name: name.into(), timing, role, asking: false, next_look: None, stopping: false }
    }

    /// Whether work may be done at this moment.
    pub fn leads(&self, now: Instant) -> bool {
        matches!(self.role, Role::Leading { until, .. } if now < until)
    }

    /// Until when this one leads, if it does.
    pub fn leading_until(&self) -> Option<Instant> {
        match self.role {
            Role::Leading { until, .. } => Some(until),
            _ => None,
        }
    }

    /// When to send the next [`Event::Tick`] at the latest.
    pub fn wake(&self, now: Instant) -> Instant {
        let look = self.next_look.unwrap_or(now).max(now);
        match &self.role {
            Role::Leading { until, .. } if self.asking => *until,
            Role::Leading { until, .. } => look.min(*until),
            Role::Waiting { seen: Some((lease, since)) } if !self.asking => look.min(*since + lease.term),
            _ => look.max(now + self.timing.look),
        }
    }

    /// Takes in what happened, and says what to do.
    pub fn step(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => {}
            Event::Read(lease) => {
                self.asking = false;
                self.saw(lease, now, &mut actions);
            }
            Event::Written { version, sent } => {
                self.asking = false;
                self.wrote(version, sent, now, &mut actions);
            }
            Event::Failed => {
                self.asking = false;
                self.failed();
            }
            Event::Stop => self.stopping = true,
            Event::WorkEnded => {
                if let Role::Halting { ended, .. } = &mut self.role {
                    *ended = true;
                }
            }
        }
        self.go_on(now, &mut actions);
        actions
    }

    fn saw(&mut self, lease: Option<Lease>, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Waiting { seen } => {
                let news = seen.as_ref().map(|(known, _)| &known.version)
                    != lease.as_ref().map(|found| &found.version);
                if news {
                    *seen = lease.map(|found| (found, now));
                }
                if seen.is_none() {
                    // There is none: make it.
                    self.write(Some(self.name.clone()), None, now, actions);
                }
            }
            Role::Leading { version, .. } => match lease {
                // The write was accepted, or nobody has written since: the term is not longer for it.
                Some(found) if found.holder.as_deref() == Some(&self.name) => {
                    *version = Version::Known(found.version);
                    self.next_look = Some(now);
                }
                // Taken or removed by somebody: whatever the clock says, it is over.
                _ => self.halt(actions),
            },
            Role::Halting { .. } | Role::Releasing | Role::Ended => {}
        }
    }

    fn wrote(&mut self, version: String, sent: Instant, now: Instant, actions: &mut Vec<Action>) {
        let until = sent + self.timing.term.saturating_sub(self.timing.margin);
        match &mut self.role {
            Role::Waiting { .. } if now < until => {
                self.role = Role::Leading { until, version: Version::Known(version) };
                actions.push(Action::Work);
            }
            // The answer came too late to be of use: it is held, but cannot be relied on. Look again.
            Role::Waiting { seen } => *seen = None,
            Role::Leading { until: known, version: last } => {
                *known = until.max(*known);
                *last = Version::Known(version);
            }
            Role::Halting { version: last, .. } => *last = Version::Known(version),
            Role::Releasing => self.role = Role::Waiting { seen: None },
            Role::Ended => {}
        }
    }

    fn failed(&mut self) {
        match &mut self.role {
            Role::Leading { version, .. } | Role::Halting { version, .. } => {
                if let Version::Known(last) = version {
                    *version = Version::Doubtful(std::mem::take(last));
                }
            }
            Role::Releasing => self.role = Role::Waiting { seen: None },
            Role::Waiting { .. } | Role::Ended => {}
        }
    }

    /// What follows from the state and the time alone.
    fn go_on(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &self.role {
            Role::Leading { until, .. } if now >= *until || self.stopping => self.halt(actions),
            Role::Waiting { .. } if self.stopping && !self.asking => {
                self.role = Role::Ended;
                actions.push(Action::End);
            }
            _ => {}
        }
        if self.asking {
            return;
        }
        let look = self.next_look.is_none_or(|look| now >= look);
        match &self.role {
            Role::Waiting { seen: Some((lease, since)) } => {
                let mine = lease.holder.as_deref() == Some(&self.name);
                let free = lease.holder.is_none() || mine || now >= *since + lease.term;
                if free {
                    let replaces = Some(lease.version.clone());
                    // One try for what was seen: if it fails, it is no longer what was seen.
                    self.role = Role::Waiting { seen: None };
                    self.write(Some(self.name.clone()), replaces, now, actions);
                } else if look {
                    self.read(now, actions);
                }
            }
            Role::Leading { version: Version::Known(version), .. } if look => {
                let replaces = Some(version.clone());
                self.write(Some(self.name.clone()), replaces, now, actions);
            }
            Role::Waiting { seen: None } | Role::Leading { version: Version::Doubtful(_), .. } if look => {
                self.read(now, actions);
            }
            Role::Halting { version: Version::Known(version) | Version::Doubtful(version), ended: true } => {
                let replaces = Some(version.clone());
                self.role = Role::Releasing;
                self.write(None, replaces, now, actions);
            }
            _ => {}
        }
    }

    fn halt(&mut self, actions: &mut Vec<Action>) {
        if let Role::Leading { version, .. } = &self.role {
            self.role = Role::Halting { version: version.clone(), ended: false };
            actions.push(Action::Halt);
        }
    }

    fn read(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.ask(now);
        actions.push(Action::Read);
    }

    fn write(
        &mut self,
        holder: Option<String>,
        replaces: Option<String>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        self.ask(now);
        actions.push(Action::Write { holder, replaces });
    }

    fn ask(&mut self, now: Instant) {
        self.asking = true;
        self.next_look = Some(now + self.timing.look);
    }
}

#[cfg(test)]
mod tests;
