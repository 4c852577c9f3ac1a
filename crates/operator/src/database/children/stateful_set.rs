//! The instances of a database.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, EmptyDirVolumeSource, LocalObjectReference, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
    PodTemplateSpec, SeccompProfile, SecretVolumeSource, TopologySpreadConstraint, Volume,
    VolumeResourceRequirements, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use keelson_api::instance::{fingerprint, labels};
use keelson_api::v1::Spread;
use kube::core::ObjectMeta;
use serde_json::json;

use super::{Wanted, texts};
use crate::annotations;

pub(super) mod containers;
pub(super) mod mounts;

/// The user and group that the official images run the database as.
pub(super) const USER: i64 = 999;
/// Long enough for a handover, a checkpoint and a clean end.
const GRACE_SECONDS: i64 = 90;
/// The volume claim template's name; claims are `data-orders-0`.
pub(super) const DATA: &str = "data";

/// Stands for all that a person has asked for and that takes a new pod to get. What a newer operator does
/// differently is no part of it: an upgrade of the operator restarts no database.
pub fn asked(wanted: &Wanted) -> String {
    let Wanted { image, pull_secrets, scheduling, settings, .. } = wanted;
    let (cpu, memory) = (settings.cpu.to_string(), settings.memory.to_string());
    let mut asked = json!({
        "image": image, "pullSecrets": pull_secrets, "scheduling": scheduling, "cpu": cpu, "memory": memory
    });
    // Databases from before there were any are not to be told apart from those without.
    let mounts = mounts::of(wanted);
    if !mounts.is_empty() {
        asked["mounts"] = mounts.iter().map(|mount| (mount.name, mount.source.name())).collect();
    }
    if let Some(restart) = &wanted.restart {
        asked["restart"] = json!(restart);
    }
    fingerprint(&asked.to_string())
}

/// Pods are replaced only when they are deleted, and start all at once: Keelson decides the order.
pub(super) fn stateful_set(wanted: &Wanted) -> StatefulSet {
    StatefulSet {
        metadata: wanted.meta(wanted.name.clone()),
        spec: Some(StatefulSetSpec {
            replicas: Some(i32::try_from(wanted.pods).unwrap_or(i32::MAX)),
            service_name: Some(wanted.name.clone()),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            revision_history_limit: Some(2),
            selector: selector(wanted),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(wanted.labels()),
                    annotations: Some(texts([(annotations::ASKED, &asked(wanted))])),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(wanted)),
            },
            volume_claim_templates: Some(vec![claim(wanted)]),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn selector(wanted: &Wanted) -> LabelSelector {
    LabelSelector { match_labels: Some(wanted.selector()), ..LabelSelector::default() }
}

/// The claim says whose it is: another Database of that name does not take it unasked.
fn claim(wanted: &Wanted) -> PersistentVolumeClaim {
    let mut labels = wanted.labels();
    labels.insert(labels::DATABASE_UID.to_owned(), wanted.uid.clone());
    PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some(DATA.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: wanted.settings.storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(wanted.storage.to_string()),
                )])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

fn pod(wanted: &Wanted) -> PodSpec {
    let scheduling = &wanted.scheduling;
    let pull_secrets: Vec<_> =
        wanted.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodSpec {
        service_account_name: Some(wanted.name.clone()),
        automount_service_account_token: Some(true),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        security_context: Some(PodSecurityContext {
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            // Going through a large volume at each start would take minutes.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        init_containers: Some(vec![containers::agent(wanted)]),
        containers: vec![containers::database(wanted)],
        volumes: Some(volumes(wanted)),
        affinity: Some(affinity(wanted)),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "topology.kubernetes.io/zone".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(selector(wanted)),
            ..TopologySpreadConstraint::default()
        }]),
        node_selector: Some(scheduling.node_selector.clone()).filter(|labels| !labels.is_empty()),
        tolerations: Some(scheduling.tolerations.clone()).filter(|all| !all.is_empty()),
        priority_class_name: scheduling.priority_class_name.clone(),
        image_pull_secrets: Some(pull_secrets).filter(|all| !all.is_empty()),
        ..PodSpec::default()
    }
}

fn affinity(wanted: &Wanted) -> Affinity {
    let scheduling = &wanted.scheduling;
    let over = scheduling.spread_over.clone().unwrap_or_else(|| "kubernetes.io/hostname".to_owned());
    let term = PodAffinityTerm {
        topology_key: over,
        label_selector: Some(selector(wanted)),
        ..PodAffinityTerm::default()
    };
    let spread =
        scheduling.spread.as_ref().and_then(|spread| spread.parse().ok()).unwrap_or(Spread::Preferred);
    let apart = match spread {
        Spread::Required => PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..PodAntiAffinity::default()
        },
        Spread::Preferred => PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            }]),
            ..PodAntiAffinity::default()
        },
    };
    Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() }
}

fn volumes(wanted: &Wanted) -> Vec<Volume> {
    let names = wanted.names();
    let empty = |name: &str, medium: Option<&str>| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    };
    let secret = |name: &str, secret: String| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            // PostgreSQL refuses a key that others may read.
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let own = vec![
        empty("bin", None),
        empty("run", None),
        empty("tmp", None),
        empty("shm", Some("Memory")),
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: names.config(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        secret("superuser", names.superuser()),
        secret("replication", names.replication()),
        secret("app", names.app()),
        secret("tls", names.tls()),
    ];
    own.into_iter().chain(mounts::of(wanted).iter().map(mounts::Mount::volume)).collect()
}
