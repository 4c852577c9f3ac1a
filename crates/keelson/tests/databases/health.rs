//! `Ready` says whether a write works.

use std::time::Duration;

use serde_json::json;
use testbed::{Fault, Which};

use crate::bed::{Bed, condition};

/// What a person would call at once.
const SECONDS: Duration = Duration::from_secs(15);

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
        assert_eq!((reason.as_str(), database.status.unwrap().primary), ("NoPrimary", None), "{message}");
        bed.cluster.heal(&fault).unwrap();
        let start = std::time::Instant::now();
        bed.ready(1).await;
        println!("healed: ready after {:.1} s", start.elapsed().as_secs_f64());
        bed.sql("insert into t default values").await;
    }
    bed.close().await;
}
