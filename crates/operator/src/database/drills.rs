//! Rehearsed restores: when one begins, what comes of it, and when its pod and volume go. Pure: from facts and the time.
//!
//! The pod is what is remembered of a drill under way: it says by whom it was asked for, and how far it is. Its end is
//! first written into the status, under the pod's uid, and only then are pod and volume removed; so a crash anywhere
//! repeats a step that has no effect twice, and there is never more than one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::{
    DrillNote, DrillPhase, DrillReport, DrillRule, Store, Use, backup_reasons, drill_reasons,
};
use keelson_api::v1::{
    BackupSettings, BackupSummary, DrillResult, DrillRunning, DrillSummary, Phase, Settings, Verification,
};
use keelson_api::value::{Span, Written};
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::backups;
use super::facts::{Hindrance, Observed};
use super::status::News;

/// The condition that tells whether backups have been seen to restore.
pub(super) const BACKUP_VERIFIED: &str = "BackupVerified";
/// How long one may take that nobody has set a deadline for: it was asked for, and not scheduled.
const DEADLINE: Span = Span::seconds(6 * 60 * 60);
/// By so much the clock of the API server may be behind: a pod made for what was due is not taken for one from before.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// What was written into the status is acted on after this long.
const SOON: Duration = Duration::from_secs(1);

/// What there is of a drill.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Throwaway {
    /// The text of the annotation on the Database that asks for one.
    pub asked: Option<String>,
    /// Its pod.
    pub pod: Option<DrillPod>,
    /// The claim of its volume.
    pub claim: Option<DrillClaim>,
}

/// The pod of a drill.
#[derive(Debug, Clone, PartialEq)]
pub struct DrillPod {
    /// Its uid.
    pub uid: String,
    /// When it was made.
    pub made: Timestamp,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// The text that it was asked for with; none where it was due.
    pub asked: Option<String>,
    /// Whether it has ended, whatever it has said.
    pub ended: bool,
    /// What keeps it from starting, as the cluster says.
    pub hindrance: Option<Hindrance>,
    /// What it says.
    pub report: Option<DrillReport>,
}

/// The claim of a drill's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrillClaim {
    /// Its uid.
    pub uid: String,
    /// Whether it is on its way out.
    pub deleting: bool,
}

/// Something that is done about a drill.
#[derive(Debug, Clone, PartialEq)]
pub enum DrillStep {
    /// Make the volume and the pod, and what the pod needs to report.
    Begin(Box<Order>),
    /// Say of a Backup that it was tried.
    Verify {
        /// The Backup.
        backup: String,
        /// Only this one.
        uid: String,
        /// What came of it.
        verified: Verification,
    },
    /// Remove the pod.
    RemovePod {
        /// Only this one.
        uid: String,
    },
    /// Remove the volume.
    RemoveClaim {
        /// Only this one.
        uid: String,
    },
}

/// A drill that is to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The text that it was asked for with.
    pub asked: Option<String>,
    /// How long it may take, in seconds.
    pub deadline: i64,
    /// What it is told.
    pub rule: DrillRule,
}

/// What is to be done, and what is to be said.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub steps: Vec<DrillStep>,
    pub summary: Option<DrillSummary>,
    pub finding: Option<Finding>,
    pub news: Vec<News>,
    /// Whether one has ended, and how.
    pub drilled: Option<bool>,
    /// When it has succeeded, and how many seconds it took.
    pub success: Option<(Time, i64)>,
    pub again: Option<Duration>,
}

/// What is to be done about drills.
pub(super) fn decide(seen: &Observed, settings: &Settings, now: Timestamp) -> Decided {
    let before = seen.status.backup.as_ref().and_then(|backup| backup.drill.clone());
    let backup = settings.backup.as_ref().filter(|backup| backup.to.is_some());
    let scheduled = backup.is_some_and(|backup| backup.drill.is_some());
    let nothing = before.is_none() && seen.drill == Throwaway::default();
    if nothing && !scheduled {
        return Decided::default();
    }
    let mut decided = match &seen.drill.pod {
        Some(pod) => under_way(seen, pod, backup, before.unwrap_or_default(), now),
        None => idle(seen, settings, backup, before.unwrap_or_default(), now),
    };
    if let Some(claim) = seen.drill.claim.as_ref().filter(|claim| !claim.deleting) {
        let pod_goes = decided.steps.iter().any(|step| matches!(step, DrillStep::RemovePod { .. }));
        let pod_is_gone = seen.drill.pod.as_ref().is_none_or(|pod| pod.deleting);
        // Where there is no pod, one was removed, or never made. In both cases nobody needs the volume.
        if pod_goes || pod_is_gone {
            decided.steps.push(DrillStep::RemoveClaim { uid: claim.uid.clone() });
        }
    }
    let summary = decided.summary.get_or_insert_default();
    if !scheduled {
        summary.next = None;
    }
    decided.finding = backup.and_then(|_| finding(summary, scheduled));
    if *summary == DrillSummary::default() {
        decided.summary = None;
    }
    decided
}

