//! Fields that are accepted and that nothing comes of yet. One that is built leaves this list.

use keelson_api::v1::{Autopilot, DatabaseSpec, Storage, Upgrade};

/// The fields that ask for something and have no effect. One that asks for nothing, such as `autopilot: none`, gets
/// what it asks for.
pub fn without_effect(spec: &DatabaseSpec) -> Vec<&'static str> {
    let autopilot = spec.autopilot.as_ref().is_some_and(|mode| mode.parse().ok() != Some(Autopilot::None));
    let volume = spec.storage.as_ref().and_then(Storage::volume);
    let autogrow = volume.is_some_and(|volume| volume.autogrow.is_some());
    let upgrade = spec.upgrade.as_ref().is_some_and(|upgrade| *upgrade != Upgrade::default());
    let fields = [("autopilot", autopilot), ("storage.autogrow", autogrow), ("upgrade", upgrade)];
    fields.into_iter().filter(|(_, asks)| *asks).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(spec: Value) -> Vec<&'static str> {
        without_effect(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn only_fields_that_ask_for_something_are_named() {
        assert_eq!(named(json!({})), [""; 0]);
        assert_eq!(named(json!({"autopilot": "none", "upgrade": {}, "storage": "5Gi"})), [""; 0]);
        assert_eq!(named(json!({"storage": {"size": "5Gi"}})), [""; 0]);
        let all = json!({
            "autopilot": "act", "backup": {"drill": {}}, "upgrade": {"switchOver": "Manual"}, "storage": {"autogrow": {"limit": "1Ti"}}
        });
        assert_eq!(named(all), ["autopilot", "storage.autogrow", "upgrade"]);
    }
}
