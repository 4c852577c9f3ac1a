//! What operator and a drill tell each other: a restore into a throw-away instance, which is told what to do when it is
//! made and says on its own pod how far it is and what it found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Store, annotations};
use crate::value::{Written, words};

/// The environment variable with a [`DrillRule`] as JSON. Nothing secret is in it.
pub const DRILL_VARIABLE: &str = "KEELSON_DRILL";

/// Words for [`DrillReport::reason`], besides those of [`backup_reasons`](super::backup_reasons).
pub mod drill_reasons {
    /// All went well.
    pub const SUCCEEDED: &str = "DrillSucceeded";
    /// It took longer than it may.
    pub const TIMED_OUT: &str = "DrillTimedOut";
    /// Its pod ended and had not said how it went.
    pub const BROKEN_OFF: &str = "DrillBrokenOff";
    /// The log could not be replayed, or PostgreSQL does not start on what came of it.
    pub const RESTORE_FAILED: &str = "RestoreFailed";
    /// Pages, tables or indexes are damaged in what was restored.
    pub const DAMAGED: &str = "RestoredDataDamaged";
    /// Marks that were written before are not in what was restored.
    pub const MARKS_MISSING: &str = "RestoredDataIncomplete";
}

/// What a drill is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillRule {
    /// The repository that is read.
    pub from: Store,
    /// Settings of the database program, which may need some of them to replay its log.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Whether the primary writes marks.
    #[serde(default)]
    pub marks: bool,
}

/// A row that the primary writes now and then, so that it can be looked for in what was restored: where it is, all is
/// that was committed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// One more than the one before.
    pub number: i64,
    /// When it was written.
    pub at: Timestamp,
}

/// What agents are told of drills, for those who watch over the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillNote {
    /// When one last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// Whether the last one failed.
    #[serde(default)]
    pub failing: bool,
}

words! {
    /// How far a drill is.
    DrillPhase, "drill phase" {
        /// Its pod is not there yet.
        Starting = "Starting",
        /// The backup is brought back and the log replayed.
        Restoring = "Restoring",
        /// The database answers and is looked at.
        Checking = "Checking",
        /// All is well.
        Succeeded = "Succeeded",
        /// It is not.
        Failed = "Failed",
    }
}

/// What a drill says on its pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillReport {
    /// How far it is.
    pub phase: Written<DrillPhase>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// The name in the repository of the backup that it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// After how many seconds the database answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_seconds: Option<u64>,
    /// On which timeline the log was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<u32>,
    /// Up to where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_log: Option<String>,
    /// The newest mark that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// How old that was when the drill began, in seconds: what would have been lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_seconds: Option<u64>,
    /// What was looked at.
    #[serde(default)]
    pub checks: DrillChecks,
    /// What went wrong, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence. Nothing secret is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl DrillReport {
    /// One that has just begun.
    pub fn begun(started: Timestamp) -> DrillReport {
        DrillReport {
            phase: Written::of(&DrillPhase::Restoring),
            started,
            finished: None,
            backup: None,
            answered_seconds: None,
            timeline: None,
            end_of_log: None,
            mark: None,
            lost_seconds: None,
            checks: DrillChecks::default(),
            reason: None,
            problem: None,
        }
    }
}

/// What a drill has looked at and found to be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrillChecks {
    /// Pages whose checksums are right. None where the database has no checksums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// Databases.
    pub databases: u64,
    /// Tables that are consistent, each row of them.
    pub tables: u64,
    /// Indexes that are consistent, and have each row of their table.
    pub indexes: u64,
    /// Indexes of kinds that nothing is known to check with.
    pub passed_over: u64,
    /// Marks.
    pub marks: u64,
}

/// What to write onto a Database to have a drill now, as a merge patch. Any text that was not written before will do.
pub fn ask_for_drill(text: &str) -> Value {
    json!({"metadata": {"annotations": {annotations::DRILL: text}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_newer_drill_is_read_too() {
        let read: DrillReport = serde_json::from_value(json!({
            "phase": "Dreaming", "started": "2026-11-16T12:00:00Z", "colour": "blue", "checks": {"tables": 3, "dreams": 1}
        }))
        .unwrap();
        assert!(read.phase.parse().is_err() && read.checks.tables == 3);
        let begun = DrillReport::begun(Timestamp::UNIX_EPOCH);
        assert_eq!(serde_json::from_value::<DrillReport>(json!(begun)).unwrap(), begun);
    }

    #[test]
    fn who_asks_for_a_drill_writes_one_annotation() {
        assert_eq!(ask_for_drill("now"), json!({"metadata": {"annotations": {"keelson.dev/drill": "now"}}}));
    }
}
