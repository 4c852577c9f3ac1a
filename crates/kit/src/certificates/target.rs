//! The objects that name the webhook, and carry the authorities that it is trusted by.

use std::fmt;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// An object that names the webhook. It is the operator's own: every webhook that it names gets
/// the operator's authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A CustomResourceDefinition that is converted by webhook.
    Definition(String),
    /// A ValidatingWebhookConfiguration.
    Validating(String),
    /// A MutatingWebhookConfiguration.
    Mutating(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Target::Definition(_) => "CustomResourceDefinition",
            Target::Validating(_) => "ValidatingWebhookConfiguration",
            Target::Mutating(_) => "MutatingWebhookConfiguration",
        };
        write!(f, "{kind} {}", self.name())
    }
}

/// How a target compares with what it is to carry.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// It carries just that.
    Carries,
    /// It does not; this JSON patch makes it so, if nobody has changed the target since.
    Lacks(Value),
    /// It calls no webhook.
    Idle,
}

impl Target {
    pub(crate) fn name(&self) -> &str {
        match self {
            Target::Definition(name) | Target::Validating(name) | Target::Mutating(name) => name,
        }
    }

    pub(crate) fn resource(&self) -> ApiResource {
        match self {
            Target::Definition(_) => ApiResource::erase::<CustomResourceDefinition>(&()),
            Target::Validating(_) => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Target::Mutating(_) => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        }
    }

    /// Compares a target with the bundle, which is base64 as it stands in the object.
    pub(crate) fn compare(&self, object: &DynamicObject, bundle: &str) -> Found {
        let places = self.places(&object.data);
        let lacking: Vec<&String> = places
            .iter()
            .filter(|place| {
                let carried = object.data.pointer(place).and_then(|config| config.get("caBundle"));
                carried.and_then(Value::as_str) != Some(bundle)
            })
            .collect();
        if places.is_empty() {
            return Found::Idle;
        }
        if lacking.is_empty() {
            return Found::Carries;
        }
        let add = |path: String, value: &str| json!({ "op": "add", "path": path, "value": value });
        // With its version in it, a patch is refused if the target has another by then.
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        let patch = std::iter::once(add("/metadata/resourceVersion".to_owned(), version))
            .chain(lacking.into_iter().map(|place| add(format!("{place}/caBundle"), bundle)));
        Found::Lacks(patch.collect())
    }

    /// Where it says how to call a webhook.
    fn places(&self, object: &Value) -> Vec<String> {
        let places = match self {
            Target::Definition(_) => vec!["/spec/conversion/webhook/clientConfig".to_owned()],
            Target::Validating(_) | Target::Mutating(_) => {
                let webhooks = object.get("webhooks").and_then(Value::as_array).map_or(0, Vec::len);
                (0..webhooks).map(|number| format!("/webhooks/{number}/clientConfig")).collect()
            }
        };
        places.into_iter().filter(|place| object.pointer(place).is_some_and(Value::is_object)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(rest: Value) -> DynamicObject {
        let mut whole = json!({ "metadata": { "name": "x", "resourceVersion": "7" } });
        whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn only_what_differs_is_written_and_only_over_what_was_read() {
        let target = Target::Validating("x".into());
        let webhooks = json!({ "webhooks": [
            { "name": "one", "clientConfig": { "url": "https://a", "caBundle": "new" } },
            { "name": "two", "clientConfig": { "url": "https://a", "caBundle": "old" } },
            { "name": "three", "clientConfig": { "url": "https://a" } },
        ]});
        let patch = json!([
            { "op": "add", "path": "/metadata/resourceVersion", "value": "7" },
            { "op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "new" },
            { "op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "new" },
        ]);
        assert_eq!(target.compare(&object(webhooks), "new"), Found::Lacks(patch));
    }

    #[test]
    fn a_definition_that_is_not_converted_by_webhook_calls_none() {
        let target = Target::Definition("x".into());
        let config = |config: Value| json!({ "spec": { "conversion": { "webhook": config } } });
        assert_eq!(target.compare(&object(json!({ "spec": {} })), "new"), Found::Idle);
        let carrying = config(json!({ "clientConfig": { "caBundle": "new" } }));
        assert_eq!(target.compare(&object(carrying), "new"), Found::Carries);
        let lacking = target.compare(&object(config(json!({ "clientConfig": {} }))), "new");
        assert!(matches!(lacking, Found::Lacks(_)), "{lacking:?}");
        assert_eq!(Target::Mutating("x".into()).compare(&object(json!({})), "new"), Found::Idle);
    }
}
