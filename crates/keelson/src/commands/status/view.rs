//! What is shown of databases, as values.

use jiff::Timestamp;
use serde::Serialize;

use super::lease::LeaseView;

/// In a word. Ordered from the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All is as asked.
    Well,
    /// It does not serve yet, and nothing is wrong.
    UnderWay,
    /// Something is wrong.
    Wrong,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// In a word.
    pub verdict: Verdict,
    /// The program, and the version that runs.
    pub version: String,
    /// How many instances serve.
    pub ready: i32,
    /// How many there are to be.
    pub replicas: i32,
    /// Where it stands.
    pub phase: String,
    /// The instance that takes writes.
    pub primary: Option<String>,
    /// For how long it has been there.
    pub age_seconds: i64,
    /// How long ago the newest complete backup ended.
    pub backup_seconds_ago: Option<i64>,
    /// What is wrong, in a word.
    pub reason: Option<String>,
}

/// All that is known of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseView {
    /// What the table has of it.
    #[serde(flatten)]
    pub row: Row,
    /// The same as in the row.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Where to write to.
    pub endpoint: Option<String>,
    /// Whether the status speaks of the spec as it is now.
    pub is_seen: bool,
    /// What is under way.
    pub progress: Option<String>,
    /// What is wrong, the worst first.
    pub problems: Vec<Problem>,
    /// Its instances, the primary first.
    pub instances: Vec<InstanceView>,
    /// Who leads, and who may.
    pub lease: Option<LeaseView>,
    /// What there is to restore from, where backups are asked for.
    pub backups: Option<BackupsView>,
    /// The last leaderships, the newest first.
    pub leaderships: Vec<LeadershipView>,
    /// What happened lately, the newest last.
    pub events: Vec<EventView>,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The condition that says so.
    pub condition: String,
    /// In a word to look up.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// For how long.
    pub since_seconds: i64,
    /// What to do.
    pub hint: Option<String>,
    /// Where more is said.
    pub docs: Option<String>,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// Its pod.
    pub name: String,
    /// What it does.
    pub role: String,
    /// Whether it serves.
    pub ready: bool,
    /// How many bytes of log it lacks.
    pub lag_bytes: Option<i64>,
    /// The timeline that it is on.
    pub timeline: Option<i64>,
    /// The node that it runs on.
    pub node: Option<String>,
    /// The size of its volume.
    pub volume: Option<String>,
    /// How often its container was started anew.
    pub restarts: i32,
    /// For how long its pod has been there.
    pub age_seconds: Option<i64>,
    /// What keeps it from starting, as the cluster says.
    pub waits: Option<String>,
}

/// What there is to restore from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupsView {
    /// The newest complete one.
    pub last: Option<String>,
    /// How long ago it ended.
    pub last_seconds_ago: Option<i64>,
    /// In how many seconds the next is due.
    pub next_in_seconds: Option<i64>,
    /// One that is being made, and how far it is in percent.
    pub running: Option<(String, Option<i64>)>,
    /// The last one that failed after the newest complete one.
    pub failed: Option<String>,
    /// How many are complete.
    pub complete: usize,
    /// The first moment that can be restored.
    pub first_recoverable: Option<Timestamp>,
    /// The last moment that can be restored.
    pub last_recoverable: Option<Timestamp>,
    /// How many bytes of log wait to be sent.
    pub archive_lag_bytes: Option<i64>,
    /// How long ago a rehearsed restore last succeeded.
    pub drill_seconds_ago: Option<i64>,
    /// How long that took.
    pub drill_seconds: Option<i64>,
}

/// A time during which one instance was primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadershipView {
    /// The instance.
    pub who: String,
    /// Which one it was.
    pub epoch: Option<i64>,
    /// When it began.
    pub since: Timestamp,
    /// Why.
    pub why: String,
    /// For how many milliseconds nobody took writes before.
    pub gap_millis: Option<i64>,
    /// How much of the log of the one before it lacked.
    pub lost_bytes: Option<i64>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// When it happened last.
    pub time: Timestamp,
    /// Whether somebody should look.
    pub warning: bool,
    /// To what.
    pub about: String,
    /// In a word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// How often.
    pub count: i32,
}
