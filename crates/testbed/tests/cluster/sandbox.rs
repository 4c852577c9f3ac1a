//! What the tests on a running cluster share: a namespace of their own, three pods that serve their
//! name and keep a volume each, and ways to run commands in them.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::{Cluster, Container, Error, Look, Node, Who, until};
use tokio::sync::{Mutex, MutexGuard};

/// Tests on the one cluster run one after the other, also under a plain `cargo test`.
static SERIAL: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));

/// Waits for this test's turn.
pub async fn turn() -> MutexGuard<'static, ()> {
    SERIAL.lock().await
}

pub const MINUTE: Duration = Duration::from_secs(60);

/// A namespace on the cluster, for one test.
pub struct Sandbox {
    pub cluster: Cluster,
    pub namespace: String,
    _turn: MutexGuard<'static, ()>,
}

impl Sandbox {
    /// A fresh namespace on a cluster without faults.
    pub async fn open(purpose: &str) -> Sandbox {
        let turn = turn().await;
        let cluster = Cluster::from_env().await.unwrap();
        if cluster.testbed().is_ok() {
            cluster.heal_all().unwrap();
            // Leftovers of a test that failed half-way.
            for node in 1..=3 {
                node_is(&cluster, node, true).await;
            }
        }
        let namespace = format!("{purpose}-{}", std::process::id());
        let object: Namespace = from_json(json!({ "metadata": { "name": namespace } }));
        Api::all(cluster.client()).create(&PostParams::default(), &object).await.unwrap();
        let sandbox = Sandbox { cluster, namespace, _turn: turn };
        // Until it is there, no pod can be created.
        let accounts = sandbox.api::<ServiceAccount>();
        until("the namespace's service account", MINUTE, || async {
            match accounts.get("default").await {
                Ok(_) => Look::There(()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap();
        sandbox
    }

    /// Lets the namespace go.
    pub async fn close(self) {
        let namespaces = Api::<Namespace>::all(self.cluster.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    pub async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        self.api::<K>().create(&PostParams::default(), &from_json(object)).await.unwrap();
    }

    pub async fn pod(&self, name: &str) -> Pod {
        self.api::<Pod>().get(name).await.unwrap()
    }

    /// Waits until a pod is ready (again).
    pub async fn pod_ready(&self, name: &str) -> Pod {
        let pods = self.api::<Pod>();
        until(&format!("pod {name} to be ready"), 2 * MINUTE, || async {
            match pods.get(name).await {
                Ok(pod) if is_ready(&pod) => Look::There(pod),
                Ok(pod) => Look::NotYet(format!("{:?}", pod.status)),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap()
    }

    /// Three pods `web-0` to `web-2`, each on another node, with a volume of 64 MiB at `/data`; they
    /// serve their name over HTTP, and write down at every tick how late they are.
    pub async fn three_pods(&self) -> [Container; 3] {
        use k8s_openapi::api::apps::v1::StatefulSet;
        use k8s_openapi::api::core::v1::Service;
        let labels = json!({ "app": "web" });
        self.create::<Service>(json!({
            "metadata": { "name": "web" },
            "spec": { "clusterIP": "None", "selector": labels, "ports": [{ "port": 8080 }] },
        }))
        .await;
        self.create::<Service>(json!({
            "metadata": { "name": "balanced" },
            "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
        }))
        .await;
        let anti_affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": labels } }
        ]});
        let container = json!({
            "name": "web",
            "image": "busybox:stable",
            "command": ["sh", "-c", SERVE],
            "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        });
        self.create::<StatefulSet>(json!({
            "metadata": { "name": "web" },
            "spec": {
                "serviceName": "web",
                "replicas": 3,
                "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "affinity": { "podAntiAffinity": anti_affinity },
                        "containers": [container],
                    },
                },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim_spec("64Mi", None) }],
            },
        }))
        .await;
        for pod in ["web-0", "web-1", "web-2"] {
            self.pod_ready(pod).await;
        }
        [self.container("web-0").await, self.container("web-1").await, self.container("web-2").await]
    }

    pub async fn container(&self, pod: &str) -> Container {
        self.cluster.container(&self.namespace, &Who::Pod(pod.to_owned()), None).await.unwrap()
    }

    pub async fn address(&self, pod: &str) -> String {
        self.pod(pod).await.status.unwrap().pod_ip.unwrap()
    }

    /// Runs a script in a pod through the API server, as on any cluster.
    pub fn exec(&self, pod: &str, script: &str) -> testbed::Result<String> {
        self.cluster.kubectl(&["exec", "--namespace", &self.namespace, pod, "--", "sh", "-c", script])
    }

    /// Runs a script in a pod, whatever the state of the cluster.
    pub fn inside(&self, container: &Container, script: &str) -> testbed::Result<String> {
        self.cluster.run_in(container, &["sh", "-c", script])
    }

    /// Whether one pod gets another's page.
    pub fn reaches(&self, from: &Container, address: &str) -> bool {
        self.inside(from, &format!("timeout 1 wget -qO- http://{address}:8080")).is_ok()
    }

    pub async fn reaches_again(&self, from: &Container, address: &str) {
        until(&format!("{address} to answer again"), MINUTE, || async {
            if self.reaches(from, address) { Look::There(()) } else { Look::NotYet("silence".into()) }
        })
        .await
        .unwrap();
    }

    pub async fn grow(&self, claim: &str, size: &str) {
        let patch = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        let claims = self.api::<PersistentVolumeClaim>();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn restarts(&self, pod: &str) -> i32 {
        self.pod(pod).await.status.unwrap().container_statuses.unwrap()[0].restart_count
    }
}

/// A page with the pod's name, and a clock that keeps the longest pause it has had, in tenths of a
/// second, and the number of its last tick.
const SERVE: &str = r#"
mkdir -p /tmp/www; hostname > /tmp/www/index.html
(last=$(cut -d. -f1 /proc/uptime); longest=0; tick=0
 while true; do
   now=$(cut -d. -f1 /proc/uptime); late=$((now - last)); last=$now; tick=$((tick + 1))
   [ $late -gt $longest ] && longest=$late
   echo "$tick $longest" > /tmp/clock.new; mv /tmp/clock.new /tmp/clock
   usleep 100000
 done) &
exec httpd -f -p 8080 -h /tmp/www
"#;

/// The tick and the longest pause, in seconds, of a pod's clock.
pub fn clock(sandbox: &Sandbox, container: &Container) -> (u64, u64) {
    let text = sandbox.inside(container, "cat /tmp/clock").unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

pub fn claim_spec(size: &str, class: Option<&str>) -> Value {
    let mut spec =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } });
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    spec
}

pub fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

pub fn node(number: u8) -> Node {
    Node::new(number).unwrap()
}

/// Waits until Kubernetes thinks that a node is ready, or no longer thinks so.
pub async fn node_is(cluster: &Cluster, number: u8, ready: bool) {
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client());
    let name = node(number).name();
    until(&format!("{name} to be ready: {ready}"), 2 * MINUTE, || async {
        let Ok(found) = nodes.get(&name).await else { return Look::NotYet("no answer".into()) };
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let is = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        if is == ready { Look::There(()) } else { Look::NotYet(format!("ready: {is}")) }
    })
    .await
    .unwrap();
}

/// The text of an error, for looking into it.
pub fn said<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The name of every object in a list.
pub fn names<K: ResourceExt>(objects: impl IntoIterator<Item = K>) -> Vec<String> {
    objects.into_iter().map(|object| object.name_any()).collect()
}
