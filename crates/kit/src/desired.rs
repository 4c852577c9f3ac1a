//! What a child should be, as JSON, and whether what is there is that.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

/// How an operator names what is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The operator's name: its field manager, and the value of the label that its children have.
    pub manager: String,
    /// The domain of its annotations and finalizers.
    pub domain: String,
}

/// The label by which children are found.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

impl Names {
    /// The annotation on a child that tells what was applied.
    pub fn applied(&self) -> String {
        format!("{}/applied", self.domain)
    }

    /// The selector that finds children.
    pub fn selector(&self) -> String {
        format!("{MANAGED_BY}={}", self.manager)
    }
}

/// A child as it should be, marked as one, with a hash of it all. The mark has the hash too, so that
/// another process can tell that nothing has been taken away from what should be.
pub fn mark(mut child: Value, owner: &OwnerReference, names: &Names) -> (Value, u64) {
    let metadata = entry(&mut child, "metadata");
    entry_of(metadata, "labels").insert(MANAGED_BY.to_owned(), names.manager.clone().into());
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    // Set by the API server, or for it: no part of what should be.
    for field in ["creationTimestamp", "managedFields", "resourceVersion", "uid", "generation"] {
        metadata.remove(field);
    }
    if let Value::Object(fields) = &mut child {
        fields.remove("status");
    }
    let hash = hash(&child);
    let annotations = entry_of(entry(&mut child, "metadata"), "annotations");
    annotations.insert(names.applied(), format!("{hash:016x}").into());
    (child, hash)
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

fn entry<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    entry_of(fields_of(object), field)
}

fn entry_of<'a>(fields: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    fields_of(fields.entry(field).or_insert(Value::Null))
}

/// The fields of an object; what is none becomes one.
fn fields_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("it was just made one"),
    }
}

/// What should be, without that by which an object is found: nobody owns that.
pub fn unnamed(mut desired: Value) -> Value {
    if let Value::Object(fields) = &mut desired {
        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.retain(|name, _| !matches!(name.as_str(), "name" | "namespace"));
        }
    }
    desired
}

/// Whether all that should be is there. More may be: defaults, and what others have set. A value that
/// the API server writes in another way (`0.5` for `500m`) counts as different, which costs a write that
/// changes nothing.
pub fn is_within(desired: &Value, found: &Value) -> bool {
    match (desired, found) {
        (Value::Null, _) => true,
        (Value::Object(desired), Value::Object(found)) => desired.iter().all(|(field, value)| {
            found.get(field).map_or_else(|| is_nothing(value), |there| is_within(value, there))
        }),
        (Value::Array(desired), Value::Array(found)) => {
            desired.len() == found.len()
                && desired.iter().zip(found).all(|(one, other)| is_within(one, other))
        }
        (desired, found) => desired == found,
    }
}

/// Whether the account that the API server keeps of a field manager's fields (`fieldsV1`) names all that
/// should be. What somebody else changes or removes is taken out of it, so if the mark is the one that this
/// would get, and the account names everything, then nothing has been changed: without a look at the object.
///
/// The account says `f:name` for a field, `k:{…}` for an item of a list that is told by those of its fields,
/// `v:…` for an item that is told by itself, and `.` or nothing below what is owned as a whole. What can't
/// be told from that counts as missing.
pub fn is_named(desired: &Value, account: &Value) -> bool {
    let Value::Object(account) = account else { return false };
    let whole = account.keys().all(|name| name == ".");
    match desired {
        Value::Object(fields) if !whole => {
            let named = |(field, value): (&String, &Value)| {
                is_nothing(value)
                    || account.get(&format!("f:{field}")).is_some_and(|part| is_named(value, part))
            };
            fields.iter().all(named)
        }
        Value::Array(items) if !whole => items.iter().all(|item| {
            let told = |(name, part): (&String, &Value)| match (name.get(..2), name.get(2..)) {
                (Some("k:"), Some(key)) => {
                    let key: Value = serde_json::from_str(key).unwrap_or_default();
                    key.is_object() && is_within(&key, item) && is_named(item, part)
                }
                (Some("v:"), Some(value)) => {
                    serde_json::from_str(value).is_ok_and(|value: Value| value == *item)
                }
                _ => false,
            };
            account.iter().any(told)
        }),
        _ => whole,
    }
}

