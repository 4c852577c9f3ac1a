//! A small world: two to five instances with their logs, one Lease behind compare-and-swap, clients that write all
//! the time, and all kinds of trouble. Always, whatever happens:
//! - where commits wait for standbys, nothing that was acknowledged is missing where writes are taken later;
//!   and once another takes writes, nobody acknowledges anything that this one lacks, paused or not;
//! - where they do not, nobody acknowledges anything once another takes writes, but for a leader that was
//!   paused, between the moment it goes on and the end of its program, which its machine asks for at once.
//!
//! In the end, when the troubles are over: somebody leads, all follow, and the quorum is whole.
//!
//! Left out: damaged disks, a Lease that somebody removes, two incarnations of one instance at the same time
//! on one volume, clocks that run at different speeds, volumes that are lost before the database is known in
//! the Lease, and how much is lost where commits wait for nobody.

mod api;
mod program;
mod talk;

use proptest::prelude::*;

use super::*;
use program::{Program, Volume};

const TICK: Duration = Duration::from_millis(100);

/// Times in which a term has twenty ticks, and the margin four.
fn quick(nodes: usize, synchronous: bool, required: bool) -> Settings {
    let (ttl, look, margin) = (20 * TICK, 4 * TICK, 4 * TICK);
    let instances = nodes.try_into().unwrap();
    Settings {
        ttl,
        look,
        margin,
        instances,
        system: None,
        existing: false,
        synchronous,
        required,
        max_lag: 1000,
        restore: None,
    }
}

/// Numbers that look like chance, and are the same in each run.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn from(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

#[derive(Clone, Debug)]
enum Trouble {
    /// The container ends with all in it, and is started again after a while.
    Restart(usize, u64),
    /// So does its pod; the next one is another incarnation.
    Replace(usize, u64),
    /// So does its pod, and its volume with it.
    Lose(usize, u64),
    /// The API server answers nobody, or not this one.
    Silence(Option<usize>, u64),
    /// Two do not hear each other.
    Cut(usize, usize, u64),
    /// One hears nobody, and not the API server either.
    Isolate(usize, u64),
    /// The whole node stops, and goes on where it was.
    Pause(usize, u64),
    /// The database program ends.
    Crash(usize),
    /// Nothing reaches the disk.
    Hang(usize, u64),
    /// Connections to its agent are refused by something in between.
    Wall(usize, u64),
    /// Somebody asks for a handover.
    Wish(Option<usize>),
    /// It is told to end, and is started again.
    Stop(usize),
    /// There should be so many instances.
    Scale(u32),
}

fn any_trouble(nodes: usize) -> impl Strategy<Value = Trouble> {
    let who = 0..nodes;
    let instances = u32::try_from(nodes).unwrap();
    let long = 1u64..60;
    prop_oneof![
        3 => (who.clone(), 1u64..15).prop_map(|(who, long)| Trouble::Restart(who, long)),
        3 => (who.clone(), 1u64..40).prop_map(|(who, long)| Trouble::Replace(who, long)),
        1 => (who.clone(), 1u64..40).prop_map(|(who, long)| Trouble::Lose(who, long)),
        3 => (proptest::option::of(who.clone()), long.clone()).prop_map(|(who, long)| Trouble::Silence(who, long)),
        2 => (who.clone(), 1..nodes, long.clone())
            .prop_map(move |(one, step, long)| Trouble::Cut(one, (one + step) % nodes, long)),
        3 => (who.clone(), long.clone()).prop_map(|(who, long)| Trouble::Isolate(who, long)),
        3 => (who.clone(), long.clone()).prop_map(|(who, long)| Trouble::Pause(who, long)),
        2 => who.clone().prop_map(Trouble::Crash),
        2 => (who.clone(), long.clone()).prop_map(|(who, long)| Trouble::Hang(who, long)),
        1 => (who.clone(), long.clone()).prop_map(|(who, long)| Trouble::Wall(who, long)),
        2 => proptest::option::of(who.clone()).prop_map(Trouble::Wish),
        2 => who.prop_map(Trouble::Stop),
        1 => (instances - 1..instances + 1).prop_map(Trouble::Scale),
    ]
}

