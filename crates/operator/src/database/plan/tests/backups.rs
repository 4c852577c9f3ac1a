//! What is told to agents about backups, and what is said of them.

use keelson_api::instance::{ArchiveReport, BackupReport, backup_reasons, paths};
use keelson_api::v1::{BackupPhase, BackupStatus};

use super::*;
use crate::database::backups::{BackupFact, BackupStep};

fn to_s3() -> Value {
    json!({"replicas": 2, "backup": {"maxDataLoss": "30s", "to": {
        "s3": {"bucket": "backups", "credentialsSecret": "keys"}
    }}})
}

/// Whoever leads says this of its log.
pub(super) fn archives(seen: &mut Observed, archive: ArchiveReport) {
    let leads = |one: &&mut Instance| one.report.as_ref().is_some_and(|it| it.role == Role::Primary);
    let leader = seen.instances.iter_mut().find(leads).unwrap();
    leader.report.as_mut().unwrap().archive = Some(archive);
}

pub(super) fn well() -> ArchiveReport {
    ArchiveReport {
        last: Some(ago(10)),
        first_recoverable: Some(ago(3600)),
        last_recoverable: Some(ago(10)),
        backups: Some(vec!["base_1".to_owned()]),
        ..ArchiveReport::default()
    }
}

#[test]
fn a_database_without_backups_is_told_what_it_was_always_told() {
    for spec in
        [json!({}), json!({"backup": {"schedule": "0 2 * * *"}}), json!({"backup": {"enabled": false}})]
    {
        let wanted = plan(&fresh(spec), now()).wanted.unwrap();
        assert_eq!((&wanted.instance.backup, &wanted.instance.restore), (&None, &None));
        let text = wanted.instance.to_json().unwrap();
        assert!(!text.contains("backup") && !text.contains("restore"), "{text}");
        assert_eq!(asked(&wanted), asked(&plan(&fresh(json!({})), now()).wanted.unwrap()));
    }
}

#[test]
fn agents_are_told_where_backups_go_and_where_the_keys_are_mounted() {
    let wanted = plan(&fresh(to_s3()), now()).wanted.unwrap();
    let rule = wanted.instance.backup.as_ref().unwrap();
    assert_eq!(rule.to.repository.s3.as_ref().unwrap().path.as_deref(), Some("shop/orders"));
    assert_eq!(rule.to.credentials.as_deref(), Some(paths::BACKUP_CREDENTIALS));
    assert_eq!((rule.max_data_loss_seconds, rule.incrementals), (30, 6));
    assert_eq!(rule.retention.as_deref(), Some("30d"));
    let off = json!({"backup": {"enabled": false, "to": {"s3": {"bucket": "backups"}}}});
    assert_eq!(plan(&fresh(off), now()).wanted.unwrap().instance.backup, None);
}

#[test]
fn backups_are_ready_when_the_log_is_archived_and_there_is_one() {
    let mut seen = running(to_s3());
    assert_eq!(condition(&applied(&mut seen), "BackupReady").1, "Starting");
    archives(&mut seen, ArchiveReport { backups: Some(vec![]), ..ArchiveReport::default() });
    assert_eq!(condition(&applied(&mut seen), "BackupReady").1, "NoBackupYet");
    archives(&mut seen, well());
    let made = applied(&mut seen);
    let (holds, reason, _) = condition(&made, "BackupReady");
    assert_eq!((holds, reason), (Some(true), "Archiving"));
    let summary = made.status.backup.unwrap();
    assert_eq!(summary.first_recoverable, Some(Time(ago(3600))));
    assert_eq!((summary.last_recoverable, summary.archive_lag_bytes), (Some(Time(ago(10))), Some(0)));
    assert!(made.news.iter().any(|news| news.reason == "Archiving"), "{:?}", made.news);
}

