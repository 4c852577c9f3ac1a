//! Version 1 alpha 1 of `Database`: how many, and when to back up. Deprecated, still served.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::DatabaseStatus;
use crate::value::{Retention, Schedule, Written};

/// What a database should be.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1alpha1",
    kind = "Database",
    plural = "databases",
    namespaced,
    shortname = "db",
    category = "keelson",
    status = "DatabaseStatus",
    derive = "PartialEq",
    storage = false,
    deprecated = "keelson.dev/v1alpha1 Database is deprecated: write keelson.dev/v1, where the same fields are called spec.replicas, spec.backup.schedule and spec.backup.retention",
    doc = "A database that is installed, kept available, backed up and upgraded by Keelson.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Primary", "type": "string", "jsonPath": ".status.primary"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct DatabaseSpec {
    /// How many instances there are, the primary included.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
    /// When to back up, and how long backups are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupPolicy>,
}

/// When to back up, and how long backups are kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BackupPolicy {
    /// When a backup is made: cron in five fields, such as `0 2 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Written<Schedule>>,
    /// How long backups are kept: `30d`, `12 weeks`, or a number such as `10 backups`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "30d"))]
    pub retention: Option<Written<Retention>>,
}
