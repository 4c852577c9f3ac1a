//! A control plane that the tests share, with a namespace for each, and operators to run on it.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_kit::client::{Deadlines, with_config};
use keelson_kit::election::Timing;
use keelson_kit::health::Health;
use keelson_kit::telemetry::Metrics;
use keelson_kit::{Kind, Manager, Reconciler};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, CustomResourceExt};
use serde_json::json;
use testbed::{Look, shared_control_plane, until};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::greeting::{Greeting, GreetingSpec};

pub const SECOND: Duration = Duration::from_secs(1);
pub const DEADLINE: Duration = Duration::from_secs(60);
pub const TIMING: Timing = Timing {
    term: Duration::from_secs(3),
    look: Duration::from_millis(300),
    margin: Duration::from_millis(600),
};
pub const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(2),
    silence: Duration::from_secs(90),
};

/// The way to the control plane that tests share.
pub fn shared() -> PathBuf {
    shared_control_plane(|client| async move { install(&client).await })
}

/// Makes the kind known.
pub async fn install(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = Greeting::crd();
    let name = crd.metadata.name.clone().unwrap();
    crds.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&crd)).await.unwrap();
    let greetings: Api<Greeting> = Api::all(client.clone());
    until("Greetings are served", DEADLINE, || async {
        match greetings.list(&Default::default()).await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
}

/// The configuration with which to reach a control plane.
pub async fn config(kubeconfig: &PathBuf) -> Config {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap()
}

/// A namespace of a test's own.
pub struct World {
    pub kubeconfig: PathBuf,
    pub client: Client,
    pub namespace: String,
}

impl World {
    /// On the shared control plane.
    pub async fn new(namespace: &str) -> World {
        World::on(shared(), namespace).await
    }

    /// On another one.
    pub async fn on(kubeconfig: PathBuf, namespace: &str) -> World {
        let client = testbed::connect(&kubeconfig).await.unwrap();
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        World { kubeconfig, client, namespace: namespace.to_owned() }
    }

    pub fn greetings(&self) -> Api<Greeting> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a Greeting that greets whoever.
    pub async fn greet(&self, name: &str, whom: &str) -> Greeting {
        let greeting = Greeting::new(name, GreetingSpec { name: whom.to_owned() });
        self.greetings().create(&PostParams::default(), &greeting).await.unwrap()
    }

    pub async fn change(&self, name: &str, whom: &str) {
        let patch = Patch::Merge(json!({"spec": {"name": whom}}));
        self.greetings().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until a ConfigMap says so, and the Greeting is ready.
    pub async fn says(&self, name: &str, text: &str) {
        let (config_maps, greetings) = (self.config_maps(), self.greetings());
        until(&format!("{name} says {text}"), DEADLINE, || async {
            let found = config_maps.get_opt(name).await.ok().flatten();
            let said = found.and_then(|found| found.data?.remove("text"));
            let greeting = greetings.get_opt(name).await.ok().flatten();
            let generation = greeting.as_ref().and_then(|greeting| greeting.metadata.generation);
            let status = greeting.and_then(|greeting| greeting.status).unwrap_or_default();
            let ready = status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
            if said.as_deref() == Some(text) && ready && status.observed_generation == generation {
                Look::There(())
            } else {
                Look::NotYet(format!("{said:?}, {status:?}"))
            }
        })
        .await
        .unwrap();
    }

    /// Runs an operator here, with a client of its own.
    pub async fn operator<R: Reconciler>(&self, kind: Kind<R>) -> Operator {
        let metrics = Metrics::new("test");
        let client = with_config(config(&self.kubeconfig).await, DEADLINES, &metrics).unwrap();
        self.operator_with(client, metrics, kind)
    }

    /// Runs an operator here.
    pub fn operator_with<R: Reconciler>(&self, client: Client, metrics: Metrics, kind: Kind<R>) -> Operator {
        let manager = Manager::new("greeter", "example.dev", client, metrics.clone())
            .look_after(kind)
            .only_in(&self.namespace)
            .lives_in(&self.namespace)
            .timing(TIMING);
        let (stop, stopped) = oneshot::channel::<()>();
        let health = manager.health();
        let running = tokio::spawn(manager.run(async { drop(stopped.await) }));
        Operator { metrics, health, stop, running }
    }
}

/// An operator that runs.
pub struct Operator {
    pub metrics: Metrics,
    pub health: Health,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Operator {
    /// Ends it in an orderly way.
    pub async fn stop(self) {
        drop(self.stop);
        tokio::time::timeout(DEADLINE, self.running).await.unwrap().unwrap();
    }

    /// Ends it as a crash would: nothing more is done.
    pub fn crash(self) {
        self.running.abort();
    }

    /// The sum of a metric over all series whose labels hold all of these.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics.render();
        let lines = text.lines().filter(|line| {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            line[..end] == *name && labels.iter().all(|label| line.contains(label))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Requests of a kind that were sent so far.
    pub fn requests(&self, verbs: &[&str]) -> f64 {
        let sent = |verb: &&str| self.metric("test_api_requests_total", &[&format!("verb=\"{verb}\"")]);
        verbs.iter().map(sent).sum()
    }

    /// Writes to anything but the Lease, which is the one thing that is updated and not patched.
    pub fn writes(&self) -> f64 {
        self.requests(&["apply", "patch", "delete"])
    }

    pub fn rounds(&self) -> f64 {
        self.metric("test_reconciliation_duration_seconds_count", &[])
    }
}
