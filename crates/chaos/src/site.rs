//! The cluster with the operator, the databases and their clients on it. The last node is the first client's alone, and
//! is left in peace, so that somebody sees all that happens.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Service};
use keelson_api::instance::Names;
use keelson_api::v1;
use keelson_rig::objects::{create, gone};
use keelson_rig::{Asking, clock, install};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use testbed::{Cluster, Container, Image, Layout, Node, Volume};

use crate::cast::Database;
use crate::client;
use crate::error::{During, Error, Result};
use crate::record::{self, CLIENTS, Record};
use crate::schedule::NODES;

const NAMESPACE: &str = "chaos";
const CONTAINER: &str = "database";

/// The cluster with all on it.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) databases: Vec<Database>,
    history: PathBuf,
    image: String,
}

/// An instance as it is at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) container: Container,
    pub(crate) volume: Option<Volume>,
}

/// A database as it is at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    pub(crate) leader: Option<String>,
    pub(crate) all: Vec<Member>,
}

/// All databases by name.
pub(crate) type Snapshot = BTreeMap<&'static str, Members>;

impl Site {
    /// Starts the cluster if it does not run, and puts the operator on it. There is no database yet.
    pub(crate) async fn open(keelson: &Path) -> Result<Site> {
        if !keelson.exists() {
            return Err(Error::NotBuilt(keelson.to_owned()));
        }
        let cluster = Cluster::up(&Layout::of_checkout()?, Some(NODES + 1)).await?;
        // A fault that was left by one who was interrupted would be in the way.
        cluster.heal_all()?;
        cluster.kubectl(&["cordon", &quiet_node()?.name()])?;
        let tag = format!("chaos-{}", std::process::id());
        let image = format!("chaos:{tag}");
        let own = std::env::current_exe().during("looking for", "this program")?;
        let scratch = cluster.testbed()?.root().join("image-chaos");
        cluster.load_image(&Image::of_programs(&image, &[("/chaos", &own)], &scratch)?)?;
        install::install(&cluster, keelson, &tag, install::UNOPTIMISED)?;
        let history = cluster.testbed()?.root().join("chaos");
        let site = Site { cluster, databases: Vec::new(), history, image };
        site.clear().await?;
        Ok(site)
    }

    /// Nothing is left of an earlier run.
    async fn clear(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        if namespaces.get_opt(NAMESPACE).await.asking("looking for the namespace")?.is_some() {
            self.remove_databases().await?;
            namespaces.delete(NAMESPACE, &DeleteParams::default()).await.asking("deleting the namespace")?;
            gone_by_name(&namespaces, NAMESPACE).await?;
        }
        create(&namespaces, json!({ "metadata": { "name": NAMESPACE } })).await?;
        Ok(())
    }

    async fn remove_databases(&self) -> Result<()> {
        let databases = self.api::<v1::Database>();
        let all = ListParams::default();
        databases.delete_collection(&DeleteParams::default(), &all).await.asking("deleting Databases")?;
        gone(&databases).await?;
        gone(&self.api::<PersistentVolumeClaim>()).await?;
        Ok(())
    }

    /// Makes these databases, in place of those that were there, and clients that write to them once they are.
    pub(crate) async fn set(&mut self, databases: Vec<Database>) -> Result<()> {
        self.cluster.kubectl(&["-n", NAMESPACE, "delete", "pods", "-l", "app=client", "--wait"])?;
        self.remove_databases().await?;
        if self.history.exists() {
            fs::remove_dir_all(&self.history).during("removing", &self.history)?;
        }
        fs::create_dir_all(&self.history).during("creating", &self.history)?;
        // Clients run under an account of no rights.
        fs::set_permissions(&self.history, fs::Permissions::from_mode(0o777))
            .during("opening", &self.history)?;
        self.databases = databases;
        for database in &self.databases {
            create(&self.api::<v1::Database>(), database.object()).await?;
        }
        Ok(())
    }

    /// Starts a client on each node.
    pub(crate) async fn begin_clients(&self) -> Result<()> {
        let mut told = Vec::new();
        for database in &self.databases {
            let service = self.api::<Service>().get(&Names(database.name).writers()).await;
            let address =
                service.asking("reading the Service for writers")?.spec.and_then(|spec| spec.cluster_ip);
            // With one more that there may be for a while.
            told.push(format!(
                "{} {} {}",
                database.name,
                database.instances + 1,
                address.unwrap_or_default()
            ));
        }
        for number in 0..CLIENTS {
            create(&self.api::<Pod>(), self.client(number, &told.join(" "))?).await?;
        }
        Ok(())
    }

