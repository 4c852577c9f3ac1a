//! Databases whose first data comes from a repository.

use keelson_api::instance::{RestorePoint, paths};
use keelson_api::v1::Repository;

use super::*;
use crate::database::restore::Source;

fn repository() -> Repository {
    serde_json::from_value(
        json!({"s3": {"bucket": "backups", "path": "old/orders", "credentialsSecret": "keys"}}),
    )
    .unwrap()
}

#[test]
fn a_repository_is_restored_from_as_the_spec_says() {
    let to = json!({"time": "2026-11-16T09:30:00Z"});
    let spec = json!({"restore": {"from": {"repository": repository()}, "to": to}});
    let mut seen = fresh(spec);
    let wanted = applied(&mut seen).wanted.unwrap();
    let rule = wanted.instance.restore.unwrap();
    assert_eq!(rule.from.repository, repository());
    assert_eq!(rule.from.credentials.as_deref(), Some(paths::RESTORE_CREDENTIALS));
    assert_eq!(rule.to, RestorePoint::Time("2026-11-16T09:30:00Z".parse().unwrap()));
    assert_eq!(wanted.instance.backup, None, "it is read, and not written to");
}

#[test]
fn what_is_not_there_yet_is_waited_for_and_nothing_empty_is_made_instead() {
    let mut seen = fresh(json!({"restore": {"from": {"backup": "nightly"}}}));
    seen.source = Some(Source::Missing("there is no complete Backup nightly".to_owned()));
    let made = plan(&seen, now());
    assert!(made.wanted.is_none() && made.steps.is_empty());
    let (holds, reason, message) = condition(&made, "Ready");
    assert_eq!((holds, reason), (Some(false), "RestoreSourceMissing"));
    assert!(message.contains("nightly") && made.again.is_some(), "{message}");

    seen.source =
        Some(Source::Found { repository: Box::new(repository()), backup: Some("base_1".to_owned()) });
    let wanted = applied(&mut seen).wanted.unwrap();
    assert_eq!(wanted.instance.restore.as_ref().unwrap().backup.as_deref(), Some("base_1"));
    // What was told stays, whatever becomes of the object that was asked.
    seen.source = None;
    let again = applied(&mut seen).wanted.unwrap();
    assert_eq!(again.instance.restore, wanted.instance.restore);
    assert_eq!(asked(&again), asked(&wanted), "no pod is replaced for it");
}

#[test]
fn a_database_that_is_there_is_not_restored_over() {
    let mut seen = running(json!({}));
    respec(&mut seen, json!({"restore": {"from": {"repository": repository()}}}));
    let made = plan(&seen, now());
    assert_eq!(made.wanted.unwrap().instance.restore, None);
    assert!(made.steps.is_empty(), "{:?}", made.steps);
}

#[test]
fn what_was_told_stays_once_the_database_is_there() {
    let mut seen = running(json!({"restore": {"from": {"repository": repository()}}}));
    let told = seen.config.as_ref().unwrap().restore.clone();
    assert!(told.is_some());
    let made = applied(&mut seen);
    assert_eq!(made.wanted.unwrap().instance.restore, told);
    assert!(made.steps.is_empty(), "nobody is replaced: {:?}", made.steps);
}

#[test]
fn while_data_is_brought_back_nothing_is_amiss() {
    let mut seen = fresh(json!({"replicas": 2, "restore": {"from": {"repository": repository()}}}));
    let wanted = applied(&mut seen).wanted.unwrap();
    seen.claims = (0..2).map(claim).collect();
    seen.instances = (0..2).map(|ordinal| follower(ordinal, &wanted)).collect();
    for instance in &mut seen.instances {
        instance.ready = false;
        instance.report = Some(Report { role: Role::Unknown, ..Report::default() });
    }
    seen.instances[0].report = Some(Report { role: Role::Joining, ..Report::default() });
    let made = applied(&mut seen);
    assert_eq!((phase(&made), condition(&made, "Ready").1), (Phase::Restoring, "Restoring"));
    assert_eq!(condition(&made, "Degraded").0, Some(false));
    // A target that can't be reached is said at once.
    seen.instances[0].report = Some(Report {
        reason: Some("RestoreTargetRefused".to_owned()),
        problem: Some("Possible is from noon".to_owned()),
        ..Report::default()
    });
    let made = applied(&mut seen);
    assert_eq!((phase(&made), condition(&made, "Degraded").1), (Phase::Failed, "RestoreTargetRefused"));
}
