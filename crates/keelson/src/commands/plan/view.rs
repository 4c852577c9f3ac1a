//! What would be done, as values: from facts alone.

use keelson_api::instance::{Names, SETTINGS_KEY};
use keelson_api::v1::DeletionPolicy;
use keelson_operator::NAME;
use keelson_operator::annotations::ASKED;
use keelson_operator::database::backups::BackupStep;
use keelson_operator::database::foretell::Told;
use keelson_operator::database::plan::Step;
use keelson_operator::database::unbuilt::without_effect;
use serde::Serialize;
use serde_json::{Value, json};

use super::diff::{self, Change};
use super::facts::{ChildFact, Facts};
use crate::commands::words::{count, listed};

/// In a word. Ordered from the lightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All is as it should be.
    Nothing,
    /// Something changes, and no instance is disturbed.
    Changes,
    /// Instances restart, or leadership moves.
    Restarts,
    /// The cluster, or the operator, would not do it.
    Refused,
}

/// What would be done about one Database.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Whether it is there already.
    pub exists: bool,
    /// In a word.
    pub verdict: Verdict,
    /// Why nothing would be done.
    pub refused: Option<Refusal>,
    /// What is asked for that was not.
    pub asked: Vec<Change>,
    /// Children that are made or changed.
    pub children: Vec<ChildView>,
    /// What is done then, in this order.
    pub steps: Vec<StepView>,
    /// What it would wait for that nobody can foretell.
    pub waits: Option<String>,
    /// What is asked for and of no effect.
    pub without_effect: Vec<String>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
}

/// Why nothing would be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Who says so.
    pub by: &'static str,
    /// In a word to look up.
    pub reason: Option<String>,
    /// In a sentence.
    pub message: String,
}

/// A child that is made or changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildView {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether it is made.
    pub made: bool,
    /// What of it changes.
    pub changes: Vec<Change>,
}

/// Something that is done to one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// In a word.
    pub what: &'static str,
    /// To which object.
    pub object: String,
    /// In a sentence.
    pub words: String,
    /// Whether clients feel it.
    pub disturbs: bool,
}

/// What would be done.
pub fn view(facts: &Facts) -> PlanView {
    let Facts { proposal, seen, story, .. } = facts;
    let mut notes = proposal.notes.clone();
    notes.extend(facts.children.iter().filter_map(|child| child.unread.clone()));
    let refused = refusal(facts);
    let asked = proposal.live.as_ref().map_or_else(Vec::new, |live| {
        let (from, to) = (json!({"spec": live.spec}), json!({"spec": proposal.next.spec}));
        diff::whole(&from, &to)
    });
    let mut children: Vec<ChildView> = Vec::new();
    let mut steps: Vec<StepView> = Vec::new();
    if refused.is_none() {
        if story.first.secrets.is_some() {
            children.push(secrets(facts));
        }
        children.extend(facts.children.iter().filter_map(child));
        steps.extend(story.turns.iter().flat_map(|told| in_words(told, facts)));
        steps.extend(story.first.backups.iter().filter_map(backup));
    }
    let waits = story
        .last
        .findings
        .iter()
        .find(|one| one.kind == "Progressing" && one.message.contains("wait") && refused.is_none());
    let verdict = match &refused {
        Some(_) => Verdict::Refused,
        None if steps.iter().any(|step| step.disturbs) => Verdict::Restarts,
        None if !(asked.is_empty() && children.is_empty() && steps.is_empty()) => Verdict::Changes,
        None => Verdict::Nothing,
    };
    PlanView {
        namespace: seen.namespace.clone(),
        name: seen.name.clone(),
        exists: proposal.live.is_some(),
        waits: waits.map(|one| one.message.clone()),
        without_effect: without_effect(&seen.spec).iter().map(|field| format!("spec.{field}")).collect(),
        verdict,
        refused,
        asked,
        children,
        steps,
        notes,
    }
}

fn refusal(facts: &Facts) -> Option<Refusal> {
    if let Some(message) = &facts.proposal.refused {
        return Some(Refusal { by: "the cluster", reason: None, message: message.clone() });
    }
    if facts.story.first.wanted.is_some() {
        return None;
    }
    let said =
        facts.story.first.findings.iter().find(|one| one.kind == "Degraded" && one.holds == Some(true));
    let said = said.or_else(|| facts.story.first.findings.iter().find(|one| one.kind == "Ready"));
    let (reason, message) =
        said.map_or((None, String::new()), |one| (Some(one.reason.clone()), one.message.clone()));
    Some(Refusal { by: "the operator", reason, message })
}

/// What is in them nobody is told.
fn secrets(facts: &Facts) -> ChildView {
    let names = Names(&facts.seen.name);
    let all = [names.superuser(), names.replication(), names.app(), names.tls()];
    let why = if facts.rotates { "other passwords and another key" } else { "passwords and a key" };
    let change = Change { field: why.to_owned(), from: None, to: None };
    ChildView {
        kind: "Secrets".to_owned(),
        name: listed(&all),
        made: facts.seen.config.is_none(),
        changes: vec![change],
    }
}

