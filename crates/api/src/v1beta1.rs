//! Version 1 beta 1 of `Database`: a version, a size, and whether to back up. Still served.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::{DatabaseStatus, Tier};
use crate::value::{Schedule, Version, Written};

/// What a database should be. The fields with underscores stand as they were first written.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1beta1",
    kind = "Database",
    plural = "databases",
    namespaced,
    shortname = "db",
    category = "keelson",
    status = "DatabaseStatus",
    derive = "PartialEq",
    storage = false,
    doc = "A database that is installed, kept available, backed up and upgraded by Keelson.",
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".status.version"}"#,
    printcolumn = r#"{"name": "Size", "type": "string", "jsonPath": ".spec.size"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Primary", "type": "string", "jsonPath": ".status.primary"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct DatabaseSpec {
    /// The version, such as `17` or `17.4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Written<Version>>,
    /// A tier: `small`, `medium` or `large`. Changing it scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Written<Tier>>,
    /// Whether there are backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_enabled: Option<bool>,
    /// When a backup is made: cron in five fields, such as `0 2 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_schedule: Option<Written<Schedule>>,
}
