//! What people see: names, explanations, columns, warnings, and the scale subresource.

use keelson_api::convert::ApiVersion;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};

use crate::plane::{client, create, databases, refusal};

fn get(path: &str, accept: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).header("Accept", accept).body(Vec::new()).unwrap()
}

const JSON: &str = "application/json";

#[tokio::test]
async fn the_kinds_have_their_short_names_category_and_subresources() {
    let client = client().await;
    let resources: Value = client.request(get("/apis/keelson.dev/v1", JSON)).await.unwrap();
    let resources = resources["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|resource| resource["name"] == name).unwrap();
    assert_eq!(find("databases")["shortNames"], json!(["db"]));
    for name in ["databases", "backups", "apps"] {
        assert_eq!(find(name)["categories"], json!(["keelson"]));
        assert_eq!(find(name)["namespaced"], true);
    }
    for name in ["databases/status", "databases/scale", "backups/status", "apps/status", "apps/scale"] {
        find(name);
    }
}

#[tokio::test]
async fn every_field_is_explained() {
    let client = client().await;
    for (version, name, path, says) in [
        ("v1", "dev.keelson.v1.Database", "/spec/properties/replicas", "How many instances"),
        ("v1", "dev.keelson.v1.Database", "/spec/properties/storage", "a size such as `50Gi`"),
        ("v1", "dev.keelson.v1.Database", "/spec/properties/storage/properties/class", "storage class"),
        ("v1", "dev.keelson.v1.Database", "/status/properties/phase", "in one word"),
        ("v1", "dev.keelson.v1.App", "/spec/properties/image", "image to run"),
        ("v1", "dev.keelson.v1.Backup", "/spec/properties/database", "Database of this namespace"),
        (
            "v1beta1",
            "dev.keelson.v1beta1.Database",
            "/spec/properties/backup_enabled",
            "Whether there are backups",
        ),
    ] {
        let page: Value =
            client.request(get(&format!("/openapi/v3/apis/keelson.dev/{version}"), JSON)).await.unwrap();
        let found = page["components"]["schemas"][name]["properties"].pointer(path);
        let description = found.and_then(|field| field["description"].as_str()).unwrap_or_default();
        assert!(description.contains(says), "{name}{path}: {found:?}");
    }
}

#[tokio::test]
async fn a_list_has_the_columns_that_people_want() {
    let client = client().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let page: Value =
        client.request(get("/apis/keelson.dev/v1/namespaces/default/databases", table)).await.unwrap();
    let columns =
        page["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap());
    let expected = ["Name", "Engine", "Version", "Replicas", "Ready", "Phase", "Primary", "Age"];
    assert_eq!(columns.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn the_oldest_version_warns_and_says_what_to_write() {
    let client = client().await;
    let request = get("/apis/keelson.dev/v1alpha1/namespaces/default/databases", JSON).map(Body::from);
    let answer = client.send(request).await.unwrap();
    let warning = answer.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("deprecated: write keelson.dev/v1"), "{warning}");
}

#[tokio::test]
async fn a_database_can_be_scaled() {
    let client = client().await;
    create(&client, ApiVersion::V1, "scaled", json!({"replicas": 3})).await;
    let databases = databases(&client, ApiVersion::V1);
    let status = json!({"status": {"replicas": 3, "selector": "keelson.dev/database=scaled"}});
    databases.patch_status("scaled", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let scale = databases.patch_scale("scaled", &PatchParams::default(), &two).await.unwrap();
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("keelson.dev/database=scaled"));
    assert_eq!(databases.get("scaled").await.unwrap().data["spec"]["replicas"], 2);
    let eleven = Patch::Merge(json!({"spec": {"replicas": 11}}));
    assert!(
        refusal(databases.patch_scale("scaled", &PatchParams::default(), &eleven).await)
            .contains("spec.replicas")
    );
}

#[tokio::test]
async fn a_database_of_a_tier_can_be_scaled_too() {
    let client = client().await;
    create(&client, ApiVersion::V1, "scaled-tier", json!({"size": "large"})).await;
    let databases = databases(&client, ApiVersion::V1);
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    databases.patch_scale("scaled-tier", &PatchParams::default(), &two).await.unwrap();
    assert_eq!(databases.get("scaled-tier").await.unwrap().data["spec"]["replicas"], 2);
}
