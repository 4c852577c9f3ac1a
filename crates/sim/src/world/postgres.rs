//! A running PostgreSQL: recovery after a crash, promotion to a new timeline, commits that wait for standbys, an
//! orderly end that waits for those who follow.
//!
//! Left out: what is in a transaction; memory, locks and connections that run out; checkpoints. A commit is one record. Replay is immediate, so a replica has replayed what
//! it has. The log of a primary is sent when it is on its disk, as PostgreSQL does.

use std::collections::VecDeque;

use keelson_agent::steps::Leader;
use keelson_engine::Lsn;
use keelson_engine::postgres::{Receiver, Standby, Status};
use keelson_ha::Quorum;

use super::disk::Content;
use super::queue::{Event, Micros, PodId, Turn};
use super::{MILLI, SECOND, World};
use crate::wal::Place;

/// A database program that runs.
#[derive(Debug)]
pub struct Program {
    /// Told from one another by this.
    pub start: u64,
    /// Whether it takes writes, or is about to.
    pub primary: bool,
    /// The epoch in which it does.
    pub epoch: u64,
    /// Whether it lets anybody in.
    pub ready: bool,
    /// Whom it follows.
    pub upstream: Option<Leader>,
    pub connection: Option<Connection>,
    /// The look after it that counts.
    pub look: u64,
    /// Whether anything has come since it was started.
    pub received: bool,
    /// Whom its commits wait for.
    pub commits: Quorum,
    /// For whom they waited before: some of its processes have not heard of the change until then.
    pub before: Option<(Quorum, Micros)>,
    /// Whether the agent acknowledges while it leads.
    pub fence: bool,
    /// Whether slots were made for those who follow.
    pub slots: bool,
    pub senders: Vec<Sender>,
    /// Commits that nobody was told of yet: where they end, and whose they are.
    pub pending: VecDeque<(u64, usize, u64)>,
    /// The end of what was acknowledged, or was there when it was started.
    pub visible: u64,
    /// Whether it ends, and lets nobody in any more.
    pub ending: bool,
    /// The parameter with which it was started.
    pub parameter: Option<String>,
}

/// The receiving end of a replica.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Told from one another by this.
    pub id: u64,
    /// Where to.
    pub pod: PodId,
    /// To which process there.
    pub start: u64,
    /// When something was last heard.
    pub heard: Micros,
}

/// The sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    pub connection: u64,
    /// The ordinal of the instance that follows.
    pub name: usize,
    pub pod: PodId,
    pub start: u64,
    /// How far the log is on disk there, as it said.
    pub flushed: u64,
    /// Whether it has caught up once.
    pub streaming: bool,
    /// When something was last heard of it.
    pub heard: Micros,
}

impl Program {
    /// One that is being started.
    pub fn new(start: u64, primary: bool, epoch: u64, commits: Quorum) -> Program {
        Program {
            start,
            primary,
            epoch,
            ready: false,
            upstream: None,
            connection: None,
            look: 0,
            received: false,
            commits,
            before: None,
            fence: false,
            slots: false,
            senders: Vec::new(),
            pending: VecDeque::new(),
            visible: 0,
            ending: false,
            parameter: None,
        }
    }

    /// Whether clients can write.
    pub fn takes_writes(&self) -> bool {
        self.primary && self.ready && !self.ending
    }
}

impl World {
    /// The program of a pod, if it is that one.
    pub(super) fn program(&mut self, pod: PodId, start: u64) -> Option<&mut Program> {
        self.pods[pod].program.as_mut().filter(|program| program.start == start)
    }

    /// The end of the log on a pod's disk.
    pub(super) fn end_of(&self, pod: PodId) -> Option<Place> {
        self.pods[pod].volume.database().map(super::disk::Database::end)
    }

    /// How long a write takes to reach the disk.
    pub(super) fn disk_time(&mut self) -> Micros {
        self.chance.magnitude(100..6_000)
    }

    pub(super) fn is_hung(&self, pod: PodId) -> bool {
        self.now < self.pods[pod].volume.hung
    }

    fn is_full(&self, pod: PodId) -> bool {
        self.now < self.pods[pod].volume.full
    }

    pub(super) fn program_turns(&mut self, pod: PodId, start: u64, turn: Turn) {
        if self.program(pod, start).is_none() {
            return;
        }
        let needs_disk = !matches!(turn, Turn::Killed | Turn::Follow(_) | Turn::Commits(_));
        if needs_disk && self.is_hung(pod) {
            let until = self.pods[pod].volume.hung;
            self.queue.put(until + MILLI, Event::Program { pod, start, turn });
            return;
        }
        match turn {
            Turn::Ready => self.program_ready(pod, start),
            Turn::Promoted { timeline } => self.promoted(pod, start, timeline),
            Turn::Commits(commits) => {
                let until = self.now + self.chance.of(0..100_000);
                if let Some(program) = self.program(pod, start) {
                    let before = std::mem::replace(&mut program.commits, commits);
                    program.before = Some((before, until));
                }
                self.acknowledge(pod);
            }
            Turn::Follow(of) => self.follow(pod, start, of),
            Turn::Ending => self.begin_to_end(pod, start),
            Turn::Drain { until } => self.drain(pod, start, until),
            Turn::Killed => {
                self.tell(pod, |_| "its database is closed".to_owned());
                self.end_program(pod);
            }
        }
    }

