//! Whether, when and where a database is backed up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Repository;
use crate::value::{Retention, Schedule, Size, Span, Written};

/// Whether, when and where to back up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// Whether there are backups. Without it, yes if anything else here is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When a base backup is made: cron in five fields, such as `0 2 * * *`. Default `0 2 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Written<Schedule>>,
    /// The time zone of the schedules, such as `Europe/Berlin`. Without it, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: Option<String>,
    /// How long backups are kept: `30d`, `12 weeks`, or a number such as `10 backups`. Default 30d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Written<Retention>>,
    /// Where backups go. Without it a condition says that they have no place to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Repository>,
    /// How much of the newest data may be lost if everything but the repository is: the log is sent at
    /// least this often. Default 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_data_loss: Option<Written<Span>>,
    /// How many incremental backups may follow a full one. Default 6; 0 makes every backup full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub incrementals: Option<i32>,
    /// How many bytes a second a backup may read, such as `100Mi`. Without it, as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Written<Size>>,
    /// Rehearsals: restores of the newest backup into a throw-away instance that is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<Drill>,
}

/// A rehearsed restore.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// Whether there are rehearsals. Without it, yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When: cron in five fields, in the policy's time zone. Default `0 4 * * 0`, Sundays at four.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Written<Schedule>>,
    /// How long one may take before it counts as failed. Default 6h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Written<Span>>,
}
