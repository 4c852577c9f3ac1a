//! The API server, for the two objects that leadership is about: the Lease and the EndpointSlice of the writers.
//! Writes of the Lease are compare-and-swap by its version. Requests and answers are late, lost or refused; what
//! nobody waits for any more may still be carried out. Watches lag, break off and start anew, and tell of the past.
//!
//! Left out: other objects, which are there only in histories with an operator (`cluster`; elsewhere agents hear of
//! settings directly, some time later); reads that are stale, since agents read the Lease by a request that etcd
//! answers; a Lease that somebody else than the operator removes.

use std::rc::Rc;
use std::time::{Duration, Instant};

use keelson_ha::{Draft, Input, Lease, Request};

use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};

/// The API server.
#[derive(Debug, Default)]
pub struct Api {
    /// Grows with every write of anything.
    pub version: u64,
    /// The Lease, and the last versions of it, newest last.
    pub leases: Vec<Rc<Lease>>,
    /// The Database whose Lease it is: with that it goes, whoever still writes it.
    pub owner: Option<u64>,
    /// To which pod writers are led.
    pub writers: Option<PodId>,
    /// It answers nobody until then.
    pub outage: Micros,
    /// It refuses many requests until then.
    pub errors: Micros,
    /// It is slow until then.
    pub slow: Micros,
    /// When something was last written that is more than a renewal.
    pub changed: Micros,
}

impl Api {
    /// The Lease as it is.
    pub fn lease(&self) -> Option<&Rc<Lease>> {
        self.leases.last()
    }
}

/// One pod's way to the API server. Each lasts until a moment.
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
    /// When the last news arrives: one comes after the other.
    order: Micros,
}

/// How many versions of the Lease are remembered, for watches that tell of the past.
const REMEMBERED: usize = 8;

/// The Lease in the API server lasts whole seconds.
fn whole_seconds(ttl: Duration) -> Duration {
    Duration::from_secs((ttl.as_millis() as u64).div_ceil(1000).max(1))
}

impl World {
    pub(super) fn api_way(&mut self) -> Micros {
        if self.now < self.api.slow && self.chance.per_mille(400) {
            return self.chance.magnitude(50 * MILLI..15 * SECOND);
        }
        self.chance.of(500..8_000)
    }

    /// Whether a request gets through.
    pub(super) fn api_hears(&mut self, pod: PodId) -> bool {
        let lost = self.now < self.network.lossy && self.chance.per_mille(250);
        self.now >= self.api.outage
            && self.now >= self.pods[pod].links.mute
            && self.pods[pod].powered
            && !lost
    }

    pub(super) fn api_is_heard(&mut self, pod: PodId) -> bool {
        let lost = self.now < self.network.lossy && self.chance.per_mille(250);
        self.now >= self.pods[pod].links.deaf && self.pods[pod].powered && !lost
    }

    /// Whether it refuses a request, as it refuses many.
    pub(super) fn api_refuses(&mut self) -> bool {
        self.now < self.api.errors && self.chance.per_mille(500)
    }

    /// Sends what the machine asks of the Lease.
    pub(super) fn send_request(&mut self, pod: PodId, request: Request) {
        let serial = self.serial();
        let sent = self.clock(pod);
        let life = self.pods[pod].life;
        let settings = &self.settings;
        let deadline = (settings.ttl.saturating_sub(settings.margin) / 2).as_micros() as u64;
        let Some(agent) = &mut self.pods[pod].agent else { return };
        if agent.request.replace(serial).is_some() {
            self.violate(pod, "SecondRequest", "a second request was made before the first was answered");
        }
        self.put(deadline, Event::Deadline { pod, life, serial });
        if self.api_hears(pod) {
            let way = self.api_way();
            let (request, database) = (Box::new(request), self.pods[pod].database);
            self.put(way, Event::Request { pod, life, serial, request, sent, database });
        }
    }

    pub(super) fn request_arrives(
        &mut self,
        (pod, life, serial): (PodId, u32, u64),
        request: Request,
        sent: Instant,
        database: Option<u64>,
    ) {
        // A pod that is gone has sent it before that: it is carried out all the same.
        if self.now < self.api.outage {
            return;
        }
        let refused = self.api_refuses() || !self.agents_have_rights();
        // A gateway that gives up after the request was passed on.
        let done_anyway = refused && self.agents_have_rights() && self.chance.per_mille(400);
        let answer = match request {
            _ if refused && !done_anyway => Input::Failed,
            Request::Read => Input::Read(self.api.lease().map(|lease| Lease::clone(lease))),
            Request::Write { draft, replaces } => self.write_lease(pod, *draft, replaces, sent, database),
        };
        let answer = if done_anyway { Input::Failed } else { answer };
        if self.api_is_heard(pod) {
            let way = self.api_way();
            self.put(way, Event::Answer { pod, life, serial, input: Box::new(answer) });
        }
    }

