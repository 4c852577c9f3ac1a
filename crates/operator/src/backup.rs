//! Backups that people make: they say by name of which Database they are, and are marked so that its controller finds
//! them, and so that they go when it goes. All else about them is a part of the Database's plan.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use keelson_api::instance::labels;
use keelson_api::v1::{Backup, BackupPhase, BackupStatus, Database};
use keelson_api::value::Written;
use keelson_kit::conditions::Finding;
use keelson_kit::{Error, Kind, Next, Reconciler, Round};
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::NAME;

/// How often it is looked for a Database that is not there.
const LOOK: Duration = Duration::from_secs(30);

/// Marks Backups.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackupController;

/// The kind.
pub fn kind() -> Kind<BackupController> {
    Kind::new(BackupController)
}

impl Reconciler for BackupController {
    type Object = Backup;
    type Error = Error;

    async fn reconcile(&self, backup: &Backup, round: &mut Round) -> Result<Next, Error> {
        if is_marked(backup) || backup.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        let (name, namespace) = (backup.spec.database.clone(), round.key().namespace.clone());
        let databases: Api<Database> = Api::namespaced(round.client(), &namespace);
        let found = databases.get_metadata_opt(&name).await;
        let object = || format!("Database {namespace}/{name}");
        let found = found.map_err(|source| Error::Api { doing: "reading", object: object(), source })?;
        let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            let status = without_a_database(backup, round);
            round.set_status(&status).await?;
            return Ok(Next::After(LOOK));
        };
        round.confirm().await?;
        let owner = OwnerReference {
            api_version: Database::api_version(&()).into_owned(),
            kind: Database::kind(&()).into_owned(),
            name: name.clone(),
            uid: found.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        let owners: Vec<OwnerReference> = backup.owner_references().iter().cloned().chain([owner]).collect();
        let marks = json!({"metadata": {
            "resourceVersion": backup.resource_version(),
            "labels": {labels::DATABASE: name}, "ownerReferences": owners
        }});
        let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
        let backups: Api<Backup> = Api::namespaced(round.client(), &namespace);
        let marked = backups.patch_metadata(&backup.name_any(), &params, &Patch::Merge(marks)).await;
        let object = || format!("Backup {namespace}/{}", backup.name_any());
        marked.map_err(|source| Error::Api { doing: "marking", object: object(), source })?;
        Ok(Next::Change)
    }
}

/// Whether the Database's controller finds it.
fn is_marked(backup: &Backup) -> bool {
    backup.labels().get(labels::DATABASE) == Some(&backup.spec.database)
}

fn without_a_database(backup: &Backup, round: &Round) -> BackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let finding = Finding {
        kind: "Complete".to_owned(),
        holds: Some(false),
        reason: "NoDatabase".to_owned(),
        message: format!(
            "there is no Database {} in this namespace: create it, or correct spec.database in another Backup",
            backup.spec.database
        ),
    };
    BackupStatus {
        phase: Some(Written::of(&BackupPhase::Pending)),
        observed_generation: backup.metadata.generation,
        conditions: round.conditions(&before.conditions, &[finding]),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use keelson_api::v1::BackupSpec;

    use super::*;

    #[test]
    fn a_backup_is_marked_with_the_database_that_it_names() {
        let mut backup = Backup::new("b", BackupSpec { database: "orders".into(), ..BackupSpec::default() });
        assert!(!is_marked(&backup));
        backup.labels_mut().insert(labels::DATABASE.to_owned(), "others".to_owned());
        assert!(!is_marked(&backup), "a label that somebody else has set is no mark");
        backup.labels_mut().insert(labels::DATABASE.to_owned(), "orders".to_owned());
        assert!(is_marked(&backup));
    }
}
