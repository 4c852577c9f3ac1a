//! What many databases cost.

use k8s_openapi::api::coordination::v1::Lease;
use keelson_api::v1::Database;
use keelson_operator::NAME;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::{Look, until};

use crate::way::Way;
use crate::world::{DEADLINE, Operator, World};

const MANY: usize = 200;

/// One request for the finalizer, one for each child, and one for the status.
#[tokio::test(flavor = "multi_thread")]
async fn many_databases_take_few_requests_each() {
    let world = World::quiet("many").await;
    for number in 0..MANY {
        world.create(&format!("orders-{number}"), json!({"replicas": 3})).await;
    }
    let operator = world.operator().await;
    let begun = std::time::Instant::now();
    let databases = world.api::<Database>();
    until("all are being created", DEADLINE, || async {
        let found = databases.list(&ListParams::default()).await.unwrap().items;
        let done = found
            .iter()
            .filter(|one| one.status.as_ref().is_some_and(|status| status.phase.is_some()))
            .count();
        match done {
            MANY => Look::There(()),
            some => Look::NotYet(format!("{some}")),
        }
    })
    .await
    .unwrap();
    let took = begun.elapsed();
    operator.is_quiet().await;
    let each = operator.writes() as f64 / MANY as f64;
    println!("{MANY} databases in {took:?}, {each} writes each, {} requests in all", operator.requests());
    assert!(each <= 15.0, "{each} writes each");
    operator.stop().await;
}

/// What somebody who leads no longer, or not yet, says of databases would be counted twice, and be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn databases_are_counted_by_whoever_leads_as_they_are_then() {
    let world = World::quiet("counted").await;
    world.create("first", json!({"replicas": 1})).await;
    world.create("second", json!({"replicas": 1})).await;
    world.create("third", json!({"replicas": 1})).await;
    let own = world.namespace_for_an_operator().await;
    let operator = world.operator_as(None, Way::clear(), own.clone()).await;
    counts(&operator, 3).await;

    // Somebody takes a finalizer away.
    release(&world, "first").await;
    counts(&operator, 2).await;

    // Somebody else leads, and a database goes meanwhile.
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &own);
    let other = Patch::Merge(json!({"spec": {"holderIdentity": "somebody-else"}}));
    leases.patch(NAME, &PatchParams::default(), &other).await.unwrap();
    counts(&operator, 0).await;
    release(&world, "second").await;
    // The other is never heard of again.
    counts(&operator, 1).await;
    operator.stop().await;
}

/// Removes a Database, without any clean-up if nobody is faster.
async fn release(world: &World, name: &str) {
    world.delete(name).await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match world.api::<Database>().patch(name, &PatchParams::default(), &bare).await {
        Ok(_) => {}
        // The operator was faster.
        Err(error) => assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}"),
    }
    world.is_gone(name).await;
}

async fn counts(operator: &Operator, expected: u64) {
    until(&format!("{expected} databases to be counted"), DEADLINE, || async {
        let text = operator.metrics.render();
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("test_databases_total{")).collect();
        let number = |line: &&str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        match lines.iter().map(number).sum::<u64>() {
            sum if sum == expected => Look::There(()),
            _ => Look::NotYet(format!("{lines:?}")),
        }
    })
    .await
    .unwrap();
}
