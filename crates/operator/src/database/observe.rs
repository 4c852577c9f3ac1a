//! From the cluster to facts.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, PodStatus, ServiceAccount};
use keelson_api::instance::{InstanceSettings, Names, SETTINGS_KEY, annotations as shared, labels};
use keelson_api::v1::{Backup, Database};
use keelson_api::value::Size;
use keelson_kit::{Error, Round};
use kube::api::{DynamicObject, ListParams};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::Value;

use super::act;
use super::backups::BackupFact;
use super::drills::{DrillClaim, DrillPod, Throwaway};
use super::facts::{Claim, Hindrance, Instance, Lately, Observed, Set, doubt};
use crate::annotations;
use crate::root::{Root, Whose};
use crate::trim::{keep, trim_meta};

/// What there is of a database, as objects.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// What agents are told.
    pub config: Option<ConfigMap>,
    /// The account of its agents.
    pub account: Option<ServiceAccount>,
    /// The instances.
    pub set: Option<StatefulSet>,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// The claims of its volumes.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Its Backups.
    pub backups: Vec<Backup>,
    /// The pods of its drills.
    pub drills: Vec<Pod>,
}

/// What is known of a database at this moment, as watches have told.
pub(super) fn observe(
    database: &Database,
    round: &Round,
    root: &Root,
    lately: Lately,
    agent_image: &str,
) -> Result<Observed, Error> {
    let name = database.name_any();
    let found = Found {
        config: round.child(&Names(&name).config())?,
        account: round.child(&name)?,
        set: round.child(&name)?,
        pods: round.related()?,
        claims: round.related()?,
        backups: round.related()?,
        drills: round.related_by(labels::DRILL_OF)?,
    };
    Ok(Observed { lately, ..with_mark(database, found, root, agent_image) })
}

/// The same, as the API server itself has it: what watches have told may be long past.
pub(super) async fn ask(
    database: &Database,
    round: &Round,
    root: &Root,
    lately: Lately,
    agent_image: &str,
) -> Result<Observed, Error> {
    round.confirm().await?;
    let name = database.name_any();
    let config = Names(&name).config();
    // Only what somebody may have asked for.
    let has_backups = database.spec.backup.is_some();
    let drill_of = ListParams::default().labels(&format!("{}={name}", labels::DRILL_OF));
    let of_it = ListParams::default().labels(&format!("{}={name}", labels::DATABASE));
    let found = Found {
        config: act::api(round).get_opt(&config).await.map_err(unanswered::<ConfigMap>(round, &config))?,
        account: round.child(&name)?,
        set: act::api(round).get_opt(&name).await.map_err(unanswered::<StatefulSet>(round, &name))?,
        pods: act::api(round).list(&of_it).await.map_err(unanswered::<Pod>(round, "of it"))?.items,
        claims: {
            let claims = act::api(round).list(&of_it).await;
            claims.map_err(unanswered::<PersistentVolumeClaim>(round, "of it"))?.items
        },
        backups: act::api(round).list(&of_it).await.map_err(unanswered::<Backup>(round, "of it"))?.items,
        drills: match has_backups {
            true => {
                let pods = act::api(round).list(&drill_of).await;
                pods.map_err(unanswered::<Pod>(round, "of its drill"))?.items
            }
            false => round.related_by(labels::DRILL_OF)?,
        },
    };
    Ok(Observed { lately, ..with_mark(database, found, root, agent_image) })
}

fn unanswered<K: Resource<DynamicType = ()>>(round: &Round, name: &str) -> impl FnOnce(kube::Error) -> Error {
    move |source| act::failed::<K>("reading", round, name, source)
}

fn with_mark(database: &Database, found: Found, root: &Root, agent_image: &str) -> Observed {
    let (name, namespace) = (database.name_any(), database.namespace().unwrap_or_default());
    let uid = database.uid().unwrap_or_default();
    let rotation = database.annotations().get(shared::ROTATE_SECRETS).cloned().unwrap_or_default();
    let whose = Whose { namespace: &namespace, name: &name, uid: &uid, rotation: &rotation };
    facts(database, found, root.mark(whose), agent_image)
}

