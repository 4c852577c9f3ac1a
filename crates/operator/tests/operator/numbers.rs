//! What many databases cost.

use keelson_api::v1::Database;
use kube::api::ListParams;
use serde_json::json;
use testbed::{Look, until};

use crate::world::{DEADLINE, World};

const MANY: usize = 200;

/// Fewer than 15 requests each until all their children are there.
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
    assert!(each < 15.0, "{each} writes each");
    operator.stop().await;
}
