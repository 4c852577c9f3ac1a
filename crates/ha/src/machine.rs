//! The machine.

mod following;
mod leading;
mod restoring;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::restoring::Wish;
use crate::planted::{self, Bug};
use crate::quorum::taken;
use crate::{
    Answer, Cause, Data, Evidence, Holder, Instance, Lease, Position, Question, Quorum, Receiving, Reign,
    Restore, Restores, Running, Standby, Successor,
};

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
    /// Whether there has been one, though nobody may have written down which: none is made anew.
    pub existing: bool,
    /// Whether commits wait for standbys.
    pub synchronous: bool,
    /// Whether they also wait where there is no standby.
    pub required: bool,
    /// How much of the log one that is elected may lack, where commits wait for nobody.
    pub max_lag: u64,
    /// The restore in place that is asked for, by name.
    pub restore: Option<String>,
}

impl Settings {
    /// How long a leader may fail to write before it gives up: longer than a hiccup, and short enough that
    /// another leads before anybody would have taken the Lease from one that is gone.
    fn patience(&self) -> Duration {
        self.ttl.saturating_sub(self.margin)
    }

    /// How long a standby may be away before commits no longer wait for it.
    fn grace(&self) -> Duration {
        2 * self.look
    }
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
    /// A read or a write failed, or was not answered in time. It may have been carried out all the same, or
    /// be carried out later.
    Failed,
    /// A write was refused: somebody else has written since.
    Conflict,
    /// The own instance is like this now.
    Instance(Instance),
    /// The spec says this now.
    Settings(Settings),
    /// Another instance asks.
    Asked(Question),
    /// Another instance has answered a question.
    Answered {
        /// The moment before it was asked.
        sent: Instant,
        /// What it said.
        answer: Answer,
    },
    /// Connections to the first process of this instance are refused at its address.
    Refused(String),
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
        draft: Box<Draft>,
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
    /// Who may be elected.
    pub quorum: Quorum,
    /// The newest history that anybody has begun, or that the holder is to begin.
    pub history: u64,
    /// What there was of restores in place.
    pub restores: Restores,
    /// How far the log is.
    pub end: Option<Position>,
    /// How long it lasts.
    pub ttl: Duration,
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
        /// If it has to begin a history, then one with this number or a greater one: two that were begun by
        /// different instances could not be told apart otherwise.
        history: u64,
        /// Whom its commits wait for, from the first one on.
        commits: Quorum,
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
    /// It ends, and data of an earlier moment is made beside its own, which stays as it is.
    Restore {
        /// By the restore of this name.
        name: String,
        /// It begins a history with this number or a greater one.
        history: u64,
    },
    /// The data that was made so takes the place of its own, which is put aside and kept.
    Place,
    /// Its data is of before a restore: it is not to run, and a copy of this instance takes its place.
    Copy {
        /// This instance.
        of: String,
        /// Of this database; another one on the volume is not to be touched.
        system: String,
    },
    /// It runs and follows nobody: nothing more may come in from who led.
    Hold,
    /// It ends after all that was written has reached those who follow.
    Finish,
    /// It ends now, politely or not: this instance no longer leads.
    Close,
}

/// Leadership that is this instance's own.
#[derive(Clone, Debug)]
struct Term {
    /// The end of it.
    until: Instant,
    version: Version,
    /// The version that a write which was not answered would replace. While it is in the Lease, that write
    /// may still come.
    late: Option<String>,
    /// Who may be elected by a write that was not answered yet, if others than by what is known.
    pending: Option<Quorum>,
    epoch: u64,
    history: u64,
    /// The number that was written for a restore in this term, which nothing else begins.
    reserved: Option<u64>,
    restores: Restores,
    /// That one is done, by a write that was not answered yet.
    pending_restores: Option<Restores>,
    cause: Cause,
    lacks: Option<u64>,
    /// How long it lasts, as it was written.
    ttl: Duration,
    /// When it was last renewed in the Lease.
    renewed: Instant,
    /// Who may be elected, by what is in the Lease.
    quorum: Quorum,
    /// Whether anybody but this instance could be elected: also by a write that was not answered.
    contested: bool,
    /// Who has confirmed it, and when they were asked.
    confirmed: BTreeMap<String, Instant>,
    /// Who has said that they would lead, and have room to.
    roomy: BTreeSet<String>,
    /// Whom commits are to wait for.
    commits: Quorum,
    /// When the database program was first seen to have them wait for those, and how far the log was a
    /// moment after.
    in_force: Option<(Instant, Option<u64>)>,
    /// When each standby was last seen to be sent what happens.
    streamed: BTreeMap<String, Instant>,
    /// How far the log was when that was last known.
    end: Option<Position>,
    /// When a write last reached the disk in this term.
    written: Option<Instant>,
    /// When it began.
    began: Instant,
}

