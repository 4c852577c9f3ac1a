//! The operator as a process: what it has heard by its watches, the real queue of its rounds, and how it ends. At most one
//! leads; when another takes over, or one is started again, the next begins with a list and remembers nothing. What the
//! one before has sent may still arrive.
//!
//! Left out: the Lease of operators itself (`keelson_kit::election` has its own generated histories); more than one
//! Database; what is read of a child before it is written for the first time.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use keelson_kit::queue::{Limits, Next, Outcome, Queue};
use keelson_operator::database::lately::Marks;

use super::super::queue::Micros;
use super::super::{MILLI, SECOND, World};
use super::ClusterEvent;
use super::objects::{Key, Stored};
use super::round::Round;
use crate::fault::Kind as Fault;

/// An operator.
#[derive(Debug)]
pub struct Operator {
    /// Told from one another by this.
    pub life: u32,
    pub runs: bool,
    /// Whether it has listed all there is: before that it watches nothing, and begins no round.
    watches: bool,
    pub cache: BTreeMap<Key, Rc<Stored>>,
    pub marks: Marks,
    pub round: Option<Round>,
    /// Whether the last round met a conflict: what the watch has told of the Database is not to be relied on.
    pub conflicted: bool,
    queue: Queue<()>,
    origin: Instant,
    /// The wake-up that counts.
    wake: u64,
    /// When what is on its way was written, oldest first.
    news: VecDeque<Micros>,
    /// When the last news arrives: one comes after the other.
    order: Micros,
    /// How old the list was that it began with.
    pub listed: Micros,
    /// It ends after so many more writes.
    pub ends_after: Option<u32>,
    pub links: Links,
}

/// The operator's way to the API server. Each lasts until a moment.
#[derive(Debug, Default)]
pub struct Links {
    /// Requests do not arrive.
    pub mute: Micros,
    /// Answers do not arrive.
    pub deaf: Micros,
    /// News is late.
    pub lag: Micros,
    /// There is no news.
    pub unwatched: Micros,
    /// The next list is of the past.
    pub stale: bool,
}

impl Operator {
    pub fn new(origin: Instant) -> Operator {
        Operator {
            life: 0,
            runs: false,
            watches: false,
            cache: BTreeMap::new(),
            marks: Marks::default(),
            round: None,
            conflicted: false,
            queue: Queue::new(Limits::default(), origin),
            origin,
            wake: 0,
            news: VecDeque::new(),
            order: 0,
            listed: 0,
            ends_after: None,
            links: Links::default(),
        }
    }

    /// The moment of which it knows all.
    pub fn knows_until(&self, now: Micros) -> Micros {
        let list = if self.listed == 0 { now } else { self.listed };
        self.news.front().copied().unwrap_or(now).min(list)
    }
}

impl World {
    /// The operator ends at once; another begins after so long.
    pub(in super::super) fn end_operator(&mut self, back: Micros) {
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        let links = std::mem::take(&mut operator.links);
        let life = operator.life + 1;
        *operator = Operator { life, links, ..Operator::new(operator.origin) };
        self.say(|_| "the operator ends".to_owned());
        self.put_in_cluster(back, ClusterEvent::Begin { life });
    }

    /// Something goes wrong around the operator until then.
    pub(in super::super) fn disturb_operator(&mut self, kind: Fault, number: usize, until: Micros) {
        let relist = until.saturating_sub(self.now) + self.chance.of(10 * MILLI..2 * SECOND);
        let Some(cluster) = &mut self.cluster else { return };
        let (operator, person) = (&mut cluster.operator, &mut cluster.person);
        let (links, life) = (&mut operator.links, operator.life);
        match kind {
            Fault::OperatorEndsAfter => operator.ends_after = Some(number as u32),
            Fault::OperatorMute => links.mute = until,
            Fault::OperatorLag => links.lag = until,
            Fault::SlowStarts => person.slow_starts = until,
            Fault::OperatorDeaf | Fault::OperatorUnwatched => {
                match kind {
                    Fault::OperatorDeaf => links.deaf = until,
                    _ => links.unwatched = until,
                }
                self.put_in_cluster(relist, ClusterEvent::Relist { life });
            }
            _ => {
                links.stale = true;
                self.operator_lists(life);
            }
        }
    }

    /// All that goes wrong around the operator ends.
    pub(in super::super) fn calm_operator(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        operator.links = Links::default();
        operator.ends_after = None;
        cluster.person.slow_starts = 0;
        let (life, runs) = (operator.life, operator.runs);
        let event = if runs { ClusterEvent::Relist { life } } else { ClusterEvent::Begin { life } };
        self.put_in_cluster(SECOND, event);
    }

