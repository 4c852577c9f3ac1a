//! What `status`, `top`, `restore --dry-run` and their like show.

use serde_json::{Value, json};

use crate::world::{World, condition};

#[tokio::test]
async fn how_databases_are_is_printed_for_people_and_for_programs_and_is_how_it_ends() {
    let world = World::new("showing").await;
    let none = world.keelson(&["status"]);
    assert_eq!((none.code, none.err.as_str()), (0, ""));
    assert!(none.out.contains("there is no Database in the namespace showing"), "{}", none.out);

    world.create("orders", json!({"replicas": 2})).await;
    let new = world.keelson(&["status", "orders"]);
    assert_eq!(new.code, 3, "nobody has looked at it: {new:?}");
    assert!(new.out.contains("the operator has not looked at the last change"), "{}", new.out);

    let good = json!({
        "phase": "Running", "readyReplicas": 2, "replicas": 2, "primary": "orders-0", "observedGeneration": 1,
        "conditions": [condition("Ready", "True", "Writable", "orders-0 takes writes")]
    });
    world.say("orders", good).await;
    let good = world.keelson(&["status"]);
    assert_eq!(good.code, 0, "{good:?}");
    assert!(good.out.lines().any(|line| line.starts_with("orders") && line.contains("2/2")), "{}", good.out);

    let bad =
        json!({"phase": "Failed", "conditions": [condition("Ready", "False", "DataLost", "all is gone")]});
    world.say("orders", bad).await;
    let bad = world.keelson(&["status", "orders"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.out.contains("DataLost") && bad.out.contains("→ Restore a backup"), "{}", bad.out);
    assert!(!bad.out.contains('\u{1b}'), "no colour where nobody looks");

    let json = world.keelson(&["status", "orders", "-o", "json"]);
    let value: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &value["verdict"], &value["name"]), (2, &json!("wrong"), &json!("orders")));
    assert_eq!(value["problems"][0]["docs"], "docs/failover.md#where-to-look");
    let yaml = world.keelson(&["status", "-o", "yaml"]);
    let value: Value = serde_yaml_ng::from_str(&yaml.out).unwrap();
    assert_eq!(value[0]["reason"], "DataLost");
    let once = world.keelson(&["top"]);
    assert_eq!((once.code, once.out.lines().count()), (0, 2), "{once:?}");
}

#[tokio::test]
async fn a_restore_is_shown_before_it_is_made_and_refused_where_it_can_t_be() {
    let world = World::new("restoring").await;
    world.create("plain", json!({})).await;
    let none = world.keelson(&["restore", "plain", "--dry-run"]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("spec.backup.to names no place"), "{}", none.err);

    let s3 = json!({"bucket": "backups", "path": "its/own", "credentialsSecret": "s3"});
    world.create("orders", json!({"storage": "20Gi", "backup": {"to": {"s3": s3}}})).await;
    let early = world.keelson(&["restore", "orders", "--dry-run"]);
    assert!(early.err.contains("nothing to restore from yet"), "{}", early.err);
    let window =
        json!({"firstRecoverable": "2026-11-01T00:00:00Z", "lastRecoverable": "2026-11-18T00:00:00Z"});
    world.say("orders", json!({"backup": window})).await;
    let shown =
        world.keelson(&["restore", "orders", "--to", "2026-11-10T00:00:00Z", "--as", "back", "--dry-run"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let manifest: Value = serde_yaml_ng::from_str(&shown.out).unwrap();
    assert_eq!(manifest["spec"]["restore"]["from"]["database"], "orders");
    assert!(!shown.out.contains("its/own"), "two databases never share a path: {}", shown.out);
    assert_eq!(world.databases().get_opt("back").await.unwrap(), None);
    // What is shown is what would be taken.
    let planned = world.keelson_with(&["plan", "-f", "-"], &shown.out);
    assert_eq!(planned.code, 2, "{planned:?}");

    let late = world.keelson(&["restore", "orders", "--to", "2026-11-19T00:00:00Z"]);
    assert!(late.code == 1 && late.err.contains("leave --to away"), "{late:?}");
    let made = world.keelson(&["restore", "orders", "--as", "back", "--timeout", "0"]);
    assert_eq!(made.code, 0, "{made:?}");
    let found = world.databases().get("back").await.unwrap();
    assert_eq!(found.spec.storage, world.databases().get("orders").await.unwrap().spec.storage);
    let again = world.keelson(&["restore", "orders", "--as", "back", "--timeout", "0"]);
    assert!(again.code == 1 && again.err.contains("choose another name with --as"), "{again:?}");
}

#[tokio::test]
async fn a_restart_is_asked_for_on_the_database_itself() {
    let world = World::new("restarting").await;
    world.create("orders", json!({})).await;
    let asked = world.keelson(&["restart", "orders", "--timeout", "0"]);
    assert_eq!(asked.code, 0, "{asked:?}");
    let found = world.databases().get("orders").await.unwrap();
    let notes = found.metadata.annotations.unwrap_or_default();
    assert!(notes.contains_key("keelson.dev/restart-instances"), "{notes:?}");
    let wrong = world.keelson(&["restart", "orders", "--instance", "orders-7"]);
    assert!(wrong.code == 1 && wrong.err.contains("orders-7 is no instance of orders"), "{wrong:?}");
    let psql = world.keelson(&["psql", "orders"]);
    assert!(psql.code == 1 && psql.err.contains("nobody takes writes"), "{psql:?}");
    let logs = world.keelson(&["logs", "orders"]);
    assert!(logs.code == 1 && logs.err.contains("orders has no instances yet"), "{logs:?}");
}
