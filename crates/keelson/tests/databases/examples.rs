//! What is in `examples/` works as it stands.

use std::path::Path;

use crate::bed::{Bed, condition};

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
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
    let listed = bed.kubectl(&["get", "db"]);
    assert!(listed.contains("orders") && listed.contains("Running") && listed.contains("17."), "{listed}");
    assert!(bed.kubectl(&["explain", "db.spec"]).contains("replicas"));
    bed.kubectl(&["scale", "db", "orders", "--replicas=2"]);
    bed.ready(2).await;
    bed.kubectl(&["delete", "db", "orders"]);
    bed.close().await;
}