/// What is known of a database, from objects. Nobody is asked.
pub fn facts(database: &Database, found: Found, secrets_mark: String, agent_image: &str) -> Observed {
    let Found { config, account, set, pods, claims, backups, drills } = found;
    let name = database.name_any();
    let names = Names(&name);
    let uid = database.uid().unwrap_or_default();
    let mut instances: Vec<Instance> = pods.iter().filter_map(|pod| instance(names, pod)).collect();
    instances.sort_by_key(|instance| instance.ordinal);
    doubt(&mut instances);
    let (throwaway_claims, claims): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| claim.name_any() == names.drill());
    let mut claims: Vec<Claim> = claims.iter().filter_map(|found| claim(names, found)).collect();
    claims.sort_by_key(|claim| claim.ordinal);
    let drill_claim = throwaway_claims.into_iter().find(|claim| is_of(&claim.metadata, &uid));
    let drill_pod = drills.into_iter().find(|pod| is_of(&pod.metadata, &uid));
    let annotation = |key: &str| database.annotations().get(key).cloned();
    Observed {
        secrets_mark,
        made: made(&database.metadata),
        generation: database.metadata.generation,
        spec: database.spec.clone(),
        status: database.status.clone().unwrap_or_default(),
        discard: annotation(shared::DISCARD_OLD_DATA),
        adopt: annotation(shared::ADOPT_VOLUMES).as_deref() == Some("yes"),
        restart: annotation(shared::RESTART_INSTANCES).filter(|text| !text.is_empty()),
        config: config.filter(|config| is_of(&config.metadata, &uid)).and_then(|config| settings(&config)),
        account: account.map(|account| made(&account.metadata)),
        set: set.filter(|set| is_of(&set.metadata, &uid)).map(|set| stateful_set(&set)),
        instances,
        claims,
        // Those of an older one of this name may still be on their way out.
        backups: backups.into_iter().filter(|found| is_of(&found.metadata, &uid)).map(backup).collect(),
        drill: Throwaway {
            asked: annotation(shared::DRILL),
            pod: drill_pod.map(|pod| drill(&pod)),
            claim: drill_claim.map(|claim| DrillClaim {
                uid: claim.uid().unwrap_or_default(),
                deleting: claim.metadata.deletion_timestamp.is_some(),
            }),
        },
        source: None,
        lately: Lately::default(),
        agent_image: agent_image.to_owned(),
        namespace: database.namespace().unwrap_or_default(),
        name: name.clone(),
        uid,
    }
}

fn is_of(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// What agents were told. What can't be read is written anew.
fn settings(config: &ConfigMap) -> Option<InstanceSettings> {
    serde_json::from_str(config.data.as_ref()?.get(SETTINGS_KEY)?).ok()
}

fn stateful_set(set: &StatefulSet) -> Set {
    let spec = set.spec.clone().unwrap_or_default();
    let template = spec.volume_claim_templates.iter().flatten().next();
    Set {
        uid: set.uid().unwrap_or_default(),
        pods: spec.replicas.and_then(|replicas| u32::try_from(replicas).ok()).unwrap_or_default(),
        storage: template.and_then(requested),
        deleting: set.metadata.deletion_timestamp.is_some(),
    }
}

fn requested(claim: &PersistentVolumeClaim) -> Option<Size> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    resources.requests.as_ref()?.get("storage")?.0.parse().ok()
}

fn made(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn instance(names: Names<'_>, pod: &Pod) -> Option<Instance> {
    let meta = &pod.metadata;
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
    let status = pod.status.clone().unwrap_or_default();
    let holds = |kind: &str, word: &str| {
        status.conditions.iter().flatten().any(|one| one.type_ == kind && one.status == word)
    };
    let name = meta.name.clone()?;
    Some(Instance {
        ordinal: names.ordinal(&name)?,
        name,
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        made: made(meta),
        deleting: meta.deletion_timestamp.is_some(),
        ready: holds("Ready", "True"),
        missed: false,
        unmounted: holds(MOUNTED, "False"),
        asked: annotation(annotations::ASKED),
        restart: annotation(shared::RESTART),
        report: annotation(shared::REPORT).and_then(|report| serde_json::from_str(&report).ok()),
        hindrance: hindrance(&status),
    })
}

/// The pod of a drill.
fn drill(pod: &Pod) -> DrillPod {
    let meta = &pod.metadata;
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
    let status = pod.status.clone().unwrap_or_default();
    DrillPod {
        uid: meta.uid.clone().unwrap_or_default(),
        made: made(meta),
        deleting: meta.deletion_timestamp.is_some(),
        asked: annotation(shared::DRILL),
        ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        hindrance: hindrance(&status),
        report: annotation(shared::DRILL_REPORT).and_then(|report| serde_json::from_str(&report).ok()),
    }
}

/// That volumes and network of a pod are there.
const MOUNTED: &str = "PodReadyToStartContainers";

fn hindrance(status: &PodStatus) -> Option<Hindrance> {
    let unscheduled = status.conditions.iter().flatten().find(|one| {
        one.type_ == "PodScheduled" && one.status == "False" && one.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        return Some(Hindrance::Unschedulable(condition.message.clone().unwrap_or_default()));
    }
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let mut waiting =
        containers.into_iter().flatten().flatten().filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    waiting.find_map(|waiting| {
        let reason = waiting.reason.clone().unwrap_or_default();
        let said = waiting.message.clone().unwrap_or_else(|| reason.clone());
        match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                Some(Hindrance::Image(said))
            }
            "CrashLoopBackOff"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => Some(Hindrance::Container(said)),
            _ => None,
        }
    })
}

