//! What others do to children, and what one database does to another: nothing lasting.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::v1::Database;
use kube::api::DeleteParams;
use serde_json::json;
use testbed::{Look, until};

use crate::world::{DEADLINE, World};

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_or_removes_is_repaired() {
    let world = World::new("repairs").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 2})).await;
    world.reaches("orders", "Running", 2).await;
    world.patch::<Service>("orders-ro", json!({"spec": {"selector": {"keelson.dev/role": "primary"}}})).await;
    world.patch::<StatefulSet>("orders", json!({"spec": {"replicas": 5}})).await;
    world.patch::<ConfigMap>("orders-config", json!({"data": {"settings.json": "{}"}})).await;
    let budgets = world.api::<PodDisruptionBudget>();
    budgets.delete("orders", &DeleteParams::default()).await.unwrap();
    until("all to be as it was", DEADLINE, || async {
        let readers = world.api::<Service>().get("orders-ro").await.unwrap().spec.unwrap().selector.unwrap();
        let set = world.api::<StatefulSet>().get("orders").await.unwrap().spec.unwrap();
        let config = world.api::<ConfigMap>().get("orders-config").await.unwrap().data.unwrap();
        let budget = budgets.get_opt("orders").await.unwrap();
        let found = (
            readers["keelson.dev/role"].as_str(),
            set.replicas,
            config["settings.json"].len() > 10,
            budget.is_some(),
        );
        match found {
            ("replica", Some(2), true, true) => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    world.reaches("orders", "Running", 2).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_databases_do_not_disturb_each_other() {
    let world = World::new("neighbours").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 2})).await;
    world.create("orders-1", json!({"replicas": 1})).await;
    world.create("broken", json!({"engine": "mysql", "version": "9.7"})).await;
    world.reaches("orders", "Running", 2).await;
    world.reaches("orders-1", "Running", 1).await;
    operator.is_quiet().await;
    let version = || async { world.api::<Database>().get("orders").await.unwrap().metadata.resource_version };
    let before = version().await;
    world.change("orders-1", json!({"replicas": 2})).await;
    world.reaches("orders-1", "Running", 2).await;
    world.delete("orders-1").await;
    world.is_gone("orders-1").await;
    assert_eq!(version().await, before);
    operator.stop().await;
}
