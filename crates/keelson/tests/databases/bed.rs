//! A cluster with the operator on it, a namespace for each test, and a client that reaches its database as
//! any program would.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use keelson_api::v1::Database;
use keelson_rig::install::UNOPTIMISED;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::{Cluster, Look, until};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

pub const MINUTE: Duration = Duration::from_secs(60);
/// A database of three on a busy machine of two cores.
pub const LONG: Duration = Duration::from_secs(180);

/// So many databases at the same time: the machine is small.
const TURNS: u32 = 2;
static AT_ONCE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(TURNS as usize));
/// How many have been opened.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// Whether the operator was sent away.
pub static AWAY: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// A namespace with, at most, one database in it.
pub struct Bed {
    pub cluster: Cluster,
    pub namespace: String,
    _turn: SemaphorePermit<'static>,
}

impl Bed {
    pub async fn open(purpose: &str) -> Bed {
        Bed::begin(purpose, 1).await
    }

    /// With nobody else on the cluster: for faults that others would feel.
    pub async fn open_alone(purpose: &str) -> Bed {
        Bed::begin(purpose, TURNS).await
    }

    async fn begin(purpose: &str, turns: u32) -> Bed {
        let turn = AT_ONCE.acquire_many(turns).await.unwrap();
        let cluster = Cluster::from_env().await.unwrap();
        INSTALLED.get_or_init(|| install(&cluster)).await;
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{purpose}-{}-{number}", std::process::id());
        let object: Namespace = serde_json::from_value(json!({
            "metadata": {
                "name": namespace,
                // As strict as Kubernetes knows: nothing that Keelson starts may need more.
                "labels": { "pod-security.kubernetes.io/enforce": "restricted" }
            }
        }))
        .unwrap();
        Api::all(cluster.client()).create(&PostParams::default(), &object).await.unwrap();
        let bed = Bed { cluster, namespace, _turn: turn };
        // Somebody may have failed before it could put things right.
        let away = AWAY.load(Ordering::Relaxed);
        if away || turns == TURNS {
            bed.cluster.heal_all().unwrap();
        }
        if away {
            bed.operators(2);
        }
        bed
    }

