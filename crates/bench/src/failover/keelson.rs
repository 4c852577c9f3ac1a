//! Keelson as people install it, with a database that says no more than it must.

use k8s_openapi::api::coordination::v1::Lease;
use keelson_api::v1::Database;
use keelson_rig::objects::{create, gone};
use kube::api::DeleteParams;
use serde_json::json;

use super::site::{NAME, Site};
use crate::error::{Asking, Result};

/// PostgreSQL 17, and otherwise the defaults.
pub(super) async fn make(site: &Site<'_>) -> Result<()> {
    let object = json!({
        "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": { "name": NAME },
        "spec": { "version": "17", "replicas": 3, "storage": "1Gi", "deletionPolicy": "Delete" },
    });
    Ok(create(&site.api::<Database>(), object).await?)
}

/// Whoever holds the Lease, if the two others are named in it as those who may be elected.
pub(super) async fn leader_of_all(site: &Site<'_>) -> Result<Option<String>> {
    let lease = site.api::<Lease>().get_opt("orders-leader").await.asking("reading the Lease")?;
    let Some(lease) = lease else { return Ok(None) };
    let notes = lease.metadata.annotations.unwrap_or_default();
    let electable = notes.get("keelson.dev/sync").map_or(0, |names| names.matches("orders-").count());
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    let name = holder.split('/').next().filter(|name| !name.is_empty() && electable == 2);
    Ok(name.map(str::to_owned))
}

pub(super) fn hand_over(site: &Site<'_>) -> Result<()> {
    site.kubectl(&["annotate", "lease", "orders-leader", "keelson.dev/handover-to=any"]).map(drop)
}

/// By a change that needs new pods: a little more memory than the default, and another each time.
pub(super) fn restart_all(site: &Site<'_>, run: usize) -> Result<()> {
    let memory = if run.is_multiple_of(2) { "520Mi" } else { "528Mi" };
    let patch = json!({ "spec": { "resources": { "memory": memory } } }).to_string();
    site.kubectl(&["patch", "database", NAME, "--type", "merge", "--patch", &patch]).map(drop)
}

/// While the operator is there to do it.
pub(super) async fn remove(site: &Site<'_>) -> Result<()> {
    site.api::<Database>().delete(NAME, &DeleteParams::default()).await.asking("deleting a Database")?;
    Ok(gone(&site.api::<Database>()).await?)
}
