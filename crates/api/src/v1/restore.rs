//! Starting from data that exists.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Repository, rules};
use crate::schema::{NAME, validations};
use crate::value::Written;

/// Where a new database takes its first data from; or, with `inPlace`, the moment to which one that is there goes back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::RESTORE)))]
pub struct Restore {
    /// What is restored. With `inPlace` it may be left out, or name a Backup of this Database: it goes back within its own
    /// repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RestoreSource>,
    /// Up to which moment. Without it, the latest there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RestoreTarget>,
    /// Restores the database that is there, under its own name, and keeps the old data beside it. Any text that names this
    /// restore: it is carried out once, and another text is another restore. It may be added and changed at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
    pub in_place: Option<String>,
}

/// What is restored: exactly one of the three.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::RESTORE_SOURCE)))]
pub struct RestoreSource {
    /// A Backup of this namespace, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub backup: Option<String>,
    /// A Database of this namespace, by name: its repository is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub database: Option<String>,
    /// A repository, also of a database that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
}

/// A moment in the past of a database: at most one of `time`, `lsn` and `name`; none is the latest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::RESTORE_TARGET)))]
pub struct RestoreTarget {
    /// A time, such as `2026-11-16T09:30:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    #[schemars(with = "Option<String>")]
    pub time: Option<Written<Timestamp>>,
    /// A place in the log, such as `0/3000060`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = "^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"))]
    pub lsn: Option<String>,
    /// A point that was named with `pg_create_restore_point`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// The timeline on which that is, such as the one that a restore has left. Without it, the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeline: Option<i64>,
}
