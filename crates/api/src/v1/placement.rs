//! Where instances may run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{LABEL_NAME, NAME, labels};
use crate::value::{Written, words};

/// Where instances may run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that do not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Whether two instances may share a node: `preferred` (the default) if there is no other way,
    /// `required` never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Written<Spread>>,
    /// The node label that tells places apart, such as `topology.kubernetes.io/zone`. Without it, nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317), regex(pattern = LABEL_NAME))]
    pub spread_over: Option<String>,
    /// The priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub priority_class_name: Option<String>,
}

words! {
    /// How firmly instances stay apart.
    Spread, "way to spread" {
        /// Together if there is no other way.
        Preferred = "preferred",
        /// Never together.
        Required = "required",
    }
}
