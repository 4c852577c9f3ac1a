//! One control plane for all tests of this program, with everything installed on it.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use keelson_api::convert::ApiVersion;
use keelson_api::{admission, crds, policy};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use testbed::{Look, shared_control_plane, until};

use crate::webhook;

const DEADLINE: Duration = Duration::from_secs(30);
const APPLY: &str = "test";

/// A client of the shared control plane. Each test has a runtime of its own, and so needs a client of its
/// own; the control plane goes when the program does.
pub async fn client() -> Client {
    let kubeconfig = shared_control_plane(|client| async move { install(&client).await });
    testbed::connect(&kubeconfig).await.unwrap()
}

async fn install(client: &Client) {
    let url = webhook::serve(client, &crds::database().unwrap()).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in crds::crds().unwrap() {
        if let Some(webhook) = crd.spec.conversion.as_mut().and_then(|conversion| conversion.webhook.as_mut())
        {
            webhook.client_config = Some(WebhookClientConfig {
                url: Some(format!("{url}{}", crds::CONVERT_PATH)),
                ..WebhookClientConfig::default()
            });
        }
        let name = crd.metadata.name.clone().unwrap();
        definitions.patch(&name, &PatchParams::apply(APPLY), &Patch::Apply(&crd)).await.unwrap();
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.patch(policy::NAME, &PatchParams::apply(APPLY), &Patch::Apply(policy::policy())).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.patch(policy::NAME, &PatchParams::apply(APPLY), &Patch::Apply(policy::binding())).await.unwrap();
    let mut configuration = admission::configuration();
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.url = Some(format!("{url}{}", admission::VALIDATE_PATH));
        webhook.client_config.service = None;
    }
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let patch = Patch::Apply(&configuration);
    configurations.patch(policy::NAME, &PatchParams::apply(APPLY), &patch).await.unwrap();
    until("every kind is served, and policy and webhook are in force", DEADLINE, || async move {
        for kind in ["Backup", "App"] {
            if let Err(error) = api(client, kind, "v1").list(&Default::default()).await {
                return Look::NotYet(error.to_string());
            }
        }
        for version in ApiVersion::ALL {
            if let Err(error) = databases(client, *version).list(&Default::default()).await {
                return Look::NotYet(error.to_string());
            }
        }
        for (wrong, says) in [
            (json!({"storage": {"weight": "5kg"}}), "storage is a size"),
            (json!({"backup": {"schedule": "61 * * * *"}}), "61 in the minute field"),
        ] {
            match try_create(client, "Database", wrong).await {
                Err(Error::Api(status)) if status.message.contains(says) => {}
                other => return Look::NotYet(format!("{other:?}")),
            }
        }
        Look::There(())
    })
    .await
    .unwrap();
}

/// Objects of a kind, in a version.
pub fn api(client: &Client, kind: &str, version: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let gvk = GroupVersionKind::gvk(keelson_api::GROUP, version, kind);
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, &plural))
}

/// Databases in a version.
pub fn databases(client: &Client, version: ApiVersion) -> Api<DynamicObject> {
    api(client, "Database", version.as_str())
}

/// An object with a spec.
pub fn object(kind: &str, version: &str, name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("{}/{version}", keelson_api::GROUP), "kind": kind,
        "metadata": { "name": name }, "spec": spec
    }))
    .unwrap()
}

/// What the API server says of a new object, which it does not keep.
pub async fn try_create(client: &Client, kind: &str, spec: Value) -> Result<DynamicObject, Error> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api(client, kind, "v1").create(&dry, &object(kind, "v1", "tried", spec)).await
}

/// Creates a database.
pub async fn create(client: &Client, version: ApiVersion, name: &str, spec: Value) -> DynamicObject {
    let object = object("Database", version.as_str(), name, spec);
    databases(client, version).create(&PostParams::default(), &object).await.unwrap()
}

/// What the API server answered instead of doing it.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Api(status)) => status.message.clone(),
        other => panic!("should have been refused: {other:?}"),
    }
}
