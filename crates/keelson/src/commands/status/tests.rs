//! What is printed of databases in good and in bad health.

use jiff::Timestamp;
use keelson_api::v1::Database;
use serde_json::{Value, json};

use super::facts::Facts;
use super::judge;
use super::text;
use super::view::Verdict;
use crate::commands::golden::golden;
use crate::commands::output::{Format, machine};
use crate::commands::paint::Paint;

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-18T11:50:00Z"
    })
}

fn database(name: &str, spec: Value, status: Value) -> Database {
    serde_json::from_value(json!({
        "apiVersion": "keelson.dev/v1", "kind": "Database",
        "metadata": {
            "name": name, "namespace": "shop", "generation": 3, "creationTimestamp": "2026-11-10T09:00:00Z"
        },
        "spec": spec, "status": status
    }))
    .unwrap()
}

fn pod(ordinal: u32, restarts: i32) -> Value {
    json!({
        "metadata": {"name": format!("orders-{ordinal}"), "creationTimestamp": "2026-11-10T09:00:00Z"},
        "spec": {"nodeName": format!("node-{}", ordinal + 1), "containers": []},
        "status": {"containerStatuses": [{
            "name": "database", "image": "postgres:17", "imageID": "", "ready": true, "restartCount": restarts
        }]}
    })
}

fn claim(ordinal: u32, has: &str) -> Value {
    json!({
        "metadata": {"name": format!("data-orders-{ordinal}")},
        "spec": {"resources": {"requests": {"storage": "50Gi"}}},
        "status": {"capacity": {"storage": has}}
    })
}

fn three() -> Database {
    let row = |ordinal: u32, role: &str, lag: Value| json!({"name": format!("orders-{ordinal}"), "role": role, "ready": true, "timeline": 4, "lagBytes": lag});
    database(
        "orders",
        json!({"replicas": 3, "backup": {"to": {"s3": {"bucket": "backups"}}}}),
        json!({
            "phase": "Running", "replicas": 3, "readyReplicas": 3, "primary": "orders-1", "version": "17.5",
            "endpoint": "orders-rw.shop.svc:5432", "observedGeneration": 3,
            "conditions": [
                condition("Ready", "True", "Writable", "orders-1 takes writes at orders-rw.shop.svc:5432"),
                condition("Degraded", "False", "AsAsked", "nothing is amiss"),
                condition("Progressing", "False", "Settled", "nothing is under way"),
                condition("BackupReady", "True", "Archiving", "the log is archived")
            ],
            "instances": [
                row(0, "synchronous", json!(0)), row(1, "primary", Value::Null), row(2, "replica", json!(65536))
            ],
            "leaderships": [
                {"who": "orders-1", "epoch": 4, "since": "2026-11-17T03:14:15Z", "why": "PreviousSilent", "gapMillis": 6120},
                {"who": "orders-0", "epoch": 3, "since": "2026-11-10T09:00:40Z", "why": "First"}
            ],
            "backup": {
                "lastBackup": "orders-202611180200", "lastBackupTime": "2026-11-18T02:31:00Z",
                "firstRecoverable": "2026-10-19T02:30:00Z", "lastRecoverable": "2026-11-18T11:59:20Z",
                "archiveLagBytes": 0, "lastDrill": "2026-11-15T04:06:00Z", "lastDrillSeconds": 312,
                "nextBackup": "2026-11-19T02:24:00Z"
            }
        }),
    )
}

fn facts(database: Database) -> Facts {
    let list = |values: Vec<Value>| values;
    Facts {
        database: Some(database),
        pods: serde_json::from_value(json!(list(vec![pod(0, 0), pod(1, 0), pod(2, 2)]))).unwrap(),
        claims: serde_json::from_value(json!([claim(0, "50Gi"), claim(1, "50Gi"), claim(2, "10Gi")])).unwrap(),
        lease: Some(
            serde_json::from_value(json!({
                "metadata": {"name": "orders-leader", "annotations": {
                    "keelson.dev/epoch": "4", "keelson.dev/sync": r#"{"names":["orders-0","orders-1","orders-2"],"count":1}"#
                }},
                "spec": {
                    "holderIdentity": "orders-1/7b2c", "leaseDurationSeconds": 5,
                    "renewTime": "2026-11-18T11:59:59.500000Z"
                }
            }))
            .unwrap(),
        ),
        backups: Vec::new(),
        events: serde_json::from_value(json!([
            event("2026-11-17T03:14:16Z", "Warning", "FailedOver", 1,
                "orders-1 is primary, since nothing was heard from the one before; nobody took writes for 6.120 s"),
            of_a_pod("Created"),
            event("2026-11-18T02:31:00Z", "Normal", "BackupComplete", 8, "orders-202611180200 takes 912 bytes"),
        ]))
        .unwrap(),
        unread: Vec::new(),
    }
}

