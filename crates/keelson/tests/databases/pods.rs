//! What can be told of instances from outside: whether a pod, its container or its database was started anew.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use testbed::{Look, until_blocking};

use crate::bed::{Bed, MINUTE};

/// The pods of `orders`: what is the same for as long as nothing was restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    pub uid: String,
    /// When its agent was started, in ticks of the kernel: as the container itself says, since a kubelet may tell late
    /// how often it has started one.
    pub agent: String,
    /// When its database was started.
    pub database: String,
}

impl Bed {
    /// The pods of `orders`, by name.
    pub async fn pods(&self) -> BTreeMap<String, Pod> {
        let pods: Api<Pod> = self.api();
        let selector = ListParams::default().labels("keelson.dev/database=orders");
        let found = pods.list(&selector).await.unwrap().items;
        found.into_iter().map(|pod| (pod.metadata.name.clone().unwrap(), pod)).collect()
    }

    /// The uids of the pods of `orders`, by name.
    pub async fn uids(&self) -> BTreeMap<String, String> {
        self.pods().await.into_iter().map(|(name, pod)| (name, pod.metadata.uid.unwrap())).collect()
    }

    /// What was started when, by the pod's name.
    pub async fn started(&self) -> BTreeMap<String, Started> {
        let pods = self.pods().await.into_iter();
        pods.map(|(name, pod)| {
            let started = Started {
                uid: pod.metadata.uid.unwrap(),
                agent: self.run_in(&name, &["cut", "-d", " ", "-f", "22", "/proc/1/stat"]),
                database: self.ask(&name, "select pg_postmaster_start_time()"),
            };
            (name, started)
        })
        .collect()
    }

    /// Asks one instance over its local socket, and has the answer as soon as there is one.
    pub fn ask(&self, pod: &str, sql: &str) -> String {
        self.run_in(pod, &["psql", "-XAtq", "-U", "postgres", "-d", "postgres", "-c", sql])
    }

    /// What a program in the container of an instance prints, as soon as it can be run.
    fn run_in(&self, pod: &str, program: &[&str]) -> String {
        let command = [&["-n", &self.namespace, "exec", pod, "-c", "database", "--"], program].concat();
        let said = until_blocking(&format!("{pod} to answer {program:?}"), MINUTE, || {
            match self.cluster.kubectl(&command) {
                Ok(said) => Look::There(said.trim().to_owned()),
                // The way there is long, and breaks where a machine has too much to do.
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        said.unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()))
    }
}