#[test]
fn a_dead_store_is_said_with_the_time_that_is_left_and_is_in_nobodys_way() {
    let mut seen = running(to_s3());
    archives(&mut seen, well());
    applied(&mut seen);
    let dead = ArchiveReport {
        waiting: 40,
        waiting_bytes: 40 << 24,
        reason: Some(backup_reasons::UNREACHABLE.to_owned()),
        problem: Some("the store can't be reached".to_owned()),
        full_in_seconds: Some(1800),
        ..well()
    };
    archives(&mut seen, dead);
    let made = applied(&mut seen);
    let (holds, reason, message) = condition(&made, "BackupReady");
    assert_eq!((holds, reason), (Some(false), "StoreUnreachable"));
    assert!(message.contains("can't be reached") && message.contains("30 minutes"), "{message}");
    assert_eq!((phase(&made), condition(&made, "Ready").0), (Phase::Running, Some(true)));
    assert_eq!(made.status.backup.as_ref().unwrap().archive_lag_bytes, Some(40 << 24));
    assert!(made.news.iter().any(|news| news.reason == "StoreUnreachable"), "{:?}", made.news);
    assert!(applied(&mut seen).news.is_empty(), "it is said once");
}

#[test]
fn what_was_known_stays_while_nobody_leads() {
    let mut seen = running(to_s3());
    archives(&mut seen, well());
    applied(&mut seen);
    for instance in &mut seen.instances {
        let report = instance.report.as_mut().unwrap();
        (report.writable, report.role, report.archive) = (false, Role::Replica, None);
    }
    let made = applied(&mut seen);
    assert_eq!(condition(&made, "BackupReady").0, Some(true));
    assert_eq!(made.status.backup.unwrap().first_recoverable, Some(Time(ago(3600))));
    respec(&mut seen, json!({"replicas": 2}));
    assert_eq!(applied(&mut seen).status.backup, None, "who asks for none is told of none");
}

/// A Backup that somebody asked for so long ago.
pub(super) fn asked_for(name: &str, seconds: i64) -> BackupFact {
    BackupFact {
        name: name.to_owned(),
        uid: format!("u-{name}"),
        made: ago(seconds),
        deleting: false,
        generation: Some(1),
        spec: serde_json::from_value(json!({"database": "orders"})).unwrap(),
        status: BackupStatus::default(),
    }
}

/// A database that archives, with a backup from before, and the next one tomorrow.
pub(super) fn archiving(spec: Value) -> Observed {
    let mut seen = running(spec);
    archives(&mut seen, well());
    seen.status.backup = Some(serde_json::from_value(json!({"nextBackup": "2026-11-17T02:30:00Z"})).unwrap());
    applied(&mut seen);
    seen
}

/// Carries a plan out with what it says of Backups.
fn carried(seen: &mut Observed) -> Plan {
    let made = applied(seen);
    for step in &made.backups {
        match step {
            BackupStep::Make { name } => seen.backups.push(asked_for(name, 0)),
            BackupStep::Say { name, status, .. } => {
                seen.backups.iter_mut().find(|one| one.name == *name).unwrap().status = (**status).clone();
            }
            BackupStep::Remove { name, .. } => seen.backups.retain(|one| one.name != *name),
        }
    }
    made
}

fn order(seen: &Observed) -> Option<keelson_api::instance::BackupOrder> {
    seen.config.as_ref().unwrap().backup.as_ref().unwrap().order.clone()
}

fn status_of(seen: &Observed, name: &str) -> (String, String) {
    let status = &seen.backups.iter().find(|one| one.name == name).unwrap().status;
    let condition = status.conditions.first();
    (status.phase.as_ref().unwrap().to_string(), condition.unwrap().reason.clone())
}

/// An instance says this of the Backup that it was told to make.
fn reports(seen: &mut Observed, instance: &str, backup: &str, phase: BackupPhase) {
    let report = BackupReport {
        uid: format!("u-{backup}"),
        phase: Written::of(&phase),
        method: Some("full".into()),
        id: (phase == BackupPhase::Complete).then(|| format!("base_{backup}")),
        started: Some(ago(20)),
        finished: (phase != BackupPhase::Running).then(|| ago(5)),
        read_bytes: 100,
        total_bytes: 200,
        stored_bytes: if phase == BackupPhase::Complete { 50 } else { 0 },
        reason: (phase == BackupPhase::Failed).then(|| "StoreFull".to_owned()),
        problem: (phase == BackupPhase::Failed).then(|| "there is no room left".to_owned()),
    };
    let one = seen.instances.iter_mut().find(|one| one.name == instance).unwrap();
    one.report.as_mut().unwrap().backup = Some(report);
}

