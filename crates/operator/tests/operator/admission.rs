//! What stands between people and the API server, as an installation has it; but only where a namespace says so,
//! since some tests ask for what it would refuse.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use keelson_api::{admission, policy};
use keelson_kit::certificates::{Keeper, Target};
use keelson_kit::serve::serve;
use keelson_kit::webhook::Webhooks;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::net::TcpListener;

/// The label of namespaces in which requests are looked at.
pub const LABEL: &str = "keelson-test/admission";

fn selector() -> LabelSelector {
    let labels = BTreeMap::from([(LABEL.to_owned(), "yes".to_owned())]);
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}

/// Puts policy and webhook in force. The webhook is served until its runtime ends.
pub async fn install(client: &Client) {
    let params = PatchParams::apply("test");
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.patch(policy::NAME, &params, &Patch::Apply(policy::policy())).await.unwrap();
    let mut binding = policy::binding();
    binding.spec.match_resources =
        Some(MatchResources { namespace_selector: Some(selector()), ..MatchResources::default() });
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.patch(policy::NAME, &params, &Patch::Apply(binding)).await.unwrap();

    let keeper = Keeper::new(client.clone(), "default", "keelson-webhook")
        .names(["127.0.0.1"])
        .target(Target::Validating(policy::NAME.to_owned()));
    let tls = keeper.certificates().tls().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}{}", listener.local_addr().unwrap(), admission::VALIDATE_PATH);
    let mut configuration = admission::configuration();
    for webhook in configuration.webhooks.iter_mut().flatten() {
        (webhook.client_config.url, webhook.client_config.service) = (Some(url.clone()), None);
        webhook.namespace_selector = Some(selector());
    }
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations.patch(policy::NAME, &params, &Patch::Apply(&configuration)).await.unwrap();
    let webhooks = Webhooks::new().validate(admission::VALIDATE_PATH, admission::objections);
    tokio::spawn(serve(listener, Some(tls), webhooks.handler(), std::future::pending()));
    tokio::spawn(keeper.run(std::future::pending()));
}
