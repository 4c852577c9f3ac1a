//! What a database consists of, as values: one file a family, no request and no clock.

mod config;
mod disruption;
pub mod drill;
mod rights;
pub mod secrets;
mod services;
pub mod stateful_set;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use keelson_api::instance::{InstanceSettings, Names, labels};
use keelson_api::v1::{Scheduling, Settings};
use keelson_api::value::Size;
use kube::core::ObjectMeta;

/// All that the children follow from.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The Database's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// What its spec means.
    pub settings: Settings,
    /// Where instances may run.
    pub scheduling: Scheduling,
    /// The text by which its owner asked for its instances to be made anew, if ever.
    pub restart: Option<String>,
    /// The image of the database program.
    pub image: String,
    /// Names of the Secrets with which images are pulled.
    pub pull_secrets: Vec<String>,
    /// The image that holds the agent.
    pub agent_image: String,
    /// How many pods the StatefulSet is to have for now.
    pub pods: u32,
    /// The size of new volumes.
    pub storage: Size,
    /// What agents are told.
    pub instance: InstanceSettings,
}

/// All children but the Secrets, which are not written each time. A new child is a new field, and whoever
/// takes them apart names every one.
#[derive(Debug)]
pub struct Children {
    /// What agents are told.
    pub config: ConfigMap,
    /// Who agents are.
    pub account: ServiceAccount,
    /// What they may do.
    pub role: Role,
    /// That they may do it.
    pub binding: RoleBinding,
    /// The instances.
    pub set: StatefulSet,
    /// A name for each instance.
    pub instances: Service,
    /// The way to the primary.
    pub writers: Service,
    /// The way to replicas.
    pub readers: Service,
    /// How many may be taken away at once.
    pub disruption: PodDisruptionBudget,
}

/// The children of a database.
pub fn children(wanted: &Wanted) -> Result<Children, serde_json::Error> {
    let (role, binding) = (rights::role(wanted), rights::binding(wanted));
    Ok(Children {
        config: config::config(wanted)?,
        account: rights::account(wanted),
        role,
        binding,
        set: stateful_set::stateful_set(wanted),
        instances: services::instances(wanted),
        writers: services::writers(wanted),
        readers: services::readers(wanted),
        disruption: disruption::disruption(wanted),
    })
}

/// What the agents of a database may do.
pub fn agent_rules(names: Names<'_>) -> Vec<PolicyRule> {
    rights::rules(names)
}

impl Wanted {
    fn names(&self) -> Names<'_> {
        Names(&self.name)
    }

    fn meta(&self, name: String) -> ObjectMeta {
        ObjectMeta { name: Some(name), labels: Some(self.labels()), ..ObjectMeta::default() }
    }

    /// The labels of all children and pods.
    fn labels(&self) -> BTreeMap<String, String> {
        texts([
            ("app.kubernetes.io/name", "keelson-database"),
            ("app.kubernetes.io/instance", &self.name),
            ("app.kubernetes.io/managed-by", crate::NAME),
            (labels::DATABASE, &self.name),
        ])
    }

    /// The label by which pods are found.
    fn selector(&self) -> BTreeMap<String, String> {
        texts([(labels::DATABASE, self.name.as_str())])
    }
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
pub(crate) mod tests;
