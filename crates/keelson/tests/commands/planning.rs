//! What `plan` tells, with the API server's own word on what it would take.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

fn manifest(spec: Value) -> String {
    json!({"apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec})
        .to_string()
}

#[tokio::test]
async fn what_would_be_made_is_told_and_nothing_is_made() {
    let world = World::new("planning").await;
    let told = world.keelson_with(&["plan", "-f", "-"], &manifest(json!({"replicas": 3})));
    assert_eq!(told.code, 2, "{told:?}");
    for words in ["planning/orders: is made", "+ StatefulSet orders", "3 instances are made"] {
        assert!(told.out.contains(words), "{}", told.out);
    }
    assert_eq!(world.databases().get_opt("orders").await.unwrap(), None);
    let json = world.keelson_with(&["plan", "-f", "-", "-o", "json"], &manifest(json!({"replicas": 3})));
    let value: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&value[0]["verdict"], &value[0]["exists"]), (&json!("changes"), &json!(false)));
}

#[tokio::test]
async fn what_the_cluster_would_not_take_is_told_in_its_words() {
    let world = World::new("refusing").await;
    // Against the schema, against a rule of the definition, and against one of the policy.
    for (spec, words) in [
        (json!({"replicas": 99}), "replicas"),
        (json!({"restore": {"from": {}}}), "restore"),
        (json!({"storage": "nonsense"}), "storage"),
    ] {
        let told = world.keelson_with(&["plan", "-f", "-"], &manifest(spec));
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.out.contains("Why not: the cluster says") && told.out.contains(words), "{}", told.out);
        assert!(told.err.contains("nothing would be done about refusing/orders"), "{}", told.err);
    }
    world.create("orders", json!({"engine": "postgres", "storage": "20Gi"})).await;
    let told =
        world.keelson_with(&["plan", "-f", "-"], &manifest(json!({"engine": "mysql", "storage": "20Gi"})));
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.out.contains("~ spec.engine: postgres → mysql"), "{}", told.out);
}

#[tokio::test]
async fn files_of_a_folder_are_planned_in_their_own_versions_and_others_are_named() {
    let world = World::new("folders").await;
    let folder = std::env::temp_dir().join(format!("keelson-plan-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.yaml"), "apiVersion: keelson.dev/v1\nkind: Database\nmetadata: {name: a}\nspec: {autopilot: act}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n").unwrap();
    fs::write(
        folder.join("b.yml"),
        "apiVersion: keelson.dev/v1beta1\nkind: Database\nmetadata: {name: b}\nspec: {size: medium}\n",
    )
    .unwrap();
    fs::write(folder.join("c.txt"), "no manifest").unwrap();
    let told = world.keelson(&["plan", "-f", folder.to_str().unwrap()]);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(told.code, 2, "{told:?}");
    for words in
        ["folders/a", "spec.autopilot is not supported yet", "folders/b", "2 instances are made", "Secret s"]
    {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    let nothing = world.keelson_with(&["plan", "-f", "-"], "kind: Secret\nmetadata: {name: s}\n");
    assert!(nothing.code == 1 && nothing.err.contains("there is no Database in -"), "{nothing:?}");
}
