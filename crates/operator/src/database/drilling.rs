//! From what is to be done about a drill to calls. What is there or gone already is done.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use keelson_api::instance::Names;
use keelson_api::v1::Backup;
use keelson_kit::{Error, Round};
use kube::api::{Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::children::{Wanted, drill};
use super::drills::DrillStep;
use super::{Failure, act};
use crate::NAME;

/// Takes one step.
pub(super) async fn take(step: &DrillStep, wanted: Option<&Wanted>, round: &Round) -> Result<(), Failure> {
    let name = Names(&round.key().name).drill();
    match (step, wanted) {
        (DrillStep::Begin(order), Some(wanted)) => {
            // What is known of the Database says that one is due; another may have been made since.
            round.confirm().await?;
            let drill::Drill { account, role, binding, claim, pod } =
                drill::drill(wanted, order).map_err(Failure::Settings)?;
            round.apply(&account).await?;
            round.apply(&role).await?;
            round.apply(&binding).await?;
            create(round, claim).await?;
            create(round, pod).await?;
        }
        (DrillStep::Begin(_), None) => {}
        (DrillStep::Verify { backup, uid, verified }, _) => {
            let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
            let change = json!({"metadata": {"uid": uid}, "status": {"verified": verified}});
            match act::api::<Backup>(round).patch_status(backup, &params, &Patch::Merge(change)).await {
                Err(kube::Error::Api(said)) if said.is_not_found() || said.is_conflict() => {}
                Err(source) => {
                    return Err(act::failed::<Backup>("writing the status of", round, backup, source).into());
                }
                Ok(_) => {}
            }
        }
        (DrillStep::RemovePod { uid }, _) => remove::<Pod>(round, &name, uid).await?,
        (DrillStep::RemoveClaim { uid }, _) => remove::<PersistentVolumeClaim>(round, &name, uid).await?,
    }
    Ok(())
}

/// Makes an object that goes with the Database. One of that name that is somebody else's is left alone, and said.
async fn create<K>(round: &Round, mut object: K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let (api, name) = (act::api::<K>(round), object.name_any());
    object.owner_references_mut().push(round.owner());
    let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
    match api.create(&params, &object).await {
        Err(kube::Error::Api(said)) if said.is_already_exists() => {}
        Err(source) => return Err(act::failed::<K>("creating", round, &name, source)),
        Ok(_) => return Ok(()),
    }
    let found = api.get_metadata_opt(&name).await;
    let found = found.map_err(|source| act::failed::<K>("reading", round, &name, source))?;
    let uid = round.owner().uid;
    let ours = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
        owners.iter().any(|owner| owner.uid == uid)
    };
    match found {
        Some(found) if !ours(found.owner_references()) => Err(Error::Taken {
            object: format!("{} {}/{name}", K::kind(&()), round.key().namespace),
            owner: format!("the drill of Database {}", round.key()),
            why: "it is not what was made for one".to_owned(),
        }),
        _ => Ok(()),
    }
}

async fn remove<K>(round: &Round, name: &str, uid: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    act::delete::<K>(round, name, only, PropagationPolicy::Background).await
}
