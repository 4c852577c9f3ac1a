//! What is known of a database. The operator alone writes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instance::DrillPhase;
use crate::schema::conditions;
use crate::value::{Version, Written, words};

/// What is known of a database.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    /// Where it stands, in one word. The conditions say more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Written<Phase>>,
    /// How many instances there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many of them are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// The instance that takes writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// Host and port to write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The version that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Written<Version>>,
    /// The label selector of its pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Progressing`, `Degraded` and more, each with a reason to look up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// A row an instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub instances: Vec<InstanceStatus>,
    /// The last leaderships, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub leaderships: Vec<Leadership>,
    /// What there is to restore from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupSummary>,
    /// Where programs find what they need to connect, as servicebinding.io has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// What became of the restore in place that was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSummary>,
}

/// Where programs find what they need to connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Stands for the credentials that the primary goes by, and tells nothing of them: another text says that they have
    /// changed, and that the new ones are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

words! {
    /// Where a database stands, in one word.
    Phase, "phase" {
        /// Nothing has been done yet.
        Pending = "Pending",
        /// Its parts are being made.
        Creating = "Creating",
        /// It serves, as asked.
        Running = "Running",
        /// Instances come or go.
        Scaling = "Scaling",
        /// Another version, or other settings, are being rolled out.
        Upgrading = "Upgrading",
        /// Data is being brought back.
        Restoring = "Restoring",
        /// It serves, but not all is as asked.
        Degraded = "Degraded",
        /// It does not serve, and a person is needed.
        Failed = "Failed",
        /// It is being removed.
        Deleting = "Deleting",
    }
}

words! {
    /// What an instance does.
    Role, "role" {
        /// It takes writes.
        Primary = "primary",
        /// It follows, and commits wait for it.
        Synchronous = "synchronous",
        /// It follows.
        Replica = "replica",
        /// It is being made, or made again.
        Joining = "joining",
        /// Nothing is known of it.
        Unknown = "unknown",
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Its pod's name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Written<Role>>,
    /// How many bytes of log it lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<i64>,
    /// The timeline that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// Whether it serves.
    #[serde(default)]
    pub ready: bool,
}

words! {
    /// Why an instance came to be primary.
    Cause, "cause" {
        /// There was no database before.
        First = "First",
        /// It was primary before, and nobody else has been since.
        Again = "Again",
        /// It was given to this instance: somebody asked for it, or the pod of the previous one was to end.
        HandedOver = "HandedOver",
        /// The previous one could not write any more, and let go.
        GaveUp = "PreviousGaveUp",
        /// The previous one said that it had ended.
        Left = "PreviousEnded",
        /// The first process of the previous one was gone.
        Died = "PreviousDied",
        /// Nothing was heard from the previous one.
        Silent = "PreviousSilent",
    }
}

impl Cause {
    /// In words that follow on a name.
    pub fn told(self) -> &'static str {
        match self {
            Cause::First => "is the first primary",
            Cause::Again => "is primary again",
            Cause::HandedOver => "is primary, as was asked for",
            Cause::GaveUp => "is primary, since the one before could not write any more",
            Cause::Left => "is primary, since the one before had ended",
            Cause::Died => "is primary, since the process of the one before was gone",
            Cause::Silent => "is primary, since nothing was heard from the one before",
        }
    }
}

/// A time during which one instance was primary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leadership {
    /// The instance.
    #[schemars(length(max = 63))]
    pub who: String,
    /// Grows by one with each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// When it began to take writes.
    pub since: Time,
    /// Why it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Written<Cause>>,
    /// For how many milliseconds nobody took writes before it, as far as it could see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_millis: Option<i64>,
    /// How many bytes of the previous primary's log it lacked, by what that had last said. Where commits wait
    /// for a quorum, nothing in them was acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_bytes: Option<i64>,
}

/// What became of a restore in place, and what it has put aside.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSummary {
    /// Which: `spec.restore.inPlace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it stands: `Waiting`, `Checking`, `Restoring`, `Done`; `Refused`, where it can't be and nothing was stopped;
    /// `Failed`, where the old data serves again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What stands in its way, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Old data that is kept until somebody says that it may go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub kept: Vec<OldData>,
}

/// Data that a restore in place has put aside: `data.before` on the volume of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OldData {
    /// The instance.
    #[schemars(length(max = 63))]
    pub instance: String,
    /// The restore that has put it aside.
    pub restore: String,
    /// The timeline that it was on: what to name in `restore.to.timeline` to come back to it.
    pub timeline: i64,
    /// When it was put aside.
    pub since: Time,
    /// How much of the volume it takes.
    pub bytes: i64,
}

/// What there is to restore from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSummary {
    /// The newest complete Backup, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<String>,
    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup_time: Option<Time>,
    /// The first moment that can be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_recoverable: Option<Time>,
    /// The last moment that can be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_recoverable: Option<Time>,
    /// How many bytes of log wait to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_lag_bytes: Option<i64>,
    /// When a rehearsed restore last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drill: Option<Time>,
    /// How many seconds that took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drill_seconds: Option<i64>,
    /// The drill under way and the last one, and what it found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillSummary>,
    /// When the next backup is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_backup: Option<Time>,
}

/// How it stands with rehearsed restores.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillSummary {
    /// The one under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<DrillRunning>,
    /// The last one that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<DrillResult>,
    /// When the next one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
    /// What keeps one from beginning that is due or asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The text of the annotation `keelson.dev/drill` that was last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// A drill under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillRunning {
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// How far it is.
    pub phase: Written<DrillPhase>,
    /// What keeps its pod from starting, as the cluster says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a drill went, and what it proves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillResult {
    /// The uid of its pod.
    #[serde(default)]
    pub run: String,
    /// Whether all was well.
    #[serde(default)]
    pub passed: bool,
    /// In a word that one can search a runbook for.
    #[serde(default)]
    pub reason: String,
    /// In a sentence.
    #[serde(default)]
    pub message: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// The backup that was restored, by its name in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// The timeline on which the log was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// The place in the log up to which it was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_log: Option<String>,
    /// After how many seconds the database answered: the observed RTO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rto_seconds: Option<i64>,
    /// How old the newest mark was that was found when the drill began, in seconds: the observed RPO. In a
    /// database that nobody has written to, the time since somebody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpo_seconds: Option<i64>,
    /// When the newest mark was written that was found. All is there that was committed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_until: Option<Time>,
    /// How many marks were found, without a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<i64>,
    /// How many pages have the right checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<i64>,
    /// How many databases were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databases: Option<i64>,
    /// How many tables are consistent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<i64>,
    /// How many indexes are consistent and have each row of their tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes: Option<i64>,
    /// How many indexes are of kinds that nothing is known to check with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes_passed_over: Option<i64>,
}
