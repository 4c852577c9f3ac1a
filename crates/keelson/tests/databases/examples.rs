//! What is in `examples/` works as it stands.

use std::path::Path;

use crate::bed::{Bed, condition, primary};

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// Where the API server has how many instances there are.
fn scale(bed: &Bed) -> String {
    format!("/apis/keelson.dev/v1/namespaces/{}/databases/orders/scale", bed.namespace)
}

#[tokio::test]
async fn the_shortest_way_to_write_one() {
    let bed = Bed::open("six-lines").await;
    bed.kubectl(&["apply", "-f", &example("six-lines.yaml")]);
    let database = bed.ready(2).await;
    assert!(condition(&database, "BackupReady").is_none(), "nobody asked for backups");
    bed.client().await;
    bed.sql("create table t (id int primary key)").await;
    bed.close().await;
}

#[tokio::test]
async fn the_oldest_way_to_write_one() {
    let bed = Bed::open("alpha").await;
    bed.kubectl(&["apply", "-f", &example("v1alpha1.yaml")]);
    let database = bed.ready(3).await;
    let (ready, reason, message) = condition(&database, "BackupReady").unwrap();
    assert!(!ready && reason == "NoRepository", "a backup has nowhere to go: {reason} {message}");
    bed.close().await;
}

#[tokio::test]
async fn a_tier_of_postgresql_15_that_is_changed() {
    let bed = Bed::open("beta").await;
    bed.kubectl(&["apply", "-f", &example("v1beta1.yaml")]);
    let database = bed.ready(3).await;
    let version = database.status.unwrap().version.unwrap().to_string();
    assert!(version.starts_with("15."), "{version}");
    bed.kubectl(&["patch", "database", "orders", "-p", r#"{"spec":{"size":"medium"}}"#, "--type=merge"]);
    bed.ready(2).await;
    bed.close().await;
}

#[tokio::test]
async fn version_1_with_everything_that_kubectl_does() {
    let bed = Bed::open("v1").await;
    bed.kubectl(&["apply", "-f", &example("v1.yaml")]);
    bed.ready(3).await;
    let database = bed.databases().get("orders").await.unwrap();
    let version = database.status.as_ref().unwrap().version.as_ref().unwrap().to_string();
    let listed = bed.kubectl(&["get", "db"]);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "ENGINE", "VERSION", "REPLICAS", "READY", "PHASE", "PRIMARY", "AGE"]);
    assert_eq!(rows[1][..7], ["orders", "postgres", &version, "3", "3", "Running", &primary(&database)]);
    for (field, words) in [
        ("db.spec", "How many instances there are, the primary included"),
        ("db.spec.storage", "It can grow and can't shrink"),
        ("db.status.readyReplicas", "How many of them are ready"),
    ] {
        let explained = bed.kubectl(&["explain", field]);
        let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(explained.contains(words), "{field}: {explained}");
    }
    let pods = bed.kubectl(&["get", "--raw", &scale(&bed)]);
    assert!(pods.contains(r#""selector":"keelson.dev/database=orders""#), "for autoscalers: {pods}");
    bed.kubectl(&["scale", "db", "orders", "--replicas=2"]);
    bed.ready(2).await;
    assert!(bed.kubectl(&["get", "--raw", &scale(&bed)]).contains(r#""spec":{"replicas":2}"#));
    bed.kubectl(&["delete", "db", "orders"]);
    bed.close().await;
}
