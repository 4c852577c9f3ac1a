//! The whole life of a database, with each version of PostgreSQL.

use std::cell::RefCell;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::json;
use testbed::{Look, until};

use crate::bed::{Bed, LONG, MINUTE, condition, primary};
use crate::leading::followers;
use crate::writer::Writer;

const INSTANCES: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

#[tokio::test]
async fn the_life_of_postgresql_15() {
    whole_life("15").await;
}

#[tokio::test]
async fn the_life_of_postgresql_17() {
    whole_life("17").await;
}

#[tokio::test]
async fn the_life_of_postgresql_18() {
    whole_life("18").await;
}

async fn whole_life(major: &str) {
    let bed = Bed::open(&format!("life-{major}")).await;
    bed.create(json!({
        "version": major, "replicas": 3, "storage": "1Gi", "deletionPolicy": "Delete"
    }))
    .await;
    let database = bed.ready(3).await;
    let version = database.status.unwrap().version.unwrap().to_string();
    assert!(version.starts_with(&format!("{major}.")), "{version}");
    bed.client().await;

    is_written_everywhere(&bed).await;
    scales(&bed).await;
    takes_a_parameter(&bed).await;
    takes_a_minor_version(&bed, major, &version).await;
    rotates(&bed).await;
    grows(&bed).await;
    hands_over(&bed).await;
    stops_at_the_first(&bed, major).await;
    stays_and_is_taken_again(&bed, major).await;
    goes(&bed).await;
    bed.close().await;
}

async fn is_written_everywhere(bed: &Bed) {
    bed.sql("create table t (id int primary key)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    for pod in INSTANCES {
        bed.says(pod, "app", "select count(*) from t", "1000").await;
    }
}

/// The policy is that data goes: so does the volume of an instance that is no more.
async fn scales(bed: &Bed) {
    let before = bed.started().await;
    bed.kubectl(&["scale", "db", "orders", "--replicas=2"]);
    let leader = primary(&bed.ready(2).await);
    until("the third volume to be gone", LONG, || async {
        match claims(bed).await {
            claims if claims == ["data-orders-0", "data-orders-1"] => Look::There(()),
            claims => Look::NotYet(format!("{claims:?}")),
        }
    })
    .await
    .unwrap();
    bed.kubectl(&["scale", "db", "orders", "--replicas=3"]);
    bed.ready(3).await;
    bed.says("orders-2", "app", "select count(*) from t", "1000").await;
    assert_eq!(bed.started().await[&leader], before[&leader], "the primary is not disturbed");
}

/// A parameter that takes a restart of the database, and no new pod.
async fn takes_a_parameter(bed: &Bed) {
    let before = bed.started().await;
    bed.patch(json!({"spec": {"parameters": {"max_connections": "177"}}})).await;
    for pod in INSTANCES {
        bed.says(pod, "postgres", "show max_connections", "177").await;
    }
    bed.ready(3).await;
    for (name, after) in bed.started().await {
        let before = &before[&name];
        assert_eq!((&after.uid, &after.agent), (&before.uid, &before.agent), "{name} has its pod");
        assert_ne!(after.database, before.database, "{name} has restarted its database");
    }
}

/// Replicas first, the leader last by handover, and nothing that was acknowledged is lost.
async fn takes_a_minor_version(bed: &Bed, major: &str, version: &str) {
    let image = format!("postgres:{version}");
    bed.cluster.name_image(&format!("postgres:{major}"), &image).unwrap();
    let leader = primary(&bed.ready(3).await);
    let before = bed.uids().await;
    let writer = Writer::start(bed).await;
    bed.patch(json!({"spec": {"version": version}})).await;
    let replaced = in_turn(bed, &before).await;
    assert_eq!(replaced.last(), Some(&leader), "the leader comes last: {replaced:?}");
    let database = bed.ready(3).await;
    assert_ne!(primary(&database), leader, "it has handed over");
    for (name, pod) in bed.pods().await {
        assert_eq!(pod.spec.unwrap().containers[0].image.as_ref(), Some(&image), "{name}");
    }
    writer.acknowledges().await;
    let acknowledged = writer.finish().await;
    println!("PostgreSQL {version}: {acknowledged} writes during the roll-out, none lost");
}