/// Whether leadership is this instance's.
#[derive(Clone, Debug)]
enum Role {
    /// Somebody else's, or nobody's.
    Follower,
    /// Its own.
    Leader(Term),
    /// Its own, but to be given to somebody: the database is ending, in an orderly way or not.
    Yielding { term: Term, to: Option<Successor>, orderly: bool },
}

/// The version of its own last write, as far as a leader knows it.
#[derive(Clone, Debug)]
enum Version {
    Known(String),
    /// A write was not answered: the Lease may be newer, also its own. Read first.
    Doubtful,
}

/// A request that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Overtaken, if the Lease was seen meanwhile: the answer may be older than that.
    Read {
        overtaken: bool,
    },
    Take {
        epoch: u64,
        history: u64,
        restores: Restores,
        quorum: Quorum,
        commits: Quorum,
        ttl: Duration,
        cause: Cause,
        lacks: Option<u64>,
        end: Option<Position>,
    },
    Renew {
        quorum: Quorum,
        wish: Wish,
        ttl: Duration,
    },
    Release,
}

/// Holding still, so that another can be elected.
#[derive(Clone, Debug)]
struct Hold {
    /// The version of the Lease that has no living holder. It ends when another is seen.
    version: String,
    since: Instant,
    /// Who else holds, how far they are, and whether they would lead.
    votes: BTreeMap<String, (Position, bool)>,
}

/// What an instance that has just started knows of what it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Past {
    /// Nothing.
    Unknown,
    /// It may have promised to hold still for as long as the Lease is in this version, the first that it saw.
    MayHold(String),
    /// Whatever it promised, the Lease has changed since.
    Over,
}

