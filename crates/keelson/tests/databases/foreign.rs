//! What others do to the children of a database is repaired, and writes go on.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{Look, until};

use crate::bed::{Bed, LONG, MINUTE};
use crate::pods::Started;
use crate::writer::Writer;

/// What is asked for of a child: all but what the cluster adds to any object.
async fn content<K>(bed: &Bed, name: &str) -> Option<Value>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let found = bed.api::<K>().get_opt(name).await.unwrap()?;
    let mut value = serde_json::to_value(found).unwrap();
    value["metadata"] = json!({
        "labels": value["metadata"]["labels"], "ownerReferences": value["metadata"]["ownerReferences"]
    });
    value.as_object_mut().unwrap().remove("status");
    // A Service that is made anew has another address.
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, _| field != "clusterIP" && field != "clusterIPs");
    }
    // Where it is lost which one there was, the certificate is made anew.
    if let Some(text) = value.pointer("/data/settings.json").and_then(Value::as_str) {
        let mut settings: Value = serde_json::from_str(text).unwrap();
        settings.as_object_mut().unwrap().retain(|field, _| field != "secrets" && field != "certificate");
        value["data"]["settings.json"] = settings;
    }
    Some(value)
}

/// Does something to a child, and waits until it is as it was.
async fn repaired<K>(bed: &Bed, name: &str, harm: &[&str])
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let before = content::<K>(bed, name).await.unwrap();
    bed.kubectl(harm);
    until(&format!("the end of {harm:?}"), MINUTE, || async {
        match content::<K>(bed, name).await {
            Some(found) if found == before => Look::There(()),
            found => Look::NotYet(format!("{found:?}\nand not\n{before:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
}

#[tokio::test]
async fn what_others_change_or_delete_is_put_right_and_writes_go_on() {
    let bed = Bed::open("foreign").await;
    // Without its rights a leader can't renew its leadership. Here they are taken several times in a row.
    bed.create(json!({"replicas": 2, "storage": "1Gi", "failover": {"ttl": "20s"}})).await;
    bed.ready(2).await;
    bed.client().await;
    let before = bed.started().await;
    let writer = Writer::start(&bed).await;
    edits(&bed).await;
    deletes(&bed).await;
    writer.acknowledges().await;
    bed.ready(2).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");
    the_stateful_set(&bed, &before).await;
    writer.acknowledges().await;
    #[cfg(feature = "long-tests")]
    the_lease(&bed).await;
    writer.acknowledges().await;
    the_account(&bed).await;
    writer.acknowledges().await;
    let acknowledged = writer.finish().await;
    println!("{acknowledged} writes meanwhile, none lost");
    bed.close().await;
}

async fn edits(bed: &Bed) {
    let patch = |kind: &'static str, name: &'static str, patch: &'static str| {
        ["patch", kind, name, "--type=merge", "--patch", patch]
    };
    let harm = patch("service", "orders-ro", r#"{"spec":{"selector":{"keelson.dev/role":"primary"}}}"#);
    repaired::<Service>(bed, "orders-ro", &harm).await;
    let harm = patch("configmap", "orders-config", r#"{"data":{"settings.json":"{}"}}"#);
    repaired::<ConfigMap>(bed, "orders-config", &harm).await;
    repaired::<Role>(bed, "orders", &patch("role", "orders", r#"{"rules":[]}"#)).await;
    let harm = patch("pdb", "orders", r#"{"spec":{"maxUnavailable":"100%"}}"#);
    repaired::<PodDisruptionBudget>(bed, "orders", &harm).await;
    let harm = patch(
        "endpointslice",
        "orders-rw",
        r#"{"endpoints":[{"addresses":["10.0.0.99"],"conditions":{"ready":true}}]}"#,
    );
    repaired::<EndpointSlice>(bed, "orders-rw", &harm).await;
}

async fn deletes(bed: &Bed) {
    repaired::<ConfigMap>(bed, "orders-config", &["delete", "configmap", "orders-config"]).await;
    repaired::<Role>(bed, "orders", &["delete", "role", "orders"]).await;
    repaired::<RoleBinding>(bed, "orders", &["delete", "rolebinding", "orders"]).await;
    repaired::<Service>(bed, "orders", &["delete", "service", "orders"]).await;
    repaired::<Service>(bed, "orders-ro", &["delete", "service", "orders-ro"]).await;
    repaired::<PodDisruptionBudget>(bed, "orders", &["delete", "pdb", "orders"]).await;
    repaired::<EndpointSlice>(bed, "orders-rw", &["delete", "endpointslice", "orders-rw"]).await;
    repaired::<Service>(bed, "orders-rw", &["delete", "service", "orders-rw"]).await;
}

/// Made anew around pods that live on, and brought back to its number of instances.
async fn the_stateful_set(bed: &Bed, before: &BTreeMap<String, Started>) {
    for harm in [
        &["delete", "statefulset", "orders", "--cascade=orphan"][..],
        &["scale", "statefulset", "orders", "--replicas=4"],
    ] {
        repaired::<StatefulSet>(bed, "orders", harm).await;
        settled(bed).await;
        assert_eq!(&bed.started().await, before, "those that were there are not disturbed");
    }
    repaired::<StatefulSet>(bed, "orders", &["scale", "statefulset", "orders", "--replicas=1"]).await;
    settled(bed).await;
    assert_eq!(bed.started().await["orders-0"], before["orders-0"], "nor is the primary");
}

/// Waits until the StatefulSet has done all that it was told to, and both instances serve.
async fn settled(bed: &Bed) {
    until("the StatefulSet to have two pods, and no other", LONG, || async {
        let set = bed.api::<StatefulSet>().get("orders").await.unwrap();
        let told = set.status.and_then(|status| status.observed_generation) == set.metadata.generation;
        let pods = bed.pods().await;
        let stays = pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none());
        if told && stays && pods.len() == 2 { Look::There(()) } else { Look::NotYet(format!("{pods:?}")) }
    })
    .await
    .unwrap();
    bed.ready(2).await;
}

#[cfg(feature = "long-tests")]
/// It is made anew by who led; and where it names somebody who is not there, that ends with a term.
async fn the_lease(bed: &Bed) {
    let leader = bed.whole_of(2).await;
    bed.kubectl(&["delete", "lease", "orders-leader"]);
    let after = bed.whole_of(2).await;
    assert_eq!(
        (&after.name, after.epoch),
        (&leader.name, leader.epoch + 1),
        "nobody else, and no epoch twice"
    );
    bed.ready(2).await;

    let nobody = r#"{"spec":{"holderIdentity":"nobody/0"}}"#;
    bed.kubectl(&["patch", "lease", "orders-leader", "--type=merge", "--patch", nobody]);
    let after = bed.another_than("nobody").await;
    assert!(after.epoch > leader.epoch, "it was another's for a moment: {leader:?}, {after:?}");
    bed.whole_of(2).await;
    bed.ready(2).await;
}

/// Tokens end with their account: pods get new ones by being replaced.
async fn the_account(bed: &Bed) {
    let before = bed.uids().await;
    repaired::<ServiceAccount>(bed, "orders", &["delete", "serviceaccount", "orders"]).await;
    until("all pods to have a token that is good", LONG, || async {
        match bed.uids().await {
            after if after.len() == 2 && after.iter().all(|(name, uid)| before[name] != *uid) => {
                Look::There(())
            }
            after => Look::NotYet(format!("{after:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
    bed.ready(2).await;
}
