//! A database goes back to just before a mistake under its own name.

use std::time::Duration;

use keelson_api::v1::{Database, RestoreSummary};
use serde_json::{Value, json};
use testbed::{Look, Which, until};

use crate::backups::{Store, can_be_restored, spec};
use crate::bed::{Bed, LONG, condition, primary};

fn restore(database: &Database) -> RestoreSummary {
    database.status.clone().and_then(|status| status.restore).unwrap_or_default()
}

fn stage(database: &Database, name: &str) -> Option<String> {
    let restore = restore(database);
    restore.stage.filter(|_| restore.name.as_deref() == Some(name))
}

async fn moment(bed: &Bed) -> String {
    let now = "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let moment = bed.sql(now).await;
    // So that what comes next is of a later moment by any clock.
    bed.sql("select pg_sleep(0.05)").await;
    moment
}

fn back_to(name: &str, to: Value) -> Value {
    json!({"spec": {"restore": {"inPlace": name, "to": to}}})
}

/// A database of three with a backup and 1000 rows, and its leader.
async fn shop(bed: &Bed) -> String {
    let store = Store::open(bed).await;
    let mut spec = spec(3, store.at(&bed.namespace));
    spec["storage"] = json!("2Gi");
    bed.create(spec).await;
    bed.ready(3).await;
    let database = bed.until("the first backup", LONG, can_be_restored).await;
    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    primary(&database)
}

#[tokio::test]
async fn a_mistake_is_undone_in_place_and_the_old_data_is_kept_until_it_may_go() {
    let bed = Bed::open("in-place").await;
    let leader = shop(&bed).await;

    bed.patch(back_to("too-early", json!({"time": "2020-01-01T00:00:00Z"}))).await;
    let refused =
        bed.until("the refusal", LONG, |db| stage(db, "too-early").as_deref() == Some("Refused")).await;
    let (_, reason, message) = condition(&refused, "RestoredInPlace").unwrap();
    assert_eq!(reason, "RestoreTargetRefused");
    assert!(message.contains("Possible is from"), "{message}");
    assert_eq!(bed.sql("select count(*) from t").await, "1000", "it has gone on");

    let before = moment(&bed).await;
    bed.sql("delete from t").await;
    bed.patch(back_to("undo", json!({"time": before}))).await;
    let done = bed.until("the restore", LONG, |db| stage(db, "undo").as_deref() == Some("Done")).await;
    let kept = restore(&done).kept;
    assert!(kept.len() <= 1, "{kept:?}");
    bed.ready(3).await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
    bed.sql("insert into t values (1001)").await;
    for pod in bed.pods().await.keys() {
        bed.says(pod, "app", "select count(*) from t", "1001").await;
    }

    let shown = bed.until("the old data to be shown", LONG, |db| restore(db).kept.len() == 1).await;
    let kept = restore(&shown).kept.remove(0);
    assert_eq!((kept.instance.as_str(), kept.restore.as_str()), (leader.as_str(), "undo"));
    assert!(kept.bytes > 1 << 20, "{kept:?}");
    let there = |pod: &str| bed.kubectl(&["exec", pod, "-c", "database", "--", "ls", "/var/lib/keelson"]);
    assert!(there(&leader).contains("data.before"));
    // The wrong word lets nothing go.
    let word = |name: &str| {
        bed.kubectl(&[
            "annotate",
            "db",
            "orders",
            "--overwrite",
            &format!("keelson.dev/discard-old-data={name}"),
        ])
    };
    word("yes");
    bed.sql("insert into t values (1002)").await;
    assert!(there(&leader).contains("data.before"));
    word("undo");
    bed.until("the old data to be gone", LONG, |db| restore(db).kept.is_empty()).await;
    assert!(!there(&leader).contains("data.before"));
    // The spec stays as it is, and nothing comes of it again.
    bed.keelson(&["switchover", "orders"]);
    bed.ready(3).await;
    assert_eq!(bed.sql("select count(*) from t").await, "1002");
    bed.close().await;
}

#[tokio::test]
async fn a_restore_in_place_goes_on_although_the_leaders_agent_is_killed_in_the_midst_of_it() {
    let bed = Bed::open("in-place-killed").await;
    let leader = shop(&bed).await;
    // Enough log that it takes a while.
    bed.sql("create table much as select generate_series(1, 1000000) as i").await;
    let before = moment(&bed).await;
    bed.sql("delete from t").await;
    bed.patch(back_to("undo", json!({"time": before}))).await;
    let container = bed.container_of(&leader).await;
    let restoring = || bed.cluster.run_in(&container, &["test", "-d", "/var/lib/keelson/data.new"]).is_ok();
    until("the restore to begin", LONG, || async {
        match restoring() {
            true => Look::There(()),
            false => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Look::NotYet("no folder is being made yet".to_owned())
            }
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
    bed.cluster.kill(&container, &Which::Main).unwrap();

    bed.until("the restore", LONG, |db| stage(db, "undo").as_deref() == Some("Done")).await;
    bed.ready(3).await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
    bed.sql("insert into t values (1001)").await;
    for pod in bed.pods().await.keys() {
        bed.says(pod, "app", "select count(*) from t", "1001").await;
    }
    bed.close().await;
}
