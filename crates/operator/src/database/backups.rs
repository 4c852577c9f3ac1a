//! Which base backup is made now and by whom, when the next is due, and what is said of each. Pure: from facts and
//! the time.
//!
//! A Backup goes through here in one direction: it waits for its turn, one instance is told to make it, and what that
//! instance says of it becomes its status. The order stays until the end is in the status, so that a crash in between
//! loses nothing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::{BackupOrder, BackupReport, fingerprint};
use keelson_api::v1::{
    BackupMethod, BackupPhase, BackupSettings, BackupSpec, BackupStatus, BackupSummary, Role, Window,
};
use keelson_api::value::{Schedule, Written};
use keelson_kit::conditions::{self, Finding};

use super::facts::{Instance, Observed};

/// How long an instance may take until it says that it makes the backup that it was told to make.
const TAKEN_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// So often one that is due is tried.
const ATTEMPTS: u32 = 3;
/// And so long after the last try.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Backups of different databases begin at most this far apart from what the schedule says.
const SPREAD: i64 = 3600;

/// A Backup of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupFact {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was made.
    pub made: Timestamp,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// What is asked for.
    pub spec: BackupSpec,
    /// What was last said of it.
    pub status: BackupStatus,
}

/// Something that is done to one Backup.
#[derive(Debug, Clone, PartialEq)]
pub enum BackupStep {
    /// Make the object: it is due.
    Make {
        /// Its name, which follows from when it was due.
        name: String,
    },
    /// Write its status.
    Say {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
        /// Its status.
        status: Box<BackupStatus>,
    },
    /// Remove the object: the repository no longer has it.
    Remove {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
    },
}

/// What is to be done about backups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Decided {
    /// What an instance is told to make.
    pub order: Option<BackupOrder>,
    /// What is to be done to the objects.
    pub steps: Vec<BackupStep>,
    /// When the next is due.
    pub next: Option<Timestamp>,
    /// When to look again without a change.
    pub again: Option<Duration>,
}

impl BackupFact {
    fn phase(&self) -> Option<BackupPhase> {
        self.status.phase.as_ref().and_then(|phase| phase.parse().ok())
    }

    fn is_over(&self) -> bool {
        matches!(self.phase(), Some(BackupPhase::Complete | BackupPhase::Failed))
    }

    fn finished(&self) -> Option<Timestamp> {
        self.status.finished.as_ref().map(|time| time.0)
    }
}

/// Decides. Without settings there are to be no backups, and none that is asked for is made.
pub(super) fn decide(seen: &Observed, settings: Option<&BackupSettings>, now: Timestamp) -> Decided {
    let mut open: Vec<&BackupFact> =
        seen.backups.iter().filter(|one| !one.deleting && !one.is_over()).collect();
    open.sort_by_key(|one| (one.made, one.name.clone()));
    let hindrance = hindrance(seen, settings);
    let mut decided = Decided::default();
    if let Some((first, others)) = open.split_first() {
        let (order, status, again) = first_of(seen, first, hindrance.as_deref(), now);
        decided.order = order;
        decided.again = again;
        decided.steps.extend(say(first, status, now));
        for other in others {
            let waits = Said::pending("Waiting", format!("it waits until {} has ended", first.name));
            decided.steps.extend(say(other, waits, now));
        }
    }
    if let Some(settings) = settings.filter(|settings| settings.to.is_some()) {
        let quiet = open.is_empty() && hindrance.is_none();
        let Due { make, next, again } = due(seen, &settings.schedule, quiet, now);
        decided.steps.extend(make.map(|name| BackupStep::Make { name }));
        decided.next = next;
        let wait = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
        let wait = wait.filter(|wait| !wait.is_zero());
        decided.again = [decided.again, wait, again].into_iter().flatten().min();
    }
    decided.steps.extend(gone(seen));
    decided
}

/// Why no backup can begin now.
fn hindrance(seen: &Observed, settings: Option<&BackupSettings>) -> Option<String> {
    let Some(settings) = settings else {
        return Some("backups are switched off in spec.backup of the Database".into());
    };
    if settings.to.is_none() {
        return Some("there is no place for it: name one in spec.backup.to of the Database".into());
    }
    let Some(primary) = seen.primary() else { return Some("it waits until an instance takes writes".into()) };
    match primary.report.as_ref().and_then(|report| report.archive.as_ref()) {
        None => Some("it waits until the log is archived".into()),
        Some(archive) => archive.problem.clone(),
    }
}

/// What is said of a Backup.
struct Said {
    phase: BackupPhase,
    reason: String,
    message: String,
    report: Option<BackupReport>,
    instance: Option<String>,
    began: Option<Timestamp>,
}

impl Said {
    fn pending(reason: &str, message: String) -> Said {
        let (phase, reason) = (BackupPhase::Pending, reason.to_owned());
        Said { phase, reason, message, report: None, instance: None, began: None }
    }

    fn failed(reason: &str, message: String) -> Said {
        Said { phase: BackupPhase::Failed, ..Said::pending(reason, message) }
    }

