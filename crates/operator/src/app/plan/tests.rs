//! Every branch of the plan, from facts made by hand.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use keelson_api::v1::{App, AppPort, Autoscale, Binding};
use keelson_kit::events::Severity;
use serde_json::{Value, json};

use super::*;
use crate::app::facts::{DatabaseFact, Has};

fn spec(spec: Value) -> AppSpec {
    let mut whole = json!({"image": "shop:1", "ports": [{"name": "http", "port": 8080}]});
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn fresh(fields: Value) -> Observed {
    Observed {
        name: "shop".into(),
        namespace: "apps".into(),
        generation: Some(1),
        spec: spec(fields),
        pooler_image: "bouncer:1".into(),
        ..Observed::default()
    }
}

fn database(revision: &str) -> Option<DatabaseFact> {
    let binding = Some(Binding { name: "orders-app".into(), revision: Some(revision.into()) });
    Some(DatabaseFact { ready: true, why: String::new(), binding })
}

/// As the Deployment's controller has it, once all is as the plan wants it.
fn carried_out(seen: &Observed) -> Observed {
    let mut seen = said(seen);
    let wanted = plan(&seen).wanted.unwrap();
    let before = seen.deployment.clone().unwrap_or_default();
    let pods = wanted.pods.unwrap_or(before.desired);
    seen.deployment = Some(DeploymentFact {
        asked: Some(wanted.revision.asked.clone()),
        credentials: wanted.credentials.clone(),
        desired: pods,
        is_seen: true,
        pods,
        updated: pods,
        ready: pods,
        available: pods,
        last_ready: wanted.last_ready.clone(),
        undone: wanted.undone.clone(),
        ..before
    });
    seen.has = Has {
        service: !wanted.ports.is_empty(),
        autoscaler: wanted.autoscale.is_some(),
        disruption: wanted.several,
    };
    seen
}

/// Carried out until nothing changes any more.
fn settled(seen: &Observed) -> Observed {
    let mut seen = seen.clone();
    for _ in 0..5 {
        let next = carried_out(&seen);
        if next == seen {
            return seen;
        }
        seen = next;
    }
    panic!("it never settles: {seen:#?}");
}

/// With the status that is said of it.
fn said(seen: &Observed) -> Observed {
    let Plan { mut status, findings, .. } = plan(seen);
    let now = Time("2026-11-18T12:00:00Z".parse().unwrap());
    status.conditions = keelson_kit::conditions::merge(&status.conditions, &findings, Some(1), &now);
    Observed { status, ..seen.clone() }
}

fn phase(plan: &Plan) -> &str {
    plan.status.phase.as_ref().unwrap().as_str()
}

fn found<'a>(plan: &'a Plan, kind: &str) -> (bool, &'a str, &'a str) {
    let finding = plan.findings.iter().find(|one| one.kind == kind).unwrap();
    (finding.holds.unwrap(), &finding.reason, &finding.message)
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.news.iter().map(|news| news.reason.as_str()).collect()
}

fn broken(seen: &Observed, reason: &str) -> PodFact {
    let asked = Some(asked(&seen.spec, seen.restart.as_deref()));
    let trouble = Some(Trouble::new(reason, "it is broken"));
    PodFact { name: "shop-1".into(), asked, trouble, ..PodFact::default() }
}

/// One that runs `shop:1` and is told to run `shop:2`, of which one pod was made that does not become ready.
fn rolling_to(image: &str) -> Observed {
    let mut seen = settled(&fresh(json!({"replicas": 3})));
    seen.spec.image = image.into();
    seen.generation = Some(2);
    let before = seen.deployment.clone().unwrap();
    let mut seen = carried_out(&seen);
    let deployment = seen.deployment.as_mut().unwrap();
    deployment.last_ready = before.last_ready;
    (deployment.pods, deployment.updated, deployment.ready, deployment.available) = (4, 1, 3, 3);
    seen.pods = vec![broken(&seen, "ImagePull")];
    said(&seen)
}

