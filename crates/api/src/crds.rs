//! The definitions that a cluster needs before it knows these kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use serde_json::Value;
use thiserror::Error;

use crate::schema::{Rule, drop_nullable, join_lines, validations};
use crate::v1::rules;
use crate::{v1, v1alpha1, v1beta1};

/// The namespace of the conversion webhook's Service until somebody installs it elsewhere.
pub const NAMESPACE: &str = "keelson-system";
/// The conversion webhook's Service.
pub const SERVICE: &str = "keelson-webhook";
/// Where on it conversion is served.
pub const CONVERT_PATH: &str = "/convert";

/// The types and Kubernetes do not agree on what a definition is. No input leads here.
#[derive(Debug, Error)]
pub enum CrdError {
    /// The versions of a kind do not fit together.
    #[error("the versions of Database do not fit together: {0}")]
    Versions(String),
    /// A schema that is no schema.
    #[error("a schema can't be read back: {0}")]
    Schema(#[from] serde_json::Error),
}

/// All definitions: `Database` with its three versions, `Backup` and `App`.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    let backup = finish(v1::Backup::crd(), |_| Vec::new())?;
    let app = finish(v1::App::crd(), |_| rules::NAME.to_vec())?;
    Ok(vec![database()?, backup, app])
}

/// `Database`, stored as `v1` and converted by the webhook, which is found once its `caBundle` is known.
pub fn database() -> Result<CustomResourceDefinition, CrdError> {
    let versions = vec![v1alpha1::Database::crd(), v1beta1::Database::crd(), v1::Database::crd()];
    let mut crd = merge_crds(versions, "v1").map_err(|error| CrdError::Versions(error.to_string()))?;
    crd.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    path: Some(CONVERT_PATH.to_owned()),
                    port: Some(443),
                }),
                ..WebhookClientConfig::default()
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    });
    // The other versions can't see all that these rules speak of; the policy stands in for them.
    finish(crd, |version| match version {
        "v1" => [rules::NAME, rules::DATABASE].concat(),
        _ => rules::NAME.to_vec(),
    })
}

/// What the derive can't say: rules on the whole object, no nulls, whole sentences.
fn finish(
    mut crd: CustomResourceDefinition,
    rules_of: impl Fn(&str) -> Vec<Rule>,
) -> Result<CustomResourceDefinition, CrdError> {
    for version in &mut crd.spec.versions {
        let rules = rules_of(&version.name);
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        let mut value = serde_json::to_value(&*schema)?;
        drop_nullable(&mut value);
        join_lines(&mut value);
        if let Value::Object(fields) = &mut value
            && !rules.is_empty()
        {
            fields.insert("x-kubernetes-validations".to_owned(), validations(&rules));
        }
        *schema = serde_json::from_value(value)?;
    }
    Ok(crd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(schema: &Value, found: &mut Vec<String>) {
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            found.extend(words.iter().map(|word| word.as_str().unwrap_or_default().to_owned()));
        }
        let parts = schema.as_object().map(|fields| fields.values()).into_iter().flatten();
        parts.chain(schema.as_array().into_iter().flatten()).for_each(|part| words(part, found));
    }

    #[test]
    fn no_word_is_a_truth_value_in_yaml() {
        // `autopilot: off`, without quotes, would reach the API server as `false`.
        let mut found = Vec::new();
        words(&serde_json::to_value(crds().unwrap()).unwrap(), &mut found);
        assert!(found.contains(&"postgres".to_owned()) && found.contains(&"Retain".to_owned()));
        let truth = ["", "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"];
        found.retain(|word| truth.contains(&word.to_lowercase().as_str()));
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn the_stored_version_is_v1_and_the_oldest_is_deprecated() {
        let crd = database().unwrap();
        let versions: Vec<_> = crd
            .spec
            .versions
            .iter()
            .map(|version| (version.name.as_str(), version.storage, version.deprecated.unwrap_or_default()))
            .collect();
        assert_eq!(versions, [("v1", true, false), ("v1beta1", false, false), ("v1alpha1", false, true)]);
    }

    #[test]
    fn every_field_of_ours_is_explained_and_none_is_nullable() {
        fn unexplained(path: &str, schema: &Value, found: &mut Vec<String>) {
            assert!(schema.get("nullable").is_none(), "{path}");
            for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let path = format!("{path}.{name}");
                if field.get("description").is_none() {
                    found.push(path.clone());
                }
                unexplained(&path, field, found);
                unexplained(&path, field.get("items").unwrap_or(&Value::Null), found);
            }
        }
        for crd in crds().unwrap() {
            for version in crd.spec.versions {
                let schema = serde_json::to_value(version.schema).unwrap();
                let properties = &schema["openAPIV3Schema"]["properties"];
                let mut found = Vec::new();
                for part in ["spec", "status"] {
                    unexplained(part, &properties[part], &mut found);
                }
                assert_eq!(found, [""; 0], "{} {}", crd.spec.names.kind, version.name);
            }
        }
    }
}
