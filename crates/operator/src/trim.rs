//! What is kept of an object that is watched: memory goes by it.

use kube::core::ObjectMeta;
use serde_json::{Map, Value};

/// Leaves of an object's metadata what tells it from others, and these labels and annotations.
pub(crate) fn trim_meta(meta: &mut ObjectMeta, labels: &[&str], annotations: &[&str]) {
    meta.finalizers = None;
    meta.managed_fields = None;
    meta.generate_name = None;
    if let Some(all) = &mut meta.labels {
        all.retain(|key, _| labels.contains(&key.as_str()));
    }
    if let Some(all) = &mut meta.annotations {
        all.retain(|key, _| annotations.contains(&key.as_str()));
    }
}

/// Leaves of an object these fields.
pub(crate) fn keep(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Object(all) => all.retain(|key, _| fields.contains(&key.as_str())),
        other => *other = Value::Object(Map::new()),
    }
}
