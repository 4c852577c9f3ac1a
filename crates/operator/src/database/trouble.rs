//! What stands in the way, in words that a person can act on.

use std::time::Duration;

use jiff::Timestamp;
use keelson_api::v1::Role;
use keelson_api::value::Size;

use super::facts::{Claim, Hindrance, Instance, Observed};

/// A pod may wait this long for a node before that is said: volumes are often made on the way.
const FOR_A_NODE: Duration = Duration::from_secs(30);
/// A StatefulSet may take this long to make a pod: at most its controller is just being started anew.
const FOR_A_POD: Duration = Duration::from_secs(30);
/// A claim may wait this long for a volume.
const FOR_A_VOLUME: Duration = Duration::from_secs(60);
/// An instance may take this long to serve, unless it says that it is being cloned.
const FOR_AN_INSTANCE: Duration = Duration::from_secs(600);

/// Something that a person may have to do something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In a word to look up.
    pub reason: String,
    /// In a sentence that says what to do.
    pub message: String,
}

/// What was found, and when there may be more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Found {
    pub troubles: Vec<Trouble>,
    pub again: Option<Duration>,
}

/// What stands in the way at this moment.
pub(super) fn found(seen: &Observed, now: Timestamp) -> Found {
    let mut found = Found::default();
    if is_lost(seen) {
        found.add("DataLost", LOST.to_owned());
    }
    for (pod, ago) in &seen.lately.absent {
        let message = format!(
            "{pod} is not there, and the cluster makes none. A quota, an admission rule or a missing priority class may \
             be in the way: kubectl describe statefulset {} says what",
            seen.name
        );
        found.after(FOR_A_POD, *ago, "PodNotMade", message);
    }
    for instance in seen.instances.iter().filter(|instance| !instance.deleting) {
        let claim = seen.claims.iter().find(|claim| claim.ordinal == instance.ordinal);
        found.instance(instance, claim, now);
    }
    for claim in seen.claims.iter().filter(|claim| !claim.deleting) {
        let instance = seen.instances.iter().find(|instance| instance.ordinal == claim.ordinal);
        found.claim(claim, instance, now);
    }
    found
}

/// What is said of a database that is no more.
const LOST: &str = "no instance has this database's data any more, and none is made anew in its place. Bring back a volume \
                    that has it, or delete this Database and make one anew";

/// Whether there was a database, and all instances have looked at their volumes and found none.
fn is_lost(seen: &Observed) -> bool {
    let was = seen.config.as_ref().is_some_and(|config| config.system.is_some());
    let here = seen.instances.iter().filter(|one| !one.deleting).count();
    let all = u32::try_from(here).is_ok_and(|here| here >= seen.spec.effective_replicas());
    let empty = |one: &Instance| one.report.as_ref().is_some_and(|report| report.system_id.is_none());
    was && all && seen.instances.iter().all(empty)
}

/// Whether it is the volume that keeps a pod from every node, as the scheduler says.
fn wants_volume(why: &str, claim: Option<&Claim>) -> bool {
    let why = why.to_lowercase();
    claim.is_some_and(|claim| !claim.bound) && (why.contains("volume") || why.contains("storage"))
}

/// Less was asked for than there is.
pub(super) fn shrink(asked: Size, size: Size) -> Trouble {
    Trouble {
        reason: "VolumeCannotShrink".to_owned(),
        message: format!("volumes of {size} can't become {asked}: set spec.storage back to {size}"),
    }
}

/// The cluster does not let a volume grow.
pub(super) fn refused(why: &str) -> Trouble {
    Trouble {
        reason: "VolumeNotGrown".to_owned(),
        message: format!(
            "{why}. Allow growth in its storage class (allowVolumeExpansion), or set spec.storage back"
        ),
    }
}

/// The cluster will not have what was asked for.
pub(super) fn child_refused(why: &str) -> Trouble {
    Trouble {
        reason: "ChildRefused".to_owned(),
        message: format!(
            "the cluster refuses what spec asks for: {why}. Correct it; nothing is done until then"
        ),
    }
}

/// How old something is.
pub(super) fn age(made: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(made)).unwrap_or_default()
}

impl Found {
    fn add(&mut self, reason: &str, message: String) {
        self.troubles.push(Trouble { reason: reason.to_owned(), message });
    }

    /// Says it once it is that old.
    fn after(&mut self, bound: Duration, age: Duration, reason: &str, message: String) {
        match bound.checked_sub(age) {
            Some(left) if !left.is_zero() => {
                self.again = Some(self.again.map_or(left, |again| again.min(left)))
            }
            _ => self.add(reason, message),
        }
    }

    fn instance(&mut self, instance: &Instance, claim: Option<&Claim>, now: Timestamp) {
        let (name, age) = (&instance.name, age(instance.made, now));
        match &instance.hindrance {
            Some(Hindrance::Image(why)) => self.add(
                "ImageNotPulled",
                format!("{name}: {why}. Check spec.version and spec.image, and that nodes may pull it"),
            ),
            // That is said of the claim.
            Some(Hindrance::Unschedulable(why)) if wants_volume(why, claim) => {}
            Some(Hindrance::Unschedulable(why)) => self.after(
                FOR_A_NODE,
                age,
                "Unschedulable",
                format!("no node takes {name}: {why}. Add nodes, or ask for less in spec.resources or spec.scheduling"),
            ),
            Some(Hindrance::Container(why)) => self.add(
                "ContainerFails",
                format!("{name}: {why}. Its log says more: kubectl logs {name} --previous"),
            ),
            None => {}
        }
        let report = instance.report.as_ref();
        if let Some(problem) = report.and_then(|report| report.problem.as_ref()) {
            let reason = report.and_then(|report| report.reason.as_deref()).unwrap_or("InstanceProblem");
            self.add(reason, format!("{name}: {problem}"));
        } else if !instance.ready
            && instance.hindrance.is_none()
            && report.is_none_or(|report| report.role != Role::Joining)
        {
            let minutes = FOR_AN_INSTANCE.as_secs() / 60;
            let message =
                format!("{name} does not serve after {minutes} minutes: see kubectl describe pod {name}");
            self.after(FOR_AN_INSTANCE, age, "InstanceNotReady", message);
        }
    }

    fn claim(&mut self, claim: &Claim, instance: Option<&Instance>, now: Timestamp) {
        let name = &claim.name;
        if let Some(why) = &claim.stuck {
            self.add("VolumeNotGrown", format!("{name}: {why}. Its storage class may not allow growth"));
        }
        let why = instance.and_then(|instance| match &instance.hindrance {
            Some(Hindrance::Unschedulable(why)) => Some(why),
            _ => None,
        });
        // Most classes make a volume only when its pod has a node: what keeps it from one is said of the pod.
        if !claim.bound && why.is_none_or(|why| wants_volume(why, Some(claim))) {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let message = format!(
                "{name} has no volume yet{why}. Check spec.storage.class and that so much can be had: \
                 kubectl describe pvc {name}"
            );
            self.after(FOR_A_VOLUME, age(claim.made, now), "VolumeNotBound", message);
        }
    }
}
