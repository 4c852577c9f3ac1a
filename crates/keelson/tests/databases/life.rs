//! From the first write to the last: data comes and stays.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::json;
use testbed::{Look, until};

use crate::bed::{Bed, LONG, MINUTE, condition, primary};

#[tokio::test]
async fn leadership_is_handed_over_when_somebody_asks_and_nothing_is_lost() {
    let bed = Bed::open("handover").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    let before = primary(&bed.ready(2).await);
    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    let target = if before == "orders-0" { "orders-1" } else { "orders-0" };
    bed.kubectl(&["annotate", "lease", "orders-leader", &format!("keelson.dev/handover-to={target}")]);
    bed.until("the other to lead", LONG, |database| {
        primary(database) == target && condition(database, "Ready").is_some_and(|ready| ready.0)
    })
    .await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
    bed.sql("insert into t values (1001)").await;
    let database = bed.ready(2).await;
    let rows = database.status.unwrap().instances;
    assert!(rows.iter().all(|row| row.timeline == Some(2)), "both are on the new timeline: {rows:?}");
    bed.close().await;
}

#[tokio::test]
async fn volumes_stay_and_are_taken_again_only_when_somebody_says_so() {
    let bed = Bed::open("volumes").await;
    bed.create(json!({"storage": "1Gi"})).await;
    bed.ready(1).await;
    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t values (42)").await;
    bed.kubectl(&["delete", "db", "orders", "--wait"]);
    let claims: Api<PersistentVolumeClaim> = bed.api();
    assert_eq!(claims.list(&Default::default()).await.unwrap().items.len(), 1, "Retain is the default");
    until("it to say which volumes stay", MINUTE, || async {
        match bed.kubectl(&["get", "events", "--field-selector=reason=Retained"]) {
            said if said.contains("volumes stay: data-orders-0") => Look::There(()),
            said => Look::NotYet(said),
        }
    })
    .await
    .unwrap();

    bed.create(json!({"storage": "1Gi"})).await;
    let waiting = bed
        .until("it to say that there are old volumes", MINUTE, |database| {
            condition(database, "Ready")
                .is_some_and(|(ready, _, message)| !ready && message.contains("adopt-volumes"))
        })
        .await;
    let phase = waiting.status.unwrap_or_default().phase.map(|phase| phase.to_string());
    assert_eq!(phase.as_deref(), Some("Pending"));
    let sets: Api<StatefulSet> = bed.api();
    let left = sets.list(&Default::default()).await.unwrap().items;
    assert!(left.iter().all(|set| set.metadata.deletion_timestamp.is_some()), "nothing is started: {left:?}");
    bed.kubectl(&["annotate", "db", "orders", "keelson.dev/adopt-volumes=yes"]);
    bed.ready(1).await;
    bed.client_again().await;
    assert_eq!(bed.sql("select id from t").await, "42");
    bed.close().await;
}