#[test]
fn an_app_is_made_rolled_out_and_then_left_alone() {
    let seen = fresh(json!({"replicas": 2}));
    let first = plan(&seen);
    let wanted = first.wanted.clone().unwrap();
    assert_eq!((phase(&first), wanted.pods, wanted.several), ("Progressing", Some(2), true));
    assert_eq!(found(&first, "Progressing"), (true, "RollingOut", "0 of 2 pods are updated, 0 are ready"));
    assert_eq!(reasons(&first), ["RollingOut"]);
    assert!(wanted.last_ready.is_none() && wanted.credentials.is_none());

    let done = plan(&carried_out(&seen));
    assert_eq!((phase(&done), found(&done, "Ready").0), ("Running", true));
    assert_eq!(reasons(&done), ["RolledOut"]);
    let kept = done.wanted.as_ref().unwrap().last_ready.as_ref().unwrap();
    assert_eq!(kept.image, "shop:1");
    assert_eq!(done.status.ready_image.as_deref(), Some("shop:1"));
    assert_eq!(done.status.selector.as_deref(), Some("keelson.dev/app=shop"));

    // The note of what was ready is a change of the Deployment that its controller has still to see.
    let mut noted = carried_out(&carried_out(&seen));
    noted.deployment.as_mut().unwrap().is_seen = false;
    assert_eq!((phase(&plan(&noted)), plan(&noted).news), ("Running", Vec::new()));

    let steady = settled(&seen);
    let next = plan(&steady);
    assert_eq!((next.status.phase, &next.news), (steady.status.phase.clone(), &Vec::new()));
    assert_eq!(next.wanted.unwrap().last_ready, steady.deployment.unwrap().last_ready);
}

#[test]
fn an_app_waits_for_its_database_and_says_so() {
    let mut seen = fresh(json!({"database": "orders"}));
    let none = plan(&seen);
    assert!(none.wanted.is_none());
    assert_eq!((phase(&none), found(&none, "Ready").1), ("Pending", "DatabaseMissing"));
    assert_eq!(reasons(&none), ["Waiting"]);
    seen.database = Some(DatabaseFact { why: "no instance leads".into(), ..DatabaseFact::default() });
    let later = plan(&said(&seen));
    assert!(later.wanted.is_none());
    assert_eq!((phase(&later), found(&later, "DatabaseReady").1), ("Pending", "DatabaseNotReady"));
    assert!(found(&later, "Ready").2.contains("no instance leads"));
    seen.database = database("one");
    let goes = plan(&seen);
    assert_eq!((phase(&goes), found(&goes, "DatabaseReady").0), ("Progressing", true));
    assert_eq!(goes.wanted.unwrap().credentials.as_deref(), Some("one"));
    assert_eq!(goes.status.binding.as_deref(), Some("orders-app"));
}

#[test]
fn a_database_that_fails_over_restarts_nothing() {
    let mut seen = fresh(json!({"database": "orders"}));
    seen.database = database("one");
    let mut seen = settled(&seen);
    let before = plan(&seen).wanted;
    let ready = seen.database.as_mut().unwrap();
    (ready.ready, ready.why) = (false, "nobody leads".into());
    let during = plan(&seen);
    assert_eq!((&during.wanted, phase(&during)), (&before, "Running"));
    assert_eq!(
        found(&during, "DatabaseReady"),
        (false, "DatabaseNotReady", "Database orders takes no writes yet: nobody leads")
    );
    // Nothing is said of its credentials while it is read anew.
    seen.database.as_mut().unwrap().binding = None;
    assert_eq!(plan(&seen).wanted, before);
}

