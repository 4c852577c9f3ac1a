//! What is said of an app: its status, its conditions, and what is worth an event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use keelson_api::v1::{AppPhase, AppStatus};
use keelson_api::value::Written;
use keelson_kit::conditions::Finding;
use keelson_kit::events::Severity;

use super::facts::{DeploymentFact, Observed, Trouble};
use super::plan::{self, Decided};
use super::revision::APP;

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
    pub status: AppStatus,
    pub findings: Vec<Finding>,
    pub news: Vec<News>,
}

/// How far the roll-out is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The Deployment is still to be made, or told.
    Begins,
    /// Pods of the new revision come, those of older ones go.
    RollsOut,
    /// Pods of the same revision come or go.
    Scales,
    /// All are there and serve.
    Complete,
}

struct Standing<'a> {
    seen: &'a Observed,
    decided: &'a Decided,
    deployment: Option<&'a DeploymentFact>,
    stage: Stage,
    trouble: Option<Trouble>,
    desired: i32,
    available: i32,
    before: Option<AppPhase>,
}

/// Puts what was found and decided into words.
pub(super) fn say(seen: &Observed, decided: &Decided) -> Said {
    let deployment = seen.deployment.as_ref();
    let wanted = decided.wanted.as_ref();
    let desired = wanted.and_then(|wanted| wanted.pods).or(deployment.map(|it| it.desired));
    let mut standing = Standing {
        seen,
        decided,
        deployment,
        stage: stage(seen, decided),
        trouble: None,
        desired: desired.unwrap_or_else(|| seen.spec.replicas.unwrap_or(1)),
        available: deployment.map_or(0, |it| it.available),
        before: seen.status.phase.as_ref().and_then(|phase| phase.parse().ok()),
    };
    standing.trouble = standing.trouble();
    let phase = standing.phase();
    let findings = standing.findings(phase);
    let news = standing.news(phase);
    Said { status: standing.status(phase), findings, news }
}

fn stage(seen: &Observed, decided: &Decided) -> Stage {
    let (Some(wanted), Some(deployment)) = (&decided.wanted, &seen.deployment) else { return Stage::Begins };
    if decided.undoes || !plan::runs(deployment, &wanted.revision, wanted.credentials.as_deref()) {
        return Stage::Begins;
    }
    let scales = wanted.pods.is_some_and(|pods| pods != deployment.desired);
    let proven = deployment
        .last_ready
        .as_ref()
        .is_some_and(|ready| ready.asked == wanted.revision.asked && ready.credentials == wanted.credentials);
    // A note on a Deployment is another generation of it, too: what was ready before is not rolled out anew for that.
    match (deployment.is_seen || proven) && deployment.is_full() && !scales {
        true => Stage::Complete,
        false if proven => Stage::Scales,
        false => Stage::RollsOut,
    }
}

fn finding(kind: &str, holds: bool, reason: &str, message: String) -> Finding {
    Finding { kind: kind.to_owned(), holds: Some(holds), reason: reason.to_owned(), message }
}

