//! What is told about the instance on its own pod, where the operator and `kubectl` look.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{Report, annotations, labels, reasons};
use keelson_api::v1::{Leadership, Role};
use keelson_ha::{Data, Instance, Machine, Quorum, Running, Standby};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::environment::Environment;
use crate::facts::Facts;

/// Tells, on the pod.
pub(crate) async fn tell(
    client: &Client,
    here: &Environment,
    report: &Report,
    label: &str,
) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &here.namespace);
    let text = serde_json::to_string(report).map_err(kube::Error::SerdeError)?;
    let patch = Patch::Merge(json!({
        "metadata": {
            // Another pod of this name has its own agent.
            "uid": here.uid,
            "labels": { labels::ROLE: label },
            "annotations": { annotations::REPORT: text }
        }
    }));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    pods.patch_metadata(&here.pod, &params, &patch).await.map(drop)
}

/// A heartbeat older than this is none.
const FRESH: Duration = Duration::from_secs(5);

/// What there is to tell of an instance. `damage` says what is wrong with its Secrets.
pub fn compose(
    pod: &str,
    machine: &Machine,
    facts: &Facts,
    leaderships: &[Leadership],
    damage: Option<String>,
    now: Instant,
) -> Report {
    let status = facts.status.as_ref();
    let role = role(pod, machine, facts, now);
    let (leader, epoch) = machine.leader().unwrap_or_default();
    let damage = damage.map(|damage| (reasons::SECRETS_DAMAGED.to_owned(), damage));
    let (reason, problem) = damage.or_else(|| facts.trouble.clone()).unzip();
    let mut followers: Vec<String> =
        facts.instance.standbys.iter().filter(|one| one.streaming).map(|one| one.name.clone()).collect();
    followers.sort();
    Report {
        followers: (role == Role::Primary).then_some(followers),
        role,
        timeline: status.map(|status| status.timeline.into()),
        lag_bytes: facts.behind().map(stepped),
        writable: role == Role::Primary
            && is_confirmed(&facts.instance)
            && facts.instance.written.is_some_and(|last| now < last + FRESH),
        version: status.map(|status| status.version.clone()),
        system_id: match &facts.instance.data {
            Data::Present { system, .. } => Some(system.clone()),
            Data::None => None,
        },
        pending_restart: status.is_some_and(|status| !status.pending_restart.is_empty()),
        lowering: facts.floored || status.is_some_and(|status| status.lowering),
        settings: facts.fingerprint.clone(),
        credentials: facts.credentials.clone().filter(|_| role == Role::Primary),
        restarted: facts.restarted.clone(),
        problem,
        reason,
        leader: leader.to_owned(),
        epoch,
        leaderships: if role == Role::Primary { leaderships.to_vec() } else { Vec::new() },
        // Told by those who do it.
        archive: None,
        backup: None,
        in_place: None,
        kept: None,
    }
}

fn role(pod: &str, machine: &Machine, facts: &Facts, now: Instant) -> Role {
    let primary = facts.instance.running == Running::Primary
        && facts.status.as_ref().is_some_and(|status| !status.in_recovery);
    let named = |quorum: &Quorum| quorum.count > 0 && quorum.names.contains(pod);
    match facts.instance.running {
        _ if facts.joining => Role::Joining,
        Running::Primary if machine.leads(now) && primary => Role::Primary,
        Running::Replica if facts.followed && machine.quorum().is_some_and(named) => Role::Synchronous,
        Running::Replica if facts.followed => Role::Replica,
        Running::Replica => Role::Joining,
        _ => Role::Unknown,
    }
}

/// Whether commits get the acknowledgements that they wait for.
fn is_confirmed(instance: &Instance) -> bool {
    let counts = |one: &&Standby| one.streaming && instance.commits.names.contains(&one.name);
    instance.commits.is_fenced() || instance.standbys.iter().filter(counts).count() >= instance.commits.count
}

/// Whether it serves, as the kubelet is told.
pub fn readiness(report: &Report) -> Result<(), String> {
    match report.role {
        Role::Primary if report.writable => Ok(()),
        Role::Replica | Role::Synchronous => Ok(()),
        _ => Err(report.problem.clone().unwrap_or_else(|| "it does not serve yet".to_owned())),
    }
}

/// A lag in steps: what is told changes when it crosses one, and not with every byte.
pub(crate) fn stepped(bytes: u64) -> i64 {
    const SMALLEST: u64 = 1 << 20;
    let step = if bytes < SMALLEST { 0 } else { 1u64 << bytes.ilog2() };
    i64::try_from(step).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_told_in_few_steps() {
        assert_eq!(
            (stepped(0), stepped(1_000_000), stepped(5 << 20), stepped(8 << 20)),
            (0, 0, 4 << 20, 8 << 20)
        );
        let steps: std::collections::BTreeSet<i64> = (0..1000u64).map(|mib| stepped(mib << 20)).collect();
        assert!(steps.len() <= 12, "{steps:?}");
    }
}