    fn running(instance: &str, began: Option<Timestamp>, report: Option<BackupReport>) -> Said {
        let message = format!("{instance} makes it");
        let instance = Some(instance.to_owned());
        Said { phase: BackupPhase::Running, report, instance, began, ..Said::pending("Running", message) }
    }
}

/// What comes of the Backup whose turn it is.
fn first_of(
    seen: &Observed,
    first: &BackupFact,
    hindrance: Option<&str>,
    now: Timestamp,
) -> (Option<BackupOrder>, Said, Option<Duration>) {
    let current = seen.config.as_ref().and_then(|config| config.backup.as_ref()?.order.clone());
    let current = current.filter(|order| order.uid == first.uid);
    if let Some((instance, report)) = told(seen, first) {
        let ended = match report.phase.parse() {
            Ok(BackupPhase::Complete) => {
                Some((BackupPhase::Complete, "Complete", "it can be restored".to_owned()))
            }
            Ok(BackupPhase::Failed) => {
                let problem =
                    report.problem.clone().unwrap_or_else(|| "the instance does not say why".to_owned());
                let reason = report.reason.as_deref().unwrap_or("Failed");
                Some((BackupPhase::Failed, reason, format!("{problem}. Create another Backup to try again")))
            }
            _ => None,
        };
        if let Some((phase, reason, message)) = ended {
            let said = Said { phase, ..Said::pending(reason, message) };
            let said = Said { report: Some(report.clone()), instance: Some(instance.name.clone()), ..said };
            // The order stays until this is known to be in the status.
            return (current, said, None);
        }
    }
    let began = first.status.started.as_ref().map(|time| time.0);
    if let Some(order) = current.filter(|order| can_go_on(seen, &order.instance)) {
        let report = told(seen, first).map(|(_, report)| report.clone());
        let since = began.map_or(SignedDuration::ZERO, |began| now.duration_since(began));
        if report.is_none() && since > TAKEN_WITHIN {
            let message = format!(
                "{} was told to make it and has not begun: its agent may be of a version that can't. Create another \
                 Backup to try again",
                order.instance
            );
            return (None, Said::failed("NotTaken", message), None);
        }
        let again = report.is_none().then(|| Duration::try_from(TAKEN_WITHIN - since).unwrap_or_default());
        let said = Said::running(&order.instance, began.or(Some(now)), report);
        return (Some(order), said, again.map(|again| again + Duration::from_secs(1)));
    }
    if let Some(why) = hindrance {
        return (None, Said::pending("Waiting", why.to_owned()), None);
    }
    match chosen(seen) {
        Some(instance) => {
            let order = BackupOrder {
                name: first.name.clone(),
                uid: first.uid.clone(),
                instance: instance.name.clone(),
                method: first.spec.method.clone(),
                keep: first.spec.keep == Some(true),
            };
            (Some(order), Said::running(&instance.name, Some(now), None), None)
        }
        None => (None, Said::pending("Waiting", "no instance serves that could make it".to_owned()), None),
    }
}

/// What an instance says of a Backup.
fn told<'a>(seen: &'a Observed, backup: &BackupFact) -> Option<(&'a Instance, &'a BackupReport)> {
    let reports = seen.instances.iter().filter_map(|one| Some((one, one.report.as_ref()?.backup.as_ref()?)));
    reports.into_iter().find(|(_, report)| report.uid == backup.uid)
}

/// Whether an instance that was told to make a backup may still do so.
fn can_go_on(seen: &Observed, instance: &str) -> bool {
    seen.instances
        .iter()
        .any(|one| one.name == instance && !one.deleting && !one.missed && one.report.is_some())
}

/// Who makes it: a replica that commits do not wait for, else another replica, else whoever takes writes.
fn chosen(seen: &Observed) -> Option<&Instance> {
    let follows =
        |one: &&Instance| one.serves() && one.report.as_ref().is_some_and(|report| report.follows());
    let waited_for =
        |one: &&Instance| one.report.as_ref().is_some_and(|report| report.role == Role::Synchronous);
    let replica =
        seen.instances.iter().filter(follows).min_by_key(|one| (waited_for(one), u32::MAX - one.ordinal));
    replica.or_else(|| seen.primary())
}

/// The status of a Backup, if it is another than before.
fn say(backup: &BackupFact, said: Said, now: Timestamp) -> Option<BackupStep> {
    let before = &backup.status;
    let report = said.report.as_ref();
    let bytes = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX)).filter(|count| *count > 0);
    let complete = said.phase == BackupPhase::Complete;
    let finished = report.and_then(|report| report.finished);
    let finding = Finding {
        kind: "Complete".to_owned(),
        holds: Some(complete),
        reason: said.reason,
        message: said.message,
    };
    let method: Option<Written<BackupMethod>> =
        report.and_then(|report| report.method.clone()).or_else(|| backup.spec.method.clone());
    let status = BackupStatus {
        phase: Some(Written::of(&said.phase)),
        method,
        id: report.and_then(|report| report.id.clone()),
        instance: said.instance.or_else(|| before.instance.clone()),
        started: report
            .and_then(|report| report.started)
            .or(said.began)
            .map(Time)
            .or_else(|| before.started.clone()),
        finished: finished.map(Time),
        read_bytes: report.and_then(|report| bytes(report.read_bytes)),
        total_bytes: report.filter(|_| !complete).and_then(|report| bytes(report.total_bytes)),
        stored_bytes: report.and_then(|report| bytes(report.stored_bytes)),
        window: finished
            .filter(|_| complete)
            .map(|finished| Window { start: Some(Time(finished)), end: None }),
        observed_generation: backup.generation,
        conditions: conditions::merge(&before.conditions, &[finding], backup.generation, &Time(now)),
        ..before.clone()
    };
    let (name, uid) = (backup.name.clone(), backup.uid.clone());
    (status != *before).then(|| BackupStep::Say { name, uid, status: Box::new(status) })
}

