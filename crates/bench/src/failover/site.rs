//! A database of three in a namespace of its own, whoever runs it: pods `orders-0` to `orders-2` with a container
//! `database` and a claim `data-…` each, a Secret `orders-app` and a Service for writers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Service};
use keelson_rig::objects::{create, gone};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use testbed::{Cluster, Container, Who};

use crate::error::{Asking, Error, Result};

/// Of the database.
pub(super) const NAME: &str = "orders";
/// Of the container in each of its pods.
pub(super) const DATABASE: &str = "database";
/// How many instances it has.
pub(super) const INSTANCES: usize = 3;

/// How many others have each commit that the leader acknowledges, as far as it counts on them.
const FOLLOWERS: &str =
    "select count(*) from pg_stat_replication where state = 'streaming' and sync_state in ('sync', 'quorum')";

/// The namespace.
pub(super) struct Site<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) namespace: String,
}

impl<'a> Site<'a> {
    /// An empty one.
    pub(super) async fn open(cluster: &'a Cluster, purpose: &str) -> Result<Site<'a>> {
        let namespace = format!("failover-{purpose}-{}", std::process::id());
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        create(&namespaces, json!({ "metadata": { "name": namespace } })).await?;
        Ok(Site { cluster, namespace })
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let all = [&["--namespace", self.namespace.as_str()], arguments].concat();
        Ok(self.cluster.kubectl(&all)?)
    }

    /// Asks an instance over its own socket, as its administrator.
    pub(super) fn ask(&self, instance: &str, database: &str, sql: &str) -> Result<String> {
        let psql = ["exec", instance, "--container", DATABASE, "--", "timeout", "10"];
        let words = ["psql", "-XAtq", "-U", "postgres", "-d", database, "-c", sql];
        Ok(self.kubectl(&[&psql[..], &words[..]].concat())?.trim().to_owned())
    }

    /// How many others the leader counts on.
    pub(super) fn followers(&self, leader: &str) -> Result<usize> {
        let said = self.ask(leader, "postgres", FOLLOWERS)?;
        said.parse().map_err(|_| Error::Unreadable { what: "the number of followers".into(), why: said })
    }

    /// The identifiers of the pods that are ready and not about to go, by name.
    pub(super) async fn ready_pods(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.api::<Pod>().list(&ListParams::default()).await.asking("looking for pods")?;
        let of_database = pods.items.into_iter().filter(|pod| pod.name_any().starts_with(NAME));
        let ready = of_database.filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
        Ok(ready.map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
    }

    pub(super) async fn container(&self, instance: &str) -> Result<Container> {
        let who = Who::Pod(instance.to_owned());
        Ok(self.cluster.container(&self.namespace, &who, Some(DATABASE)).await?)
    }

    /// The address of a Service.
    pub(super) async fn address(&self, service: &str) -> Result<String> {
        let found = self.api::<Service>().get(service).await.asking("reading the Service for writers")?;
        Ok(found.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default())
    }

    /// Removes the namespace, and waits until nothing of it is left that could be in the way of the next.
    pub(super) async fn close(self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.asking("deleting a namespace")?;
        gone(&self.api::<Pod>()).await?;
        Ok(gone(&self.api::<PersistentVolumeClaim>()).await?)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}
