//! What operator and agents tell each other about restores in place.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::RestoreRule;

/// A restore in place that is to be carried out, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRule {
    /// Which: another name is another restore.
    pub name: String,
    /// From where, and up to where.
    #[serde(flatten)]
    pub rule: RestoreRule,
}

/// Where a restore in place stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum InPlaceStage {
    /// It is looked whether it can be; the database goes on meanwhile.
    #[default]
    Checking,
    /// The database has stopped, and data is being brought back.
    Restoring,
    /// It can't be; the database has gone on.
    Refused,
    /// It was begun and came to nothing; the old data serves.
    Failed,
    /// It is done.
    Done,
}

impl InPlaceStage {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            InPlaceStage::Checking => "Checking",
            InPlaceStage::Restoring => "Restoring",
            InPlaceStage::Refused => "Refused",
            InPlaceStage::Failed => "Failed",
            InPlaceStage::Done => "Done",
        }
    }

    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        matches!(self, InPlaceStage::Refused | InPlaceStage::Failed | InPlaceStage::Done)
    }
}

impl<'de> Deserialize<'de> for InPlaceStage {
    /// A word that is not known yet claims nothing.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<InPlaceStage, D::Error> {
        let word = String::deserialize(from)?;
        use InPlaceStage::{Checking, Done, Failed, Refused, Restoring};
        let known =
            [Checking, Restoring, Refused, Failed, Done].into_iter().find(|stage| stage.as_str() == word);
        Ok(known.unwrap_or_default())
    }
}

/// How it stands with a restore in place, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InPlaceReport {
    /// Which.
    pub name: String,
    /// Where it stands.
    pub stage: InPlaceStage,
    /// What is wrong, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence that says what to do. Nothing secret is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Data that a restore in place has put aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptReport {
    /// The restore that has taken its place.
    pub restore: String,
    /// The timeline that it was on.
    pub timeline: u32,
    /// When it was put aside.
    pub since: Timestamp,
    /// How much of the volume it takes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stage_that_is_not_known_yet_claims_nothing() {
        let read: InPlaceReport = serde_json::from_value(json!({"name": "x", "stage": "Dreaming"})).unwrap();
        assert_eq!(read.stage, InPlaceStage::Checking);
        let done = InPlaceReport { name: "x".into(), stage: InPlaceStage::Done, ..InPlaceReport::default() };
        let text = serde_json::to_string(&done).unwrap();
        assert_eq!(serde_json::from_str::<InPlaceReport>(&text).unwrap(), done);
    }

    #[test]
    fn an_order_says_where_from_and_where_to_in_one_object() {
        let order =
            json!({"name": "x", "from": {"repository": {"folder": {"claim": "disk"}}}, "to": {"lsn": "0/1"}});
        let read: InPlaceRule = serde_json::from_value(order.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), order);
    }
}
