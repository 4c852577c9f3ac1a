//! From steps to calls.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use keelson_api::instance::{Names, annotations, labels};
use keelson_api::v1::{Backup, BackupPhase, BackupSpec, BackupStatus};
use keelson_kit::events::Severity;
use keelson_kit::{Error, Round};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Failure;
use super::backups::BackupStep;
use super::children::secrets::{self, Secrets};
use super::children::{Children, Wanted};
use super::orders::Child;
use super::plan::Step;
use crate::NAME;
use crate::root::Root;

/// Writes the Secrets.
pub(super) async fn write_secrets(
    wanted: &Wanted,
    root: &Root,
    rotation: &str,
    until: Timestamp,
    round: &Round,
) -> Result<(), Failure> {
    let made = secrets::secrets(wanted, root, rotation, Timestamp::now(), until)?;
    let Secrets { superuser, replication, app, tls } = made;
    for secret in [superuser, replication, app, tls] {
        round.apply(&secret).await?;
    }
    Ok(())
}

/// Makes a child what it should be. Returns whether it was written.
pub(super) async fn apply(child: Child, children: &Children, round: &Round) -> Result<bool, Error> {
    let Children { config, account, role, binding, set, instances, writers, readers, disruption } = children;
    match child {
        Child::Config => round.apply(config).await,
        Child::Account => round.apply(account).await,
        Child::Role => round.apply(role).await,
        Child::Binding => round.apply(binding).await,
        Child::Set => round.apply(set).await,
        Child::Instances => round.apply(instances).await,
        Child::Writers => round.apply(writers).await,
        Child::Readers => round.apply(readers).await,
        Child::Disruption => round.apply(disruption).await,
    }
}

/// Takes one step. What is gone already is done.
pub(super) async fn take(step: &Step, uid: &str, round: &Round) -> Result<(), Error> {
    let name = &round.key().name;
    match step {
        Step::Adopt { claim, from } => {
            // In one write: what is on it must never be taken for new.
            let (labels, notes) =
                (json!({labels::DATABASE_UID: uid}), json!({annotations::ADOPTED_FROM: from}));
            let marks = json!({"metadata": {"labels": labels, "annotations": notes}});
            patch::<PersistentVolumeClaim>(round, claim, "adopting", marks).await
        }
        Step::Grow { claim, to } => {
            let size = json!({"spec": {"resources": {"requests": {"storage": to}}}});
            patch::<PersistentVolumeClaim>(round, claim, "growing", size).await
        }
        Step::RemoveClaim { claim, uid, resource_version } => {
            let only =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            delete::<PersistentVolumeClaim>(round, claim, only, PropagationPolicy::Background).await
        }
        Step::Remake { uid } => {
            let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
            delete::<StatefulSet>(round, name, only, PropagationPolicy::Orphan).await
        }
        Step::HandOver { to, .. } => {
            let annotation = json!({"metadata": {"annotations": {annotations::HANDOVER_TO: to}}});
            patch::<Lease>(round, &Names(name).lease(), "asking for a handover in", annotation).await
        }
        Step::Restart { pod, token } => {
            let annotation = json!({"metadata": {"annotations": {annotations::RESTART: token}}});
            patch::<Pod>(round, pod, "asking for a restart of", annotation).await
        }
        Step::Replace { pod, uid, resource_version } => {
            let only =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            delete::<Pod>(round, pod, only, PropagationPolicy::Background).await
        }
    }
}

