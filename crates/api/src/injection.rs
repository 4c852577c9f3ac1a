//! Poolers beside programs that are no [`App`](crate::v1::App)s: a pod with the label [`LABEL`] and the annotation
//! [`ANNOTATION`] gets one when it is made. What asks for that is here; what is injected is the operator's.
//!
//! Nobody else's pods are touched by it, and none waits for it: the label is looked at by the API server itself, and
//! when the operator is away, a pod is made as it was written.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::ObjectMeta;

use crate::crds::{NAMESPACE, SERVICE};

/// The name of the webhook.
pub const NAME: &str = "pods.keelson.dev";
/// Where it is served.
pub const PATH: &str = "/inject";
/// The label of pods that are to be looked at.
pub const LABEL: &str = "keelson.dev/inject";
/// Its value.
pub const POOLER: &str = "pooler";
/// The annotation with the name of the Database that a pooler is to lead to.
pub const ANNOTATION: &str = "keelson.dev/inject-pooler";
/// The annotation with the number of connections that it may have.
pub const CONNECTIONS: &str = "keelson.dev/pooler-connections";

/// Asks the API server to ask.
pub fn configuration() -> MutatingWebhookConfiguration {
    MutatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(vec![MutatingWebhook {
            name: NAME.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: WebhookClientConfig {
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    path: Some(PATH.to_owned()),
                    port: Some(443),
                }),
                ..WebhookClientConfig::default()
            },
            // No pod is ever held up by it.
            failure_policy: Some("Ignore".to_owned()),
            timeout_seconds: Some(2),
            match_policy: Some("Equivalent".to_owned()),
            reinvocation_policy: Some("Never".to_owned()),
            side_effects: "None".to_owned(),
            object_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([(LABEL.to_owned(), POOLER.to_owned())])),
                ..LabelSelector::default()
            }),
            // The operator's own pods must be made while it is away.
            namespace_selector: Some(LabelSelector {
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: "kubernetes.io/metadata.name".to_owned(),
                    operator: "NotIn".to_owned(),
                    values: Some(vec![NAMESPACE.to_owned()]),
                }]),
                ..LabelSelector::default()
            }),
            match_conditions: Some(vec![MatchCondition {
                name: "a-database-is-named".to_owned(),
                expression: format!("'{ANNOTATION}' in object.metadata.?annotations.orValue({{}})"),
            }]),
            rules: Some(vec![RuleWithOperations {
                api_groups: Some(vec![String::new()]),
                api_versions: Some(vec!["v1".to_owned()]),
                operations: Some(vec!["CREATE".to_owned()]),
                resources: Some(vec!["pods".to_owned()]),
                scope: Some("Namespaced".to_owned()),
            }]),
        }]),
    }
}
