//! The webhooks as an operator serves them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::convert::{ApiVersion, convert};
use keelson_api::crds::CONVERT_PATH;
use keelson_api::{admission, policy};
use keelson_kit::certificates::{Keeper, Target};
use keelson_kit::serve::serve as serve_http;
use keelson_kit::webhook::Webhooks;
use kube::Client;
use tokio::net::TcpListener;

/// Serves until its runtime ends, and is trusted by whatever names it. Returns its address.
pub async fn serve(client: &Client, converted: &CustomResourceDefinition) -> String {
    let webhooks = Webhooks::new()
        .convert(CONVERT_PATH, |object, desired| convert(object, ApiVersion::of(desired)?))
        .validate(admission::VALIDATE_PATH, admission::objections);
    let keeper = Keeper::new(client.clone(), "default", "keelson-webhook")
        .names(["127.0.0.1"])
        .target(Target::Definition(converted.metadata.name.clone().unwrap()))
        .target(Target::Validating(policy::NAME.to_owned()));
    let tls = keeper.certificates().tls().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(serve_http(listener, Some(tls), webhooks.handler(), std::future::pending()));
    tokio::spawn(keeper.run(std::future::pending()));
    url
}
