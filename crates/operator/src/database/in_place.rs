//! A restore in place: `spec.restore.inPlace` names it, agents are told of it until it has come to its end, and what they
//! say of it becomes the status. A name is carried out once, whatever becomes of the spec, the status or this process:
//! which have ended is kept in the ConfigMap, with what agents are told.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::{InPlaceReport, InPlaceRule, InPlaceStage, RestoreRule, Store, Use, annotations};
use keelson_api::v1::{OldData, RestoreSettings, RestoreSource, RestoreSummary, Settings};
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::facts::Observed;
use super::restore;
use super::status::News;

/// The condition that tells of restores in place, where there was one.
pub(super) const RESTORED: &str = "RestoredInPlace";
/// So many names are kept of restores that have ended.
const NAMES: usize = 100;
/// Agents have not been heard of it yet.
const WAITING: &str = "Waiting";

/// What is to be done about restores in place, and what is to be said.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decided {
    /// The one that agents are to carry out.
    pub rule: Option<InPlaceRule>,
    /// Those that are not to be carried out any more.
    pub settled: Vec<String>,
    /// Whether the database has stopped for one.
    pub under_way: bool,
    /// For the status.
    pub summary: Option<RestoreSummary>,
    /// The reason to name in the condition.
    reason: Option<String>,
}