impl Standing<'_> {
    /// What is not as asked, the worst first.
    fn trouble(&self) -> Option<Trouble> {
        if let Some(undone) = &self.decided.undone {
            let back = self.deployment.and_then(|it| it.last_ready.as_ref());
            let image = back.map(|ready| ready.image.as_str()).unwrap_or_default();
            let message = format!(
                "the roll-out of {} was taken back to {image}: {}. Correct the spec; to try the same again, change the \
                 annotation {}",
                self.seen.spec.image,
                undone.message,
                super::revision::RESTART
            );
            return Some(Trouble::new(&undone.reason, message));
        }
        let deployment = self.deployment?;
        let asked = deployment.asked.as_deref().unwrap_or_default();
        if deployment.stalled && matches!(self.stage, Stage::RollsOut | Stage::Scales) {
            return Some(plan::trouble(self.seen, deployment, asked));
        }
        // Pods that have served and do so no more are not waited for.
        let broken = || self.seen.pods.iter().filter(|pod| !pod.ready && !pod.deleting);
        if self.stage == Stage::Scales
            && let Some(trouble) = broken().find_map(|pod| pod.trouble.clone())
        {
            return Some(trouble);
        }
        self.decided.held_up.clone().filter(|held_up| self.is_held_up_by(held_up))
    }

    /// A database that is away for a moment is no trouble of the app's, as long as nothing waits for it.
    fn is_held_up_by(&self, held_up: &Trouble) -> bool {
        let waits = self.decided.wanted.as_ref().is_none_or(|wanted| {
            wanted.revision.asked != super::revision::asked(&self.seen.spec, self.seen.restart.as_deref())
        });
        waits || held_up.reason == "DatabaseMissing"
    }

    fn phase(&self) -> AppPhase {
        let waits = self.decided.held_up.is_some() && self.decided.wanted.is_none();
        match (&self.trouble, self.stage) {
            _ if waits && self.deployment.is_none() => AppPhase::Pending,
            (Some(_), _) if self.available > 0 => AppPhase::Degraded,
            (Some(_), _) => AppPhase::Failed,
            (None, Stage::Complete) => AppPhase::Running,
            (None, _) => AppPhase::Progressing,
        }
    }

    fn findings(&self, phase: AppPhase) -> Vec<Finding> {
        let mut findings = vec![self.ready(phase), self.progressing(phase)];
        findings.push(match &self.trouble {
            Some(Trouble { reason, message }) => finding("Degraded", true, reason, message.clone()),
            None => finding("Degraded", false, "AsAsked", "nothing is amiss".to_owned()),
        });
        if let Some(database) = &self.seen.spec.database {
            findings.push(match &self.decided.held_up {
                Some(Trouble { reason, message }) => finding("DatabaseReady", false, reason, message.clone()),
                None => finding("DatabaseReady", true, "Ready", format!("Database {database} takes writes")),
            });
        }
        findings
    }

    fn ready(&self, phase: AppPhase) -> Finding {
        let said = self.trouble.as_ref().or(self.decided.held_up.as_ref());
        match said {
            _ if self.available > 0 => finding("Ready", true, "Available", self.count()),
            _ if self.desired == 0 && phase == AppPhase::Running => {
                finding("Ready", true, "ScaledToZero", "no pods are asked for".to_owned())
            }
            Some(Trouble { reason, message }) => finding("Ready", false, reason, message.clone()),
            None => finding("Ready", false, "NoPodReady", self.count()),
        }
    }

    fn progressing(&self, phase: AppPhase) -> Finding {
        let reason = if self.stage == Stage::Scales { "Scaling" } else { "RollingOut" };
        match (phase, &self.decided.held_up) {
            (AppPhase::Pending, Some(held_up)) => {
                finding("Progressing", false, "Waiting", held_up.message.clone())
            }
            (AppPhase::Progressing, _) => finding("Progressing", true, reason, self.progress()),
            (AppPhase::Running, _) => {
                finding("Progressing", false, "Settled", "nothing is under way".to_owned())
            }
            _ if self.stage != Stage::Complete && self.decided.undone.is_some() => {
                finding("Progressing", true, "TakingBack", self.progress())
            }
            _ if self.stage == Stage::Complete => {
                finding("Progressing", false, "Settled", "nothing is under way".to_owned())
            }
            _ => finding("Progressing", false, "Stalled", self.progress()),
        }
    }

    fn count(&self) -> String {
        format!("{} of {} pods serve", self.available, self.desired)
    }

    fn progress(&self) -> String {
        let fallback = DeploymentFact::default();
        let DeploymentFact { updated, ready, .. } = self.deployment.unwrap_or(&fallback);
        let updated = if self.stage == Stage::Begins { 0 } else { *updated };
        format!("{updated} of {} pods are updated, {ready} are ready", self.desired)
    }

    fn status(&self, phase: AppPhase) -> AppStatus {
        let seen = self.seen;
        let wanted = self.decided.wanted.as_ref();
        let ready = wanted.and_then(|wanted| wanted.last_ready.as_ref()).map(|ready| ready.image.clone());
        let number = |of: fn(&DeploymentFact) -> i32| Some(self.deployment.map_or(0, of));
        AppStatus {
            phase: Some(Written::of(&phase)),
            desired_replicas: Some(self.desired),
            replicas: number(|it| it.pods),
            ready_replicas: number(|it| it.ready),
            updated_replicas: number(|it| it.updated),
            selector: Some(format!("{APP}={}", seen.name)),
            ready_image: ready.or_else(|| seen.status.ready_image.clone()),
            binding: plan::secret(seen),
            observed_generation: seen.generation,
            conditions: self.conditions_so_far(),
        }
    }

    /// What was said, but for what is of no interest any more.
    fn conditions_so_far(&self) -> Vec<Condition> {
        let bound = self.seen.spec.database.is_some();
        let all = self.seen.status.conditions.iter();
        all.filter(|one| bound || one.type_ != "DatabaseReady").cloned().collect()
    }

    fn news(&self, phase: AppPhase) -> Vec<News> {
        let said = |kind: &str| self.seen.status.conditions.iter().find(|one| one.type_ == kind);
        let mut news = Vec::new();
        if let Some(Trouble { reason, message }) = &self.trouble
            && said("Degraded").is_none_or(|known| known.status != "True" || known.reason != *reason)
        {
            let reason = if self.decided.undone.is_some() { "TakenBack" } else { reason };
            let (severity, note) = (Severity::Warning, message.clone());
            news.push(News { severity, reason: reason.to_owned(), note });
        }
        let turn = |reason: &str, note: String| {
            Some(News { severity: Severity::Normal, reason: reason.to_owned(), note })
        };
        let begun = said("Progressing").is_some_and(|known| known.status == "True");
        let kind = if self.stage == Stage::Scales { "Scaling" } else { "RollingOut" };
        let waits = || self.decided.held_up.clone().map(|it| it.message).unwrap_or_default();
        news.extend(match (self.before, phase) {
            (before, AppPhase::Pending) if before != Some(phase) => turn("Waiting", waits()),
            (_, AppPhase::Progressing) if !begun => turn(kind, self.progress()),
            (Some(AppPhase::Running), AppPhase::Running) => None,
            (Some(AppPhase::Degraded | AppPhase::Failed), AppPhase::Running) => {
                turn("Recovered", self.count())
            }
            (_, AppPhase::Running) => turn("RolledOut", self.count()),
            _ => None,
        });
        news
    }
}