/// What ends one, whatever becomes of it: its database goes.
pub(super) fn end(there: &Throwaway) -> Vec<DrillStep> {
    let pod = there.pod.as_ref().filter(|pod| !pod.deleting);
    let claim = there.claim.as_ref().filter(|claim| !claim.deleting);
    let pod = pod.map(|pod| DrillStep::RemovePod { uid: pod.uid.clone() });
    let claim = claim.map(|claim| DrillStep::RemoveClaim { uid: claim.uid.clone() });
    pod.into_iter().chain(claim).collect()
}

/// While there is a pod.
fn under_way(
    seen: &Observed,
    pod: &DrillPod,
    backup: Option<&BackupSettings>,
    before: DrillSummary,
    now: Timestamp,
) -> Decided {
    let mut summary = DrillSummary { running: None, waits: None, ..before };
    summary.asked = pod.asked.clone().or(summary.asked);
    summary.next = next(seen, backup, summary.next, Some(pod.made), now);
    let said = |summary| Decided { summary: Some(summary), ..Decided::default() };
    if pod.deleting {
        return said(summary);
    }
    let remove = DrillStep::RemovePod { uid: pod.uid.clone() };
    if let Some(last) = summary.last.as_ref().filter(|last| last.run == pod.uid) {
        let steps = verify(seen, last).into_iter().chain([remove]).collect();
        return Decided { steps, ..said(summary) };
    }
    // Nobody wants to know any more.
    let wanted = backup.is_some_and(|backup| backup.drill.is_some() || pod.asked.is_some());
    if !wanted {
        return Decided { steps: vec![remove], ..said(summary) };
    }
    let deadline = deadline(backup);
    if let Some(result) = result(pod, deadline, now) {
        let news = vec![told(&result)];
        let (success, drilled) = (success(&result), Some(result.passed));
        summary.last = Some(result);
        return Decided { news, success, drilled, again: Some(SOON), ..said(summary) };
    }
    let hindrance = pod.hindrance.as_ref().map(|hindrance| match hindrance {
        Hindrance::Unschedulable(why) | Hindrance::Image(why) | Hindrance::Container(why) => why.clone(),
    });
    summary.running = Some(DrillRunning {
        started: Some(Time(pod.made)),
        phase: pod.report.as_ref().map_or(Written::of(&DrillPhase::Starting), |report| report.phase.clone()),
        message: hindrance,
    });
    let left = deadline - now.duration_since(pod.made);
    Decided { again: Duration::try_from(left).ok(), ..said(summary) }
}

/// While there is none.
fn idle(
    seen: &Observed,
    settings: &Settings,
    backup: Option<&BackupSettings>,
    before: DrillSummary,
    now: Timestamp,
) -> Decided {
    let known = before.next.clone();
    let mut summary = DrillSummary { running: None, waits: None, ..before };
    summary.next = next(seen, backup, known, None, now);
    let Some(backup) = backup else { return Decided { summary: Some(summary), ..Decided::default() } };
    let asked = seen.drill.asked.clone().filter(|asked| summary.asked.as_ref() != Some(asked));
    let wait = summary.next.as_ref().map(|next| next.0.duration_since(now));
    let is_due = wait.is_some_and(|wait| !wait.is_positive());
    let again = wait.filter(|wait| wait.is_positive()).and_then(|wait| Duration::try_from(wait).ok());
    if !is_due && asked.is_none() {
        return Decided { summary: Some(summary), again, ..Decided::default() };
    }
    if let Some(why) = hindrance(seen) {
        summary.waits = Some(why);
        return Decided { summary: Some(summary), again, ..Decided::default() };
    }
    let Some(to) = &backup.to else { return Decided::default() };
    let order = Order {
        asked,
        deadline: deadline(Some(backup)).as_secs(),
        rule: DrillRule {
            from: Store::of(to, &seen.namespace, &seen.name, Use::Restore),
            parameters: settings.parameters.clone(),
            marks: backup.drill.is_some(),
        },
    };
    // It stays due until its pod is known to be there.
    Decided {
        steps: vec![DrillStep::Begin(Box::new(order))],
        summary: Some(summary),
        again,
        ..Decided::default()
    }
}

