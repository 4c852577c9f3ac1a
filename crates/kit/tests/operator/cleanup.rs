//! Clean-up in steps, taken up where it stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use keelson_kit::retry::{Class, Classify};
use keelson_kit::{Kind, Next, Reconciler, Round};
use kube::api::DeleteParams;
use testbed::{Look, until};
use thiserror::Error;

use crate::greeting::{Greeter, Greeting};
use crate::world::{DEADLINE, World};

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Kit(#[from] keelson_kit::Error),
    #[error("the store does not answer")]
    Store,
}

impl Classify for Failure {
    fn class(&self) -> Class {
        match self {
            Failure::Kit(error) => error.class(),
            Failure::Store => Class::Transient,
        }
    }
}

/// Says goodbye in three steps, of which the second works only when the store is up.
#[derive(Clone, Default)]
struct Polite {
    steps: Arc<Mutex<Vec<&'static str>>>,
    store_is_up: Arc<AtomicBool>,
}

impl Reconciler for Polite {
    type Object = Greeting;
    type Error = Failure;
    const CLEANUP: &'static [&'static str] = &["wave", "store", "leave"];

    async fn reconcile(&self, greeting: &Greeting, round: &mut Round) -> Result<Next, Failure> {
        Ok(Greeter.reconcile(greeting, round).await?)
    }

    async fn clean(&self, step: &'static str, _: &Greeting, _: &mut Round) -> Result<(), Failure> {
        self.steps.lock().unwrap().push(step);
        match step {
            "store" if !self.store_is_up.load(Ordering::SeqCst) => Err(Failure::Store),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_step_that_failed_is_tried_again_by_another_process_and_those_before_it_are_not() {
    let world = World::new("cleanup").await;
    world.greet("hello", "world").await;
    let polite = Polite::default();
    let kind = || Kind::new(polite.clone()).owns::<ConfigMap>();
    let first = world.operator(kind()).await;
    world.says("hello", "Hello, world!").await;
    let protected = world.greetings().get("hello").await.unwrap().metadata.finalizers;
    assert_eq!(protected, Some(vec!["example.dev/greeting".to_owned()]));

    world.greetings().delete("hello", &DeleteParams::default()).await.unwrap();
    until("the second step to have failed", DEADLINE, || async {
        match polite.steps.lock().unwrap().as_slice() {
            ["wave", "store", ..] => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    assert!(world.greetings().get_opt("hello").await.unwrap().is_some(), "it is kept until all is done");
    first.crash();

    polite.store_is_up.store(true, Ordering::SeqCst);
    let second = world.operator(kind()).await;
    until("it is gone", DEADLINE, || async {
        match world.greetings().get_opt("hello").await.unwrap() {
            None => Look::There(()),
            Some(greeting) => Look::NotYet(format!("{:?}", greeting.metadata)),
        }
    })
    .await
    .unwrap();
    let steps = polite.steps.lock().unwrap().clone();
    assert_eq!(steps.iter().filter(|step| **step == "wave").count(), 1, "{steps:?}");
    assert_eq!(steps.last(), Some(&"leave"), "{steps:?}");
    second.stop().await;
}
