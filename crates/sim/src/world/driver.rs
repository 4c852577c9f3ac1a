//! What carries orders out, in the place of `keelson_agent`'s driver, which is async: one step at a time and a
//! look at the database in between, by the real `steps::next`, `way_back` and `facts::observe`. An order to
//! close is carried out at once, whatever else is under way.
//!
//! Left out: roles and passwords; settings, but for one parameter that takes a restart.

use std::time::Instant;

use keelson_agent::facts;
use keelson_agent::silence::Silence;
use keelson_agent::steps::{self, Acting, Remedy, Step};
use keelson_api::instance::Names;
use keelson_engine::Data;
use keelson_engine::postgres::Status;
use keelson_ha::{Instance, Running, Target};

use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};

/// As in `keelson_agent::driver`.
const LOOK: Micros = 500 * MILLI;
const QUICK: Micros = 50 * MILLI;
const PATIENCE: Micros = 2 * SECOND;
pub const UNBEGUN: Micros = 15 * SECOND;

/// A driver.
#[derive(Debug)]
pub struct Driver {
    /// What leadership was told last.
    pub facts: Instance,
    /// Whether the database said that it takes writes.
    pub serves: bool,
    /// The order that is being carried out.
    pub order: u64,
    pub data: Data,
    pub acting: Acting,
    pub led: Option<u64>,
    pub remedy: Remedy,
    /// Whether it was started once more, since nothing came, and nothing has come since.
    pub restarted: bool,
    pub rewinds: u32,
    /// Since when steps fail.
    pub failing: Option<Micros>,
    pub silence: Silence,
    pub busy: Option<Busy>,
    /// The turn that counts.
    timer: u64,
}

/// What a driver does.
#[derive(Debug)]
pub struct Busy {
    pub serial: u64,
    pub since: Micros,
    /// Whether an order to close breaks it off.
    pub leads: bool,
    pub doing: Doing,
}

/// What a driver does.
#[derive(Debug)]
pub enum Doing {
    /// A step; whether it has begun, and in which part of it it is.
    Step { step: Step, begun: bool, part: u8 },
    /// A look: what was seen, whether a write reached the disk, and whether another step may follow at once.
    Look { status: Option<Box<Status>>, alive: bool, again: bool },
}

impl Driver {
    /// One that has just started.
    pub fn new(data: Data, led: Option<u64>, now: Instant) -> Driver {
        Driver {
            facts: facts::stopped(&data, led),
            serves: false,
            order: 0,
            data,
            acting: Acting::Not,
            led,
            remedy: Remedy::None,
            restarted: false,
            rewinds: 0,
            failing: None,
            silence: Silence::broken(now),
            busy: None,
            timer: 0,
        }
    }

    /// The step that is being taken.
    pub fn step(&self) -> Option<&Step> {
        match &self.busy.as_ref()?.doing {
            Doing::Step { step, .. } => Some(step),
            Doing::Look { .. } => None,
        }
    }
}

impl World {
    pub(super) fn driver(&mut self, pod: PodId) -> Option<&mut Driver> {
        self.pods[pod].agent.as_mut().map(|agent| &mut agent.driver)
    }

    /// The driver, if it does nothing, goes on now.
    pub(super) fn nudge(&mut self, pod: PodId) {
        self.drive_after(pod, 0);
    }

    fn drive_after(&mut self, pod: PodId, after: Micros) {
        let (serial, life) = (self.serial(), self.pods[pod].life);
        if let Some(driver) = self.driver(pod).filter(|driver| driver.busy.is_none()) {
            driver.timer = serial;
            self.put(after, Event::Drive { pod, life, serial });
        }
    }

    /// The agent has another order for it.
    pub(super) fn order_changed(&mut self, pod: PodId) {
        let Some(agent) = &mut self.pods[pod].agent else { return };
        let close = agent.target == Target::Close;
        let driver = &mut agent.driver;
        let Some(busy) = &driver.busy else {
            self.nudge(pod);
            return;
        };
        let copies = matches!(driver.step(), Some(Step::Clone(_)));
        let closes = matches!(driver.step(), Some(Step::Close));
        if close && busy.leads && !closes {
            self.break_off(pod);
            self.begin_doing(pod, Doing::Step { step: Step::Close, begun: false, part: 0 }, false);
        } else if copies {
            self.break_off(pod);
            self.nudge(pod);
        }
    }

    /// The process of the database is gone.
    pub(super) fn program_ended(&mut self, pod: PodId) {
        self.nudge(pod);
    }

    pub(super) fn drive(&mut self, pod: PodId, life: u32, serial: u64) {
        if self.pods[pod].life != life {
            return;
        }
        let here = &mut self.pods[pod];
        let Some(agent) = &mut here.agent else { return };
        let driver = &mut agent.driver;
        if driver.timer != serial || driver.busy.is_some() {
            return;
        }
        driver.order = agent.order;
        if here.program.is_none() && driver.acting != Acting::Not {
            (driver.acting, driver.data) = (Acting::Not, here.volume.data(&self.wal));
        }
        let leads = matches!(agent.target, Target::Primary { .. } | Target::Create)
            || matches!(driver.acting, Acting::Primary(_));
        let volume = steps::Volume { led: driver.led.is_some(), damaged: here.volume.damaged, whole: None };
        let step = steps::next(&agent.target, &driver.data, &driver.acting, volume, driver.remedy);
        match step {
            Step::Nothing | Step::Trouble(_) => self.begin_look(pod, false),
            step => self.begin_doing(pod, Doing::Step { step, begun: false, part: 0 }, leads),
        }
    }

