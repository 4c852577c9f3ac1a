//! What agents tell on their pods, what they hear of settings and of restarts that are asked for, and whether the kubelet
//! is told that they serve: by the real `compose`, `readiness` and `times`.
//!
//! Left out: damaged Secrets, parameters that are refused, and those that may on no replica be lower than on the
//! primary; the story of past leaderships.

use std::rc::Rc;

use keelson_agent::facts::Facts;
use keelson_agent::report::{compose, readiness};
use keelson_agent::settings::times;
use keelson_agent::steps::{Acting, Step};
use keelson_api::instance::{InstanceSettings, Report, fingerprint};
use keelson_engine::postgres::Status;
use keelson_ha::{Instance, Settings};
use keelson_operator::database::orders::Child;

use super::super::driver::Doing;
use super::super::queue::PodId;
use super::super::{MILLI, SECOND, World};
use super::ClusterEvent;
use super::objects::{CONFIG, Kind, What};

/// As in `keelson_agent::driver`: steps that fail for longer are told of.
const TROUBLE: u64 = 10 * SECOND;

/// What an agent tells, and has been told.
#[derive(Debug)]
pub struct Telling {
    facts: Facts,
    /// What there is to tell, what was heard, and whether it is on its way.
    report: Rc<Report>,
    heard: Option<Rc<Report>>,
    under_way: bool,
    ready: bool,
    /// The settings, and a short name for them.
    pub settings: InstanceSettings,
    fingerprint: String,
    /// The restart that was asked for last.
    restart: Option<String>,
}

/// The parameter that takes a restart.
pub const PARAMETER: &str = "shared_buffers";

impl World {
    /// What leadership takes from the settings, as an agent finds them when it is started.
    pub(in super::super) fn settings_found(&self) -> Option<(InstanceSettings, Settings)> {
        let What::Config(found) = &self.cluster.as_ref()?.objects.get(CONFIG)?.what else { return None };
        let found = InstanceSettings::clone(found);
        let settings = times(&found);
        Some((found, settings))
    }

    /// An agent has been started: what it knows of its pod.
    pub(in super::super) fn begin_to_tell(
        &mut self,
        pod: PodId,
        settings: InstanceSettings,
        first: &Instance,
    ) {
        let ordinal = self.pods[pod].ordinal as u32;
        let restart = self.cluster.as_ref().and_then(|cluster| cluster.objects.pod(ordinal)?.restart.clone());
        let short = fingerprint(&settings.to_json().unwrap_or_default());
        let facts = Facts {
            order: 0,
            instance: first.clone(),
            status: None,
            joining: false,
            followed: false,
            admits: false,
            heard: None,
            floored: false,
            fingerprint: None,
            restarted: restart.clone(),
            gap: None,
            trouble: None,
        };
        let telling = Telling {
            facts,
            report: Rc::new(Report::default()),
            heard: None,
            under_way: false,
            ready: false,
            settings,
            fingerprint: short,
            restart,
        };
        if let Some(agent) = &mut self.pods[pod].agent {
            agent.telling = Some(Box::new(telling));
        }
    }

    /// Agents hear of settings by a watch.
    pub(in super::super) fn hear_of_settings(&mut self, pod: PodId) -> Option<Settings> {
        let (found, settings) = self.settings_found()?;
        let short = fingerprint(&found.to_json().unwrap_or_default());
        let telling = self.pods[pod].agent.as_mut()?.telling.as_mut()?;
        (telling.settings, telling.fingerprint) = (found, short);
        Some(settings)
    }

    /// Whether a parameter waits for a restart of a pod's database.
    pub(in super::super) fn pending_restart(&self, pod: PodId) -> Vec<String> {
        let wanted = self.parameter(pod);
        let has = self.pods[pod].program.as_ref().and_then(|program| program.parameter.clone());
        if wanted == has { Vec::new() } else { vec![PARAMETER.to_owned()] }
    }

    /// The parameter with which a database is started.
    pub(in super::super) fn parameter(&self, pod: PodId) -> Option<String> {
        let telling = self.pods[pod].agent.as_ref()?.telling.as_ref()?;
        telling.settings.parameters.get(PARAMETER).cloned()
    }

