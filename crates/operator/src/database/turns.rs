//! Whose turn it is when instances must be replaced or restarted: one at a time, replicas first, the leader
//! last and by handover, and nobody before the one before is back.

use std::time::Duration;

use keelson_api::instance::{Names, fingerprint};
use keelson_api::v1::Role;
use keelson_ha::planted::{self, Bug};

use super::children::Wanted;
use super::children::stateful_set::asked;
use super::facts::{Instance, Observed};
use super::plan::Step;
use super::trouble::Trouble;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nobody needs anything.
    Nothing,
    /// Somebody does, but not now.
    Wait(String),
    /// This one.
    Take(Step, String),
    /// It does not help.
    Stuck(Trouble),
}

/// What an instance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    /// A new pod.
    Pod,
    /// A restart of the database in its pod.
    Restart,
}

/// So long a request may come late: an API server gives it up after a minute.
pub(super) const DOUBT: Duration = Duration::from_secs(60);

/// So often an instance restarts for settings that it then still does not run with.
const RESTARTS: u32 = 3;

struct View<'a> {
    seen: &'a Observed,
    asked: String,
    settings: String,
    replicas: u32,
    leader: Option<&'a str>,
}

/// Whose turn it is.
pub(super) fn next(seen: &Observed, wanted: &Wanted) -> Turn {
    let Ok(settings) = wanted.instance.to_json() else { return Turn::Nothing };
    let replicas = wanted.settings.replicas;
    let view = View {
        seen,
        asked: asked(wanted),
        settings: fingerprint(&settings),
        replicas,
        leader: seen.leader(),
    };
    let instances: Vec<&Instance> = seen.instances.iter().filter(|one| one.ordinal < replicas).collect();
    if instances.iter().all(|instance| view.need(instance) == Need::Nothing) {
        let lowering = |one: &&&Instance| one.report.as_ref().is_some_and(|report| report.lowering);
        return match instances.iter().find(lowering) {
            Some(one) => Turn::Wait(format!("waits until {} can have less than it has", one.name)),
            None => Turn::Nothing,
        };
    }
    if seen.set.as_ref().is_none_or(|set| set.deleting) {
        return Turn::Wait("waits for the StatefulSet".to_owned());
    }
    let names = Names(&seen.name);
    let away = (0..replicas)
        .find(|ordinal| !instances.iter().any(|instance| instance.ordinal == *ordinal && !instance.deleting));
    if let Some(ordinal) = away.filter(|_| !planted::is(Bug::TwoAtOnce)) {
        return Turn::Wait(format!("waits until {} is back", names.pod(ordinal)));
    }
    // It can't hand over either: nothing that its agent asks of the API server is answered.
    if let Some(mute) = instances.iter().find(|instance| view.is_mute(instance) && view.leads(instance)) {
        return view.take(mute);
    }
    if let Some(broken) = instances.iter().find(|instance| view.is_broken(instance)) {
        return view.take(broken);
    }
    // Also for settings that nobody asks for any more: it is about to end.
    let ending = instances.iter().find(|instance| is_to_restart(instance));
    if let Some(ending) = ending.filter(|_| !planted::is(Bug::TwoAtOnce)) {
        return Turn::Wait(format!("waits until {} has restarted", ending.name));
    }
    if let Some(told) = instances.iter().find(|instance| view.has_restarted_in_vain(instance)) {
        return view.stuck(told);
    }
    let unwell = instances.iter().find(|instance| replicas > 1 && !is_well(instance));
    if let Some(unwell) = unwell.filter(|_| !planted::is(Bug::TwoAtOnce)) {
        return Turn::Wait(format!("waits until {} serves", unwell.name));
    }
    // That it was told to end or restart was not answered, and may still come: until then it is that one's turn.
    if let Some(told) = instances.iter().find(|instance| view.is_doubtful(instance)) {
        return match view.need(told) == Need::Nothing || view.leads(told) {
            true => Turn::Wait(format!("waits to see whether {} restarts", told.name)),
            false => view.take(told),
        };
    }
    let needy = instances.iter().rev().filter(|instance| view.need(instance) != Need::Nothing);
    let (leading, others): (Vec<&&Instance>, Vec<&&Instance>) = needy.partition(|one| view.leads(one));
    match (others.first(), leading.first()) {
        (Some(_), _) if view.leader.is_none() && replicas > 1 => {
            Turn::Wait("waits until somebody leads".to_owned())
        }
        (Some(replica), _) => view.take(replica),
        (None, Some(leader)) => view.last(leader),
        (None, None) => Turn::Nothing,
    }
}

