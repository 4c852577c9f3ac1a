//! The life of a database: made, scaled, rolled out, grown, deleted.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use keelson_api::instance::{annotations, labels};
use keelson_api::v1::Database;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::{Look, until};

use crate::players::BAD_IMAGE;
use crate::world::{DEADLINE, World};

fn condition(database: &Database, kind: &str) -> (String, String, String) {
    let conditions = database.status.clone().unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|one| one.type_ == kind).unwrap();
    (found.status, found.reason, found.message)
}

pub async fn is_said(world: &World, name: &str, kind: &str, reason: &str) -> String {
    let databases = world.api::<Database>();
    until(&format!("{kind} of {name} is {reason}"), DEADLINE, || async {
        match databases.get(name).await {
            Ok(found) if found.status.is_some() && condition(&found, kind).1 == reason => {
                Look::There(condition(&found, kind).2)
            }
            other => Look::NotYet(format!("{:?}", other.map(|found| found.status))),
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_made_scaled_rolled_out_and_then_costs_nothing() {
    let world = World::new("life").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 1, "backup": {"schedule": "0 2 * * *"}})).await;
    let status = world.reaches("orders", "Running", 1).await;
    assert_eq!(status.primary.as_deref(), Some("orders-0"));
    assert_eq!(status.endpoint.as_deref(), Some("orders-rw.life.svc:5432"));
    assert_eq!(status.version.unwrap().as_str(), "17.5");
    let database = world.api::<Database>().get("orders").await.unwrap();
    assert_eq!(condition(&database, "Ready").0, "True");
    assert_eq!(condition(&database, "BackupReady").1, "NoRepository");

    world.change("orders", json!({"replicas": 3})).await;
    world.reaches("orders", "Running", 3).await;
    let before = pods(&world).await;
    world.change("orders", json!({"version": "17.5"})).await;
    let status = world.reaches("orders", "Running", 3).await;
    until("all pods to be others", DEADLINE, || async {
        let now = pods(&world).await;
        match now.iter().any(|pod| before.contains(pod)) {
            false if now.len() == 3 => Look::There(()),
            _ => Look::NotYet(format!("{now:?}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(status.instances.len(), 3);
    world.reaches("orders", "Running", 3).await;
    operator.is_quiet().await;
    let writes = operator.writes();
    // Another operator takes over, and finds all as it should be.
    operator.stop().await;
    let second = world.operator().await;
    second.is_quiet().await;
    assert_eq!(second.writes(), 0, "after {writes} of the first");
    second.stop().await;
}

async fn pods(world: &World) -> Vec<String> {
    let found = world.api::<Pod>().list(&ListParams::default()).await.unwrap();
    found.items.iter().filter_map(ResourceExt::uid).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_off_instances_that_go_and_their_volumes_stay() {
    let world = World::new("shrinks").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 3})).await;
    world.reaches("orders", "Running", 3).await;
    world
        .patch::<Lease>(
            "orders-leader",
            json!({"metadata": {"annotations": {annotations::HANDOVER_TO: "orders-2"}}}),
        )
        .await;
    until("orders-2 leads", DEADLINE, || async {
        let status = world.api::<Database>().get("orders").await.unwrap().status.unwrap();
        match status.primary.as_deref() {
            Some("orders-2") => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    world.change("orders", json!({"replicas": 1})).await;
    let status = world.reaches("orders", "Running", 1).await;
    assert_eq!(status.primary.as_deref(), Some("orders-0"));
    assert_eq!(
        world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items.len(),
        3
    );
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_need_a_restart_are_rolled_out_without_a_new_pod() {
    let world = World::new("parameters").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 2})).await;
    world.reaches("orders", "Running", 2).await;
    let before = pods(&world).await;
    world.change("orders", json!({"parameters": {"max_connections": "200"}})).await;
    until("both to have restarted", DEADLINE, || async {
        let found = world.api::<Pod>().list(&ListParams::default()).await.unwrap();
        let done =
            |pod: &Pod| pod.annotations().get(annotations::REPORT).is_some_and(|it| it.contains("\"200\""));
        match found.items.iter().filter(|pod| done(pod)).count() {
            2 => Look::There(()),
            some => Look::NotYet(format!("{some}")),
        }
    })
    .await
    .unwrap();
    world.reaches("orders", "Running", 2).await;
    assert_eq!(pods(&world).await, before);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_stops_at_the_first_and_taking_it_back_recovers() {
    let world = World::new("bad-image").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 3})).await;
    world.reaches("orders", "Running", 3).await;
    world.change("orders", json!({"image": BAD_IMAGE})).await;
    let said = is_said(&world, "orders", "Degraded", "ImageNotPulled").await;
    assert!(said.contains("orders-2: no such image"), "{said}");
    operator.is_quiet().await;
    let database = world.api::<Database>().get("orders").await.unwrap();
    assert_eq!(condition(&database, "Ready").0, "True");
    assert_eq!(database.status.unwrap().ready_replicas, Some(2));
    world.change("orders", json!({"image": null})).await;
    world.reaches("orders", "Running", 3).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_grow_without_a_pod_being_touched() {
    let world = World::new("grows").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 2})).await;
    world.reaches("orders", "Running", 2).await;
    let before = pods(&world).await;
    world.change("orders", json!({"storage": "20Gi"})).await;
    until("claims and template to say so", DEADLINE, || async {
        let claims = world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items;
        let sets = world.api::<StatefulSet>().list(&ListParams::default()).await.unwrap().items;
        let templates = sets.into_iter().flat_map(|set| set.spec.unwrap().volume_claim_templates.unwrap());
        let all: Vec<String> = claims
            .into_iter()
            .chain(templates)
            .map(|claim| claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0.clone())
            .collect();
        match all.iter().all(|size| size == "20Gi") && all.len() == 3 {
            true => Look::There(()),
            false => Look::NotYet(format!("{all:?}")),
        }
    })
    .await
    .unwrap();
    world.reaches("orders", "Running", 2).await;
    assert_eq!(pods(&world).await, before);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_may_not_grow_is_said_and_keeps_nothing_else_from_happening() {
    let world = World::new("grows-not").await;
    let operator = world.operator().await;
    world.create("orders", json!({"storage": {"size": "10Gi", "class": "stays"}})).await;
    world.reaches("orders", "Running", 1).await;
    world.change("orders", json!({"replicas": 2, "storage": {"size": "20Gi"}})).await;
    let said = is_said(&world, "orders", "Degraded", "VolumeNotGrown").await;
    assert!(said.contains("allowVolumeExpansion"), "{said}");
    world.reaches("orders", "Degraded", 2).await;
    operator.is_quiet().await;
    world.change("orders", json!({"storage": {"size": "10Gi"}})).await;
    world.reaches("orders", "Running", 2).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_secrets_come_when_asked_for_and_are_those_that_agents_are_told_of() {
    let world = World::new("rotates").await;
    let operator = world.operator().await;
    world.create("orders", json!({})).await;
    world.reaches("orders", "Running", 1).await;
    let password =
        || async { world.api::<Secret>().get("orders-app").await.unwrap().data.unwrap()["password"].clone() };
    let config = || async { world.api::<ConfigMap>().get("orders-config").await.unwrap().data };
    let before = (password().await, config().await);
    world
        .patch::<Database>("orders", json!({"metadata": {"annotations": {annotations::ROTATE_SECRETS: "1"}}}))
        .await;
    until("another password", DEADLINE, || async {
        match (password().await, config().await) {
            (password, config) if password != before.0 && config != before.1 => Look::There(()),
            _ => Look::NotYet("the same".into()),
        }
    })
    .await
    .unwrap();
    // Somebody emptied it, and an agent says so.
    world.patch::<Secret>("orders-app", json!({"data": {"password": ""}})).await;
    operator.is_quiet().await;
    operator.stop().await;
    let operator = world.operator().await;
    let report =
        json!({"role": "unknown", "reason": "SecretsDamaged", "problem": "the Secret orders-app is empty"});
    let report = json!({"metadata": {"annotations": {annotations::REPORT: report.to_string()}}});
    until("a password to be back", DEADLINE, || async {
        // The player of agents knows nothing of Secrets, and writes over it.
        world.patch::<Pod>("orders-0", report.clone()).await;
        match password().await.0.is_empty() {
            false => Look::There(()),
            true => Look::NotYet("empty".into()),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_database_leaves_its_volumes_and_a_new_one_of_its_name_asks_first() {
    let world = World::new("deleted").await;
    let operator = world.operator().await;
    let first = world.create("orders", json!({})).await;
    world.reaches("orders", "Running", 1).await;
    world.delete("orders").await;
    world.is_gone("orders").await;
    collect(&world, &first.uid().unwrap()).await;
    assert_eq!(world.api::<Lease>().get_opt("orders-leader").await.unwrap(), None);
    let events = world.api::<Event>();
    until("an event that says where volumes are", DEADLINE, || async {
        let found = events.list(&ListParams::default()).await.unwrap().items;
        let notes: Vec<String> = found.into_iter().filter_map(|event| event.note).collect();
        match notes.iter().any(|note| note.contains("volumes stay: data-orders-0")) {
            true => Look::There(()),
            false => Look::NotYet(format!("{notes:?}")),
        }
    })
    .await
    .unwrap();

    let second = world.create("orders", json!({})).await;
    let said = is_said(&world, "orders", "Ready", "VolumesFound").await;
    assert!(said.contains("data-orders-0"), "{said}");
    assert_eq!(world.api::<StatefulSet>().get_opt("orders").await.unwrap(), None);
    world
        .patch::<Database>(
            "orders",
            json!({"metadata": {"annotations": {annotations::ADOPT_VOLUMES: "yes"}}}),
        )
        .await;
    world.reaches("orders", "Running", 1).await;
    let claim = world.api::<PersistentVolumeClaim>().get("data-orders-0").await.unwrap();
    assert_eq!(claim.labels().get(labels::DATABASE_UID), second.uid().as_ref());

    world.change("orders", json!({"deletionPolicy": "Delete"})).await;
    world.reaches("orders", "Running", 1).await;
    world.delete("orders").await;
    world.is_gone("orders").await;
    let claim = world.api::<PersistentVolumeClaim>().get_opt("data-orders-0").await.unwrap();
    assert!(claim.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some()));
    operator.stop().await;
}

/// Does what the garbage collector would.
pub async fn collect(world: &World, uid: &str) {
    macro_rules! collect {
        ($($kind:ty),+) => {$(
            for found in world.api::<$kind>().list(&ListParams::default()).await.unwrap().items {
                if found.owner_references().iter().any(|owner| owner.uid == uid) {
                    world.api::<$kind>().delete(&found.name_any(), &DeleteParams::default()).await.unwrap();
                }
            }
        )+};
    }
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    collect!(StatefulSet, ConfigMap, Secret, Service, ServiceAccount, Role, RoleBinding, PodDisruptionBudget);
    for pod in world.api::<Pod>().list(&ListParams::default()).await.unwrap().items {
        world.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    until("pods are gone", DEADLINE, || async {
        match pods(world).await.len() {
            0 => Look::There(()),
            some => Look::NotYet(format!("{some}")),
        }
    })
    .await
    .unwrap();
}
