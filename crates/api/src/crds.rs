//! The definitions that a cluster needs before it knows these kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use serde_json::Value;
use thiserror::Error;

use crate::schema::{Rule, drop_nullable, validations};
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

/// What the derive can't say: rules on the whole object, and no nulls.
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
        if let Value::Object(fields) = &mut value
            && !rules.is_empty()
        {
            fields.insert("x-kubernetes-validations".to_owned(), validations(&rules));
        }
        *schema = serde_json::from_value(value)?;
    }
    Ok(crd)
}
