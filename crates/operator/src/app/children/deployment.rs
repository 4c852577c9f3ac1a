//! The pods of an app.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Wanted, selector};
use crate::app::revision::{CREDENTIALS, LAST_READY, UNDONE};

/// A pod that is ready for a moment and ends again is of no use.
pub const MIN_READY_SECONDS: i32 = 5;

/// A new pod serves before an old one goes.
pub(super) fn deployment(wanted: &Wanted) -> Result<Deployment, serde_json::Error> {
    let mut metadata = wanted.meta();
    let mut notes = BTreeMap::new();
    if let Some(ready) = &wanted.last_ready {
        notes.insert(LAST_READY.to_owned(), serde_json::to_string(ready)?);
    }
    if let Some(undone) = &wanted.undone {
        notes.insert(UNDONE.to_owned(), serde_json::to_string(undone)?);
    }
    metadata.annotations = Some(notes).filter(|notes| !notes.is_empty());
    let mut template = wanted.revision.template.clone();
    if let Some(credentials) = &wanted.credentials {
        let notes = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        notes.insert(CREDENTIALS.to_owned(), credentials.clone());
    }
    Ok(Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: wanted.pods,
            min_ready_seconds: Some(MIN_READY_SECONDS),
            progress_deadline_seconds: Some(wanted.deadline),
            revision_history_limit: Some(3),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::Int(0)),
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                }),
            }),
            selector: LabelSelector {
                match_labels: Some(selector(&wanted.name)),
                ..LabelSelector::default()
            },
            template,
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    })
}
