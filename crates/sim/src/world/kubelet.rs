//! Kubelets and the StatefulSet's controller: containers that end are started again, pods that are gone are made
//! anew under the same name.
//!
//! Left out: scheduling, images and probes; a claim is bound at once. A pod whose machine was paused or cut off
//! is not moved elsewhere, as a StatefulSet would not do, unless somebody removes it by force (`force`).

use keelson_ha::{Input, Machine};

use super::agent::Agent;
use super::driver::Driver;
use super::queue::{Event, Micros, PodId};
use super::{MILLI, SECOND, World};

/// How long a pod has to end when it is told to.
const GRACE: Micros = 60 * SECOND;

impl World {
    /// A container is started.
    pub(super) fn boot(&mut self, pod: PodId, life: u32) {
        let here = &self.pods[pod];
        if here.life != life || here.agent.is_some() || here.replaced {
            return;
        }
        if here.paused.is_some() {
            self.put(SECOND, Event::Boot { pod, life });
            return;
        }
        self.pods[pod].powered = true;
        if !self.may_boot(pod) {
            return;
        }
        let (told, settings) = self.settings_found().unzip();
        let settings = settings.unwrap_or_else(|| self.settings.clone());
        let machine = Machine::new(self.identity(pod), settings);
        let now = self.clock(pod);
        let driver = Driver::new(self.pods[pod].volume.data(&self.wal), self.pods[pod].volume.led, now);
        let first = driver.facts.clone();
        self.pods[pod].life += 1;
        self.pods[pod].ending = false;
        self.pods[pod].agent = Some(Agent::new(machine, driver));
        if let Some(told) = told {
            self.begin_to_tell(pod, told, &first);
            self.booted(pod);
        }
        self.tell(pod, |_| "starts".to_owned());
        let (life, soon) = (self.pods[pod].life, self.chance.of(10 * MILLI..400 * MILLI));
        self.put(soon, Event::Relist { pod, life });
        self.learn(pod, 0, first);
        self.nudge(pod);
    }

    /// All processes of the container are gone.
    pub(super) fn container_ends(&mut self, pod: PodId) {
        self.end_program(pod);
        self.pods[pod].agent = None;
        let ending = std::mem::take(&mut self.pods[pod].ending);
        self.not_ready(pod);
        if ending && self.cluster.is_some() {
            let soon = self.chance.of(10 * MILLI..2 * SECOND);
            let stuck = self.pods[pod].stuck.saturating_sub(self.now);
            self.pod_ended(pod, soon + stuck);
            return;
        }
        if ending {
            // Its pod is deleted, and the next one is another.
            self.pods[pod].incarnation += 1;
        }
        let (life, soon) = (self.pods[pod].life, self.chance.magnitude(200 * MILLI..8 * SECOND));
        let stuck = self.pods[pod].stuck.saturating_sub(self.now);
        self.put(soon + stuck, Event::Boot { pod, life });
    }

    /// The container is killed, and started again after so long.
    pub(super) fn kill(&mut self, pod: PodId, back: Micros, another: bool) {
        self.break_off(pod);
        self.end_program(pod);
        self.pods[pod].agent = None;
        self.not_ready(pod);
        let another = another && self.cluster.is_none();
        self.pods[pod].incarnation += u32::from(another);
        if self.cluster.is_some() && std::mem::take(&mut self.pods[pod].ending) {
            self.pod_ended(pod, back);
            return;
        }
        self.pods[pod].ending = false;
        let life = self.pods[pod].life;
        self.put(back, Event::Boot { pod, life });
    }

    /// The pod is to be deleted in good order.
    pub(super) fn delete_pod(&mut self, pod: PodId) {
        match self.cluster {
            Some(_) => self.delete_pod_object(self.pods[pod].ordinal as u32),
            None => self.end_pod(pod),
        }
    }

    /// The container of a pod is told to end.
    pub(super) fn end_pod(&mut self, pod: PodId) {
        if self.pods[pod].agent.is_none() || self.pods[pod].ending {
            return;
        }
        self.pods[pod].ending = true;
        let life = self.pods[pod].life;
        self.put(GRACE, Event::Expire { pod, life });
        if self.pods[pod].paused.is_none() {
            self.feed(pod, Input::Stop);
        }
    }

    pub(super) fn expire(&mut self, pod: PodId, life: u32) {
        let here = &self.pods[pod];
        if here.life == life && here.ending && here.agent.is_some() && here.powered {
            self.tell(pod, |_| "is killed: its time to end is over".to_owned());
            let back = self.chance.of(SECOND..5 * SECOND);
            self.kill(pod, back, true);
        }
    }

    /// There should be so many instances.
    pub(super) fn set_instances(&mut self, instances: usize) {
        self.settings.instances = instances as u32;
        for pod in 0..self.pods.len() {
            let life = self.pods[pod].life;
            if self.pods[pod].agent.is_some() {
                let soon = self.chance.of(10 * MILLI..2 * SECOND);
                self.put(soon, Event::Settings { pod, life });
            }
            if self.pods[pod].replaced {
                continue;
            }
            if self.pods[pod].ordinal >= instances {
                self.delete_pod(pod);
            } else if self.pods[pod].agent.is_none() {
                let soon = self.chance.of(100 * MILLI..3 * SECOND);
                self.put(soon, Event::Boot { pod, life });
            }
        }
    }

    /// Every agent hears of the settings, some time later.
    pub(super) fn announce_settings(&mut self) {
        for pod in 0..self.pods.len() {
            let (life, soon) = (self.pods[pod].life, self.chance.of(10 * MILLI..5 * SECOND));
            self.put(soon, Event::Settings { pod, life });
        }
    }
}
