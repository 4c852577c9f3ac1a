//! What an operator is at work on when things go wrong, how it ends, and what is compared then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use keelson_api::instance::annotations;
use keelson_api::v1::Database;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::{Look, until};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use crate::world::{DEADLINE, World};

/// How long nothing is written before all is over.
pub const QUIET: Duration = Duration::from_millis(1200);

/// A change, from its first write to its last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Create,
    /// More instances.
    Scale,
    /// Fewer, one of them the leader, and their volumes go.
    Shrink,
    /// New pods and larger volumes at once.
    RollOut,
    /// Another minor version.
    Upgrade,
    /// Restarts in their pods, with a handover before the last.
    HandOver,
    Delete,
}

impl Act {
    pub const ALL: [Act; 7] =
        [Act::Create, Act::Scale, Act::Shrink, Act::RollOut, Act::Upgrade, Act::HandOver, Act::Delete];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// What there is before the act.
    fn before(self) -> Value {
        match self {
            Act::Create | Act::Scale | Act::RollOut | Act::HandOver | Act::Delete => json!({"replicas": 2}),
            Act::Shrink => json!({"replicas": 3, "deletionPolicy": "Delete"}),
            Act::Upgrade => json!({"replicas": 3, "version": "17.4"}),
        }
    }

    /// What is asked for; nothing if it is the end.
    fn after(self) -> Value {
        match self {
            Act::Create => self.before(),
            Act::Scale => json!({"replicas": 3}),
            Act::Shrink => json!({"replicas": 1}),
            Act::RollOut => json!({"version": "17.5", "storage": "20Gi"}),
            Act::Upgrade => json!({"version": "17.5"}),
            Act::HandOver => json!({"parameters": {"max_connections": "200"}}),
            Act::Delete => Value::Null,
        }
    }

    /// Brings about what there is before the act, with an operator that is gone when it begins.
    pub async fn prepare(self, world: &World) {
        if self == Act::Create {
            return;
        }
        let before = self.before();
        let replicas = i32::try_from(before["replicas"].as_i64().unwrap()).unwrap();
        world.create("orders", before).await;
        let operator = world.hasty_operator_on(crate::way::Way::clear()).await;
        world.reaches("orders", "Running", replicas).await;
        if self == Act::Shrink {
            let last = format!("orders-{}", replicas - 1);
            let ask = json!({"metadata": {"annotations": {annotations::HANDOVER_TO: last}}});
            world.patch::<Lease>("orders-leader", ask).await;
            leads(world, &last).await;
        }
        operator.is_quiet_for(QUIET).await;
        operator.stop().await;
    }

    pub async fn begin(self, world: &World) {
        match self {
            Act::Create => drop(world.create("orders", self.after()).await),
            Act::Delete => world.delete("orders").await,
            _ => world.change("orders", self.after()).await,
        }
    }

    /// Waits until all that was asked for is there.
    pub async fn end(self, world: &World) {
        let running = |replicas| world.reaches("orders", "Running", replicas);
        match self {
            Act::Create => drop(running(2).await),
            Act::Scale => drop(running(3).await),
            Act::Shrink => {
                running(1).await;
                claims_go(world).await;
            }
            Act::RollOut | Act::Upgrade => {
                let replicas = if self == Act::Upgrade { 3 } else { 2 };
                rolled_out(world, replicas).await;
                running(i32::try_from(replicas).unwrap()).await;
            }
            Act::HandOver => {
                restarted(world).await;
                running(2).await;
            }
            Act::Delete => {
                world.is_gone("orders").await;
                collect(world).await;
            }
        }
    }
}

/// Pods go with what they belonged to: there is no garbage collector here.
async fn collect(world: &World) {
    let now = kube::api::DeleteParams::default().grace_period(0);
    let pods = world.api::<Pod>();
    pods.delete_collection(&now, &kube::api::ListParams::default()).await.unwrap();
}

