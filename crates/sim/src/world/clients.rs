//! Clients: each writes something of its own, waits until that is acknowledged, and now and then reads. Each
//! sits on the machine of an instance, so that also one that is cut off has clients, and keeps its connection
//! for as long as that works; only then it goes where writers are led to, as its node has heard of it.
//!
//! Left out: several statements in a transaction, pools, and reads elsewhere than on the primary. A read sees
//! what was acknowledged, and what was there when the instance began to take writes. Only what was acknowledged
//! counts for later reads: what a new primary has beyond that may be seen and lost, as in PostgreSQL itself.

use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};
use crate::wal::Place;

/// A client.
#[derive(Debug)]
pub struct Client {
    /// The machine that it is on.
    home: PodId,
    /// Where writers are led to, as its node has heard.
    pub proxy: Option<PodId>,
    connection: Option<(PodId, u64)>,
    /// What it is at.
    serial: u64,
    /// Whether it waits for an acknowledgement.
    waits: bool,
    /// What it knows to be there.
    seen: Option<Place>,
}

/// How long a client waits.
const PATIENCE: Micros = 5 * SECOND;
/// One that writes for nobody, to see whether it would be acknowledged.
const NOBODY: usize = usize::MAX;

impl World {
    pub(super) fn begin_clients(&mut self) {
        for home in 0..self.pods.len() {
            let client = Client { home, proxy: None, connection: None, serial: 0, waits: false, seen: None };
            self.clients.push(client);
            self.client_after(home, SECOND);
        }
    }

    fn client_after(&mut self, client: usize, after: Micros) {
        let serial = self.serial();
        self.clients[client].serial = serial;
        self.put(after, Event::Client { client, serial });
    }

    pub(super) fn client_turns(&mut self, client: usize, serial: u64) {
        let here = &mut self.clients[client];
        if here.serial != serial {
            return;
        }
        if std::mem::take(&mut here.waits) {
            here.connection = None;
        }
        let (home, wanted) = (here.home, here.connection.map(|(pod, _)| pod).or(here.proxy));
        let usable = |world: &World, pod: PodId| {
            let open = world.is_open(home, pod) && world.is_open(pod, home);
            open && world.pods[pod].program.as_ref().is_some_and(super::Program::takes_writes)
        };
        let Some(pod) = wanted.filter(|pod| usable(self, *pod)) else {
            self.clients[client].connection = None;
            let again = self.chance.of(200 * MILLI..900 * MILLI);
            self.client_after(client, again);
            return;
        };
        let Some(start) = self.pods[pod].program.as_ref().map(|program| program.start) else { return };
        if self.clients[client].connection.is_some_and(|(_, known)| known != start) {
            self.clients[client].connection = None;
            self.client_after(client, 100 * MILLI);
            return;
        }
        self.clients[client].connection = Some((pod, start));
        if self.pods[pod].paused.is_some() {
            self.client_after(client, 300 * MILLI);
            self.clients[client].waits = true;
        } else if self.chance.per_mille(300) {
            self.read(client, pod);
        } else {
            self.client_after(client, PATIENCE);
            self.clients[client].waits = true;
            let serial = self.clients[client].serial;
            self.commit(pod, client, serial);
        }
    }

    fn think(&mut self, client: usize) {
        let think = self.chance.magnitude(100 * MILLI..3 * SECOND);
        self.client_after(client, think);
    }

    fn read(&mut self, client: usize, pod: PodId) {
        let Some(program) = &self.pods[pod].program else { return };
        let Some(database) = self.pods[pod].volume.database() else { return };
        let found = Place { branch: database.written.branch, offset: program.visible };
        let back = self.clients[client].seen.is_some_and(|seen| !self.wal.contains(found, seen));
        if back && self.scenario.synchronous {
            self.violate(pod, "StaleRead", "a client reads less than it has read or written before");
        }
        self.clients[client].seen = self.wal.acknowledged_in(found);
        self.think(client);
    }

    /// What was read of a database that is gone counts for no other.
    pub(super) fn forget_what_was_read(&mut self) {
        self.clients.iter_mut().for_each(|client| client.seen = None);
    }

    /// A client is told that what it wrote is there.
    pub(super) fn acknowledged(&mut self, client: usize, serial: u64, pod: PodId, offset: u64) {
        let Some(here) = self.clients.get(client).filter(|here| here.serial == serial && here.waits) else {
            return;
        };
        let home = here.home;
        if !self.is_open(pod, home) {
            return;
        }
        if let Some(database) = self.pods[pod].volume.database() {
            self.clients[client].seen = Some(Place { branch: database.written.branch, offset });
        }
        self.clients[client].waits = false;
        self.check.told.push(self.now);
        self.think(client);
    }

    /// The database has ended, or lets nobody in any more: who waits hears of it.
    pub(super) fn drop_clients(&mut self, pod: PodId) {
        let Some(program) = &mut self.pods[pod].program else { return };
        for (_, client, serial) in std::mem::take(&mut program.pending) {
            let soon = self.chance.of(MILLI..100 * MILLI);
            self.put(soon, Event::Client { client: client.min(self.clients.len() - 1), serial });
        }
    }

    /// Somebody has begun to take writes: all others who would are asked to.
    pub(super) fn disturb(&mut self, pod: PodId) {
        for other in (0..self.pods.len()).filter(|other| *other != pod) {
            self.ask_to_write(other);
        }
    }

    /// Writes something, to see whether that is acknowledged.
    pub(super) fn ask_to_write(&mut self, pod: PodId) {
        let here = &self.pods[pod];
        let would = here.paused.is_none() && here.program.as_ref().is_some_and(super::Program::takes_writes);
        if would {
            self.commit(pod, NOBODY, 0);
        }
    }
}