    fn write_lease(
        &mut self,
        pod: PodId,
        draft: Draft,
        replaces: Option<String>,
        sent: Instant,
        database: Option<u64>,
    ) -> Input {
        if self.api.lease().map(|lease| &lease.version) != replaces.as_ref() {
            return Input::Conflict;
        }
        let Draft { holder, epoch, system, successor, quorum, history, restores, end, ttl } = draft;
        let before = self.api.lease().cloned();
        // Which database it is, is never taken away.
        let system = system.or_else(|| before.as_ref().and_then(|lease| lease.system.clone()));
        self.api.version += 1;
        let version = self.api.version.to_string();
        let ttl = whole_seconds(ttl);
        let lease = Lease {
            version: version.clone(),
            renewal: version.clone(),
            holder,
            ttl,
            epoch,
            system,
            successor,
            quorum,
            history,
            restores,
            end,
        };
        let renewal = before.as_ref().is_some_and(|old| {
            (&old.holder, old.epoch, &old.quorum, &old.successor)
                == (&lease.holder, lease.epoch, &lease.quorum, &lease.successor)
        });
        if !renewal {
            self.api.changed = self.now;
            self.tell(pod, |_| {
                let holder = lease.holder.as_ref().map(ToString::to_string).unwrap_or_default();
                let names: Vec<&str> = lease.quorum.names.iter().map(String::as_str).collect();
                let (count, names) = (lease.quorum.count, names.join(" "));
                let successor = lease.successor.as_ref();
                format!(
                    "writes Lease {version}: held by `{holder}` in epoch {epoch}, quorum {count} of ({names}), \
                     successor {successor:?}, end {end:?}"
                )
            });
        }
        if before.is_none() {
            // Whoever has sent it: there may be another pod of its name by now, of another Database.
            self.api.owner = database;
            self.controllers_wake();
        }
        self.check_taking(pod, before.as_deref(), &lease);
        self.publish(lease);
        Input::Written { version, sent }
    }

    /// The Lease is like this now, and all who watch it hear of it.
    fn publish(&mut self, lease: Lease) {
        self.check.mark(lease.epoch);
        let lease = Rc::new(lease);
        if self.api.leases.len() == REMEMBERED {
            self.api.leases.remove(0);
        }
        self.api.leases.push(lease.clone());
        for pod in 0..self.pods.len() {
            if self.pods[pod].agent.is_some() {
                self.send_news(pod, lease.clone());
            }
        }
    }

    fn send_news(&mut self, pod: PodId, lease: Rc<Lease>) {
        let links = &self.pods[pod].links;
        if self.now < links.unwatched.max(links.deaf).max(self.api.outage) {
            return;
        }
        let late = if self.now < links.lag { self.chance.magnitude(50 * MILLI..10 * SECOND) } else { 0 };
        let at = (self.now + late + self.chance.of(500..10_000)).max(self.pods[pod].links.order + 1);
        self.pods[pod].links.order = at;
        let life = self.pods[pod].life;
        self.queue.put(at, Event::Seen { pod, life, lease });
    }

    /// A watch begins anew: it lists first.
    pub(super) fn relist(&mut self, pod: PodId, life: u32) {
        if self.pods[pod].life != life || self.pods[pod].agent.is_none() {
            return;
        }
        let blocked = self.pods[pod].links.unwatched.max(self.pods[pod].links.deaf).max(self.api.outage);
        if self.now < blocked {
            let again = blocked - self.now + self.chance.of(0..SECOND);
            self.put(again, Event::Relist { pod, life });
            return;
        }
        if let Some(lease) = self.api.lease().cloned() {
            self.send_news(pod, lease);
        }
        if self.api.writers != Some(pod) {
            self.put(10 * MILLI, Event::Stray { pod, life });
        }
    }

    /// A watch tells of the past: an API server that is behind has taken it over.
    pub(super) fn rewind_watch(&mut self, pod: PodId) {
        let many = self.api.leases.len();
        if many > 0 {
            let lease = self.api.leases[self.chance.index(many)].clone();
            self.send_news(pod, lease);
        }
        let life = self.pods[pod].life;
        self.put(SECOND, Event::Relist { pod, life });
    }

    /// A person, or the operator, asks for a handover.
    pub(super) fn wish(&mut self, to: keelson_ha::Successor) {
        if let Some(lease) = self.api.lease().filter(|lease| lease.holder.is_some()).cloned() {
            self.api.version += 1;
            let version = self.api.version.to_string();
            self.api.changed = self.now;
            self.publish(Lease { version, successor: Some(to), ..Lease::clone(&lease) });
        }
    }

    /// An agent leads writers to itself: as often as it takes, and while it leads.
    pub(super) fn route(&mut self, pod: PodId, life: u32) {
        let now = self.clock(pod);
        let may = |agent: &super::Agent| agent.leave.is_some_and(|until| now < until);
        if self.pods[pod].life != life || !self.pods[pod].agent.as_ref().is_some_and(may) {
            return;
        }
        if self.api_hears(pod) {
            let way = self.api_way();
            self.put(way, Event::Routed { pod, life, late: self.now + 3 * SECOND });
        } else {
            self.put(3 * SECOND, Event::Route { pod, life });
        }
    }

    pub(super) fn route_arrives(&mut self, pod: PodId, life: u32, late: Micros) {
        let failed = self.now < self.api.outage || self.api_refuses() || !self.agents_have_rights();
        if !failed {
            self.write_writers(pod);
        }
        if failed || !self.api_is_heard(pod) || self.now > late {
            self.put(500 * MILLI, Event::Route { pod, life });
        }
    }

    fn write_writers(&mut self, pod: PodId) {
        if self.api.writers == Some(pod) {
            return;
        }
        self.api.version += 1;
        self.api.writers = Some(pod);
        self.api.changed = self.now;
        self.tell(pod, |_| "has writers led to it".to_owned());
        for other in (0..self.pods.len()).filter(|other| *other != pod) {
            let links = &self.pods[other].links;
            if self.pods[other].agent.is_some() && self.now >= links.unwatched.max(links.deaf) {
                let (life, soon) = (self.pods[other].life, self.chance.of(MILLI..20 * MILLI));
                self.put(soon, Event::Stray { pod: other, life });
            }
        }
        for client in 0..self.clients.len() {
            let late = if self.now < self.api.slow { 10 * SECOND } else { 300 * MILLI };
            let soon = self.chance.of(MILLI..late);
            self.put(soon, Event::Proxy { client });
        }
    }
}
