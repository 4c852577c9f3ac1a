//! What is printed of changes, from a database that is made by hand.

use jiff::Timestamp;
use keelson_api::v1::Database;
use keelson_operator::database::children::{self, Children};
use keelson_operator::database::foretell::foretell;
use keelson_operator::database::observe::{Found, facts};
use serde_json::{Value, json};

use super::facts::{ChildFact, Facts};
use super::proposal::Proposal;
use super::text;
use super::view::{PlanView, Verdict, view};
use crate::commands::golden::golden;
use crate::commands::output::{Format, machine};
use crate::commands::paint::Paint;

const IMAGE: &str = "keelson:0.1.0";

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn database(spec: Value, annotations: Value) -> Database {
    serde_json::from_value(json!({
        "apiVersion": "keelson.dev/v1", "kind": "Database",
        "metadata": {
            "name": "orders", "namespace": "shop", "uid": "1", "generation": 1,
            "creationTimestamp": "2026-11-10T09:00:00Z", "annotations": annotations
        },
        "spec": spec, "status": {"phase": "Running", "version": "17.5"}
    }))
    .unwrap()
}

/// The pods and volumes of one that runs, each made for what `asked` stands for.
fn pods(count: u32, asked: &str) -> Found {
    let pod = |ordinal: u32| {
        let role = if ordinal == 0 { "primary" } else { "synchronous" };
        let report = json!({
            "role": role, "writable": ordinal == 0, "leader": "orders-0", "epoch": 3, "lagBytes": 0, "systemId": "7",
            "version": "17.5", "settings": "f"
        });
        json!({
            "metadata": {
                "name": format!("orders-{ordinal}"), "uid": format!("p{ordinal}"),
                "creationTimestamp": "2026-11-10T09:01:00Z",
                "annotations": {"keelson.dev/asked": asked, "keelson.dev/report": report.to_string()}
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}
        })
    };
    let claim = |ordinal: u32| {
        json!({
            "metadata": {
                "name": format!("data-orders-{ordinal}"), "labels": {"keelson.dev/database-uid": "1"},
                "creationTimestamp": "2026-11-10T09:01:00Z"
            },
            "spec": {"resources": {"requests": {"storage": "10Gi"}}}, "status": {"phase": "Bound"}
        })
    };
    let of = |make: &dyn Fn(u32) -> Value| Value::Array((0..count).map(make).collect());
    Found {
        pods: serde_json::from_value(of(&pod)).unwrap(),
        claims: serde_json::from_value(of(&claim)).unwrap(),
        ..Found::default()
    }
}

/// The children that one has by its own plan.
fn made(live: &Database, found: Found) -> Children {
    let story = foretell(&facts(live, found, String::new(), IMAGE), now());
    children::children(&story.first.wanted.unwrap()).unwrap()
}

/// A database of three that runs as asked.
fn running(live: &Database) -> (Found, Vec<(String, String, Value)>) {
    let asked = |children: &Children| {
        let template = &children.set.spec.as_ref().unwrap().template;
        template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()["keelson.dev/asked"].clone()
    };
    let owner = json!([{"apiVersion": "keelson.dev/v1", "kind": "Database", "name": "orders", "uid": "1"}]);
    let mut children = made(live, pods(3, ""));
    let mut found = pods(3, &asked(&children));
    // Once more, since what agents are told says which database it is, and that is known from them.
    for _ in 0..2 {
        children.config.metadata.owner_references = serde_json::from_value(owner.clone()).unwrap();
        children.set.metadata.owner_references = serde_json::from_value(owner.clone()).unwrap();
        found.config = Some(children.config.clone());
        found.set = Some(children.set.clone());
        children = made(live, found.clone());
    }
    (found, listed(children))
}

fn listed(children: Children) -> Vec<(String, String, Value)> {
    let Children { config, account, role, binding, set, instances, writers, readers, disruption } = children;
    let all = [
        ("ConfigMap", json!(config)),
        ("ServiceAccount", json!(account)),
        ("Role", json!(role)),
        ("RoleBinding", json!(binding)),
        ("StatefulSet", json!(set)),
        ("Service", json!(instances)),
        ("Service", json!(writers)),
        ("Service", json!(readers)),
        ("PodDisruptionBudget", json!(disruption)),
    ];
    let name = |value: &Value| value["metadata"]["name"].as_str().unwrap().to_owned();
    all.into_iter().map(|(kind, value)| (kind.to_owned(), name(&value), value)).collect()
}