    fn client(&self, number: usize, databases: &str) -> Result<Value> {
        let quiet = quiet_node()?;
        let node = u8::try_from(number).ok().and_then(Node::new).unwrap_or(quiet);
        let uris = self.databases.iter().map(|database| {
            let secret = json!({ "secretKeyRef": { "name": Names(database.name).app(), "key": "uri" } });
            json!({ "name": format!("{}{}", client::URI, database.name), "valueFrom": secret })
        });
        let own = [
            json!({ "name": client::CLIENT, "value": number.to_string() }),
            json!({ "name": client::HISTORY, "value": "/history" }),
            json!({ "name": client::DATABASES, "value": databases }),
        ];
        let variables: Vec<Value> = own.into_iter().chain(uris).collect();
        Ok(json!({
            "metadata": { "name": format!("client-{number}"), "labels": { "app": "client" } },
            "spec": {
                "nodeName": node.name(),
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{
                    "name": "client", "image": self.image, "imagePullPolicy": "Never", "args": ["client"],
                    "env": variables,
                    "volumeMounts": [{ "name": "history", "mountPath": "/history" }],
                }],
                // A folder of the machine itself: what clients were told is not lost with a node, and can be read
                // whatever is broken.
                "volumes": [{ "name": "history", "hostPath": { "path": self.history, "type": "Directory" } }],
            },
        }))
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(), NAMESPACE)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let all = [&["--namespace", NAMESPACE, "--request-timeout=30s"], arguments].concat();
        Ok(self.cluster.kubectl(&all)?)
    }

    /// Asks an instance over its own socket, as its administrator.
    pub(crate) fn ask(&self, instance: &str, database: &str, sql: &str) -> Result<String> {
        let exec = ["exec", instance, "--container", CONTAINER, "--", "timeout", "20"];
        let psql = ["psql", "-XAtq", "-U", "postgres", "-d", database, "-c", sql];
        Ok(self.kubectl(&[&exec[..], &psql[..]].concat())?.trim().to_owned())
    }

    /// Who is where now.
    pub(crate) async fn look(&self) -> Result<Snapshot> {
        let all = ListParams::default();
        let (leases, pods, claims) =
            (self.api::<Lease>(), self.api::<Pod>(), self.api::<PersistentVolumeClaim>());
        let (leases, pods, claims) =
            futures::future::join3(leases.list(&all), pods.list(&all), claims.list(&all)).await;
        let leases = leases.asking("looking for Leases")?.items;
        let pods = pods.asking("looking for pods")?.items;
        let claims = claims.asking("looking for claims")?.items;
        let volume_of = |pod: &str, node: Node| {
            let claim = claims.iter().find(|claim| claim.name_any() == format!("data-{pod}"))?;
            let name = claim.spec.as_ref()?.volume_name.clone()?;
            Some(Volume { node, name, claim: format!("{NAMESPACE}/data-{pod}") })
        };
        let members = |database: &Database| {
            let of = (0..=database.instances).map(|ordinal| database.instance(ordinal));
            let found = of.filter_map(|name| {
                let container = container_of(pods.iter().find(|pod| pod.name_any() == name)?)?;
                Some(Member { volume: volume_of(&name, container.node), name, container })
            });
            let lease = leases.iter().find(|lease| lease.name_any() == Names(database.name).lease());
            Members { leader: lease.and_then(holder), all: found.collect() }
        };
        Ok(self.databases.iter().map(|database| (database.name, members(database))).collect())
    }

    /// What clients were told of each database so far.
    pub(crate) fn told(&self) -> Result<Vec<Vec<Record>>> {
        let mut all = vec![Vec::new(); self.databases.len()];
        for number in 0..CLIENTS {
            let path = self.history.join(format!("client-{number}.log"));
            if !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path).during("reading", &path)?;
            for (records, database) in all.iter_mut().zip(&self.databases) {
                records.extend(record::read(database.name, &text));
            }
        }
        Ok(all)
    }

    /// The rows that a leader has, and when they were asked for. One that does not lead any more may lack some, and
    /// is not asked.
    pub(crate) fn rows(&self, leader: &str) -> Result<(Vec<u64>, u64)> {
        let asked = clock::now();
        let said = self.ask(leader, "app", "select id / (not pg_is_in_recovery())::int from written")?;
        let number = |line: &str| {
            line.parse().map_err(|_| Error::Unreadable { what: "the rows".into(), why: line.to_owned() })
        };
        Ok((said.lines().map(number).collect::<Result<_>>()?, asked))
    }

    /// Where clients write down what they are told.
    pub(crate) fn history(&self) -> &Path {
        &self.history
    }
}

/// The node that nothing is done to.
fn quiet_node() -> Result<Node> {
    Node::new(NODES + 1)
        .ok_or_else(|| Error::Unreadable { what: "a node".into(), why: "no such number".into() })
}

fn container_of(pod: &Pod) -> Option<Container> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let found = statuses.iter().find(|status| status.name == CONTAINER)?;
    let id = found.container_id.as_deref()?.rsplit('/').next()?.to_owned();
    let node = pod.spec.as_ref()?.node_name.as_ref()?.parse().ok()?;
    Some(Container { node, pod: format!("{NAMESPACE}/{}", pod.name_any()), id })
}

/// The pod that holds a Lease.
pub(crate) fn holder(lease: &Lease) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
    holder.split('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

async fn gone_by_name(namespaces: &Api<Namespace>, name: &str) -> Result<()> {
    let gone = testbed::until("the namespace to be gone", keelson_rig::objects::DEADLINE, || async {
        match namespaces.get_opt(name).await {
            Ok(None) => testbed::Look::There(()),
            Ok(Some(_)) => testbed::Look::NotYet("it is still there".to_owned()),
            Err(error) => testbed::Look::NotYet(error.to_string()),
        }
    });
    Ok(gone.await?)
}
