//! The objects that name the webhook, and carry the authorities that it is trusted by.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
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
    /// It does not.
    Lacks {
        /// A JSON patch that makes it so, if nobody has changed the target since.
        patch: Value,
        /// Whether it trusts what is served all the same.
        trusts: bool,
    },
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

    /// Compares a target with the bundle that it is to carry, and with the authority of what is served.
    pub(crate) fn compare(&self, object: &DynamicObject, bundle: &str, serving: &str) -> Found {
        let carried: Vec<(String, String)> = self
            .places(&object.data)
            .into_iter()
            .map(|place| {
                let carried = carried(&object.data, &place).unwrap_or_default();
                (place, carried)
            })
            .collect();
        if carried.is_empty() {
            return Found::Idle;
        }
        if carried.iter().all(|(_, carried)| carried == bundle) {
            return Found::Carries;
        }
        let add = |path: &str, value: &str| json!({ "op": "add", "path": path, "value": value });
        // With its version in it, a patch is refused if the target has another by then.
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        let encoded = BASE64_STANDARD.encode(bundle);
        let lacking = carried.iter().filter(|(_, carried)| carried != bundle);
        let patch = std::iter::once(add("/metadata/resourceVersion", version))
            .chain(lacking.map(|(place, _)| add(&format!("{place}/caBundle"), &encoded)))
            .collect();
        Found::Lacks { patch, trusts: carried.iter().all(|(_, carried)| carried.contains(serving)) }
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

/// The bundle at a place, if there is one and it makes sense.
fn carried(object: &Value, place: &str) -> Option<String> {
    let encoded = object.pointer(place)?.get("caBundle")?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(rest: Value) -> DynamicObject {
        let mut whole = json!({ "metadata": { "name": "x", "resourceVersion": "7" } });
        whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn code(bundle: &str) -> String {
        BASE64_STANDARD.encode(bundle)
    }

    #[test]
    fn only_what_differs_is_written_and_only_over_what_was_read() {
        let target = Target::Validating("x".into());
        let webhooks = json!({ "webhooks": [
            { "name": "one", "clientConfig": { "url": "https://a", "caBundle": code("<1><2>") } },
            { "name": "two", "clientConfig": { "url": "https://a", "caBundle": code("<1>") } },
            { "name": "three", "clientConfig": { "url": "https://a" } },
        ]});
        let patch = json!([
            { "op": "add", "path": "/metadata/resourceVersion", "value": "7" },
            { "op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": code("<1><2>") },
            { "op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": code("<1><2>") },
        ]);
        let found = target.compare(&object(webhooks), "<1><2>", "<1>");
        assert_eq!(found, Found::Lacks { patch, trusts: false });
    }

    #[test]
    fn during_a_renewal_a_target_that_lacks_the_next_authority_still_trusts_the_present_one() {
        let webhooks =
            json!({ "webhooks": [{ "name": "one", "clientConfig": { "caBundle": code("<1>") } }] });
        let found = Target::Mutating("x".into()).compare(&object(webhooks), "<1><2>", "<1>");
        assert!(matches!(found, Found::Lacks { trusts: true, .. }), "{found:?}");
    }

    #[test]
    fn a_definition_that_is_not_converted_by_webhook_calls_none() {
        let compare = |target: Target, rest: Value| target.compare(&object(rest), "<1>", "<1>");
        let definition = || Target::Definition("x".into());
        let config = |config: Value| json!({ "spec": { "conversion": { "webhook": config } } });
        assert_eq!(compare(definition(), json!({ "spec": {} })), Found::Idle);
        let carrying = config(json!({ "clientConfig": { "caBundle": code("<1>") } }));
        assert_eq!(compare(definition(), carrying), Found::Carries);
        for spoilt in [json!({}), json!({ "caBundle": "no base64" }), json!({ "caBundle": 7 })] {
            let found = compare(definition(), config(json!({ "clientConfig": spoilt })));
            assert!(matches!(found, Found::Lacks { trusts: false, .. }), "{found:?}");
        }
        assert_eq!(compare(Target::Mutating("x".into()), json!({})), Found::Idle);
    }
}
