use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings { ttl: 5 * SECOND, look: SECOND, margin: SECOND, instances: 3, system: None }
}

fn holder(ordinal: u32, incarnation: &str) -> Holder {
    Holder { name: format!("orders-{ordinal}"), incarnation: incarnation.into() }
}

fn machine(ordinal: u32) -> Machine {
    Machine::new(Identity { holder: holder(ordinal, "a"), ordinal }, settings())
}

fn instance(data: Data, running: Running) -> Instance {
    Instance { data, running, standbys: Vec::new() }
}

fn empty() -> Instance {
    instance(Data::None, Running::Stopped)
}

fn filled(running: Running) -> Instance {
    instance(Data::Present { system: "7".into() }, running)
}

fn standby(ordinal: u32, behind: u64) -> Standby {
    Standby { name: format!("orders-{ordinal}"), streaming: true, behind }
}

fn lease(version: &str, holder: Option<Holder>, epoch: u64) -> Lease {
    let system = Some("7".into());
    Lease { version: version.into(), holder, ttl: 5 * SECOND, epoch, system, successor: None }
}

/// The first instance, which leads since `start` and has made the database.
fn leader(start: Instant) -> Machine {
    let mut me = machine(0);
    assert_eq!(me.step(Input::Instance(empty()), start), Some(Request::Read));
    let taken = me.step(Input::Read(None), start);
    let draft = Draft { holder: Some(holder(0, "a")), epoch: 1, system: None, successor: None };
    assert_eq!(taken, Some(Request::Write { draft, replaces: None }));
    assert_eq!(me.step(Input::Written { version: "1".into(), sent: start }, start), None);
    assert_eq!(me.target(start), Target::Create);
    me.step(Input::Instance(filled(Running::Primary)), start);
    me
}

fn follower(start: Instant) -> Machine {
    let mut me = machine(1);
    me.step(Input::Instance(empty()), start);
    me.step(Input::Read(Some(lease("1", Some(holder(0, "a")), 1))), start);
    me
}

#[test]
fn the_first_instance_makes_the_database_and_the_others_copy_it() {
    let start = Instant::now();
    let me = leader(start);
    assert_eq!(me.target(start), Target::Primary { epoch: 1 });
    assert!(me.leads(start + 3 * SECOND) && !me.leads(start + 4 * SECOND), "the margin is kept");

    let other = follower(start);
    let replica = Target::Replica { of: "orders-0".into(), epoch: 1, system: "7".into() };
    assert_eq!(other.target(start), replica);
}

#[test]
fn no_other_instance_makes_a_database_nor_one_where_there_has_been_one() {
    let start = Instant::now();
    let mut second = machine(1);
    second.step(Input::Instance(empty()), start);
    assert_eq!(second.step(Input::Read(None), start), None, "it waits for the first");
    assert_eq!(second.target(start), Target::Wait);

    let mut known = settings();
    known.system = Some("7".into());
    let mut first = Machine::new(Identity { holder: holder(0, "a"), ordinal: 0 }, known);
    first.step(Input::Instance(empty()), start);
    assert_eq!(first.step(Input::Read(None), start), None, "a database is known, and the volume is empty");

    let mut first = machine(0);
    first.step(Input::Instance(empty()), start);
    assert_eq!(first.step(Input::Read(Some(lease("9", None, 4))), start), None, "the Lease knows of one");
}

#[test]
fn a_leader_renews_and_writes_down_which_database_it_is() {
    let start = Instant::now();
    let mut me = leader(start);
    assert_eq!(me.step(Input::Tick, start + SECOND / 2), None, "not yet");
    let Some(Request::Write { draft, replaces }) = me.step(Input::Tick, start + SECOND) else { panic!() };
    assert_eq!((draft.system.as_deref(), replaces.as_deref()), (Some("7"), Some("1")));
    me.step(Input::Written { version: "2".into(), sent: start + SECOND }, start + 2 * SECOND);
    assert!(me.leads(start + SECOND + 3 * SECOND));
}

