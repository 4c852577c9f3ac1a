//! Children are what they should be, whoever else is at work on them, and nothing is written for nothing.

use k8s_openapi::api::core::v1::ConfigMap;
use keelson_kit::Kind;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Look, until};

use crate::greeting::Greeter;
use crate::world::{DEADLINE, Operator, SECOND, World};

fn kind() -> Kind<Greeter> {
    Kind::new(Greeter).owns::<ConfigMap>()
}

/// Waits until nothing has been written for as long as a storm of looks would take. An answer may be
/// counted a little later than what it did can be seen.
async fn stays_quiet(operator: &Operator) {
    let mut last = (operator.writes(), std::time::Instant::now());
    until("some seconds to pass without a write", DEADLINE, || {
        if operator.writes() != last.0 {
            last = (operator.writes(), std::time::Instant::now());
        }
        let (writes, since) = last;
        async move {
            match since.elapsed() {
                quiet if quiet > 3 * SECOND => Look::There(()),
                quiet => Look::NotYet(format!("the last of {writes} writes was {quiet:?} ago")),
            }
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_greeting_is_made_follows_its_spec_and_then_costs_nothing() {
    let world = World::new("follows").await;
    world.greet("hello", "world").await;
    let operator = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;
    world.change("hello", "everybody").await;
    world.says("hello", "Hello, everybody!").await;
    stays_quiet(&operator).await;
    assert_eq!(operator.writes(), 4.0, "a ConfigMap and a status, twice");

    let made = world.config_maps().get("hello").await.unwrap();
    let owner = &made.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.controller),
        ("Greeting", "hello", Some(true))
    );
    operator.stop().await;
}

#[tokio::test]
async fn a_new_process_finds_all_as_it_should_be_and_writes_nothing() {
    let world = World::new("restarts").await;
    for number in 0..5 {
        world.greet(&format!("hello-{number}"), "world").await;
    }
    let first = world.operator(kind()).await;
    for number in 0..5 {
        world.says(&format!("hello-{number}"), "Hello, world!").await;
    }
    first.stop().await;
    let second = world.operator(kind()).await;
    until("all to have been looked at", DEADLINE, || async {
        match second.rounds() {
            5.0 => Look::There(()),
            some => Look::NotYet(format!("{some} rounds")),
        }
    })
    .await
    .unwrap();
    stays_quiet(&second).await;
    assert_eq!(second.writes(), 0.0);
    second.stop().await;
}

#[tokio::test]
async fn what_somebody_changes_or_removes_is_repaired_and_what_they_add_stays() {
    let world = World::new("drifts").await;
    world.greet("hello", "world").await;
    let operator = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;

    let edit =
        json!({"data": {"text": "Go away!", "theirs": "stays"}, "metadata": {"labels": {"also": "stays"}}});
    world.config_maps().patch("hello", &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    world.says("hello", "Hello, world!").await;
    let repaired = world.config_maps().get("hello").await.unwrap();
    assert_eq!(repaired.data.unwrap()["theirs"], "stays");
    assert_eq!(repaired.metadata.labels.unwrap()["also"], "stays");

    // Not seen by the watch any more, and no longer its owner's.
    let hide =
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}, "ownerReferences": null}});
    world.config_maps().patch("hello", &PatchParams::default(), &Patch::Merge(&hide)).await.unwrap();
    until("label and owner to be back", DEADLINE, || async {
        let found = world.config_maps().get("hello").await.unwrap().metadata;
        let labelled = found.labels.unwrap_or_default().contains_key("app.kubernetes.io/managed-by");
        match found.owner_references {
            Some(owners) if labelled && owners.len() == 1 => Look::There(()),
            other => Look::NotYet(format!("{labelled} {other:?}")),
        }
    })
    .await
    .unwrap();

    world.config_maps().delete("hello", &DeleteParams::default()).await.unwrap();
    world.says("hello", "Hello, world!").await;

    // Somebody else's field alone is nobody's business.
    stays_quiet(&operator).await;
    let quiet = operator.rounds();
    let beside = json!({"data": {"more": "of theirs"}});
    world.config_maps().patch("hello", &PatchParams::default(), &Patch::Merge(&beside)).await.unwrap();
    stays_quiet(&operator).await;
    assert_eq!(operator.rounds(), quiet);
    operator.stop().await;
}

#[tokio::test]
async fn what_changed_while_no_operator_ran_is_repaired_when_one_does() {
    let world = World::new("drifts-alone").await;
    world.greet("hello", "world").await;
    let operator = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;
    operator.stop().await;
    let edit = Patch::Merge(json!({"data": {"text": "Go away!"}}));
    world.config_maps().patch("hello", &PatchParams::default(), &edit).await.unwrap();
    let operator = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;
    operator.stop().await;
}

#[tokio::test]
async fn an_object_of_that_name_that_is_somebody_elses_is_left_alone_and_said() {
    let world = World::new("taken").await;
    for (name, data) in [("clashes", json!({"text": "mine"})), ("beside", json!({"other": "mine"}))] {
        let theirs = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
        world.config_maps().create(&PostParams::default(), &theirs).await.unwrap();
        world.greet(name, "world").await;
    }
    world.greet("free", "world").await;
    let operator = world.operator(kind()).await;
    world.says("free", "Hello, world!").await;
    for name in ["clashes", "beside"] {
        let note = until("an event that says so", DEADLINE, || event_about(&world, name)).await.unwrap();
        assert!(note.contains("is there already and does not belong to Greeting"), "{note}");
        let found = world.config_maps().get(name).await.unwrap();
        assert_eq!(found.metadata.owner_references, None);
        assert_eq!(found.metadata.labels, None);
        assert_eq!(found.data.unwrap().len(), 1, "{name}");
        stays_quiet(&operator).await;
        // Out of the way, it is made anew.
        world.config_maps().delete(name, &DeleteParams::default()).await.unwrap();
        world.change(name, "friend").await;
        world.says(name, "Hello, friend!").await;
    }
    operator.stop().await;
}

pub async fn event_about(world: &World, name: &str) -> Look<String> {
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(world.client.clone(), &world.namespace);
    let events = events.list(&Default::default()).await.unwrap().items;
    let about = events.into_iter().find(|event| {
        event.regarding.as_ref().is_some_and(|regarding| regarding.name.as_deref() == Some(name))
    });
    match about.and_then(|event| event.note) {
        Some(note) => Look::There(note),
        None => Look::NotYet("no event".into()),
    }
}

#[tokio::test]
async fn one_that_is_deleted_and_made_again_gets_children_of_its_own() {
    let world = World::new("again").await;
    world.greet("hello", "world").await;
    let operator = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;
    // There is no garbage collector here: the child of the old one stays until somebody removes it.
    world.greetings().delete("hello", &DeleteParams::default()).await.unwrap();
    let second = world.greet("hello", "again").await;
    let note = until("an event that says so", DEADLINE, || event_about(&world, "hello")).await.unwrap();
    assert!(note.contains("it belongs to Greeting hello"), "{note}");
    world.config_maps().delete("hello", &DeleteParams::default()).await.unwrap();
    world.says("hello", "Hello, again!").await;
    let owners = world.config_maps().get("hello").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!(Some(&owners[0].uid), second.metadata.uid.as_ref());
    operator.stop().await;
}
