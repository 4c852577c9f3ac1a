//! The log and backups go to the testbed's S3 server, and come back.

use k8s_openapi::api::core::v1::Secret;
use keelson_api::v1::{Backup, Database};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::{Fault, Look, Which, until};

use crate::bed::{Bed, LONG, condition, primary};

/// The testbed's S3 server, with its Secret copied into the namespace of the test.
pub struct Store {
    endpoint: String,
    region: String,
    pub bucket: String,
}

impl Store {
    pub async fn open(bed: &Bed) -> Store {
        let theirs: Api<Secret> = Api::namespaced(bed.cluster.client(), "testbed");
        let data = theirs.get("s3").await.unwrap().data.unwrap();
        let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
        let keys: Secret = serde_json::from_value(json!({
            "metadata": {"name": "keys"},
            "stringData": {"accessKeyId": text("accessKeyId"), "secretAccessKey": text("secretAccessKey")}
        }))
        .unwrap();
        let own: Api<Secret> = bed.api();
        own.create(&PostParams::default(), &keys).await.unwrap();
        Store { endpoint: text("endpoint"), region: text("region"), bucket: text("bucket") }
    }

    pub fn at(&self, path: &str) -> Value {
        json!({"s3": {
            "endpoint": self.endpoint, "region": self.region, "bucket": self.bucket, "path": path,
            "credentialsSecret": "keys"
        }})
    }
}

/// As it is asked for in all tests: log is at most 5 s old when it is sent.
pub fn spec(replicas: u32, backup_to: Value) -> Value {
    json!({
        "replicas": replicas, "storage": "1Gi", "deletionPolicy": "Delete",
        "backup": {"schedule": "0 2 * * *", "maxDataLoss": "5s", "to": backup_to}
    })
}

pub fn can_be_restored(database: &Database) -> bool {
    condition(database, "BackupReady").is_some_and(|ready| ready.0)
}

