//! An operator that dies with its k-th write, for every k: the next one comes to the same end.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use keelson_api::v1::Database;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Create,
    Scale,
    RollOut,
    Delete,
}

impl Act {
    async fn begin(self, world: &World) {
        match self {
            Act::Create => drop(world.create("orders", json!({"replicas": 2})).await),
            Act::Scale => world.change("orders", json!({"replicas": 3})).await,
            Act::RollOut => world.change("orders", json!({"version": "17.5", "storage": "20Gi"})).await,
            Act::Delete => world.delete("orders").await,
        }
    }

    async fn end(self, world: &World) {
        match self {
            Act::Create => drop(world.reaches("orders", "Running", 2).await),
            Act::Scale => drop(world.reaches("orders", "Running", 3).await),
            Act::RollOut => rolled_out(world).await,
            Act::Delete => world.is_gone("orders").await,
        }
    }
}

/// Both instances are new ones, and all is well.
pub async fn rolled_out(world: &World) {
    let pods = world.api::<k8s_openapi::api::core::v1::Pod>();
    testbed::until("all pods have the new image", crate::world::DEADLINE, || async {
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        let images: Vec<_> =
            found.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone()).collect();
        match images.iter().all(|image| image.as_deref() == Some("postgres:17.5")) && images.len() == 2 {
            true => testbed::Look::There(()),
            false => {
                let status = world.api::<Database>().get("orders").await.unwrap().status;
                testbed::Look::NotYet(format!("{} {images:?} {status:?}", world.namespace))
            }
        }
    })
    .await
    .unwrap();
    world.reaches("orders", "Running", 2).await;
}

/// The end of an act whose operator dies with its k-th write. Nothing if it does not come to that.
async fn dies_with(act: Act, k: usize) -> Option<Value> {
    let world = World::new(&format!("dies-{}-{k}", format!("{act:?}").to_lowercase())).await;
    if act != Act::Create {
        Act::Create.begin(&world).await;
        let operator = world.operator().await;
        Act::Create.end(&world).await;
        operator.is_quiet().await;
        operator.stop().await;
    }
    act.begin(&world).await;
    let operator = world.operator_that_dies(k).await;
    let died = operator
        .dies_before(async {
            act.end(&world).await;
            // What comes after the end of the act counts too.
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        })
        .await;
    let operator = world.operator().await;
    act.end(&world).await;
    operator.is_quiet().await;
    operator.stop().await;
    match died {
        true => Some(state(&world).await),
        false => None,
    }
}

/// All that is there, but for what differs from one run to another.
async fn state(world: &World) -> Value {
    let mut all = serde_json::Map::new();
    macro_rules! list {
        ($($kind:ty),+) => {$(
            for found in world.api::<$kind>().list(&ListParams::default()).await.unwrap().items {
                let name = format!("{} {}", stringify!($kind), found.name_any());
                all.insert(name, plain(serde_json::to_value(&found).unwrap()));
            }
        )+};
    }
    list!(Database, ConfigMap, Secret, ServiceAccount, Role, RoleBinding, StatefulSet, Service);
    list!(PodDisruptionBudget, Lease, PersistentVolumeClaim);
    let uids: Vec<String> =
        all.values().filter_map(|one| Some(one["databaseUid"].as_str()?.to_owned())).collect();
    let mut text = Value::Object(all).to_string().replace(&world.namespace, "NAMESPACE");
    for uid in uids {
        text = text.replace(&uid, "UID");
    }
    serde_json::from_str(&text).unwrap()
}

fn plain(mut object: Value) -> Value {
    object["databaseUid"] = match (&object["kind"], object.pointer("/metadata/ownerReferences/0/uid")) {
        (Value::String(kind), _) if kind == "Database" => object["metadata"]["uid"].clone(),
        (_, Some(uid)) => uid.clone(),
        _ => Value::Null,
    };
    let meta = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        meta.remove(field);
    }
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("keelson.dev/applied");
    }
    if let Some(settings) = object.pointer_mut("/data/settings.json") {
        let mut read: Value = serde_json::from_str(settings.as_str().unwrap()).unwrap();
        (read["secrets"], read["certificate"]) = (Value::Null, Value::Null);
        *settings = read;
    } else if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
        data.values_mut().for_each(|value| *value = "secret".into());
    }
    // Of the status: where it ended, and not on which way.
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|key, _| {
            matches!(key.as_str(), "phase" | "replicas" | "readyReplicas" | "endpoint" | "version")
        });
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !matches!(key.as_str(), "clusterIP" | "clusterIPs" | "holderIdentity"));
    }
    object
}

/// Every k until the act is over before the operator dies.
async fn the_end_is_the_same(act: Act, expected_writes: std::ops::RangeInclusive<usize>) {
    let reference = dies_with_nothing(act).await;
    let mut running = JoinSet::new();
    let (mut next, mut deaths) = (1, 0);
    let most = *expected_writes.end() + 1;
    while next <= most || !running.is_empty() {
        while next <= most && running.len() < 6 {
            running.spawn(async move { (next, dies_with(act, next).await) });
            next += 1;
        }
        let (k, ended) = running.join_next().await.unwrap().unwrap();
        if let Some(ended) = ended {
            deaths += 1;
            let differs = difference(&reference, &ended);
            assert!(
                differs.is_empty(),
                "{act:?} ends differently when the operator dies with write {k}: {differs:#?}"
            );
        }
    }
    assert!(expected_writes.contains(&deaths), "{act:?} took {deaths} writes");
}

async fn dies_with_nothing(act: Act) -> Value {
    let world = World::new(&format!("lives-{}", format!("{act:?}").to_lowercase())).await;
    let operator = world.operator().await;
    Act::Create.begin(&world).await;
    Act::Create.end(&world).await;
    if act != Act::Create {
        act.begin(&world).await;
        act.end(&world).await;
    }
    operator.is_quiet().await;
    operator.stop().await;
    state(&world).await
}

fn difference(one: &Value, other: &Value) -> Vec<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let parts = keys.into_iter().flat_map(|key| {
                let (one, other) =
                    (one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null));
                difference(one, other).into_iter().map(move |rest| format!("{key} > {rest}"))
            });
            parts.collect()
        }
        (one, other) if one == other => Vec::new(),
        (one, other) => vec![format!("{one} and not {other}")],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Create, 14..=20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scaling_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Scale, 3..=8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_out_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::RollOut, 8..=20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Delete, 6..=10).await;
}
