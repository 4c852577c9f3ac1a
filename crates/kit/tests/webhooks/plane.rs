//! A control plane with a small kind in two versions, and replicas of an operator that serve its webhooks.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_kit::certificates::{Certificates, Keeper, Settings, Target};
use keelson_kit::serve::serve;
use keelson_kit::webhook::Webhooks;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::{ControlPlane, Look, connect, until};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const DEADLINE: Duration = Duration::from_secs(60);
pub const SECRET: &str = "shop-webhook";
pub const CRD: &str = "things.shop.example";
pub const CONFIGURATION: &str = "shop";
const SECOND: Duration = Duration::from_secs(1);

/// A whole life of a certificate takes seconds, but it may be late by more than a slow machine is.
pub const QUICK: Settings = Settings {
    lifetime: Duration::from_secs(40),
    renew_before: Duration::from_secs(35),
    settle: Duration::from_secs(2),
    look: Duration::from_secs(1),
    backdate: Duration::from_secs(2),
};
/// Nothing is renewed, but often looked at.
pub const STEADY: Settings = Settings {
    lifetime: Duration::from_secs(3600),
    renew_before: Duration::from_secs(600),
    settle: Duration::from_secs(2),
    look: Duration::from_millis(500),
    backdate: Duration::from_secs(60),
};

/// What the webhooks do: `v1` says `{size, note}`, `v2` says `{extent: {size}, note}`.
fn webhooks() -> Webhooks {
    Webhooks::new()
        .convert("/convert", |mut object: Value, desired: &str| {
            let spec = object["spec"].clone();
            object["spec"] = match (object["apiVersion"].as_str(), desired) {
                (Some("shop.example/v1"), "shop.example/v2") => {
                    json!({ "extent": { "size": spec["size"] }, "note": spec["note"] })
                }
                (Some("shop.example/v2"), "shop.example/v1") => {
                    json!({ "size": spec["extent"]["size"], "note": spec["note"] })
                }
                (from, to) => return Err(format!("there is no way from {from:?} to {to}")),
            };
            object["apiVersion"] = desired.into();
            Ok(object)
        })
        .validate("/validate", |request| match request.pointer("/object/spec/extent/size") {
            Some(size) if size.as_i64() <= Some(100) => Vec::new(),
            size => vec![format!("{size:?} is too large a thing")],
        })
        .mutate("/mutate", |request| {
            let mut object = request["object"].clone();
            object["spec"]["note"] = "seen".into();
            Ok::<_, String>(object)
        })
}

/// One replica: its server, and the keeper of its certificates.
pub struct Replica {
    pub url: String,
    pub certificates: Certificates,
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

impl Replica {
    /// Starts one with a client of its own.
    pub async fn start(plane: &ControlPlane, settings: Settings) -> Replica {
        Replica::start_with(connect(&plane.kubeconfig()).await.unwrap(), settings).await
    }

    pub async fn start_with(client: Client, settings: Settings) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let keeper = Keeper::new(client, "default", SECRET)
            .names(["127.0.0.1", "shop-webhook.default.svc"])
            .target(Target::Definition(CRD.into()))
            .target(Target::Validating(CONFIGURATION.into()))
            .target(Target::Mutating(CONFIGURATION.into()))
            .settings(settings);
        let certificates = keeper.certificates();
        let tls = Some(certificates.tls().unwrap());
        let (stop, stopped) = watch::channel(false);
        let tasks = [
            tokio::spawn(keeper.run(until_told(stopped.clone()))),
            tokio::spawn(serve(listener, tls, webhooks().handler(), until_told(stopped))),
        ];
        Replica { url, certificates, stop, tasks }
    }

    pub async fn stop(self) {
        self.stop.send(true).unwrap();
        for task in self.tasks {
            tokio::time::timeout(20 * SECOND, task).await.unwrap().unwrap();
        }
    }
}

async fn until_told(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stop| *stop).await);
}

/// Waits until a replica says that calls get through.
pub async fn ready(replica: &Replica) {
    until("the certificates to be valid", DEADLINE, || async {
        match replica.certificates.valid() {
            Ok(()) => Look::There(()),
            Err(why) => Look::NotYet(why),
        }
    })
    .await
    .unwrap();
}

