//! One database at a time on the testbed's cluster, with the operator installed as people do.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret, Service};
use keelson_api::instance::{Names, ports};
use keelson_api::v1::{Database, Phase};
use keelson_rig::install::HOME;
use keelson_rig::objects::{DEADLINE, create, gone};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{Cluster, Container, Look, Which, Who, until};

use crate::error::{Asking, During, Error, Result};
use crate::process::{Memory, memory_of};

/// What each database is called, in a namespace of its own.
const NAME: &str = "orders";
const CLIENT: &str = "client";
/// From the time when the operator is ready until its memory is read.
const SETTLE: Duration = Duration::from_secs(30);

/// The first write, from inside a pod: tried again and again, so that it succeeds as soon as it can.
const WRITE: &str = r#"
export PGPASSWORD="$(cat /tmp/password)" PGCONNECT_TIMEOUT=2
tries=0
until psql "host=$1 hostaddr=$2 port=$3 user=$4 dbname=$5" -XAtq -v ON_ERROR_STOP=1 \
    -c 'create table t (id int primary key)' -c 'insert into t values (1)' 2>/tmp/said; do
    tries=$((tries + 1))
    [ "$tries" -lt 3000 ] || { cat /tmp/said >&2; exit 1; }
    sleep 0.05
done
"#;

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measures {
    /// Of the operators when there is no Database, each by its pod.
    pub(super) idle: Vec<(String, Memory)>,
    pub(super) one: Vec<Creation>,
    pub(super) three: Vec<Creation>,
}

/// From the moment when a Database is handed to the API server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Creation {
    /// Until a write through its Service was acknowledged.
    pub(super) first_write: f64,
    /// Until its status said that it runs and that all instances are ready.
    pub(super) all_ready: f64,
}

/// Measures so many creations of one instance, and of three. The cluster is gone afterwards: what comes next
/// should have the machine to itself.
pub(super) async fn measure(program: &Path, runs: usize) -> Result<Measures> {
    let cluster = Cluster::from_env().await?;
    let measured = measure_on(&cluster, program, runs).await;
    Cluster::down(cluster.testbed()?)?;
    measured
}

async fn measure_on(cluster: &Cluster, program: &Path, runs: usize) -> Result<Measures> {
    eprintln!("installing the operator");
    crate::install(cluster, program)?;
    tokio::time::sleep(SETTLE).await;
    let mut measures = Measures { idle: idle(cluster).await?, one: Vec::new(), three: Vec::new() };
    for run in 0..runs {
        for instances in [1, 3] {
            let site =
                Site::open(cluster, &format!("bench-{}-{instances}-{run}", std::process::id())).await?;
            let creation = site.create(instances).await?;
            eprintln!(
                "run {} of {runs}, {instances} instances: first write after {:.2} s, all ready after {:.2} s",
                run + 1,
                creation.first_write,
                creation.all_ready
            );
            if instances == 1 {
                measures.one.push(creation)
            } else {
                measures.three.push(creation)
            }
            site.close().await?;
        }
    }
    Ok(measures)
}

/// What each operator holds.
async fn idle(cluster: &Cluster) -> Result<Vec<(String, Memory)>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), HOME);
    let all = ListParams::default().labels("app.kubernetes.io/name=keelson");
    let mut found = Vec::new();
    for pod in pods.list(&all).await.asking("looking for the operator")? {
        let name = pod.name_any();
        let container = cluster.container(HOME, &Who::Pod(name.clone()), None).await?;
        found.push((name, memory_of(main_process(cluster, &container)?)?));
    }
    Ok(found)
}

fn main_process(cluster: &Cluster, container: &Container) -> Result<u32> {
    let processes = container.processes(cluster.testbed()?, &Which::Main);
    processes
        .first()
        .and_then(|id| u32::try_from(*id).ok())
        .ok_or_else(|| Error::Unreadable { what: container.to_string(), why: "it has no process".into() })
}

/// A namespace with a client in it.
struct Site<'a> {
    cluster: &'a Cluster,
    namespace: String,
    client: Container,
}

