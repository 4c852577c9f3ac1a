//! What facts mean for whoever looks: from them and the time alone.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use keelson_api::v1::{Backup, Cause, Database, DatabaseStatus, InstanceStatus, Leadership};
use kube::ResourceExt;

use super::facts::Facts;
use super::lease::LeaseView;
use super::view::{
    BackupsView, DatabaseView, EventView, InstanceView, LeadershipView, Problem, Row, Verdict,
};
use crate::commands::hints;
use crate::commands::words::since;

/// So many events are shown.
const EVENTS: usize = 8;
/// And so many leaderships.
const LEADERSHIPS: usize = 5;

/// A row of the table.
pub fn row(database: &Database, now: Timestamp) -> Row {
    let status = database.status.clone().unwrap_or_default();
    let problems = problems(database, &status, now);
    let engine = database.spec.engine.as_ref().map_or("postgres", |engine| engine.as_str());
    let version = status.version.as_ref().or(database.spec.version.as_ref());
    let version = version.map(|version| format!(" {}", version.as_str())).unwrap_or_default();
    let made = database.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let backup = status.backup.as_ref().and_then(|backup| backup.last_backup_time.as_ref());
    Row {
        namespace: database.namespace().unwrap_or_default(),
        name: database.name_any(),
        verdict: verdict(database, &status, &problems),
        version: format!("{engine}{version}"),
        ready: status.ready_replicas.unwrap_or_default(),
        replicas: i32::try_from(database.spec.effective_replicas()).unwrap_or(i32::MAX),
        phase: status.phase.as_ref().map_or("New".to_owned(), ToString::to_string),
        primary: status.primary.clone(),
        age_seconds: since(made, now),
        backup_seconds_ago: backup.map(|time| since(time.0, now)),
        reason: problems.first().map(|problem| problem.reason.clone()),
    }
}

/// The worst of all.
pub fn worst(rows: &[Row]) -> Verdict {
    rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Well)
}

/// All that is known of one.
pub fn database(facts: &Facts, now: Timestamp) -> DatabaseView {
    let database = facts.database.clone().unwrap_or_else(|| Database::new("", Default::default()));
    let status = database.status.clone().unwrap_or_default();
    let row = row(&database, now);
    let condition = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
    let progress = condition("Progressing").filter(|one| one.status == "True");
    DatabaseView {
        verdict: row.verdict,
        endpoint: status.endpoint.clone(),
        is_seen: status.observed_generation == database.metadata.generation,
        progress: progress.map(|one| one.message.clone()),
        problems: problems(&database, &status, now),
        instances: instances(&status, facts, now),
        lease: facts.lease.as_ref().map(|lease| LeaseView::of(lease, now)),
        backups: backups(&database, &status, &facts.backups, now),
        leaderships: status.leaderships.iter().take(LEADERSHIPS).map(leadership).collect(),
        events: events(&facts.events),
        unread: facts.unread.clone(),
        row,
    }
}

fn verdict(database: &Database, status: &DatabaseStatus, problems: &[Problem]) -> Verdict {
    let ready = status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    if !problems.is_empty() {
        return Verdict::Wrong;
    }
    // A spec that nobody has looked at yet may ask for anything.
    let seen = status.observed_generation == database.metadata.generation;
    if ready && seen { Verdict::Well } else { Verdict::UnderWay }
}

/// What is wrong, the worst first: nothing works, then less than was asked for, then the rest. What is being made for
/// the first time is not wrong.
fn problems(database: &Database, status: &DatabaseStatus, now: Timestamp) -> Vec<Problem> {
    let being_made = ["Creating", "Restoring", "Starting"];
    let is_wrong = |one: &&Condition| match (one.type_.as_str(), one.status.as_str()) {
        ("Ready" | "BackupReady" | "SpecEffective", "False") => !being_made.contains(&one.reason.as_str()),
        ("Degraded", "True") => true,
        ("Progressing", "False") => one.reason == "Stalled",
        _ => false,
    };
    let order = ["Ready", "Degraded", "BackupReady", "Progressing", "SpecEffective"];
    let mut wrong: Vec<&Condition> = status.conditions.iter().filter(is_wrong).collect();
    wrong.sort_by_key(|one| order.iter().position(|kind| *kind == one.type_));
    // One that goes is neither ready nor wrong.
    if database.metadata.deletion_timestamp.is_some() {
        wrong.clear();
    }
    let mut said: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for one in wrong {
        if said.contains(&one.message.as_str()) {
            continue;
        }
        said.push(&one.message);
        let hint = hints::of(&one.reason);
        found.push(Problem {
            condition: one.type_.clone(),
            reason: one.reason.clone(),
            message: one.message.clone(),
            since_seconds: since(one.last_transition_time.0, now),
            hint: hint.map(|hint| hint.what.to_owned()),
            docs: hint.map(|hint| hint.docs.to_owned()),
        });
    }
    found
}

/// A row of the status each; and pods that nothing has been said of yet.
fn instances(status: &DatabaseStatus, facts: &Facts, now: Timestamp) -> Vec<InstanceView> {
    let mut rows: Vec<InstanceStatus> = status.instances.clone();
    for pod in &facts.pods {
        if !rows.iter().any(|row| row.name == pod.name_any()) {
            rows.push(InstanceStatus { name: pod.name_any(), ..InstanceStatus::default() });
        }
    }
    let mut views: Vec<InstanceView> = rows
        .iter()
        .map(|row| {
            let pod = facts.pods.iter().find(|pod| pod.name_any() == row.name);
            let claim = facts.claims.iter().find(|claim| claim.name_any() == format!("data-{}", row.name));
            instance(row, pod, claim, now)
        })
        .collect();
    views.sort_by_key(|view| (view.role != "primary", view.name.clone()));
    views
}