#[test]
fn a_database_that_is_gone_is_said_and_what_runs_goes_on() {
    let mut seen = fresh(json!({"database": "orders"}));
    seen.database = database("one");
    let mut seen = settled(&seen);
    let before = plan(&seen).wanted;
    seen.database = None;
    let after = plan(&seen);
    assert_eq!((phase(&after), found(&after, "Degraded").1), ("Degraded", "DatabaseMissing"));
    assert_eq!(after.wanted, before);
    // A Deployment that somebody removed meanwhile is made again once there is a database.
    seen.deployment = None;
    assert!(plan(&seen).wanted.is_none());
    seen.database = Some(DatabaseFact::default());
    assert!(plan(&seen).wanted.is_some(), "it has run before: it does not wait");
}

#[test]
fn another_database_is_waited_for_while_the_old_pods_serve() {
    let mut seen = fresh(json!({"database": "orders"}));
    seen.database = database("one");
    let mut seen = settled(&seen);
    let before = plan(&seen).wanted.unwrap();
    seen.spec.database = Some("others".into());
    seen.database = None;
    let waits = plan(&seen);
    let wanted = waits.wanted.clone().unwrap();
    assert_eq!((&wanted.revision.asked, &wanted.credentials), (&before.revision.asked, &before.credentials));
    assert_eq!((phase(&waits), found(&waits, "Degraded").1), ("Degraded", "DatabaseMissing"));
    seen.database = Some(DatabaseFact {
        binding: Some(Binding { name: "others-app".into(), revision: Some("two".into()) }),
        ready: true,
        why: String::new(),
    });
    let goes = plan(&seen).wanted.unwrap();
    assert_ne!(goes.revision.asked, before.revision.asked);
    assert_eq!(goes.credentials.as_deref(), Some("two"));
}

#[test]
fn other_credentials_are_rolled_out_as_the_same_revision() {
    let mut seen = fresh(json!({"database": "orders", "replicas": 2}));
    seen.database = database("one");
    let mut seen = settled(&seen);
    let before = plan(&seen).wanted.unwrap();
    seen.database = database("two");
    let after = plan(&seen);
    let wanted = after.wanted.clone().unwrap();
    assert_eq!(
        (wanted.credentials.as_deref(), &wanted.revision.template),
        (Some("two"), &before.revision.template)
    );
    assert_eq!((phase(&after), found(&after, "Progressing").1), ("Progressing", "RollingOut"));
    // One that gets stuck is not taken back: the old credentials are of no use any more.
    let mut stuck = carried_out(&seen);
    let deployment = stuck.deployment.as_mut().unwrap();
    (deployment.stalled, deployment.updated, deployment.pods) = (true, 1, 3);
    stuck.pods = vec![broken(&stuck, "CrashLoop")];
    let stuck = plan(&stuck);
    assert!(!stuck.undoes && stuck.wanted.unwrap().credentials.as_deref() == Some("two"));
    assert_eq!(stuck.findings.iter().find(|one| one.kind == "Degraded").unwrap().reason, "CrashLoop");
    let kept = settled(&seen).deployment.unwrap().last_ready.unwrap();
    assert_eq!(kept.credentials.as_deref(), Some("two"));
}

#[test]
fn a_revision_that_does_not_become_ready_in_time_is_taken_back_and_stays_so() {
    let mut seen = rolling_to("shop:2");
    let waits = plan(&seen);
    assert_eq!((phase(&waits), waits.undoes), ("Progressing", false), "it has its time");
    seen.deployment.as_mut().unwrap().stalled = true;
    let back = plan(&seen);
    let wanted = back.wanted.clone().unwrap();
    assert!(back.undoes);
    assert_eq!(wanted.revision.image, "shop:1");
    assert_eq!(wanted.undone.as_ref().unwrap().reason, "ImagePull");
    assert_eq!(phase(&back), "Degraded");
    let (holds, reason, message) = found(&back, "Degraded");
    assert!(
        holds && reason == "ImagePull" && message.contains("shop:2 was taken back to shop:1: it is broken"),
        "{message}"
    );
    assert_eq!(reasons(&back), ["TakenBack"]);
    assert_eq!(back.news[0].severity, Severity::Warning);
    assert!(found(&back, "Ready").0, "the old pods serve all the while");

    let settled = settled(&seen);
    let stays = plan(&settled);
    assert_eq!((phase(&stays), stays.undoes, &stays.news), ("Degraded", false, &Vec::new()));
    assert_eq!(stays.wanted.unwrap().revision.image, "shop:1");
    assert_eq!(stays.status.ready_image.as_deref(), Some("shop:1"));

    // Another number of pods is no reason to try it again.
    let mut more = settled.clone();
    more.spec.replicas = Some(4);
    let more = plan(&more).wanted.unwrap();
    assert_eq!((more.pods, more.revision.image.as_str()), (Some(4), "shop:1"));
}

