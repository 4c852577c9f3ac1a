//! A program beside a database.

use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Resources, rules};
use crate::schema::{LABEL, NAME, conditions, validations};
use crate::value::{Span, Written, words};

/// What an app should be.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1",
    kind = "App",
    plural = "apps",
    namespaced,
    category = "keelson",
    status = "AppStatus",
    derive = "PartialEq",
    doc = "A program that is run beside its database: a Deployment and a Service, with credentials bound.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image"}"#,
    printcolumn = r#"{"name": "Database", "type": "string", "jsonPath": ".spec.database"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::APP)))]
pub struct AppSpec {
    /// The image to run. Its program must not need to be root.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The number of the account to run as, where the image names none, or root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483647))]
    pub run_as_user: Option<i64>,
    /// Names of the Secrets with which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253), regex(pattern = NAME)))]
    pub image_pull_secrets: Vec<String>,
    /// What is run, instead of the image's own program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 8192)))]
    pub command: Vec<String>,
    /// Its arguments, instead of the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 8192)))]
    pub args: Vec<String>,
    /// How many pods run it. `autoscale` changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Where it listens. The Service has the same ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub ports: Vec<AppPort>,
    /// Its environment. Credentials come by themselves when `database` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Vec<EnvVar>,
    /// What each pod gets of processor and memory. Without it, 100m and 128Mi are set aside, and memory has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// How it is known that a pod can be sent requests. Without it, that its first port is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<AppHealth>,
    /// How long a new revision may make no progress before it is taken back to the last one that was ready. From
    /// 10s to 1h; without it, 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::value::SHORT_SPAN))]
    pub progress_deadline: Option<Written<Span>>,
    /// The Database of this namespace that it uses, by name. It is waited for, and its credentials are
    /// bound as files and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub database: Option<String>,
    /// Lets the load say how many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
    /// Puts a connection pooler beside each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooler: Option<Pooler>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppPort {
    /// Its name, such as `http`.
    #[schemars(length(min = 1, max = 15), regex(pattern = LABEL))]
    pub name: String,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A page that answers with success when a pod can be sent requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppHealth {
    /// Its path, such as `/readyz`.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/"))]
    pub path: String,
    /// The name of its port. Without it, the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15), regex(pattern = LABEL))]
    pub port: Option<String>,
}

/// How many pods there are, by load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::AUTOSCALE)))]
pub struct Autoscale {
    /// At least so many. Without it, 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min: Option<i32>,
    /// At most so many.
    #[schemars(range(min = 1, max = 1000))]
    pub max: i32,
    /// The share of its cpu, in percent, that a pod should use. Without it, 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub cpu_percent: Option<i32>,
}

/// A connection pooler beside each pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pooler {
    /// Whether there is one. Without it, yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many connections to the database each pod may have. Without it, 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub connections: Option<i32>,
}

words! {
    /// Where an app stands.
    AppPhase, "phase" {
        /// It waits, for its database for instance.
        Pending = "Pending",
        /// A new revision is being rolled out.
        Progressing = "Progressing",
        /// It serves, as asked.
        Running = "Running",
        /// It serves, but not all is as asked.
        Degraded = "Degraded",
        /// It does not serve.
        Failed = "Failed",
        /// It is being removed.
        Deleting = "Deleting",
    }
}

/// What is known of an app.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Written<AppPhase>>,
    /// How many pods there are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many of them are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many of them run the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// The label selector of its pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The image that was ready last: what a roll-out that fails is taken back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_image: Option<String>,
    /// The Secret that is bound, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What holds now, with reasons to look up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}