    pub(super) fn operator_begins(&mut self, life: u32) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.operator.life == life && !cluster.operator.runs {
            cluster.operator.runs = true;
            self.say(|_| "an operator begins to lead".to_owned());
            self.operator_lists(life);
        }
    }

    /// Lists all there is, as its watches begin anew.
    pub(super) fn operator_lists(&mut self, life: u32) {
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if operator.life != life || !operator.runs {
            return;
        }
        let blocked = operator.links.unwatched.max(operator.links.deaf).max(operator.links.mute);
        let blocked = blocked.max(self.api.outage);
        if self.now < blocked {
            let again = blocked - self.now + self.chance.of(0..SECOND);
            self.put_in_cluster(again, ClusterEvent::Relist { life });
            return;
        }
        let stale = std::mem::take(&mut operator.links.stale);
        let changes = if stale { self.chance.of(1..40) as usize } else { 0 };
        let now = self.now;
        operator.watches = true;
        operator.cache = cluster.objects.before(changes);
        operator.news.clear();
        operator.listed = if stale { 1 } else { 0 };
        operator.order = now;
        operator.queue.changed((), self.origin + std::time::Duration::from_micros(now));
        if stale {
            self.say(|_| format!("the operator's list is {changes} changes old"));
            // The watch goes on from there.
            let soon = self.chance.magnitude(100 * MILLI..10 * SECOND);
            self.put_in_cluster(soon, ClusterEvent::Relist { life });
        }
        self.operator_looks();
    }

    /// An object has changed: the operator hears of it, some time.
    pub(super) fn tell_operator(&mut self, key: Key, news: Result<Rc<Stored>, u64>) {
        let (now, outage) = (self.now, self.api.outage);
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &cluster.operator;
        let links = &operator.links;
        if !operator.watches {
            return;
        }
        let (life, unseen) = (operator.life, operator.listed == 0);
        let blocked = links.unwatched.max(links.deaf).max(outage);
        if now < blocked {
            if unseen {
                // From now on it does not know all, until it lists anew.
                cluster.operator.listed = now.max(1);
                let again = blocked - now + self.chance.of(0..SECOND);
                self.put_in_cluster(again, ClusterEvent::Relist { life });
            }
            return;
        }
        let late = if now < links.lag { self.chance.magnitude(50 * MILLI..10 * SECOND) } else { 0 };
        let jitter = self.chance.of(500..20_000);
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        let at = (now + late + jitter).max(operator.order + 1);
        operator.order = at;
        operator.news.push_back(now);
        self.put_in_cluster(at - now, ClusterEvent::News { life, key, news, written: now });
    }

    /// A watch can be behind what the operator wrote itself; of what is gone, another may be there already.
    pub(super) fn operator_hears(
        &mut self,
        life: u32,
        key: Key,
        news: Result<Rc<Stored>, u64>,
        written: Micros,
    ) {
        let moment = self.moment();
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if operator.life != life {
            return;
        }
        // One that a list has overtaken is no news.
        if operator.news.front() != Some(&written) {
            return;
        }
        operator.news.pop_front();
        let known = operator.cache.get(&key);
        match news {
            Ok(stored) => {
                let old =
                    known.is_some_and(|known| known.uid == stored.uid && stored.version <= known.version);
                if old {
                    return;
                }
                operator.cache.insert(key, stored);
            }
            Err(uid) => {
                if known.is_none_or(|known| known.uid != uid) {
                    return;
                }
                operator.cache.remove(&key);
            }
        }
        operator.queue.changed((), moment);
        self.operator_looks();
    }

    /// The operator looks whether there is something to do.
    pub(super) fn operator_looks(&mut self) {
        let (moment, serial) = (self.moment(), self.serial());
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if !operator.runs || operator.round.is_some() {
            return;
        }
        match operator.queue.next(moment) {
            Next::Start(()) => self.begin_round(),
            Next::At(at) => {
                operator.wake = serial;
                let life = operator.life;
                let after = at.saturating_duration_since(moment).as_micros() as u64 + 1;
                self.put_in_cluster(after, ClusterEvent::Wake { life, serial });
            }
            Next::Idle => {}
        }
    }

    pub(super) fn operator_wakes(&mut self, life: u32, serial: u64) {
        let Some(cluster) = &self.cluster else { return };
        if cluster.operator.life == life && cluster.operator.wake == serial {
            self.operator_looks();
        }
    }

    /// A round has ended.
    pub(super) fn round_ended(&mut self, outcome: Outcome) {
        let moment = self.moment();
        let chance = self.chance.of(0..1000) as f64 / 1000.0;
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        operator.round = None;
        operator.conflicted = outcome == Outcome::Failed(keelson_kit::retry::Class::Conflict);
        operator.queue.ended(&(), outcome, moment, chance);
        self.operator_looks();
    }
}
