//! What is said of a database: its status, its conditions, and what is worth an event.

use keelson_api::instance::{DurabilityRule, Names, labels, ports};
use keelson_api::v1::{
    DatabaseStatus, DeletionPolicy, Durability, InstanceStatus, Phase, Role, StandbyPolicy,
};
use keelson_api::value::{Version, Written};
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::children::secrets::host;
use super::facts::{Instance, Observed};
use super::plan::{Decided, Kind};
use super::trouble::Trouble;

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
    let news = standing.news(phase, degraded.as_ref());
    findings.push(match degraded {
        Some(Trouble { reason, message }) => finding("Degraded", true, &reason, message),
        None => finding("Degraded", false, "AsAsked", "nothing is amiss".to_owned()),
    });
    findings.extend(standing.backup_ready());
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

    fn phase(&self) -> Phase {
        let serves = self.primary.is_some();
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
        if let Some(first) = self.decided.troubles.first() {
            let all: Vec<&str> =
                self.decided.troubles.iter().take(3).map(|one| one.message.as_str()).collect();
            return Some(Trouble { reason: first.reason.clone(), message: all.join("; ") });
        }
        (phase == Phase::Degraded).then(|| self.missing())
    }

    /// Some do not serve. What that means for commits is said when none is left that could confirm them.
    fn missing(&self) -> Trouble {
        let leads = self.seen.instances.iter().filter_map(|one| one.report.as_ref());
        let leads = leads.filter(|report| report.role == Role::Primary).max_by_key(|report| report.epoch);
        let followers = leads.and_then(|report| report.followers.as_ref());
        let rule = self.decided.wanted.as_ref().map(|wanted| wanted.instance.durability);
        let alone = self.replicas > 1 && followers.is_some_and(Vec::is_empty);
        let consequence = match rule.filter(|rule| alone && rule.mode == Durability::Quorum) {
            Some(DurabilityRule { when_alone: StandbyPolicy::Required, .. }) => {
                "commits wait until a standby is back, as spec.failover.standby is required"
            }
            Some(DurabilityRule { when_alone: StandbyPolicy::Preferred, .. }) => {
                "commits go on without a standby, and the loss of the primary would lose them"
            }
            None => {
                return Trouble { reason: "InstancesMissing".to_owned(), message: self.count() };
            }
        };
        Trouble { reason: "NoStandby".to_owned(), message: format!("{}: {consequence}", self.count()) }
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
            _ => not("NoPrimary", "no instance takes writes at the moment".to_owned()),
        }
    }

    fn progressing(&self, phase: Phase) -> Finding {
        let progress = self.decided.progress.as_ref();
        let message = || progress.map_or_else(|| self.count(), |progress| progress.message.clone());
        match phase {
            Phase::Creating => finding("Progressing", true, "Creating", self.count()),
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

    /// Backups are not in the way of `Ready`.
    fn backup_ready(&self) -> Option<Finding> {
        const KIND: &str = "BackupReady";
        let known = self.seen.status.conditions.iter().any(|condition| condition.type_ == KIND);
        match self.seen.spec.backup.as_ref().filter(|backup| backup.is_enabled()) {
            Some(backup) if backup.to.is_none() => {
                let message = "there is no place for backups: name one in spec.backup.to".to_owned();
                Some(finding(KIND, false, "NoRepository", message))
            }
            Some(_) => {
                let message = "backups are not supported yet: none is made".to_owned();
                Some(finding(KIND, false, "NotSupported", message))
            }
            None => known.then(|| Finding {
                holds: None,
                ..finding(KIND, false, "Disabled", "no backups were asked for".to_owned())
            }),
        }
    }

    fn status(&self, phase: Phase) -> DatabaseStatus {
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let version = self.primary.and_then(|primary| primary.report.as_ref()?.version.clone());
        let version = version.filter(|version| version.parse::<Version>().is_ok()).map(Written::new);
        let made = self.decided.wanted.is_some() || self.seen.status.endpoint.is_some();
        DatabaseStatus {
            phase: Some(Written::of(&phase)),
            replicas: Some(number(u32::try_from(self.seen.instances.len()).unwrap_or(u32::MAX))),
            ready_replicas: Some(number(self.serving)),
            primary: self.primary.map(|primary| primary.name.clone()),
            endpoint: made.then(|| self.endpoint.clone()),
            version: version.or_else(|| self.seen.status.version.clone()),
            selector: Some(format!("{}={}", labels::DATABASE, self.seen.name)),
            observed_generation: self.seen.generation,
            instances: self.seen.instances.iter().map(row).collect(),
            ..self.seen.status.clone()
        }
    }

    fn news(&self, phase: Phase, degraded: Option<&Trouble>) -> Vec<News> {
        let known = self.seen.status.conditions.iter().find(|condition| condition.type_ == "Degraded");
        let reason_is_new = degraded.is_some_and(|trouble| {
            known.is_none_or(|known| known.status != "True" || known.reason != trouble.reason)
        });
        let mut news = Vec::new();
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
            (_, Phase::Scaling) => Some(turn("Scaling", progress())),
            (_, Phase::Upgrading) => Some(turn("RollingOut", progress())),
            (None | Some(Phase::Pending | Phase::Creating), Phase::Running) => {
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
