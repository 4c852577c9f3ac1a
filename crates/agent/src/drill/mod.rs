//! A drill: the newest backup is restored into a throw-away instance, the log is replayed as far as it goes, and what
//! came of it is looked at. It is the first process of a pod of its own, knows nothing of leadership, and has no right
//! but to write its report onto that pod.
//!
//! - [`rehearse`] does it, step by step; [`judge`] says what was found of the marks that the primary writes.

#[cfg(test)]
mod inside;
mod judge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{
    DRILL_VARIABLE, DrillPhase, DrillReport, DrillRule, RestorePoint, RestoreRule, annotations,
    backup_reasons, drill_reasons, paths, ports,
};
use keelson_api::value::Written;
use keelson_engine::postgres::{self, Postgres};
use keelson_engine::{Engine, Layout, Role, Secret, Stop, reap};
use keelson_kit::client::{self, Deadlines};
use keelson_kit::telemetry::Metrics;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;

use crate::FIELD_MANAGER;
use crate::archiving::place::Trouble;
use crate::restoring;
use crate::room::Room;

/// How long a database may take to recover from what the restore ended with. It has nothing to replay.
const ANSWERS: Duration = Duration::from_secs(1800);
/// How long it may take to write out what checks have changed, such as hints.
const ENDS: Duration = Duration::from_secs(1800);
/// A store that does not answer is asked again so often before the drill has failed.
const TRIES: u32 = 3;
/// And so long after.
const PAUSE: Duration = Duration::from_secs(20);
/// How long the API server is told what came of it. It outlives an upgrade of that.
const TELLING: Duration = Duration::from_secs(1800);

