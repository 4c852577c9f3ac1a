//! What no schema and no CEL can say about a Database, said when it is written: that a schedule names a
//! minute that exists, that a time zone is one. The same check is made again by whoever acts on the
//! object, so nothing depends on this being up; [`configuration`] lets requests pass when it is not.
//!
//! A delete, a status, or an update that leaves the spec alone is never refused here.

use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use kube::core::ObjectMeta;
use serde_json::Value;

use crate::GROUP;
use crate::crds::{NAMESPACE, SERVICE};
use crate::v1::DatabaseSpec;

/// Where admission is served.
pub const VALIDATE_PATH: &str = "/validate";

/// What there is to say against the `request` of an `AdmissionReview`, whatever it holds. Nothing is a yes.
pub fn objections(request: &Value) -> Vec<String> {
    let object = request.get("object").unwrap_or(&Value::Null);
    let spec = object.get("spec");
    let of_interest = request.pointer("/resource/resource").is_some_and(|resource| resource == "databases")
        && request.get("subResource").and_then(Value::as_str).unwrap_or_default().is_empty()
        && matches!(request.get("operation").and_then(Value::as_str), Some("CREATE" | "UPDATE"))
        && object.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null)
        && request.pointer("/oldObject/spec") != spec;
    let Some(spec) = spec.filter(|_| of_interest) else { return Vec::new() };
    match serde_json::from_value::<DatabaseSpec>(spec.clone()).map(|spec| spec.settings()) {
        Ok(Ok(_)) => Vec::new(),
        Ok(Err(errors)) => errors.iter().map(ToString::to_string).collect(),
        Err(error) => vec![format!("spec: {error}")],
    }
}

/// Asks the API server to ask. Requests in other versions are shown as `v1`, as [`crate::policy`] has
/// them; the webhook is found once its `caBundle` is known.
pub fn configuration() -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(crate::policy::NAME.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(vec![ValidatingWebhook {
            name: crate::policy::NAME.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: WebhookClientConfig {
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    path: Some(VALIDATE_PATH.to_owned()),
                    port: Some(443),
                }),
                ..WebhookClientConfig::default()
            },
            // It is a kindness, not a guard.
            failure_policy: Some("Ignore".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(5),
            rules: Some(vec![RuleWithOperations {
                api_groups: Some(vec![GROUP.to_owned()]),
                api_versions: Some(vec!["v1".to_owned()]),
                operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                resources: Some(vec!["databases".to_owned()]),
                scope: Some("Namespaced".to_owned()),
            }]),
            ..ValidatingWebhook::default()
        }]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(operation: &str, sub_resource: &str, object: Value, old: Value) -> Vec<String> {
        objections(&json!({
            "uid": "7", "operation": operation, "subResource": sub_resource,
            "resource": { "resource": "databases" }, "object": object, "oldObject": old
        }))
    }

    fn bad() -> Value {
        json!({"spec": {"backup": {"schedule": "61 * * * *", "timeZone": "Mars/Olympus"}}})
    }

    #[test]
    fn what_is_wrong_is_said_in_full() {
        let said = ask("CREATE", "", bad(), Value::Null);
        assert!(said[0].contains("spec.backup.schedule: 61 in the minute field"), "{said:?}");
        assert_eq!(ask("CREATE", "", json!({"spec": {}}), Value::Null), [""; 0]);
    }

    #[test]
    fn nothing_but_a_changed_spec_is_looked_at() {
        let mut leaving = bad();
        leaving["metadata"]["deletionTimestamp"] = "2026-11-16T12:00:00Z".into();
        let changed = json!({"spec": {}});
        for (operation, sub_resource, object, old) in [
            ("UPDATE", "", bad(), bad()),
            ("UPDATE", "status", bad(), changed.clone()),
            ("UPDATE", "", leaving, changed.clone()),
            ("DELETE", "", Value::Null, bad()),
        ] {
            assert_eq!(ask(operation, sub_resource, object, old), [""; 0], "{operation}");
        }
        assert!(!ask("UPDATE", "", bad(), changed).is_empty());
        assert_eq!(objections(&json!({})), [""; 0]);
    }
}