#[test]
fn a_leader_that_can_not_renew_closes_in_time_and_one_alone_does_not() {
    let start = Instant::now();
    let mut me = leader(start);
    for second in 1..4 {
        me.step(Input::Tick, start + second * SECOND);
        me.step(Input::Failed, start + second * SECOND);
        assert_eq!(me.target(start + second * SECOND), Target::Primary { epoch: 1 });
    }
    assert_eq!(me.target(start + 4 * SECOND), Target::Close);

    let mut alone = settings();
    alone.instances = 1;
    me.step(Input::Settings(alone), start + 4 * SECOND);
    assert_eq!(me.target(start + 400 * SECOND), Target::Primary { epoch: 1 });
}

#[test]
fn a_leader_that_finds_another_in_its_place_closes_at_once() {
    let start = Instant::now();
    let mut me = leader(start);
    me.step(Input::Tick, start + SECOND);
    assert_eq!(me.step(Input::Conflict, start + SECOND), Some(Request::Read));
    me.step(Input::Read(Some(lease("5", Some(holder(1, "b")), 2))), start + SECOND);
    assert_eq!(me.target(start + SECOND), Target::Close);
    me.step(Input::Instance(filled(Running::Stopped)), start + SECOND);
    let replica = Target::Replica { of: "orders-1".into(), epoch: 2, system: "7".into() };
    assert_eq!(me.target(start + SECOND), replica);
}

#[test]
fn a_handover_that_was_asked_for_ends_the_database_first_and_then_names_the_successor() {
    let start = Instant::now();
    let mut me = leader(start);
    let mut with_standbys = filled(Running::Primary);
    with_standbys.standbys = vec![standby(1, 100), standby(2, 0)];
    me.step(Input::Instance(with_standbys), start);
    me.step(Input::Tick, start + SECOND);
    me.step(Input::Conflict, start + SECOND);
    let mut asked = lease("5", Some(holder(0, "a")), 1);
    asked.successor = Some(Successor::Any);
    me.step(Input::Read(Some(asked)), start + SECOND);
    assert_eq!(me.target(start + SECOND), Target::Finish);
    assert!(!me.leads(start + SECOND));

    let released = me.step(Input::Instance(filled(Running::Stopped)), start + SECOND);
    let Some(Request::Write { draft, replaces }) = released else { panic!("{released:?}") };
    assert_eq!((draft.holder, draft.epoch, replaces.as_deref()), (None, 1, Some("5")));
    assert_eq!(draft.successor, Some(Successor::Named("orders-2".into())), "who has most");
    me.step(Input::Written { version: "6".into(), sent: start + SECOND }, start + SECOND);

    let mut free = lease("6", None, 1);
    free.successor = Some(Successor::Named("orders-2".into()));
    let mut passed_over = follower(start);
    assert_eq!(passed_over.step(Input::Instance(filled(Running::Replica)), start), None);
    assert_eq!(passed_over.step(Input::Read(Some(free.clone())), start + SECOND / 2), None);

    let mut successor = machine(2);
    successor.step(Input::Instance(filled(Running::Replica)), start);
    let taken = successor.step(Input::Read(Some(free.clone())), start + SECOND);
    assert!(matches!(taken, Some(Request::Write { draft: Draft { epoch: 2, .. }, .. })), "{taken:?}");

    // The successor never comes.
    me.step(Input::Tick, start + 2 * SECOND);
    assert_eq!(me.step(Input::Read(Some(free)), start + 2 * SECOND), None);
    let back = me.step(Input::Tick, start + 7 * SECOND);
    assert!(matches!(back, Some(Request::Write { draft: Draft { holder: Some(_), epoch: 2, .. }, .. })));
}

#[test]
fn who_is_told_of_renewals_does_not_ask_and_takes_what_is_freed_for_it_at_once() {
    let start = Instant::now();
    let mut me = follower(start);
    me.step(Input::Instance(filled(Running::Replica)), start);
    for second in 1..20 {
        let seen = lease(&format!("{second}0"), Some(holder(0, "a")), 1);
        assert_eq!(me.step(Input::Seen(seen), start + second * SECOND), None);
        assert_eq!(me.step(Input::Tick, start + second * SECOND + SECOND / 2), None);
    }
    let mut free = lease("999", None, 1);
    free.successor = Some(Successor::Named("orders-1".into()));
    let taken = me.step(Input::Seen(free), start + 20 * SECOND);
    assert!(matches!(taken, Some(Request::Write { draft: Draft { epoch: 2, .. }, .. })), "{taken:?}");
}

