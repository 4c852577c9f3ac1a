//! What is said of a database: its status, its conditions, and what is worth an event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use keelson_api::instance::{Names, labels, ports};
use keelson_api::v1::{
    BackupSummary, Binding, Cause, DatabaseStatus, DeletionPolicy, Durability, InstanceStatus, Leadership,
    Phase, Role, StandbyPolicy,
};
use keelson_api::value::{Version, Written};
use keelson_ha::planted::{self, Bug};
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::archive;
use super::children::secrets::host;
use super::drills;
use super::facts::{Instance, Observed};
use super::in_place;
use super::plan::{Decided, Kind};
use super::trouble::Trouble;
use super::unbuilt::without_effect;

/// The condition that tells of fields that have no effect, where there are any.
const SPEC_EFFECTIVE: &str = "SpecEffective";
/// What is said while data is brought back.
const RESTORING: &str = "its data is being brought back from the repository";

/// Something that is worth an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Whether it is bad.
    pub severity: Severity,
    /// In a word.
    pub reason: String,
    /// In a sentence.
    pub note: String,
}

pub(super) struct Said {
    pub status: DatabaseStatus,
    pub findings: Vec<Finding>,
    pub news: Vec<News>,
}

/// Where it stands, from all that is known.
struct Standing<'a> {
    seen: &'a Observed,
    decided: &'a Decided,
    primary: Option<&'a Instance>,
    replicas: u32,
    serving: u32,
    before: Option<Phase>,
    endpoint: String,
}

/// Puts what was found and decided into words.
pub(super) fn say(seen: &Observed, decided: &Decided) -> Said {
    let replicas = seen.spec.effective_replicas();
    let serving = seen.instances.iter().filter(|one| one.serves()).count();
    let standing = Standing {
        seen,
        decided,
        primary: seen.primary(),
        replicas,
        serving: u32::try_from(serving).unwrap_or(u32::MAX),
        before: seen.status.phase.as_ref().and_then(|phase| phase.parse().ok()),
        endpoint: format!("{}:{}", host(Names(&seen.name), &seen.namespace), ports::POSTGRES),
    };
    let phase = standing.phase();
    let degraded = standing.degraded(phase);
    let mut findings = vec![standing.ready(phase, degraded.as_ref()), standing.progressing(phase)];
    let mut news = standing.news(phase, degraded.as_ref());
    findings.push(match degraded {
        Some(Trouble { reason, message }) => finding("Degraded", true, &reason, message),
        None => finding("Degraded", false, "AsAsked", "nothing is amiss".to_owned()),
    });
    findings.extend(standing.spec_effective());
    let backups = archive::finding(seen);
    news.extend(backups.as_ref().and_then(|found| archive::news(seen, found)));
    findings.extend(backups);
    if let Some(in_place) = &decided.in_place {
        findings.extend(in_place::finding(in_place));
        news.extend(in_place::news(seen, in_place));
    }
    if let Some(drills) = &decided.drills {
        news.extend(drills.news.iter().cloned());
        findings.extend(drills.finding.clone());
    }
    Said { status: standing.status(phase), findings, news }
}

fn finding(kind: &str, holds: bool, reason: &str, message: String) -> Finding {
    Finding { kind: kind.to_owned(), holds: Some(holds), reason: reason.to_owned(), message }
}