/// A moment up to which something lasts.
type Until = u64;

/// An instance with its node.
#[derive(Debug)]
struct Node {
    machine: Machine,
    incarnation: u32,
    /// How often its agent was started.
    boots: u64,
    down: Option<Until>,
    /// Whether it was told to end, and has not yet.
    ending: bool,
    paused: Option<Until>,
    silent: Until,
    walled: Until,
    hung: Until,
    /// The request under way, and when it is given up.
    request: Option<(u64, Until)>,
    /// The newest version of the Lease that it has read, written or seen.
    newest: u64,
    settings: Settings,
    facts: Instance,
    /// Whether its machine knows of them.
    told: bool,
    next_look: Until,
    /// When it last asked each of the others.
    asked: BTreeMap<usize, u64>,
    volume: Option<Volume>,
    program: Program,
}

#[derive(Debug)]
struct World {
    start: Instant,
    tick: u64,
    chance: Chance,
    settings: Settings,
    nodes: Vec<Node>,
    cuts: BTreeMap<(usize, usize), Until>,
    api: api::Api,
    letters: Vec<talk::Letter>,
    /// What standbys have told of how far they are, on its way.
    received: Vec<program::Received>,
    writes: u64,
    /// Where each write that was acknowledged is in the log.
    acknowledged: Vec<(usize, u64)>,
    /// The last epoch in which somebody took writes, and what they began with.
    epoch: u64,
    beginning: Vec<program::Entry>,
    lost: bool,
    said: Vec<String>,
}

impl World {
    fn new(seed: u64, settings: Settings) -> World {
        let nodes = (0..settings.instances as usize).map(|number| Node {
            machine: Machine::new(identity(number, 0), settings.clone()),
            incarnation: 0,
            boots: 0,
            down: None,
            ending: false,
            paused: None,
            silent: 0,
            walled: 0,
            hung: 0,
            request: None,
            newest: 0,
            settings: settings.clone(),
            facts: empty(),
            told: false,
            next_look: 0,
            asked: BTreeMap::new(),
            volume: None,
            program: Program::default(),
        });
        World {
            start: Instant::now(),
            tick: 0,
            chance: Chance(seed),
            nodes: nodes.collect(),
            settings,
            cuts: BTreeMap::new(),
            api: api::Api::default(),
            letters: Vec::new(),
            received: Vec::new(),
            writes: 0,
            acknowledged: Vec::new(),
            epoch: 0,
            beginning: Vec::new(),
            lost: false,
            said: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.start + TICK * u32::try_from(self.tick).unwrap()
    }

    /// Remembers what happened, to be shown when something goes wrong.
    fn say(&mut self, what: String) {
        self.said.push(format!("{}: {what}", self.tick));
    }

    fn fail(&self, what: &str) -> ! {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("{node:?}")).collect();
        let lease = &self.api.lease;
        panic!("{what} at {}\n{}\n{lease:?}\n{}", self.tick, self.said.join("\n"), nodes.join("\n"))
    }

    fn linked(&self, one: usize, other: usize) -> bool {
        let key = (one.min(other), one.max(other));
        self.cuts.get(&key).is_none_or(|until| self.tick >= *until)
    }

    /// Whether it does anything at this moment.
    fn is_awake(&self, number: usize) -> bool {
        self.nodes[number].down.is_none() && self.nodes[number].paused.is_none()
    }

