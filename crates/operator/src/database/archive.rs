//! What is said of the backups of a database. They are in the way of nothing else: `Ready` is about writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::ArchiveReport;
use keelson_api::v1::{BackupPolicy, BackupSummary};
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::backups;
use super::facts::Observed;
use super::status::News;

/// The condition that tells of backups, where there are to be any.
pub(super) const BACKUP_READY: &str = "BackupReady";

/// What is asked for, if backups are.
fn asked(seen: &Observed) -> Option<&BackupPolicy> {
    seen.spec.backup.as_ref().filter(|backup| backup.is_enabled())
}

/// Whether backups are asked for.
pub(super) fn is_asked_for(seen: &Observed) -> bool {
    asked(seen).is_some()
}

/// What whoever takes writes says of the log.
fn told(seen: &Observed) -> Option<&ArchiveReport> {
    seen.primary()?.report.as_ref()?.archive.as_ref()
}

/// Whether what is written now can be brought back.
pub(super) fn finding(seen: &Observed) -> Option<Finding> {
    let policy = asked(seen)?;
    let find = |holds, reason: &str, message: String| {
        Some(Finding {
            kind: BACKUP_READY.to_owned(),
            holds: Some(holds),
            reason: reason.to_owned(),
            message,
        })
    };
    if policy.to.is_none() {
        let message = "there is no place for backups: name one in spec.backup.to".to_owned();
        return find(false, "NoRepository", message);
    }
    let known = seen.status.conditions.iter().find(|condition| condition.type_ == BACKUP_READY);
    let Some(archive) = told(seen) else {
        // While nobody takes writes, or one has only just begun to, what was said stays.
        if let Some(known) = known.filter(|known| known.status == "True") {
            return find(true, &known.reason, known.message.clone());
        }
        let message = "no primary has said yet that it archives its log".to_owned();
        return find(false, "Starting", message);
    };
    if let (Some(reason), Some(problem)) = (&archive.reason, &archive.problem) {
        return find(false, reason, format!("{problem}{}", left(archive)));
    }
    if archive.backups.as_ref().is_some_and(Vec::is_empty) {
        let message = "the log is archived, but there is no base backup yet: nothing can be restored before the first \
                       one is complete";
        return find(false, "NoBackupYet", message.to_owned());
    }
    find(true, "Archiving", "the log is archived".to_owned())
}

/// How long the volume lasts.
fn left(archive: &ArchiveReport) -> String {
    match archive.full_in_seconds {
        Some(seconds) if seconds < 2 * 3600 => {
            format!(". At this rate the volume is full in about {} minutes", seconds / 60)
        }
        Some(seconds) => format!(". At this rate the volume is full in about {} hours", seconds / 3600),
        None => String::new(),
    }
}

/// That backups have come to be in trouble, or are out of it.
pub(super) fn news(seen: &Observed, found: &Finding) -> Option<News> {
    let known = seen.status.conditions.iter().find(|condition| condition.type_ == BACKUP_READY)?;
    let holds = found.holds == Some(true);
    let severity = match (known.status == "True", holds) {
        (false, true) => Severity::Normal,
        // Where no place was named, that was said when it was asked for.
        (true, false) => Severity::Warning,
        (false, false) if known.reason != found.reason && found.reason != "Starting" => Severity::Warning,
        _ => return None,
    };
    Some(News { severity, reason: found.reason.clone(), note: found.message.clone() })
}

/// What there is to restore from. What nobody has told of lately stays as it was.
pub(super) fn summary(seen: &Observed, decided: Option<&backups::Decided>) -> Option<BackupSummary> {
    asked(seen)?.to.as_ref()?;
    let before = seen.status.backup.clone().unwrap_or_default();
    let before = match decided {
        Some(decided) => backups::summary(seen, decided, before),
        None => before,
    };
    let Some(archive) = told(seen) else { return Some(before) };
    let looked = archive.backups.is_some();
    let moment = |now: Option<jiff::Timestamp>, before: Option<Time>| match looked {
        true => now.map(Time),
        false => before,
    };
    Some(BackupSummary {
        first_recoverable: moment(archive.first_recoverable, before.first_recoverable.clone()),
        last_recoverable: moment(archive.last_recoverable, before.last_recoverable.clone()),
        archive_lag_bytes: Some(i64::try_from(archive.waiting_bytes).unwrap_or(i64::MAX)),
        ..before
    })
}
