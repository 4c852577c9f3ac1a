//! A control plane that the tests share, with a namespace for each, and operators to run on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::v1::{Backup, Database, DatabaseStatus};
use keelson_api::{GROUP, crds};
use keelson_kit::Manager;
use keelson_kit::client::{Deadlines, with_config};
use keelson_kit::election::Timing;
use keelson_kit::queue::Limits;
use keelson_kit::retry::Backoff;
use keelson_kit::telemetry::Metrics;
use keelson_operator::backup;
use keelson_operator::database::kind;
use keelson_operator::metrics::Databases;
use keelson_operator::root::Root;
use keelson_operator::run::manager;
use keelson_operator::{NAME, Options};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::{Look, shared_control_plane, until};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admission;
use crate::players::Players;
use crate::way::Way;

/// Many such tests run beside each other, on two cores.
pub const DEADLINE: Duration = Duration::from_secs(300);
const TIMING: Timing = Timing {
    term: Duration::from_secs(10),
    look: Duration::from_millis(300),
    margin: Duration::from_secs(1),
};
const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(5),
    request: Duration::from_secs(15),
    silence: Duration::from_secs(90),
};

const AGENT_IMAGE: &str = "keelson:test";

/// The way to the control plane that tests share.
fn shared() -> PathBuf {
    shared_control_plane(|client| async move { install(&client).await })
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in crds::crds().unwrap() {
        // Nobody asks for another version here.
        crd.spec.conversion = None;
        let name = crd.metadata.name.clone().unwrap();
        definitions.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&crd)).await.unwrap();
    }
    for (name, grows) in [("grows", true), ("stays", false)] {
        let class =
            json!({"metadata": {"name": name}, "provisioner": "nobody", "allowVolumeExpansion": grows});
        let class = serde_json::from_value(class).unwrap();
        Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await.unwrap();
    }
    admission::install(client).await;
    let (databases, backups) = (Api::<Database>::all(client.clone()), Api::<Backup>::all(client.clone()));
    until("Databases and Backups are served", DEADLINE, || async {
        match (databases.list(&Default::default()).await, backups.list(&Default::default()).await) {
            (Ok(_), Ok(_)) => Look::There(()),
            (databases, backups) => Look::NotYet(format!("{:?} {:?}", databases.err(), backups.err())),
        }
    })
    .await
    .unwrap();
}

/// A namespace of a test's own.
pub struct World {
    pub client: Client,
    pub namespace: String,
    config: Config,
    root: k8s_openapi::api::core::v1::Secret,
    _players: Option<Playing>,
}

/// Ends with the test.
struct Playing(JoinHandle<()>);

impl Drop for Playing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl World {
    /// With everybody in it but the operator.
    pub async fn new(namespace: &str) -> World {
        let world = World::quiet(namespace).await;
        let players = tokio::spawn(Players::new(world.client.clone(), namespace).play());
        World { _players: Some(Playing(players)), ..world }
    }

    /// With nobody in it.
    pub async fn quiet(namespace: &str) -> World {
        let kubeconfig = Kubeconfig::read_from(shared()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config.clone()).unwrap();
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let root = Root::make(Timestamp::now()).unwrap();
        World { client, namespace: namespace.to_owned(), config, root, _players: None }
    }