    fn strike(&mut self, trouble: &Trouble) {
        self.say(format!("{trouble:?}"));
        let until = |long: &u64| self.tick + long;
        match trouble {
            Trouble::Restart(who, long) => self.take_down(*who, until(long), false),
            Trouble::Replace(who, long) => self.take_down(*who, until(long), true),
            Trouble::Lose(who, long) => {
                let known = self.api.lease.as_ref().is_some_and(|lease| lease.system.is_some());
                if known && !self.lost {
                    self.lost = true;
                    self.take_down(*who, until(long), true);
                    self.nodes[*who].volume = None;
                }
            }
            Trouble::Silence(Some(who), long) => self.nodes[*who].silent = until(long),
            Trouble::Silence(None, long) => {
                let until = until(long);
                self.nodes.iter_mut().for_each(|node| node.silent = until);
            }
            Trouble::Cut(one, other, long) => {
                let key = (*one.min(other), *one.max(other));
                self.cuts.insert(key, until(long));
            }
            Trouble::Isolate(who, long) => {
                let until = until(long);
                self.nodes[*who].silent = until;
                for other in (0..self.nodes.len()).filter(|other| other != who) {
                    self.cuts.insert((*who.min(&other), *who.max(&other)), until);
                }
            }
            Trouble::Pause(who, long) if self.is_awake(*who) => self.nodes[*who].paused = Some(until(long)),
            Trouble::Pause(..) => {}
            Trouble::Crash(who) => self.nodes[*who].end_program(false),
            Trouble::Hang(who, long) => self.nodes[*who].hung = until(long),
            Trouble::Wall(who, long) => self.nodes[*who].walled = until(long),
            Trouble::Wish(who) => self.api.wish(*who),
            Trouble::Stop(who) => self.nodes[*who].ending = true,
            Trouble::Scale(instances) => self.settings.instances = *instances,
        }
    }

    /// The agent is gone at once, and its database with it.
    fn take_down(&mut self, number: usize, until: Until, replace: bool) {
        let node = &mut self.nodes[number];
        node.end_program(false);
        node.incarnation += u32::from(replace);
        node.down = Some(until);
        node.paused = None;
        node.ending = false;
    }

    fn boot(&mut self, number: usize) {
        let settings = self.settings.clone();
        let node = &mut self.nodes[number];
        node.machine = Machine::new(identity(number, node.incarnation), settings.clone());
        node.settings = settings;
        node.boots += 1;
        (node.down, node.request, node.newest) = (None, None, 0);
        node.asked.clear();
        self.look(number);
    }

    fn heal(&mut self) {
        self.say("all troubles end".into());
        self.settings.instances = self.nodes.len().try_into().unwrap();
        self.cuts.clear();
        for node in &mut self.nodes {
            (node.silent, node.walled, node.hung) = (0, 0, 0);
            node.down = node.down.map(|_| 0);
            node.paused = node.paused.map(|_| 0);
        }
    }

    fn pass(&mut self) {
        self.tick += 1;
        self.serve();
        let nodes = self.nodes.len();
        let first = usize::try_from(self.chance.from(0..5)).unwrap();
        for number in (0..nodes).map(|number| (number + first) % nodes) {
            self.live(number);
        }
    }

    /// One moment of one node: first its database program, then its machine.
    fn live(&mut self, number: usize) {
        let unwanted = number >= self.settings.instances as usize;
        let node = &mut self.nodes[number];
        if node.down.is_some_and(|until| self.tick >= until) && !unwanted {
            self.boot(number);
        }
        let node = &mut self.nodes[number];
        let goes_on = node.paused.is_some_and(|until| self.tick >= until);
        if goes_on {
            node.paused = None;
        }
        if !self.is_awake(number) {
            return;
        }
        self.run_program(number);
        // After a pause, what the program does first nobody knows of.
        if goes_on && self.chance.one_in(2) {
            return;
        }
        self.run_machine(number, unwanted);
    }

    fn run_machine(&mut self, number: usize, unwanted: bool) {
        if (self.nodes[number].ending || unwanted) && self.chance.one_in(2) {
            self.step(number, Input::Stop);
        }
        if self.nodes[number].settings != self.settings && self.chance.one_in(5) {
            self.nodes[number].settings = self.settings.clone();
            self.step(number, Input::Settings(self.settings.clone()));
        }
        if !std::mem::replace(&mut self.nodes[number].told, true) {
            self.step(number, Input::Instance(self.nodes[number].facts.clone()));
        }
        self.hear_from_api(number);
        self.hear_from_peers(number);
        self.step(number, Input::Tick);
        self.ask_peers(number);
        if self.nodes[number].machine.may_end(self.now()) {
            let (away, replace) = (self.tick + self.chance.from(1..15), self.chance.one_in(2));
            self.say(format!("{number} has ended"));
            self.take_down(number, away, replace);
        }
    }