/// One instance.
#[derive(Debug)]
pub struct Machine {
    me: Identity,
    settings: Settings,
    role: Role,
    /// What was seen last, and when it was first seen like that, or confirmed by its holder.
    seen: Option<(Lease, Instant)>,
    /// Since when there is known to be none.
    absent: Option<Instant>,
    /// While there is none, the last epochs in which the data of others took writes, as they have said since; and
    /// whether they have none.
    pasts: BTreeMap<String, (u64, bool)>,
    /// The last epoch in which this very process led.
    reigned: Option<u64>,
    instance: Option<Instance>,
    asked: Option<Asked>,
    next_look: Option<Instant>,
    /// When a write was last refused because of another.
    conflict: Option<Instant>,
    /// A leader that is taken for gone before its term is over, and in which epoch it led.
    gone: Option<(Holder, u64, Evidence)>,
    hold: Option<Hold>,
    past: Past,
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
            absent: None,
            pasts: BTreeMap::new(),
            reigned: None,
            instance: None,
            asked: None,
            next_look: None,
            conflict: None,
            gone: None,
            hold: None,
            past: Past::Unknown,
            stopping: false,
        }
    }

    /// Whether writes may be taken at this moment.
    pub fn leads(&self, now: Instant) -> bool {
        matches!(&self.role, Role::Leader(term) if self.holds(term, now))
    }

    /// Until when commits may be acknowledged, as far as is known now: for as long as this instance could
    /// lead, also while its database ends.
    pub fn leave(&self, now: Instant) -> Option<Instant> {
        const LONG: Duration = Duration::from_secs(3600);
        match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. }
                if !term.contested || planted::is(Bug::LeaveForever) =>
            {
                Some(now + LONG)
            }
            Role::Leader(term) | Role::Yielding { term, .. } => Some(term.until),
            Role::Follower => None,
        }
    }

    /// Who leads, as far as this instance has seen, and in which epoch.
    pub fn leader(&self) -> Option<(&str, u64)> {
        match &self.role {
            Role::Leader(term) => Some((&self.me.holder.name, term.epoch)),
            Role::Follower | Role::Yielding { .. } => {
                let (lease, _) = self.seen.as_ref()?;
                Some((&lease.holder.as_ref()?.name, lease.epoch))
            }
        }
    }

    /// The leadership that is this instance's own.
    pub fn reign(&self) -> Option<Reign> {
        match &self.role {
            Role::Leader(Term { epoch, cause, lacks, .. }) => {
                Some(Reign { epoch: *epoch, cause: *cause, lacks: *lacks })
            }
            Role::Follower | Role::Yielding { .. } => None,
        }
    }

    /// Whether this instance leads only because others confirm it, or nobody else could: by the Lease alone its
    /// term would be over.
    pub fn is_failsafe(&self, now: Instant) -> bool {
        let over = |term: &Term| now >= term.renewed + term.ttl.saturating_sub(self.settings.margin);
        matches!(&self.role, Role::Leader(term) if self.holds(term, now) && over(term))
    }

    /// When somebody was last known to lead, this instance or another.
    pub fn led_at(&self) -> Option<Instant> {
        match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => Some(term.renewed),
            Role::Follower => {
                self.seen.as_ref().filter(|(lease, _)| lease.holder.is_some()).map(|(_, since)| *since)
            }
        }
    }

    /// Who may be elected, as far as this instance has seen.
    pub fn quorum(&self) -> Option<&Quorum> {
        match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => Some(&term.quorum),
            Role::Follower => self.seen.as_ref().map(|(lease, _)| &lease.quorum),
        }
    }

    /// Whether all is done that had to be before the instance may end. A Lease that can't be let go, with
    /// the API server away or the right to it taken, is waited for only as long as its term.
    pub fn may_end(&self, now: Instant) -> bool {
        let let_go = match &self.role {
            Role::Follower => true,
            Role::Leader(term) | Role::Yielding { term, .. } => now >= term.until,
        };
        self.stopping && self.has_stopped() && let_go
    }

    /// When to send the next [`Input::Tick`] at the latest.
    pub fn wake(&self, now: Instant) -> Instant {
        let look = match self.asked {
            Some(_) => now + self.settings.look,
            None => self.next_look.unwrap_or(now).max(now),
        };
        let mut moments = vec![look];
        match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => {
                moments.push(term.until);
                moments.extend(term.written.map(|written| written + self.settings.patience()));
                moments.extend(term.written.is_none().then(|| term.began + leading::START));
                moments.extend(term.streamed.values().map(|last| *last + self.settings.grace()));
                moments.push(term.renewed + self.settings.look * 3 / 2);
                moments.extend(self.releases_until());
            }
            Role::Follower => {
                moments.extend(self.seen.as_ref().map(|(lease, since)| *since + lease.ttl));
                moments.extend(self.seen.as_ref().map(|(_, since)| *since + self.settings.look));
                moments.extend(self.hold.as_ref().map(|hold| hold.since + self.deference()));
            }
        }
        // All that could be done at this moment has been: one that ends and is past its term has only to wait.
        moments.into_iter().filter(|moment| *moment > now).min().unwrap_or(now + self.settings.look)
    }

    /// Takes in a fact, and says what to ask of the Lease.
    pub fn step(&mut self, input: Input, now: Instant) -> Option<Request> {
        match input {
            Input::Tick => {}
            Input::Stop => self.stopping = true,
            Input::Instance(instance) => self.learn(instance, now),
            Input::Settings(settings) => self.settings = settings,
            Input::Read(lease) => {
                if self.asked.take() != Some(Asked::Read { overtaken: true }) {
                    self.saw(lease, now);
                }
            }
            Input::Seen(lease) => {
                if let Some(Asked::Read { overtaken }) = &mut self.asked {
                    *overtaken = true;
                }
                self.saw(Some(lease), now);
                // Who is told of each renewal needs not ask.
                if let Role::Follower = self.role {
                    self.next_look = Some(now + 2 * self.settings.look);
                }
            }
            Input::Written { version, sent } => self.wrote(version, sent, now),
            Input::Failed => {
                self.unanswered();
                self.failed();
            }
            Input::Conflict => {
                self.failed();
                // What was written may be for this instance: a request to hand over, for one. An API server that
                // refuses everything is not asked all the time.
                if self.conflict.replace(now).is_none_or(|last| now >= last + self.settings.look) {
                    self.next_look = None;
                }
            }
            Input::Asked(question) => self.hear(question, now),
            Input::Answered { sent, answer } => self.answered(sent, answer),
            Input::Refused(name) => self.refused(name),
        }
        self.go_on(now)
    }

    /// What the database program should be doing now.
    pub fn target(&self, now: Instant) -> Target {
        let Some(instance) = &self.instance else { return Target::Wait };
        match &self.role {
            // A node that was cut off, an API server that is away: the margin is for those who wait.
            Role::Leader(term) | Role::Yielding { term, .. } if !self.holds(term, now) => Target::Close,
            Role::Leader(term) => match instance.data {
                Data::Present { .. } if self.restoring(term).is_some() => {
                    self.restoring(term).unwrap_or(Target::Wait)
                }
                // It was about to be put in the place of the old data.
                Data::None if term.restores.origin > 0 && self.has_whole() => Target::Place,
                Data::None if self.system().is_none() || planted::is(Bug::CreateAgain) => Target::Create,
                Data::None => Target::Wait,
                Data::Present { .. } => {
                    let commits = self.demanded(&term.commits);
                    Target::Primary { epoch: term.epoch, history: term.history, commits }
                }
            },
            Role::Yielding { orderly: true, .. } => Target::Finish,
            Role::Yielding { orderly: false, .. } => Target::Close,
            Role::Follower => self.following(instance),
        }
    }

    /// What to ask other instances, and whom. It is asked again and again for as long as this says so.
    pub fn question(&self, now: Instant) -> Option<(Question, BTreeSet<String>)> {
        match &self.role {
            Role::Leader(term) => self.asks_to_confirm(term, now),
            // Whoever it is given to finds that in the Lease; the others need not hold still for it.
            Role::Yielding { to: Some(Successor::Named(_)), orderly: true, .. }
                if self.releases_until().is_some_and(|until| now < until) =>
            {
                None
            }
            Role::Yielding { term, .. } if self.has_stopped() => {
                let (leader, epoch) = (self.me.holder.clone(), term.epoch);
                Some((Question::Left { leader, epoch }, term.quorum.names.clone()))
            }
            Role::Yielding { term, .. } => self.asks_to_confirm(term, now),
            Role::Follower => self.asks_who_led().or_else(|| self.asks_to_hold()),
        }
    }

    /// What to say to another instance that asks.
    pub fn answer(&self) -> Answer {
        let instance = self.instance.as_ref();
        let cut = instance.is_some_and(|instance| instance.receiving == Receiving::Cut);
        let cut = cut || planted::is(Bug::VoteUncut);
        let free = self.hold.is_none() && self.past == Past::Over || planted::is(Bug::ConfirmWhileHolding);
        let seen = self.seen.as_ref().filter(|_| matches!(self.role, Role::Follower) && free);
        Answer {
            holder: self.me.holder.clone(),
            confirms: seen.filter(|(lease, _)| lease.holder.is_some()).map(|(lease, _)| lease.epoch),
            holds: self.hold.as_ref().filter(|_| cut).map(|hold| hold.version.clone()),
            position: instance.and_then(|instance| instance.position),
            able: self.is_able(),
            full: self.is_full(),
            led: instance.map(|instance| instance.data.led().unwrap_or_default()),
            empty: instance.is_some_and(|instance| instance.data == Data::None),
        }
    }

    /// Whom this instance would like to hear from: who leads, while nothing comes from it.
    pub fn misses(&self) -> Option<&str> {
        let instance = self.instance.as_ref().filter(|_| matches!(self.role, Role::Follower))?;
        let holder = self.seen.as_ref()?.0.holder.as_ref()?;
        let silent = instance.running == Running::Replica && instance.receiving == Receiving::Waiting;
        (silent && holder.name != self.me.holder.name).then_some(&holder.name)
    }

    /// One instance has nobody to wait for.
    fn is_alone(&self) -> bool {
        self.settings.instances <= 1 && self.me.ordinal == 0
    }

    /// One that nobody else could be elected for does not stop for want of a Lease. That the spec wants one
    /// instance is not enough: the others may not have heard of it.
    fn holds(&self, term: &Term, now: Instant) -> bool {
        now < term.until || !term.contested
    }

    fn is_full(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.full)
    }

    fn system(&self) -> Option<&String> {
        let seen = self.seen.as_ref().and_then(|(lease, _)| lease.system.as_ref());
        seen.or(self.settings.system.as_ref())
    }

    fn position(&self) -> Option<Position> {
        self.instance.as_ref()?.position
    }

    fn learn(&mut self, mut instance: Instance, now: Instant) {
        // That nothing comes in counts only while it is asked for: it may be of an earlier time.
        if self.hold.is_none() && instance.receiving == Receiving::Cut {
            instance.receiving = Receiving::Waiting;
        }
        let wanted = match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => self.demanded(&term.commits),
            Role::Follower => Quorum::default(),
        };
        if let Role::Leader(term) | Role::Yielding { term, .. } = &mut self.role {
            term.learn(&instance, instance.commits == wanted, now);
        }
        self.instance = Some(instance);
    }

    fn saw(&mut self, lease: Option<Lease>, now: Instant) {
        self.absent = lease.is_none().then(|| self.absent.unwrap_or(now));
        if self.absent.is_none() {
            self.pasts.clear();
        }
        let mine = lease.as_ref().is_some_and(|lease| lease.holder.as_ref() == Some(&self.me.holder));
        if let Role::Leader(term) | Role::Yielding { term, .. } = &mut self.role {
            match &lease {
                // The write was accepted, or nobody has written since: the term is not longer for it.
                Some(found) if mine && found.epoch == term.epoch => {
                    // There may be a renewal to be made up for.
                    if now >= term.renewed + self.settings.look * 3 / 2 {
                        self.next_look = None;
                    }
                    term.version = Version::Known(found.version.clone());
                    term.quorum = found.quorum.clone();
                    term.late = term.late.take().filter(|late| *late == found.version);
                    let sure = term.late.is_none();
                    if found.restores != term.restores {
                        term.settle(Wish { reserved: None, restores: found.restores.clone() });
                    }
                    term.pending_restores = term.pending_restores.take().filter(|_| !sure);
                    term.pending = term.pending.take().filter(|_| !sure);
                    term.contested =
                        found.quorum.elects_without(&self.me.holder.name) || term.contested && !sure;
                }
                _ if planted::is(Bug::NeverDemoted) => {}
                // Whatever the clock says, it is over.
                _ => self.role = Role::Follower,
            }
        }
        let (seen, renewed) = match (lease, self.seen.take()) {
            (Some(found), Some((known, since))) if known.renewal == found.renewal => {
                (Some((found, since)), false)
            }
            (found, _) => (found.map(|found| (found, now)), true),
        };
        self.seen = seen;
        let version = self.seen.as_ref().map(|(lease, _)| &lease.version);
        if self.hold.as_ref().is_some_and(|hold| Some(&hold.version) != version) {
            self.hold = None;
            if let Some(instance) = self.instance.as_mut().filter(|it| it.receiving == Receiving::Cut) {
                instance.receiving = Receiving::Waiting;
            }
        }
        self.past = match (&self.past, version) {
            (Past::Unknown, Some(version)) if !planted::is(Bug::ForgetPast) => Past::MayHold(version.clone()),
            _ if planted::is(Bug::ForgetPast) => Past::Over,
            (Past::MayHold(first), Some(version)) if first == version => Past::MayHold(first.clone()),
            _ => Past::Over,
        };
        self.gone = self.gone.take().filter(|gone| self.is_still_gone(gone, renewed));
    }

    /// What was said of a leader holds for its epoch; what was guessed only until it writes again.
    fn is_still_gone(&self, (gone, epoch, evidence): &(Holder, u64, Evidence), renewed: bool) -> bool {
        let Some((lease, _)) = &self.seen else { return false };
        let same = lease.holder.as_ref() == Some(gone) && lease.epoch == *epoch;
        same && (*evidence == Evidence::Word || !renewed)
    }

    fn wrote(&mut self, version: String, sent: Instant, now: Instant) {
        // It lasts as long as was written, whatever the spec says by now.
        let margin = if planted::is(Bug::NoMargin) { Duration::ZERO } else { self.settings.margin };
        let sent = if planted::is(Bug::TermFromAnswer) { now } else { sent };
        let until = |ttl: Duration| sent + ttl.saturating_sub(margin);
        match self.asked.take() {
            Some(Asked::Take { epoch, history, restores, quorum, commits, ttl, cause, lacks, end })
                if now < until(ttl) || self.is_alone() =>
            {
                self.hold = None;
                self.reigned = Some(epoch);
                // Those who held still need a moment to find who leads now.
                let streamed = quorum.names.iter().map(|name| (name.clone(), now)).collect();
                self.role = Role::Leader(Term {
                    until: until(ttl),
                    version: Version::Known(version),
                    late: None,
                    pending: None,
                    epoch,
                    history,
                    reserved: None,
                    restores,
                    pending_restores: None,
                    cause,
                    lacks,
                    ttl,
                    renewed: sent,
                    contested: quorum.elects_without(&self.me.holder.name),
                    quorum,
                    confirmed: BTreeMap::new(),
                    roomy: BTreeSet::new(),
                    commits,
                    in_force: None,
                    streamed,
                    // One that takes back what it led, and does not know yet how far it is, promises what was promised.
                    end: self.position().or(end),
                    written: None,
                    began: now,
                });
            }
            // The answer came too late to be of use. Read, and find it to be one's own.
            Some(Asked::Take { .. }) => {}
            Some(Asked::Renew { quorum, wish, ttl }) => {
                if let Role::Leader(own) | Role::Yielding { term: own, .. } = &mut self.role {
                    own.until = until(ttl).max(own.until);
                    own.version = Version::Known(version);
                    own.late = None;
                    own.pending = None;
                    own.ttl = ttl;
                    own.renewed = sent;
                    own.contested = quorum.elects_without(&self.me.holder.name);
                    own.quorum = quorum;
                    own.settle(wish);
                }
            }
            Some(Asked::Release) => self.role = Role::Follower,
            Some(Asked::Read { .. }) | None => {}
        }
        // What was seen is no longer what is there.
        self.seen = None;
        self.next_look = Some(now + self.settings.look);
    }

    /// A renewal that was not answered may be carried out later, also after the Lease was read.
    fn unanswered(&mut self) {
        if let (Some(Asked::Renew { .. }), Role::Leader(term) | Role::Yielding { term, .. }) =
            (&self.asked, &mut self.role)
            && let Version::Known(version) = &term.version
        {
            term.late = Some(version.clone()).filter(|_| !planted::is(Bug::LateForgotten));
        }
    }

    fn failed(&mut self) {
        self.asked = None;
        if let Role::Leader(term) | Role::Yielding { term, .. } = &mut self.role {
            term.version = Version::Doubtful;
        }
    }

    /// What follows from the state and the time alone.
    fn go_on(&mut self, now: Instant) -> Option<Request> {
        self.consider_giving_up(now);
        self.consider_handover(now);
        self.consider_quorum(now);
        self.consider_hold(now);
        if self.asked.is_some() {
            return None;
        }
        match &self.role {
            Role::Follower => self.follow(now),
            Role::Leader(_) | Role::Yielding { .. } => self.lead(now),
        }
    }

    fn draft(
        &self,
        holder: Option<Holder>,
        (epoch, history): (u64, u64),
        successor: Option<Successor>,
        quorum: Quorum,
    ) -> Box<Draft> {
        let own = match self.instance.as_ref().map(|instance| &instance.data) {
            Some(Data::Present { system, .. }) => Some(system.clone()),
            _ => None,
        };
        let system = own.or_else(|| self.system().cloned());
        // A database that does not say how far it is has at least what it had: what one that is elected may
        // lack is measured from there.
        let known = match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => term.end,
            Role::Follower => self.seen.as_ref().and_then(|(lease, _)| lease.end),
        };
        let end = self.position().or(known.filter(|_| !planted::is(Bug::ForgetEnd)));
        let history = end.map_or(history, |end| history.max(end.history));
        let (restores, ttl) = (self.restores(), self.settings.ttl);
        Box::new(Draft { holder, epoch, system, successor, quorum, history, restores, end, ttl })
    }

    fn has_stopped(&self) -> bool {
        self.instance.as_ref().is_none_or(|instance| instance.running == Running::Stopped)
    }

    /// Until when a release that is under way is left alone.
    fn releases_until(&self) -> Option<Instant> {
        let look = self.next_look.filter(|_| self.asked == Some(Asked::Release))?;
        look.checked_sub(self.settings.look / 2)
    }

    fn read(&mut self, now: Instant) -> Option<Request> {
        self.ask(Asked::Read { overtaken: false }, Request::Read, now)
    }

    fn ask(&mut self, asked: Asked, request: Request, now: Instant) -> Option<Request> {
        self.asked = Some(asked);
        self.next_look = Some(now + self.settings.look);
        Some(request)
    }
}

#[cfg(test)]
mod tests;
