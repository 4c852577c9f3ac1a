//! The rights that are generated are enough, and nothing is asked for beyond them.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use keelson_api::v1::App;
use keelson_operator::rights;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::way::Way;
use crate::world::World;

const USER: &str = "keelson-test";

fn bound<K: serde::de::DeserializeOwned>(kind: &str, name: &str) -> K {
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let who = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]);
    serde_json::from_value(json!({"metadata": {"name": name}, "roleRef": to, "subjects": who})).unwrap()
}

/// As an installation for all namespaces would.
async fn install(world: &World, own: &str) {
    let (cluster_roles, roles) = rights::cluster_wide().unwrap();
    let create = PostParams::default();
    for role in cluster_roles {
        let name = role.metadata.name.clone().unwrap();
        Api::<ClusterRole>::all(world.client.clone()).create(&create, &role).await.unwrap();
        let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
        bindings.create(&create, &bound("ClusterRole", &name)).await.unwrap();
    }
    for role in roles {
        let name = role.metadata.name.clone().unwrap();
        let mut role: Value = serde_json::to_value(role).unwrap();
        role["metadata"]["namespace"] = own.into();
        let role: Role = serde_json::from_value(role).unwrap();
        Api::<Role>::namespaced(world.client.clone(), own).create(&create, &role).await.unwrap();
        let bindings = Api::<RoleBinding>::namespaced(world.client.clone(), own);
        bindings.create(&create, &bound("Role", &name)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_just_its_generated_rights_can_do_all_that_it_has_to() {
    let world = World::new("rights").await;
    let own = world.namespace_for_an_operator().await;
    install(&world, &own).await;
    let operator = world.operator_as(Some(USER), Way::clear(), own).await;
    let backup = json!({"to": {"s3": {"bucket": "backups"}}});
    world.create("orders", json!({"replicas": 2, "deletionPolicy": "Delete", "backup": backup})).await;
    world.reaches("orders", "Running", 2).await;
    crate::backups::asked_for(&world, "by-hand").await;
    crate::backups::is_complete(&world, "by-hand").await;
    world.change("orders", json!({"version": "17.5", "storage": "20Gi"})).await;
    crate::acts::rolled_out(&world, 2).await;
    world.reaches("orders", "Running", 2).await;
    world.change("orders", json!({"parameters": {"max_connections": "200"}})).await;
    world.reaches("orders", "Running", 2).await;
    // An app beside it, with all that one may have, and then without.
    let spec = json!({
        "image": "shop:1", "database": "orders", "ports": [{"name": "http", "port": 80}], "replicas": 2,
        "autoscale": {"min": 2, "max": 3}
    });
    let app =
        json!({"apiVersion": "keelson.dev/v1", "kind": "App", "metadata": {"name": "shop"}, "spec": spec});
    let app: App = serde_json::from_value(app).unwrap();
    world.api::<App>().create(&PostParams::default(), &app).await.unwrap();
    operator.is_quiet().await;
    assert_eq!(world.all::<HorizontalPodAutoscaler>().await.len(), 1);
    world.patch::<App>("shop", json!({"spec": {"autoscale": null, "ports": null, "replicas": 1}})).await;
    operator.is_quiet().await;
    assert_eq!(world.all::<HorizontalPodAutoscaler>().await.len(), 0);
    world.change("orders", json!({"replicas": 1})).await;
    world.reaches("orders", "Running", 1).await;
    operator.is_quiet().await;
    world.delete("orders").await;
    world.is_gone("orders").await;
    let text = operator.metrics.render();
    let refused: Vec<&str> = text.lines().filter(|line| line.contains("code=\"403\"")).collect();
    assert_eq!(refused, [""; 0]);
    operator.stop().await;
}
