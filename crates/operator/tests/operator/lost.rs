//! Watches that fall silent in the midst of an act, and then tell all of it late, or nothing but that too much
//! was missed: the act ends the same, and what was made anew meanwhile is told apart.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use keelson_api::instance::{annotations, labels};
use keelson_api::v1::Database;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::{Look, until};

use crate::acts::{Act, End, Incarnations, QUIET, reference};
use crate::life::{collect, is_said};
use crate::parallel::each;
use crate::way::{WATCHED, Way};
use crate::world::{DEADLINE, World};

/// How long watches are silent. An act takes about as long.
const SILENCE: Duration = Duration::from_secs(2);

/// Kinds that fall silent together.
const SILENT: [&[&str]; 4] = [
    &["pods"],
    &["statefulsets", "persistentvolumeclaims", "configmaps"],
    &["databases", "serviceaccounts", "roles", "rolebindings", "services", "poddisruptionbudgets"],
    &WATCHED,
];

async fn silent_about(act: Act, kinds: &[&str], number: usize, well: &End) {
    let world = World::new(&format!("silent-{}-{number}", act.name())).await;
    let (incarnations, _watching) = Incarnations::of(&world);
    act.prepare(&world).await;
    let way = Way::clear();
    let operator = world.hasty_operator_on(way.clone()).await;
    operator.acts_on_what_it_sees().await;
    // Of a Database that falls silent at once nothing would be done meanwhile.
    act.begin(&world).await;
    until("the act to begin", DEADLINE, || async {
        match way.writes() {
            0 => Look::NotYet("nothing written yet".into()),
            _ => Look::There(()),
        }
    })
    .await
    .unwrap();
    way.silence(kinds);
    tokio::time::sleep(SILENCE).await;
    match number % 2 {
        0 => way.speak(),
        _ => way.lose(),
    }
    act.end(&world).await;
    operator.is_quiet_for(QUIET).await;
    let how = || format!("{act:?} with silence about {kinds:?}, having written {:#?}", way.written());
    well.comes_about(&world, &incarnations, how).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_watches_tell_late_or_never_changes_no_end() {
    let ends = each(Act::ALL, |act| async move { (act, reference(act).await) }).await;
    let cases = ends.into_iter().flat_map(|(act, well)| {
        SILENT.into_iter().enumerate().map(move |(number, kinds)| (act, well.clone(), number, kinds))
    });
    each(cases, |(act, well, number, kinds)| async move {
        // Half of all acts hear late, half never.
        let number = number + Act::ALL.iter().position(|one| *one == act).unwrap_or_default();
        silent_about(act, kinds, number, &well).await;
    })
    .await;
}

/// A finalizer that somebody has taken away, and another Database of the same name a moment later.
async fn made_anew(lost: bool) {
    let world = World::new(if lost { "anew-lost" } else { "anew-late" }).await;
    let way = Way::clear();
    let operator = world.hasty_operator_on(way.clone()).await;
    let first = world.create("orders", json!({"replicas": 2, "deletionPolicy": "Delete"})).await;
    world.reaches("orders", "Running", 2).await;
    operator.is_quiet_for(QUIET).await;
    let claims = || async {
        let found = world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items;
        let known = found.iter().map(|claim| {
            let of = claim.labels().get(labels::DATABASE_UID).cloned();
            (claim.name_any(), claim.uid(), of, claim.metadata.deletion_timestamp.is_some())
        });
        known.collect::<Vec<_>>()
    };
    let before = claims().await;
    way.silence(&["databases"]);
    world.patch::<Database>("orders", json!({"metadata": {"finalizers": null}})).await;
    world.delete("orders").await;
    world.is_gone("orders").await;
    let second = world.create("orders", json!({"replicas": 2, "deletionPolicy": "Delete"})).await;
    assert_ne!(first.uid(), second.uid());
    match lost {
        true => way.lose(),
        false => way.speak(),
    }
    // All that the old one had is still there, under the very names that the new one needs.
    operator.is_quiet_for(QUIET).await;
    assert_eq!(claims().await, before, "volumes were touched");
    collect(&world, &first.uid().unwrap()).await;
    is_said(&world, "orders", "Ready", "VolumesFound").await;
    assert_eq!(claims().await, before, "volumes were touched");
    let adopt = json!({"metadata": {"annotations": {annotations::ADOPT_VOLUMES: "yes"}}});
    world.patch::<Database>("orders", adopt).await;
    world.reaches("orders", "Running", 2).await;
    let uids = |all: &[(String, Option<String>, Option<String>, bool)]| -> Vec<Option<String>> {
        all.iter().map(|one| one.1.clone()).collect()
    };
    assert_eq!(uids(&claims().await), uids(&before), "not the same volumes");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_made_anew_is_told_apart_when_nothing_told_of_the_end_of_the_first() {
    each([false, true], made_anew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_made_anew_unseen_is_replaced_once_and_not_twice() {
    let _room = crate::parallel::room().await;
    let world = World::new("pod-anew").await;
    let (incarnations, _watching) = Incarnations::of(&world);
    let way = Way::clear();
    let operator = world.hasty_operator_on(way.clone()).await;
    world.create("orders", json!({"replicas": 2, "version": "17.4"})).await;
    world.reaches("orders", "Running", 2).await;
    operator.is_quiet_for(QUIET).await;
    way.silence(&["pods"]);
    let pods = world.api::<Pod>();
    let old = pods.get("orders-1").await.unwrap().uid();
    pods.delete("orders-1", &DeleteParams::default()).await.unwrap();
    until("another orders-1", DEADLINE, || async {
        match pods.get_opt("orders-1").await.unwrap() {
            Some(pod) if pod.uid() != old => Look::There(()),
            other => Look::NotYet(format!("{:?}", other.and_then(|pod| pod.uid()))),
        }
    })
    .await
    .unwrap();
    world.change("orders", json!({"version": "17.5"})).await;
    tokio::time::sleep(SILENCE).await;
    way.speak();
    crate::acts::rolled_out(&world, 2).await;
    world.reaches("orders", "Running", 2).await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    let count = incarnations.count();
    assert_eq!((count["Pod orders-0"], count["Pod orders-1"]), (2, 3), "{:#?}", way.written());
}