fn claim(names: Names<'_>, claim: &PersistentVolumeClaim) -> Option<Claim> {
    let meta = &claim.metadata;
    let name = meta.name.clone()?;
    let status = claim.status.clone().unwrap_or_default();
    let infeasible =
        status.allocated_resource_statuses.iter().flatten().any(|(_, state)| state.ends_with("Infeasible"));
    let failed = status.conditions.iter().flatten().find(|one| one.type_.ends_with("ResizeError"));
    let stuck = failed.map(|failed| failed.message.clone().unwrap_or_default());
    Some(Claim {
        ordinal: names.ordinal(name.strip_prefix("data-")?)?,
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        database_uid: meta.labels.as_ref().and_then(|all| all.get(labels::DATABASE_UID)).cloned(),
        adopted: meta.annotations.as_ref().is_some_and(|all| all.contains_key(shared::ADOPTED_FROM)),
        made: made(meta),
        requested: requested(claim),
        bound: status.phase.as_deref() == Some("Bound"),
        deleting: meta.deletion_timestamp.is_some(),
        stuck: stuck.or_else(|| infeasible.then(|| "the volume can't grow to that size".to_owned())),
        name,
    })
}

fn backup(found: Backup) -> BackupFact {
    BackupFact {
        name: found.name_any(),
        uid: found.uid().unwrap_or_default(),
        made: made(&found.metadata),
        deleting: found.metadata.deletion_timestamp.is_some(),
        generation: found.metadata.generation,
        spec: found.spec,
        status: found.status.unwrap_or_default(),
    }
}

/// Of a Backup, what is asked for and what became of it.
pub(super) fn trim_backup(backup: &mut DynamicObject) {
    trim_meta(&mut backup.metadata, &[labels::DATABASE], &[]);
    keep(&mut backup.data, &["spec", "status"]);
}

/// Of a pod, its state and what is written on it for us: a tenth of it.
pub(super) fn trim_pod(pod: &mut DynamicObject) {
    trim_meta(&mut pod.metadata, &[labels::DATABASE], &[annotations::ASKED, shared::RESTART, shared::REPORT]);
    trim_state(pod, &["conditions", "containerStatuses", "initContainerStatuses"]);
}

/// Of the pod of a drill, the same, and whether it has ended.
pub(super) fn trim_drill(pod: &mut DynamicObject) {
    trim_meta(&mut pod.metadata, &[labels::DRILL_OF], &[shared::DRILL, shared::DRILL_REPORT]);
    trim_state(pod, &["phase", "conditions", "containerStatuses", "initContainerStatuses"]);
}

fn trim_state(pod: &mut DynamicObject, fields: &[&str]) {
    keep(&mut pod.data, &["status"]);
    let status = &mut pod.data["status"];
    keep(status, fields);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|one| ["Ready", "PodScheduled", MOUNTED].iter().any(|kind| one["type"] == *kind));
        conditions.iter_mut().for_each(|one| keep(one, &["type", "status", "reason", "message"]));
    }
    for containers in ["containerStatuses", "initContainerStatuses"] {
        for container in status.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            keep(container, &["name", "state"]);
            keep(&mut container["state"], &["waiting"]);
        }
    }
}