fn planned(proposal: Proposal, found: Found, there: &[(String, String, Value)]) -> PlanView {
    let seen = facts(&proposal.next, found, String::new(), IMAGE);
    let story = foretell(&seen, now());
    let desired = story.first.wanted.as_ref().map(|wanted| listed(children::children(wanted).unwrap()));
    let children = desired.unwrap_or_default().into_iter().map(|(kind, name, desired)| {
        let found = there.iter().find(|(one, other, _)| *one == kind && *other == name);
        ChildFact { found: found.map(|(.., value)| value.clone()), unread: None, kind, name, desired }
    });
    view(&Facts { children: children.collect(), seen, story, rotates: false, proposal })
}

fn change(before: Value, after: Value) -> PlanView {
    let live = database(before, json!({}));
    let (found, there) = running(&live);
    let proposal =
        Proposal { next: database(after, json!({})), live: Some(live), refused: None, notes: Vec::new() };
    planned(proposal, found, &there)
}

fn print(view: PlanView) -> String {
    text::plans(&[view], &[], Paint::OFF)
}

#[test]
fn where_all_is_as_asked_there_is_nothing_to_do() {
    let view = change(json!({"replicas": 3}), json!({"replicas": 3}));
    assert_eq!(print(view.clone()), "shop/orders: nothing to do\n");
    assert_eq!(view.verdict, Verdict::Nothing);
}

#[test]
fn a_new_database_is_told_with_all_that_is_made() {
    let next = database(json!({"replicas": 3, "autopilot": "act"}), json!({}));
    let next = Database { status: None, ..next };
    let proposal = Proposal { live: None, next, refused: None, notes: Vec::new() };
    let view = planned(proposal, Found::default(), &[]);
    assert_eq!(view.verdict, Verdict::Changes);
    golden("plan-new.txt", &print(view));
}

#[test]
fn a_change_that_replaces_pods_is_told_in_its_order() {
    let view = change(
        json!({"replicas": 3}),
        json!({"replicas": 3, "resources": {"memory": "2Gi"}, "parameters": {"work_mem": "8MB"}, "storage": "20Gi"}),
    );
    assert_eq!(view.verdict, Verdict::Restarts);
    golden("plan-resources.txt", &print(view.clone()));
    golden("plan-resources.json", &machine(Format::Json, &vec![view]).unwrap());
}

#[test]
fn a_change_that_disturbs_nobody_is_told_as_such() {
    let view = change(json!({"replicas": 3}), json!({"replicas": 3, "parameters": {"work_mem": "8MB"}}));
    assert_eq!(view.verdict, Verdict::Changes);
    golden("plan-reload.txt", &print(view));
}

#[test]
fn fewer_instances_and_more_are_told_with_what_becomes_of_volumes() {
    golden("plan-fewer.txt", &print(change(json!({"replicas": 3}), json!({"replicas": 1}))));
    golden("plan-more.txt", &print(change(json!({"replicas": 3}), json!({"replicas": 5}))));
}

#[test]
fn what_would_be_refused_is_told_and_by_whom() {
    let by_operator =
        change(json!({"replicas": 3, "version": "17"}), json!({"replicas": 3, "version": "18"}));
    assert_eq!(by_operator.verdict, Verdict::Refused);
    golden("plan-refused-operator.txt", &print(by_operator));
    let live = database(json!({"engine": "postgres"}), json!({}));
    let refused =
        "Database.keelson.dev \"orders\" is invalid: spec: Invalid value: the engine can't be changed";
    let proposal = Proposal {
        next: database(json!({"engine": "mysql"}), json!({})),
        live: Some(live),
        refused: Some(refused.to_owned()),
        notes: Vec::new(),
    };
    golden("plan-refused-cluster.txt", &print(planned(proposal, Found::default(), &[])));
}

#[test]
fn a_restart_that_is_asked_for_is_told() {
    let live = database(json!({"replicas": 3}), json!({}));
    let (found, there) = running(&live);
    let next = database(json!({"replicas": 3}), json!({"keelson.dev/restart-instances": "now"}));
    let view = planned(Proposal { live: Some(live), next, refused: None, notes: Vec::new() }, found, &there);
    assert_eq!(view.verdict, Verdict::Restarts);
    let words: Vec<&str> = view.steps.iter().map(|step| step.what).collect();
    assert_eq!(words, ["replace", "replace", "handOver", "replace"]);
}
