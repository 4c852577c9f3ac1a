//! Conditions of an object's status: what holds, since when, why.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a controller has found to hold, before it is known whether that is news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `Ready`, `Progressing`, `Degraded`, …
    pub kind: String,
    /// `Some(true)`, `Some(false)`, or unknown.
    pub holds: Option<bool>,
    /// One word that a person can search a runbook for.
    pub reason: String,
    /// A sentence for the person who reads it.
    pub message: String,
}

impl Finding {
    fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// The conditions that follow from the findings. Transition times are kept where the status has not
/// changed, conditions that nobody has found anything about are kept as they are, and so is the
/// order: the same findings give the same conditions, and nothing needs to be written.
pub fn merge(
    current: &[Condition],
    findings: &[Finding],
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut merged = current.to_vec();
    for finding in findings {
        let known = merged.iter_mut().find(|condition| condition.type_ == finding.kind);
        match known {
            Some(condition) => {
                if condition.status != finding.status() {
                    condition.status = finding.status().to_owned();
                    condition.last_transition_time = now.clone();
                }
                condition.reason.clone_from(&finding.reason);
                condition.message.clone_from(&finding.message);
                condition.observed_generation = generation;
            }
            None => merged.push(Condition {
                type_: finding.kind.clone(),
                status: finding.status().to_owned(),
                reason: finding.reason.clone(),
                message: finding.message.clone(),
                observed_generation: generation,
                last_transition_time: now.clone(),
            }),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn finding(kind: &str, holds: bool, reason: &str) -> Finding {
        Finding { kind: kind.into(), holds: Some(holds), reason: reason.into(), message: String::new() }
    }

    #[test]
    fn a_time_changes_with_the_status_and_not_with_the_reason() {
        let first = merge(&[], &[finding("Ready", false, "Starting")], Some(1), &at(1));
        let second = merge(&first, &[finding("Ready", false, "StillStarting")], Some(1), &at(2));
        assert_eq!(second[0].last_transition_time, at(1));
        assert_eq!(second[0].reason, "StillStarting");
        let third = merge(&second, &[finding("Ready", true, "Serving")], Some(2), &at(3));
        assert_eq!((&third[0].last_transition_time, third[0].observed_generation), (&at(3), Some(2)));
    }

    #[test]
    fn the_same_findings_give_the_same_conditions() {
        let findings = [finding("Ready", true, "Serving"), finding("Degraded", false, "AllWell")];
        let once = merge(&[], &findings, Some(4), &at(1));
        assert_eq!(merge(&once, &findings, Some(4), &at(99)), once);
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let others = merge(&[], &[finding("SomebodyElses", true, "X")], None, &at(1));
        let merged = merge(&others, &[finding("Ready", true, "Serving")], Some(1), &at(2));
        assert_eq!(merged[0], others[0]);
        assert_eq!(merged.len(), 2);
    }
}