    /// The driver has looked.
    pub(in super::super) fn note_facts(&mut self, pod: PodId, status: Option<&Status>, streams: bool) {
        let Some(agent) = &mut self.pods[pod].agent else { return };
        let Some(telling) = &mut agent.telling else { return };
        let replica = matches!(agent.driver.acting, Acting::Replica(_));
        let facts = &mut telling.facts;
        facts.instance = agent.driver.facts.clone();
        facts.followed = replica && (facts.followed || streams);
        facts.status = status.cloned();
        if status.is_some() {
            facts.fingerprint = Some(telling.fingerprint.clone());
        }
    }

    /// Restarts the database, if that is asked for and it runs. Says whether it does.
    pub(in super::super) fn restart_if_asked(&mut self, pod: PodId, runs: bool) -> bool {
        let Some(agent) = &mut self.pods[pod].agent else { return false };
        let leads = matches!(agent.driver.acting, Acting::Primary(_));
        let Some(telling) = agent.telling.as_mut().filter(|_| runs) else { return false };
        if telling.facts.restarted == telling.restart {
            return false;
        }
        telling.facts.restarted = telling.restart.clone();
        self.tell(pod, |_| "restarts its database, as asked".to_owned());
        self.begin_doing(pod, Doing::Step { step: Step::Finish, begun: false, part: 0 }, leads);
        true
    }

    /// What there is to tell may have changed.
    pub(in super::super) fn compose_report(&mut self, pod: PodId) {
        let (clock, now) = (self.clock(pod), self.now);
        let (life, ordinal) = (self.pods[pod].life, self.pods[pod].ordinal);
        let Some(agent) = &mut self.pods[pod].agent else { return };
        let joining = matches!(agent.driver.step(), Some(Step::Clone(_)));
        let failing = agent.driver.failing.is_some_and(|since| now >= since + TROUBLE);
        let Some(telling) = &mut agent.telling else { return };
        telling.facts.joining = joining;
        telling.facts.trouble =
            failing.then(|| ("DatabaseFailed".to_owned(), "a step fails again and again".to_owned()));
        let report = compose(&self.names[ordinal], &agent.machine, &telling.facts, &[], None, clock);
        if *telling.report == report {
            return;
        }
        telling.report = Rc::new(report);
        let asks = readiness(&telling.report).is_ok() != telling.ready;
        let tells = !std::mem::replace(&mut telling.under_way, true);
        if asks {
            let soon = self.chance.of(10 * MILLI..2 * SECOND);
            self.put_in_cluster(soon, ClusterEvent::Probe { pod, life });
        }
        if tells {
            self.put_in_cluster(0, ClusterEvent::Tell { pod, life });
        }
    }

    pub(super) fn tell_report(&mut self, pod: PodId, life: u32) {
        let incarnation = self.pods[pod].incarnation;
        if self.pods[pod].life != life {
            return;
        }
        let Some(telling) = self.pods[pod].agent.as_mut().and_then(|agent| agent.telling.as_mut()) else {
            return;
        };
        let report = telling.report.clone();
        if telling.heard.as_ref() == Some(&report) {
            telling.under_way = false;
            return;
        }
        if self.api_hears(pod) {
            let way = self.api_way();
            self.put_in_cluster(way, ClusterEvent::Told { pod, life, incarnation, report });
        } else {
            self.put_in_cluster(3 * SECOND, ClusterEvent::Heard { pod, life, report: None });
        }
    }

    /// A report names the uid of its pod: the API server writes it on no other of that name, however late it comes.
    pub(super) fn report_arrives(&mut self, pod: PodId, life: u32, incarnation: u32, report: Rc<Report>) {
        let ordinal = self.pods[pod].ordinal as u32;
        let refused = self.now < self.api.outage || self.api_refuses() || !self.agents_have_rights();
        let Some(cluster) = &self.cluster else { return };
        let same = cluster.objects.pod(ordinal).is_some_and(|object| object.incarnation == incarnation);
        let done = !refused && same && self.pods[pod].life == life;
        if done {
            let told = report.clone();
            self.change((Kind::Pod, ordinal), |stored| {
                if let What::Pod(object) = &mut stored.what {
                    object.report = Some(told);
                }
            });
            self.judge_leader();
        }
        let heard = done && self.api_is_heard(pod);
        let way = if heard { self.api_way() } else { SECOND };
        self.put_in_cluster(way, ClusterEvent::Heard { pod, life, report: heard.then_some(report) });
    }

