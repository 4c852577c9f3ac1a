use kube::core::{DynamicObject, ObjectMeta};
use serde_json::json;

use super::*;
use crate::desired::Names;
use crate::watch::Trim;

fn key(name: &str) -> Key {
    Key { namespace: "default".into(), name: name.into() }
}

fn meta(uid: &str, version: u64, ours: &str) -> ObjectMeta {
    serde_json::from_value(json!({
        "uid": uid, "resourceVersion": version.to_string(),
        "ownerReferences": [
            {"apiVersion": "example.dev/v1", "kind": "Greeting", "name": "o", "uid": "9", "controller": true}
        ],
        "managedFields": [
            {"manager": "us", "operation": "Apply", "fieldsV1": {"f:data": {ours: {}}}},
            {"manager": "us", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:x": version}},
            {"manager": "them", "operation": "Update", "fieldsV1": {"f:y": version}}
        ]
    }))
    .unwrap()
}

fn held(uid: &str, version: u64, ours: &str) -> Held {
    Held::new(&meta(uid, version, ours), "us")
}

#[test]
fn a_change_to_what_we_have_set_is_told_from_any_other() {
    let store = Store::default();
    assert_eq!(store.seen(key("a"), held("1", 1, "f:text")), News::Changed);
    assert_eq!(store.seen(key("a"), held("1", 1, "f:text")), News::None);
    assert_eq!(store.seen(key("a"), held("1", 2, "f:text")), News::Beside);
    assert_eq!(store.seen(key("a"), held("1", 3, "f:other")), News::Changed);
    assert_eq!(store.seen(key("a"), held("2", 4, "f:other")), News::Changed, "another of that name");
}

#[test]
fn a_status_of_our_own_is_no_reason_to_look_and_somebody_elses_is() {
    let object = |version: u64, name: &str, status: &str, by: &str| {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "example.dev/v1", "kind": "Greeting",
            "metadata": {
                "uid": "1", "resourceVersion": version.to_string(),
                "managedFields": [
                    {"manager": by, "operation": "Update", "subresource": "status", "fieldsV1": {status: {}}}
                ]
            },
            "spec": {"name": name}, "status": {"text": status}
        }))
        .unwrap();
        let names = Names { manager: "us".into(), domain: "example.dev".into() };
        Held::itself(&mut object, &names)
    };
    let store = Store::default();
    store.seen(key("a"), object(1, "x", "", "us"));
    assert_eq!(store.seen(key("a"), object(2, "x", "ready", "us")), News::Beside);
    assert_eq!(store.seen(key("a"), object(3, "x", "nonsense", "them")), News::Changed);
    store.seen(key("a"), object(4, "x", "ready", "us"));
    assert_eq!(store.seen(key("a"), object(5, "y", "ready", "us")), News::Changed);
    let text = store.get(&key("a")).unwrap().text.unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&text["status"]["text"], &text["metadata"]["resourceVersion"]),
        (&json!("ready"), &json!("5"))
    );
}

#[test]
fn a_uid_is_its_text_again() {
    let text = "0f3c9e1a-77b2-4d5e-8a90-00112233aabb";
    assert_eq!(Uid::new(text).text(), text);
    assert_ne!(Uid::new("some"), Uid::new("other"));
}

#[test]
fn what_we_wrote_is_no_news_and_what_is_older_is_not_believed() {
    let store = Store::default();
    store.seen(key("a"), held("1", 5, "f:old"));
    store.wrote(key("a"), held("1", 7, "f:new"));
    assert_eq!(store.seen(key("a"), held("1", 6, "f:old")), News::None);
    assert_eq!(store.seen(key("a"), held("1", 7, "f:new")), News::None);
    store.wrote(key("a"), held("1", 3, "f:late"));
    assert_eq!(store.get(&key("a")).unwrap().version, 7);
}

#[test]
fn a_list_says_what_is_gone_but_not_of_what_was_written_meanwhile() {
    let store = Store::default();
    store.seen(key("stays"), held("1", 1, "f:x"));
    store.seen(key("goes"), held("2", 2, "f:x"));
    store.list_begins();
    store.seen(key("stays"), held("1", 1, "f:x"));
    store.wrote(key("made"), held("3", 9, "f:x"));
    let gone: Vec<String> = store.list_ended().into_iter().map(|(key, _)| key.name).collect();
    assert_eq!(gone, ["goes"]);
    assert_eq!(store.len(), 2);
}