#[test]
fn what_was_taken_back_is_tried_again_when_the_spec_changes_or_a_person_asks() {
    let mut seen = rolling_to("shop:2");
    seen.deployment.as_mut().unwrap().stalled = true;
    let seen = settled(&seen);
    let mut third = seen.clone();
    third.spec.image = "shop:3".into();
    let wanted = plan(&third).wanted.unwrap();
    assert_eq!((wanted.revision.image.as_str(), wanted.undone), ("shop:3", None));
    let mut first = seen.clone();
    first.spec.image = "shop:1".into();
    let first = plan(&first);
    assert_eq!(phase(&first), "Running");
    assert_eq!(first.wanted.unwrap().undone, None);
    let again = Observed { restart: Some("again".into()), ..seen };
    assert_eq!(plan(&again).wanted.unwrap().revision.image, "shop:2");
}

#[test]
fn a_first_revision_that_fails_has_no_way_back_and_is_tried_on() {
    let mut seen = carried_out(&fresh(json!({})));
    let deployment = seen.deployment.as_mut().unwrap();
    (deployment.stalled, deployment.ready, deployment.available, deployment.last_ready) = (true, 0, 0, None);
    seen.pods = vec![broken(&seen, "CrashLoop")];
    let failed = plan(&seen);
    assert_eq!((phase(&failed), failed.undoes), ("Failed", false));
    assert_eq!((found(&failed, "Ready").1, found(&failed, "Progressing").1), ("CrashLoop", "Stalled"));
    assert_eq!(failed.wanted.unwrap().revision.image, "shop:1");
    // What nobody says anything of is said to be that.
    seen.pods.clear();
    assert_eq!(found(&plan(&seen), "Degraded").1, "NotReady");
    seen.deployment.as_mut().unwrap().refused = Some("quota exceeded".into());
    assert_eq!(found(&plan(&seen), "Degraded"), (true, "PodsRefused", "quota exceeded"));
}

#[test]
fn what_a_deployment_says_of_an_older_order_takes_nothing_back() {
    let mut seen = rolling_to("shop:2");
    let deployment = seen.deployment.as_mut().unwrap();
    (deployment.stalled, deployment.is_seen) = (true, false);
    assert!(!plan(&seen).undoes);
    let deployment = seen.deployment.as_mut().unwrap();
    (deployment.is_seen, deployment.asked) = (true, Some("something else".into()));
    assert!(!plan(&seen).undoes);
}

#[test]
fn pods_that_fail_after_they_served_are_said_and_a_scaling_is_none() {
    let mut seen = settled(&fresh(json!({"replicas": 2})));
    seen.deployment.as_mut().unwrap().available = 1;
    assert_eq!((phase(&plan(&seen)), found(&plan(&seen), "Progressing").1), ("Progressing", "Scaling"));
    seen.pods = vec![broken(&seen, "CrashLoop")];
    assert_eq!((phase(&plan(&seen)), found(&plan(&seen), "Degraded").1), ("Degraded", "CrashLoop"));
    seen.deployment.as_mut().unwrap().available = 0;
    let none = plan(&seen);
    assert_eq!((phase(&none), found(&none, "Ready").1), ("Failed", "CrashLoop"));
    seen.pods.clear();
    seen.status = none.status;
    seen.deployment.as_mut().unwrap().available = 2;
    let again = plan(&seen);
    assert_eq!((phase(&again), reasons(&again)), ("Running", vec!["Recovered"]));
}

