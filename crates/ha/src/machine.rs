//! The machine.

use std::time::{Duration, Instant};

use crate::{Data, Holder, Instance, Lease, Running, Standby, Successor};

/// Who this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The instance, in this incarnation.
    pub holder: Holder,
    /// Its number. The first makes the database where there is none.
    pub ordinal: u32,
}

/// What the spec says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long leadership lasts without renewal.
    pub ttl: Duration,
    /// How often the Lease is looked at.
    pub look: Duration,
    /// How long before its end the leader closes its database.
    pub margin: Duration,
    /// How many instances there should be.
    pub instances: u32,
    /// Which database this is, where somebody has written that down.
    pub system: Option<String>,
}

/// A fact.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The Lease was read; `None` where there is none.
    Read(Option<Lease>),
    /// The Lease was seen without having been asked for. It must not be older than what was read or
    /// written before.
    Seen(Lease),
    /// A write of the Lease was accepted.
    Written {
        /// Its new version.
        version: String,
        /// The moment before it was sent.
        sent: Instant,
    },
    /// A read or a write failed, or was not answered in time. It may have been carried out all the same.
    Failed,
    /// A write was refused: somebody else has written since.
    Conflict,
    /// The own instance is like this now.
    Instance(Instance),
    /// The spec says this now.
    Settings(Settings),
    /// The instance is to end.
    Stop,
}

/// What to ask of the Lease. No second request is made before the first is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read it.
    Read,
    /// Write it, if its version is still the given one (or there is none, for `None`).
    Write {
        /// What to write.
        draft: Draft,
        /// The version to replace.
        replaces: Option<String>,
    },
}

/// What to write into the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Whom to name; nobody, to release it.
    pub holder: Option<Holder>,
    /// The epoch.
    pub epoch: u64,
    /// Which database this is, once there is one.
    pub system: Option<String>,
    /// Whose it is to take, where it is released.
    pub successor: Option<Successor>,
}

/// What the database program should be doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whatever it does, as long as it takes no writes. Nothing is started.
    Wait,
    /// A new database is to be made, and to take writes.
    Create,
    /// It takes writes.
    Primary {
        /// Of this epoch.
        epoch: u64,
    },
    /// It follows.
    Replica {
        /// This instance.
        of: String,
        /// Which is leader in this epoch.
        epoch: u64,
        /// Of this database; another one on the volume is not to be touched.
        system: String,
    },
    /// It ends after all that was written has reached those who follow.
    Finish,
    /// It ends now, politely or not: this instance no longer leads.
    Close,
}

/// Whether leadership is this instance's.
#[derive(Clone, Debug)]
enum Role {
    /// Somebody else's, or nobody's.
    Follower,
    /// Its own until then.
    Leader { until: Instant, version: Version, epoch: u64 },
    /// Its own, but to be given to somebody: the database is ending in an orderly way.
    Yielding { until: Instant, version: Version, epoch: u64, to: Option<String> },
}

/// The version of its own last write, as far as a leader knows it.
#[derive(Clone, Debug)]
enum Version {
    Known(String),
    /// A write was not answered: the Lease may be newer, also its own. Read first.
    Doubtful,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Read,
    Take { epoch: u64 },
    Renew,
    Release,
}

/// One instance.
#[derive(Debug)]
pub struct Machine {
    me: Identity,
    settings: Settings,
    role: Role,
    /// What was seen last, and when it was first seen like that.
    seen: Option<(Lease, Instant)>,
    /// Whether there is known to be none.
    absent: bool,
    instance: Option<Instance>,
    asked: Option<Asked>,
    next_look: Option<Instant>,
    /// The epoch that this instance led and gave up in good order: it has all that was written in it.
    yielded: Option<u64>,
    stopping: bool,
}

impl Machine {
    /// An instance that has just started.
    pub fn new(me: Identity, settings: Settings) -> Machine {
        Machine {
            me,
            settings,
            role: Role::Follower,
            seen: None,
            absent: false,
            instance: None,
            asked: None,
            next_look: None,
            yielded: None,
            stopping: false,
        }
    }

