//! What an app consists of, as values: one file a kind, no request and no clock.

mod autoscaler;
mod deployment;
mod disruption;
mod service;
pub mod template;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::v1::{AppPort, Autoscale};
use kube::core::ObjectMeta;

use super::revision::{APP, Revision, Undone};

pub use deployment::MIN_READY_SECONDS;

/// All that the children follow from.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The App's name.
    pub name: String,
    /// What pods are made from.
    pub revision: Revision,
    /// The credentials that they are to start with.
    pub credentials: Option<String>,
    /// How many pods there are to be; without it, that is left to somebody else.
    pub pods: Option<i32>,
    /// How many seconds a roll-out may make no progress.
    pub deadline: i32,
    /// The revision that was ready last.
    pub last_ready: Option<Revision>,
    /// The revision that was taken back.
    pub undone: Option<Undone>,
    /// Where it listens.
    pub ports: Vec<AppPort>,
    /// How the load says how many pods there are.
    pub autoscale: Option<Autoscale>,
    /// Whether two pods or more are asked for.
    pub several: bool,
}

/// All children. A new child is a new field, and whoever takes them apart names every one.
#[derive(Debug, Clone, PartialEq)]
pub struct Children {
    /// The pods.
    pub deployment: Deployment,
    /// The way to them, if they listen.
    pub service: Option<Service>,
    /// Who says how many there are, if not a person.
    pub autoscaler: Option<HorizontalPodAutoscaler>,
    /// How many may be taken away at once, if there are several.
    pub disruption: Option<PodDisruptionBudget>,
}

/// The children of an app.
pub fn children(wanted: &Wanted) -> Result<Children, serde_json::Error> {
    Ok(Children {
        deployment: deployment::deployment(wanted)?,
        service: (!wanted.ports.is_empty()).then(|| service::service(wanted)),
        autoscaler: wanted.autoscale.as_ref().map(|autoscale| autoscaler::autoscaler(wanted, autoscale)),
        disruption: wanted.several.then(|| disruption::disruption(wanted)),
    })
}

impl Wanted {
    fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some(labels(&self.name)),
            ..ObjectMeta::default()
        }
    }
}

/// The labels of all children and pods.
fn labels(name: &str) -> BTreeMap<String, String> {
    texts([
        ("app.kubernetes.io/name", "keelson-app"),
        ("app.kubernetes.io/instance", name),
        ("app.kubernetes.io/managed-by", crate::NAME),
        (APP, name),
    ])
}

/// The label by which pods are found.
fn selector(name: &str) -> BTreeMap<String, String> {
    texts([(APP, name)])
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