/// The API server drops what says nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The merge patch that makes one value of another; nothing where they are the same.
pub fn difference(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(old), Value::Object(new)) => {
            let removed = old.keys().filter(|field| !new.contains_key(*field));
            let removed = removed.map(|field| (field.clone(), Value::Null));
            let changed = new.iter().filter_map(|(field, value)| match old.get(field) {
                Some(before) => difference(before, value).map(|change| (field.clone(), change)),
                None => Some((field.clone(), value.clone())),
            });
            let patch: Map<String, Value> = removed.chain(changed).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        Names { manager: "greeter".into(), domain: "example.dev".into() }
    }

    fn owner() -> OwnerReference {
        OwnerReference { uid: "1".into(), ..OwnerReference::default() }
    }

    #[test]
    fn the_mark_follows_from_what_should_be_and_from_nothing_else() {
        let plain = json!({"kind": "ConfigMap", "data": {"text": "hello"}});
        let (marked, hash) = mark(plain.clone(), &owner(), &names());
        assert_eq!(marked["metadata"]["labels"][MANAGED_BY], "greeter");
        assert_eq!(marked["metadata"]["annotations"]["example.dev/applied"], format!("{hash:016x}"));
        let mut read = plain.clone();
        read["metadata"] = json!({"resourceVersion": "5", "uid": "x"});
        read["status"] = json!({"anything": 1});
        assert_eq!(mark(read, &owner(), &names()).1, hash);
        let mut other = plain;
        other["data"]["more"] = "x".into();
        assert_ne!(mark(other, &owner(), &names()).1, hash);
    }

    #[test]
    fn what_others_add_is_no_drift_and_what_they_change_or_remove_is() {
        let desired = json!({"data": {"text": "hello"}, "list": [{"a": 1}], "empty": {}, "nothing": null});
        let found = json!({"data": {"text": "hello", "theirs": "x"}, "list": [{"a": 1, "b": 2}], "more": 1});
        assert!(is_within(&desired, &found));
        for drift in [
            json!({"data": {"text": "bye"}, "list": [{"a": 1}]}),
            json!({"data": {}, "list": [{"a": 1}]}),
            json!({"data": {"text": "hello"}, "list": []}),
        ] {
            assert!(!is_within(&desired, &drift), "{drift}");
        }
    }

    #[test]
    fn an_account_that_names_everything_is_told_from_one_that_lacks_something() {
        let desired = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "orders", "labels": {"a": "b"}, "ownerReferences": [{"uid": "7", "name": "o"}]
            },
            "spec": {
                "selector": {"a": "b"}, "empty": {},
                "ports": [{"port": 5432, "protocol": "TCP", "name": "postgres"}], "finalizers": ["x"]
            }
        });
        // As an API server has it: what names an object is nobody's.
        let account = json!({
            "f:metadata": {
                "f:labels": {"f:a": {}},
                "f:ownerReferences": {"k:{\"uid\":\"7\"}": {".": {}, "f:name": {}, "f:uid": {}}}
            },
            "f:spec": {
                "f:selector": {},
                "f:ports": {"k:{\"port\":5432,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}}},
                "f:finalizers": {"v:\"x\"": {}}
            }
        });
        assert!(is_named(&unnamed(desired.clone()), &account));
        for path in ["/f:metadata/f:labels", "/f:spec/f:ports", "/f:spec/f:finalizers", "/f:metadata"] {
            let mut less = account.clone();
            let part = less.pointer_mut(path).unwrap().as_object_mut().unwrap();
            let first = part.keys().next().unwrap().clone();
            part.remove(&first);
            part.insert("f:other".into(), json!({}));
            assert!(!is_named(&unnamed(desired.clone()), &less), "{path}");
        }
    }

    /// As RFC 7396 has it.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (field, value) in patch {
            match value {
                Value::Null => drop(target.as_object_mut().unwrap().remove(field)),
                value => merge(target.as_object_mut().unwrap().entry(field).or_insert(Value::Null), value),
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), any::<i8>().prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_difference_makes_one_of_the_other_and_equals_have_none(from in any_value(), to in any_value()) {
            prop_assert_eq!(difference(&from, &from), None);
            let mut made = from.clone();
            if let Some(patch) = difference(&from, &to) {
                merge(&mut made, &patch);
            }
            prop_assert_eq!(made, to);
        }

        #[test]
        fn everything_is_within_itself(value in any_value()) {
            prop_assert!(is_within(&value, &value));
        }
    }
}
