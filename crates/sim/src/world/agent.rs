//! The agent's loop, in the place of `keelson_agent`'s own, which is async: facts in, and what the real machine
//! says out. The rules of that loop that leadership relies on are the same here: news that is older than what
//! was read or written is dropped; that nothing comes in counts only under the order in force; the leave of the
//! fence is set before anything else; a question is answered with what it changes.
//!
//! Left out: time that passes within one turn of the loop; certificates. Reports on pods are told only where there is
//! an operator (`cluster`).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use keelson_agent::way::Way;
use keelson_ha::{
    Answer, Holder, Identity, Input, Instance, Lease, Machine, Question, Receiving, Running, Target,
};

use super::cluster::Telling;
use super::driver::Driver;
use super::queue::{Event, Micros, PodId};
use super::{MILLI, World};

/// As in `keelson_agent::asking`.
const ASK: Micros = 150 * MILLI;
const ANSWER: Micros = 800 * MILLI;
const PROBE: Micros = 250 * MILLI;

/// An agent.
#[derive(Debug)]
pub struct Agent {
    pub machine: Machine,
    /// The newest version of the Lease that was read, written or seen.
    newest: u64,
    /// The request that is under way.
    pub request: Option<u64>,
    /// What the database is to do, and the how manieth order that is.
    pub order: u64,
    pub target: Target,
    /// Until when commits may be acknowledged that wait for no other.
    pub leave: Option<Instant>,
    /// When each of the others was last asked.
    asked: BTreeMap<String, Micros>,
    probed: Option<Micros>,
    way: Way,
    /// The tick that counts.
    wake: u64,
    pub driver: Driver,
    /// What it tells, where there is an operator.
    pub telling: Option<Box<Telling>>,
}

impl Agent {
    /// One that has just started.
    pub fn new(machine: Machine, driver: Driver) -> Agent {
        Agent {
            machine,
            newest: 0,
            request: None,
            order: 0,
            target: Target::Wait,
            leave: None,
            asked: BTreeMap::new(),
            probed: None,
            way: Way::default(),
            wake: 0,
            driver,
            telling: None,
        }
    }
}

fn version(lease: &Lease) -> u64 {
    lease.version.parse().unwrap_or_default()
}

impl World {
    /// Who a pod is.
    pub(super) fn identity(&self, pod: PodId) -> Identity {
        let (ordinal, incarnation) = (self.pods[pod].ordinal, self.pods[pod].incarnation);
        // A pod elsewhere, of the same name, is another incarnation too.
        let incarnation = format!("{pod}.{incarnation}");
        Identity {
            holder: Holder { name: self.names[ordinal].clone(), incarnation },
            ordinal: ordinal as u32,
        }
    }

    fn lives(&self, pod: PodId, life: u32) -> bool {
        self.pods[pod].life == life && self.pods[pod].agent.is_some()
    }

    /// A fact for the machine of a pod.
    pub(super) fn feed(&mut self, pod: PodId, input: Input) {
        let now = self.clock(pod);
        let Some(agent) = &mut self.pods[pod].agent else { return };
        match &input {
            Input::Written { version, .. } => {
                agent.newest = agent.newest.max(version.parse().unwrap_or_default());
            }
            Input::Read(Some(lease)) => agent.newest = agent.newest.max(version(lease)),
            _ => {}
        }
        let request = agent.machine.step(input, now);
        agent.leave = agent.machine.leave(now);
        let target = agent.machine.target(now);
        let changed = agent.target != target;
        if changed {
            agent.order += 1;
            agent.target = target;
        }
        if let Some(request) = request {
            self.send_request(pod, request);
        }
        if changed {
            self.tell(pod, |world| match &world.pods[pod].agent {
                Some(agent) => format!("is to be: {:?}", agent.target),
                None => String::new(),
            });
            self.order_changed(pod);
        }
        self.acknowledge(pod);
        self.ask_others(pod);
        self.consider_route(pod);
        self.compose_report(pod);
        self.plan_wake(pod);
    }

    fn plan_wake(&mut self, pod: PodId) {
        let (now, life) = (self.clock(pod), self.pods[pod].life);
        let serial = self.serial();
        let Some(agent) = &mut self.pods[pod].agent else { return };
        if agent.machine.may_end(now) {
            self.tell(pod, |_| "ends, as it was told to".to_owned());
            self.container_ends(pod);
            return;
        }
        agent.wake = serial;
        let (asks, misses) = (agent.machine.question(now).is_some(), agent.machine.misses().is_some());
        let wake = agent.machine.wake(now);
        let mut at = self.pods[pod].clock.when(wake);
        if asks {
            at = at.min(self.now + ASK);
        }
        if misses {
            at = at.min(self.now + PROBE);
        }
        self.queue.put(at.max(self.now + 1), Event::Wake { pod, life, serial });
    }

    pub(super) fn wake(&mut self, pod: PodId, life: u32, serial: u64) {
        if self.lives(pod, life) && self.pods[pod].agent.as_ref().is_some_and(|agent| agent.wake == serial) {
            self.feed(pod, Input::Tick);
        }
    }

    pub(super) fn answered_by_api(&mut self, pod: PodId, life: u32, serial: u64, input: Input) {
        let here = &mut self.pods[pod];
        let same = here.life == life;
        if let Some(agent) = here.agent.as_mut().filter(|agent| same && agent.request == Some(serial)) {
            agent.request = None;
            self.feed(pod, input);
        }
    }