    fn program_ready(&mut self, pod: PodId, start: u64) {
        if self.is_full(pod) {
            self.tell(pod, |_| "its database does not start: the disk is full".to_owned());
            self.end_program(pod);
            return;
        }
        let Some(program) = self.program(pod, start) else { return };
        program.ready = true;
        if !program.primary {
            if program.upstream.is_some() {
                self.receive_soon(pod, start, 0);
            }
            return;
        }
        let owner = self.pods[pod].volume.id;
        let Content::Database(database) = &mut self.pods[pod].volume.content else { return };
        database.flushed = database.written.offset;
        let branch = &self.wal.branches[database.written.branch];
        if branch.owner != owner {
            // Nothing but a promotion begins a timeline: this one has the number of another.
            let branch = self.wal.fork(Some(database.written), branch.timeline, owner);
            database.written.branch = branch;
        }
        self.takes_over(pod, start);
    }

    fn promoted(&mut self, pod: PodId, start: u64, timeline: u32) {
        let Some(program) = self.program(pod, start) else { return };
        if !program.ready {
            self.put(50 * MILLI, Event::Program { pod, start, turn: Turn::Promoted { timeline } });
            return;
        }
        if program.primary {
            return;
        }
        (program.primary, program.upstream) = (true, None);
        self.hang_up(pod);
        let owner = self.pods[pod].volume.id;
        let Content::Database(database) = &mut self.pods[pod].volume.content else { return };
        let timeline = timeline.max(database.newest + 1);
        let branch = self.wal.fork(Some(database.end()), timeline, owner);
        let offset = database.flushed + 120;
        database.written = Place { branch, offset };
        (database.flushed, database.newest) = (offset, timeline);
        (database.replica, database.clean) = (false, false);
        self.takes_over(pod, start);
    }

    /// From now on this one takes writes.
    fn takes_over(&mut self, pod: PodId, start: u64) {
        let Some(end) = self.end_of(pod) else { return };
        if let Some(program) = self.program(pod, start) {
            program.visible = end.offset;
        }
        self.check_taking_over(pod, end);
        self.disturb(pod);
    }

    /// A client commits: the record is in the log, and will be on the disk.
    pub(super) fn commit(&mut self, pod: PodId, client: usize, serial: u64) {
        let size = self.chance.magnitude(100..16_000);
        let full = self.is_full(pod);
        let Some(database) = self.pods[pod].volume.database_mut() else { return };
        if full {
            self.tell(pod, |_| "its database gives up: the disk is full".to_owned());
            self.end_program(pod);
            return;
        }
        database.written.offset += size;
        let offset = database.written.offset;
        let time = self.disk_time();
        let Some(program) = &mut self.pods[pod].program else { return };
        program.pending.push_back((offset, client, serial));
        let start = program.start;
        self.put(time, Event::Synced { pod, start, offset });
    }

    pub(super) fn synced(&mut self, pod: PodId, start: u64, offset: u64) {
        if self.program(pod, start).is_none() {
            return;
        }
        if self.is_hung(pod) {
            let until = self.pods[pod].volume.hung;
            self.queue.put(until + MILLI, Event::Synced { pod, start, offset });
            return;
        }
        if let Some(database) = self.pods[pod].volume.database_mut() {
            database.flushed = database.flushed.max(offset.min(database.written.offset));
        }
        self.send_log(pod);
        self.acknowledge(pod);
    }

    /// How far enough of a quorum are.
    fn satisfied(&self, pod: PodId, program: &Program, quorum: &Quorum, own: u64) -> u64 {
        if quorum.count == 0 {
            return own;
        }
        let mut places = [0u64; 16];
        let mut many = 0;
        let counts = |sender: &&Sender| {
            let fresh = self.now < sender.heard + super::replication::SILENT;
            sender.streaming && fresh && quorum.names.contains(&self.names[sender.name])
        };
        for sender in program.senders.iter().filter(counts).take(places.len() - 1) {
            places[many] = sender.flushed;
            many += 1;
        }
        if program.fence && quorum.is_fenced() && self.has_leave(pod) {
            places[many] = own;
            many += 1;
        }
        let places = &mut places[..many];
        places.sort_unstable_by(|one, other| other.cmp(one));
        places.get(quorum.count - 1).copied().unwrap_or_default()
    }