    /// Whether writes may be taken at this moment.
    pub fn leads(&self, now: Instant) -> bool {
        match &self.role {
            Role::Leader { until, .. } => now < *until || self.is_alone(),
            Role::Follower | Role::Yielding { .. } => false,
        }
    }

    /// Who leads, as far as this instance has seen, and in which epoch.
    pub fn leader(&self) -> Option<(&str, u64)> {
        match &self.role {
            Role::Leader { epoch, .. } => Some((&self.me.holder.name, *epoch)),
            Role::Follower | Role::Yielding { .. } => {
                let (lease, _) = self.seen.as_ref()?;
                Some((&lease.holder.as_ref()?.name, lease.epoch))
            }
        }
    }

    /// Whether all is done that had to be before the instance may end. A Lease that can't be let go, with
    /// the API server away or the right to it taken, is waited for only as long as its term.
    pub fn may_end(&self, now: Instant) -> bool {
        let let_go = match self.role {
            Role::Follower => true,
            Role::Leader { until, .. } | Role::Yielding { until, .. } => now >= until,
        };
        self.stopping && self.has_stopped() && let_go
    }

    /// When to send the next [`Input::Tick`] at the latest.
    pub fn wake(&self, now: Instant) -> Instant {
        let look = self.next_look.unwrap_or(now).max(now);
        match &self.role {
            Role::Leader { until, .. } | Role::Yielding { until, .. } if *until > now => look.min(*until),
            _ if self.asked.is_some() => look.max(now + self.settings.look),
            _ => look,
        }
    }

    /// Takes in a fact, and says what to ask of the Lease.
    pub fn step(&mut self, input: Input, now: Instant) -> Option<Request> {
        match input {
            Input::Tick => {}
            Input::Stop => self.stopping = true,
            Input::Instance(instance) => self.instance = Some(instance),
            Input::Settings(settings) => self.settings = settings,
            Input::Read(lease) => {
                self.asked = None;
                self.saw(lease, now);
            }
            Input::Seen(lease) => {
                self.saw(Some(lease), now);
                // Who is told of each renewal needs not ask.
                if let Role::Follower = self.role {
                    self.next_look = Some(now + 2 * self.settings.look);
                }
            }
            Input::Written { version, sent } => self.wrote(version, sent, now),
            Input::Failed => self.failed(),
            Input::Conflict => {
                self.failed();
                // What was written may be for this instance: a request to hand over, for one.
                self.next_look = None;
            }
        }
        self.go_on(now)
    }

    /// What the database program should be doing now.
    pub fn target(&self, now: Instant) -> Target {
        let Some(instance) = &self.instance else { return Target::Wait };
        match &self.role {
            // A node that was cut off, an API server that is away: the margin is for those who wait.
            Role::Leader { until, .. } if now >= *until && !self.is_alone() => Target::Close,
            Role::Leader { epoch, .. } => match instance.data {
                Data::None if self.system().is_none() => Target::Create,
                Data::None => Target::Wait,
                Data::Present { .. } => Target::Primary { epoch: *epoch },
            },
            Role::Yielding { until, .. } if now >= *until && !self.is_alone() => Target::Close,
            Role::Yielding { .. } => Target::Finish,
            Role::Follower => self.following(instance),
        }
    }

    fn following(&self, instance: &Instance) -> Target {
        let was_leading = matches!(instance.running, Running::Primary);
        if was_leading {
            return Target::Close;
        }
        if self.stopping {
            return Target::Finish;
        }
        let Some((lease, _)) = &self.seen else { return Target::Wait };
        match (&lease.holder, &lease.system) {
            (Some(holder), Some(system)) if holder.name != self.me.holder.name => {
                Target::Replica { of: holder.name.clone(), epoch: lease.epoch, system: system.clone() }
            }
            _ => Target::Wait,
        }
    }

