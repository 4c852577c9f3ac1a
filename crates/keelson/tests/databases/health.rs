//! `Ready` says whether a write works.

use std::time::Duration;

use serde_json::json;
use testbed::{Fault, Which};

use crate::bed::{Bed, LONG, condition, primary};

/// What a person would call at once.
const SECONDS: Duration = Duration::from_secs(15);
/// A node that is gone is taken for gone by Kubernetes after 50 s: where there is nobody else who would know better,
/// that is when it is said.
const NODE_GONE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn ready_is_false_while_writes_do_not_work_and_true_as_soon_as_they_do() {
    let bed = Bed::open("health").await;
    bed.create(json!({"storage": "1Gi"})).await;
    bed.ready(1).await;
    bed.client().await;
    bed.sql("create table t (id serial primary key)").await;
    let container = bed.cluster.container(&bed.namespace, &"primary/orders".parse().unwrap(), None).await;
    let paused =
        Fault::ProcessPause { container: container.unwrap(), which: Which::Named("postgres".to_owned()) };
    let volume = bed.cluster.volume(&bed.namespace, "data-orders-0").await.unwrap();
    for fault in [paused, Fault::VolumeFreeze { volume }] {
        let start = std::time::Instant::now();
        bed.cluster.inject(&fault).unwrap();
        let database = bed
            .until("it to say that it takes no writes", SECONDS, |database| {
                condition(database, "Ready").is_some_and(|(ready, _, _)| !ready)
            })
            .await;
        println!("{fault}: not ready after {:.1} s", start.elapsed().as_secs_f64());
        let (_, reason, message) = condition(&database, "Ready").unwrap();
        // As soon as its agent knows why, that is the reason.
        assert!(["NoPrimary", "DatabaseFailed"].contains(&reason.as_str()), "{reason}: {message}");
        assert_eq!(database.status.unwrap().primary, None, "{message}");
        bed.cluster.heal(&fault).unwrap();
        let start = std::time::Instant::now();
        bed.ready(1).await;
        println!("healed: ready after {:.1} s", start.elapsed().as_secs_f64());
        bed.sql("insert into t default values").await;
    }
    bed.close().await;
}

#[tokio::test]
async fn a_primary_that_is_gone_without_a_word_is_not_said_to_take_writes() {
    let bed = Bed::open_alone("gone").await;
    bed.create(json!({"replicas": 3, "storage": "1Gi"})).await;
    let leader = primary(&bed.ready(3).await);
    let paused = Fault::ProcessPause { container: bed.container_of(&leader).await, which: Which::All };
    let start = std::time::Instant::now();
    bed.cluster.inject(&paused).unwrap();
    let other = |database: &_| !["", &leader].contains(&primary(database).as_str());
    bed.until("it to say that another takes writes", SECONDS, other).await;
    println!("{paused}: another is primary after {:.1} s", start.elapsed().as_secs_f64());
    bed.cluster.heal(&paused).unwrap();
    bed.ready(3).await;

    bed.patch(json!({"spec": {"replicas": 1}})).await;
    bed.ready(1).await;
    let node = bed.container_of("orders-0").await.node;
    bed.operators_away_from(&[node.name()], 2);
    let crash = Fault::NodeCrash { node };
    let start = std::time::Instant::now();
    bed.cluster.inject(&crash).unwrap();
    let database = bed
        .until("it to say that it takes no writes", NODE_GONE, |database| {
            condition(database, "Ready").is_some_and(|(ready, _, _)| !ready)
        })
        .await;
    println!("{crash}: not ready after {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(primary(&database), "");
    bed.cluster.heal(&crash).unwrap();
    bed.ready(1).await;

    // The only volume is lost: no other database takes its place, and it is said.
    bed.kubectl(&["delete", "pvc", "data-orders-0", "--wait=false"]);
    bed.kubectl(&["delete", "pod", "orders-0", "--wait=false"]);
    let database = bed
        .until("it to say that its data is lost", LONG, |database| {
            condition(database, "Ready").is_some_and(|(ready, reason, _)| !ready && reason == "DataLost")
        })
        .await;
    let (_, _, message) = condition(&database, "Ready").unwrap();
    assert!(message.contains("Bring back a volume"), "{message}");
    bed.close().await;
}
