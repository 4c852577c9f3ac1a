//! What a cluster does not have is said, with what to do about it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::json;

use crate::bed::{Bed, LONG, condition};

#[tokio::test]
async fn storage_that_can_not_be_had_is_said_and_leaves_nothing_in_the_way_of_another_try() {
    let bed = Bed::open("no-storage").await;
    bed.create(json!({"storage": {"size": "1Gi", "class": "golden"}})).await;
    let database = bed
        .until("it to say that there is no volume", LONG, |database| {
            condition(database, "Ready").is_some_and(|(_, reason, _)| reason == "VolumeNotBound")
        })
        .await;
    let (ready, _, message) = condition(&database, "Ready").unwrap();
    assert!(
        !ready && message.contains("data-orders-0") && message.contains("spec.storage.class"),
        "{message}"
    );
    let phase = database.status.unwrap().phase.map(|phase| phase.to_string());
    assert_eq!(phase.as_deref(), Some("Failed"));

    let change = ["-n", &bed.namespace, "patch", "db", "orders", "--type=merge", "-p"];
    let change = [&change[..], &[r#"{"spec":{"storage":{"class":"disk"}}}"#]].concat();
    let refused = bed.cluster.kubectl(&change).unwrap_err().to_string();
    assert!(refused.contains("create a new Database"), "{refused}");
    // So that is what one does. A claim that never had a volume holds nothing that could be lost.
    bed.kubectl(&["delete", "db", "orders"]);
    let claims: Api<PersistentVolumeClaim> = bed.api();
    let left = claims.list(&Default::default()).await.unwrap().items;
    assert!(left.iter().all(|claim| claim.metadata.deletion_timestamp.is_some()), "{left:?}");
    bed.create(json!({"storage": {"size": "1Gi", "class": "disk"}})).await;
    bed.ready(1).await;
    bed.close().await;
}

#[tokio::test]
async fn an_instance_that_no_node_can_take_is_said_and_can_be_corrected() {
    let bed = Bed::open("no-node").await;
    bed.create(json!({"storage": "1Gi", "resources": {"memory": "100Ti"}})).await;
    let database = bed
        .until("it to say that no node takes it", LONG, |database| {
            condition(database, "Ready").is_some_and(|(_, reason, _)| reason == "Unschedulable")
        })
        .await;
    let (ready, _, message) = condition(&database, "Ready").unwrap();
    assert!(!ready && message.contains("orders-0") && message.contains("Insufficient memory"), "{message}");
    assert!(message.contains("ask for less in spec.resources"), "{message}");
    bed.patch(json!({"spec": {"resources": {"memory": "512Mi"}}})).await;
    bed.ready(1).await;
    bed.close().await;
}
