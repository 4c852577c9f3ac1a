//! Changes of a database that runs: more instances, fewer, other settings.

use serde_json::json;
use testbed::{Look, until};

use crate::bed::{Bed, LONG, condition, primary};

#[tokio::test]
async fn instances_come_and_go_and_the_data_stays() {
    let bed = Bed::open("scales").await;
    bed.create(json!({"replicas": 1, "storage": "1Gi"})).await;
    bed.ready(1).await;
    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    let before = bed.started().await;
    bed.patch(json!({"spec": {"replicas": 3}})).await;
    both_join_at_once(&bed).await;
    bed.ready(3).await;
    assert_eq!(bed.started().await["orders-0"], before["orders-0"], "the primary is not disturbed");
    // The highest numbers go; leadership moves off them first.
    bed.kubectl(&["annotate", "lease", "orders-leader", "keelson.dev/handover-to=orders-2"]);
    bed.until("the last to lead", LONG, |database| primary(database) == "orders-2").await;
    bed.patch(json!({"spec": {"replicas": 1}})).await;
    let database = bed.ready(1).await;
    assert_eq!(primary(&database), "orders-0");
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
    bed.close().await;
}

/// The second new one does not wait until the first has all.
async fn both_join_at_once(bed: &Bed) {
    until("both new instances to be there, and neither to serve", LONG, || async {
        let pods = bed.pods().await;
        let serves = |name: &str| {
            let status = pods.get(name)?.status.as_ref()?;
            Some(status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True"))
        };
        match (serves("orders-1"), serves("orders-2")) {
            (Some(false), Some(false)) => Look::There(()),
            (Some(true), None | Some(false)) | (None | Some(false), Some(true)) => {
                Look::Never("one serves before the other".to_owned())
            }
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn settings_are_reloaded_or_rolled_out_and_bad_ones_are_refused_in_words() {
    let bed = Bed::open("settings").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    bed.ready(2).await;
    bed.patch(json!({"spec": {"parameters": {"work_mem": "7MB"}}})).await;
    let both_say = async |sql: &str, expected: &str| {
        for pod in ["orders-0", "orders-1"] {
            bed.says(pod, "postgres", sql, expected).await;
        }
    };
    both_say("show work_mem", "7MB").await;
    bed.patch(json!({"spec": {"parameters": {"max_connections": "177"}}})).await;
    both_say("show max_connections", "177").await;
    bed.ready(2).await;
    // No replica may have less than its primary.
    bed.patch(json!({"spec": {"parameters": {"max_connections": "77"}}})).await;
    both_say("show max_connections", "77").await;
    bed.ready(2).await;

    bed.patch(json!({"spec": {"parameters": {"work_mem": "plenty"}}})).await;
    let database = bed
        .until("it to say which is refused", LONG, |database| {
            condition(database, "Degraded")
                .is_some_and(|(holds, reason, _)| holds && reason == "ParameterRefused")
        })
        .await;
    let (_, _, message) = condition(&database, "Degraded").unwrap();
    assert!(message.contains("work_mem"), "{message}");
    both_say("show work_mem", "7MB").await;
    assert!(condition(&database, "Ready").unwrap().0, "it serves all the same");
    bed.patch(json!({"spec": {"parameters": {"work_mem": "8MB"}}})).await;
    both_say("show work_mem", "8MB").await;
    bed.ready(2).await;
    bed.close().await;
}
