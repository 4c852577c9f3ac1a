//! What those who watch over a database get to see of it.

use serde_json::json;
use testbed::{Fault, Look, Which, until};

use crate::bed::{Bed, MINUTE, primary};

#[tokio::test]
async fn each_instance_shows_its_numbers_and_that_it_hangs() {
    let bed = Bed::open("metrics").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    let leader = primary(&bed.ready(2).await);
    let replica = if leader == "orders-0" { "orders-1" } else { "orders-0" };
    shows(&bed, &leader, "keelson_postgres_up 1.0").await;
    shows(&bed, &leader, "keelson_agent_leader 1").await;
    shows(&bed, &leader, "keelson_agent_writable 1.0").await;
    let lag = format!("keelson_postgres_replication_lag_bytes{{standby=\"{replica}\",stage=\"replay\"}} 0.0");
    shows(&bed, &leader, &lag).await;
    shows(&bed, replica, "keelson_postgres_up 1.0").await;
    shows(&bed, replica, "keelson_agent_leader 0").await;
    shows(&bed, replica, "keelson_agent_epoch 1.0").await;
    shows(&bed, replica, "keelson_postgres_replay_lag_bytes 0.0").await;

    let who = format!("pod/{replica}").parse().unwrap();
    let container = bed.cluster.container(&bed.namespace, &who, None).await.unwrap();
    let fault = Fault::ProcessPause { container, which: Which::Named("postgres".to_owned()) };
    bed.cluster.inject(&fault).unwrap();
    shows(&bed, replica, "keelson_postgres_up 0.0").await;
    bed.cluster.heal(&fault).unwrap();
    shows(&bed, replica, "keelson_postgres_up 1.0").await;
    bed.close().await;
}

/// Waits until a line is among the metrics of an instance.
async fn shows(bed: &Bed, pod: &str, line: &str) {
    let page = format!("/api/v1/namespaces/{}/pods/{pod}:9187/proxy/metrics", bed.namespace);
    until(&format!("{pod} to show {line}"), MINUTE, || async {
        match bed.cluster.kubectl(&["get", "--raw", &page]) {
            Ok(text) if text.lines().any(|found| found == line) => Look::There(()),
            Ok(text) => Look::NotYet(text),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
}
