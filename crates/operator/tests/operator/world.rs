//! A control plane that the tests share, with a namespace for each, and operators to run on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::crds;
use keelson_api::v1::{Database, DatabaseStatus};
use keelson_kit::client::{Deadlines, with_config};
use keelson_kit::election::Timing;
use keelson_kit::telemetry::Metrics;
use keelson_operator::Options;
use keelson_operator::root::Root;
use keelson_operator::run::manager;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::{Look, shared_control_plane, until};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tower::BoxError;

use crate::players::Players;

pub const DEADLINE: Duration = Duration::from_secs(120);
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

/// The way to the control plane that tests share.
fn shared() -> PathBuf {
    shared_control_plane(|client| async move { install(&client).await })
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut crd = crds::database().unwrap();
    // Nobody asks for another version here.
    crd.spec.conversion = None;
    let name = crd.metadata.name.clone().unwrap();
    definitions.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&crd)).await.unwrap();
    for (name, grows) in [("grows", true), ("stays", false)] {
        let class =
            json!({"metadata": {"name": name}, "provisioner": "nobody", "allowVolumeExpansion": grows});
        let class = serde_json::from_value(class).unwrap();
        Api::<StorageClass>::all(client.clone()).create(&PostParams::default(), &class).await.unwrap();
    }
    let databases: Api<Database> = Api::all(client.clone());
    until("Databases are served", DEADLINE, || async {
        match databases.list(&Default::default()).await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
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

    pub async fn is_gone(&self, name: &str) {
        let databases = self.api::<Database>();
        until(&format!("{name} is gone"), DEADLINE, || async {
            match databases.get_opt(name).await.unwrap() {
                None => Look::There(()),
                Some(found) => Look::NotYet(format!("{:?}", found.metadata)),
            }
        })
        .await
        .unwrap();
    }

    /// Runs an operator here.
    pub async fn operator(&self) -> Operator {
        self.operator_that_dies(usize::MAX).await
    }

    /// Runs an operator whose world ends with its n-th write: that one is made, but no answer comes.
    /// It leads at once, whoever led before.
    pub async fn operator_that_dies(&self, with: usize) -> Operator {
        let own = self.namespace_for_an_operator().await;
        self.operator_as(None, with, own).await
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
    pub async fn operator_as(&self, user: Option<&str>, with: usize, own: String) -> Operator {
        let metrics = Metrics::new("test");
        let mut config = self.config.clone();
        config.auth_info.impersonate = user.map(str::to_owned);
        let client = with_config(config, DEADLINES, &metrics).unwrap();
        let writes =
            Arc::new(Writes { left: AtomicUsize::new(with), made: AtomicUsize::new(0), dead: Notify::new() });
        let client = mortal(client, writes.clone());
        let options = Options {
            agent_image: "keelson:test".to_owned(),
            namespace: Some(own),
            only_in: Some(self.namespace.clone()),
            metrics_port: 0,
            health_port: 0,
            webhook_port: None,
        };
        let root = Root::read("test", &self.root).unwrap();
        let manager = manager(client, metrics.clone(), root, &options).timing(TIMING);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(manager.run(async { drop(stopped.await) }));
        Operator { metrics, writes, stop, running }
    }
}

/// What an operator has written and may write yet, but for its Lease and events.
struct Writes {
    left: AtomicUsize,
    made: AtomicUsize,
    dead: Notify,
}

fn mortal(client: Client, writes: Arc<Writes>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, writes) = (client.clone(), writes.clone());
        async move {
            let path = request.uri().path();
            let aside = path.contains("-op-") || path.contains("/events");
            let counts = request.method() != Method::GET && !aside;
            if writes.left.load(Ordering::SeqCst) == 0 && !aside {
                std::future::pending::<()>().await;
            }
            let last = counts && writes.left.fetch_sub(1, Ordering::SeqCst) == 1;
            let answer = client.send(request).await.map_err(BoxError::from);
            if counts {
                writes.made.fetch_add(1, Ordering::SeqCst);
            }
            if last {
                writes.dead.notify_one();
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    Client::new(service, namespace)
}

/// An operator that runs.
pub struct Operator {
    pub metrics: Metrics,
    writes: Arc<Writes>,
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
            () = self.writes.dead.notified() => true,
            () = done => false,
        };
        self.running.abort();
        died
    }

    pub fn writes(&self) -> usize {
        self.writes.made.load(Ordering::SeqCst)
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
        let mut last = (self.writes(), Instant::now());
        until("some seconds to pass without a write", DEADLINE, || {
            if self.writes() != last.0 {
                last = (self.writes(), Instant::now());
            }
            let (writes, since) = last;
            async move {
                match since.elapsed() {
                    quiet if quiet > Duration::from_secs(3) => Look::There(()),
                    quiet => Look::NotYet(format!("the last of {writes} writes was {quiet:?} ago")),
                }
            }
        })
        .await
        .unwrap();
    }
}