fn child(fact: &ChildFact) -> Option<ChildView> {
    if fact.unread.is_some() {
        return None;
    }
    let (kind, name) = (fact.kind.clone(), fact.name.clone());
    let Some(found) = &fact.found else {
        return Some(ChildView { kind, name, made: true, changes: Vec::new() });
    };
    let (there, wanted) = (opened(found), opened(&fact.desired));
    let mut changes = diff::within(&there, &wanted);
    changes.extend(diff::removed(found, &fact.desired, NAME));
    // It stands for what is shown beside it.
    changes.retain(|change| !change.field.ends_with(ASKED));
    // What agents are told is told as a whole: what is not in it any more is gone.
    let settings = |value: &Value| value["data"].get(SETTINGS_KEY).cloned().unwrap_or_default();
    if fact.kind == "ConfigMap" {
        changes.retain(|change| !change.field.starts_with("data"));
        changes.extend(diff::whole(
            &json!({"settings": settings(&there)}),
            &json!({"settings": settings(&wanted)}),
        ));
    }
    (!changes.is_empty()).then_some(ChildView { kind, name, made: false, changes })
}

/// With the settings of agents as the JSON that they are.
fn opened(value: &Value) -> Value {
    let mut opened = value.clone();
    for part in ["metadata", "status"] {
        let kept = match part {
            "metadata" => json!({"labels": value["metadata"]["labels"]}),
            _ => Value::Null,
        };
        opened[part] = kept;
    }
    let text = value["data"][SETTINGS_KEY].as_str();
    if let Some(settings) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        opened["data"][SETTINGS_KEY] = settings;
    }
    opened
}

fn in_words(told: &Told, facts: &Facts) -> Vec<StepView> {
    let names = Names(&facts.seen.name);
    let step = |what, object: &str, words: String, disturbs| {
        vec![StepView { what, object: object.to_owned(), words, disturbs }]
    };
    match told {
        Told::Scale { from: 0, to } => {
            let words = format!("{} made, with a volume each", are(*to, "instance"));
            step("make", &facts.seen.name, words, false)
        }
        Told::Scale { from, to } if from < to => {
            let new: Vec<String> = (*from..*to).map(|ordinal| names.pod(ordinal)).collect();
            let verb = if new.len() == 1 { "is" } else { "are" };
            step(
                "add",
                &facts.seen.name,
                format!("{} {verb} added, and copied from the primary", listed(&new)),
                false,
            )
        }
        Told::Scale { from, to } => {
            let gone: Vec<String> = (*to..*from).map(|ordinal| names.pod(ordinal)).collect();
            let policy = facts.seen.spec.deletion_policy.as_ref().and_then(|policy| policy.parse().ok());
            let volumes = match policy {
                Some(DeletionPolicy::Delete) => "the volume of each goes with it",
                _ => "the volume of each stays",
            };
            let verb = if gone.len() == 1 { "is" } else { "are" };
            step("remove", &facts.seen.name, format!("{} {verb} removed; {volumes}", listed(&gone)), true)
        }
        Told::Take(taken) => taken_in_words(taken, facts),
    }
}

fn are(number: u32, one: &str) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", count(number as usize, one))
}

fn taken_in_words(taken: &Step, facts: &Facts) -> Vec<StepView> {
    let step = |what, object: &str, words: String, disturbs| {
        vec![StepView { what, object: object.to_owned(), words, disturbs }]
    };
    let leads = |pod: &str| facts.seen.leader() == Some(pod);
    let alone = facts.seen.instances.len() <= 1;
    match taken {
        Step::Adopt { claim, .. } => step(
            "adopt",
            claim,
            format!("{claim}, which an older Database has left, becomes this one's"),
            false,
        ),
        Step::Grow { claim, to } => step("grow", claim, format!("{claim} grows to {to}"), false),
        Step::RemoveClaim { claim, .. } => {
            step("removeVolume", claim, format!("{claim} is removed, with the data on it"), false)
        }
        Step::Remake { .. } => {
            let words = "the StatefulSet is made again for larger volumes; its pods go on".to_owned();
            step("remake", &facts.seen.name, words, false)
        }
        Step::HandOver { from, to } => step(
            "handOver",
            from,
            format!("{from} hands over to {to}; writes wait for a moment, and none is lost"),
            true,
        ),
        Step::Restart { pod, .. } => {
            let cost = if leads(pod) && alone { ", and takes no writes meanwhile" } else { "" };
            step("restart", pod, format!("{pod} restarts its PostgreSQL{cost}"), true)
        }
        Step::Replace { pod, .. } => {
            let cost = if leads(pod) && alone { "; nobody takes writes meanwhile" } else { "" };
            step("replace", pod, format!("{pod} gets a new pod, and keeps its volume{cost}"), true)
        }
    }
}

fn backup(taken: &BackupStep) -> Option<StepView> {
    let (what, name, words) = match taken {
        BackupStep::Make { name } => ("backUp", name, format!("the backup {name} is made: it is due")),
        BackupStep::Remove { name, .. } => {
            ("removeBackup", name, format!("the Backup {name} is removed: the repository no longer has it"))
        }
        BackupStep::Say { .. } => return None,
    };
    Some(StepView { what, object: name.clone(), words, disturbs: false })
}
