//! From the cluster to facts.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::v1::{App, Database};
use keelson_kit::{Error, Round};
use kube::api::{Api, DynamicObject};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::facts::{DatabaseFact, DeploymentFact, Has, Observed, PodFact, Trouble};
use super::revision::{APP, CREDENTIALS, LAST_READY, RESTART, UNDONE};
use crate::annotations;
use crate::trim::{keep, trim_meta};

/// On what is kept of a Deployment: that somebody else says how many pods there are.
const SCALED: &str = "keelson.dev/scaled-by-others";

/// What is known of an app at this moment, as watches have told.
pub(super) fn observe(app: &App, round: &Round, pooler_image: &str) -> Result<Observed, Error> {
    let name = app.name_any();
    let deployment: Option<Deployment> = round.child(&name)?;
    let pods: Vec<Pod> = round.related()?;
    let database = match &app.spec.database {
        Some(named) => round.child::<Database>(named)?,
        None => None,
    };
    let uid = app.uid().unwrap_or_default();
    Ok(Observed {
        namespace: app.namespace().unwrap_or_default(),
        generation: app.metadata.generation,
        spec: app.spec.clone(),
        restart: app.annotations().get(RESTART).cloned(),
        status: app.status.clone().unwrap_or_default(),
        database: database.filter(|it| it.metadata.deletion_timestamp.is_none()).map(|it| fact(&it)),
        deployment: deployment.filter(|it| is_of(&it.metadata, &uid)).map(|it| self::deployment(&it)),
        pods: pods.iter().map(pod).collect(),
        has: Has {
            service: is_there::<Service>(round, &name, &uid)?,
            autoscaler: is_there::<HorizontalPodAutoscaler>(round, &name, &uid)?,
            disruption: is_there::<PodDisruptionBudget>(round, &name, &uid)?,
        },
        pooler_image: pooler_image.to_owned(),
        name,
    })
}

/// The same, with the Deployment as the API server itself has it: what watches have told may be long past.
pub(super) async fn ask(seen: Observed, app: &App, round: &Round) -> Result<Observed, Error> {
    round.confirm().await?;
    let api: Api<DynamicObject> = Api::namespaced_with(
        round.client(),
        &seen.namespace,
        &kube::api::ApiResource::erase::<Deployment>(&()),
    );
    let object = || format!("Deployment {}/{}", seen.namespace, seen.name);
    let found = api.get_opt(&seen.name).await;
    let found = found.map_err(|source| Error::Api { doing: "reading", object: object(), source })?;
    let uid = app.uid().unwrap_or_default();
    let read = |mut found: DynamicObject| {
        trim_deployment(&mut found);
        let text = serde_json::to_value(found).unwrap_or_default();
        serde_json::from_value(text).map_err(|source| Error::Unreadable { object: object(), source })
    };
    let found: Option<Deployment> = found.filter(|it| is_of(&it.metadata, &uid)).map(read).transpose()?;
    Ok(Observed { deployment: found.map(|it| deployment(&it)), ..seen })
}

fn is_of(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

fn is_there<C>(round: &Round, name: &str, uid: &str) -> Result<bool, Error>
where
    C: Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    Ok(round.child::<C>(name)?.is_some_and(|found| is_of(found.meta(), uid)))
}

fn fact(database: &Database) -> DatabaseFact {
    let status = database.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|one| one.type_ == "Ready");
    DatabaseFact {
        ready: ready.is_some_and(|ready| ready.status == "True"),
        why: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        binding: status.binding,
    }
}

