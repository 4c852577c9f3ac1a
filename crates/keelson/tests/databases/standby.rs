//! What happens when no standby is left is what was asked for, and it is said.

use std::time::Duration;

use serde_json::json;
use testbed::Fault;

use crate::bed::{Bed, MINUTE, condition};
use crate::leading::Leader;
use crate::writer::Writer;

/// Long enough for a commit that would not wait.
const WHILE: Duration = Duration::from_secs(10);
/// After this long, commits no longer wait for a standby that is gone without a word.
const GIVEN_UP: Duration = Duration::from_secs(15);

#[tokio::test]
async fn without_a_standby_commits_wait_or_go_on_as_was_asked_for_and_it_is_said() {
    let bed = Bed::open_alone("standby").await;
    bed.create(json!({"replicas": 3, "storage": "1Gi", "failover": {"standby": "required"}})).await;
    bed.ready(3).await;
    required(&bed).await;
    bed.patch(json!({"spec": {"replicas": 2, "failover": {"standby": "preferred"}}})).await;
    bed.ready(2).await;
    preferred(&bed).await;
    bed.close().await;
}

async fn required(bed: &Bed) {
    let leader = bed.whole().await;
    let (writer, faults) = all_but(bed, &leader, 3).await;
    let database = bed
        .until("it to say that commits wait", MINUTE, |database| {
            condition(database, "Degraded").is_some_and(|(holds, reason, _)| holds && reason == "NoStandby")
        })
        .await;
    let (_, _, message) = condition(&database, "Degraded").unwrap();
    assert!(message.contains("commits wait until a standby is back"), "{message}");
    assert!(!condition(&database, "Ready").unwrap().0, "no write works");
    let before = writer.acknowledged();
    tokio::time::sleep(WHILE).await;
    assert_eq!(writer.acknowledged(), before, "nothing is acknowledged that one loss could undo");
    healed(bed, &faults).await;
    bed.ready(3).await;
    writer.acknowledges().await;
    println!("required: {} writes, none lost", writer.finish().await);
}

async fn preferred(bed: &Bed) {
    let leader = bed.whole_of(2).await;
    let (writer, faults) = all_but(bed, &leader, 2).await;
    let database = bed
        .until("it to say that commits go on", MINUTE, |database| {
            condition(database, "Degraded").is_some_and(|(holds, reason, _)| holds && reason == "NoStandby")
        })
        .await;
    let (_, _, message) = condition(&database, "Degraded").unwrap();
    assert!(message.contains("commits go on without a standby"), "{message}");
    writer.acknowledges().await;
    let ready = |database: &_| condition(database, "Ready").is_some_and(|(ready, _, _)| ready);
    bed.until("it to say that writes work", MINUTE, ready).await;
    healed(bed, &faults).await;
    bed.ready(2).await;
    assert_eq!(bed.whole_of(2).await, leader, "it was the other one that was gone");
    let gap = writer.longest_gap();
    println!("preferred: longest gap {gap:.1?}, {} writes, none lost", writer.finish().await);
    assert!(gap < GIVEN_UP, "no write for {gap:?}");
}

/// Only the leader's node is left, with a program that writes, and the operator.
async fn all_but<'a>(bed: &'a Bed, leader: &Leader, instances: u32) -> (Writer<'a>, Vec<Fault>) {
    let others: Vec<String> =
        (0..instances).map(|number| format!("orders-{number}")).filter(|name| *name != leader.name).collect();
    let mut nodes = Vec::new();
    for other in &others {
        nodes.push(bed.container_of(other).await.node);
    }
    let names: Vec<String> = nodes.iter().map(|node| node.name()).collect();
    bed.operators_away_from(&names, 1);
    bed.kubectl(&["delete", "pod", "client", "--ignore-not-found", "--wait"]);
    let node = bed.node_of(&leader.name).await;
    bed.client_on(Some(&node)).await;
    let writer = Writer::start(bed).await;
    let faults: Vec<Fault> = nodes.into_iter().map(|node| Fault::NodeCrash { node }).collect();
    for fault in &faults {
        bed.cluster.inject(fault).unwrap();
    }
    (writer, faults)
}

async fn healed(bed: &Bed, faults: &[Fault]) {
    for fault in faults {
        bed.cluster.heal(fault).unwrap();
    }
    bed.operators(2);
}