    /// Labels the namespace.
    pub async fn label(&self, name: &str, value: &str) {
        let label = Patch::Merge(json!({"metadata": {"labels": {name: value}}}));
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &label).await.unwrap();
    }

    /// Makes a priority class, for all namespaces.
    pub async fn priority_class(&self, name: &str) {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": 1})).unwrap();
        Api::<PriorityClass>::all(self.client.clone()).create(&PostParams::default(), &class).await.unwrap();
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create(&self, name: &str, spec: Value) -> Database {
        let database = serde_json::from_value(json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": name}, "spec": spec
        }))
        .unwrap();
        self.api::<Database>().create(&PostParams::default(), &database).await.unwrap()
    }

    pub async fn change(&self, name: &str, spec: Value) {
        self.patch::<Database>(name, json!({"spec": spec})).await;
    }

    pub async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.api::<Database>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a Database is in a phase, and says so of its newest spec, with so many that serve.
    pub async fn reaches(&self, name: &str, phase: &str, serving: i32) -> DatabaseStatus {
        let databases = self.api::<Database>();
        until(&format!("{name} is {phase} with {serving}"), DEADLINE, || async {
            let Ok(Some(database)) = databases.get_opt(name).await else {
                return Look::NotYet("none".into());
            };
            let status = database.status.unwrap_or_default();
            let told = status.phase.as_ref().map(|phase| phase.as_str().to_owned()).unwrap_or_default();
            let newest = status.observed_generation == database.metadata.generation;
            if newest
                && told == phase
                && status.ready_replicas == Some(serving)
                && status.replicas == Some(serving)
            {
                Look::There(status)
            } else {
                Look::NotYet(format!("{status:?}"))
            }
        })
        .await
        .unwrap()
    }

    /// All of a kind. A connection that breaks is no answer.
    pub async fn all<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        until("a list", DEADLINE, || async {
            match self.api::<K>().list(&ListParams::default()).await {
                Ok(list) => Look::There(list.items),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap()
    }

    /// The version of all that there is at this moment.
    pub async fn version(&self) -> String {
        let all = self.api::<Database>().list(&ListParams::default().limit(1)).await.unwrap();
        all.metadata.resource_version.unwrap()
    }

    pub async fn is_gone(&self, name: &str) {
        let databases = self.api::<Database>();
        until(&format!("{name} is gone"), DEADLINE, || async {
            match databases.get_opt(name).await {
                Ok(None) => Look::There(()),
                other => Look::NotYet(format!("{:?}", other.map(|found| found.map(|found| found.metadata)))),
            }
        })
        .await
        .unwrap();
    }

    /// Runs an operator here.
    pub async fn operator(&self) -> Operator {
        self.operator_on(Way::clear()).await
    }

    /// Runs an operator that goes this way. It leads at once, whoever led before.
    pub async fn operator_on(&self, way: Way) -> Operator {
        let own = self.namespace_for_an_operator().await;
        self.operator_as(None, way, own).await
    }

    /// The same, with one that tries again soon after a failure and does not wait long for an answer.
    pub async fn hasty_operator_on(&self, way: Way) -> Operator {
        let own = self.namespace_for_an_operator().await;
        let metrics = Metrics::new("test");
        let deadlines = Deadlines { request: Duration::from_secs(8), ..DEADLINES };
        let client = with_config(self.config.clone(), deadlines, &metrics).unwrap();
        let root = Arc::new(Root::read("test", &self.root).unwrap());
        let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(400) };
        let (debounce, gap) = (Duration::from_millis(20), Duration::from_millis(50));
        let limits = Limits { backoff, debounce, gap, ..Limits::default() };
        let kind = kind(root, AGENT_IMAGE, Databases::new(&metrics)).limits(limits);
        let manager = Manager::new(NAME, GROUP, way.client(client), metrics.clone())
            .look_after(kind)
            .look_after(backup::kind().limits(limits));
        self.run(manager.lives_in(&own).only_in(&self.namespace), metrics, way)
    }

    fn run(&self, manager: Manager, metrics: Metrics, way: Way) -> Operator {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(manager.timing(TIMING).run(async { drop(stopped.await) }));
        Operator { metrics, way, stop, running }
    }

    /// Where an operator lives.
    pub async fn namespace_for_an_operator(&self) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let own = format!("{}-op-{}", self.namespace, NUMBER.fetch_add(1, Ordering::SeqCst));
        let object = serde_json::from_value(json!({"metadata": {"name": own}})).unwrap();
        Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap();
        own
    }

    /// Runs an operator as somebody, in a namespace of its own.
    pub async fn operator_as(&self, user: Option<&str>, way: Way, own: String) -> Operator {
        let metrics = Metrics::new("test");
        let mut config = self.config.clone();
        config.auth_info.impersonate = user.map(str::to_owned);
        let client = with_config(config, DEADLINES, &metrics).unwrap();
        let client = way.client(client);
        let options = Options {
            agent_image: AGENT_IMAGE.to_owned(),
            namespace: Some(own),
            only_in: Some(self.namespace.clone()),
            metrics_port: 0,
            health_port: 0,
            webhook_port: None,
        };
        let root = Root::read("test", &self.root).unwrap();
        self.run(manager(client, metrics.clone(), root, &options), metrics, way)
    }
}

/// An operator that runs.
pub struct Operator {
    pub metrics: Metrics,
    pub way: Way,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Operator {
    /// Ends it in an orderly way.
    pub async fn stop(self) {
        drop(self.stop);
        tokio::time::timeout(DEADLINE, self.running).await.unwrap().unwrap();
    }

    /// Whether it dies before something has come about.
    pub async fn dies_before(self, done: impl Future<Output = ()>) -> bool {
        let died = tokio::select! {
            () = self.way.death() => true,
            () = done => false,
        };
        self.running.abort();
        died
    }

    /// Waits until it has seen all that it is told of, and has done what it finds to be done.
    pub async fn acts_on_what_it_sees(&self) {
        until("watches of all kinds to begin", DEADLINE, || async {
            match self.way.has_listed() {
                true => Look::There(()),
                false => Look::NotYet("not all have".into()),
            }
        })
        .await
        .unwrap();
        self.is_quiet_for(Duration::from_millis(700)).await;
    }

    pub fn writes(&self) -> usize {
        self.way.writes()
    }

    /// All requests so far, but for those of leadership.
    pub fn requests(&self) -> f64 {
        let text = self.metrics.render();
        let lines = text.lines().filter(|line| {
            line.starts_with("test_api_requests_total")
                && !line.contains("verb=\"watch\"")
                && !line.contains("verb=\"list\"")
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits until nothing has been written for a while.
    pub async fn is_quiet(&self) {
        self.is_quiet_for(Duration::from_secs(3)).await;
    }

    /// Waits until nothing has been written for so long.
    pub async fn is_quiet_for(&self, long: Duration) {
        let mut last = (self.writes(), Instant::now());
        until("some seconds to pass without a write", DEADLINE, || {
            if self.writes() != last.0 {
                last = (self.writes(), Instant::now());
            }
            let (writes, since) = last;
            async move {
                match since.elapsed() {
                    quiet if quiet > long => Look::There(()),
                    quiet => Look::NotYet(format!("the last of {writes} writes was {quiet:?} ago")),
                }
            }
        })
        .await
        .unwrap();
    }
}