#[test]
fn a_replica_makes_the_backup_and_one_after_the_other() {
    let mut seen = archiving(to_s3());
    seen.backups = vec![asked_for("later", 5), asked_for("first", 10)];
    carried(&mut seen);
    let told = order(&seen).unwrap();
    assert_eq!((told.name.as_str(), told.instance.as_str()), ("first", "orders-1"));
    assert_eq!(status_of(&seen, "first").0, "Running");
    assert_eq!(status_of(&seen, "later"), ("Pending".to_owned(), "Waiting".to_owned()));

    reports(&mut seen, "orders-1", "first", BackupPhase::Running);
    carried(&mut seen);
    assert_eq!(order(&seen).unwrap(), told, "it goes on");
    let progress = &seen.backups[1].status;
    assert_eq!((progress.read_bytes, progress.total_bytes), (Some(100), Some(200)));

    reports(&mut seen, "orders-1", "first", BackupPhase::Complete);
    carried(&mut seen);
    assert_eq!(status_of(&seen, "first"), ("Complete".to_owned(), "Complete".to_owned()));
    assert_eq!(order(&seen).unwrap().name, "first", "it stays until that is known to be written");
    let status = seen.backups[1].status.clone();
    assert_eq!((status.id.as_deref(), status.stored_bytes), (Some("base_first"), Some(50)));
    assert_eq!(status.window.unwrap().start, Some(Time(ago(5))));

    let made = carried(&mut seen);
    assert_eq!(order(&seen).unwrap().name, "later");
    assert_eq!(made.status.backup.unwrap().last_backup.as_deref(), Some("first"));
}

#[test]
fn without_a_replica_the_primary_makes_it() {
    let mut seen = archiving(json!({"backup": {"to": {"s3": {"bucket": "backups"}}}}));
    seen.backups = vec![asked_for("first", 10)];
    carried(&mut seen);
    assert_eq!(order(&seen).unwrap().instance, "orders-0");
}

#[test]
fn a_backup_waits_for_what_it_needs_and_says_so() {
    let mut seen = archiving(to_s3());
    archives(
        &mut seen,
        ArchiveReport {
            problem: Some("the store is away".into()),
            reason: Some("StoreUnreachable".into()),
            ..well()
        },
    );
    seen.backups = vec![asked_for("first", 10)];
    carried(&mut seen);
    assert_eq!((order(&seen), status_of(&seen, "first").0.as_str()), (None, "Pending"));
    assert!(seen.backups[0].status.conditions[0].message.contains("the store is away"));
    assert!(carried(&mut seen).backups.is_empty(), "it is said once");

    let mut seen = running(json!({}));
    seen.backups = vec![asked_for("first", 10)];
    carried(&mut seen);
    assert!(seen.backups[0].status.conditions[0].message.contains("switched off"));
}

#[test]
fn a_backup_whose_instance_is_gone_is_made_by_another() {
    let mut seen = archiving(to_s3());
    seen.backups = vec![asked_for("first", 10)];
    carried(&mut seen);
    reports(&mut seen, "orders-1", "first", BackupPhase::Running);
    seen.instances[1].deleting = true;
    seen.instances[1].report = None;
    carried(&mut seen);
    assert_eq!(order(&seen).unwrap().instance, "orders-0");
}

#[test]
fn a_backup_that_failed_or_was_not_taken_is_over_and_in_nobodys_way() {
    let mut seen = archiving(to_s3());
    seen.backups = vec![asked_for("first", 10), asked_for("second", 9)];
    carried(&mut seen);
    reports(&mut seen, "orders-1", "first", BackupPhase::Failed);
    carried(&mut seen);
    assert_eq!(status_of(&seen, "first"), ("Failed".to_owned(), "StoreFull".to_owned()));
    carried(&mut seen);
    assert_eq!(order(&seen).unwrap().name, "second");
    // An agent that knows nothing of backups says nothing of this one.
    seen.backups[1].status.started = Some(Time(ago(601)));
    carried(&mut seen);
    assert_eq!(status_of(&seen, "second"), ("Failed".to_owned(), "NotTaken".to_owned()));
    carried(&mut seen);
    assert_eq!(order(&seen), None);
}