#[test]
fn none_at_all_is_as_asked_too_and_proves_nothing() {
    let seen = carried_out(&fresh(json!({"replicas": 0})));
    let none = plan(&seen);
    assert_eq!(
        (phase(&none), found(&none, "Ready")),
        ("Running", (true, "ScaledToZero", "no pods are asked for"))
    );
    assert!(none.wanted.unwrap().last_ready.is_none());
}

#[test]
fn an_autoscaler_takes_over_from_where_the_number_is() {
    let mut seen = fresh(json!({"replicas": 9, "autoscale": {"min": 2, "max": 5}}));
    assert_eq!(plan(&seen).wanted.unwrap().pods, Some(5), "within its bounds from the start");
    seen.spec.replicas = None;
    let first = plan(&seen).wanted.unwrap();
    assert_eq!((first.pods, first.several), (Some(2), true));
    let mut seen = settled(&seen);
    seen.deployment.as_mut().unwrap().desired = 3;
    assert_eq!(plan(&seen).wanted.unwrap().pods, Some(3), "one that nobody sets would become 1");
    seen.deployment.as_mut().unwrap().scaled_by_others = true;
    let left = plan(&seen);
    assert_eq!((left.wanted.unwrap().pods, left.status.desired_replicas), (None, Some(3)));
    seen.spec.autoscale = None;
    seen.spec.replicas = Some(4);
    assert_eq!(plan(&seen).wanted.unwrap().pods, Some(4));
    seen.spec.autoscale = Some(Autoscale { min: None, max: 4, cpu_percent: None });
    let deployment = seen.deployment.as_mut().unwrap();
    (deployment.desired, deployment.scaled_by_others) = (0, false);
    assert_eq!(plan(&seen).wanted.unwrap().pods, Some(1), "an autoscaler does nothing about none");
}

#[test]
fn a_newer_operator_restarts_nothing() {
    let mut seen = settled(&fresh(json!({"database": null})));
    let kept = seen.deployment.as_ref().unwrap().last_ready.clone().unwrap();
    seen.pooler_image = "bouncer:2".into();
    assert_eq!(plan(&seen).wanted.unwrap().revision.template, kept.template);
}

#[test]
fn the_time_for_a_roll_out_is_what_a_person_says() {
    assert_eq!(plan(&fresh(json!({}))).wanted.unwrap().deadline, 300);
    assert_eq!(plan(&fresh(json!({"progressDeadline": "30s"}))).wanted.unwrap().deadline, 30);
    assert_eq!(plan(&fresh(json!({"progressDeadline": "odd"}))).wanted.unwrap().deadline, 300);
}

#[test]
fn the_condition_of_a_database_goes_with_it() {
    let mut seen = fresh(json!({"database": "orders"}));
    let mut seen2 = said(&seen);
    assert!(seen2.status.conditions.iter().any(|one: &Condition| one.type_ == "DatabaseReady"));
    seen.spec.database = None;
    seen2.spec = seen.spec;
    assert!(said(&seen2).status.conditions.iter().all(|one| one.type_ != "DatabaseReady"));
}

#[test]
fn ports_are_those_of_the_spec_whatever_revision_runs() {
    let mut seen = settled(&fresh(json!({})));
    seen.spec.ports.push(AppPort { name: "admin".into(), port: 9000 });
    assert_eq!(plan(&seen).wanted.unwrap().ports.len(), 2);
    let app = App::new("shop", seen.spec.clone());
    assert_eq!(app.spec.ports.len(), 2);
}
