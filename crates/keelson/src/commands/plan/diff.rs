//! Where two objects differ, field by field.

use keelson_api::value::Size;
use serde::Serialize;
use serde_json::Value;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Where it is.
    pub field: String,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// What would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// All that differs, also what one has and the other lacks.
pub fn whole(from: &Value, to: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(from), Some(to), true, &mut changes);
    changes
}

/// What of a desired object is not there, or is other. What is there besides is somebody else's, or a default.
pub fn within(found: &Value, desired: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", Some(found), Some(desired), false, &mut changes);
    changes
}

/// What this field manager has set and would not set any more, by the account that the API server keeps.
pub fn removed(found: &Value, desired: &Value, manager: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    let accounts = found["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours = accounts.filter(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
    for entry in ours {
        for part in ["spec", "data", "rules"] {
            let account = &entry["fieldsV1"][format!("f:{part}")];
            if account.is_object() {
                no_more(part, account, &found[part], &desired[part], &mut changes);
            }
        }
    }
    changes
}

fn no_more(path: &str, account: &Value, found: &Value, desired: &Value, changes: &mut Vec<Change>) {
    for (key, below) in account.as_object().into_iter().flatten() {
        let (field, there, wanted) = match (key.get(..2), key.get(2..)) {
            (Some("f:"), Some(field)) => (format!("{path}.{field}"), found.get(field), desired.get(field)),
            (Some("k:"), Some(key)) => {
                let key: Value = serde_json::from_str(key).unwrap_or_default();
                let item = |list: &Value| list.as_array()?.iter().find(|item| has(item, &key)).cloned();
                let (there, wanted) = (item(found), item(desired));
                let name = there.as_ref().and_then(|item| item["name"].as_str().map(str::to_owned));
                let path = format!("{path}[{}]", name.unwrap_or_else(|| key.to_string()));
                match (there, wanted) {
                    (Some(there), Some(wanted)) => no_more(&path, below, &there, &wanted, changes),
                    (Some(there), None) => changes.push(Change { field: path, from: Some(there), to: None }),
                    _ => {}
                }
                continue;
            }
            _ => continue,
        };
        match (there, wanted) {
            (Some(there), Some(wanted)) => no_more(&field, below, there, wanted, changes),
            (Some(there), None) => changes.push(Change { field, from: Some(there.clone()), to: None }),
            _ => {}
        }
    }
}

fn has(item: &Value, key: &Value) -> bool {
    // Defaults are part of some keys, such as the protocol of a port, and nobody writes them.
    key.as_object()
        .into_iter()
        .flatten()
        .all(|(name, value)| item.get(name).is_none_or(|found| found == value))
}

fn compare(path: &str, from: Option<&Value>, to: Option<&Value>, both: bool, changes: &mut Vec<Change>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (from, to) {
        (None, None | Some(Value::Null)) | (Some(Value::Null), None) => {}
        (Some(one), Some(other)) if same(one, other) => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            for (name, value) in other {
                compare(&below(name), one.get(name), Some(value), both, changes);
            }
            for (name, value) in one.iter().filter(|(name, _)| both && !other.contains_key(*name)) {
                compare(&below(name), Some(value), None, both, changes);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if named(one) && named(other) => {
            let item = |list: &[Value], name: &Value| list.iter().find(|item| item["name"] == *name).cloned();
            for wanted in other {
                let path = format!("{path}[{}]", plain(&wanted["name"]));
                compare(&path, item(one, &wanted["name"]).as_ref(), Some(wanted), both, changes);
            }
            for there in one.iter().filter(|there| item(other, &there["name"]).is_none()) {
                compare(&format!("{path}[{}]", plain(&there["name"])), Some(there), None, true, changes);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}[{number}]"), Some(one), Some(other), both, changes);
            }
        }
        (None, Some(value)) if !both && is_nothing(value) => {}
        (from, to) => {
            let change = Change { field: path.to_owned(), from: from.cloned(), to: to.cloned() };
            changes.push(change);
        }
    }
}

fn named(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item["name"].is_string())
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

/// Whether they mean the same: `0.5` is `500m`.
fn same(one: &Value, other: &Value) -> bool {
    let amount = |value: &Value| value.as_str().and_then(|text| text.parse::<Size>().ok());
    one == other || amount(one).is_some_and(|one| amount(other) == Some(one))
}

/// A value in a line.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(changes: &[Change]) -> Vec<String> {
        let word = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), plain);
        changes.iter().map(|one| format!("{}: {} > {}", one.field, word(&one.from), word(&one.to))).collect()
    }

    #[test]
    fn two_specs_differ_where_one_has_what_the_other_lacks() {
        let from = json!({"replicas": 3, "size": "small", "storage": "1Gi", "parameters": {"a": "1"}});
        let to = json!({"replicas": 2, "storage": "1024Mi", "parameters": {"a": "1", "b": "2"}});
        assert_eq!(told(&whole(&from, &to)), ["parameters.b: - > 2", "replicas: 3 > 2", "size: small > -"]);
    }

    #[test]
    fn defaults_and_what_others_set_are_no_difference() {
        let found =
            json!({"a": {"x": 1, "default": true}, "list": [{"name": "c", "image": "i", "policy": "p"}]});
        assert_eq!(
            within(&found, &json!({"a": {"x": 1}, "list": [{"name": "c", "image": "i"}], "none": {}})),
            []
        );
        let other = json!({"list": [{"name": "c", "image": "j"}, {"name": "d"}]});
        assert_eq!(told(&within(&found, &other)), ["list[c].image: i > j", r#"list[d]: - > {"name":"d"}"#]);
    }

    #[test]
    fn what_we_set_and_would_not_set_any_more_is_seen_in_the_account() {
        let found = json!({
            "metadata": {"managedFields": [{
                "manager": "keelson", "operation": "Apply",
                "fieldsV1": {"f:spec": {"f:nodeSelector": {"f:disk": {}}, "f:ports": {
                    r#"k:{"port":1,"protocol":"TCP"}"#: {".": {}, "f:port": {}}
                }}}
            }]},
            "spec": {"nodeSelector": {"disk": "ssd"}, "ports": [{"port": 1, "protocol": "TCP"}], "others": 1}
        });
        let desired = json!({"spec": {"ports": [{"port": 1}]}});
        assert_eq!(told(&removed(&found, &desired, "keelson")), [r#"spec.nodeSelector: {"disk":"ssd"} > -"#]);
        assert_eq!(removed(&found, &desired, "other"), []);
    }
}