    /// One instance has nobody to fear, and does not stop for want of a Lease.
    fn is_alone(&self) -> bool {
        self.settings.instances <= 1 && self.me.ordinal == 0
    }

    fn system(&self) -> Option<&String> {
        let seen = self.seen.as_ref().and_then(|(lease, _)| lease.system.as_ref());
        seen.or(self.settings.system.as_ref())
    }

    fn saw(&mut self, lease: Option<Lease>, now: Instant) {
        self.absent = lease.is_none();
        let mine = lease.as_ref().is_some_and(|lease| lease.holder.as_ref() == Some(&self.me.holder));
        if let Role::Leader { version, .. } | Role::Yielding { version, .. } = &mut self.role {
            match &lease {
                // The write was accepted, or nobody has written since: the term is not longer for it.
                Some(found) if mine => *version = Version::Known(found.version.clone()),
                // Whatever the clock says, it is over.
                _ => self.role = Role::Follower,
            }
        }
        self.seen = match (lease, self.seen.take()) {
            (Some(found), Some((known, since))) if known.version == found.version => Some((found, since)),
            (found, _) => found.map(|found| (found, now)),
        };
    }

    fn wrote(&mut self, version: String, sent: Instant, now: Instant) {
        let term = sent + self.settings.ttl.saturating_sub(self.settings.margin);
        match self.asked.take() {
            Some(Asked::Take { epoch }) if now < term => {
                self.role = Role::Leader { until: term, version: Version::Known(version), epoch };
            }
            // The answer came too late to be of use. Read, and find it to be one's own.
            Some(Asked::Take { .. }) => {}
            Some(Asked::Renew) => {
                if let Role::Leader { until, version: last, .. }
                | Role::Yielding { until, version: last, .. } = &mut self.role
                {
                    *until = term.max(*until);
                    *last = Version::Known(version);
                }
            }
            Some(Asked::Release) => {
                if let Role::Yielding { epoch, .. } = self.role {
                    self.yielded = Some(epoch);
                }
                self.role = Role::Follower;
            }
            Some(Asked::Read) | None => {}
        }
        // What was seen is no longer what is there.
        self.seen = None;
        self.next_look = Some(now + self.settings.look);
    }

    fn failed(&mut self) {
        self.asked = None;
        if let Role::Leader { version, .. } | Role::Yielding { version, .. } = &mut self.role {
            *version = Version::Doubtful;
        }
    }

    /// What follows from the state and the time alone.
    fn go_on(&mut self, now: Instant) -> Option<Request> {
        self.consider_handover(now);
        if self.asked.is_some() {
            return None;
        }
        let look = self.next_look.is_none_or(|look| now >= look);
        match &self.role {
            Role::Follower => match self.may_take(now) {
                Some((replaces, epoch)) if !self.stopping => {
                    let draft = self.draft(Some(self.me.holder.clone()), epoch, None);
                    // One try for what was seen: if it fails, it is no longer what was seen.
                    self.seen = None;
                    self.absent = false;
                    self.ask(Asked::Take { epoch }, Request::Write { draft, replaces }, now)
                }
                _ if look => self.ask(Asked::Read, Request::Read, now),
                _ => None,
            },
            Role::Leader { version: Version::Doubtful, .. }
            | Role::Yielding { version: Version::Doubtful, .. } => {
                look.then(|| self.ask(Asked::Read, Request::Read, now)).flatten()
            }
            Role::Yielding { version: Version::Known(version), epoch, to, .. } if self.has_stopped() => {
                let successor = to.clone().unwrap_or_else(|| self.me.holder.name.clone());
                let draft = self.draft(None, *epoch, Some(Successor::Named(successor)));
                let replaces = Some(version.clone());
                self.ask(Asked::Release, Request::Write { draft, replaces }, now)
            }
            Role::Leader { version: Version::Known(version), epoch, .. }
            | Role::Yielding { version: Version::Known(version), epoch, .. } => {
                let (replaces, epoch) = (Some(version.clone()), *epoch);
                let draft = self.draft(Some(self.me.holder.clone()), epoch, None);
                look.then(|| self.ask(Asked::Renew, Request::Write { draft, replaces }, now)).flatten()
            }
        }
    }