#[test]
fn after_a_restore_of_the_api_servers_storage_a_list_with_lower_versions_is_believed() {
    let store = Store::default();
    store.seen(key("a"), held("1", 100, "f:new"));
    store.list_begins();
    assert_eq!(store.seen(key("a"), held("1", 40, "f:old")), News::Changed);
    assert_eq!(store.get(&key("a")).unwrap().version, 40);
}

#[test]
fn the_end_of_one_is_not_the_end_of_another_with_its_name() {
    let store = Store::default();
    store.seen(key("a"), held("1", 1, "f:x"));
    store.wrote(key("a"), held("2", 5, "f:x"));
    assert_eq!(store.gone(&key("a"), Uid::new("1")), None);
    assert!(store.gone(&key("a"), Uid::new("2")).is_some() && store.is_empty());
}

#[test]
fn what_is_told_late_of_one_that_is_gone_does_not_hide_the_one_that_was_made_since() {
    let store = Store::default();
    store.seen(key("a"), held("1", 1, "f:x"));
    store.wrote(key("a"), held("2", 5, "f:x"));
    assert_eq!(store.seen(key("a"), held("1", 3, "f:x")), News::None);
    assert_eq!(store.gone(&key("a"), Uid::new("1")), None);
    assert_eq!(store.get(&key("a")).unwrap().uid, Uid::new("2"));
    assert_eq!(store.seen(key("a"), held("2", 5, "f:x")), News::None, "it was known all the time");
}

#[test]
fn members_are_found_by_label_told_of_only_when_what_is_kept_changes_and_may_move() {
    let pod = |version: u64, of: &str, phase: &str, noise: u64| {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "uid": "1", "namespace": "default", "resourceVersion": version.to_string(),
                "labels": {"example.dev/greeting": of}
            },
            "status": {"phase": phase}, "noise": noise
        }))
        .unwrap();
        let trim: Trim = |object| drop(object.data.as_object_mut().unwrap().remove("noise"));
        let names = Names { manager: "us".into(), domain: "example.dev".into() };
        Held::related(&mut object, "example.dev/greeting", &names, Some(trim))
    };
    let store = Store::default();
    assert_eq!(store.seen(key("p"), pod(1, "a", "Pending", 1)), News::Changed);
    assert_eq!(store.seen(key("p"), pod(2, "a", "Pending", 2)), News::Beside);
    assert_eq!(store.seen(key("p"), pod(3, "a", "Running", 2)), News::Changed);
    let text = |held: &Held| String::from_utf8(held.text.clone().unwrap().into_vec()).unwrap();
    let members = store.members(&key("a"));
    assert!(members.len() == 1 && text(&members[0]).contains("Running"), "{members:?}");
    assert!(!text(&members[0]).contains("noise") && store.members(&key("b")).is_empty());

    store.seen(key("p"), pod(4, "b", "Running", 2));
    assert!(store.members(&key("a")).is_empty() && store.members(&key("b")).len() == 1);
    store.gone(&key("p"), Uid::new("1"));
    assert!(store.members(&key("b")).is_empty());
}

#[test]
fn who_takes_the_owner_reference_away_does_not_hide_the_child_from_its_owner() {
    let store = Store::default();
    store.seen(key("a"), held("1", 1, "f:x"));
    let mut orphan = meta("1", 2, "f:y");
    orphan.owner_references = None;
    assert_eq!(store.seen(key("a"), Held::new(&orphan, "us")), News::Changed);
    assert_eq!(&*store.get(&key("a")).unwrap().owner.unwrap().name, "o");
}

#[test]
fn the_answer_to_a_write_that_comes_after_the_end_brings_nothing_back() {
    let store = Store::default();
    store.seen(key("a"), held("1", 1, "f:text"));
    assert!(store.gone(&key("a"), Uid::new("1")).is_some());
    store.wrote_if_there(key("a"), held("1", 2, "f:text"));
    assert!(store.is_empty());
    store.wrote_if_there(key("a"), held("2", 3, "f:text"));
    assert_eq!(store.len(), 1, "another of that name");
}

#[test]
fn who_names_an_object_is_found_by_it() {
    let store = Store::default();
    let naming = |name: &str| Held { member_of: Some(name.into()), ..held("1", 1, "f:text") };
    store.seen(key("a"), naming("orders"));
    store.seen(key("b"), naming("orders"));
    assert_eq!(store.member_names(&key("orders")), ["a", "b"]);
    store.seen(key("b"), Held { version: 2, ..naming("others") });
    assert_eq!(store.member_names(&key("orders")), ["a"]);
    store.gone(&key("a"), Uid::new("1"));
    assert!(store.member_names(&key("orders")).is_empty());
}
