//! Backups, as people ask for them and as they are due.

use k8s_openapi::api::core::v1::ConfigMap;
use keelson_api::v1::{Backup, BackupStatus, Database};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;
use testbed::{Look, until};

use crate::acts::QUIET;
use crate::parallel::each;
use crate::way::Way;
use crate::world::{DEADLINE, World};

pub async fn asked_for(world: &World, name: &str) {
    let backup = json!({
        "apiVersion": "keelson.dev/v1", "kind": "Backup", "metadata": {"name": name}, "spec": {"database": "orders"}
    });
    let backup: Backup = serde_json::from_value(backup).unwrap();
    world.api::<Backup>().create(&PostParams::default(), &backup).await.unwrap();
}

async fn becomes(world: &World, name: &str, what: &str, holds: impl Fn(&BackupStatus) -> bool) -> Backup {
    until(&format!("{name} to be {what}"), DEADLINE, || async {
        let backup = world.api::<Backup>().get(name).await.unwrap();
        let status = backup.status.clone().unwrap_or_default();
        if holds(&status) { Look::There(backup) } else { Look::NotYet(format!("{status:?}")) }
    })
    .await
    .unwrap()
}

pub async fn is_complete(world: &World, name: &str) -> Backup {
    let complete = |status: &BackupStatus| status.phase.as_ref().is_some_and(|it| it.as_str() == "Complete");
    becomes(world, name, "complete", complete).await
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_made_one_after_the_other_and_then_cost_nothing() {
    let world = World::new("backs-up").await;
    let operator = world.operator().await;
    asked_for(&world, "early").await;
    becomes(&world, "early", "said to have no database", |status| {
        status.conditions.iter().any(|condition| condition.reason == "NoDatabase")
    })
    .await;
    let spec = json!({"replicas": 2, "backup": {"to": {"s3": {"bucket": "backups"}}}});
    let database = world.create("orders", spec).await;
    world.reaches("orders", "Running", 2).await;
    asked_for(&world, "by-hand").await;
    let done = is_complete(&world, "by-hand").await;
    let owner = &done.owner_references()[0];
    assert_eq!((owner.name.as_str(), Some(owner.uid.clone())), ("orders", database.uid()));
    let status = done.status.unwrap();
    assert_eq!(status.instance.as_deref(), Some("orders-1"), "a replica makes it");
    assert_eq!((status.stored_bytes, status.total_bytes), (Some(50), None));

    // One that is due comes by itself, and the one that came too early has its turn.
    is_complete(&world, "early").await;
    let due = until("one that is due", DEADLINE, || async {
        let all = world.all::<Backup>().await;
        match all.iter().find(|one| one.name_any().starts_with("orders-")) {
            Some(one) => Look::There(one.name_any()),
            None => Look::NotYet(format!("{}", all.len())),
        }
    })
    .await
    .unwrap();
    is_complete(&world, &due).await;
    operator.is_quiet().await;
    let status = world.api::<Database>().get("orders").await.unwrap().status.unwrap();
    let summary = status.backup.unwrap();
    assert!(summary.last_backup.is_some() && summary.next_backup.is_some(), "{summary:?}");
    assert!(status.conditions.iter().any(|one| one.type_ == "BackupReady" && one.status == "True"));
    assert_eq!(world.all::<Backup>().await.len(), 3, "none is made twice");
    operator.stop().await;
    let second = world.operator().await;
    second.is_quiet().await;
    assert_eq!(second.writes(), 0, "another operator finds all as it should be");
    second.stop().await;
}

/// Waits until the one that is due is there and complete.
async fn due_is_complete(world: &World) {
    let complete = |one: &Backup| {
        let phase = one.status.as_ref().and_then(|status| status.phase.clone());
        one.name_any().starts_with("orders-") && phase.is_some_and(|phase| phase.as_str() == "Complete")
    };
    until("the one that is due to be complete", DEADLINE, || async {
        let all = world.all::<Backup>().await;
        match all.iter().any(complete) {
            true => Look::There(()),
            false => Look::NotYet(format!("{:?}", all.iter().map(|one| &one.status).collect::<Vec<_>>())),
        }
    })
    .await
    .unwrap();
}

/// Backups are switched on, and one is asked for; the operator dies with its k-th write. Returns whether it came to that.
async fn dies_with(k: usize) -> bool {
    let world = World::new(&format!("backs-up-dies-{k}")).await;
    world.create("orders", json!({"replicas": 2})).await;
    let operator = world.hasty_operator_on(Way::clear()).await;
    world.reaches("orders", "Running", 2).await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    world.change("orders", json!({"backup": {"to": {"s3": {"bucket": "backups"}}}})).await;
    asked_for(&world, "by-hand").await;
    let done = async || {
        is_complete(&world, "by-hand").await;
        due_is_complete(&world).await;
    };
    let operator = world.hasty_operator_on(Way::to_death(k)).await;
    let both = async {
        done().await;
        tokio::time::sleep(QUIET).await;
    };
    if !operator.dies_before(both).await {
        return false;
    }
    let operator = world.hasty_operator_on(Way::clear()).await;
    done().await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    assert_eq!(
        world.all::<Backup>().await.len(),
        2,
        "death with write {k}: one that is due, and one by hand"
    );
    let config: ConfigMap = world.api().get("orders-config").await.unwrap();
    assert!(
        !config.data.unwrap()["settings.json"].contains("\"order\""),
        "death with write {k}: nothing is left to do"
    );
    let status = world.api::<Database>().get("orders").await.unwrap().status.unwrap();
    let summary = status.backup.unwrap();
    assert!(
        summary.last_backup.is_some() && summary.next_backup.is_some(),
        "death with write {k}: {summary:?}"
    );
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_end_the_same_whichever_write_was_the_operators_last() {
    let ends = each(1..=24_usize, |k| async move { dies_with(k).await }).await;
    let deaths = ends.into_iter().filter(|died| *died).count();
    assert!((7..=23).contains(&deaths), "it took {deaths} writes");
}