impl Standing<'_> {
    /// All instances that were asked for serve, no other is left, and somebody takes writes.
    fn is_complete(&self) -> bool {
        let count = u32::try_from(self.seen.instances.len()).unwrap_or(u32::MAX);
        self.primary.is_some() && self.serving == self.replicas && count == self.replicas
    }

    /// Whether the first instance brings data back, so that there is no database yet.
    fn is_restoring(&self) -> bool {
        let restores = self.decided.wanted.as_ref().is_some_and(|wanted| wanted.instance.restore.is_some());
        let joins = |one: &Instance| one.report.as_ref().is_some_and(|report| report.role == Role::Joining);
        let in_place = self.decided.in_place.as_ref().is_some_and(|it| it.under_way);
        in_place || restores && !self.seen.exists() && self.seen.instances.iter().any(joins)
    }

    fn phase(&self) -> Phase {
        let serves = self.primary.is_some();
        if self.is_restoring() {
            return Phase::Restoring;
        }
        if let Some(held_up) = &self.decided.held_up {
            return match (serves, held_up.waits) {
                (true, _) => Phase::Degraded,
                (false, true) => Phase::Pending,
                (false, false) => Phase::Failed,
            };
        }
        if !self.decided.troubles.is_empty() {
            return if serves { Phase::Degraded } else { Phase::Failed };
        }
        let begun = match self.before {
            None | Some(Phase::Pending | Phase::Creating) => false,
            // One that was restored in place has long begun.
            Some(Phase::Restoring) => self.seen.status.version.is_some(),
            Some(Phase::Failed) => self.seen.exists(),
            Some(_) => true,
        };
        if !begun && !self.is_complete() {
            return Phase::Creating;
        }
        match (self.decided.progress.as_ref().map(|progress| progress.kind), self.before) {
            (Some(Kind::Scaling), _) => Phase::Scaling,
            (Some(Kind::RollingOut), _) => Phase::Upgrading,
            _ if self.is_complete() => Phase::Running,
            // What was under way has not ended before all are back.
            (_, Some(before @ (Phase::Scaling | Phase::Upgrading))) => before,
            _ => Phase::Degraded,
        }
    }

    fn degraded(&self, phase: Phase) -> Option<Trouble> {
        if let Some(held_up) = self.decided.held_up.as_ref().filter(|held_up| !held_up.waits) {
            return Some(Trouble { reason: held_up.reason.to_owned(), message: held_up.message.clone() });
        }
        // The others have nothing to do yet.
        if phase == Phase::Restoring {
            return None;
        }
        // What it means for commits comes first: nothing else that is amiss matters as much.
        let unsettled = matches!(phase, Phase::Degraded | Phase::Failed);
        let alone = self.alone().filter(|_| unsettled);
        let troubles: Vec<&Trouble> = alone.iter().chain(&self.decided.troubles).take(3).collect();
        if let Some(first) = troubles.first() {
            let all: Vec<&str> = troubles.iter().map(|one| one.message.as_str()).collect();
            return Some(Trouble { reason: first.reason.clone(), message: all.join("; ") });
        }
        (phase == Phase::Degraded)
            .then(|| Trouble { reason: "InstancesMissing".to_owned(), message: self.count() })
    }

    /// What it means for commits that no standby is left that could confirm them.
    fn alone(&self) -> Option<Trouble> {
        let leads = self.seen.instances.iter().filter_map(|one| one.report.as_ref());
        let leads = leads.filter(|report| report.role == Role::Primary).max_by_key(|report| report.epoch);
        let followers = leads.and_then(|report| report.followers.as_ref());
        let rule = self.decided.wanted.as_ref().map(|wanted| wanted.instance.durability)?;
        if self.replicas < 2 || rule.mode != Durability::Quorum || !followers.is_some_and(Vec::is_empty) {
            return None;
        }
        let consequence = match rule.when_alone {
            StandbyPolicy::Required => {
                "commits wait until a standby is back, as spec.failover.standby is required"
            }
            StandbyPolicy::Preferred => {
                "commits go on without a standby, and the loss of the primary would lose them"
            }
        };
        let message = format!("{}: {consequence}", self.count());
        Some(Trouble { reason: "NoStandby".to_owned(), message })
    }

    fn ready(&self, phase: Phase, degraded: Option<&Trouble>) -> Finding {
        if let Some(primary) = self.primary {
            let message = format!("{} takes writes at {}", primary.name, self.endpoint);
            return finding("Ready", true, "Writable", message);
        }
        let not = |reason: &str, message: String| finding("Ready", false, reason, message);
        match (&self.decided.held_up, degraded) {
            (Some(held_up), _) => not(held_up.reason, held_up.message.clone()),
            (None, Some(trouble)) if phase == Phase::Failed => not(&trouble.reason, trouble.message.clone()),
            _ if phase == Phase::Creating => not("Creating", "its instances are being made".to_owned()),
            _ if phase == Phase::Restoring => not("Restoring", RESTORING.to_owned()),
            _ => not("NoPrimary", "no instance takes writes at the moment".to_owned()),
        }
    }

    fn progressing(&self, phase: Phase) -> Finding {
        let progress = self.decided.progress.as_ref();
        let message = || progress.map_or_else(|| self.count(), |progress| progress.message.clone());
        match phase {
            Phase::Creating => finding("Progressing", true, "Creating", self.count()),
            Phase::Restoring => finding("Progressing", true, "Restoring", RESTORING.to_owned()),
            Phase::Scaling => finding("Progressing", true, "Scaling", message()),
            Phase::Upgrading => finding("Progressing", true, "RollingOut", message()),
            _ => match progress {
                Some(progress) if progress.kind == Kind::Growing => {
                    finding("Progressing", true, "Growing", progress.message.clone())
                }
                Some(progress) => finding("Progressing", false, "Stalled", progress.message.clone()),
                None => finding("Progressing", false, "Settled", "nothing is under way".to_owned()),
            },
        }
    }

    fn count(&self) -> String {
        format!("{} of {} instances serve", self.serving, self.replicas)
    }

    /// What has no effect is in the way of nothing, but nobody is to rely on it.
    fn spec_effective(&self) -> Option<Finding> {
        let fields: Vec<String> =
            without_effect(&self.seen.spec).iter().map(|field| format!("spec.{field}")).collect();
        let message = match fields.as_slice() {
            [] => return None,
            [only] => format!("{only} is not supported yet: it has no effect"),
            several => format!("{} are not supported yet: they have no effect", several.join(", ")),
        };
        Some(finding(SPEC_EFFECTIVE, false, "NotSupported", message))
    }

    /// What was said, but for what is of no interest any more: who asks for no backups is told nothing of
    /// them, as if none had ever been asked for.
    fn conditions_so_far(&self) -> Vec<Condition> {
        let spec = &self.seen.spec;
        let matters = |condition: &&Condition| match condition.type_.as_str() {
            archive::BACKUP_READY => archive::is_asked_for(self.seen),
            drills::BACKUP_VERIFIED => {
                archive::is_asked_for(self.seen)
                    && self.decided.drills.as_ref().is_none_or(|drills| drills.finding.is_some())
            }
            in_place::RESTORED => match &self.decided.in_place {
                Some(decided) => in_place::finding(decided).is_some(),
                None => in_place::so_far(self.seen).is_some_and(|said| said.name.is_some()),
            },
            SPEC_EFFECTIVE => !without_effect(spec).is_empty(),
            _ => true,
        };
        self.seen.status.conditions.iter().filter(matters).cloned().collect()
    }

    fn status(&self, phase: Phase) -> DatabaseStatus {
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let version = self.primary.and_then(|primary| primary.report.as_ref()?.version.clone());
        let version = version.filter(|version| version.parse::<Version>().is_ok()).map(Written::new);
        let stale = self.seen.status.primary.clone().filter(|_| planted::is(Bug::StalePrimary));
        let made = self.decided.wanted.is_some() || self.seen.status.endpoint.is_some();
        DatabaseStatus {
            phase: Some(Written::of(&phase)),
            replicas: Some(number(u32::try_from(self.seen.instances.len()).unwrap_or(u32::MAX))),
            ready_replicas: Some(number(self.serving)),
            primary: stale.or_else(|| self.primary.map(|primary| primary.name.clone())),
            endpoint: made.then(|| self.endpoint.clone()),
            version: version.or_else(|| self.seen.status.version.clone()),
            selector: Some(format!("{}={}", labels::DATABASE, self.seen.name)),
            observed_generation: self.seen.generation,
            instances: self.seen.instances.iter().map(row).collect(),
            leaderships: self.leaderships().unwrap_or(&self.seen.status.leaderships).to_vec(),
            conditions: self.conditions_so_far(),
            backup: self.backup(),
            binding: made.then(|| self.binding()),
            restore: match &self.decided.in_place {
                Some(in_place) => in_place.summary.clone(),
                None => in_place::so_far(self.seen),
            },
        }
    }

    /// Where credentials are, and which the primary goes by. They are others for programs only once it does: whoever
    /// started with them earlier would be refused.
    fn binding(&self) -> Binding {
        let current = &self.seen.secrets_mark;
        let report = self.primary.and_then(|primary| primary.report.as_ref());
        // An agent of an older version says nothing of it.
        let confirmed = report.filter(|it| it.credentials.as_ref().is_none_or(|told| told == current));
        let known = self.seen.status.binding.as_ref().and_then(|binding| binding.revision.clone());
        let revision = confirmed.map(|_| current.clone()).or(known);
        Binding { name: Names(&self.seen.name).app(), revision }
    }

    fn backup(&self) -> Option<BackupSummary> {
        let summary = archive::summary(self.seen, self.decided.backups.as_ref())?;
        let Some(drills) = &self.decided.drills else { return Some(summary) };
        let (last_drill, last_drill_seconds) = match drills.success.clone() {
            Some((finished, seconds)) => (Some(finished), Some(seconds)),
            None => (summary.last_drill.clone(), summary.last_drill_seconds),
        };
        Some(BackupSummary { drill: drills.summary.clone(), last_drill, last_drill_seconds, ..summary })
    }

    /// The last leaderships, as whoever leads knows them.
    fn leaderships(&self) -> Option<&[Leadership]> {
        let reports = self.seen.instances.iter().filter_map(|one| one.report.as_ref());
        let told = reports.filter(|report| !report.leaderships.is_empty()).max_by_key(|report| report.epoch);
        told.map(|report| report.leaderships.as_slice())
    }

    /// Leaderships that began since the last look, the oldest first.
    fn new_leaders(&self) -> Vec<News> {
        let known = self.seen.status.leaderships.first().and_then(|one| one.epoch);
        let new = |one: &&Leadership| known.is_some() && one.epoch > known;
        let told = self.leaderships().unwrap_or_default().iter().rev().filter(new);
        told.map(leads).collect()
    }

    fn news(&self, phase: Phase, degraded: Option<&Trouble>) -> Vec<News> {
        let known = self.seen.status.conditions.iter().find(|condition| condition.type_ == "Degraded");
        let reason_is_new = degraded.is_some_and(|trouble| {
            known.is_none_or(|known| known.status != "True" || known.reason != trouble.reason)
        });
        let mut news = self.new_leaders();
        if let Some(Trouble { reason, message }) = degraded.filter(|_| reason_is_new) {
            news.push(News { severity: Severity::Warning, reason: reason.clone(), note: message.clone() });
        }
        let turn =
            |reason: &str, note: String| News { severity: Severity::Normal, reason: reason.to_owned(), note };
        let progress =
            || self.decided.progress.as_ref().map_or_else(|| self.count(), |it| it.message.clone());
        let begun = Some(phase) != self.before;
        news.extend(match (self.before, phase) {
            _ if !begun => None,
            (Some(Phase::Restoring), Phase::Running) if self.seen.status.version.is_some() => None,
            (_, Phase::Restoring) => Some(turn("Restoring", RESTORING.to_owned())),
            (_, Phase::Scaling) => Some(turn("Scaling", progress())),
            (_, Phase::Upgrading) => Some(turn("RollingOut", progress())),
            (None | Some(Phase::Pending | Phase::Creating | Phase::Restoring), Phase::Running) => {
                Some(turn("Created", format!("{}; write to {}", self.count(), self.endpoint)))
            }
            (Some(Phase::Scaling), Phase::Running) => Some(turn("Scaled", self.scaled())),
            (Some(Phase::Upgrading), Phase::Running) => Some(turn("RolledOut", self.count())),
            (_, Phase::Running) => Some(turn("Recovered", self.count())),
            (_, Phase::Pending) => {
                self.decided.held_up.as_ref().map(|held_up| turn(held_up.reason, held_up.message.clone()))
            }
            _ => None,
        });
        news
    }

    /// Volumes that are left over are said, unless they are to go.
    fn scaled(&self) -> String {
        let settings = self.decided.wanted.as_ref().map(|wanted| &wanted.settings);
        let go = settings.is_some_and(|settings| settings.deletion_policy == DeletionPolicy::Delete);
        let left = self.seen.claims.iter().filter(|claim| claim.ordinal >= self.replicas && !claim.deleting);
        let left = left.filter(|_| !go);
        let left: Vec<&str> = left.map(|claim| claim.name.as_str()).collect();
        match left.as_slice() {
            [] => self.count(),
            left => format!("{}; volumes stay: {}", self.count(), left.join(", ")),
        }
    }
}

/// A leadership that has begun, in words.
fn leads(one: &Leadership) -> News {
    let cause: Option<Cause> = one.why.as_ref().and_then(|why| why.parse().ok());
    let planned = matches!(cause, Some(Cause::HandedOver | Cause::First));
    let severity = if planned { Severity::Normal } else { Severity::Warning };
    let mut note = format!("{} {}", one.who, cause.map_or("is primary", Cause::told));
    if let Some(gap) = one.gap_millis {
        note += &format!("; nobody took writes for {}.{:03} s", gap / 1000, gap % 1000);
    }
    if let Some(lost) = one.lost_bytes.filter(|lost| *lost > 0) {
        note += &format!("; it lacks {lost} bytes of the log of the one before");
    }
    let reason = if planned { "HandedOver" } else { "FailedOver" };
    News { severity, reason: reason.to_owned(), note }
}

fn row(instance: &Instance) -> InstanceStatus {
    let report = instance.report.as_ref();
    InstanceStatus {
        name: instance.name.clone(),
        role: report.map(|report| Written::of(&report.role)),
        lag_bytes: report.and_then(|report| report.lag_bytes),
        timeline: report.and_then(|report| report.timeline),
        ready: instance.serves(),
    }
}