/// The best replica to take over, among the first so many: one that commits wait for, then the one that
/// lacks the least.
pub(super) fn successor<'a>(seen: &'a Observed, leader: &str, among: u32) -> Option<&'a Instance> {
    let fit = seen.instances.iter().filter(|one| {
        one.ordinal < among
            && one.name != leader
            && one.report.as_ref().is_some_and(|it| it.follows())
            && is_well(one)
    });
    fit.min_by_key(|one| {
        let report = one.report.as_ref();
        let synchronous = report.is_some_and(|report| report.role == Role::Synchronous);
        (!synchronous, report.and_then(|report| report.lag_bytes).unwrap_or(i64::MAX), one.ordinal)
    })
}

/// Whether it serves, and takes part.
fn is_well(instance: &Instance) -> bool {
    instance.serves() && instance.report.is_some()
}

/// Whether it was told to restart, and has not yet.
fn is_to_restart(instance: &Instance) -> bool {
    instance.restart.is_some()
        && instance.report.as_ref().is_some_and(|report| report.restarted != instance.restart)
}

impl View<'_> {
    fn need(&self, instance: &Instance) -> Need {
        if instance.asked.as_deref() != Some(&self.asked) || self.is_mute(instance) {
            return Need::Pod;
        }
        // What an agent says of settings that it has not read yet says nothing of those that it is to have.
        let pending = instance.report.as_ref().is_some_and(|report| {
            report.pending_restart && report.settings.as_deref() == Some(&self.settings)
        });
        if pending { Need::Restart } else { Need::Nothing }
    }

    /// Whether its token is of an account that is no more.
    fn is_mute(&self, instance: &Instance) -> bool {
        self.seen.account.is_some_and(|made| instance.made < made)
    }

    fn is_doubtful(&self, instance: &Instance) -> bool {
        let lately = self.seen.lately.doubtful.as_ref();
        lately.is_some_and(|(pod, ago)| *pod == instance.name && *ago < DOUBT)
    }

    fn leads(&self, instance: &Instance) -> bool {
        self.leader == Some(instance.name.as_str())
    }

    /// Whether nothing is lost with its pod: so an edit that broke it can be taken back. One that is still
    /// being cloned is let be.
    fn is_broken(&self, instance: &Instance) -> bool {
        if self.need(instance) != Need::Pod || instance.ready {
            return false;
        }
        let joining =
            instance.report.as_ref().is_some_and(|it| it.role == Role::Joining && it.problem.is_none());
        instance.hindrance.is_some() || !self.leads(instance) && !joining
    }

    /// How often it was told to restart for these settings. Once would not do: they may have been in force before,
    /// and others since.
    fn restarts(&self, instance: &Instance) -> u32 {
        let told = instance.restart.as_deref().and_then(|told| told.strip_prefix(&self.settings));
        told.map_or(0, |which| which.strip_prefix('.').and_then(|which| which.parse().ok()).unwrap_or(1))
    }

    fn has_restarted_in_vain(&self, instance: &Instance) -> bool {
        self.need(instance) == Need::Restart && self.restarts(instance) >= RESTARTS
    }

    fn stuck(&self, instance: &Instance) -> Turn {
        Turn::Stuck(Trouble {
            reason: "RestartDidNotHelp".to_owned(),
            message: format!(
                "{} has restarted and still does not run with the parameters that were asked for: see its log, \
                 and change or remove what it refuses from spec.parameters",
                instance.name
            ),
        })
    }

    fn take(&self, instance: &Instance) -> Turn {
        let pod = instance.name.clone();
        match self.need(instance) {
            Need::Restart => {
                let message = format!("{pod} restarts");
                let token = match self.restarts(instance) {
                    0 => self.settings.clone(),
                    before => format!("{}.{}", self.settings, before + 1),
                };
                Turn::Take(Step::Restart { pod, token }, message)
            }
            Need::Pod | Need::Nothing => {
                let message = format!("{pod} is replaced");
                Turn::Take(instance.removal(), message)
            }
        }
    }

    /// A replica may not have less of some things than its primary. So a handover would bring nothing where
    /// they are lowered: the next leader would have to restart as well.
    fn last(&self, leader: &Instance) -> Turn {
        let lowering = leader.report.as_ref().is_some_and(|report| report.lowering);
        let alone = self.replicas == 1 || planted::is(Bug::NoHandover);
        if alone || lowering && self.need(leader) == Need::Restart {
            return self.take(leader);
        }
        match successor(self.seen, &leader.name, self.replicas) {
            Some(to) => {
                let message = format!("{} hands over to {}", leader.name, to.name);
                Turn::Take(Step::HandOver { from: leader.name.clone(), to: to.name.clone() }, message)
            }
            None => Turn::Wait(format!("waits for a replica that can take over from {}", leader.name)),
        }
    }
}