#[test]
fn a_handover_to_one_that_does_not_stream_is_refused_and_the_wish_is_taken_back() {
    let start = Instant::now();
    let mut me = leader(start);
    me.step(Input::Tick, start + SECOND);
    me.step(Input::Conflict, start + SECOND);
    let mut asked = lease("5", Some(holder(0, "a")), 1);
    asked.successor = Some(Successor::Named("orders-2".into()));
    me.step(Input::Read(Some(asked)), start + SECOND);
    assert_eq!(me.target(start + SECOND), Target::Primary { epoch: 1 });
    let renewed = me.step(Input::Tick, start + 3 * SECOND);
    let Some(Request::Write { draft, .. }) = renewed else { panic!("{renewed:?}") };
    assert_eq!(draft.successor, None);
}

#[test]
fn a_leader_that_is_told_to_stop_hands_over_and_ends() {
    let start = Instant::now();
    let mut me = leader(start);
    let mut with_standby = filled(Running::Primary);
    with_standby.standbys = vec![standby(1, 0)];
    me.step(Input::Instance(with_standby), start);
    me.step(Input::Stop, start);
    assert_eq!(me.target(start), Target::Finish);
    assert!(!me.may_end(start));
    let released = me.step(Input::Instance(filled(Running::Stopped)), start);
    assert!(matches!(
        released,
        Some(Request::Write { draft: Draft { holder: None, successor: Some(Successor::Named(_)), .. }, .. })
    ));
    assert!(!me.may_end(start), "the Lease is still its own");
    me.step(Input::Written { version: "2".into(), sent: start }, start);
    assert!(me.may_end(start));
    assert_ne!(me.target(start), Target::Wait, "nothing is started again");
}

#[test]
fn one_that_can_not_let_the_lease_go_ends_when_its_term_is_over() {
    let start = Instant::now();
    let mut me = leader(start);
    me.step(Input::Stop, start);
    me.step(Input::Instance(filled(Running::Stopped)), start);
    me.step(Input::Failed, start + SECOND);
    assert!(!me.may_end(start + 3 * SECOND));
    assert!(me.may_end(start + 4 * SECOND));
}

#[test]
fn a_container_that_was_restarted_leads_again_at_once_and_a_pod_of_its_name_waits() {
    let start = Instant::now();
    for (incarnation, waits) in [("a", false), ("b", true)] {
        let me = Identity { holder: holder(0, incarnation), ordinal: 0 };
        let mut me = Machine::new(me, settings());
        me.step(Input::Instance(filled(Running::Stopped)), start);
        let seen = me.step(Input::Read(Some(lease("3", Some(holder(0, "a")), 4))), start);
        assert_eq!(seen.is_none(), waits);
        if waits {
            assert_eq!(me.step(Input::Tick, start + 4 * SECOND), Some(Request::Read));
            me.step(Input::Read(Some(lease("3", Some(holder(0, "a")), 4))), start + 4 * SECOND);
            let taken = me.step(Input::Tick, start + 5 * SECOND);
            assert!(matches!(taken, Some(Request::Write { draft: Draft { epoch: 5, .. }, .. })), "{taken:?}");
        }
    }
}

#[test]
fn another_database_on_the_volume_does_not_lead() {
    let start = Instant::now();
    let mut me = machine(0);
    me.step(Input::Instance(instance(Data::Present { system: "8".into() }, Running::Stopped)), start);
    assert_eq!(me.step(Input::Read(Some(lease("3", None, 4))), start), None);
    assert_eq!(me.target(start), Target::Wait);
}

#[test]
fn an_answer_that_comes_after_the_term_is_over_makes_no_leader() {
    let start = Instant::now();
    let mut me = machine(0);
    me.step(Input::Instance(filled(Running::Stopped)), start);
    me.step(Input::Read(Some(lease("3", None, 4))), start);
    me.step(Input::Written { version: "4".into(), sent: start }, start + 4 * SECOND);
    assert!(!me.leads(start + 4 * SECOND));
    assert_eq!(me.target(start + 4 * SECOND), Target::Wait);
}

/// A small world: instances, one Lease behind compare-and-swap, answers that are late or lost, restarts,
/// and wishes for a handover.
mod world {
    use super::*;