/// Why a drill can't run at all.
#[derive(Debug, Error)]
pub enum DrillError {
    /// The pod is not one of Keelson's.
    #[error(
        "the environment variable {0} is missing or makes no sense: a drill is to be started by a pod that Keelson made"
    )]
    Environment(&'static str),
    /// No client can be made for the API server.
    #[error("no way to the API server is known: {0}")]
    Api(#[from] kube::Error),
    /// It is over, and could not be told.
    #[error("how it went could not be told on the pod: {0}")]
    Untold(#[source] kube::Error),
}

/// What the pod tells.
struct Here {
    namespace: String,
    pod: String,
    uid: String,
    resources: postgres::Resources,
    rule: DrillRule,
}

impl Here {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Here, DrillError> {
        let text = |name| variable(name).filter(|text| !text.is_empty()).ok_or(DrillError::Environment(name));
        let number = |name| text(name)?.parse().map_err(|_| DrillError::Environment(name));
        let rule = serde_json::from_str(&text(DRILL_VARIABLE)?);
        Ok(Here {
            namespace: text("POD_NAMESPACE")?,
            pod: text("POD_NAME")?,
            uid: text("POD_UID")?,
            resources: postgres::Resources {
                memory: number("MEMORY_BYTES")?,
                cpu_millis: number("CPU_MILLIS")?,
                volume: Room::now().size,
            },
            rule: rule.map_err(|_| DrillError::Environment(DRILL_VARIABLE))?,
        })
    }
}

/// Runs one drill, as the first process of its container, and ends when its end was told.
pub async fn run() -> Result<(), DrillError> {
    let here = Here::read(|name| std::env::var(name).ok())?;
    let client = client::connect(Deadlines::default(), &Metrics::new("keelson_drill")).await?;
    tokio::spawn(reap::reap_forever());
    let (reports, told) = watch::channel(DrillReport::begun(Timestamp::now()));
    let pods: Api<Pod> = Api::namespaced(client, &here.namespace);
    let telling = tokio::spawn(tell_all(pods, here.pod.clone(), here.uid.clone(), told));
    let settings = settings(&here.pod, here.resources, here.rule.parameters.clone());
    rehearse(Layout::default(), settings, &here.rule, paths::PROGRAM, &reports).await;
    telling.await.unwrap_or(Ok(())).map_err(DrillError::Untold)
}

/// What the database is started with: nobody reaches it but this process, over its socket, and it does nothing unasked.
fn settings(
    name: &str,
    resources: postgres::Resources,
    mut parameters: BTreeMap<String, String>,
) -> postgres::Settings {
    // What it locks would be in the way of the checks.
    parameters.retain(|name, _| !name.eq_ignore_ascii_case("autovacuum"));
    parameters.insert("autovacuum".to_owned(), "off".to_owned());
    postgres::Settings {
        name: name.to_owned(),
        port: ports::POSTGRES,
        listen: String::new(),
        resources,
        parameters,
        tls: None,
        plain: false,
        // There is nobody who would follow it.
        replication: postgres::Credentials {
            role: "keelson_replication".to_owned(),
            password: Secret::new(""),
        },
        archive: None,
    }
}

/// Tells what there is to tell, until the end was heard.
async fn tell_all(
    pods: Api<Pod>,
    pod: String,
    uid: String,
    mut reports: watch::Receiver<DrillReport>,
) -> Result<(), kube::Error> {
    let mut failing: Option<Instant> = None;
    loop {
        let report = reports.borrow_and_update().clone();
        let text = serde_json::to_string(&report).map_err(kube::Error::SerdeError)?;
        let patch = json!({"metadata": {"uid": uid, "annotations": {annotations::DRILL_REPORT: text}}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match pods.patch_metadata(&pod, &params, &Patch::Merge(patch)).await {
            Ok(_) if report.finished.is_some() => return Ok(()),
            Ok(_) => {
                failing = None;
                if reports.changed().await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                tracing::warn!(%error, "how far it is could not be told");
                if failing.get_or_insert_with(Instant::now).elapsed() > TELLING {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// Restores, looks, and says what came of it. `program` is what PostgreSQL calls to ask for the log.
async fn rehearse(
    layout: Layout,
    settings: postgres::Settings,
    rule: &DrillRule,
    program: &str,
    reports: &watch::Sender<DrillReport>,
) {
    let done = attempt(layout, settings, rule, program, reports).await;
    reports.send_modify(|report| {
        report.finished = Some(Timestamp::now());
        match done {
            Ok(()) => report.phase = Written::of(&DrillPhase::Succeeded),
            Err(Trouble { reason, problem, .. }) => {
                report.phase = Written::of(&DrillPhase::Failed);
                report.reason = Some(reason.to_owned());
                report.problem = Some(problem);
            }
        }
    });
    let report = reports.borrow();
    match &report.problem {
        None => tracing::info!(?report, "the drill has succeeded"),
        Some(problem) => tracing::error!(?report, problem, "the drill has failed"),
    }
}

async fn attempt(
    layout: Layout,
    settings: postgres::Settings,
    rule: &DrillRule,
    program: &str,
    reports: &watch::Sender<DrillReport>,
) -> Result<(), Trouble> {
    let began = Instant::now();
    let engine = Postgres::open(layout, settings).await.map_err(|error| trouble(&error))?;
    restore(&engine, rule, program, reports).await?;
    engine.start(&Role::Primary).await.map_err(|error| trouble(&error))?;
    engine.ready(ANSWERS).await.map_err(|error| trouble(&error))?;
    let end = engine.replayed_to();
    reports.send_modify(|report| {
        report.answered_seconds = Some(began.elapsed().as_secs());
        (report.timeline, report.end_of_log) = end.unzip();
        report.phase = Written::of(&DrillPhase::Checking);
    });
    tracing::info!("the database answers, and is looked at");
    let looked = look(&engine, reports).await;
    if looked.is_err() {
        // Its pod ends it anyway, and nobody needs what is on its volume.
        let _ = engine.stop(Stop::Immediate, Duration::from_secs(5)).await;
    }
    looked
}

/// Brings the newest backup back, and replays the log as far as it goes.
async fn restore(
    engine: &Postgres,
    rule: &DrillRule,
    program: &str,
    reports: &watch::Sender<DrillReport>,
) -> Result<(), Trouble> {
    let wish =
        RestoreRule { from: rule.from.clone(), backup: None, to: RestorePoint::Latest, timeline: None };
    let begins = |name: &str| reports.send_modify(|report| report.backup = Some(name.to_owned()));
    for left in (0..TRIES).rev() {
        match restoring::restore(engine, &wish, program, begins).await {
            Err(trouble) if trouble.reason == backup_reasons::UNREACHABLE && left > 0 => {
                tracing::warn!(problem = trouble.problem, "the store does not answer, and is asked again");
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    Ok(())
}

/// Looks at all of it: marks, tables and indexes while it runs, pages when it has ended.
async fn look(engine: &Postgres, reports: &watch::Sender<DrillReport>) -> Result<(), Trouble> {
    let marks = engine.marks().await.map_err(|error| trouble(&error))?;
    let started = reports.borrow().started;
    if let Some(seen) = judge::marks(marks, started)? {
        reports.send_modify(|report| {
            report.mark = Some(seen.newest);
            report.lost_seconds = Some(seen.lost_seconds);
            report.checks.marks = seen.count;
        });
    }
    let relations = engine.check_relations().await.map_err(|error| trouble(&error))?;
    if let Some(relations) = relations {
        reports.send_modify(|report| {
            report.checks.databases = relations.databases;
            report.checks.tables = relations.tables;
            report.checks.indexes = relations.indexes;
            report.checks.passed_over = relations.passed_over;
        });
    }
    engine.stop(Stop::Fast, ENDS).await.map_err(|error| trouble(&error))?;
    let pages = engine.check_pages().await.map_err(|error| trouble(&error))?;
    reports.send_modify(|report| report.checks.pages = pages);
    Ok(())
}

/// What it means that the restored database does not do as it should.
fn trouble(error: &keelson_engine::Error) -> Trouble {
    let reason = match error {
        keelson_engine::Error::Inconsistent { .. } => drill_reasons::DAMAGED,
        _ => drill_reasons::RESTORE_FAILED,
    };
    Trouble { reason, problem: format!("what was restored is no good: {error}"), passes: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reaches_what_is_restored_and_it_does_nothing_unasked() {
        let resources = postgres::Resources { memory: 1 << 30, cpu_millis: 500, volume: 1 << 30 };
        let asked = [("Autovacuum", "on"), ("work_mem", "8MB")];
        let asked = asked.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = settings("orders-drill", resources, asked);
        assert!(settings.listen.is_empty() && settings.tls.is_none() && settings.archive.is_none());
        let parameters: Vec<_> =
            settings.parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(parameters, [("autovacuum", "off"), ("work_mem", "8MB")]);
    }

    #[test]
    fn a_pod_that_is_none_of_keelsons_runs_no_drill() {
        let variable = |name: &str| match name {
            "POD_NAMESPACE" => Some("shop".to_owned()),
            DRILL_VARIABLE => Some("nonsense".to_owned()),
            _ => Some("7".to_owned()),
        };
        let error = Here::read(variable).err().unwrap().to_string();
        assert!(error.contains(DRILL_VARIABLE), "{error}");
        let missing = |name: &str| variable(name).filter(|_| name != "POD_UID");
        let error = Here::read(|name| match name {
            DRILL_VARIABLE => Some(r#"{"from": {"repository": {}}}"#.to_owned()),
            other => missing(other),
        });
        assert!(error.err().unwrap().to_string().contains("POD_UID"));
    }

    #[test]
    fn damage_is_told_from_a_database_that_does_not_start() {
        let damaged =
            keelson_engine::Error::Inconsistent { what: "the table t".into(), said: "a row".into() };
        assert_eq!(trouble(&damaged).reason, drill_reasons::DAMAGED);
        assert!(trouble(&damaged).problem.contains("the table t is damaged: a row"));
        let other = keelson_engine::Error::Running { doing: "asking", running: false };
        assert_eq!(trouble(&other).reason, drill_reasons::RESTORE_FAILED);
    }
}
