//! Poolers beside other people's pods, by the webhook as an installation has it.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use keelson_api::injection;
use keelson_kit::certificates::{Keeper, Target};
use keelson_kit::serve::serve;
use keelson_kit::webhook::Webhooks;
use keelson_operator::app::injection::inject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testbed::{Look, until};
use tokio::net::TcpListener;

use crate::apps::account;
use crate::world::{DEADLINE, World};

/// The label of namespaces whose pods are asked about, and whether anybody answers.
const LABEL: &str = "keelson-test/injection";

/// Puts it in force twice: where it is answered, until its runtime ends, and where nobody answers.
pub async fn install(client: &Client) {
    let keeper = Keeper::new(client.clone(), "default", "keelson-injection")
        .names(["127.0.0.1"])
        .target(Target::Mutating("served".to_owned()));
    let tls = keeper.certificates().tls().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("https://{}{}", listener.local_addr().unwrap(), injection::PATH);
    // A port that was given back at once: nobody listens there.
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nowhere = format!("https://{nowhere}{}", injection::PATH);
    for (name, url) in [("served", here), ("away", nowhere)] {
        let mut configuration = injection::configuration();
        configuration.metadata.name = Some(name.to_owned());
        for webhook in configuration.webhooks.iter_mut().flatten() {
            (webhook.client_config.url, webhook.client_config.service) = (Some(url.clone()), None);
            let labels = [(LABEL.to_owned(), name.to_owned())].into();
            webhook.namespace_selector =
                Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
        }
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        configurations.patch(name, &PatchParams::apply("test"), &Patch::Apply(&configuration)).await.unwrap();
    }
    let webhooks = Webhooks::new()
        .mutate(injection::PATH, |request: &Value| Ok::<_, String>(inject(request, "pooler:test")));
    tokio::spawn(serve(listener, Some(tls), webhooks.handler(), std::future::pending()));
    tokio::spawn(keeper.run(std::future::pending()));
}

async fn made(world: &World, name: &str, labels: Value, annotations: Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "job", "image": "job:1"}]}
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    world.api().create(&PostParams::default(), &pod).await.unwrap()
}

fn poolers(pod: &Pod) -> usize {
    let containers = pod.spec.as_ref().unwrap().init_containers.iter().flatten();
    containers.filter(|one| one.name == "pooler").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_pooler_when_it_says_so_and_no_other_does() {
    let world = World::quiet("injected").await;
    account(&world).await;
    world.label(LABEL, "served").await;
    let (asks, names) =
        (json!({"keelson.dev/inject": "pooler"}), json!({"keelson.dev/inject-pooler": "orders"}));
    until("the webhook to be trusted and asked", DEADLINE, || async {
        let pod = made(&world, "first", asks.clone(), names.clone()).await;
        if poolers(&pod) == 1 {
            let spec = json!(pod.spec.unwrap());
            assert_eq!(spec["initContainers"][0]["image"], "pooler:test");
            let env = spec["containers"][0]["env"].to_string();
            assert!(env.contains("127.0.0.1") && env.contains("orders-app"), "{env}");
            return Look::There(());
        }
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        world.api::<Pod>().delete("first", &at_once).await.unwrap();
        Look::NotYet("it was made as it was written".into())
    })
    .await
    .unwrap();
    assert_eq!(poolers(&made(&world, "no-label", json!({}), names.clone()).await), 0);
    assert_eq!(poolers(&made(&world, "no-name", asks.clone(), json!({})).await), 0);
    assert_eq!(poolers(&made(&world, "again", asks, names).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_made_as_it_was_written_while_nobody_answers() {
    let world = World::quiet("injected-away").await;
    account(&world).await;
    world.label(LABEL, "away").await;
    let (asks, names) =
        (json!({"keelson.dev/inject": "pooler"}), json!({"keelson.dev/inject-pooler": "orders"}));
    let pod = made(&world, "job", asks, names).await;
    assert_eq!((poolers(&pod), pod.name_any().as_str()), (0, "job"));
}
