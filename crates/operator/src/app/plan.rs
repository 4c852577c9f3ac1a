//! From facts to what is to be: which revision pods are to be made from, and how many there are to be. No IO, no clock.

use std::time::Duration;

use keelson_api::instance::Names;
use keelson_api::v1::{AppSpec, AppStatus};
use keelson_api::value::Span;
use keelson_kit::conditions::Finding;

use super::children::{Wanted, template};
use super::facts::{DeploymentFact, Observed, PodFact, Trouble};
use super::revision::{Revision, Undone, asked};
use super::status::{self, News};

/// How long a roll-out may make no progress, unless a person says otherwise.
const DEADLINE: Duration = Duration::from_secs(300);

/// What is to be done, and said.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the children follow from. Without it, they are left as they are.
    pub wanted: Option<Wanted>,
    /// Whether a revision is taken back: what that follows from is asked for again before it is done.
    pub undoes: bool,
    /// The status, but for its conditions.
    pub status: AppStatus,
    /// What the conditions follow from.
    pub findings: Vec<Finding>,
    /// What is worth an event.
    pub news: Vec<News>,
}

/// What was decided, for those who say it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decided {
    /// What the app waits for, or what is missing though it goes on.
    pub held_up: Option<Trouble>,
    /// The revision that was taken back.
    pub undone: Option<Undone>,
    /// Whether that is done now.
    pub undoes: bool,
    /// What is to be; without it, nothing is touched.
    pub wanted: Option<Wanted>,
}

/// What is to be done for an app.
pub fn plan(seen: &Observed) -> Plan {
    let decided = decide(seen);
    let said = status::say(seen, &decided);
    let Decided { undoes, wanted, .. } = decided;
    Plan { wanted, undoes, status: said.status, findings: said.findings, news: said.news }
}

fn decide(seen: &Observed) -> Decided {
    let held_up = held_up(seen);
    let asked = asked(&seen.spec, seen.restart.as_deref());
    let deployment = seen.deployment.as_ref();
    let ready = deployment.and_then(|deployment| deployment.last_ready.clone());
    // What runs goes on while something is missing; what is new waits.
    let runs = deployment.is_some_and(|deployment| deployment.asked.as_ref() == Some(&asked));
    let again = deployment.is_none() && seen.status.ready_image.is_some() && seen.database.is_some();
    if held_up.is_some() && !runs && !again {
        let wanted = ready.map(|ready| wanted(seen, ready, None));
        return Decided { held_up, wanted, ..Decided::default() };
    }
    let before = deployment.and_then(|deployment| deployment.undone.clone());
    let before = before.filter(|undone| undone.asked == asked);
    let undone = before.clone().or_else(|| fails(seen, &asked));
    let undoes = undone.is_some() && before.is_none();
    let revision = match (&undone, ready) {
        (Some(_), Some(ready)) => ready,
        (_, Some(ready)) if ready.asked == asked => ready,
        _ => revision(seen, asked),
    };
    let wanted = Some(wanted(seen, revision, undone.clone()));
    Decided { held_up, undone, undoes, wanted }
}

/// What the app waits for before it starts, or starts anew.
fn held_up(seen: &Observed) -> Option<Trouble> {
    let name = seen.spec.database.as_ref()?;
    match &seen.database {
        None => Some(Trouble::new(
            "DatabaseMissing",
            format!("there is no Database {name} in this namespace: create it, or correct spec.database"),
        )),
        Some(database) if !database.ready => {
            let why = if database.why.is_empty() { "it is being made" } else { &database.why };
            Some(Trouble::new("DatabaseNotReady", format!("Database {name} takes no writes yet: {why}")))
        }
        Some(_) => None,
    }
}

/// The revision that is asked for, when it has had its time and another was ready before it.
fn fails(seen: &Observed, asked: &str) -> Option<Undone> {
    let deployment = seen.deployment.as_ref()?;
    let tried = deployment.asked.as_deref() == Some(asked) && deployment.is_seen && deployment.stalled;
    let way_back = deployment.last_ready.as_ref().is_some_and(|ready| ready.asked != asked);
    let Trouble { reason, message } = trouble(seen, deployment, asked);
    (tried && way_back && !deployment.is_complete()).then(|| Undone {
        asked: asked.to_owned(),
        reason,
        message,
    })
}

