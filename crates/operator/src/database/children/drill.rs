//! The throw-away instance of a drill: a pod with a volume of its own, none of the database's Secrets, and no right but to
//! say on that pod how far it is. It has none of the labels by which instances are found: no Service leads to it, no
//! disruption budget counts it, and no StatefulSet takes it for its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, EmptyDirVolumeSource, LocalObjectReference, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, Pod, PodAffinityTerm, PodAntiAffinity,
    PodSecurityContext, PodSpec, SeccompProfile, ServiceAccount, Volume, VolumeResourceRequirements,
    WeightedPodAffinityTerm,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use keelson_api::instance::{DRILL_VARIABLE, annotations, labels, paths};
use kube::core::ObjectMeta;

use super::stateful_set::containers::{self, field, memory, mount, plain};
use super::stateful_set::{DATA, USER, mounts};
use super::{Wanted, texts};
use crate::database::drills::Order;

/// What a drill consists of.
#[derive(Debug)]
pub struct Drill {
    /// Who it is.
    pub account: ServiceAccount,
    /// What it may do.
    pub role: Role,
    /// That it may do it.
    pub binding: RoleBinding,
    /// Its volume.
    pub claim: PersistentVolumeClaim,
    /// Its pod.
    pub pod: Pod,
}

/// All of a drill.
pub fn drill(wanted: &Wanted, order: &Order) -> Result<Drill, serde_json::Error> {
    let name = wanted.names().drill();
    Ok(Drill {
        account: ServiceAccount { metadata: meta(wanted), ..ServiceAccount::default() },
        role: Role {
            metadata: meta(wanted),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["pods".to_owned()]),
                resource_names: Some(vec![name.clone()]),
                verbs: vec!["patch".to_owned()],
                ..PolicyRule::default()
            }]),
        },
        binding: RoleBinding {
            metadata: meta(wanted),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name: name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: Some(wanted.namespace.clone()),
                ..Subject::default()
            }]),
        },
        claim: claim(wanted),
        pod: pod(wanted, order)?,
    })
}

fn meta(wanted: &Wanted) -> ObjectMeta {
    let labels = texts([
        ("app.kubernetes.io/name", "keelson-drill"),
        ("app.kubernetes.io/instance", &wanted.name),
        ("app.kubernetes.io/managed-by", crate::NAME),
        (labels::DRILL_OF, &wanted.name),
    ]);
    ObjectMeta { name: Some(wanted.names().drill()), labels: Some(labels), ..ObjectMeta::default() }
}

/// As large as those of the instances: that is what a restore would be made on. Volumes are found by one label only, and
/// told apart by their names.
fn claim(wanted: &Wanted) -> PersistentVolumeClaim {
    let mut metadata = meta(wanted);
    metadata.labels.get_or_insert_default().insert(labels::DATABASE.to_owned(), wanted.name.clone());
    let storage = [("storage".to_owned(), Quantity(wanted.storage.to_string()))];
    PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: wanted.settings.storage.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from(storage)),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

fn pod(wanted: &Wanted, order: &Order) -> Result<Pod, serde_json::Error> {
    let scheduling = &wanted.scheduling;
    let pull_secrets: Vec<_> =
        wanted.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
    let asked = order.asked.iter().map(|asked| (annotations::DRILL.to_owned(), asked.clone()));
    let asked: BTreeMap<String, String> = asked.collect();
    Ok(Pod {
        metadata: ObjectMeta { annotations: Some(asked).filter(|all| !all.is_empty()), ..meta(wanted) },
        spec: Some(PodSpec {
            service_account_name: Some(wanted.names().drill()),
            automount_service_account_token: Some(true),
            enable_service_links: Some(false),
            restart_policy: Some("Never".to_owned()),
            // Also where nobody is there to end it.
            active_deadline_seconds: Some(order.deadline.max(1)),
            // Nothing of it is kept.
            termination_grace_period_seconds: Some(1),
            security_context: Some(PodSecurityContext {
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                fs_group: Some(USER),
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            init_containers: Some(vec![containers::agent(wanted)]),
            containers: vec![container(wanted, order)?],
            volumes: Some(volumes(wanted, order)),
            affinity: Some(away_from_instances(wanted)),
            node_selector: Some(scheduling.node_selector.clone()).filter(|labels| !labels.is_empty()),
            tolerations: Some(scheduling.tolerations.clone()).filter(|all| !all.is_empty()),
            image_pull_secrets: Some(pull_secrets).filter(|all| !all.is_empty()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    })
}

/// The image of the database, of the size of an instance: how long a restore takes is to be known, too.
fn container(wanted: &Wanted, order: &Order) -> Result<Container, serde_json::Error> {
    let settings = &wanted.settings;
    let own = [
        mount("bin", paths::BIN, true),
        mount(DATA, paths::VOLUME, false),
        mount("run", paths::RUN, false),
        mount("tmp", "/tmp", false),
        mount("shm", "/dev/shm", false),
    ];
    let repository = mounts::of_drill(&order.rule.from);
    let repository = repository.iter().map(|it| mount(it.name, it.path, it.read_only));
    Ok(Container {
        name: "database".to_owned(),
        image: Some(wanted.image.clone()),
        command: Some([paths::PROGRAM, "rehearse"].map(str::to_owned).to_vec()),
        env: Some(vec![
            plain(DRILL_VARIABLE, serde_json::to_string(&order.rule)?),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_UID", "metadata.uid"),
            plain("CPU_MILLIS", settings.cpu.as_millis().to_string()),
            memory(),
        ]),
        volume_mounts: Some(own.into_iter().chain(repository).collect()),
        resources: Some(containers::resources(&settings.cpu.to_string(), &settings.memory.to_string())),
        security_context: Some(containers::restricted()),
        ..Container::default()
    })
}

fn volumes(wanted: &Wanted, order: &Order) -> Vec<Volume> {
    let empty = |name: &str, medium: Option<&str>| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    };
    let data = Volume {
        name: DATA.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: wanted.names().drill(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    };
    let own =
        [empty("bin", None), empty("run", None), empty("tmp", None), empty("shm", Some("Memory")), data];
    let repository = mounts::of_drill(&order.rule.from);
    own.into_iter().chain(repository.iter().map(mounts::Mount::volume)).collect()
}

/// It takes what a node can give, and that had better not be what an instance needs.
fn away_from_instances(wanted: &Wanted) -> Affinity {
    let selector = LabelSelector { match_labels: Some(wanted.selector()), ..LabelSelector::default() };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    label_selector: Some(selector),
                    ..PodAffinityTerm::default()
                },
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}