    /// Lets the namespace go, and waits until its pods have: they would be in the way of others.
    pub async fn close(self) {
        let databases = self.databases();
        databases.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap();
        until("the databases to be gone", MINUTE, || async {
            match databases.list(&Default::default()).await {
                Ok(list) if list.items.is_empty() => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
        let pods: Api<Pod> = self.api();
        until("its pods to be gone", LONG, || async {
            match pods.list(&Default::default()).await {
                Ok(list) if list.items.is_empty() => Look::There(()),
                Ok(list) => Look::NotYet(format!("{} pods", list.items.len())),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap();
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    pub fn databases(&self) -> Api<Database> {
        self.api()
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        self.cluster.kubectl(&all).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// What a command of the program says to a person, in the namespace of the test.
    pub fn keelson(&self, arguments: &[&str]) -> String {
        let said = std::process::Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env("KUBECONFIG", self.cluster.testbed().unwrap().root().join("kubeconfig"))
            .output()
            .unwrap();
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    /// Creates the database `orders`.
    pub async fn create(&self, spec: Value) {
        let object = json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec
        });
        let object: Database = serde_json::from_value(object).unwrap();
        self.databases().create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn patch(&self, patch: Value) {
        self.databases().patch("orders", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until `orders` is as somebody expects, and shows what it is if it does not become so.
    pub async fn until(&self, what: &str, deadline: Duration, holds: impl Fn(&Database) -> bool) -> Database {
        let databases = self.databases();
        let found = until(what, deadline, || async {
            match databases.get("orders").await {
                Ok(database) if holds(&database) => Look::There(database),
                Ok(database) => Look::NotYet(serde_json::to_string(&database.status).unwrap()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        match found.await {
            Ok(database) => database,
            Err(error) => panic!("{error}\n{}", self.evidence()),
        }
    }

    /// Waits until it serves with so many instances, as asked, and none of them would be missed: where commits wait for
    /// others, each of those can be elected.
    pub async fn ready(&self, instances: i32) -> Database {
        self.until(&format!("{instances} instances to serve"), LONG, |database| {
            let status = database.status.clone().unwrap_or_default();
            let phase = status.phase.as_ref().map(ToString::to_string);
            phase.as_deref() == Some("Running")
                && status.ready_replicas == Some(instances)
                && status.replicas == Some(instances)
                && status.observed_generation == database.metadata.generation
                && condition(database, "Ready").is_some_and(|ready| ready.0)
                && are_electable(database, instances)
        })
        .await
    }

    /// What a person would look at first.
    pub fn evidence(&self) -> String {
        let ask = |arguments: &[&str]| {
            let all = [&["-n", self.namespace.as_str()], arguments].concat();
            self.cluster.kubectl(&all).unwrap_or_else(|error| error.to_string())
        };
        let pods = ask(&["get", "pods,pvc", "-o", "wide"]);
        let leases = ask(&["get", "leases", "-o", "yaml"]);
        let events = ask(&["get", "events", "--sort-by=.lastTimestamp"]);
        let mut text = format!("{pods}\n{leases}\n{events}\n");
        for number in 0..3 {
            text += &ask(&["logs", &format!("orders-{number}"), "-c", "database", "--tail=15"]);
        }
        text
    }

    /// A pod that has a client and the binding, as a program beside the database would.
    pub async fn client(&self) {
        self.client_on(None).await;
    }

    /// The same, on this node.
    pub async fn client_on(&self, node: Option<&str>) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "client"},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 999, "seccompProfile": {"type": "RuntimeDefault"}
                },
                "containers": [{
                    "name": "client", "image": "postgres:17", "imagePullPolicy": "Never",
                    "command": ["sleep", "86400"],
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}
                    },
                    "env": [{"name": "URI", "valueFrom": {"secretKeyRef": {"name": "orders-app", "key": "uri"}}}]
                }]
            }
        }))
        .unwrap();
        let pods: Api<Pod> = self.api();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        // After an outage of the API server a kubelet may take up to a minute until it asks for pods again.
        until("the client to run", LONG, || async {
            let pod = pods.get("client").await.unwrap();
            match pod.status.and_then(|status| status.phase) {
                Some(phase) if phase == "Running" => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// The same anew, with what the binding says now.
    pub async fn client_again(&self) {
        self.kubectl(&["delete", "pod", "client"]);
        self.client().await;
    }

    /// Asks the database through its Service for writers, as the app's own role.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        // One that is paused accepts connections and says nothing.
        let command = format!(
            "PGCONNECT_TIMEOUT=5 timeout 20 psql \"$URI\" -XAtq -v ON_ERROR_STOP=1 -c {}",
            quoted(sql)
        );
        let asked = ["-n", &self.namespace, "exec", "client", "--", "sh", "-c", &command];
        let said = self.cluster.kubectl(&asked);
        said.map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
    }

    pub async fn sql(&self, sql: &str) -> String {
        until(&format!("an answer to {sql}"), MINUTE, || async {
            match self.try_sql(sql) {
                Ok(answer) => Look::There(answer),
                Err(error) => Look::NotYet(error),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()))
    }

    /// How many of the ids in a file of the client's are not in the table.
    pub async fn missing(&self, table: &str, kind: &str, file: &str) -> u32 {
        let ask = format!(
            r#"PGCONNECT_TIMEOUT=5 timeout 60 psql "$URI" -XAtq -v ON_ERROR_STOP=1 \
               -c "create temp table acknowledged (id {kind})" -c "\copy acknowledged from {file}" \
               -c "select count(*) from acknowledged left join {table} using (id) where {table}.id is null""#
        );
        let asked = ["-n", &self.namespace, "exec", "client", "--", "sh", "-c", &ask];
        until("an answer to what is missing", LONG, || async {
            match self.cluster.kubectl(&asked) {
                Ok(said) => Look::There(said.trim().parse().unwrap()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()))
    }

    /// Asks one instance over its local socket, as the agent does, until it says what is expected.
    pub async fn says(&self, pod: &str, database: &str, sql: &str, expected: &str) {
        let psql = ["psql", "-XAtq", "-U", "postgres", "-d", database, "-c", sql];
        let command = [&["-n", &self.namespace, "exec", pod, "-c", "database", "--"], &psql[..]].concat();
        let what = format!("{pod} to answer {expected} to {sql}");
        let said = until(&what, LONG, || async {
            match self.cluster.kubectl(&command) {
                Ok(said) if said.trim() == expected => Look::There(()),
                Ok(said) => Look::NotYet(said),
                // It may be restarting.
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        said.await.unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()));
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whether a condition holds, with its reason and message.
pub fn condition(database: &Database, kind: &str) -> Option<(bool, String, String)> {
    let conditions = &database.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status == "True", found.reason.clone(), found.message.clone()))
}

/// Whether so many instances could lose any one of them at once. Where commits wait for nobody else, all may be elected.
fn are_electable(database: &Database, instances: i32) -> bool {
    let waits = database.spec.durability.as_ref().is_none_or(|mode| mode.to_string() == "quorum");
    let rows = database.status.iter().flat_map(|status| &status.instances);
    let synchronous =
        rows.filter(|row| row.role.as_ref().is_some_and(|role| role.to_string() == "synchronous"));
    !waits || i32::try_from(synchronous.count()).is_ok_and(|count| count == instances - 1)
}

/// The primary's name.
pub fn primary(database: &Database) -> String {
    database.status.as_ref().and_then(|status| status.primary.clone()).unwrap_or_default()
}

/// The tag of the image that is built here: another one each time, so that what runs is what was built.
pub static TAG: LazyLock<String> = LazyLock::new(|| format!("databases-{}", std::process::id()));

/// Puts the image on the nodes and the operator on the cluster, as people do.
async fn install(cluster: &Cluster) {
    let program = Path::new(env!("CARGO_BIN_EXE_keelson"));
    keelson_rig::install::install(cluster, program, &TAG, UNOPTIMISED).unwrap();
}

/// Upgrades the operator from the image with this tag.
pub fn upgrade(cluster: &Cluster, tag: &str) {
    keelson_rig::install::upgrade(cluster, tag, UNOPTIMISED).unwrap();
}
