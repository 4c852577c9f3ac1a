//! The world: pods with their agents and databases, the API server, the network and clients, in one thread and
//! in virtual time. Each file here is one model, and opens with what it leaves out.

mod agent;
mod api;
mod check;
mod clients;
mod clock;
mod cluster;
mod disk;
mod driver;
mod faults;
mod kubelet;
mod network;
mod postgres;
mod queue;
mod replication;
mod steps;

use std::time::Instant;

use keelson_ha::Settings;

pub use check::Violation;
pub use queue::Micros;

use crate::chance::Chance;
use crate::scenario::Scenario;
use crate::wal::Wal;
use agent::Agent;
use api::Api;
use check::Check;
use clients::Client;
use clock::Clock;
use cluster::Cluster;
use disk::Volume;
use network::Network;
use postgres::Program;
use queue::{Event, PodId, Queue};

const MILLI: Micros = 1_000;
const SECOND: Micros = 1_000_000;

/// How long all may take to be well again after the last fault.
const SETTLE: Micros = 240 * SECOND;
/// More than this no history has that comes to rest.
const MOST_EVENTS: u64 = 2_000_000;
/// The same, with an operator: it waits ever longer after failures.
const OPERATED_SETTLE: Micros = 900 * SECOND;
const OPERATED_QUIET: Micros = 45 * SECOND;
/// How long it is looked whether nothing is written any more after that.
const QUIET: Micros = 8 * SECOND;

/// A pod on its machine, with its volume.
#[derive(Debug)]
struct Pod {
    ordinal: usize,
    incarnation: u32,
    /// The Database that it was made for.
    database: Option<u64>,
    /// Told from one another by how often a container was started.
    life: u32,
    /// Whether the machine has power.
    powered: bool,
    /// Whether the machine is paused: which pause, since when, and whether its clock stands still.
    paused: Option<(u64, Micros, bool)>,
    /// What happens when it goes on.
    deferred: Vec<Event>,
    /// Whether another of its name has taken its place.
    replaced: bool,
    /// What is left of it is not gone before then, and another of its name not started.
    stuck: Micros,
    /// Whether it was told to end.
    ending: bool,
    /// The version of the database program in it, where that matters.
    version: String,
    clock: Clock,
    volume: Volume,
    agent: Option<Agent>,
    program: Option<Program>,
    links: api::Links,
    /// Connections to its agent are refused until then.
    walled: Micros,
    /// It hardly runs until then.
    starved: Micros,
}

/// What came of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was not as it must be, if anything.
    pub violation: Option<Violation>,
    /// How long it was, in virtual time.
    pub long: Micros,
    /// How many events it had.
    pub events: u64,
    /// Stands for all that happened, so that two runs can be compared.
    pub mark: u64,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How often somebody came to lead.
    pub terms: u64,
    /// What happened, if it was asked for.
    pub story: Vec<String>,
    /// When clients were told that what they wrote is there.
    pub told: Vec<Micros>,
    /// Who began to take writes when, and in which epoch.
    pub leaderships: Vec<(Micros, u64, usize)>,
}

/// A world.
#[derive(Debug)]
pub struct World {
    origin: Instant,
    now: Micros,
    chance: Chance,
    queue: Queue,
    scenario: Scenario,
    /// The settings as they are now; agents hear of them later.
    settings: Settings,
    names: Vec<String>,
    pods: Vec<Pod>,
    /// The pod of each ordinal, as the cluster has it.
    current: Vec<PodId>,
    wal: Wal,
    api: Api,
    network: Network,
    clients: Vec<Client>,
    check: Check,
    /// All that is there in histories with an operator.
    cluster: Option<Box<Cluster>>,
    serial: u64,
    events: u64,
    story: Option<Vec<String>>,
}

impl World {
    /// Lives through a history. With `tell`, what happens is written down.
    pub fn live(scenario: &Scenario, tell: bool) -> Outcome {
        let mut world = World::new(scenario.clone(), tell);
        world.begin();
        while world.check.violation.is_none() && !world.check.over {
            let Some((at, event)) = world.queue.next() else { break };
            world.now = at;
            world.events += 1;
            if world.events > MOST_EVENTS {
                world.violate(world.current[0], "Endless", "it never comes to rest");
            }
            world.check.mark(at);
            world.happen(event);
        }
        Outcome {
            long: world.now,
            events: world.events,
            mark: world.check.mark,
            acknowledged: world.check.acknowledged,
            terms: world.check.terms,
            told: world.check.told,
            leaderships: world.check.leaderships,
            violation: world.check.violation,
            story: world.story.unwrap_or_default(),
        }
    }

    fn new(scenario: Scenario, tell: bool) -> World {
        let origin = Instant::now();
        World {
            origin,
            now: 0,
            chance: Chance::new(scenario.noise, 2),
            queue: Queue::default(),
            settings: scenario.settings(),
            names: (0..scenario.most()).map(|ordinal| format!("orders-{ordinal}")).collect(),
            pods: Vec::new(),
            current: Vec::new(),
            wal: Wal::default(),
            api: Api::default(),
            network: Network::default(),
            clients: Vec::new(),
            check: Check::default(),
            cluster: scenario.operator.map(|retain| Box::new(Cluster::new(origin, retain))),
            serial: 0,
            events: 0,
            story: tell.then(Vec::new),
            scenario,
        }
    }