/// Waits until a thing in the old version can be created: the API server has learnt of everything.
pub async fn in_force(client: &Client) {
    until("things can be created, and wrong ones not", DEADLINE, || async {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let things = things(client, "v1");
        let made = things.create(&dry, &thing("tried", 1)).await;
        let wrong = things.create(&dry, &thing("tried", 101)).await;
        match (made, wrong) {
            (Ok(made), Err(kube::Error::Api(refused)))
                if made.data["spec"]["note"] == "seen" && refused.message.contains("too large") =>
            {
                Look::There(())
            }
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// Things in a version.
pub fn things(client: &Client, version: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("shop.example", version, "Thing");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, "things"))
}

/// A thing as people wrote it in the old version.
pub fn thing(name: &str, size: i64) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "shop.example/v1", "kind": "Thing", "metadata": { "name": name }, "spec": { "size": size }
    }))
    .unwrap()
}

/// Installs the kind and the webhooks; all calls go to these addresses, and nothing is let through
/// that a webhook has not seen.
pub async fn install(client: &Client, convert: &str, admit: &str) {
    let config = |url: &str, path: &str| json!({ "url": format!("{url}{path}") });
    let version = |name: &str, stored: bool| {
        json!({
            "name": name, "served": true, "storage": stored,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } }
        })
    };
    let crd = json!({
        "metadata": { "name": CRD },
        "spec": {
            "group": "shop.example", "scope": "Namespaced",
            "names": { "kind": "Thing", "plural": "things" },
            "versions": [version("v1", false), version("v2", true)],
            "conversion": { "strategy": "Webhook", "webhook": {
                "clientConfig": config(convert, "/convert"), "conversionReviewVersions": ["v1"]
            }}
        }
    });
    let hook = |name: &str, path: &str| {
        json!({
            "name": name, "clientConfig": config(admit, path), "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": ["shop.example"], "apiVersions": ["v2"], "operations": ["CREATE", "UPDATE"],
                "resources": ["things"]
            }]
        })
    };
    let configuration = |hook: Value| json!({ "metadata": { "name": CONFIGURATION }, "webhooks": [hook] });
    create::<CustomResourceDefinition>(client, crd).await;
    let validating = configuration(hook("validate.shop.example", "/validate"));
    create::<ValidatingWebhookConfiguration>(client, validating).await;
    let mutating = configuration(hook("mutate.shop.example", "/mutate"));
    create::<MutatingWebhookConfiguration>(client, mutating).await;
}

/// Creates an object of the whole cluster.
pub async fn create<K>(client: &Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// What is stored: the document, and the version of the Secret.
pub async fn stored(client: &Client) -> Option<(Value, String)> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = secrets.get_opt(SECRET).await.unwrap()?;
    let document = secret.data?.remove("certificates.json")?;
    Some((serde_json::from_slice(&document.0).ok()?, secret.metadata.resource_version?))
}

/// The bundles in all targets, and their versions.
pub async fn bundles(client: &Client) -> Vec<(String, String)> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crds.get(CRD).await.unwrap();
    let config = crd.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
    let mut found = vec![(crd.metadata.resource_version, config.ca_bundle)];
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = validating.get(CONFIGURATION).await.unwrap();
    for hook in configuration.webhooks.unwrap() {
        found.push((configuration.metadata.resource_version.clone(), hook.client_config.ca_bundle));
    }
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = mutating.get(CONFIGURATION).await.unwrap();
    for hook in configuration.webhooks.unwrap() {
        found.push((configuration.metadata.resource_version.clone(), hook.client_config.ca_bundle));
    }
    let text = |bundle: Option<k8s_openapi::ByteString>| {
        bundle.map(|bundle| String::from_utf8(bundle.0).unwrap()).unwrap_or_default()
    };
    found.into_iter().map(|(version, bundle)| (text(bundle), version.unwrap())).collect()
}

/// The certificate of the authority that signed a stored pair.
pub fn authority(document: &Value, which: &str) -> String {
    document[which]["authority"]["certificate"].as_str().unwrap_or_default().to_owned()
}