#[test]
fn the_first_backup_is_due_at_once_and_none_is_made_twice() {
    let mut seen = running(to_s3());
    assert!(carried(&mut seen).backups.is_empty(), "nothing is archived yet");
    archives(&mut seen, ArchiveReport { backups: Some(vec![]), ..ArchiveReport::default() });
    let made = carried(&mut seen);
    // Of two in the morning, of which today's is over.
    assert_eq!(made.backups, [BackupStep::Make { name: "orders-202611160200".to_owned() }]);
    let made = carried(&mut seen);
    assert!(!made.backups.iter().any(|step| matches!(step, BackupStep::Make { .. })), "{:?}", made.backups);
    let next = made.status.backup.unwrap().next_backup.unwrap().0;
    assert!(
        next >= "2026-11-17T02:00:00Z".parse().unwrap() && next < "2026-11-17T03:00:00Z".parse().unwrap()
    );
    assert!(made.again.is_some_and(|again| again < Duration::from_secs(15 * 3600)));
}

#[test]
fn missed_runs_are_made_up_for_once_and_not_beside_another() {
    let mut seen = archiving(to_s3());
    let away = |days: u64| json!({"nextBackup": format!("2026-11-{:02}T02:30:00Z", 16 - days)});
    seen.status.backup = Some(serde_json::from_value(away(3)).unwrap());
    seen.backups = vec![asked_for("by-hand", 10)];
    let made = carried(&mut seen);
    assert!(!made.backups.iter().any(|step| matches!(step, BackupStep::Make { .. })), "one at a time");
    reports(&mut seen, "orders-1", "by-hand", BackupPhase::Complete);
    carried(&mut seen);
    let made = carried(&mut seen);
    assert_eq!(made.backups, [BackupStep::Make { name: "orders-202611160200".to_owned() }]);
    let made = carried(&mut seen);
    assert!(!made.backups.iter().any(|step| matches!(step, BackupStep::Make { .. })));
    assert!(made.status.backup.unwrap().next_backup.unwrap().0 > now());
}

#[test]
fn one_that_was_due_and_failed_is_tried_again_after_a_while_and_not_for_ever() {
    let mut seen = archiving(to_s3());
    seen.status.backup = Some(serde_json::from_value(json!({"nextBackup": "2026-11-16T02:30:00Z"})).unwrap());
    let failed = |name: &str, finished: i64| {
        let status = json!({"phase": "Failed", "finished": ago(finished).to_string()});
        BackupFact { status: serde_json::from_value(status).unwrap(), ..asked_for(name, finished) }
    };
    let first = "orders-202611160200";
    seen.backups = vec![failed(first, 500)];
    let made = plan(&seen, now());
    assert_eq!((made.backups.len(), made.again), (0, Some(Duration::from_secs(100))));
    seen.backups = vec![failed(first, 700)];
    let second = format!("{first}-2");
    assert_eq!(plan(&seen, now()).backups, [BackupStep::Make { name: second.clone() }]);
    seen.backups = vec![failed(first, 3000), failed(&second, 2000), failed(&format!("{first}-3"), 1000)];
    let made = plan(&seen, now());
    assert!(made.backups.is_empty() && made.status.backup.unwrap().next_backup.unwrap().0 > now());
}

#[test]
fn a_thousand_databases_do_not_begin_at_once() {
    let at = |name: &str| {
        let mut seen = archiving(to_s3());
        seen.name = name.to_owned();
        seen.status.backup =
            Some(serde_json::from_value(json!({"nextBackup": "2027-01-01T00:00:00Z"})).unwrap());
        plan(&seen, now()).status.backup.unwrap().next_backup.unwrap().0
    };
    let all: std::collections::BTreeSet<Timestamp> =
        (0..20).map(|number| at(&format!("db-{number}"))).collect();
    assert!(all.len() > 15, "{all:?}");
    assert_eq!(at("db-1"), at("db-1"), "always the same");
}

#[test]
fn a_backup_that_the_repository_no_longer_has_goes_and_a_new_one_does_not() {
    let mut seen = archiving(to_s3());
    let complete = |name: &str, finished: i64| {
        let status =
            json!({"phase": "Complete", "id": format!("base_{name}"), "finished": ago(finished).to_string()});
        BackupFact { status: serde_json::from_value(status).unwrap(), ..asked_for(name, finished) }
    };
    seen.backups = vec![complete("old", 5000), complete("kept", 4000), complete("new", 10)];
    assert!(plan(&seen, now()).backups.is_empty(), "nobody has looked since");
    archives(
        &mut seen,
        ArchiveReport { backups: Some(vec!["base_kept".into()]), looked: Some(ago(60)), ..well() },
    );
    let made = plan(&seen, now());
    assert_eq!(made.backups, [BackupStep::Remove { name: "old".to_owned(), uid: "u-old".to_owned() }]);
}