impl<'a> Site<'a> {
    async fn open(cluster: &'a Cluster, namespace: &str) -> Result<Site<'a>> {
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        create(&namespaces, json!({ "metadata": { "name": namespace } })).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
        create(&pods, client_pod()).await?;
        let running = until("the client to run", DEADLINE, || async {
            match pods.get(CLIENT).await.map(|pod| pod.status.and_then(|status| status.phase)) {
                Ok(Some(phase)) if phase == "Running" => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        running.await?;
        let client = cluster.container(namespace, &Who::Pod(CLIENT.to_owned()), None).await?;
        Ok(Site { cluster, namespace: namespace.to_owned(), client })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// Creates a Database and waits for both moments at the same time.
    async fn create(&self, instances: i32) -> Result<Creation> {
        let begun = Instant::now();
        let object = json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": { "name": NAME },
            "spec": { "replicas": instances, "storage": "1Gi", "deletionPolicy": "Delete" },
        });
        create(&self.api::<Database>(), object).await?;
        let (first_write, all_ready) =
            tokio::try_join!(self.written(begun), self.all_ready(begun, instances))?;
        Ok(Creation { first_write, all_ready })
    }

    /// Until a write through the Service has succeeded. It is called by its address: a name that was asked
    /// for too early is denied for seconds by those who remember names.
    async fn written(&self, begun: Instant) -> Result<f64> {
        let secret = self.there::<Secret>(&Names(NAME).app()).await?;
        let service = self.there::<Service>(&Names(NAME).writers()).await?;
        let data = secret.data.unwrap_or_default();
        let field = |name: &str| {
            let found = data.get(name).and_then(|value| String::from_utf8(value.0.clone()).ok());
            found.ok_or_else(|| Error::Unreadable { what: "the binding".into(), why: format!("no {name}") })
        };
        let address = service.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
        let process = main_process(self.cluster, &self.client)?;
        // Not as an argument, which everybody on the machine could read.
        let file = Path::new("/proc").join(process.to_string()).join("root/tmp/password");
        fs::write(&file, field("password")?).during("writing", &file)?;
        let (host, port) = (field("host")?, ports::POSTGRES.to_string());
        let (user, database) = (field("username")?, field("database")?);
        let (cluster, client) = (self.cluster.clone(), self.client.clone());
        let written = tokio::task::spawn_blocking(move || {
            let argv = ["sh", "-c", WRITE, "sh", &host, &address, &port, &user, &database];
            cluster.run_in(&client, &argv).map(|_| begun.elapsed().as_secs_f64())
        });
        let unreadable = |error: tokio::task::JoinError| Error::Unreadable {
            what: "a write".into(),
            why: error.to_string(),
        };
        Ok(written.await.map_err(unreadable)??)
    }

    async fn all_ready(&self, begun: Instant, instances: i32) -> Result<f64> {
        let databases = self.api::<Database>();
        until("all instances to be ready", DEADLINE, || async {
            match databases.get(NAME).await.map(|database| database.status.unwrap_or_default()) {
                Ok(status) => {
                    let phase = status.phase.as_ref().and_then(|phase| phase.parse().ok());
                    match phase == Some(Phase::Running) && status.ready_replicas == Some(instances) {
                        true => Look::There(()),
                        false => Look::NotYet(format!("{status:?}")),
                    }
                }
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// An object, once there is one.
    async fn there<K>(&self, name: &str) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api = self.api::<K>();
        let what = format!("{} {name} to be there", K::kind(&()));
        let found = until(&what, DEADLINE, || async {
            match api.get_opt(name).await {
                Ok(Some(found)) => Look::There(found),
                Ok(None) => Look::NotYet("none".into()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        Ok(found.await?)
    }

    /// Removes the database, and waits until nothing of it is left that could be in the way of the next.
    async fn close(self) -> Result<()> {
        self.api::<Database>().delete(NAME, &DeleteParams::default()).await.asking("deleting a Database")?;
        gone(&self.api::<Database>()).await?;
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.asking("deleting a namespace")?;
        gone(&self.api::<Pod>()).await?;
        Ok(gone(&self.api::<PersistentVolumeClaim>()).await?)
    }
}

fn client_pod() -> Value {
    json!({
        "metadata": { "name": CLIENT },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": CLIENT, "image": "postgres:17", "imagePullPolicy": "Never", "command": ["sleep", "86400"],
            }],
        },
    })
}
