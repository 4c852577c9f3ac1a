//! Drills, as they are asked for: pod and volume come and go, and what was found stays.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::instance::{ask_for_drill, labels};
use keelson_api::v1::{Database, DrillSummary};
use kube::ResourceExt;
use serde_json::json;
use testbed::{Look, until};

use crate::acts::QUIET;
use crate::parallel::each;
use crate::way::Way;
use crate::world::{DEADLINE, World};

async fn drill(world: &World) -> DrillSummary {
    let database = world.api::<Database>().get("orders").await.unwrap();
    database.status.and_then(|status| status.backup?.drill).unwrap_or_default()
}

/// Waits until the one that was asked for with this text has passed, and nothing of it is left.
async fn is_over(world: &World, text: &str) -> DrillSummary {
    until("the drill to be over", DEADLINE, || async {
        let found = drill(world).await;
        let over = found.asked.as_deref() == Some(text)
            && found.running.is_none()
            && found.last.as_ref().is_some_and(|last| last.passed);
        let pods = world.all::<Pod>().await.iter().filter(|pod| pod.name_any() == "orders-drill").count();
        let claims = world.all::<PersistentVolumeClaim>().await;
        let claims = claims.iter().filter(|claim| claim.name_any() == "orders-drill").count();
        match over && pods + claims == 0 {
            true => Look::There(found),
            false => Look::NotYet(format!("{pods} pods, {claims} claims, {found:?}")),
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_that_is_asked_for_is_made_once_and_nobody_takes_it_for_an_instance() {
    let world = World::new("drills").await;
    let operator = world.operator().await;
    world.create("orders", json!({"replicas": 2, "backup": {"to": {"s3": {"bucket": "backups"}}}})).await;
    world.reaches("orders", "Running", 2).await;
    let seen = async {
        until("the pod of the drill", DEADLINE, || async {
            match world.api::<Pod>().get_opt("orders-drill").await.unwrap() {
                Some(pod) => Look::There(pod),
                None => Look::NotYet(format!("{:?}", drill(&world).await)),
            }
        })
        .await
        .unwrap()
    };
    let (pod, ()) = tokio::join!(seen, world.patch::<Database>("orders", ask_for_drill("now")));
    // No selector there is takes it.
    assert!(!pod.labels().contains_key(labels::DATABASE) && pod.owner_references()[0].kind == "Database");
    let selects = |selector: &std::collections::BTreeMap<String, String>| {
        !selector.is_empty() && selector.iter().all(|(name, value)| pod.labels().get(name) == Some(value))
    };
    for service in world.all::<Service>().await {
        let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
        assert!(!selects(&selector), "{selector:?}");
    }
    for budget in world.all::<PodDisruptionBudget>().await {
        let selector = budget.spec.and_then(|spec| spec.selector?.match_labels).unwrap_or_default();
        assert!(!selects(&selector), "{selector:?}");
    }
    let found = is_over(&world, "now").await;
    assert_eq!(found.last.unwrap().rto_seconds, Some(40));
    world.reaches("orders", "Running", 2).await;
    operator.is_quiet().await;
    operator.stop().await;
    let second = world.operator().await;
    second.is_quiet().await;
    assert_eq!(second.writes(), 0, "another operator finds all as it should be");
    second.stop().await;
}

/// A drill is asked for; the operator dies with its k-th write. Returns whether it came to that.
async fn dies_with(k: usize) -> bool {
    let world = World::new(&format!("drills-dies-{k}")).await;
    world.create("orders", json!({"replicas": 1, "backup": {"to": {"s3": {"bucket": "backups"}}}})).await;
    let operator = world.hasty_operator_on(Way::clear()).await;
    world.reaches("orders", "Running", 1).await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    world.patch::<Database>("orders", ask_for_drill("now")).await;
    let done = async || drop(is_over(&world, "now").await);
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
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_ends_the_same_whichever_write_was_the_operators_last() {
    let ends = each(1..=16_usize, |k| async move { dies_with(k).await }).await;
    let deaths = ends.into_iter().filter(|died| *died).count();
    assert!((6..=15).contains(&deaths), "it took {deaths} writes");
}
