//! Children that are never read, and objects that belong to one by a label.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keelson_kit::client::with_config;
use keelson_kit::conditions::Finding;
use keelson_kit::telemetry::Metrics;
use keelson_kit::{Kind, Next, Reconciler, Round, rbac};
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::{Look, until};

use crate::children::event_about;
use crate::greeting::{Greeting, GreetingStatus};
use crate::rights::grant;
use crate::world::{DEADLINE, DEADLINES, World, config};

const LABEL: &str = "example.dev/greeting";

/// Writes a Secret, and says which ConfigMaps name the Greeting.
struct Secretive;

impl Reconciler for Secretive {
    type Object = Greeting;
    type Error = keelson_kit::Error;

    async fn reconcile(&self, greeting: &Greeting, round: &mut Round) -> Result<Next, Self::Error> {
        // Not `stringData`: the API server would not know that the fields are ours.
        let secret = Secret {
            metadata: ObjectMeta { name: Some(greeting.name_any()), ..ObjectMeta::default() },
            data: Some([("text".to_owned(), ByteString(greeting.spec.name.clone().into_bytes()))].into()),
            ..Secret::default()
        };
        round.apply(&secret).await?;
        let related = round.related::<ConfigMap>()?;
        let text = |map: &ConfigMap| {
            map.data.as_ref().and_then(|data| data.get("text").cloned()).unwrap_or_default()
        };
        let found: Vec<String> =
            related.iter().map(|map| format!("{}={}", map.name_any(), text(map))).collect();
        let ready = Finding {
            kind: "Ready".to_owned(),
            holds: Some(true),
            reason: "Looked".to_owned(),
            message: found.join(" "),
        };
        let known = greeting.status.clone().unwrap_or_default().conditions;
        let conditions = round.conditions(&known, &[ready]);
        round
            .set_status(&GreetingStatus { observed_generation: greeting.metadata.generation, conditions })
            .await?;
        Ok(Next::Change)
    }
}

fn without_noise(object: &mut DynamicObject) {
    if let Some(data) = object.data["data"].as_object_mut() {
        data.remove("noise");
    }
}

fn kind() -> Kind<Secretive> {
    Kind::new(Secretive).owns_unread::<Secret>().watches::<ConfigMap>(LABEL, without_noise)
}

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

async fn secret_says(world: &World, name: &str, text: &str) {
    until(&format!("the Secret says {text}"), DEADLINE, || async {
        let found = secrets(world).get_opt(name).await.unwrap();
        match found.and_then(|found| found.data?.remove("text")) {
            Some(found) if found.0 == text.as_bytes() => Look::There(()),
            _ => Look::NotYet("something else".into()),
        }
    })
    .await
    .unwrap();
}

async fn says(world: &World, name: &str, message: &str) {
    until(&format!("{name} says `{message}`"), DEADLINE, || async {
        let status = world.greetings().get(name).await.unwrap().status.unwrap_or_default();
        match status.conditions.first() {
            Some(ready) if ready.message == message => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_child_that_is_never_read_is_written_and_put_right_at_the_next_look() {
    let world = World::new("unread").await;
    world.greet("hello", "world").await;
    grant(&world, "secretive", [rbac::of_kind(&kind()), rbac::of_leadership()].concat()).await;
    let metrics = Metrics::new("test");
    let mut config = config(&world.kubeconfig).await;
    config.auth_info.impersonate = Some("secretive".into());
    let client = with_config(config, DEADLINES, &metrics).unwrap();
    let operator = world.operator_with(client, metrics, kind());
    secret_says(&world, "hello", "world").await;
    // Nobody tells of it; but when there is a reason to look, it is put right.
    let edit = Patch::Merge(json!({"stringData": {"text": "theirs"}}));
    secrets(&world).patch("hello", &PatchParams::default(), &edit).await.unwrap();
    world.change("hello", "everybody").await;
    secret_says(&world, "hello", "everybody").await;
    secrets(&world).delete("hello", &DeleteParams::default()).await.unwrap();
    world.change("hello", "again").await;
    secret_says(&world, "hello", "again").await;
    let refused = operator.metric("test_api_requests_total", &["code=\"403\""]);
    assert_eq!(refused, 0.0, "{}", operator.metrics.render());
    operator.stop().await;
}

#[tokio::test]
async fn one_of_that_name_that_is_somebody_elses_is_left_alone_and_said() {
    let world = World::new("unread-taken").await;
    for (name, data) in [("clashes", json!({"text": "mine"})), ("beside", json!({"other": "mine"}))] {
        let theirs = serde_json::from_value(json!({"metadata": {"name": name}, "stringData": data})).unwrap();
        secrets(&world).create(&PostParams::default(), &theirs).await.unwrap();
        world.greet(name, "world").await;
    }
    let operator = world.operator(kind()).await;
    for name in ["clashes", "beside"] {
        let note = until("an event that says so", DEADLINE, || event_about(&world, name)).await.unwrap();
        assert!(note.contains("is there already and does not belong to Greeting"), "{note}");
        let found = secrets(&world).get(name).await.unwrap();
        assert_eq!((found.metadata.owner_references, found.data.unwrap().len()), (None, 1));
    }
    operator.stop().await;
}

#[tokio::test]
async fn what_names_it_in_a_label_is_its_affair_and_what_is_not_kept_is_not() {
    let world = World::new("related").await;
    world.greet("hello", "world").await;
    let operator = world.operator(kind()).await;
    says(&world, "hello", "").await;
    for (name, of) in [("a", "hello"), ("b", "hello"), ("c", "other")] {
        let map =
            json!({"metadata": {"name": name, "labels": {LABEL: of}}, "data": {"text": "1", "noise": "1"}});
        world
            .config_maps()
            .create(&PostParams::default(), &serde_json::from_value(map).unwrap())
            .await
            .unwrap();
    }
    says(&world, "hello", "a=1 b=1").await;
    let edit = |data| Patch::Merge(json!({"data": data}));
    world.config_maps().patch("a", &PatchParams::default(), &edit(json!({"text": "2"}))).await.unwrap();
    says(&world, "hello", "a=2 b=1").await;
    let rounds = operator.rounds();
    world.config_maps().patch("a", &PatchParams::default(), &edit(json!({"noise": "2"}))).await.unwrap();
    // What comes after it has been seen, so it has been too.
    world.greet("later", "world").await;
    says(&world, "later", "").await;
    assert_eq!(operator.rounds(), rounds + 1.0, "noise is no reason to look");

    let hand_over = Patch::Merge(json!({"metadata": {"labels": {LABEL: "later"}}}));
    world.config_maps().patch("a", &PatchParams::default(), &hand_over).await.unwrap();
    says(&world, "later", "a=2").await;
    says(&world, "hello", "b=1").await;
    world.config_maps().delete("b", &DeleteParams::default()).await.unwrap();
    says(&world, "hello", "").await;
    operator.stop().await;
}

#[test]
fn the_rights_are_to_write_the_one_and_to_look_at_the_other() {
    let rules = rbac::of_kind(&kind());
    let verbs = |resource: &str| {
        let named = rules.iter().filter(|rule| rule.resources.iter().flatten().any(|one| one == resource));
        named.flat_map(|rule| rule.verbs.clone()).collect::<Vec<_>>()
    };
    assert_eq!(verbs("secrets"), ["create", "patch"]);
    assert_eq!(verbs("configmaps"), ["get", "list", "watch"]);
}