fn deployment(found: &Deployment) -> DeploymentFact {
    let note = |name: &str| found.metadata.annotations.as_ref()?.get(name).cloned();
    let spec = found.spec.clone().unwrap_or_default();
    let template = spec.template.metadata.and_then(|meta| meta.annotations).unwrap_or_default();
    let status = found.status.clone().unwrap_or_default();
    let condition = |kind: &str| status.conditions.iter().flatten().find(|one| one.type_ == kind);
    let is_seen = status.observed_generation >= found.metadata.generation;
    let stalled = condition("Progressing").is_some_and(|one| {
        one.status == "False" && one.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    let refused = condition("ReplicaFailure").filter(|one| one.status == "True");
    DeploymentFact {
        asked: template.get(annotations::ASKED).cloned(),
        credentials: template.get(CREDENTIALS).cloned(),
        desired: spec.replicas.unwrap_or(1),
        scaled_by_others: note(SCALED).is_some(),
        is_seen,
        pods: status.replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
        available: status.available_replicas.unwrap_or_default(),
        stalled: stalled && is_seen,
        refused: refused.and_then(|one| one.message.clone()),
        // What can't be read is written anew.
        last_ready: note(LAST_READY).and_then(|text| serde_json::from_str(&text).ok()),
        undone: note(UNDONE).and_then(|text| serde_json::from_str(&text).ok()),
    }
}

fn pod(pod: &Pod) -> PodFact {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let name = pod.name_any();
    PodFact {
        asked: pod.annotations().get(annotations::ASKED).cloned(),
        ready,
        deleting: pod.metadata.deletion_timestamp.is_some(),
        trouble: if ready { None } else { trouble(&name, &status) },
        name,
    }
}

/// What keeps a pod from being ready. What its program has said at its end is not repeated: that may be anything.
fn trouble(name: &str, status: &PodStatus) -> Option<Trouble> {
    let unscheduled = status.conditions.iter().flatten().find(|one| {
        one.type_ == "PodScheduled" && one.status == "False" && one.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        let why = condition.message.clone().unwrap_or_default();
        return Some(Trouble::new("Unschedulable", format!("no node takes pod {name}: {why}")));
    }
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let containers = || containers.into_iter().flatten().flatten();
    containers().find_map(|one| stopped(name, one)).or_else(|| {
        let unready =
            containers().find(|one| !one.ready && one.state.as_ref().is_some_and(|it| it.running.is_some()));
        unready.map(|one| {
            let said = format!("container {} of pod {name} runs, but its probe does not succeed", one.name);
            Trouble::new("ProbeFails", said)
        })
    })
}

/// Why a container does not run.
fn stopped(pod: &str, container: &ContainerStatus) -> Option<Trouble> {
    let state = container.state.clone().unwrap_or_default();
    let last = container.last_state.clone().and_then(|last| last.terminated);
    let of = format!("container {} of pod {pod}", container.name);
    let ended = |code: i32, reason: Option<&str>| {
        let reason = reason.filter(|reason| !matches!(*reason, "Error" | "Completed"));
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let message = format!("{of} ends again and again, last with exit code {code}{reason}: see its log");
        Some(Trouble::new("CrashLoop", message))
    };
    if let Some(terminated) = state.terminated.filter(|it| it.exit_code != 0) {
        return ended(terminated.exit_code, terminated.reason.as_deref());
    }
    // One that was started again is not better for it.
    if state.running.is_some() && !container.ready {
        let last = last.filter(|last| last.exit_code != 0)?;
        return ended(last.exit_code, last.reason.as_deref());
    }
    let waiting = state.waiting?;
    let reason = waiting.reason.unwrap_or_default();
    let said = waiting.message.unwrap_or_else(|| reason.clone());
    match reason.as_str() {
        // What is said of it changes with each try.
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => Some(Trouble::new(
            "ImagePull",
            format!("the image of {of} can't be pulled: see the pod's events"),
        )),
        "CrashLoopBackOff" => {
            let (code, reason) = last.map(|last| (last.exit_code, last.reason)).unwrap_or_default();
            ended(code, reason.as_deref())
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Some(Trouble::new("ContainerRefused", format!("{of} can't be started: {said}")))
        }
        _ => None,
    }
}

/// Of a Database, whether it takes writes, and where its credentials are.
pub(super) fn trim_database(database: &mut DynamicObject) {
    trim_meta(&mut database.metadata, &[], &[]);
    keep(&mut database.data, &["spec", "status"]);
    keep(&mut database.data["spec"], &[]);
    let status = &mut database.data["status"];
    keep(status, &["conditions", "binding"]);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|one| one["type"] == "Ready");
        for one in conditions {
            // While it takes writes, it is of no interest who does.
            if one["status"] == "True" {
                one["message"] = json!("");
            }
        }
    }
}

/// Of the Deployment, what it is told and how far it is.
pub(super) fn trim_deployment(deployment: &mut DynamicObject) {
    let scaled = is_scaled_by_others(&deployment.metadata);
    trim_meta(&mut deployment.metadata, &[], &[LAST_READY, UNDONE]);
    if scaled {
        let notes = deployment.metadata.annotations.get_or_insert_default();
        notes.insert(SCALED.to_owned(), "yes".to_owned());
    }
    keep(&mut deployment.data, &["spec", "status"]);
    let spec = &mut deployment.data["spec"];
    keep(spec, &["replicas", "selector", "template"]);
    keep(&mut spec["template"], &["metadata"]);
    keep(&mut spec["template"]["metadata"], &["annotations"]);
    // Nothing of it is asked for, but a Deployment has one.
    spec["template"]["spec"] = json!({"containers": []});
}

/// Whether somebody else has said last how many pods there are.
fn is_scaled_by_others(meta: &ObjectMeta) -> bool {
    meta.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref();
        entry.manager.as_deref() != Some(crate::NAME)
            && fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    })
}

/// Of a pod, its state.
pub(super) fn trim_pod(pod: &mut DynamicObject) {
    trim_meta(&mut pod.metadata, &[APP], &[annotations::ASKED]);
    keep(&mut pod.data, &["status"]);
    let status = &mut pod.data["status"];
    keep(status, &["conditions", "containerStatuses", "initContainerStatuses"]);
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|one| one["type"] == "Ready" || one["type"] == "PodScheduled");
        conditions.iter_mut().for_each(|one| keep(one, &["type", "status", "reason", "message"]));
    }
    for containers in ["containerStatuses", "initContainerStatuses"] {
        for container in status.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            keep(container, &["name", "state", "lastState", "ready", "image", "imageID", "restartCount"]);
            for empty in ["image", "imageID"] {
                container[empty] = json!("");
            }
            container["restartCount"] = json!(0);
            for state in ["state", "lastState"] {
                keep(&mut container[state], &["waiting", "terminated", "running"]);
                for kind in ["waiting", "terminated", "running"] {
                    let Some(inner) = container[state].get_mut(kind) else { continue };
                    let refused = inner["reason"].as_str().is_some_and(|reason| reason.ends_with("Error"));
                    match kind {
                        // Why it can't be started, and nothing that changes with each try.
                        "waiting" if refused => keep(inner, &["reason", "message"]),
                        _ => keep(inner, &["reason", "exitCode"]),
                    }
                }
            }
        }
    }
}

/// Of other children, that they are there.
pub(super) fn trim_child(child: &mut DynamicObject) {
    trim_meta(&mut child.metadata, &[], &[]);
    keep(&mut child.data, &[]);
}

#[cfg(test)]
mod tests;