/// What the schedule says.
struct Due {
    /// The Backup that is to be made now, by name.
    make: Option<String>,
    /// When the next is due.
    next: Option<Timestamp>,
    /// When to look again, if that is sooner.
    again: Option<Duration>,
}

/// Whether one is due, and when the next is. One that failed is tried again, a few times.
fn due(seen: &Observed, schedule: &Schedule, quiet: bool, now: Timestamp) -> Due {
    let said = |make, next| Due { make, next, again: None };
    let spread = spread(seen, schedule, "", now);
    let later = |time: Timestamp| time.saturating_add(spread).unwrap_or(Timestamp::MAX);
    let earlier = now.saturating_sub(spread).unwrap_or(Timestamp::MIN);
    let upcoming = schedule.next_after(earlier).map(later);
    let known = seen.status.backup.as_ref().and_then(|backup| backup.next_backup.as_ref()).map(|time| time.0);
    // The first is due at once: before it nothing can be restored.
    if known.is_some_and(|known| known > now) {
        return said(None, known.into_iter().chain(upcoming).min());
    }
    // However many were missed, the last one is made up for.
    let until = earlier.saturating_add(SignedDuration::from_secs(1)).unwrap_or(earlier);
    let Some(slot) = schedule.last_before(until) else { return said(None, upcoming) };
    let first = format!("{}-{}", seen.name, slot.strftime("%Y%m%d%H%M"));
    for attempt in 1..=ATTEMPTS {
        let name = if attempt == 1 { first.clone() } else { format!("{first}-{attempt}") };
        match seen.backups.iter().find(|one| one.name == name) {
            // It stays due until it is known to be there.
            None => return said(Some(name).filter(|_| quiet), known),
            Some(one) if one.phase() == Some(BackupPhase::Failed) => {
                let ago = now.duration_since(one.finished().unwrap_or(one.made));
                if ago < AGAIN_AFTER {
                    let again = Duration::try_from(AGAIN_AFTER - ago).ok();
                    return Due { make: None, next: known, again };
                }
            }
            Some(_) => return said(None, upcoming),
        }
    }
    said(None, upcoming)
}

/// By how much this database is later than the schedule says, so that not all begin at once: always the same for what it
/// is asked for.
pub(super) fn spread(seen: &Observed, schedule: &Schedule, what: &str, now: Timestamp) -> SignedDuration {
    let between = schedule.next_after(now).and_then(|next| {
        let after = schedule.next_after(next)?;
        Some(after.duration_since(next).as_secs())
    });
    let window = between.map_or(SPREAD, |between| SPREAD.min(between / 4)).max(1);
    let hash = fingerprint(&format!("{}/{}{what}", seen.namespace, seen.name));
    let hash = u64::from_str_radix(&hash, 16).unwrap_or_default();
    SignedDuration::from_secs(i64::try_from(hash % window.unsigned_abs()).unwrap_or_default())
}

/// Backups that the repository no longer has, as whoever leads has seen after they were complete.
fn gone(seen: &Observed) -> Vec<BackupStep> {
    let archive = seen.primary().and_then(|primary| primary.report.as_ref()?.archive.as_ref());
    let Some((looked, there)) =
        archive.and_then(|archive| Some((archive.looked?, archive.backups.as_ref()?)))
    else {
        return Vec::new();
    };
    let is_gone = |one: &&BackupFact| {
        let id = one.status.id.as_ref();
        one.phase() == Some(BackupPhase::Complete)
            && !one.deleting
            && id.is_some_and(|id| !there.contains(id))
            && one.finished().is_some_and(|finished| finished < looked)
    };
    let remove = |one: &BackupFact| BackupStep::Remove { name: one.name.clone(), uid: one.uid.clone() };
    seen.backups.iter().filter(is_gone).map(remove).collect()
}

/// What the Database's status says of its Backups.
pub(super) fn summary(seen: &Observed, decided: &Decided, so_far: BackupSummary) -> BackupSummary {
    let complete = seen.backups.iter().filter(|one| one.phase() == Some(BackupPhase::Complete));
    let last = complete.max_by_key(|one| one.finished());
    BackupSummary {
        last_backup: last.map(|one| one.name.clone()),
        last_backup_time: last.and_then(|one| one.status.finished.clone()),
        next_backup: decided.next.map(Time),
        ..so_far
    }
}
