//! What specs mean, and what they can't.

use serde_json::json;

use super::*;
use crate::v1::Database;

fn spec(value: serde_json::Value) -> DatabaseSpec {
    serde_json::from_value(value).unwrap()
}

fn settings(value: serde_json::Value) -> Settings {
    spec(value).settings().unwrap()
}

fn errors(value: serde_json::Value) -> Vec<String> {
    spec(value).settings().unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_spec_is_a_small_postgres() {
    let settings = settings(json!({}));
    assert_eq!((settings.engine, settings.version.to_string().as_str()), (Engine::Postgres, "17"));
    assert_eq!(
        (settings.replicas, settings.cpu, settings.memory),
        (1, Size::millis(500), Size::mebibytes(512))
    );
    assert_eq!(settings.storage.size, DEFAULT_STORAGE);
    assert_eq!((settings.backup, settings.durability), (None, Durability::Async));
    assert_eq!(settings.deletion_policy, DeletionPolicy::Retain);
    assert_eq!(settings.failover.ttl, Span::seconds(5));
}

#[test]
fn explicit_fields_win_over_the_tier() {
    let large = settings(json!({"size": "large"}));
    assert_eq!((large.replicas, large.cpu, large.memory), (3, Size::millis(2000), Size::gibibytes(2)));
    assert_eq!((large.durability, large.failover.standby), (Durability::Quorum, StandbyPolicy::Required));
    let mixed = settings(json!({"size": "large", "replicas": 2, "resources": {"memory": "4Gi"}}));
    assert_eq!((mixed.replicas, mixed.cpu, mixed.memory), (2, Size::millis(2000), Size::gibibytes(4)));
    assert_eq!(mixed.failover.standby, StandbyPolicy::Preferred);
}

#[test]
fn storage_means_the_same_in_both_forms() {
    assert_eq!(
        settings(json!({"storage": "50Gi"})).storage,
        settings(json!({"storage": {"size": "50Gi"}})).storage
    );
}

#[test]
fn a_backup_policy_that_says_anything_is_on() {
    assert_eq!(settings(json!({"backup": {}})).backup, None);
    assert_eq!(settings(json!({"backup": {"enabled": false, "schedule": "@daily"}})).backup, None);
    let backup = settings(json!({"backup": {"schedule": "0 */6 * * *", "timeZone": "Asia/Tokyo"}})).backup;
    let backup = backup.unwrap();
    assert_eq!(backup.schedule.zone(), Some("Asia/Tokyo"));
    assert_eq!((backup.retention, backup.max_data_loss), (Retention::DEFAULT, Span::seconds(60)));
    assert_eq!(
        settings(json!({"backup": {"enabled": true}})).backup.unwrap().schedule.to_string(),
        "0 2 * * *"
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_its_field() {
    let errors = errors(json!({
        "engine": "oracle",
        "storage": {"size": "50GB", "autogrow": {"limit": "1Gi"}},
        "backup": {"schedule": "61 * * * *", "retention": "ages", "drill": {"schedule": "never"}},
        "failover": {"ttl": "2s"},
        "replicas": 0
    }));
    for (field, says) in [
        ("spec.engine", "postgres, mysql"),
        ("spec.storage.size", "`GB`"),
        ("spec.storage.autogrow.limit", "less than the size"),
        ("spec.backup.schedule", "61 in the minute field"),
        ("spec.backup.retention", "10 backups"),
        ("spec.backup.drill.schedule", "five"),
        ("spec.failover.ttl", "twice the interval"),
        ("spec.replicas", "1 to 10"),
    ] {
        assert!(
            errors.iter().any(|error| error.starts_with(field) && error.contains(says)),
            "{field}: {errors:#?}"
        );
    }
}

#[test]
fn versions_belong_to_their_engine() {
    assert!(errors(json!({"version": "9.7"}))[0].contains("there is no postgres 9.7: use 14 or newer"));
    assert!(errors(json!({"engine": "mysql", "version": "17"}))[0].contains("use 8.4 or 9.x"));
    assert_eq!(settings(json!({"engine": "mysql"})).version.to_string(), "9.7");
}

#[test]
fn numbers_among_the_parameters_need_no_quotes() {
    let parameters = settings(json!({"parameters": {"max_connections": 500, "work_mem": "64MB"}})).parameters;
    assert_eq!(parameters["max_connections"], "500");
    assert_eq!(parameters["work_mem"], "64MB");
}

#[test]
fn a_restore_ends_at_one_moment() {
    let restore =
        |to| settings(json!({"restore": {"from": {"database": "old"}, "to": to}})).restore.unwrap().to;
    assert_eq!(restore(json!({})), Moment::Latest);
    assert_eq!(restore(json!({"lsn": "0/1"})), Moment::Lsn("0/1".into()));
    let noon = restore(json!({"time": "2026-11-16T12:00:00Z"}));
    assert_eq!(noon, Moment::Time("2026-11-16T12:00:00Z".parse().unwrap()));
    let both = json!({"restore": {"from": {"database": "old"}, "to": {"lsn": "0/1", "name": "a"}}});
    assert!(errors(both)[0].contains("at most one moment"));
    let never = json!({"restore": {"from": {"database": "old"}, "to": {"time": "yesterday"}}});
    assert!(errors(never)[0].starts_with("spec.restore.to.time"));
}

#[test]
fn storage_of_another_kind_is_refused_not_lost() {
    assert!(errors(json!({"storage": 50}))[0].contains("a size such as 50Gi"));
}

#[test]
fn an_object_that_means_nothing_disturbs_no_other() {
    let object = |name: &str, spec: serde_json::Value, status: serde_json::Value| {
        json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": name},
            "spec": spec, "status": status
        })
    };
    let nonsense = json!({
        "engine": "abacus", "version": "one", "size": 5, "storage": [1], "durability": {"a": "b"},
        "backup": {"schedule": "sometimes", "retention": -1}, "failover": {"ttl": "soon"}, "later": true
    });
    let list: kube::core::ObjectList<Database> = serde_json::from_value(json!({
        "apiVersion": "keelson.dev/v1", "kind": "DatabaseList", "metadata": {},
        "items": [
            object("bad", nonsense, json!({"phase": "Levitating", "instances": [{"name": "a", "role": "jester"}]})),
            object("good", json!({"replicas": 2}), json!({"phase": "Running"})),
        ]
    }))
    .unwrap();
    assert!(list.items[0].spec.settings().unwrap_err().len() >= 7);
    assert_eq!(list.items[1].spec.settings().unwrap().replicas, 2);
}