    fn has_leave(&self, pod: PodId) -> bool {
        let now = self.clock(pod);
        self.pods[pod].agent.as_ref().and_then(|agent| agent.leave).is_some_and(|until| now < until)
    }

    /// Clients are told of what is on disk here and with enough of those that commits wait for.
    pub(super) fn acknowledge(&mut self, pod: PodId) {
        let Some(program) = &self.pods[pod].program else { return };
        let Some(first) = program.pending.front().filter(|_| program.takes_writes()) else { return };
        let Some(own) = self.pods[pod].volume.database().map(|database| database.flushed) else { return };
        if own < first.0 {
            return;
        }
        let before = program.before.as_ref().filter(|(_, until)| self.now < *until);
        let before = before.map_or(0, |(before, _)| self.satisfied(pod, program, before, own));
        let end = self.satisfied(pod, program, &program.commits, own).max(before).min(own);
        while let Some(program) = &mut self.pods[pod].program
            && let Some((offset, client, serial)) = program.pending.front().copied()
            && offset <= end
        {
            program.pending.pop_front();
            program.visible = program.visible.max(offset);
            let epoch = program.epoch;
            self.check_acknowledging(pod, epoch, offset);
            self.acknowledged(client, serial, pod, offset);
        }
    }

    fn begin_to_end(&mut self, pod: PodId, start: u64) {
        let Some(program) = self.program(pod, start) else { return };
        program.ending = true;
        let primary = program.primary;
        let ready = program.ready;
        self.drop_clients(pod);
        if primary && ready {
            if let Some(database) = self.pods[pod].volume.database_mut() {
                database.written.offset += 120;
                database.flushed = database.written.offset;
            }
            self.send_log(pod);
        }
        let until = self.now + 30 * SECOND;
        self.put(5 * MILLI, Event::Program { pod, start, turn: Turn::Drain { until } });
    }

    /// It ends when those who follow have all.
    fn drain(&mut self, pod: PodId, start: u64, until: Micros) {
        let Some(end) = self.end_of(pod) else { return };
        let now = self.now;
        let Some(program) = self.program(pod, start) else { return };
        let behind = program
            .senders
            .iter()
            .any(|sender| sender.flushed < end.offset && now < sender.heard + super::replication::SILENT);
        let (primary, ready) = (program.primary, program.ready);
        if primary && behind && now < until {
            self.send_log(pod);
            self.put(30 * MILLI, Event::Program { pod, start, turn: Turn::Drain { until } });
            return;
        }
        let in_order = ready && !(primary && behind);
        self.end_program(pod);
        if let Some(database) = self.pods[pod].volume.database_mut().filter(|_| in_order) {
            database.clean = true;
        }
        self.tell(pod, |_| format!("its database has ended{}", if in_order { " in good order" } else { "" }));
    }

    /// The process is gone, and so are its connections.
    pub(super) fn end_program(&mut self, pod: PodId) {
        if self.pods[pod].program.is_none() {
            return;
        }
        self.drop_clients(pod);
        self.hang_up(pod);
        let Some(program) = self.pods[pod].program.take() else { return };
        if let Some(database) = self.pods[pod].volume.database_mut() {
            database.clean = false;
            database.replica = !program.primary;
        }
        self.program_ended(pod);
    }

    /// What PostgreSQL says of itself, if it lets anybody in.
    pub(super) fn status(&self, pod: PodId) -> Option<Status> {
        let program = self.pods[pod].program.as_ref().filter(|program| program.ready && !program.ending)?;
        let database = self.pods[pod].volume.database()?;
        let end = Some(Lsn(database.flushed));
        let replica = !program.primary;
        let timeline = self.wal.timeline(database.end());
        let fresh = |sender: &&Sender| self.now < sender.heard + super::replication::SILENT;
        let standbys = program.senders.iter().filter(fresh).map(|sender| Standby {
            name: self.names[sender.name].clone(),
            state: if sender.streaming { "streaming" } else { "catchup" }.to_owned(),
            sync: String::new(),
            sent: None,
            written: None,
            flushed: Some(Lsn(sender.flushed)),
            replayed: None,
        });
        let receiver = program.connection.as_ref().map(|_| Receiver {
            status: "streaming".to_owned(),
            host: None,
            port: None,
            slot: None,
            timeline: Some(timeline),
            latest_end: None,
            silent: None,
        });
        Some(Status {
            in_recovery: replica,
            version: self.pods[pod].version.clone(),
            system: database.system,
            timeline,
            written: end.filter(|_| !replica),
            flushed: end.filter(|_| !replica),
            received: end.filter(|_| replica && program.received),
            replayed: end.filter(|_| replica),
            replayed_age: None,
            paused: false,
            pending_restart: self.pending_restart(pod),
            lowering: false,
            standbys: standbys.collect(),
            receiving: program.connection.is_some() || program.upstream.is_some(),
            receiver,
            at_end: replica,
            slots: Vec::new(),
        })
    }
}