    fn step(&mut self, number: usize, input: Input) {
        let now = self.now();
        if let Some(request) = self.nodes[number].machine.step(input, now) {
            if self.nodes[number].request.is_some() {
                self.fail("a second request");
            }
            self.send(number, request);
        }
    }

    /// Whether all is as it should be.
    fn is_whole(&self) -> bool {
        let leads = |node: &Node| node.machine.leads(self.now()) && node.program.takes_writes();
        let Some(leader) = self.nodes.iter().position(leads) else { return false };
        let others = (0..self.nodes.len()).filter(|number| *number != leader);
        let all = Quorum::of(others.clone().map(|number| name(number.try_into().unwrap())));
        let follow = |number: usize| self.nodes[number].facts.receiving == Receiving::Streaming;
        let waits = !self.settings.synchronous || self.nodes[leader].program.commits == all;
        let elected = self.api.lease.as_ref().is_some_and(|lease| lease.quorum == all);
        others.clone().all(follow) && waits && elected && self.has_all(leader)
    }

    fn has_all(&self, number: usize) -> bool {
        let Some(volume) = &self.nodes[number].volume else { return false };
        let has = |(at, write): &(usize, u64)| volume.log.get(*at).is_some_and(|entry| entry.write == *write);
        !self.settings.synchronous || self.acknowledged.iter().all(has)
    }
}

fn identity(number: usize, incarnation: u32) -> Identity {
    let ordinal = number.try_into().unwrap();
    Identity { holder: holder(ordinal, &incarnation.to_string()), ordinal }
}

fn live_through(seed: u64, settings: Settings, troubles: &[(u64, Trouble)]) {
    let mut world = World::new(seed, settings);
    (0..60).for_each(|_| world.pass());
    for (pause, trouble) in troubles {
        (0..*pause).for_each(|_| world.pass());
        world.strike(trouble);
    }
    (0..60).for_each(|_| world.pass());
    world.heal();
    let whole = (0..600).any(|_| {
        world.pass();
        world.is_whole()
    });
    // What was on a volume that is lost may be missed for ever.
    if !whole && !world.lost {
        world.fail("not whole again");
    }
}

/// As many as fit into some seconds, or as `PROPTEST_CASES` says, if that is more.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(400), failure_persistence: None, ..usual }
}

/// How many nodes, and what happens to them when.
fn any_history() -> impl Strategy<Value = (usize, Vec<(u64, Trouble)>)> {
    let soon = || prop_oneof![2 => 0u64..8, 1 => 8u64..50];
    let nodes = prop_oneof![1 => Just(2), 4 => Just(3), 1 => Just(4), 1 => Just(5)];
    let troubles = move |nodes| proptest::collection::vec((soon(), any_trouble(nodes)), 0..14);
    nodes.prop_flat_map(move |nodes| (Just(nodes), troubles(nodes)))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_that_was_acknowledged_is_lost(
        seed in any::<u64>(),
        required in any::<bool>(),
        (nodes, troubles) in any_history(),
    ) {
        live_through(seed, quick(nodes, true, required), &troubles);
    }

    #[test]
    fn two_do_not_acknowledge_at_the_same_time(seed in any::<u64>(), (nodes, troubles) in any_history()) {
        live_through(seed, quick(nodes, false, false), &troubles);
    }
}

/// A vote is a promise to receive nothing more from who led. One that voted and was started again does not
/// know of it, and the one that was promised may take its time.
#[test]
fn one_that_is_started_again_after_its_vote_does_not_break_its_promise() {
    for (seed, early) in (0..25).flat_map(|seed| (2..6).map(move |early| (seed, early))) {
        let troubles = [
            (40, Trouble::Silence(Some(0), 60)),
            (0, Trouble::Wall(0, 8)),
            (0, Trouble::Cut(0, 1, 60)),
            (0, Trouble::Cut(0, 2, 8)),
            (early, Trouble::Silence(Some(1), 30)),
            (7 - early, Trouble::Restart(2, 1)),
        ];
        live_through(seed, quick(3, true, false), &troubles);
    }
}