/// Why none can begin now.
fn hindrance(seen: &Observed) -> Option<String> {
    if seen.drill.claim.is_some() {
        return Some("it waits until the volume of the last one is gone".to_owned());
    }
    let phase = seen.status.phase.as_ref().and_then(|phase| phase.parse().ok());
    if phase == Some(Phase::Restoring) {
        return Some("it waits until the database itself is restored".to_owned());
    }
    let Some(primary) = seen.primary() else {
        return Some("it waits until an instance takes writes".to_owned());
    };
    match primary.report.as_ref().and_then(|report| report.archive.as_ref()) {
        None => Some("it waits until the log is archived".to_owned()),
        Some(archive) if archive.problem.is_some() => archive.problem.clone(),
        Some(archive) if archive.backups.as_ref().is_none_or(Vec::is_empty) => {
            Some("it waits for the first base backup".to_owned())
        }
        Some(_) => None,
    }
}

/// When the next is due. One that was due before the pod was made is done with by that.
fn next(
    seen: &Observed,
    backup: Option<&BackupSettings>,
    known: Option<Time>,
    made: Option<Timestamp>,
    now: Timestamp,
) -> Option<Time> {
    let schedule = &backup?.drill.as_ref()?.schedule;
    let spread = backups::spread(seen, schedule, "/drill", now);
    let earlier = now.saturating_sub(spread).unwrap_or(Timestamp::MIN);
    let later = |time: Timestamp| Time(time.saturating_add(spread).unwrap_or(Timestamp::MAX));
    let upcoming = schedule.next_after(earlier).map(later);
    match known {
        Some(known) if known.0 > now => Some(known).into_iter().chain(upcoming).min_by_key(|time| time.0),
        Some(known) if made.is_none_or(|made| known.0.duration_since(made) > SKEW) => Some(known),
        _ => upcoming,
    }
}

fn deadline(backup: Option<&BackupSettings>) -> SignedDuration {
    let asked = backup.and_then(|backup| backup.drill.as_ref()).map_or(DEADLINE, |drill| drill.deadline);
    SignedDuration::try_from(asked.duration()).unwrap_or(SignedDuration::MAX)
}

/// What came of it, once that is known.
fn result(pod: &DrillPod, deadline: SignedDuration, now: Timestamp) -> Option<DrillResult> {
    let report = pod.report.as_ref();
    let phase = report.and_then(|report| report.phase.parse().ok());
    let failed = |reason: &str, problem: String| {
        let finished = report.and_then(|report| report.finished).unwrap_or(now);
        Some(composed(pod, false, reason, format!("{problem}. {}", advice(reason)), finished))
    };
    match (phase, report) {
        (Some(DrillPhase::Succeeded), Some(report)) => {
            let finished = report.finished.unwrap_or(now);
            return Some(composed(pod, true, drill_reasons::SUCCEEDED, proved(report), finished));
        }
        (Some(DrillPhase::Failed), Some(report)) => {
            let problem = report.problem.clone().unwrap_or_else(|| "it does not say why".to_owned());
            return failed(report.reason.as_deref().unwrap_or(drill_reasons::BROKEN_OFF), problem);
        }
        _ => {}
    }
    let stage = report.map_or("Starting".to_owned(), |report| report.phase.to_string());
    let took = now.duration_since(pod.made);
    if took >= deadline {
        let hindrance =
            pod.hindrance.as_ref().map(|hindrance| format!(": {hindrance:?}")).unwrap_or_default();
        let problem = format!("it has not ended within {} s, and was {stage}{hindrance}", deadline.as_secs());
        return failed(drill_reasons::TIMED_OUT, problem);
    }
    if pod.ended {
        let problem = format!("its pod ended while it was {stage}, and has not said why");
        return failed(drill_reasons::BROKEN_OFF, problem);
    }
    None
}

/// What a person can do.
fn advice(reason: &str) -> &'static str {
    match reason {
        backup_reasons::CORRUPT => {
            "Make a full backup now, which starts anew with good objects, and find out what has changed the one that is named"
        }
        drill_reasons::DAMAGED => {
            "The database itself may be damaged in the same way: check it, and rebuild or restore what is named"
        }
        drill_reasons::MARKS_MISSING => {
            "Make a full backup now, and report this: data is missing that was committed"
        }
        drill_reasons::TIMED_OUT => {
            "Raise spec.backup.drill.deadline if it needs longer, or make room for its pod. Another text in the annotation \
             keelson.dev/drill tries again"
        }
        _ => "Another text in the annotation keelson.dev/drill tries again",
    }
}