/// Does something to a Backup. What is there or gone already is done.
pub(super) async fn back_up(step: &BackupStep, round: &Round) -> Result<(), Error> {
    let database = &round.key().name;
    match step {
        BackupStep::Make { name } => {
            round.confirm().await?;
            let mut backup =
                Backup::new(name, BackupSpec { database: database.clone(), ..BackupSpec::default() });
            backup.labels_mut().insert(labels::DATABASE.to_owned(), database.clone());
            backup.owner_references_mut().push(owner(round.owner()));
            let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
            match api::<Backup>(round).create(&params, &backup).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(source) => Err(failed::<Backup>("creating", round, name, source)),
                Ok(_) => Ok(()),
            }
        }
        BackupStep::Say { name, uid, status } => {
            let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
            let change = json!({"metadata": {"uid": uid}, "status": whole(status)});
            match api::<Backup>(round).patch_status(name, &params, &Patch::Merge(change)).await {
                Err(kube::Error::Api(said)) if said.is_not_found() => Ok(()),
                Err(source) => Err(failed::<Backup>("writing the status of", round, name, source)),
                Ok(_) => {
                    tell_of_end(name, status, round);
                    Ok(())
                }
            }
        }
        BackupStep::Remove { name, uid } => {
            round.confirm().await?;
            let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
            delete::<Backup>(round, name, only, PropagationPolicy::Background).await
        }
    }
}

/// What makes a Backup go with its Database, though it is no part of it.
pub(crate) fn owner(of: OwnerReference) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..of }
}

/// A status in which what is no more is named as such, since a patch changes only what it names.
fn whole(status: &BackupStatus) -> Value {
    let mut value = json!(status);
    for field in [
        "method",
        "id",
        "instance",
        "started",
        "finished",
        "readBytes",
        "totalBytes",
        "storedBytes",
        "window",
    ] {
        if value.get(field).is_none() {
            value[field] = Value::Null;
        }
    }
    value
}

fn tell_of_end(name: &str, status: &BackupStatus, round: &Round) {
    let said = status.conditions.iter().find(|condition| condition.type_ == "Complete");
    let said = said.map(|said| said.message.clone()).unwrap_or_default();
    match status.phase.as_ref().and_then(|phase| phase.parse().ok()) {
        Some(BackupPhase::Complete) => {
            let bytes = status.stored_bytes.unwrap_or_default();
            round.event(
                Severity::Normal,
                "BackupComplete",
                format!("{name} takes {bytes} bytes in the repository"),
            );
        }
        Some(BackupPhase::Failed) => {
            round.event(Severity::Warning, "BackupFailed", format!("{name}: {said}"));
        }
        _ => {}
    }
}

/// Removes the StatefulSet with its pods.
pub(super) async fn remove_set(round: &Round, uid: &str) -> Result<(), Error> {
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    delete::<StatefulSet>(round, &round.key().name, only, PropagationPolicy::Background).await
}

/// Deletes an object of this database that its agents have made, unless it is somebody else's.
pub(super) async fn delete_labelled<K>(round: &Round, name: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let found =
        api::<K>(round).get_opt(name).await.map_err(|source| failed::<K>("reading", round, name, source))?;
    let ours = |found: &K| found.labels().get(labels::DATABASE) == Some(&round.key().name);
    match found.filter(ours) {
        Some(found) => {
            let only = Preconditions { uid: found.uid(), resource_version: None };
            delete::<K>(round, name, only, PropagationPolicy::Background).await
        }
        None => Ok(()),
    }
}

pub(super) fn api<K>(round: &Round) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(round.client(), &round.key().namespace)
}

async fn patch<K>(round: &Round, name: &str, doing: &'static str, change: Value) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    match api::<K>(round).patch_metadata(name, &params, &Patch::Merge(change)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(failed::<K>(doing, round, name, source)),
        Ok(_) => Ok(()),
    }
}

pub(super) async fn delete<K>(
    round: &Round,
    name: &str,
    only: Preconditions,
    propagation: PropagationPolicy,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let params = DeleteParams {
        preconditions: Some(only),
        propagation_policy: Some(propagation),
        ..DeleteParams::default()
    };
    match api::<K>(round).delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(failed::<K>("deleting", round, name, source)),
        Ok(_) => Ok(()),
    }
}

pub(super) fn failed<K: Resource<DynamicType = ()>>(
    doing: &'static str,
    round: &Round,
    name: &str,
    source: kube::Error,
) -> Error {
    Error::Api { doing, object: format!("{} {}/{name}", K::kind(&()), round.key().namespace), source }
}
