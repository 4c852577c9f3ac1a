//! What is told about the instance on its own pod, where the operator and `kubectl` look.

use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{Report, annotations, labels, roles};
use keelson_api::v1::Role;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::environment::Environment;

/// Tells, on the pod.
pub async fn tell(
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

/// The label by which Services find it.
pub fn label(report: &Report, max_reader_lag: u64) -> &'static str {
    let behind = report.lag_bytes.unwrap_or_default();
    match report.role {
        Role::Primary => roles::PRIMARY,
        Role::Replica | Role::Synchronous if u64::try_from(behind).unwrap_or_default() <= max_reader_lag => {
            roles::REPLICA
        }
        _ => roles::NONE,
    }
}

/// A lag in steps: what is told changes when it crosses one, and not with every byte.
pub fn stepped(bytes: u64) -> i64 {
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

    #[test]
    fn readers_are_not_sent_to_one_that_is_far_behind_or_not_there_yet() {
        let report = |role, lag_bytes| Report { role, lag_bytes: Some(lag_bytes), ..Report::default() };
        assert_eq!(label(&report(Role::Replica, 0), 100), roles::REPLICA);
        assert_eq!(label(&report(Role::Replica, 101), 100), roles::NONE);
        assert_eq!(label(&report(Role::Joining, 0), 100), roles::NONE);
        assert_eq!(label(&report(Role::Primary, 0), 100), roles::PRIMARY);
    }
}