fn composed(pod: &DrillPod, passed: bool, reason: &str, message: String, finished: Timestamp) -> DrillResult {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let report = pod.report.as_ref();
    let checks = report.map(|report| report.checks);
    let looked = checks.filter(|checks| checks.databases > 0);
    DrillResult {
        run: pod.uid.clone(),
        passed,
        reason: reason.to_owned(),
        message,
        started: Some(Time(report.map_or(pod.made, |report| report.started))),
        finished: Some(Time(finished)),
        backup: report.and_then(|report| report.backup.clone()),
        timeline: report.and_then(|report| report.timeline).map(i64::from),
        end_of_log: report.and_then(|report| report.end_of_log.clone()),
        rto_seconds: report.and_then(|report| report.answered_seconds).map(number),
        rpo_seconds: report.and_then(|report| report.lost_seconds).map(number),
        data_until: report.and_then(|report| report.mark).map(|mark| Time(mark.at)),
        marks: checks.map(|checks| number(checks.marks)).filter(|marks| *marks > 0),
        pages: checks.and_then(|checks| checks.pages).map(number),
        databases: looked.map(|checks| number(checks.databases)),
        tables: looked.map(|checks| number(checks.tables)),
        indexes: looked.map(|checks| number(checks.indexes)),
        indexes_passed_over: looked.map(|checks| number(checks.passed_over)).filter(|many| *many > 0),
    }
}

/// What a good one proves, in a sentence.
fn proved(report: &DrillReport) -> String {
    let checks = &report.checks;
    let backup = report.backup.as_deref().unwrap_or("the newest backup");
    let mut text = format!("{backup} was restored at {}", report.started);
    if let Some(seconds) = report.answered_seconds {
        text += &format!(" and answered after {seconds} s");
    }
    if let Some(mark) = &report.mark {
        text += &format!("; it has all that was committed until {}", mark.at);
    }
    text += &match (checks.databases, checks.pages) {
        (0, None) => "; the image has nothing to check it with".to_owned(),
        (0, Some(pages)) => format!("; {pages} pages are good"),
        (_, None) => format!("; {} tables and {} indexes are good", checks.tables, checks.indexes),
        (_, Some(pages)) => {
            format!("; {pages} pages, {} tables and {} indexes are good", checks.tables, checks.indexes)
        }
    };
    text
}

fn told(result: &DrillResult) -> News {
    let (severity, reason) = match result.passed {
        true => (Severity::Normal, drill_reasons::SUCCEEDED),
        false => (Severity::Warning, "DrillFailed"),
    };
    News { severity, reason: reason.to_owned(), note: result.message.clone() }
}

fn success(result: &DrillResult) -> Option<(Time, i64)> {
    let (started, finished) =
        (result.started.as_ref()?.0, result.finished.clone().filter(|_| result.passed)?);
    let seconds = finished.0.duration_since(started).as_secs();
    Some((finished, seconds))
}

/// What is to be said of the Backup that was tried, unless it is said already. A store that did not answer says nothing of
/// what is in it.
fn verify(seen: &Observed, last: &DrillResult) -> Option<DrillStep> {
    let innocent = [
        backup_reasons::UNREACHABLE,
        backup_reasons::DENIED,
        backup_reasons::CREDENTIALS_MISSING,
        backup_reasons::KEY_MISSING,
        drill_reasons::TIMED_OUT,
        drill_reasons::BROKEN_OFF,
    ];
    let time = last.finished.clone().filter(|_| !innocent.contains(&last.reason.as_str()))?;
    let backup = seen.backups.iter().find(|one| one.status.id.is_some() && one.status.id == last.backup)?;
    let seconds = last.started.as_ref().map(|started| time.0.duration_since(started.0).as_secs());
    let verified = Verification { time, how: "drill".to_owned(), passed: last.passed, seconds };
    let step = DrillStep::Verify {
        backup: backup.name.clone(),
        uid: backup.uid.clone(),
        verified: verified.clone(),
    };
    (backup.status.verified.as_ref() != Some(&verified)).then_some(step)
}

/// Whether backups have been seen to restore.
fn finding(summary: &DrillSummary, scheduled: bool) -> Option<Finding> {
    let (holds, reason, message) = match &summary.last {
        Some(last) => (Some(last.passed), last.reason.clone(), last.message.clone()),
        None if scheduled => {
            let message = "no drill has ended yet: the first one is made on schedule, or when the annotation \
                           keelson.dev/drill asks for it";
            (None, "NoDrillYet".to_owned(), message.to_owned())
        }
        None => return None,
    };
    Some(Finding { kind: BACKUP_VERIFIED.to_owned(), holds, reason, message })
}

/// What agents are told, for those who watch over the database.
pub(super) fn note(seen: &Observed) -> Option<DrillNote> {
    let backup: &BackupSummary = seen.status.backup.as_ref()?;
    let last = backup.drill.as_ref()?.last.as_ref()?;
    let last_success = backup.last_drill.as_ref().map(|time| time.0);
    Some(DrillNote { last_success, failing: !last.passed })
}
