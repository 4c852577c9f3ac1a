//! What must be true in the end of what the operator looks after: the spec is met, and the status tells the truth.

use keelson_api::instance::Names;
use keelson_api::v1::Phase;

use super::super::World;
use super::super::queue::PodId;
use super::objects::{DATABASE, Kind};

impl World {
    /// What is not as the spec has it, or not as the status says.
    pub(in super::super) fn wrong_in_cluster(&self, leader: PodId) -> Option<String> {
        let cluster = self.cluster.as_ref()?;
        let objects = &cluster.objects;
        let stored = objects.get(DATABASE).filter(|stored| !stored.deleting);
        let Some((stored, database)) = stored.and_then(|stored| Some((stored, stored.database()?))) else {
            return Some("there is no Database".to_owned());
        };
        let replicas = database.spec.effective_replicas();
        let size =
            database.spec.storage.as_ref().and_then(|storage| storage.volume()?.size.as_ref()?.parse().ok());
        let Some(set) = objects.set() else { return Some("there is no StatefulSet".to_owned()) };
        if set.pods != replicas || Some(set.storage) != size {
            return Some(format!("the StatefulSet has {} pods of {}", set.pods, set.storage));
        }
        for ordinal in 0..replicas {
            let claim = objects.get((Kind::Claim, ordinal)).filter(|claim| !claim.deleting);
            let Some(claim) = claim.and_then(|claim| claim.claim()) else {
                return Some(format!("orders-{ordinal} has no claim"));
            };
            if claim.database != stored.uid || Some(claim.requested) != size {
                return Some(format!("the claim of orders-{ordinal} is {claim:?}"));
            }
            let pod = self.current[ordinal as usize];
            let asked = objects.pod(ordinal).is_some_and(|pod| pod.asked == set.asked && pod.ready);
            if !asked || !self.pending_restart(pod).is_empty() {
                return Some(format!("orders-{ordinal} is not as it was asked for"));
            }
        }
        if objects.of(Kind::Pod).count() != replicas as usize {
            return Some("there are more pods than were asked for".to_owned());
        }
        if !cluster.person.retain && objects.of(Kind::Claim).count() != replicas as usize {
            return Some("volumes are left that should go".to_owned());
        }
        let status = &database.status;
        let primary = Names("orders").pod(self.pods[leader].ordinal as u32);
        let true_to = status.phase.as_ref().is_some_and(|phase| phase.as_str() == Phase::Running.as_str())
            && status.ready_replicas == i32::try_from(replicas).ok()
            && status.replicas == status.ready_replicas
            && status.primary.as_deref() == Some(primary.as_str())
            && status.observed_generation == Some(database.generation);
        (!true_to).then(|| {
            format!(
                "the status says {:?}, {:?} of {replicas} ready, primary {:?}, generation {:?} of {}: {:?}",
                status.phase,
                status.ready_replicas,
                status.primary,
                status.observed_generation,
                database.generation,
                status
                    .conditions
                    .iter()
                    .map(|one| format!("{}={} {}", one.type_, one.status, one.message))
                    .collect::<Vec<_>>()
            )
        })
    }
}