/// What to do.
pub(super) fn decide(seen: &Observed, settings: &Settings) -> Decided {
    let asked = settings.restore.as_ref().and_then(|restore| Some((restore.in_place.clone()?, restore)));
    let told = told(seen);
    let settled = settled(seen, asked.as_ref().map(|(name, _)| name), told);
    let open = asked.as_ref().filter(|(name, _)| !settled.contains(name) && restore::is_there(seen));
    let (rule, missing) = match open.map(|(name, restore)| rule(seen, settings, name, restore)) {
        Some(Ok(rule)) => (Some(rule), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let told = told.filter(|told| asked.as_ref().is_some_and(|(name, _)| *name == told.name));
    let restoring = told.is_some_and(|told| told.stage == InPlaceStage::Restoring);
    let under_way = restoring && rule.is_some();
    let reason =
        told.and_then(|told| told.reason.clone()).or_else(|| missing.as_ref().map(|_| "NoSource".to_owned()));
    let name = asked.map(|(name, _)| name);
    let summary = summary(seen, name, told, missing, rule.is_some());
    Decided { rule, settled, under_way, summary, reason }
}

/// What whoever leads says.
fn told(seen: &Observed) -> Option<&InPlaceReport> {
    let reports = seen.instances.iter().filter_map(|instance| instance.report.as_ref());
    reports.filter(|report| report.in_place.is_some()).max_by_key(|report| report.epoch)?.in_place.as_ref()
}

/// Those that have ended. Where nobody has been told anything yet, what the spec names is of the past: it came along with
/// a manifest, or agents lost what they were told.
fn settled(seen: &Observed, asked: Option<&String>, told: Option<&InPlaceReport>) -> Vec<String> {
    let mut settled = match &seen.config {
        Some(config) => config.settled_restores.clone(),
        None => asked.cloned().into_iter().collect(),
    };
    if let Some(over) = told.filter(|told| told.stage.is_over() && !settled.contains(&told.name)) {
        settled.push(over.name.clone());
    }
    let many = settled.len().saturating_sub(NAMES);
    settled.split_off(many)
}

/// The order, from the database's own repository.
fn rule(
    seen: &Observed,
    settings: &Settings,
    name: &str,
    restore: &RestoreSettings,
) -> Result<InPlaceRule, String> {
    let to = settings.backup.as_ref().and_then(|backup| backup.to.as_ref());
    let to = to.ok_or("there is nothing to restore from: spec.backup.to names no place")?;
    let backup = match &restore.from {
        Some(RestoreSource { backup: Some(name), .. }) => {
            let found =
                seen.backups.iter().find(|backup| backup.name == *name && backup.spec.database == seen.name);
            let id = found.and_then(|backup| backup.status.id.clone());
            Some(id.ok_or_else(|| {
                format!("there is no complete Backup {name} of this Database: name another")
            })?)
        }
        _ => None,
    };
    let from = Store::of(to, &seen.namespace, &seen.name, Use::BackUp);
    let rule = RestoreRule { from, backup, to: restore::point(&restore.to), timeline: restore.timeline };
    Ok(InPlaceRule { name: name.to_owned(), rule })
}

fn summary(
    seen: &Observed,
    asked: Option<String>,
    told: Option<&InPlaceReport>,
    missing: Option<String>,
    ordered: bool,
) -> Option<RestoreSummary> {
    let before = seen.status.restore.clone().unwrap_or_default();
    let same = before.name == asked;
    let over = |stage: &String| matches!(stage.as_str(), "Done" | "Refused" | "Failed");
    let (name, stage, message) = match told {
        // Who leads after whoever ended it knows that it is over, and not how.
        _ if same && asked.is_some() && before.stage.as_ref().is_some_and(over) => {
            (before.name, before.stage, before.message)
        }
        Some(told) => (asked, Some(told.stage.as_str().to_owned()), told.problem.clone()),
        None if missing.is_some() => (asked, Some(WAITING.to_owned()), missing),
        None if ordered && !same => (asked, Some(WAITING.to_owned()), None),
        // One that was withdrawn before it began.
        None if asked.is_none() && before.stage.as_deref() == Some(WAITING) => (None, None, None),
        // While nobody leads, or nothing is asked for any more, what was said stays.
        None => (before.name, before.stage, before.message),
    };
    let summary = RestoreSummary { name, stage, message, kept: kept(seen) };
    (summary != RestoreSummary::default()).then_some(summary)
}

/// What was said, while nothing can be decided; but for one that was withdrawn before it began.
pub(super) fn so_far(seen: &Observed) -> Option<RestoreSummary> {
    let summary = seen.status.restore.clone()?;
    let asked = seen.spec.restore.as_ref().and_then(|restore| restore.in_place.as_deref());
    if summary.stage.as_deref() != Some(WAITING) || summary.name.as_deref() == asked {
        return Some(summary);
    }
    let left = RestoreSummary { kept: summary.kept, ..RestoreSummary::default() };
    (left != RestoreSummary::default()).then_some(left)
}

/// Old data, as agents say; of an instance that is not there, as was last said.
fn kept(seen: &Observed) -> Vec<OldData> {
    let before = seen.status.restore.as_ref().map(|restore| restore.kept.as_slice()).unwrap_or_default();
    let reports = seen.instances.iter().filter_map(|one| Some((one.name.clone(), one.report.as_ref()?)));
    let mut kept: Vec<OldData> = reports
        .filter_map(|(instance, report)| {
            let kept = report.kept.as_ref()?;
            Some(OldData {
                instance,
                restore: kept.restore.clone(),
                timeline: kept.timeline.into(),
                since: Time(kept.since),
                bytes: i64::try_from(kept.bytes).unwrap_or(i64::MAX),
            })
        })
        .collect();
    let silent =
        |old: &&OldData| !seen.instances.iter().any(|one| one.name == old.instance && one.report.is_some());
    kept.extend(before.iter().filter(silent).cloned());
    kept.sort_by(|one, other| one.instance.cmp(&other.instance));
    kept
}

/// What became of the last one.
pub(super) fn finding(decided: &Decided) -> Option<Finding> {
    let summary = decided.summary.as_ref()?;
    let (name, stage) = (summary.name.as_deref()?, summary.stage.as_deref()?);
    let (holds, said) = match stage {
        "Done" => (true, "the database was brought back"),
        "Restoring" => (false, "the database is being brought back, and takes no writes meanwhile"),
        "Refused" => (false, "it can't be, and nothing was stopped for it"),
        "Failed" => (false, "it came to nothing, and the old data serves"),
        _ => (false, "it is looked whether it can be, and the database goes on meanwhile"),
    };
    let over = matches!(stage, "Refused" | "Failed");
    let reason = decided.reason.clone().filter(|_| !holds).unwrap_or_else(|| stage.to_owned());
    let mut message = format!("restore {name}: {said}");
    if let Some(why) = &summary.message {
        message += &format!(": {why}");
    }
    if over {
        message += ". To try again, give spec.restore.inPlace another name";
    }
    Some(Finding { kind: RESTORED.to_owned(), holds: Some(holds), reason, message })
}

/// What is worth an event.
pub(super) fn news(seen: &Observed, decided: &Decided) -> Vec<News> {
    let mut news = Vec::new();
    let before = seen.status.restore.clone().unwrap_or_default();
    let now = decided.summary.clone().unwrap_or_default();
    let turned = (&now.name, &now.stage) != (&before.name, &before.stage);
    if let (true, Some(name), Some(stage)) = (turned, &now.name, &now.stage) {
        let why = now.message.clone().unwrap_or_default();
        let turn = match stage.as_str() {
            "Done" => {
                Some((Severity::Normal, "Restored", format!("restore {name}: the database was brought back")))
            }
            "Refused" => Some((Severity::Warning, "RestoreRefused", format!("restore {name}: {why}"))),
            "Failed" => Some((
                Severity::Warning,
                "RestoreFailed",
                format!("restore {name}: {why}; the old data serves again"),
            )),
            _ => None,
        };
        news.extend(turn.map(|(severity, reason, note)| News { severity, reason: reason.to_owned(), note }));
    }
    let normal = |reason: &str, note| News { severity: Severity::Normal, reason: reason.to_owned(), note };
    for old in now.kept.iter().filter(|old| !before.kept.contains(old)) {
        let note = format!(
            "{} keeps the data of before the restore {} as data.before ({} MiB, timeline {}). To let it go, annotate this \
             Database with {}={}",
            old.instance,
            old.restore,
            old.bytes >> 20,
            old.timeline,
            annotations::DISCARD_OLD_DATA,
            old.restore
        );
        news.push(normal("OldDataKept", note));
    }
    let same =
        |one: &OldData, other: &OldData| (&one.instance, &one.restore) == (&other.instance, &other.restore);
    for gone in before.kept.iter().filter(|old| !now.kept.iter().any(|one| same(one, old))) {
        let note = format!("{} no longer has the data of before the restore {}", gone.instance, gone.restore);
        news.push(normal("OldDataGone", note));
    }
    news
}