async fn leads(world: &World, name: &str) {
    until(&format!("{name} leads"), DEADLINE, || async {
        let status = world.api::<Database>().get("orders").await.unwrap().status.unwrap_or_default();
        match status.primary.as_deref() {
            Some(primary) if primary == name => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// All instances are new ones, and all is well.
pub async fn rolled_out(world: &World, replicas: usize) {
    until("all pods have the new image", DEADLINE, || async {
        let found = pods(world).await;
        let image = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone();
        let images: Vec<_> = found.iter().map(image).collect();
        match images.iter().all(|image| image.as_deref() == Some("postgres:17.5")) && images.len() == replicas
        {
            true => Look::There(()),
            false => {
                let status = world.api::<Database>().get("orders").await.unwrap().status;
                Look::NotYet(format!("{} {images:?} {status:?}", world.namespace))
            }
        }
    })
    .await
    .unwrap();
}

async fn restarted(world: &World) {
    until("all run with the new parameter", DEADLINE, || async {
        let found = pods(world).await;
        let running = |pod: &Pod| {
            let report: Value = serde_json::from_str(pod.annotations().get(annotations::REPORT)?).ok()?;
            report["running"].as_str().map(str::to_owned)
        };
        let running: Vec<_> = found.iter().map(running).collect();
        match running.len() == 2 && running.iter().all(|value| value.as_deref() == Some("200")) {
            true => Look::There(()),
            false => Look::NotYet(format!("{} {running:?}", world.namespace)),
        }
    })
    .await
    .unwrap();
}

/// Nobody is there to let go of them, so they stay on their way out.
async fn claims_go(world: &World) {
    until("volumes are on their way out", DEADLINE, || async {
        let found = world.all::<PersistentVolumeClaim>().await;
        let staying: Vec<String> = found
            .iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .map(ResourceExt::name_any)
            .collect();
        match staying.as_slice() {
            [only] if only == "data-orders-0" => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

async fn pods(world: &World) -> Vec<Pod> {
    world.all::<Pod>().await
}

/// Which pods and claims there ever were: a name may stand for several, one after the other.
#[derive(Clone, Default)]
pub struct Incarnations(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

/// Ends with the test.
pub struct Watching(Vec<JoinHandle<()>>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Incarnations {
    /// Keeps account from now on.
    pub fn of(world: &World) -> (Incarnations, Watching) {
        let found = Incarnations::default();
        let watching =
            vec![found.watch(world.api::<Pod>()), found.watch(world.api::<PersistentVolumeClaim>())];
        (found, Watching(watching))
    }

    fn watch<K>(&self, api: Api<K>) -> JoinHandle<()>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let found = self.0.clone();
        tokio::spawn(async move {
            let mut objects = std::pin::pin!(watcher(api, watcher::Config::default()).touched_objects());
            while let Some(object) = objects.next().await {
                let Ok(object) = object else { continue };
                let name = format!("{} {}", K::kind(&()), object.name_any());
                found.lock().unwrap().entry(name).or_default().extend(object.uid());
            }
        })
    }

    /// How many there were of each name.
    pub fn count(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().iter().map(|(name, uids)| (name.clone(), uids.len())).collect()
    }
}

/// All that is there, but for what differs from one run to another.
pub async fn state(world: &World) -> Value {
    let mut all = serde_json::Map::new();
    macro_rules! list {
        ($($kind:ty),+) => {$(
            for found in world.all::<$kind>().await {
                let name = format!("{} {}", stringify!($kind), found.name_any());
                all.insert(name, plain(serde_json::to_value(&found).unwrap()));
            }
        )+};
    }
    list!(Database, ConfigMap, Secret, ServiceAccount, Role, RoleBinding, StatefulSet, Service);
    list!(PodDisruptionBudget, Lease, PersistentVolumeClaim, Pod);
    let uids: BTreeSet<String> =
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
    if let Some(time) = meta.get_mut("deletionTimestamp") {
        *time = "set".into();
    }
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
        // What agents have reported, and what they were told, is of the way and not of the end.
        annotations.retain(|key, _| {
            !matches!(key.as_str(), "keelson.dev/applied" | annotations::REPORT | annotations::RESTART)
        });
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
    if object.pointer("/spec/containers").is_some() {
        // Of a pod, what was asked for: the rest is another in each.
        object["spec"] = object["spec"]["containers"][0]["image"].clone();
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !matches!(key.as_str(), "clusterIP" | "clusterIPs" | "holderIdentity"));
    }
    object
}

/// Where two values differ.
pub fn difference(one: &Value, other: &Value) -> Vec<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
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

/// How an act ended.
#[derive(Clone, Debug)]
pub struct End {
    pub state: Value,
    /// How many pods and claims there were of each name.
    pub incarnations: BTreeMap<String, usize>,
}

impl End {
    pub async fn of(world: &World, incarnations: &Incarnations) -> End {
        End { state: state(world).await, incarnations: incarnations.count() }
    }

    /// Waits until this is the end here too; an operator that is starved of time may look quiet before it is.
    pub async fn comes_about(&self, world: &World, incarnations: &Incarnations, how: impl Fn() -> String) {
        let same = until("the same end", DEADLINE, || async {
            let found = End::of(world, incarnations).await;
            let differs = difference(&self.state, &found.state);
            match differs.is_empty() {
                true => Look::There(found),
                false => Look::NotYet(format!("{differs:#?}")),
            }
        });
        let found = same.await.unwrap_or_else(|error| panic!("{}: {error}", how()));
        assert_eq!(self.incarnations, found.incarnations, "{}: others were made, or replaced", how());
    }
}

/// How each act ends when nothing goes wrong.
static WELL: [OnceCell<Arc<End>>; Act::ALL.len()] = [const { OnceCell::const_new() }; Act::ALL.len()];

/// How an act ends when nothing goes wrong. It is looked at once, for all tests.
pub async fn reference(act: Act) -> Arc<End> {
    WELL[act as usize].get_or_init(|| async { Arc::new(undisturbed(act).await) }).await.clone()
}

async fn undisturbed(act: Act) -> End {
    let world = World::new(&format!("well-{}", act.name())).await;
    let (incarnations, _watching) = Incarnations::of(&world);
    act.prepare(&world).await;
    let operator = world.hasty_operator_on(crate::way::Way::clear()).await;
    act.begin(&world).await;
    act.end(&world).await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    End::of(&world, &incarnations).await
}
