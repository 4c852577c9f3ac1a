//! Stories that are told of changes, from facts made by hand.

use keelson_api::v1::DatabaseStatus;
use serde_json::{Value, json};

use super::*;
use crate::database::facts::Lately;

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn fresh(spec: Value) -> Observed {
    Observed {
        name: "orders".to_owned(),
        namespace: "shop".to_owned(),
        uid: "1".to_owned(),
        made: now(),
        generation: Some(1),
        spec: serde_json::from_value(spec).unwrap(),
        status: DatabaseStatus::default(),
        discard: None,
        adopt: false,
        restart: None,
        secrets_mark: String::new(),
        config: None,
        account: None,
        set: None,
        instances: Vec::new(),
        claims: Vec::new(),
        backups: Vec::new(),
        drill: Default::default(),
        source: None,
        lately: Lately::default(),
        agent_image: "keelson:0.1.0".to_owned(),
    }
}

/// One that runs as asked, and has for a while.
fn running(spec: Value) -> Observed {
    let mut world = World { seen: fresh(spec), running: None, restarted: Vec::new(), now: now() };
    for _ in 0..20 {
        let made = plan(&world.seen, now());
        world.act(&made);
        world.play(&made);
    }
    assert_eq!(words(&foretell(&world.seen, now())), [""; 0], "it has settled");
    world.seen
}

fn asked_for(seen: &Observed, spec: Value) -> Observed {
    Observed { spec: serde_json::from_value(spec).unwrap(), generation: Some(2), ..seen.clone() }
}

fn words(story: &Story) -> Vec<String> {
    let word = |told: &Told| match told {
        Told::Scale { from, to } => format!("{from} to {to}"),
        Told::Take(Step::Replace { pod, .. }) => format!("replace {pod}"),
        Told::Take(Step::Restart { pod, .. }) => format!("restart {pod}"),
        Told::Take(Step::HandOver { from, to }) => format!("{from} hands over to {to}"),
        Told::Take(Step::Grow { claim, to }) => format!("{claim} grows to {to}"),
        Told::Take(Step::Remake { .. }) => "remake".to_owned(),
        Told::Take(other) => format!("{other:?}"),
    };
    story.turns.iter().map(word).collect()
}

fn told(seen: &Observed, spec: Value) -> Vec<String> {
    words(&foretell(&asked_for(seen, spec), now()))
}

#[test]
fn a_new_database_is_made_and_then_nothing_is_left_to_be_done() {
    let story = foretell(&fresh(json!({"replicas": 3})), now());
    assert_eq!(words(&story), ["0 to 3"]);
    assert!(story.first.secrets.is_some() && story.last.secrets.is_none());
}

#[test]
fn other_resources_replace_replicas_first_and_the_leader_last_after_it_has_handed_over() {
    let seen = running(json!({"replicas": 3}));
    let told = told(&seen, json!({"replicas": 3, "resources": {"memory": "2Gi"}}));
    assert_eq!(
        told,
        ["replace orders-2", "replace orders-1", "orders-0 hands over to orders-1", "replace orders-0"]
    );
    let alone = running(json!({"replicas": 1}));
    let told = super::tests::told(&alone, json!({"replicas": 1, "resources": {"memory": "2Gi"}}));
    assert_eq!(told, ["replace orders-0"]);
}

#[test]
fn parameters_restart_instances_only_where_postgresql_needs_it() {
    let seen = running(json!({"replicas": 2}));
    assert_eq!(told(&seen, json!({"replicas": 2, "parameters": {"work_mem": "8MB"}})), [""; 0]);
    let told = told(&seen, json!({"replicas": 2, "parameters": {"shared_buffers": "256MB"}}));
    assert_eq!(told, ["restart orders-1", "orders-0 hands over to orders-1", "restart orders-0"]);
}

#[test]
fn the_leader_restarts_first_and_in_place_where_a_replica_may_not_have_less() {
    let seen = running(json!({"replicas": 2, "parameters": {"max_connections": 300}}));
    let told = told(&seen, json!({"replicas": 2, "parameters": {"max_connections": 100}}));
    assert_eq!(told, ["restart orders-0", "restart orders-1"]);
}

#[test]
fn fewer_instances_wait_until_the_leader_is_one_that_stays() {
    let mut seen = running(json!({"replicas": 3}));
    let mut world = World { seen: seen.clone(), running: None, restarted: Vec::new(), now: now() };
    world.leads("orders-2");
    seen = world.seen;
    assert_eq!(told(&seen, json!({"replicas": 1})), ["orders-2 hands over to orders-0", "3 to 1"]);
}

#[test]
fn volumes_grow_before_the_template_follows() {
    let seen = running(json!({"replicas": 1, "storage": "10Gi"}));
    let told = told(&seen, json!({"replicas": 1, "storage": "20Gi"}));
    assert_eq!(told[0], "data-orders-0 grows to 20Gi");
    assert!(told.contains(&"remake".to_owned()), "{told:?}");
    assert!(!told.iter().any(|word| word.starts_with("replace")), "{told:?}");
}

#[test]
fn what_can_t_be_done_is_told_and_nothing_else() {
    let seen = running(json!({"replicas": 1, "version": "17"}));
    let story = foretell(&asked_for(&seen, json!({"replicas": 1, "version": "18"})), now());
    assert_eq!(words(&story), [""; 0]);
    assert!(story.first.wanted.is_none());
    let reasons: Vec<&str> = story.first.findings.iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons.contains(&"MajorUpgradeNotSupported"), "{reasons:?}");
}

#[test]
fn what_nobody_can_foretell_is_waited_for() {
    let mut seen = running(json!({"replicas": 3}));
    seen.instances[2].ready = false;
    let story =
        foretell(&asked_for(&seen, json!({"replicas": 3, "parameters": {"shared_buffers": "256MB"}})), now());
    assert_eq!(words(&story), [""; 0], "no other instance is taken away while one is");
    let waits = story.last.findings.iter().find(|one| one.kind == "Progressing").unwrap();
    assert!(waits.message.contains("waits until orders-2 serves"), "{}", waits.message);
}

#[test]
fn a_restart_that_a_person_asks_for_replaces_each_instance_once() {
    let seen = running(json!({"replicas": 2}));
    let asked = Observed { restart: Some("2026-11-16".to_owned()), ..seen };
    let story = foretell(&asked, now());
    assert_eq!(words(&story), ["replace orders-1", "orders-0 hands over to orders-1", "replace orders-0"]);
}
