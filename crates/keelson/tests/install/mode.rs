//! Looking after one namespace only.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::bed::{Bed, OTHER, SHOP, SYSTEM};
use crate::rendered::chart;

#[tokio::test]
async fn in_one_namespace_databases_are_looked_after_and_elsewhere_none_is_seen() {
    let bed = Bed::open().await;
    bed.install(&chart(), &[&format!("watchNamespace={SHOP}")]).unwrap();
    // The one that is none of its business first: it had all the time to look.
    for namespace in [OTHER, SHOP] {
        bed.create("v1alpha1", namespace, "orders", json!({ "replicas": 1 })).await.unwrap();
    }
    bed.looked_after(SHOP, "orders").await;
    let other = bed.databases("v1", OTHER).get("orders").await.unwrap();
    assert!(other.data["status"].is_null(), "{}", other.data["status"]);
    let sets = Api::<StatefulSet>::namespaced(bed.cluster.client(), OTHER);
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 0);

    let account = format!("--as=system:serviceaccount:{SYSTEM}:keelson");
    let may = |namespace: &str| {
        let words = ["auth", "can-i", "list", "databases.keelson.dev", "--namespace", namespace, &account];
        bed.cluster.kubectl(&words)
    };
    assert_eq!(may(SHOP).unwrap().trim(), "yes");
    assert!(may(OTHER).is_err(), "a no is a failure");
    bed.close().await;
}
