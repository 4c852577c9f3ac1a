//! Secrets that somebody has damaged.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::{Look, until};

use crate::bed::{Bed, LONG, primary};

/// Waits until a Secret holds what it held before.
async fn is_back(bed: &Bed, before: &Secret) {
    let secrets: Api<Secret> = bed.api();
    let name = before.metadata.name.as_deref().unwrap();
    until(&format!("the Secret {name} to be as it was"), 2 * LONG, || async {
        match secrets.get_opt(name).await.unwrap() {
            Some(found) if found.data == before.data => Look::There(()),
            Some(found) => Look::NotYet(format!("it has {:?}", found.data.map(|data| data.into_keys()))),
            None => Look::NotYet("there is none".to_owned()),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
}

/// A kubelet brings changed Secrets to a pod about once a minute, or when the pod itself is changed.
fn mount_anew(bed: &Bed, why: &str) {
    bed.kubectl(&["annotate", "pod", "orders-0", "orders-1", "--overwrite", &format!("secrets={why}")]);
}

#[tokio::test]
async fn secrets_that_somebody_emptied_or_deleted_are_written_again_and_the_database_serves_meanwhile() {
    let bed = Bed::open("secrets").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    bed.ready(2).await;
    bed.client().await;
    let before = bed.started().await;
    let secrets: Api<Secret> = bed.api();
    let empty = json!([{"op": "replace", "path": "/data", "value": {}}]);
    let empty: Patch<()> = Patch::Json(serde_json::from_value(empty).unwrap());
    let mut whole = Vec::new();
    for name in ["orders-app", "orders-superuser", "orders-replication"] {
        whole.push(secrets.get(name).await.unwrap());
        secrets.patch(name, &PatchParams::default(), &empty).await.unwrap();
    }
    assert_eq!(bed.try_sql("select 1").as_deref(), Ok("1"));
    mount_anew(&bed, "emptied");
    for one in &whole {
        is_back(&bed, one).await;
    }
    assert_eq!(bed.try_sql("select 1").as_deref(), Ok("1"), "with the same password as ever");
    mount_anew(&bed, "whole");
    bed.ready(2).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");

    // One that is gone is missed by the next pod that needs it; what is mounted stays.
    for name in ["orders-tls", "orders-app", "orders-superuser", "orders-replication"] {
        secrets.delete(name, &Default::default()).await.unwrap();
    }
    assert_eq!(bed.try_sql("select 1").as_deref(), Ok("1"));
    let leader = primary(&bed.ready(2).await);
    let replica = if leader == "orders-0" { "orders-1" } else { "orders-0" };
    bed.kubectl(&["delete", "pod", replica]);
    for one in &whole {
        is_back(&bed, one).await;
    }
    bed.ready(2).await;
    assert_eq!(bed.started().await[&leader], before[&leader], "the primary is not disturbed");
    assert_eq!(bed.try_sql("select 1").as_deref(), Ok("1"), "with the same password as ever");
    bed.close().await;
}