    fn draft(&self, holder: Option<Holder>, epoch: u64, successor: Option<Successor>) -> Draft {
        let own = match self.instance.as_ref().map(|instance| &instance.data) {
            Some(Data::Present { system }) => Some(system.clone()),
            _ => None,
        };
        Draft { holder, epoch, system: own.or_else(|| self.system().cloned()), successor }
    }

    /// Whether the Lease may be taken now: which version to replace, and in which epoch.
    fn may_take(&self, now: Instant) -> Option<(Option<String>, u64)> {
        if !self.is_fit() {
            return None;
        }
        if self.absent {
            return Some((None, 1));
        }
        let (lease, since) = self.seen.as_ref()?;
        let free = match (&lease.holder, &lease.successor) {
            // This very process, or one that has ended with the container before it.
            (Some(holder), _) if *holder == self.me.holder => true,
            // Another pod of the same name: it may still run somewhere until its term is over.
            (Some(holder), _) if holder.name == self.me.holder.name => now >= *since + lease.ttl,
            (Some(_), _) => false,
            // One that was to take over and does not come: who gave it up may have it back.
            (None, Some(Successor::Named(name))) => {
                let back = self.yielded == Some(lease.epoch) && now >= *since + lease.ttl;
                *name == self.me.holder.name || back
            }
            (None, Some(Successor::Any) | None) => true,
        };
        free.then(|| (Some(lease.version.clone()), lease.epoch + 1))
    }

    /// Whether this instance has what a leader needs: the data, or, where there has never been any, the
    /// first number.
    fn is_fit(&self) -> bool {
        let Some(instance) = &self.instance else { return false };
        match (&instance.data, self.system()) {
            (Data::Present { system }, Some(known)) => system == known,
            (Data::Present { .. }, None) => true,
            (Data::None, Some(_)) => false,
            (Data::None, None) => self.me.ordinal == 0 && (self.absent || self.seen.is_some()),
        }
    }

    /// Whether somebody asks for a handover, or the instance is to end while it leads.
    fn consider_handover(&mut self, now: Instant) {
        let Role::Leader { until, version, epoch } = &self.role else { return };
        let asked = self.seen.as_ref().and_then(|(lease, _)| lease.successor.clone());
        let to = match asked {
            _ if self.stopping => self.best_standby(None),
            // Whom to ask for is checked where it is asked for; one that can't take over is not waited for.
            Some(Successor::Named(name)) if name != self.me.holder.name => {
                match self.best_standby(Some(&name)) {
                    Some(name) => Some(name),
                    None => return,
                }
            }
            Some(Successor::Any) => match self.best_standby(None) {
                Some(name) => Some(name),
                None => return,
            },
            _ => return,
        };
        if now < *until || self.is_alone() {
            self.role = Role::Yielding { until: *until, version: version.clone(), epoch: *epoch, to };
        }
    }

    /// The one that has most, of those that are being sent what happens; or the given one, if it is.
    fn best_standby(&self, named: Option<&str>) -> Option<String> {
        let standbys = &self.instance.as_ref()?.standbys;
        let fit = |standby: &&Standby| standby.streaming && named.is_none_or(|name| standby.name == name);
        standbys.iter().filter(fit).min_by_key(|standby| standby.behind).map(|standby| standby.name.clone())
    }

    fn has_stopped(&self) -> bool {
        self.instance.as_ref().is_none_or(|instance| instance.running == Running::Stopped)
    }

    fn ask(&mut self, asked: Asked, request: Request, now: Instant) -> Option<Request> {
        self.asked = Some(asked);
        self.next_look = Some(now + self.settings.look);
        Some(request)
    }
}

#[cfg(test)]
mod tests;
