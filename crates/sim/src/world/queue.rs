//! What happens next: virtual time jumps from one event to the next. Of two at the same moment, the one that
//! was thought of first comes first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Instant;

use keelson_ha::{Answer, Input, Lease, Question, Quorum, Request};

use super::cluster::ClusterEvent;
use crate::wal::Place;

/// Virtual time, in millionths of a second since the beginning.
pub type Micros = u64;

/// Which pod: its place in the world's list.
pub type PodId = usize;

/// Something that happens. What belongs to a process that has ended meanwhile is told by its `life` or `start`.
#[derive(Debug, Clone)]
pub enum Event {
    /// It is time for a tick of the agent.
    Wake { pod: PodId, life: u32, serial: u64 },
    /// The API server answers.
    Answer { pod: PodId, life: u32, serial: u64, input: Box<Input> },
    /// The API server has not answered in time.
    Deadline { pod: PodId, life: u32, serial: u64 },
    /// A watch tells of the Lease.
    Seen { pod: PodId, life: u32, lease: Rc<Lease> },
    /// A watch begins anew, and tells what is there now.
    Relist { pod: PodId, life: u32 },
    /// A watch tells that writers are led elsewhere.
    Stray { pod: PodId, life: u32 },
    /// The settings have changed.
    Settings { pod: PodId, life: u32 },
    /// A request arrives at the API server, of an agent of this Database.
    Request {
        pod: PodId,
        life: u32,
        serial: u64,
        request: Box<Request>,
        sent: Instant,
        database: Option<u64>,
    },
    /// An agent leads writers to itself, if it still may.
    Route { pod: PodId, life: u32 },
    /// That arrives at the API server.
    Routed { pod: PodId, life: u32, late: Micros },
    /// A question of another agent arrives.
    Ask { pod: PodId, from: PodId, life: u32, sent: Instant, question: Rc<Question> },
    /// An answer to it arrives.
    Reply { pod: PodId, life: u32, sent: Instant, answer: Box<Answer> },
    /// A connection was refused.
    Refused { pod: PodId, life: u32, name: usize },
    /// The driver looks what to do next.
    Drive { pod: PodId, life: u32, serial: u64 },
    /// The driver has done a step, or has looked.
    Done { pod: PodId, life: u32, serial: u64 },
    /// The database program comes to something.
    Program { pod: PodId, start: u64, turn: Turn },
    /// A replica looks after its connection.
    Receive { pod: PodId, start: u64, serial: u64 },
    /// Log arrives at a replica, and is on its disk.
    Stream { pod: PodId, start: u64, connection: u64, upto: Place },
    /// A replica says how far its log is on disk.
    Flushed { pod: PodId, start: u64, connection: u64, offset: u64 },
    /// A write of the primary reaches its disk.
    Synced { pod: PodId, start: u64, offset: u64 },
    /// A client does something.
    Client { client: usize, serial: u64 },
    /// A client's node hears where writers are led.
    Proxy { client: usize },
    /// A container is started.
    Boot { pod: PodId, life: u32 },
    /// A pod that was told to end has had its time.
    Expire { pod: PodId, life: u32 },
    /// A machine goes on after a pause.
    Resume { pod: PodId, pause: u64 },
    /// A fault strikes.
    Strike(usize),
    /// There are as many instances again as there were.
    Grow,
    /// All faults end.
    Calm,
    /// It is looked whether all is well.
    Look,
    /// Something around the operator.
    Cluster(Box<ClusterEvent>),
}

/// What a database program comes to.
#[derive(Debug, Clone)]
pub enum Turn {
    /// It has started: its log is replayed.
    Ready,
    /// It is promoted, to a timeline of this number or a greater one.
    Promoted { timeline: u32 },
    /// It waits for others from now on.
    Commits(Quorum),
    /// It follows another from now on, or nobody.
    Follow(Option<keelson_agent::steps::Leader>),
    /// It begins to end in good order.
    Ending,
    /// It looks whether those who follow have all.
    Drain { until: Micros },
    /// It is killed.
    Killed,
}

impl Event {
    /// The pod that it happens in.
    pub fn pod(&self) -> Option<PodId> {
        match self {
            Event::Wake { pod, .. }
            | Event::Answer { pod, .. }
            | Event::Deadline { pod, .. }
            | Event::Seen { pod, .. }
            | Event::Relist { pod, .. }
            | Event::Stray { pod, .. }
            | Event::Settings { pod, .. }
            | Event::Route { pod, .. }
            | Event::Ask { pod, .. }
            | Event::Reply { pod, .. }
            | Event::Refused { pod, .. }
            | Event::Drive { pod, .. }
            | Event::Done { pod, .. }
            | Event::Program { pod, .. }
            | Event::Receive { pod, .. }
            | Event::Stream { pod, .. }
            | Event::Flushed { pod, .. }
            | Event::Synced { pod, .. } => Some(*pod),
            Event::Cluster(event) => event.pod(),
            // Those happen in the API server, at the kubelet and elsewhere.
            Event::Request { .. }
            | Event::Routed { .. }
            | Event::Client { .. }
            | Event::Proxy { .. }
            | Event::Boot { .. }
            | Event::Expire { .. }
            | Event::Resume { .. }
            | Event::Strike(_)
            | Event::Grow
            | Event::Calm
            | Event::Look => None,
        }
    }
}

#[derive(Debug)]
struct Scheduled {
    at: Micros,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Scheduled>,
    order: u64,
}

impl Queue {
    /// Something is to happen then.
    pub fn put(&mut self, at: Micros, event: Event) {
        self.order += 1;
        self.heap.push(Scheduled { at, order: self.order, event });
    }

    /// What happens next, and when.
    pub fn next(&mut self) -> Option<(Micros, Event)> {
        self.heap.pop().map(|next| (next.at, next.event))
    }
}