    pub(super) fn report_heard(&mut self, pod: PodId, life: u32, report: Option<Rc<Report>>) {
        if self.pods[pod].life != life {
            return;
        }
        let Some(telling) = self.pods[pod].agent.as_mut().and_then(|agent| agent.telling.as_mut()) else {
            return;
        };
        let pause = if report.is_some() { 0 } else { SECOND };
        // What was not answered may have been heard all the same.
        telling.heard = report;
        self.put_in_cluster(pause, ClusterEvent::Tell { pod, life });
    }

    /// The kubelet asks whether it serves, and says so, if it reaches the API server.
    pub(super) fn probe(&mut self, pod: PodId, life: u32) {
        let (ordinal, incarnation) = (self.pods[pod].ordinal as u32, self.pods[pod].incarnation);
        if self.pods[pod].life != life || self.pods[pod].agent.is_none() {
            return;
        }
        let hears = self.api_hears(pod) && self.now >= self.api.outage;
        let Some(telling) = self.pods[pod].agent.as_mut().and_then(|agent| agent.telling.as_mut()) else {
            return;
        };
        let ready = readiness(&telling.report).is_ok();
        if ready == telling.ready {
            return;
        }
        if !hears {
            self.put_in_cluster(2 * SECOND, ClusterEvent::Probe { pod, life });
            return;
        }
        telling.ready = ready;
        self.set_ready(ordinal, incarnation, ready);
    }

    fn set_ready(&mut self, ordinal: u32, incarnation: u32, ready: bool) {
        let Some(cluster) = &self.cluster else { return };
        let known = cluster.objects.pod(ordinal).filter(|object| object.incarnation == incarnation);
        if known.is_some_and(|object| object.ready != ready) {
            self.change((Kind::Pod, ordinal), |stored| {
                if let What::Pod(object) = &mut stored.what {
                    object.ready = ready;
                }
            });
        }
    }

    /// A container has ended: the kubelet says so.
    pub(in super::super) fn not_ready(&mut self, pod: PodId) {
        if self.cluster.is_some() && self.pods[pod].powered {
            let (ordinal, incarnation) = (self.pods[pod].ordinal as u32, self.pods[pod].incarnation);
            self.set_ready(ordinal, incarnation, false);
        }
    }

    /// A restart is asked for on the pod: its agent hears of it by a watch.
    pub(super) fn ask_for_restart(&mut self, ordinal: u32) {
        let pod = self.current[ordinal as usize];
        let (life, soon) = (self.pods[pod].life, self.chance.of(5 * MILLI..2 * SECOND));
        self.put_in_cluster(soon, ClusterEvent::Restart { pod, life });
    }

    pub(super) fn hear_restart(&mut self, pod: PodId, life: u32) {
        let ordinal = self.pods[pod].ordinal as u32;
        let token = self.cluster.as_ref().and_then(|cluster| cluster.objects.pod(ordinal)?.restart.clone());
        if self.pods[pod].life != life {
            return;
        }
        let unheard = self.pods[pod].links.unwatched.max(self.pods[pod].links.deaf).max(self.api.outage);
        if self.now < unheard {
            let later = unheard - self.now + SECOND;
            self.put_in_cluster(later, ClusterEvent::Restart { pod, life });
            return;
        }
        if let Some(telling) = self.pods[pod].agent.as_mut().and_then(|agent| agent.telling.as_mut()) {
            telling.restart = token;
        }
    }

    /// Whether agents may write: what says so is there.
    pub(in super::super) fn agents_have_rights(&self) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        let needed = [Child::Account, Child::Role, Child::Binding];
        needed.iter().all(|child| cluster.objects.get((Kind::Child(*child), 0)).is_some())
    }
}
