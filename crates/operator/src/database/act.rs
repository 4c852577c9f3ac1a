//! From steps to calls.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use keelson_api::instance::{Names, annotations, labels};
use keelson_kit::{Error, Round};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Failure;
use super::children::secrets::{self, Secrets};
use super::children::{Children, Wanted, children};
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

/// Makes the children what they should be, in this order: nothing is made before what it needs. Returns
/// whether one was written that plans follow from.
pub(super) async fn apply(wanted: &Wanted, apply_set: bool, round: &Round) -> Result<bool, Failure> {
    let Children { config, account, role, binding, set, instances, writers, readers, disruption } =
        children(wanted).map_err(Failure::Settings)?;
    let mut written = round.apply(&config).await?;
    // Pods from before it was made have tokens that are good for nothing.
    written |= round.apply(&account).await?;
    round.apply(&role).await?;
    round.apply(&binding).await?;
    if apply_set {
        written |= round.apply(&set).await?;
    }
    round.apply(&instances).await?;
    round.apply(&writers).await?;
    round.apply(&readers).await?;
    round.apply(&disruption).await?;
    Ok(written)
}

/// Takes one step. What is gone already is done.
pub(super) async fn take(step: &Step, uid: &str, round: &Round) -> Result<(), Error> {
    let name = &round.key().name;
    match step {
        Step::Adopt { claim } => {
            let label = json!({"metadata": {"labels": {labels::DATABASE_UID: uid}}});
            patch::<PersistentVolumeClaim>(round, claim, "adopting", label).await
        }
        Step::Grow { claim, to } => {
            let size = json!({"spec": {"resources": {"requests": {"storage": to}}}});
            patch::<PersistentVolumeClaim>(round, claim, "growing", size).await
        }
        Step::RemoveClaim { claim, uid } => {
            let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
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

fn api<K>(round: &Round) -> Api<K>
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

async fn delete<K>(
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

fn failed<K: Resource<DynamicType = ()>>(
    doing: &'static str,
    round: &Round,
    name: &str,
    source: kube::Error,
) -> Error {
    Error::Api { doing, object: format!("{} {}/{name}", K::kind(&()), round.key().namespace), source }
}