    #[derive(Clone, Debug)]
    pub enum Trouble {
        Restart(usize),
        Replace(usize),
        Wish(usize),
        Silence(u8),
        Stop(usize),
    }

    struct Node {
        machine: Machine,
        instance: Instance,
        incarnation: u32,
        /// A request under way: what, and when it reaches the server and comes back.
        request: Option<(Request, u64, u64, Option<Input>)>,
        /// The target that its program is working towards, and since when.
        work: (Target, u64),
    }

    pub struct World {
        start: Instant,
        tick: u64,
        nodes: Vec<Node>,
        lease: Option<Lease>,
        version: u64,
        silent_until: u64,
        /// Writes whose senders are gone, with the time when they arrive.
        orphans: Vec<(Request, u64)>,
        pub leaderships: u64,
    }

    const STEP: Duration = Duration::from_millis(100);

    impl World {
        pub fn new() -> World {
            let nodes = (0..3).map(|ordinal| Node {
                machine: machine(ordinal),
                instance: empty(),
                incarnation: 0,
                request: None,
                work: (Target::Wait, 0),
            });
            World {
                start: Instant::now(),
                tick: 0,
                nodes: nodes.collect(),
                lease: None,
                version: 0,
                silent_until: 0,
                orphans: Vec::new(),
                leaderships: 0,
            }
        }

        fn now(&self) -> Instant {
            self.start + STEP * u32::try_from(self.tick).unwrap()
        }

        pub fn strike(&mut self, trouble: &Trouble) {
            match trouble {
                Trouble::Restart(number) => self.restart(*number, false),
                Trouble::Replace(number) => self.restart(*number, true),
                Trouble::Silence(length) => self.silent_until = self.tick + u64::from(*length),
                Trouble::Wish(number) => {
                    if let Some(lease) = &mut self.lease
                        && lease.holder.is_some()
                    {
                        self.version += 1;
                        lease.version = self.version.to_string();
                        lease.successor = Some(Successor::Named(format!("orders-{number}")));
                    }
                }
                Trouble::Stop(number) => {
                    let now = self.now();
                    if let Some(request) = self.nodes[*number].machine.step(Input::Stop, now) {
                        self.send(*number, request);
                    }
                }
            }
        }

        /// The container ends with all in it, and starts again; or its pod is another one.
        fn restart(&mut self, number: usize, replace: bool) {
            let node = &mut self.nodes[number];
            node.incarnation += u32::from(replace);
            let me = Identity {
                holder: holder(number.try_into().unwrap(), &node.incarnation.to_string()),
                ordinal: number.try_into().unwrap(),
            };
            node.machine = Machine::new(me, settings());
            node.instance.running = Running::Stopped;
            node.instance.standbys.clear();
            node.work = (Target::Wait, self.tick);
            // What it had sent may still arrive.
            let sent = node.request.take().filter(|(_, _, _, answer)| answer.is_none());
            self.orphans.extend(sent.map(|(request, arrives, _, _)| (request, arrives)));
        }

        fn send(&mut self, number: usize, request: Request) {
            let delay = 1 + (self.tick * 7 + number as u64) % 5;
            self.nodes[number].request = Some((request, self.tick + delay, self.tick + 2 * delay, None));
        }

        pub fn pass(&mut self) {
            self.tick += 1;
            let due: Vec<_> = self.orphans.extract_if(.., |(_, arrives)| *arrives <= self.tick).collect();
            due.into_iter().for_each(|(request, _)| drop(self.carry_out(&request, self.start)));
            for number in 0..self.nodes.len() {
                self.serve(number);
                self.run_program(number);
                let now = self.now();
                let node = &mut self.nodes[number];
                let mut inputs = vec![Input::Instance(node.instance.clone())];
                if let Some((_, _, back, answer)) = &node.request
                    && *back <= self.tick
                {
                    inputs.push(answer.clone().unwrap_or(Input::Failed));
                    node.request = None;
                }
                inputs.push(Input::Tick);
                for input in inputs {
                    let asked = self.nodes[number].machine.step(input, now);
                    if let Some(request) = asked {
                        assert!(self.nodes[number].request.is_none(), "one request at a time");
                        self.send(number, request);
                    }
                }
            }
            self.check();
        }