    pub(super) fn begin_doing(&mut self, pod: PodId, doing: Doing, leads: bool) {
        let (serial, since) = (self.serial(), self.now);
        if let Some(driver) = self.driver(pod) {
            driver.busy = Some(Busy { serial, since, leads, doing });
            self.work(pod);
        }
    }

    /// It is done after so long.
    pub(super) fn done_after(&mut self, pod: PodId, after: Micros) {
        let life = self.pods[pod].life;
        if let Some(serial) = self.driver(pod).and_then(|driver| driver.busy.as_ref()).map(|busy| busy.serial)
        {
            self.put(after, Event::Done { pod, life, serial });
        }
    }

    pub(super) fn done(&mut self, pod: PodId, life: u32, serial: u64) {
        let current = self.driver(pod).and_then(|driver| driver.busy.as_ref()).map(|busy| busy.serial);
        if self.pods[pod].life == life && current == Some(serial) {
            self.work(pod);
        }
    }

    /// Looks at the database.
    pub(super) fn begin_look(&mut self, pod: PodId, again: bool) {
        let acts = self.driver(pod).is_some_and(|driver| driver.acting != Acting::Not);
        let status = if acts { self.status(pod) } else { None };
        let primary = status.as_ref().is_some_and(|status| !status.in_recovery);
        let alive = primary && !self.is_hung(pod) && self.now >= self.pods[pod].volume.full;
        let leads = self.driver(pod).is_some_and(|driver| matches!(driver.acting, Acting::Primary(_)));
        if primary && self.driver(pod).is_some_and(|driver| !driver.serves) {
            // Writers are led here while the first write is still under way.
            self.tell_facts(pod, status.as_ref(), false);
        }
        let time = match primary && !alive {
            true => PATIENCE,
            false => self.chance.of(MILLI..12 * MILLI),
        };
        let (serial, since) = (self.serial(), self.now);
        let doing = Doing::Look { status: status.map(Box::new), alive, again };
        if let Some(driver) = self.driver(pod) {
            driver.busy = Some(Busy { serial, since, leads, doing });
            self.done_after(pod, time);
        }
    }

    /// A look is done.
    pub(super) fn looked(&mut self, pod: PodId, status: Option<&Status>, alive: bool, again: bool) {
        self.tell_facts(pod, status, alive);
        let silent = status.is_some() && self.is_left_behind(pod);
        let here = &mut self.pods[pod];
        let damaged = here.volume.damaged;
        let Some(agent) = &mut here.agent else { return };
        let driver = &mut agent.driver;
        if driver.busy.is_some() {
            return;
        }
        driver.remedy = steps::remedy(driver.remedy, &agent.target, &driver.acting, silent, damaged);
        let pause = match driver.acting {
            _ if again => 0,
            Acting::Replica(None) => QUICK,
            _ => LOOK,
        };
        let primary = status.is_some_and(|status| !status.in_recovery);
        if let Some(program) = self.pods[pod].program.as_mut().filter(|_| primary) {
            program.slots = true;
        }
        if !self.restart_if_asked(pod, status.is_some()) {
            self.drive_after(pod, pause);
        }
    }

    /// Whether nothing has come for long from a leader that answers.
    fn is_left_behind(&mut self, pod: PodId) -> bool {
        let now = self.clock(pod);
        let Some(driver) = self.driver(pod) else { return false };
        if let Acting::Replica(Some(of)) = &driver.acting
            && driver.silence.is_to_ask(now)
        {
            let of = of.name.clone();
            let answers = self.source(pod, &of).is_some();
            if let Some(driver) = self.driver(pod) {
                driver.silence.asked(answers, now);
            }
        }
        self.driver(pod).is_some_and(|driver| driver.silence.is_own_fault(now))
    }

    /// What leadership is to know.
    fn tell_facts(&mut self, pod: PodId, status: Option<&Status>, alive: bool) {
        let moment = self.clock(pod);
        let damaged = self.pods[pod].volume.damaged;
        let Some(driver) = self.driver(pod) else { return };
        if status.is_some_and(facts::streams) {
            (driver.silence, driver.restarted) = (Silence::broken(moment), false);
        }
        let mut seen = facts::observe(&driver.acting, &driver.data, driver.led, status, Names("orders"));
        let last = driver.facts.written.filter(|_| seen.running == Running::Primary);
        seen.written = alive.then_some(moment).or(last);
        seen.damaged = damaged;
        driver.facts = seen.clone();
        driver.serves = status.is_some_and(|status| !status.in_recovery) && seen.running == Running::Primary;
        let order = driver.order;
        self.note_facts(pod, status, status.is_some_and(facts::streams));
        self.learn(pod, order, seen);
    }
}
