//! What is said when it can't be done: each time what to do next, and never more than one line.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::world::{World, call};

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("keelson-errors-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn without_a_kubeconfig_or_with_one_that_leads_nowhere_that_is_said() {
    let none = call(&PathBuf::from("/nowhere/kubeconfig"), &["status"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert!(
        none.err.contains("no way to a cluster is known") && none.err.contains("--kubeconfig"),
        "{}",
        none.err
    );
    let away = file(
        "away",
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {server: 'http://127.0.0.1:9'}\n\
         contexts:\n- name: c\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: {}\n",
    );
    let said = call(&away, &["status"]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("the cluster does not answer") && said.err.contains("kubectl cluster-info"),
        "{}",
        said.err
    );
    let context = call(&away, &["status", "--context", "d"]);
    assert!(context.err.contains("there is no context d, but c"), "{}", context.err);
    fs::remove_file(away).unwrap();
}

#[test]
fn a_mistyped_command_ends_as_an_error_and_not_as_a_database_in_trouble() {
    let said = call(&PathBuf::from("/nowhere"), &["statsu"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("status"), "{}", said.err);
    assert_eq!(call(&PathBuf::from("/nowhere"), &["--help"]).code, 0);
}

#[tokio::test]
async fn who_mistypes_a_name_or_a_namespace_is_told_of_the_right_one() {
    let world = World::new("naming").await;
    world.create("billing", json!({})).await;
    let near = world.keelson(&["status", "biling"]);
    assert_eq!(near.code, 1);
    assert!(near.err.contains("Do you mean billing?"), "{}", near.err);
    let elsewhere = call(&world.kubeconfig, &["backup", "billing", "--namespace", "default"]);
    assert!(elsewhere.err.contains("but in naming: add --namespace naming"), "{}", elsewhere.err);
}

#[tokio::test]
async fn who_may_not_is_told_what() {
    let world = World::new("forbidding").await;
    world.create("orders", json!({})).await;
    let text = fs::read_to_string(&world.kubeconfig).unwrap();
    let mut config: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!("jo");
    let jo = file("jo", &config.to_string());
    let said = call(&jo, &["status", "orders", "--namespace", "forbidding"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("you may not") && said.err.contains("\"jo\""), "{}", said.err);
    let examined = call(&jo, &["doctor"]);
    assert!(examined.out.contains("not known") && !examined.out.contains("panicked"), "{examined:?}");
    fs::remove_file(jo).unwrap();
}