/// Of a claim, how large it is and what became of it.
pub(super) fn trim_claim(claim: &mut DynamicObject) {
    trim_meta(&mut claim.metadata, &[labels::DATABASE, labels::DATABASE_UID], &[shared::ADOPTED_FROM]);
    keep(&mut claim.data, &["spec", "status"]);
    keep(&mut claim.data["spec"], &["resources"]);
    keep(&mut claim.data["status"], &["phase", "conditions", "allocatedResourceStatuses"]);
}

/// Of the StatefulSet, how many pods it has and how large new volumes are.
pub(super) fn trim_set(set: &mut DynamicObject) {
    trim_meta(&mut set.metadata, &[], &[]);
    keep(&mut set.data, &["spec"]);
    keep(&mut set.data["spec"], &["replicas", "volumeClaimTemplates"]);
    let templates = set.data["spec"].get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        keep(template, &["spec"]);
        keep(&mut template["spec"], &["resources"]);
    }
}

/// Of the account, that it is there and since when.
pub(super) fn trim_account(account: &mut DynamicObject) {
    trim_meta(&mut account.metadata, &[], &[]);
    keep(&mut account.data, &[]);
}

/// Of the ConfigMap, what agents are told.
pub(super) fn trim_config(config: &mut DynamicObject) {
    trim_meta(&mut config.metadata, &[], &[]);
    keep(&mut config.data, &["data"]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Pod {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "orders-1", "namespace": "shop", "uid": "7", "resourceVersion": "9",
                "creationTimestamp": "2026-11-16T12:00:00Z",
                "labels": {labels::DATABASE: "orders", "more": "noise"},
                "annotations": {
                    annotations::ASKED: "ab", shared::REPORT: r#"{"role": "replica", "epoch": 3}"#, "more": "noise"
                },
                "ownerReferences": []
            },
            "spec": {"containers": [{"name": "database", "image": "postgres:17"}]},
            "status": status
        }))
        .unwrap();
        trim_pod(&mut object);
        let text = serde_json::to_string(&object).unwrap();
        assert!(!text.contains("noise") && !text.contains("postgres:17"), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    fn seen(status: Value) -> Instance {
        instance(Names("orders"), &pod(status)).unwrap()
    }

    #[test]
    fn what_is_needed_of_a_pod_outlives_the_trimming() {
        let found = seen(json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T12:00:00Z"},
            {"type": "Initialized", "status": "True"}
        ], "podIP": "noise"}));
        assert!(found.ready && found.hindrance.is_none() && found.ordinal == 1);
        assert_eq!((found.asked.as_deref(), found.report.unwrap().epoch), (Some("ab"), 3));
        assert!(!seen(json!(null)).ready && !found.unmounted);
        let waits = seen(json!({"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}));
        assert!(waits.unmounted && !waits.ready);
    }

    #[test]
    fn what_keeps_a_pod_from_starting_is_found_wherever_it_is_said() {
        let waiting = |list: &str, reason: &str| {
            seen(json!({list: [{"name": "x", "state": {"waiting": {"reason": reason, "message": "no"}}}]}))
                .hindrance
        };
        let no = "no".to_owned();
        assert_eq!(waiting("containerStatuses", "ErrImagePull"), Some(Hindrance::Image(no.clone())));
        assert_eq!(waiting("initContainerStatuses", "ImagePullBackOff"), Some(Hindrance::Image(no.clone())));
        assert_eq!(waiting("containerStatuses", "CrashLoopBackOff"), Some(Hindrance::Container(no.clone())));
        assert_eq!(waiting("containerStatuses", "ContainerCreating"), None);
        let unscheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
        ]});
        assert_eq!(seen(unscheduled).hindrance, Some(Hindrance::Unschedulable(no)));
    }

    #[test]
    fn what_is_needed_of_a_claim_outlives_the_trimming() {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-orders-2",
                "labels": {labels::DATABASE_UID: "1", "more": "noise"},
                "annotations": {shared::ADOPTED_FROM: "0", "more": "noise"}
            },
            "spec": {"resources": {"requests": {"storage": "10Gi"}}, "volumeName": "noise"},
            "status": {"phase": "Bound", "allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"}}
        }))
        .unwrap();
        trim_claim(&mut object);
        let text = serde_json::to_string(&object).unwrap();
        assert!(!text.contains("noise"), "{text}");
        let found = claim(Names("orders"), &serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!((found.ordinal, found.requested), (2, Some(Size::gibibytes(10))));
        assert!(found.bound && found.stuck.is_some() && found.database_uid.as_deref() == Some("1"));
        assert!(found.adopted);
    }
}
