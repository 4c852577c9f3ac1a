//! How the log comes from one PostgreSQL to another: a replica connects to the pod that has the name of whom it
//! follows now, asks for what it lacks, and says how far it is on disk. Whether it is sent anything is decided as
//! PostgreSQL decides it: by the numbers of timelines and by what is still there.
//!
//! Left out: replay that lags or conflicts; the log as segments; an archive.

use keelson_agent::steps::Leader;

use super::postgres::{Connection, Sender};
use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};
use crate::wal::Place;

/// As `wal_sender_timeout` and `wal_receiver_timeout`.
pub const SILENT: Micros = 5 * SECOND;
/// As `wal_retrieve_retry_interval`.
const RETRY: Micros = 500 * MILLI;
/// So much is sent at once to one that is far behind.
const PIECE: u64 = 256 << 10;

impl World {
    /// Follows another from now on, or nobody.
    pub(super) fn follow(&mut self, pod: PodId, start: u64, of: Option<Leader>) {
        self.hang_up(pod);
        let Some(program) = self.program(pod, start) else { return };
        let follows = of.is_some() && !program.primary;
        program.upstream = of.filter(|_| follows);
        if follows && program.ready {
            self.receive_soon(pod, start, 0);
        }
    }

    /// The receiving end is gone. The sending end hears of it, if the way is open.
    pub(super) fn hang_up(&mut self, pod: PodId) {
        let Some(connection) = self.pods[pod].program.as_mut().and_then(|program| program.connection.take())
        else {
            return;
        };
        if self.is_open(pod, connection.pod)
            && let Some(program) = self.program(connection.pod, connection.start)
        {
            program.senders.retain(|sender| sender.connection != connection.id);
        }
    }

    /// A replica looks after its connection: is it alive, or can there be one.
    pub(super) fn receive(&mut self, pod: PodId, start: u64, serial: u64) {
        let Some(program) = self.program(pod, start).filter(|it| it.ready && it.look == serial) else {
            return;
        };
        let Some(upstream) = program.upstream.clone() else { return };
        match program.connection.clone() {
            Some(connection) => self.keep_alive(pod, &connection),
            None => self.connect(pod, start, &upstream),
        }
        self.receive_soon(pod, start, RETRY);
    }

    /// The next look after a replica's connection. There is one at a time.
    pub(super) fn receive_soon(&mut self, pod: PodId, start: u64, after: Micros) {
        let serial = self.serial();
        if let Some(program) = self.program(pod, start) {
            program.look = serial;
            self.put(after, Event::Receive { pod, start, serial });
        }
    }

    fn keep_alive(&mut self, pod: PodId, connection: &Connection) {
        let there = self.reaches(pod, connection.pod) && self.reaches(connection.pod, pod);
        let paused = self.pods[connection.pod].paused.is_some();
        if !there || paused {
            if self.now > connection.heard + SILENT {
                self.hang_up(pod);
            }
            return;
        }
        let now = self.now;
        let Some(program) = self.program(connection.pod, connection.start) else {
            self.hang_up(pod);
            return;
        };
        let Some(sender) = program.senders.iter_mut().find(|sender| sender.connection == connection.id)
        else {
            self.hang_up(pod);
            return;
        };
        sender.heard = now;
        if let Some(own) = self.pods[pod].program.as_mut().and_then(|program| program.connection.as_mut()) {
            own.heard = now;
        }
        self.send_log_to(connection.pod, connection.id);
    }