    pub(super) fn missed_by_api(&mut self, pod: PodId, life: u32, serial: u64) {
        self.answered_by_api(pod, life, serial, Input::Failed);
    }

    pub(super) fn seen(&mut self, pod: PodId, life: u32, lease: &Rc<Lease>) {
        if !self.lives(pod, life) {
            return;
        }
        let Some(agent) = &mut self.pods[pod].agent else { return };
        if version(lease) <= agent.newest {
            return;
        }
        agent.newest = version(lease);
        if lease.holder.is_none() {
            // Whose it is to take may follow from how far the log is by now.
            self.nudge(pod);
        }
        self.feed(pod, Input::Seen(Lease::clone(lease)));
    }

    pub(super) fn stray(&mut self, pod: PodId, life: u32) {
        if self.lives(pod, life) && self.api.writers != Some(pod) {
            let now = self.clock(pod);
            if let Some(agent) = &mut self.pods[pod].agent {
                agent.way.strayed(now);
            }
            self.feed(pod, Input::Tick);
        }
    }

    pub(super) fn hear_settings(&mut self, pod: PodId, life: u32) {
        if self.lives(pod, life) {
            let heard = self.hear_of_settings(pod);
            self.feed(pod, Input::Settings(heard.unwrap_or_else(|| self.settings.clone())));
        }
    }

    /// The driver tells how the database is. That nothing comes in any more counts only for the order in force.
    pub(super) fn learn(&mut self, pod: PodId, order: u64, mut instance: Instance) {
        let Some(agent) = &self.pods[pod].agent else { return };
        if order != agent.order && instance.receiving == Receiving::Cut {
            instance.receiving = Receiving::Waiting;
        }
        self.feed(pod, Input::Instance(instance));
    }

    /// Leads writers here as soon as this instance takes writes.
    fn consider_route(&mut self, pod: PodId) {
        let (now, life) = (self.clock(pod), self.pods[pod].life);
        let Some(agent) = &mut self.pods[pod].agent else { return };
        let facts = &agent.driver.facts;
        let primary = facts.running == Running::Primary && facts.position.is_some() && agent.driver.serves;
        if primary && agent.way.is_to_be_led(&agent.machine, now) {
            self.put(0, Event::Route { pod, life });
        }
    }

    fn ordinal_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Asks whom the machine wants to be asked, each not too often, and looks whether who leads is gone.
    fn ask_others(&mut self, pod: PodId) {
        let (now, life) = (self.clock(pod), self.pods[pod].life);
        let Some(agent) = &mut self.pods[pod].agent else { return };
        if let Some((question, mut names)) = agent.machine.question(now) {
            let moment = self.now;
            names.retain(|name| agent.asked.get(name).is_none_or(|last| moment >= *last + ASK));
            agent.asked.extend(names.iter().map(|name| (name.clone(), moment)));
            let question = Rc::new(question);
            for name in names {
                self.send_question(pod, life, &name, now, question.clone());
            }
        }
        let Some(agent) = &mut self.pods[pod].agent else { return };
        if agent.probed.is_some_and(|last| self.now < last + PROBE) {
            return;
        }
        let Some(missed) = agent.machine.misses().map(ToOwned::to_owned) else { return };
        agent.probed = Some(self.now);
        if let Some(ordinal) = self.ordinal_of(&missed)
            && self.refuses(pod, self.current[ordinal])
        {
            let way = 2 * self.way();
            self.put(way, Event::Refused { pod, life, name: ordinal });
        }
    }

    fn send_question(&mut self, pod: PodId, life: u32, name: &str, sent: Instant, question: Rc<Question>) {
        let Some(to) = self.ordinal_of(name).map(|ordinal| self.current[ordinal]) else { return };
        let walled = self.now < self.pods[to].walled;
        if to != pod && !walled && self.reaches(pod, to) {
            let way = self.way();
            self.put(way, Event::Ask { pod: to, from: pod, life, sent, question });
        }
    }

    /// Whether connections of one to the agent of another are refused. A machine without power is silent.
    fn refuses(&mut self, pod: PodId, other: PodId) -> bool {
        let there = self.reaches(pod, other) && self.reaches(other, pod);
        let closed = self.pods[other].agent.is_none() && self.pods[other].paused.is_none();
        there && (closed || self.now < self.pods[other].walled)
    }

    pub(super) fn asked(
        &mut self,
        pod: PodId,
        from: PodId,
        life: u32,
        sent: Instant,
        question: &Rc<Question>,
    ) {
        if self.pods[pod].agent.is_none() {
            return;
        }
        self.feed(pod, Input::Asked(Question::clone(question)));
        let Some(agent) = &self.pods[pod].agent else { return };
        let answer = Box::new(agent.machine.answer());
        if self.reaches(pod, from) {
            let way = self.way();
            self.put(way, Event::Reply { pod: from, life, sent, answer });
        }
    }

    pub(super) fn replied(&mut self, pod: PodId, life: u32, sent: Instant, answer: Answer) {
        let late = self.clock(pod).saturating_duration_since(sent).as_micros() as u64 > ANSWER;
        if self.lives(pod, life) && !late {
            self.feed(pod, Input::Answered { sent, answer });
        }
    }

    pub(super) fn refused(&mut self, pod: PodId, life: u32, name: usize) {
        if self.lives(pod, life) {
            self.feed(pod, Input::Refused(self.names[name].clone()));
        }
    }
}
