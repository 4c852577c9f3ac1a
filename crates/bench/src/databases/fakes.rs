//! Those whom a control plane without nodes lacks. Kubernetes's own StatefulSet controller makes the pods,
//! and kwok plays the kubelets; here are the scheduler, the provisioner of volumes and the agents, each as
//! simple as will do: a pod is put on a node, a claim is said to be bound, and an agent reports once its pod
//! is ready, and again when its settings have changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod};
use keelson_api::instance::{Names, Report, SETTINGS_KEY, annotations, fingerprint, labels, roles};
use keelson_api::v1::Role;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::ControlPlane;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::error::{Asking, Result};
use crate::machine::checkout;
use crate::process::Process;

/// Flags of Kubernetes's own controllers: as fast as the machine; volumes are ours, and no node has a pulse.
const CONTROLLERS: [&str; 4] = [
    "--controllers=*,-persistentvolume-binder-controller,-node-lifecycle-controller",
    "--kube-api-qps=2000",
    "--kube-api-burst=4000",
    "--concurrent-statefulset-syncs=20",
];
const NODES: usize = 20;
/// How many requests are under way at the same time.
const AT_ONCE: usize = 16;
/// After one that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Everybody at work. They end when this is dropped.
pub(super) struct Fakes {
    kwok: Process,
    players: JoinHandle<()>,
}

impl Fakes {
    /// Starts all of them.
    pub(super) async fn start(plane: &mut ControlPlane) -> Result<Fakes> {
        let source = checkout().join("bench/kwok");
        let program = testbed::build_go("building kwok", &source, "sigs.k8s.io/kwok/cmd/kwok", "kwok")?;
        let nodes: Api<Node> = Api::all(plane.client());
        for number in 0..NODES {
            nodes.create(&PostParams::default(), &node(number)).await.asking("making a fake node")?;
        }
        plane.start_controllers(&CONTROLLERS)?;
        let kubeconfig = plane.kubeconfig();
        let flags = [
            "--manage-all-nodes".to_owned(),
            format!("--config={}", source.join("stages.yaml").display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            // Enough addresses for all pods.
            "--cidr=10.64.0.1/14".to_owned(),
        ];
        let log = kubeconfig.with_file_name("kwok.log");
        let kwok = Process::start("kwok", &program, &flags, Path::new(&kubeconfig), log)?;
        let players = tokio::spawn(Players::new(plane.client()).play());
        Ok(Fakes { kwok, players })
    }

    /// An error if one of them has ended.
    pub(super) fn alive(&mut self) -> Result<()> {
        self.kwok.alive()
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        self.players.abort();
    }
}

fn node_name(number: usize) -> String {
    format!("fake-{number}")
}

fn node(number: usize) -> Node {
    let metadata = kube::api::ObjectMeta { name: Some(node_name(number)), ..Default::default() };
    Node { metadata, ..Node::default() }
}

/// A Database, by namespace and name.
type Key = (String, String);

/// What the players have seen and said.
struct Players {
    client: Client,
    at_once: Arc<Semaphore>,
    /// The settings of each Database, as a fingerprint.
    settings: HashMap<Key, String>,
    /// Pods that are ready, by Database.
    ready: HashMap<Key, BTreeMap<String, Option<String>>>,
    /// Pods and claims that were seen to, by uid.
    seen_to: HashSet<String>,
}

/// What one of the watches tells.
enum News {
    Pod(Box<Pod>),
    Claim(Box<PersistentVolumeClaim>),
    Config(Box<ConfigMap>),
}

impl Players {
    fn new(client: Client) -> Self {
        Players {
            client,
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            settings: HashMap::new(),
            ready: HashMap::new(),
            seen_to: HashSet::new(),
        }
    }