    fn begin(&mut self) {
        for ordinal in 0..self.scenario.most() {
            let pod = self.add_pod(ordinal);
            self.current.push(pod);
            if self.cluster.is_some() {
                continue;
            }
            let soon = self.chance.of(0..2 * SECOND);
            self.put(soon, Event::Boot { pod, life: 0 });
        }
        self.begin_clients();
        self.first_spec();
        for (number, fault) in self.scenario.faults.iter().enumerate() {
            self.queue.put(fault.at * MILLI, Event::Strike(number));
        }
        self.queue.put(self.scenario.calm * MILLI, Event::Calm);
    }

    fn add_pod(&mut self, ordinal: usize) -> PodId {
        let id = self.pods.len();
        let drift = self.scenario.drift.get(id).copied().unwrap_or_default();
        self.pods.push(Pod {
            ordinal,
            incarnation: 0,
            database: None,
            life: 0,
            powered: true,
            paused: None,
            deferred: Vec::new(),
            replaced: false,
            stuck: 0,
            ending: false,
            version: String::new(),
            clock: Clock::new(self.origin, drift),
            volume: Volume::new(id),
            agent: None,
            program: None,
            links: api::Links::default(),
            walled: 0,
            starved: 0,
        });
        id
    }

    /// Something is to happen after so long.
    fn put(&mut self, after: Micros, event: Event) {
        self.queue.put(self.now + after, event);
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// What the clock of a pod's machine shows.
    fn clock(&self, pod: PodId) -> Instant {
        self.pods[pod].clock.at(self.now)
    }

    /// Remembers what happened, to be shown when something goes wrong.
    fn say(&mut self, what: impl FnOnce(&World) -> String) {
        if self.story.is_some() {
            let line = format!("{:>11.6}  {}", self.now as f64 / 1e6, what(self));
            self.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }

    /// What a pod does, in its own words.
    fn tell(&mut self, pod: PodId, what: impl FnOnce(&World) -> String) {
        self.say(|world| {
            let Pod { ordinal, incarnation, .. } = &world.pods[pod];
            format!("orders-{ordinal}/{incarnation}  {}", what(world))
        });
    }

    fn happen(&mut self, event: Event) {
        if let Some(pod) = event.pod() {
            if self.pods[pod].paused.is_some() {
                self.pods[pod].deferred.push(event);
                return;
            }
            // One that has hardly any time to run comes to everything late.
            if self.now < self.pods[pod].starved && self.chance.per_mille(300) {
                let late = self.chance.of(20_000..600_000);
                self.put(late, event);
                return;
            }
        }
        match event {
            Event::Wake { pod, life, serial } => self.wake(pod, life, serial),
            Event::Answer { pod, life, serial, input } => self.answered_by_api(pod, life, serial, *input),
            Event::Deadline { pod, life, serial } => self.missed_by_api(pod, life, serial),
            Event::Seen { pod, life, lease } => self.seen(pod, life, &lease),
            Event::Relist { pod, life } => self.relist(pod, life),
            Event::Stray { pod, life } => self.stray(pod, life),
            Event::Settings { pod, life } => self.hear_settings(pod, life),
            Event::Request { pod, life, serial, request, sent, database } => {
                self.request_arrives((pod, life, serial), *request, sent, database);
            }
            Event::Route { pod, life } => self.route(pod, life),
            Event::Routed { pod, life, late } => self.route_arrives(pod, life, late),
            Event::Ask { pod, from, life, sent, question } => self.asked(pod, from, life, sent, &question),
            Event::Reply { pod, life, sent, answer } => self.replied(pod, life, sent, *answer),
            Event::Refused { pod, life, name } => self.refused(pod, life, name),
            Event::Drive { pod, life, serial } => self.drive(pod, life, serial),
            Event::Done { pod, life, serial } => self.done(pod, life, serial),
            Event::Program { pod, start, turn } => self.program_turns(pod, start, turn),
            Event::Receive { pod, start, serial } => self.receive(pod, start, serial),
            Event::Stream { pod, start, connection, upto } => self.streamed(pod, start, connection, upto),
            Event::Flushed { pod, start, connection, offset } => {
                self.standby_flushed(pod, start, connection, offset);
            }
            Event::Synced { pod, start, offset } => self.synced(pod, start, offset),
            Event::Client { client, serial } => self.client_turns(client, serial),
            Event::Proxy { client } => self.clients[client].proxy = self.api.writers,
            Event::Boot { pod, life } => self.boot(pod, life),
            Event::Expire { pod, life } => self.expire(pod, life),
            Event::Resume { pod, pause } => self.resume(pod, pause),
            Event::Strike(number) => self.strike(number),
            Event::Grow => self.set_instances(self.scenario.instances),
            Event::Calm => self.calm(),
            Event::Look => self.look_whether_well(),
            Event::Cluster(event) => self.happen_in_cluster(*event),
        }
    }
}
