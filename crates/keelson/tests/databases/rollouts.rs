//! Roll-outs that can't succeed: they stop at the first replica, and taking the edit back recovers.

use serde_json::{Value, json};

use crate::bed::{Bed, LONG, condition, primary};

/// What keeps a roll-out from going on.
struct Bad {
    spec: Value,
    reason: &'static str,
    /// What its message says, and what to do.
    says: &'static [&'static str],
    good: Value,
}

#[tokio::test]
async fn a_roll_out_that_can_not_succeed_stops_at_the_first_replica_and_taking_it_back_recovers() {
    let bed = Bed::open("rollouts").await;
    bed.create(json!({"version": "17", "replicas": 3, "storage": "1Gi"})).await;
    bed.ready(3).await;
    bed.client().await;
    bed.sql("create table t (id serial primary key)").await;
    for bad in [
        Bad {
            spec: json!({"version": "17.99"}),
            reason: "ImageNotPulled",
            says: &["postgres:17.99", "Check spec.version and spec.image"],
            good: json!({"version": "17"}),
        },
        Bad {
            spec: json!({"image": "busybox:stable"}),
            reason: "ContainerFails",
            says: &["kubectl logs", "--previous"],
            good: json!({"image": null}),
        },
        Bad {
            spec: json!({"resources": {"cpu": "1000"}}),
            reason: "Unschedulable",
            says: &["Insufficient cpu", "spec.resources"],
            good: json!({"resources": null}),
        },
    ] {
        stops_and_recovers(&bed, bad).await;
    }
    refuses_another_major_version(&bed).await;
    bed.close().await;
}

async fn stops_and_recovers(bed: &Bed, bad: Bad) {
    let leader = primary(&bed.ready(3).await);
    let before = bed.started().await;
    let replicas = ["orders-2", "orders-1"];
    let first = replicas.into_iter().find(|name| *name != leader).unwrap();
    bed.patch(json!({"spec": bad.spec})).await;
    let database = bed
        .until(&format!("it to say {}", bad.reason), LONG, |database| {
            condition(database, "Degraded").is_some_and(|(holds, reason, _)| holds && reason == bad.reason)
        })
        .await;
    let (_, _, message) = condition(&database, "Degraded").unwrap();
    for words in bad.says.iter().chain([&first]) {
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    }
    assert!(condition(&database, "Ready").unwrap().0, "it serves all the same");
    assert_eq!(primary(&database), leader);
    bed.sql("insert into t default values").await;
    let after = bed.uids().await;
    for (name, before) in &before {
        assert_eq!(after[name] == before.uid, *name != first, "{first} alone has got another pod: {name}");
    }
    bed.patch(json!({"spec": bad.good})).await;
    bed.ready(3).await;
    let after = bed.started().await;
    for (name, before) in before.iter().filter(|(name, _)| *name != first) {
        assert_eq!(&after[name], before, "{name} was never disturbed");
    }
}

async fn refuses_another_major_version(bed: &Bed) {
    let before = bed.started().await;
    bed.patch(json!({"spec": {"version": "18"}})).await;
    let database = bed
        .until("it to say that it does not", LONG, |database| {
            condition(database, "Degraded")
                .is_some_and(|(holds, reason, _)| holds && reason == "MajorUpgradeNotSupported")
        })
        .await;
    let (_, _, message) = condition(&database, "Degraded").unwrap();
    assert!(message.contains("Set spec.version back to 17"), "{message}");
    assert!(condition(&database, "Ready").unwrap().0, "it keeps running");
    bed.sql("insert into t default values").await;
    let older = ["-n", &bed.namespace, "patch", "db", "orders", "--type=merge", "-p"];
    let older = [&older[..], &[r#"{"spec":{"version":"15"}}"#]].concat();
    let refused = bed.cluster.kubectl(&older).unwrap_err().to_string();
    assert!(refused.contains("can't go back to an older major version"), "{refused}");
    bed.patch(json!({"spec": {"version": "17"}})).await;
    bed.ready(3).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");
}

#[tokio::test]
async fn a_version_that_does_not_exist_is_said_and_can_be_corrected() {
    let bed = Bed::open("no-version").await;
    bed.create(json!({"version": "99", "storage": "1Gi"})).await;
    let database = bed
        .until("it to say that there is none", LONG, |database| {
            condition(database, "Ready").is_some_and(|(_, reason, _)| reason == "ImageNotPulled")
        })
        .await;
    let (ready, _, message) = condition(&database, "Ready").unwrap();
    assert!(!ready && message.contains("postgres:99") && message.contains("Check spec.version"), "{message}");
    bed.patch(json!({"spec": {"version": "17"}})).await;
    bed.ready(1).await;
    bed.close().await;
}
