//! What becomes of a fault: which model it changes, and for how long.

use keelson_ha::{Input, Successor};

use super::disk::Volume;
use super::network::MOST;
use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};
use crate::fault::{Fault, Kind};

/// For as long as faults last at all.
const LONG: Micros = Micros::MAX / 4;

impl World {
    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.scenario.faults[number].clone();
        let Fault { kind, who, other, long, .. } = fault;
        let (long, pod) = (long * MILLI, self.current[who]);
        let until = self.now + long;
        self.say(|_| format!("FAULT {fault}"));
        match kind {
            Kind::Kill if self.pods[pod].paused.is_none() => self.kill(pod, long.min(15 * SECOND), false),
            Kind::Kill => {}
            Kind::Delete => self.delete_pod(pod),
            Kind::Stuck => {
                self.pods[pod].stuck = until;
                self.delete_pod(pod);
            }
            Kind::Force => self.remove_by_force(pod, who),
            Kind::Power => self.lose_power(pod, long),
            Kind::Lose if self.is_known() && self.pods[pod].paused.is_none() => {
                self.kill(pod, long.min(15 * SECOND), true);
                // Told from the one before by its number.
                let id = self.serial() as usize;
                self.pods[pod].volume = Volume::new(id);
            }
            Kind::Lose => {}
            Kind::Outage => self.api.outage = until,
            Kind::Mute => self.pods[pod].links.mute = until,
            Kind::Deaf => self.deafen(pod, until),
            Kind::Errors => self.api.errors = until,
            Kind::Slow => self.api.slow = until,
            Kind::Lag => self.pods[pod].links.lag = until,
            Kind::Unwatched => {
                self.pods[pod].links.unwatched = until;
                self.relist_at(pod, long);
            }
            Kind::Rewind => self.rewind_watch(pod),
            Kind::Cut => {
                self.network.cut(pod, self.current[other % self.current.len()], until);
                self.network.cut(self.current[other % self.current.len()], pod, until);
            }
            Kind::OneWay => self.network.cut(pod, self.current[other % self.current.len()], until),
            Kind::Isolate => self.isolate(pod, until),
            Kind::Loss => self.network.lossy = until,
            Kind::Pause => self.pause(pod, long, false),
            Kind::Freeze => self.pause(pod, long, true),
            Kind::Starve => self.pods[pod].starved = until,
            Kind::Crash if self.pods[pod].paused.is_none() => self.end_program(pod),
            Kind::Crash => {}
            Kind::Hang => self.pods[pod].volume.hung = until,
            Kind::Full => self.pods[pod].volume.full = until,
            Kind::Eio => self.fail_disk(pod),
            Kind::Wall => self.pods[pod].walled = until,
            Kind::Wish => {
                let to = self.names.get(other).cloned().map_or(Successor::Any, Successor::Named);
                self.wish(to);
            }
            Kind::Shrink => {
                self.set_instances(self.scenario.instances - 1);
                self.put(long, Event::Grow);
            }
            Kind::Recycle => self.recycle(pod),
            Kind::Scale | Kind::Parameter | Kind::Version | Kind::Storage => self.change_spec(kind, other),
            Kind::Remove => self.delete_database(long),
            Kind::OperatorEnds => self.end_operator(long),
            Kind::OperatorDeposed => self.end_operator(long.min(2 * SECOND)),
            Kind::OperatorEndsAfter
            | Kind::OperatorMute
            | Kind::OperatorDeaf
            | Kind::OperatorLag
            | Kind::OperatorUnwatched
            | Kind::OperatorStale
            | Kind::SlowStarts => self.disturb_operator(kind, other, until),
        }
    }

    /// Whether the Lease says which database this is.
    fn is_known(&self) -> bool {
        self.api.lease().is_some_and(|lease| lease.system.is_some())
    }

    fn deafen(&mut self, pod: PodId, until: Micros) {
        self.pods[pod].links.deaf = until;
        self.relist_at(pod, until.saturating_sub(self.now));
    }

    /// A watch that has broken off begins anew, some time after it can.
    fn relist_at(&mut self, pod: PodId, after: Micros) {
        let (life, more) = (self.pods[pod].life, self.chance.of(10 * MILLI..2 * SECOND));
        self.put(after.min(300 * SECOND) + more, Event::Relist { pod, life });
    }

    fn isolate(&mut self, pod: PodId, until: Micros) {
        self.pods[pod].links.mute = until;
        self.deafen(pod, until);
        for other in (0..MOST).filter(|other| *other != pod) {
            self.network.cut(pod, other, until);
            self.network.cut(other, pod, until);
        }
    }

    fn remove_by_force(&mut self, pod: PodId, ordinal: usize) {
        if self.pods.len() == MOST || !self.is_known() || self.pods[pod].agent.is_none() {
            return;
        }
        self.isolate(pod, LONG);
        self.pods[pod].replaced = true;
        let new = self.add_pod(ordinal);
        self.current[ordinal] = new;
        let soon = self.chance.of(SECOND..10 * SECOND);
        self.put(soon, Event::Boot { pod: new, life: 0 });
    }

    fn lose_power(&mut self, pod: PodId, back: Micros) {
        self.break_off(pod);
        self.end_program(pod);
        let here = &mut self.pods[pod];
        here.volume.lose_power();
        (here.agent, here.powered, here.paused, here.ending) = (None, false, None, false);
        here.deferred.clear();
        let life = here.life;
        self.put(back, Event::Boot { pod, life });
    }

    fn pause(&mut self, pod: PodId, long: Micros, freeze: bool) {
        let pause = self.serial();
        if self.pods[pod].paused.is_none() && self.pods[pod].powered {
            self.pods[pod].paused = Some((pause, self.now, freeze));
            self.put(long, Event::Resume { pod, pause });
        }
    }

    pub(super) fn resume(&mut self, pod: PodId, pause: u64) {
        let Some((_, since, freeze)) = self.pods[pod].paused.filter(|(id, ..)| *id == pause) else { return };
        self.pods[pod].paused = None;
        if freeze {
            let now = self.now;
            self.pods[pod].clock.stood_still(since, now);
        }
        self.tell(pod, |_| "goes on after a pause".to_owned());
        // Nobody knows in which order its processes come to what has waited for them.
        for event in std::mem::take(&mut self.pods[pod].deferred) {
            let soon = self.chance.of(0..30 * MILLI);
            self.put(soon, event);
        }
        self.ask_to_write(pod);
        if self.pods[pod].ending {
            self.feed(pod, Input::Stop);
        }
    }

    /// What could not be written is forgotten, and the database gives up.
    fn fail_disk(&mut self, pod: PodId) {
        if self.pods[pod].program.is_none() || self.pods[pod].paused.is_some() {
            return;
        }
        self.pods[pod].volume.damaged = true;
        self.end_program(pod);
        self.pods[pod].volume.lose_power();
    }

    /// Removes the log that none who follows needs at this moment.
    fn recycle(&mut self, pod: PodId) {
        let Some(program) = &self.pods[pod].program else { return };
        let needed = program.senders.iter().map(|sender| sender.flushed).min();
        if let Some(database) = self.pods[pod].volume.database_mut() {
            database.kept = database.kept.max(needed.unwrap_or(database.flushed).min(database.flushed));
        }
    }

    /// All faults end. Pods that were removed by force are found by their kubelets, and ended. Somebody takes the note
    /// from volumes that have failed, and starts their instances again: by themselves they are never trusted again,
    /// also where nobody else could lead.
    pub(super) fn calm(&mut self) {
        self.say(|_| "all faults end".to_owned());
        self.network.heal();
        (self.api.outage, self.api.errors, self.api.slow) = (0, 0, 0);
        for pod in 0..self.pods.len() {
            let here = &mut self.pods[pod];
            let links = &mut here.links;
            (links.mute, links.deaf, links.lag, links.unwatched) = (0, 0, 0, 0);
            (here.walled, here.starved, here.stuck) = (0, 0, 0);
            (here.volume.hung, here.volume.full) = (0, 0);
            if let Some((pause, ..)) = here.paused {
                self.resume(pod, pause);
            }
            if self.pods[pod].replaced {
                self.break_off(pod);
                self.end_program(pod);
                self.pods[pod].agent = None;
                continue;
            }
            let failed = std::mem::take(&mut self.pods[pod].volume.damaged);
            if failed && self.pods[pod].agent.is_some() {
                self.kill(pod, SECOND, false);
            }
            let (life, soon) = (self.pods[pod].life, self.chance.of(0..2 * SECOND));
            self.put(soon, Event::Boot { pod, life });
            self.relist_at(pod, 0);
        }
        match self.cluster {
            Some(_) => self.calm_operator(),
            None => self.set_instances(self.scenario.instances),
        }
        self.begin_to_settle();
    }
}