async fn complete(bed: &Bed, name: &str) -> Backup {
    let backups: Api<Backup> = bed.api();
    until(&format!("the backup {name} to be complete"), LONG, || async {
        let backup = backups.get(name).await.unwrap();
        let status = backup.status.clone().unwrap_or_default();
        match status.phase.as_ref().map(ToString::to_string).as_deref() {
            Some("Complete") => Look::There(backup),
            Some("Failed") => panic!("{status:?}\n{}", bed.evidence()),
            _ => Look::NotYet(serde_json::to_string(&status).unwrap()),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()))
}

/// Ends the segment of the log, and waits until the repository has it.
pub async fn archived(bed: &Bed, primary: &str) {
    let segment = bed.ask(primary, "select pg_walfile_name(pg_switch_wal())");
    let done = format!("select count(*) from pg_ls_archive_statusdir() where name = '{segment}.done'");
    bed.says(primary, "postgres", &done, "1").await;
}

/// Removes the Database with its volumes. Its repository stays.
fn removed(bed: &Bed) {
    bed.kubectl(&["delete", "db", "orders", "--wait"]);
    bed.kubectl(&["wait", "--for=delete", "pvc", "-l", "keelson.dev/database=orders", "--timeout=120s"]);
}

#[tokio::test]
async fn what_was_backed_up_is_restored_to_a_marked_moment_and_to_no_other() {
    let bed = Bed::open("backups").await;
    let store = Store::open(&bed).await;
    let path = format!("{}/first", bed.namespace);
    bed.create(spec(2, store.at(&path))).await;
    bed.ready(2).await;
    // The first base backup comes by itself.
    let database = bed.until("the first backup", LONG, can_be_restored).await;
    let summary = database.status.clone().unwrap().backup.unwrap();
    assert!(summary.first_recoverable.is_some() && summary.next_backup.is_some(), "{summary:?}");

    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    let said = bed.keelson(&["backup", "orders", "--name", "by-hand", "--method", "full"]);
    assert!(said.starts_with("by-hand is complete: full, "), "{said}");
    let status = complete(&bed, "by-hand").await.status.unwrap();
    assert_eq!(status.method.as_ref().map(ToString::to_string).as_deref(), Some("full"));
    assert!(status.stored_bytes.is_some_and(|bytes| bytes > 1 << 20), "{status:?}");

    bed.sql("insert into t values (1001)").await;
    let moment =
        bed.sql("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").await;
    bed.sql("delete from t").await;
    archived(&bed, &primary(&database)).await;
    bed.kubectl(&["delete", "pod", "client"]);
    removed(&bed);

    let mut again = spec(2, store.at(&format!("{}/second", bed.namespace)));
    again["restore"] = json!({"from": {"repository": store.at(&path)}, "to": {"time": moment}});
    bed.create(again).await;
    bed.ready(2).await;
    bed.client().await;
    assert_eq!(bed.sql("select count(*), max(id) from t").await, "1001|1001");
    bed.sql("insert into t values (1002)").await;
    // It is a database of its own, and backed up in a place of its own.
    bed.until("the first backup of what was restored", LONG, can_be_restored).await;
    bed.close().await;
}

#[tokio::test]
async fn a_moment_that_can_not_be_reached_is_refused_with_those_that_can() {
    let bed = Bed::open("refused").await;
    let store = Store::open(&bed).await;
    let path = format!("{}/first", bed.namespace);
    bed.create(spec(1, store.at(&path))).await;
    bed.until("the first backup", LONG, can_be_restored).await;
    removed(&bed);
    let mut early = spec(1, store.at(&format!("{}/second", bed.namespace)));
    early["restore"] =
        json!({"from": {"repository": store.at(&path)}, "to": {"time": "2020-01-01T00:00:00Z"}});
    bed.create(early).await;
    let refused = bed
        .until("the refusal", LONG, |database| {
            condition(database, "Degraded")
                .is_some_and(|(holds, reason, _)| holds && reason == "RestoreTargetRefused")
        })
        .await;
    let (_, _, message) = condition(&refused, "Degraded").unwrap();
    assert!(message.contains("before the first backup") && message.contains("Possible is from"), "{message}");
    bed.close().await;
}

#[tokio::test]
async fn another_databases_path_is_refused_and_the_database_serves_all_the_same() {
    let bed = Bed::open("foreign-path").await;
    let store = Store::open(&bed).await;
    let path = format!("{}/first", bed.namespace);
    bed.create(spec(1, store.at(&path))).await;
    bed.until("the first backup", LONG, can_be_restored).await;
    removed(&bed);
    // The same path, and another database.
    bed.create(spec(1, store.at(&path))).await;
    bed.ready(1).await;
    let refused = bed
        .until("the refusal", LONG, |database| {
            condition(database, "BackupReady").is_some_and(|(_, reason, _)| reason == "RepositoryForeign")
        })
        .await;
    assert!(condition(&refused, "Ready").unwrap().0);
    bed.close().await;
}

#[tokio::test]
async fn a_replica_that_was_away_for_too_long_finds_its_log_in_the_repository() {
    let bed = Bed::open("log-found").await;
    let store = Store::open(&bed).await;
    bed.create(spec(2, store.at(&bed.namespace))).await;
    bed.ready(2).await;
    let database = bed.until("the first backup", LONG, can_be_restored).await;
    let leader = primary(&database);
    let replica = if leader == "orders-0" { "orders-1" } else { "orders-0" };
    bed.ask(&leader, "create table t (id int)");

    let away = Fault::ProcessPause { container: bed.container_of(replica).await, which: Which::All };
    bed.cluster.inject(&away).unwrap();
    // More than is kept for a replica on a volume of this size (256 MiB).
    bed.ask(
        &leader,
        "do $$ begin for n in 1..30 loop insert into t values (n); perform pg_switch_wal(); end loop; end $$",
    );
    let lost = "select wal_status from pg_replication_slots where slot_type = 'physical'";
    until("the replica to be given up", LONG, || async {
        match bed.ask(&leader, &format!("checkpoint; {lost}")).as_str() {
            "lost" => Look::There(()),
            other => Look::NotYet(other.to_owned()),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
    archived(&bed, &leader).await;
    bed.cluster.heal(&away).unwrap();

    bed.says(replica, "postgres", "select count(*) from t", "30").await;
    let streams = format!("select state from pg_stat_replication where application_name = '{replica}'");
    bed.says(&leader, "postgres", &streams, "streaming").await;
    let log = bed.kubectl(&["logs", replica, "-c", "database"]);
    assert!(log.contains("log was brought from the repository"), "{log}");
    assert!(!log.contains("this replica can't follow, so the leader is copied"), "{log}");
    bed.close().await;
}