        fn serve(&mut self, number: usize) {
            let Some((request, arrives, back, None)) = self.nodes[number].request.clone() else { return };
            if arrives != self.tick {
                return;
            }
            let silent = self.tick < self.silent_until;
            // Lost on the way there; or carried out, with its answer lost.
            if silent && self.tick.is_multiple_of(2) {
                return;
            }
            let sent = self.now() - STEP * u32::try_from(back - arrives).unwrap();
            let answer = self.carry_out(&request, sent);
            if let Some((_, _, _, given)) = &mut self.nodes[number].request {
                *given = Some(if silent { Input::Failed } else { answer });
            }
        }

        fn carry_out(&mut self, request: &Request, sent: Instant) -> Input {
            let Request::Write { draft, replaces } = request else { return Input::Read(self.lease.clone()) };
            if self.lease.as_ref().map(|lease| &lease.version) != replaces.as_ref() {
                return Input::Conflict;
            }
            self.version += 1;
            self.lease = Some(Lease {
                version: self.version.to_string(),
                holder: draft.holder.clone(),
                ttl: settings().ttl,
                epoch: draft.epoch,
                system: draft.system.clone(),
                successor: draft.successor.clone(),
            });
            Input::Written { version: self.version.to_string(), sent }
        }

        /// A program that takes some time for what it is told, less for ending than the margin.
        fn run_program(&mut self, number: usize) {
            let now = self.now();
            let leader_runs = self.nodes.iter().any(|node| node.instance.running == Running::Primary);
            let names: Vec<Standby> = (0..3u32)
                .filter(|other| *other as usize != number)
                .filter(|other| self.nodes[*other as usize].instance.running == Running::Replica)
                .map(|other| standby(other, 0))
                .collect();
            let node = &mut self.nodes[number];
            let target = node.machine.target(now);
            if node.work.0 != target {
                node.work = (target.clone(), self.tick);
            }
            let took = self.tick - node.work.1;
            let data = &mut node.instance;
            match target {
                Target::Create if took >= 10 => {
                    assert!(!leader_runs, "a second database");
                    *data = filled(Running::Primary);
                    self.leaderships += 1;
                }
                Target::Primary { .. } if took >= 3 && data.running != Running::Primary => {
                    data.running = Running::Primary;
                    self.leaderships += 1;
                }
                Target::Replica { .. } if took >= 8 && data.running != Running::Primary => {
                    *data = filled(Running::Replica);
                }
                Target::Finish if took >= 4 => data.running = Running::Stopped,
                Target::Close if took >= 2 => data.running = Running::Stopped,
                _ => {}
            }
            data.standbys = if data.running == Running::Primary { names } else { Vec::new() };
        }

        fn check(&self) {
            let writers: Vec<usize> = (0..self.nodes.len())
                .filter(|number| self.nodes[*number].instance.running == Running::Primary)
                .collect();
            assert!(writers.len() <= 1, "two take writes: {writers:?} at {}", self.tick);
        }

        pub fn somebody_leads(&self) -> bool {
            self.nodes
                .iter()
                .any(|node| node.instance.running == Running::Primary && node.machine.leads(self.now()))
        }
    }
}

fn any_trouble() -> impl Strategy<Value = world::Trouble> {
    use world::Trouble;
    prop_oneof![
        (0usize..3).prop_map(Trouble::Restart),
        (0usize..3).prop_map(Trouble::Replace),
        (0usize..3).prop_map(Trouble::Wish),
        (1u8..80).prop_map(Trouble::Silence),
        (0usize..3).prop_map(Trouble::Stop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn two_never_take_writes_and_somebody_does_in_the_end(
        troubles in proptest::collection::vec((1u64..60, any_trouble()), 0..12)
    ) {
        let mut world = world::World::new();
        for (pause, trouble) in &troubles {
            (0..*pause).for_each(|_| world.pass());
            world.strike(trouble);
        }
        // All come back: one that was told to stop is started again, as Kubernetes would.
        for number in 0..3 {
            world.strike(&world::Trouble::Restart(number));
        }
        let settled = (0..600).any(|_| {
            world.pass();
            world.somebody_leads()
        });
        prop_assert!(settled, "nobody leads a minute after the last trouble");
        prop_assert!(world.leaderships >= 1);
    }
}