    /// Until somebody ends it.
    async fn play(mut self) {
        let pods = watch::<Pod>(&self.client).map(News::Pod);
        let claims = watch::<PersistentVolumeClaim>(&self.client).map(News::Claim);
        let configs = watch::<ConfigMap>(&self.client).map(News::Config);
        let mut news = futures::stream::select(pods, futures::stream::select(claims, configs)).boxed();
        while let Some(one) = news.next().await {
            match one {
                News::Pod(pod) => self.pod(&pod),
                News::Claim(claim) => self.claim(&claim),
                News::Config(config) => self.config(&config),
            }
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let Some(key) = key(pod) else { return };
        let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !placed && self.seen_to.insert(pod.uid().unwrap_or_default()) {
            let target = node_name(self.seen_to.len() % NODES);
            self.ask::<Pod>(&key.0, pod.name_any(), Ask::Place(target));
        }
        if is_ready(pod) {
            self.ready.entry(key.clone()).or_default().entry(pod.name_any()).or_default();
            self.report(&key);
        }
    }

    fn claim(&mut self, claim: &PersistentVolumeClaim) {
        let Some((namespace, _)) = key(claim) else { return };
        if self.seen_to.insert(claim.uid().unwrap_or_default()) {
            let bound = Ask::Status(json!({ "status": { "phase": "Bound" } }));
            self.ask::<PersistentVolumeClaim>(&namespace, claim.name_any(), bound);
        }
    }

    fn config(&mut self, config: &ConfigMap) {
        let (Some(key), Some(data)) = (key(config), &config.data) else { return };
        if let Some(settings) = data.get(SETTINGS_KEY) {
            self.settings.insert(key.clone(), fingerprint(settings));
            self.report(&key);
        }
    }

    /// Lets the agents of a Database that have not yet done so say that they run with its settings.
    fn report(&mut self, key: &Key) {
        let Some(settings) = self.settings.get(key) else { return };
        let mut asks = Vec::new();
        for (pod, said) in self.ready.get_mut(key).into_iter().flatten() {
            if said.as_ref() != Some(settings) {
                *said = Some(settings.clone());
                asks.push((pod.clone(), Ask::Report(Box::new(report(&key.1, pod, settings)))));
            }
        }
        for (pod, ask) in asks {
            self.ask::<Pod>(&key.0, pod, ask);
        }
    }

    /// Asks the API server, again and again while it fails, and not too many things at once.
    fn ask<K>(&self, namespace: &str, name: String, what: Ask)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let at_once = self.at_once.clone();
        tokio::spawn(async move {
            let Ok(_turn) = at_once.acquire_owned().await else { return };
            while let Err(error) = what.ask(&api, &name).await {
                // What is gone, or done already, needs nothing more.
                if matches!(&error, kube::Error::Api(status) if status.code == 404 || status.code == 409) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// One request.
enum Ask {
    /// Put a pod onto a node.
    Place(String),
    /// Change a status.
    Status(Value),
    /// Write an agent's report onto its pod.
    Report(Box<Report>),
}

impl Ask {
    async fn ask<K>(&self, api: &Api<K>, name: &str) -> std::result::Result<(), kube::Error>
    where
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        let params = PatchParams::default();
        match self {
            Ask::Place(node) => {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
                    "target": { "kind": "Node", "name": node },
                });
                let params = PostParams::default();
                api.create_subresource::<Value, Value>("binding", name, &params, &binding).await?;
            }
            Ask::Status(status) => {
                api.patch_status(name, &params, &Patch::Merge(status)).await?;
            }
            Ask::Report(report) => {
                let role = if report.role == Role::Primary { roles::PRIMARY } else { roles::REPLICA };
                let report = serde_json::to_string(report).map_err(kube::Error::SerdeError)?;
                let patch = json!({ "metadata": {
                    "labels": { labels::ROLE: role }, "annotations": { annotations::REPORT: report },
                } });
                api.patch(name, &params, &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }
}

/// What belongs to Databases, as it is when somebody begins to look and whenever it changes.
fn watch<K>(client: &Client) -> impl futures::Stream<Item = Box<K>> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::<K>::all(client.clone()), Config::default().labels(labels::DATABASE));
    let objects = events.try_filter_map(|event| async {
        Ok(match event {
            Event::Apply(object) | Event::InitApply(object) => Some(Box::new(object)),
            Event::Delete(_) | Event::Init | Event::InitDone => None,
        })
    });
    // A watch that breaks begins again by itself.
    objects.filter_map(|object| async { object.ok() })
}

fn key(object: &impl ResourceExt) -> Option<Key> {
    Some((object.namespace()?, object.labels().get(labels::DATABASE)?.clone()))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// What the agent of a pod says: the first instance leads, the others follow.
fn report(database: &str, pod: &str, settings: &str) -> Report {
    let leader = Names(database).pod(0);
    let leads = leader == pod;
    Report {
        role: if leads { Role::Primary } else { Role::Replica },
        timeline: Some(1),
        lag_bytes: Some(0),
        writable: leads,
        version: Some("17.5".to_owned()),
        system_id: Some(fingerprint(database)),
        settings: Some(settings.to_owned()),
        leader,
        epoch: 1,
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instance_leads_and_the_others_follow_it() {
        let (first, second) = (report("orders", "orders-0", "ab"), report("orders", "orders-1", "ab"));
        assert!(first.claims_writes() && !first.follows());
        assert!(second.follows() && !second.claims_writes());
        assert_eq!((first.leader, first.system_id), (second.leader, second.system_id));
    }

    #[test]
    fn a_pod_is_ready_when_its_kubelet_says_so() {
        let pod = |status: &str| -> Pod {
            let conditions =
                json!([{ "type": "Initialized", "status": "True" }, { "type": "Ready", "status": status }]);
            serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": conditions } })).unwrap()
        };
        assert!(is_ready(&pod("True")));
        assert!(!is_ready(&pod("False")));
        assert!(!is_ready(&Pod::default()));
    }
}
