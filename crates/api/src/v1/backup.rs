//! One backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::schema::{conditions, validations};
use crate::value::{Written, words};

/// What to back up.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1",
    kind = "Backup",
    plural = "backups",
    namespaced,
    category = "keelson",
    status = "BackupStatus",
    derive = "PartialEq",
    doc = "One backup of a Database, made on schedule or asked for by creating it.",
    printcolumn = r#"{"name": "Database", "type": "string", "jsonPath": ".spec.database"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Method", "type": "string", "jsonPath": ".status.method"}"#,
    printcolumn = r#"{"name": "Bytes", "type": "integer", "jsonPath": ".status.storedBytes"}"#,
    printcolumn = r#"{"name": "Verified", "type": "date", "jsonPath": ".status.verified.time"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::BACKUP)))]
pub struct BackupSpec {
    /// The Database of this namespace, by name.
    #[schemars(length(min = 1, max = 63))]
    pub database: String,
    /// `full` or `incremental`. Without it, what the database's policy says is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Written<BackupMethod>>,
    /// Keeps it whatever the database's retention says, until this object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}

words! {
    /// How much is copied.
    BackupMethod, "backup method" {
        /// Everything.
        Full = "full",
        /// What has changed since the backup before.
        Incremental = "incremental",
    }
}

words! {
    /// Where a backup stands.
    BackupPhase, "backup phase" {
        /// It waits for its turn.
        Pending = "Pending",
        /// Data is being copied.
        Running = "Running",
        /// It can be restored.
        Complete = "Complete",
        /// It can't.
        Failed = "Failed",
        /// It is being removed from the repository.
        Deleting = "Deleting",
    }
}

/// What is known of a backup.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Written<BackupPhase>>,
    /// How it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Written<BackupMethod>>,
    /// Its name in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The instance that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// How many bytes were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<i64>,
    /// How many bytes there are to read, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<i64>,
    /// How many bytes it takes in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    /// What it can bring back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The last time that it was tried, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verification>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What holds now, with reasons to look up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// From when to when data can be brought back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The first moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// The last moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Time>,
}

/// A restore that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// When.
    pub time: Time,
    /// How, such as `drill` or `checksums`.
    pub how: String,
    /// Whether it came out well.
    pub passed: bool,
    /// How many seconds it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}