/// What is wrong with a revision that does not become ready: what its pods say, or what is said of them.
pub(super) fn trouble(seen: &Observed, deployment: &DeploymentFact, asked: &str) -> Trouble {
    let of_it = |pod: &&PodFact| pod.asked.as_deref() == Some(asked) && !pod.deleting && !pod.ready;
    let mut pods = seen.pods.iter().filter(of_it);
    let said = pods.find_map(|pod| pod.trouble.clone());
    let refused = || deployment.refused.as_ref().map(|why| Trouble::new("PodsRefused", why.clone()));
    said.or_else(refused).unwrap_or_else(|| {
        Trouble::new("NotReady", "its pods did not become ready in time, and nothing is said of why")
    })
}

fn revision(seen: &Observed, asked: String) -> Revision {
    let spec = &seen.spec;
    let template = template::template(&seen.name, spec, &asked, secret(seen).as_deref(), &seen.pooler_image);
    Revision {
        image: spec.image.clone(),
        database: spec.database.clone(),
        credentials: None,
        template,
        asked,
    }
}

/// The Secret that is bound.
pub(super) fn secret(seen: &Observed) -> Option<String> {
    let database = seen.spec.database.as_ref()?;
    let said = seen.database.as_ref().and_then(|database| database.binding.as_ref());
    Some(said.map_or_else(|| Names(database).app(), |binding| binding.name.clone()))
}

fn wanted(seen: &Observed, revision: Revision, undone: Option<Undone>) -> Wanted {
    let spec = &seen.spec;
    let deployment = seen.deployment.as_ref();
    // A revision with no pods has shown nothing.
    let is_ready = deployment.is_some_and(|it| {
        runs(it, &revision, credentials(seen, &revision).as_deref()) && it.is_complete() && it.desired > 0
    });
    let last_ready = deployment.and_then(|it| it.last_ready.clone());
    let pods = pods(seen);
    let least = spec.autoscale.as_ref().map(|autoscale| autoscale.min.unwrap_or(1));
    let credentials = credentials(seen, &revision);
    let proven = || Revision { credentials: credentials.clone(), ..revision.clone() };
    Wanted {
        name: seen.name.clone(),
        last_ready: if is_ready { Some(proven()) } else { last_ready },
        credentials,
        revision,
        pods,
        deadline: deadline(spec),
        undone,
        ports: spec.ports.clone(),
        several: least.or(pods).is_some_and(|pods| pods > 1),
        autoscale: spec.autoscale.clone(),
    }
}

/// Whether the Deployment is told to run just that.
pub(super) fn runs(deployment: &DeploymentFact, revision: &Revision, credentials: Option<&str>) -> bool {
    deployment.asked.as_ref() == Some(&revision.asked) && deployment.credentials.as_deref() == credentials
}

/// The credentials that pods are to start with: the newest that the database goes by. While nothing is said of them,
/// those that pods have. A revision that is bound to another database than is named now keeps what it had.
fn credentials(seen: &Observed, revision: &Revision) -> Option<String> {
    seen.spec.database.as_ref().or(revision.database.as_ref())?;
    if revision.database != seen.spec.database {
        return revision.credentials.clone();
    }
    let told = seen.database.as_ref().and_then(|database| database.binding.as_ref()?.revision.clone());
    told.or_else(|| seen.deployment.as_ref()?.credentials.clone())
}

/// How many pods there are to be, unless an autoscaler says so. Until it has said so for the first time, the number stays
/// what it is: one that nobody sets would become 1.
fn pods(seen: &Observed) -> Option<i32> {
    let asked = seen.spec.replicas.unwrap_or(1);
    let Some(autoscale) = &seen.spec.autoscale else { return Some(asked) };
    let least = autoscale.min.unwrap_or(1);
    match &seen.deployment {
        Some(deployment) if deployment.scaled_by_others => None,
        // An autoscaler does nothing about none.
        Some(deployment) => Some(deployment.desired.max(1)),
        None => Some(asked.clamp(least, autoscale.max.max(least))),
    }
}

fn deadline(spec: &AppSpec) -> i32 {
    let asked = spec.progress_deadline.as_ref().and_then(|text| text.parse().ok());
    let deadline = asked.map_or(DEADLINE, Span::duration);
    i32::try_from(deadline.as_secs()).unwrap_or(i32::MAX).max(super::children::MIN_READY_SECONDS + 1)
}

#[cfg(test)]
mod tests;
