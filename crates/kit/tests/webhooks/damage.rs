//! What somebody else does to the Secret and to the targets is made good; and nothing is written when
//! nothing has changed.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::{ControlPlane, Look, until};

use crate::plane::{
    CONFIGURATION, CRD, DEADLINE, Replica, SECRET, STEADY, authority, bundles, in_force, install, ready,
    stored,
};

/// Waits until something is stored, other than before, with no renewal under way, and carried everywhere.
async fn settled(client: &Client, before: &str) -> Value {
    until("a new certificate to be stored and carried", DEADLINE, || async {
        let Some((document, _)) = stored(client).await else { return Look::NotYet("no Secret".into()) };
        let serving = authority(&document, "serving");
        let carried = bundles(client).await;
        let everywhere = carried.iter().all(|(bundle, _)| bundle.starts_with(&serving));
        if everywhere && !serving.is_empty() && serving != before && document["next"].is_null() {
            return Look::There(document);
        }
        Look::NotYet(format!("carried: {everywhere}, new: {}", serving != before))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_deleted_or_spoilt_is_replaced_and_a_bundle_that_is_overwritten_is_repaired() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let replica = Replica::start(&plane, STEADY).await;
    install(&client, &replica.url, &replica.url).await;
    ready(&replica).await;
    in_force(&client).await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let mut before = authority(&stored(&client).await.unwrap().0, "serving");

    for damage in
        [None, Some(json!({ "data": null })), Some(json!({ "stringData": { "certificates.json": "{}" } }))]
    {
        match &damage {
            None => drop(secrets.delete(SECRET, &DeleteParams::default()).await.unwrap()),
            Some(patch) => {
                drop(secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap());
            }
        }
        let document = settled(&client, &before).await;
        assert!(document["trusted"].to_string().contains(before.lines().nth(1).unwrap()), "still trusted");
        before = authority(&document, "serving");
        ready(&replica).await;
        in_force(&client).await;
    }

    let bundle = bundles(&client).await.remove(0).0;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let patch = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    crds.patch(CRD, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let hook = json!({ "name": "validate.shop.example", "clientConfig": { "caBundle": null } });
    let patch = Patch::Strategic(json!({ "webhooks": [hook] }));
    configurations.patch(CONFIGURATION, &PatchParams::default(), &patch).await.unwrap();
    until("the bundles to be put back", DEADLINE, || async {
        match bundles(&client).await.iter().filter(|(carried, _)| *carried != bundle).count() {
            0 => Look::There(()),
            wrong => Look::NotYet(format!("{wrong} are wrong")),
        }
    })
    .await
    .unwrap();
    in_force(&client).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_nothing_changes() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let replicas = [Replica::start(&plane, STEADY).await, Replica::start(&plane, STEADY).await];
    install(&client, &replicas[0].url, &replicas[1].url).await;
    for replica in &replicas {
        ready(replica).await;
    }
    in_force(&client).await;
    let versions = async || (stored(&client).await.unwrap(), bundles(&client).await);
    let before = versions().await;
    // Each looks ten times in that time.
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    for _ in 0..20 {
        tick.tick().await;
        assert_eq!(versions().await, before);
    }
    for replica in replicas {
        replica.stop().await;
    }
}
