//! Which field of one version is which of another. Fields that a version does not know are simply not
//! there in what these functions return; keeping them is not their business.

use serde_json::{Map, Value, json};

use super::ApiVersion;
use crate::v1::{BackupPolicy, DatabaseSpec};
use crate::value::Retention;

/// What the stored version says of this.
pub(super) fn up(from: ApiVersion, spec: &Value) -> Value {
    match from {
        ApiVersion::V1 => spec.clone(),
        ApiVersion::V1Beta1 => v1beta1_up(spec),
        ApiVersion::V1Alpha1 => v1alpha1_up(spec),
    }
}

/// What another version says of the stored one.
pub(super) fn down(to: ApiVersion, stored: &Value) -> Value {
    match to {
        ApiVersion::V1 => stored.clone(),
        ApiVersion::V1Beta1 => v1beta1_down(stored),
        ApiVersion::V1Alpha1 => v1alpha1_down(stored),
    }
}

fn v1beta1_up(spec: &Value) -> Value {
    let mut stored = pick(spec, &["version", "size"]);
    let backup = renamed(spec, &[("backup_enabled", "enabled"), ("backup_schedule", "schedule")]);
    if !backup.is_empty() {
        stored.insert("backup".to_owned(), Value::Object(backup));
    }
    Value::Object(stored)
}

/// Says outright whether there are backups: `v1` may leave that to what else it says.
fn v1beta1_down(stored: &Value) -> Value {
    let mut spec = pick(stored, &["version", "size"]);
    if let Some(backup) = stored.get("backup") {
        spec.extend(renamed(backup, &[("enabled", "backup_enabled"), ("schedule", "backup_schedule")]));
        if !spec.contains_key("backup_enabled") && backup_is_on(backup) {
            spec.insert("backup_enabled".to_owned(), true.into());
        }
    }
    Value::Object(spec)
}

fn v1alpha1_up(spec: &Value) -> Value {
    let mut stored = pick(spec, &["replicas"]);
    if let Some(backup) = spec.get("backup") {
        stored.insert("backup".to_owned(), Value::Object(pick(backup, &["schedule", "retention"])));
    }
    Value::Object(stored)
}

/// `replicas` is required there, so a tier is counted out; a `backup` there is one that is made, so one
/// that is switched off is left out; `retention` has a default there, and a value that is filled in
/// later would look like a change.
fn v1alpha1_down(stored: &Value) -> Value {
    let mut spec = pick(stored, &["replicas"]);
    if !spec.contains_key("replicas") {
        spec.insert("replicas".to_owned(), replicas(stored).into());
    }
    if let Some(backup) = stored.get("backup").filter(|backup| backup_is_on(backup)) {
        let mut policy = pick(backup, &["schedule", "retention"]);
        policy.entry("retention").or_insert_with(|| Retention::DEFAULT.to_string().into());
        spec.insert("backup".to_owned(), Value::Object(policy));
    }
    Value::Object(spec)
}

/// By the same rule that the operator goes by. What can't be read has the default.
fn replicas(stored: &Value) -> u32 {
    let size = json!({ "size": stored.get("size") });
    serde_json::from_value::<DatabaseSpec>(size).unwrap_or_default().effective_replicas()
}

/// By the same rule that the operator goes by. One that can't be read is not made.
fn backup_is_on(backup: &Value) -> bool {
    serde_json::from_value(backup.clone()).is_ok_and(|policy: BackupPolicy| policy.is_enabled())
}

fn pick(object: &Value, names: &[&str]) -> Map<String, Value> {
    let renames: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
    renamed(object, &renames)
}

fn renamed(object: &Value, names: &[(&str, &str)]) -> Map<String, Value> {
    let found = |(from, to): &(&str, &str)| Some(((*to).to_owned(), object.get(from)?.clone()));
    names.iter().filter_map(found).collect()
}