    fn connect(&mut self, pod: PodId, start: u64, upstream: &Leader) {
        let Some(ordinal) = self.names.iter().position(|name| *name == upstream.name) else { return };
        let of = self.current[ordinal];
        let there =
            of != pod && self.reaches(pod, of) && self.reaches(of, pod) && self.pods[of].paused.is_none();
        let name = self.pods[pod].ordinal;
        let (Some(mine), Some(theirs)) = (self.end_of(pod), self.end_of(of)) else { return };
        let now = self.now;
        let Some(program) = self.pods[of].program.as_mut().filter(|program| program.ready && there) else {
            return;
        };
        // One that has fallen silent keeps its slot until it is given up.
        program.senders.retain(|sender| now < sender.heard + SILENT);
        let busy = program.senders.iter().any(|sender| sender.name == name);
        let (slots, their_start) = (program.slots || !program.primary, program.start);
        let kept = self.pods[of].volume.database().is_some_and(|database| mine.offset >= database.kept);
        let behind = self.wal.timeline(theirs) < self.wal.timeline(mine);
        if busy || !slots || behind || !kept || !self.wal.would_send(theirs, mine) {
            return;
        }
        if !self.wal.contains(theirs, mine) {
            self.violate(pod, "Diverged", "it is sent the log of another history that has the same number");
            return;
        }
        let (id, timeline) = (self.serial(), self.wal.timeline(theirs));
        let connection = Connection { id, pod: of, start: their_start, heard: now };
        let sender = Sender {
            connection: id,
            name,
            pod,
            start,
            flushed: mine.offset,
            streaming: mine == theirs,
            heard: now,
        };
        if let Some(program) = &mut self.pods[of].program {
            program.senders.push(sender);
        }
        if let Some(database) = self.pods[pod].volume.database_mut() {
            database.newest = database.newest.max(timeline);
        }
        if let Some(program) = &mut self.pods[pod].program {
            program.connection = Some(connection);
            program.received = true;
        }
        self.tell(pod, |world| {
            format!("receives from orders-{}, from {:?} on", world.pods[of].ordinal, mine)
        });
        self.send_log_to(of, id);
    }

    /// Sends what is new to all who follow.
    pub(super) fn send_log(&mut self, pod: PodId) {
        let Some(program) = &self.pods[pod].program else { return };
        let connections: Vec<u64> = program.senders.iter().map(|sender| sender.connection).collect();
        for connection in connections {
            self.send_log_to(pod, connection);
        }
    }

    fn send_log_to(&mut self, pod: PodId, connection: u64) {
        let Some(end) = self.end_of(pod) else { return };
        let Some(program) = &self.pods[pod].program else { return };
        let Some(sender) = program.senders.iter().find(|sender| sender.connection == connection).cloned()
        else {
            return;
        };
        if sender.flushed >= end.offset && sender.streaming || !self.reaches(pod, sender.pod) {
            return;
        }
        let offset = end.offset.min(sender.flushed + PIECE);
        let time = self.way() + self.disk_time();
        let upto = self.wal.plain(Place { branch: end.branch, offset });
        self.put(time, Event::Stream { pod: sender.pod, start: sender.start, connection, upto });
    }

    /// Log arrives, and is on disk.
    pub(super) fn streamed(&mut self, pod: PodId, start: u64, connection: u64, upto: Place) {
        let (now, hung) = (self.now, self.is_hung(pod));
        let full = now < self.pods[pod].volume.full;
        let Some(program) = self.program(pod, start) else { return };
        let Some(from) = program.connection.as_mut().filter(|from| from.id == connection) else { return };
        from.heard = now;
        let from = from.clone();
        if hung {
            return;
        }
        if full {
            self.tell(pod, |_| "its database gives up: the disk is full".to_owned());
            self.end_program(pod);
            return;
        }
        let timeline = self.wal.timeline(upto);
        let Some(database) = self.pods[pod].volume.database_mut() else { return };
        if upto.offset > database.flushed {
            (database.written, database.flushed) = (upto, upto.offset);
            database.newest = database.newest.max(timeline);
        }
        let offset = database.flushed;
        if self.pods[pod].program.as_ref().is_some_and(|program| !program.senders.is_empty()) {
            self.send_log(pod);
        }
        if self.reaches(pod, from.pod) {
            let way = self.way();
            self.put(way, Event::Flushed { pod: from.pod, start: from.start, connection, offset });
        }
    }

    /// A replica has said how far it is.
    pub(super) fn standby_flushed(&mut self, pod: PodId, start: u64, connection: u64, offset: u64) {
        let (now, end) = (self.now, self.end_of(pod));
        let Some(program) = self.program(pod, start) else { return };
        let Some(sender) = program.senders.iter_mut().find(|sender| sender.connection == connection) else {
            return;
        };
        sender.heard = now;
        sender.flushed = sender.flushed.max(offset);
        sender.streaming |= end.is_some_and(|end| end.offset <= offset);
        let behind = end.is_some_and(|end| end.offset > sender.flushed + PIECE / 2);
        if behind {
            self.send_log_to(pod, connection);
        }
        self.acknowledge(pod);
    }
}