fn instance(
    row: &InstanceStatus,
    pod: Option<&Pod>,
    claim: Option<&PersistentVolumeClaim>,
    now: Timestamp,
) -> InstanceView {
    let made = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    let status = pod.and_then(|pod| pod.status.as_ref());
    let containers = status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    InstanceView {
        name: row.name.clone(),
        role: row.role.as_ref().map_or("unknown".to_owned(), ToString::to_string),
        ready: row.ready,
        lag_bytes: row.lag_bytes,
        timeline: row.timeline,
        node: pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone()),
        volume: claim.and_then(size),
        restarts: containers.map(|container| container.restart_count).sum(),
        age_seconds: made.map(|time| since(time.0, now)),
        waits: pod.and_then(waits),
    }
}

/// The size that a volume has, or is to have.
fn size(claim: &PersistentVolumeClaim) -> Option<String> {
    let has = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage").cloned());
    let asked = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage").cloned());
    match (has, asked) {
        (Some(has), Some(asked)) if has != asked => Some(format!("{} → {}", has.0, asked.0)),
        (has, asked) => has.or(asked).map(|size| size.0),
    }
}

/// What keeps a pod from starting.
fn waits(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("ends".to_owned());
    }
    let status = pod.status.as_ref()?;
    let unscheduled =
        status.conditions.iter().flatten().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone()).next();
    unscheduled.and_then(|one| one.reason.clone()).or(waiting)
}

fn backups(
    database: &Database,
    status: &DatabaseStatus,
    backups: &[Backup],
    now: Timestamp,
) -> Option<BackupsView> {
    let asked = database.spec.backup.as_ref().is_some_and(|policy| policy.is_enabled());
    let summary = status.backup.clone().filter(|_| asked);
    if summary.is_none() && backups.is_empty() {
        return None;
    }
    let summary = summary.unwrap_or_default();
    let in_phase = |phase: &str| {
        let phase = phase.to_owned();
        backups.iter().filter(move |one| {
            one.status
                .as_ref()
                .and_then(|status| status.phase.as_ref())
                .is_some_and(|found| found.as_str() == phase)
        })
    };
    let percent = |backup: &Backup| {
        let status = backup.status.as_ref()?;
        let total = status.total_bytes.filter(|total| *total > 0)?;
        Some(status.read_bytes?.saturating_mul(100) / total)
    };
    let made = |backup: &Backup| backup.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let newest = in_phase("Complete").filter_map(made).max();
    let failed = in_phase("Failed").filter(|backup| made(backup) > newest).max_by_key(|backup| made(backup));
    let ago = |time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| since(time.0, now);
    Some(BackupsView {
        last_seconds_ago: summary.last_backup_time.as_ref().map(ago),
        last: summary.last_backup,
        next_in_seconds: summary.next_backup.as_ref().map(|time| -ago(time)),
        running: in_phase("Running").map(|backup| (backup.name_any(), percent(backup))).next(),
        failed: failed.map(ResourceExt::name_any),
        complete: in_phase("Complete").count(),
        first_recoverable: summary.first_recoverable.map(|time| time.0),
        last_recoverable: summary.last_recoverable.map(|time| time.0),
        archive_lag_bytes: summary.archive_lag_bytes,
        drill_seconds_ago: summary.last_drill.as_ref().map(ago),
        drill_seconds: summary.last_drill_seconds,
    })
}

fn leadership(one: &Leadership) -> LeadershipView {
    let cause: Option<Cause> = one.why.as_ref().and_then(|why| why.parse().ok());
    LeadershipView {
        who: one.who.clone(),
        epoch: one.epoch,
        since: one.since.0,
        why: cause.map_or("is primary", Cause::told).to_owned(),
        gap_millis: one.gap_millis,
        lost_bytes: one.lost_bytes.filter(|lost| *lost > 0),
    }
}

/// The last of them, the newest last. What is normal of a pod is of no interest.
fn events(events: &[Event]) -> Vec<EventView> {
    let of_interest = |event: &&Event| {
        event.involved_object.kind.as_deref() == Some("Database") || event.type_.as_deref() == Some("Warning")
    };
    let mut views: Vec<EventView> = events
        .iter()
        .filter(of_interest)
        .filter_map(|event| {
            let series = event.series.as_ref();
            let last = series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
            let time = last
                .or(event.last_timestamp.as_ref().map(|time| time.0))
                .or(event.event_time.as_ref().map(|time| time.0))
                .or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))?;
            Some(EventView {
                time,
                warning: event.type_.as_deref() == Some("Warning"),
                about: event.involved_object.name.clone().unwrap_or_default(),
                reason: event.reason.clone().unwrap_or_default(),
                message: event.message.clone().unwrap_or_default(),
                count: series.and_then(|series| series.count).or(event.count).unwrap_or(1),
            })
        })
        .collect();
    views.sort_by_key(|view| view.time);
    views.split_off(views.len().saturating_sub(EVENTS))
}
