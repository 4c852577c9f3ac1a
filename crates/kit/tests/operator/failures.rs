//! Reconcilers that panic, hang, or fail for ever, and objects that mean nothing: their own affair.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use keelson_kit::retry::{Class, Classify};
use keelson_kit::{Kind, Next, Reconciler, Round};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Look, until};
use thiserror::Error;

use crate::greeting::{Greeter, Greeting};
use crate::world::{DEADLINE, SECOND, World};

/// Does what it is told by the name of who is to be greeted.
struct Moody;

#[derive(Debug, Error)]
enum Mood {
    #[error(transparent)]
    Kit(#[from] keelson_kit::Error),
    #[error("in no mood")]
    Fails,
    #[error("never greets strangers: choose another name")]
    Refuses,
}

impl Classify for Mood {
    fn class(&self) -> Class {
        match self {
            Mood::Kit(error) => error.class(),
            Mood::Fails => Class::Transient,
            Mood::Refuses => Class::Permanent,
        }
    }
}

impl Reconciler for Moody {
    type Object = Greeting;
    type Error = Mood;

    async fn reconcile(&self, greeting: &Greeting, round: &mut Round) -> Result<Next, Mood> {
        match greeting.spec.name.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "fails" => Err(Mood::Fails),
            "stranger" => Err(Mood::Refuses),
            _ => Ok(Greeter.reconcile(greeting, round).await?),
        }
    }
}

fn kind() -> Kind<Moody> {
    Kind::new(Moody).owns::<ConfigMap>().deadline(SECOND)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_panics_hangs_or_fails_for_ever_disturbs_no_other_and_is_counted() {
    let world = World::new("moody").await;
    for mood in ["panics", "hangs", "fails", "stranger"] {
        world.greet(mood, mood).await;
    }
    let operator = world.operator(kind()).await;
    until("each mood to have shown", DEADLINE, || async {
        let counted = |result: &str| {
            let label = format!("result=\"{result}\"");
            operator.metric("test_reconciliation_duration_seconds_count", &[&label])
        };
        let all = ["panic", "timeout", "transient", "permanent"].map(counted);
        if all.iter().all(|count| *count >= 1.0) { Look::There(()) } else { Look::NotYet(format!("{all:?}")) }
    })
    .await
    .unwrap();
    for number in 0..20 {
        world.greet(&format!("well-{number}"), "world").await;
    }
    for number in 0..20 {
        world.says(&format!("well-{number}"), "Hello, world!").await;
    }
    // Each recovers as soon as it is changed.
    for mood in ["panics", "hangs", "fails", "stranger"] {
        world.change(mood, "world").await;
        world.says(mood, "Hello, world!").await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_failure_that_stays_is_a_condition_and_is_not_tried_again() {
    let world = World::new("refused").await;
    world.greet("hello", "stranger").await;
    let operator = world.operator(kind()).await;
    let ready = until("a condition", DEADLINE, || async {
        let greeting = world.greetings().get("hello").await.unwrap();
        match greeting.status.unwrap_or_default().conditions.into_iter().next() {
            Some(condition) => Look::There(condition),
            None => Look::NotYet("none".into()),
        }
    })
    .await
    .unwrap();
    assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "False"));
    assert_eq!(ready.message, "never greets strangers: choose another name");
    assert_eq!(ready.observed_generation, Some(1));
    let end = std::time::Instant::now() + 2 * SECOND;
    until("some time to pass with the one round", DEADLINE, || async {
        match operator.rounds() {
            1.0 if std::time::Instant::now() > end => Look::There(()),
            few if few <= 1.0 => Look::NotYet("so far so good".into()),
            some => Look::Never(format!("{some} rounds")),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn an_object_that_means_nothing_is_told_so_and_disturbs_no_other() {
    // A definition without a schema lets anything in.
    let world = World::new("unreadable").await;
    let group = json!({
        "metadata": {"name": "riddles.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Riddle", "plural": "riddles", "singular": "riddle"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
            }]
        }
    });
    let crds: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(world.client.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(group).unwrap()).await.unwrap();
    let resource = ApiResource::erase::<Riddle>(&());
    let riddles: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    for (name, spec) in [("good", json!({"name": "world"})), ("bad", json!({"name": {"first": "Wo"}}))] {
        until("riddles are served", DEADLINE, || async {
            let riddle = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
            match riddles.create(&PostParams::default(), &riddle).await {
                Ok(_) => Look::There(()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
        .await
        .unwrap();
    }
    let operator = world.operator(Kind::new(Solver)).await;
    for (name, status) in [("good", "True"), ("bad", "False")] {
        let message = until(&format!("a condition of {name}"), DEADLINE, || async {
            let riddle = riddles.get(name).await.unwrap();
            let ready = riddle.data.pointer("/status/conditions/0").cloned().unwrap_or_default();
            if ready["status"] == status {
                Look::There(ready["message"].as_str().unwrap_or_default().to_owned())
            } else {
                Look::NotYet(ready.to_string())
            }
        })
        .await
        .unwrap();
        if name == "bad" {
            assert!(message.contains("Riddle unreadable/bad can't be read: invalid type: map"), "{message}");
        }
    }
    let mended = Patch::Merge(json!({"spec": {"name": "Wo"}}));
    riddles.patch("bad", &PatchParams::default(), &mended).await.unwrap();
    until("it is ready once it is corrected", DEADLINE, || async {
        let riddle = riddles.get("bad").await.unwrap();
        match riddle.data.pointer("/status/conditions/0/status") {
            Some(status) if status == "True" => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

/// Whom to greet, where nobody checks.
#[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Riddle", namespaced)]
struct RiddleSpec {
    name: String,
}

struct Solver;

impl Reconciler for Solver {
    type Object = Riddle;
    type Error = keelson_kit::Error;

    async fn reconcile(&self, riddle: &Riddle, round: &mut Round) -> Result<Next, Self::Error> {
        let solved = keelson_kit::conditions::Finding {
            kind: "Ready".into(),
            holds: Some(true),
            reason: "Solved".into(),
            message: riddle.spec.name.clone(),
        };
        round.report(&[solved]).await?;
        Ok(Next::After(Duration::from_secs(3600)))
    }
}

#[tokio::test]
async fn a_storm_of_edits_costs_few_rounds_and_ends_right() {
    let world = World::new("storm").await;
    world.greet("hello", "0").await;
    let operator = world.operator(Kind::new(Greeter).owns::<ConfigMap>()).await;
    world.says("hello", "Hello, 0!").await;
    let (before, start) = (operator.rounds(), std::time::Instant::now());
    for number in 1..=300 {
        world.change("hello", &number.to_string()).await;
    }
    let took = start.elapsed().as_secs_f64();
    world.says("hello", "Hello, 300!").await;
    let rounds = operator.rounds() - before;
    // At most one in half a second, and now and then one more for a conflict.
    assert!(rounds <= 2.0 * (took * 2.0 + 2.0), "{rounds} rounds for 300 edits in {took} s");
    operator.stop().await;
}