/// Waits until every pod is another one. Returns the order in which they were replaced.
async fn in_turn(bed: &Bed, before: &BTreeMap<String, String>) -> Vec<String> {
    let replaced = RefCell::new(Vec::new());
    until("all to be replaced", 2 * LONG, || async {
        for (name, uid) in bed.uids().await {
            if before[&name] != uid && !replaced.borrow().contains(&name) {
                replaced.borrow_mut().push(name);
            }
        }
        if replaced.borrow().len() == 3 { Look::There(()) } else { Look::NotYet(format!("{replaced:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
    replaced.into_inner()
}

/// Other passwords, without a restart of anything.
async fn rotates(bed: &Bed) {
    let leader = primary(&bed.ready(3).await);
    let before = bed.started().await;
    bed.kubectl(&["annotate", "db", "orders", "keelson.dev/rotate-secrets=once"]);
    until("the old password to be refused", LONG, || async {
        match bed.try_sql("select 1") {
            Err(error) if error.contains("password authentication failed") => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    bed.client_again().await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000", "the new one is taken");
    // Whoever follows has the new one, too, as soon as it is asked for it.
    bed.ask(&leader, "select count(pg_terminate_backend(pid)) from pg_stat_replication");
    let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
    bed.says(&leader, "postgres", streaming, "2").await;
    bed.ready(3).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");
}

async fn grows(bed: &Bed) {
    let before = bed.started().await;
    bed.patch(json!({"spec": {"storage": "2Gi"}})).await;
    for pod in INSTANCES {
        let df = ["exec", pod, "-c", "database", "--", "df", "--output=size", "-BM", "/var/lib/keelson"];
        until(&format!("the volume of {pod} to grow"), MINUTE, || async {
            let said = bed.kubectl(&df);
            let size = said.lines().last().and_then(|size| size.trim().strip_suffix('M')?.parse().ok());
            match size {
                Some(1900..=2048) => Look::There(()),
                _ => Look::NotYet(said),
            }
        })
        .await
        .unwrap();
    }
    bed.ready(3).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
}

/// To the instance that was asked for.
async fn hands_over(bed: &Bed) {
    let leader = primary(&bed.ready(3).await);
    let to = followers(&leader)[1];
    bed.kubectl(&["annotate", "lease", "orders-leader", &format!("keelson.dev/handover-to={to}")]);
    bed.until("it to lead", LONG, |database| primary(database) == to).await;
    bed.ready(3).await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
}

/// An image that does not exist takes one replica, and the database goes on.
async fn stops_at_the_first(bed: &Bed, major: &str) {
    let (leader, before) = (primary(&bed.ready(3).await), bed.uids().await);
    let version = bed.databases().get("orders").await.unwrap().spec.version;
    bed.patch(json!({"spec": {"version": format!("{major}.99")}})).await;
    let database = bed
        .until("it to say that there is no such image", LONG, |database| {
            condition(database, "Degraded")
                .is_some_and(|(holds, reason, _)| holds && reason == "ImageNotPulled")
        })
        .await;
    assert!(condition(&database, "Ready").unwrap().0, "it serves all the same");
    let after = bed.uids().await;
    let others = before.iter().filter(|(name, uid)| after.get(*name) != Some(uid));
    let others: Vec<&String> = others.map(|(name, _)| name).collect();
    assert!(others.len() == 1 && *others[0] != leader, "one replica alone is another: {others:?}");
    bed.patch(json!({"spec": {"version": version}})).await;
    bed.ready(3).await;
}

/// With the policy `Retain` volumes stay, and are taken again when somebody says so.
async fn stays_and_is_taken_again(bed: &Bed, major: &str) {
    bed.patch(json!({"spec": {"deletionPolicy": "Retain"}})).await;
    bed.ready(3).await;
    bed.kubectl(&["delete", "db", "orders", "--wait"]);
    assert_eq!(claims(bed).await.len(), 3);
    bed.create(json!({
        "version": major, "replicas": 3, "storage": "2Gi", "deletionPolicy": "Delete"
    }))
    .await;
    bed.until("it to say that there are old volumes", MINUTE, |database| {
        condition(database, "Ready").is_some_and(|(ready, _, why)| !ready && why.contains("adopt-volumes"))
    })
    .await;
    bed.kubectl(&["annotate", "db", "orders", "keelson.dev/adopt-volumes=yes"]);
    bed.ready(3).await;
    bed.client_again().await;
    assert_eq!(bed.sql("select count(*) from t").await, "1000");
}

/// With the policy `Delete` nothing is left.
async fn goes(bed: &Bed) {
    bed.kubectl(&["delete", "db", "orders"]);
    until("the volumes to be gone", LONG, || async {
        match claims(bed).await {
            claims if claims.is_empty() => Look::There(()),
            claims => Look::NotYet(format!("{claims:?}")),
        }
    })
    .await
    .unwrap();
}

async fn claims(bed: &Bed) -> Vec<String> {
    let api: Api<PersistentVolumeClaim> = bed.api();
    let found = api.list(&Default::default()).await.unwrap().items;
    found.into_iter().map(|claim| claim.metadata.name.unwrap()).collect()
}