fn event(time: &str, severity: &str, reason: &str, count: i32, message: &str) -> Value {
    json!({
        "metadata": {"name": reason.to_lowercase()}, "involvedObject": {"kind": "Database", "name": "orders"},
        "type": severity, "reason": reason, "message": message, "lastTimestamp": time, "count": count
    })
}

fn of_a_pod(reason: &str) -> Value {
    let mut event = event("2026-11-18T02:30:00Z", "Normal", reason, 1, "of no interest");
    event["involvedObject"] = json!({"kind": "Pod", "name": "orders-0"});
    event
}

/// With other conditions, which come before those that it had.
fn with(mut database: Database, phase: &str, conditions: Value) -> Database {
    let status = database.status.as_mut().unwrap();
    status.phase = Some(phase.into());
    status.conditions = serde_json::from_value(conditions).unwrap();
    database
}

/// The primary's node is gone, volumes do not grow, and backups are refused.
pub fn bad() -> Facts {
    let mut database = with(
        three(),
        "Degraded",
        json!([
            condition("Ready", "False", "NoPrimary", "no instance takes writes at the moment"),
            condition(
                "Degraded",
                "True",
                "NoStandby",
                "1 of 3 instances serve: commits go on without a standby"
            ),
            condition(
                "BackupReady",
                "False",
                "StoreDenied",
                "the store says: AccessDenied. At this rate the volume is full in about 3 hours"
            ),
            condition("Progressing", "False", "Stalled", "waits until orders-2 serves")
        ]),
    );
    let status = database.status.as_mut().unwrap();
    (status.primary, status.ready_replicas, status.observed_generation) = (None, Some(1), Some(2));
    (status.instances[1].ready, status.instances[2].ready) = (false, false);
    status.instances[1].role = Some("unknown".into());
    let mut facts = facts(database);
    facts.lease.as_mut().unwrap().spec.as_mut().unwrap().renew_time =
        serde_json::from_value(json!("2026-11-18T11:50:00.000000Z")).unwrap();
    facts.pods[2].status = serde_json::from_value(json!({"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    ]}))
    .unwrap();
    facts.backups = serde_json::from_value(json!([{
        "apiVersion": "keelson.dev/v1", "kind": "Backup",
        "metadata": {"name": "orders-202611181100", "creationTimestamp": "2026-11-18T11:00:00Z"},
        "spec": {"database": "orders"}, "status": {"phase": "Failed"}
    }]))
    .unwrap();
    facts.unread.push("events: events is forbidden: User \"jo\" cannot list resource \"events\"".to_owned());
    facts
}

#[test]
fn a_healthy_database_is_a_picture_at_a_glance() {
    let view = judge::database(&facts(three()), now());
    assert_eq!(view.verdict, Verdict::Well);
    golden("status-good.txt", &text::database(&view, Paint::OFF));
    golden("status-good.json", &machine(Format::Json, &view).unwrap());
    golden("status-good.yaml", &machine(Format::Yaml, &view).unwrap());
}

#[test]
fn of_one_in_trouble_what_is_wrong_and_what_to_do_comes_first() {
    let view = judge::database(&bad(), now());
    assert_eq!(view.verdict, Verdict::Wrong);
    golden("status-bad.txt", &text::database(&view, Paint::OFF));
}

#[test]
fn one_that_is_being_made_is_under_way_and_not_wrong() {
    let status = json!({
        "phase": "Creating", "observedGeneration": 3, "conditions": [
            condition("Ready", "False", "Creating", "its instances are being made"),
            condition("Degraded", "False", "AsAsked", "nothing is amiss"),
            condition("Progressing", "True", "Creating", "0 of 2 instances serve")
        ]
    });
    let new = database("billing", json!({"replicas": 2}), status);
    let view = judge::database(&Facts { database: Some(new), ..Facts::default() }, now());
    assert_eq!(view.verdict, Verdict::UnderWay);
    golden("status-new.txt", &text::database(&view, Paint::OFF));
    let unseen = database("new", json!({}), json!({}));
    assert_eq!(judge::row(&unseen, now()).verdict, Verdict::UnderWay);
}

#[test]
fn many_are_a_table() {
    let rows = [three(), bad().database.unwrap(), database("new", json!({}), json!({}))]
        .map(|one| judge::row(&one, now()));
    golden("status-table.txt", &text::table(&rows, Some("shop"), Paint::OFF));
    golden("status-table-all.txt", &text::table(&rows, None, Paint::OFF));
    assert_eq!(judge::worst(&rows), Verdict::Wrong);
    assert!(text::table(&[], Some("shop"), Paint::OFF).contains("no Database in the namespace shop"));
    assert!(text::table(&[], None, Paint::OFF).contains("six lines"));
    assert_eq!(judge::worst(&[]), Verdict::Well);
}
