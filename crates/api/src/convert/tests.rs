//! There and back is the same object, in every direction, for any object.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(version: ApiVersion, spec: Value) -> Value {
    json!({
        "apiVersion": version.api_version(),
        "kind": "Database",
        "metadata": { "name": "orders", "labels": { "team": "shop" }, "uid": "1-2-3" },
        "spec": spec,
        "status": { "phase": "Running", "replicas": 3 }
    })
}

fn spec(object: &Value) -> &Value {
    &object["spec"]
}

fn changed(mut object: Value, change: Value) -> Value {
    for (name, value) in change.as_object().unwrap() {
        let fields = object["spec"].as_object_mut().unwrap();
        match value {
            Value::Null => fields.remove(name),
            value => fields.insert(name.clone(), value.clone()),
        };
    }
    object
}

const FULL: &str = r#"{
    "engine": "mysql", "version": "9.7", "replicas": 2, "storage": {"size": "50Gi", "class": "fast"},
    "backup": {"enabled": true, "schedule": "0 2 * * *", "to": {"s3": {"bucket": "b"}}},
    "parameters": {"a": "b"}, "unheardOf": [1, {"x": null}]
}"#;

fn full() -> Value {
    object(ApiVersion::V1, serde_json::from_str(FULL).unwrap())
}

#[test]
fn the_fields_mean_the_same_in_every_version() {
    let alpha = object(
        ApiVersion::V1Alpha1,
        json!({"replicas": 3, "backup": {"schedule": "0 2 * * *", "retention": "7d"}}),
    );
    let stored = convert(alpha.clone(), ApiVersion::V1).unwrap();
    assert_eq!(stored["apiVersion"], "keelson.dev/v1");
    assert_eq!(spec(&stored), spec(&alpha));
    assert_eq!(stored["metadata"], alpha["metadata"], "nothing to keep, nothing written");

    let beta =
        json!({"version": "15", "size": "large", "backup_enabled": true, "backup_schedule": "0 2 * * *"});
    let stored = convert(object(ApiVersion::V1Beta1, beta.clone()), ApiVersion::V1).unwrap();
    let said =
        json!({"version": "15", "size": "large", "backup": {"enabled": true, "schedule": "0 2 * * *"}});
    assert_eq!(*spec(&stored), said);
    assert_eq!(*spec(&convert(stored, ApiVersion::V1Beta1).unwrap()), beta);
}

#[test]
fn a_tier_is_counted_out_where_a_number_is_required() {
    let alpha = convert(object(ApiVersion::V1Beta1, json!({"size": "large"})), ApiVersion::V1Alpha1).unwrap();
    assert_eq!(*spec(&alpha), json!({"replicas": 3}));
    let back = convert(alpha.clone(), ApiVersion::V1).unwrap();
    assert_eq!(*spec(&back), json!({"size": "large"}), "the number was not asked for");
    let scaled = convert(changed(alpha, json!({"replicas": 5})), ApiVersion::V1).unwrap();
    assert_eq!(*spec(&scaled), json!({"size": "large", "replicas": 5}));
}

#[test]
fn a_change_in_an_old_version_wins_over_what_was_kept_and_leaves_the_rest() {
    let beta = convert(full(), ApiVersion::V1Beta1).unwrap();
    let edited = changed(beta, json!({"version": "9.8", "size": "large", "backup_schedule": "0 4 * * *"}));
    let stored = convert(edited, ApiVersion::V1).unwrap();
    let mut expected = full()["spec"].clone();
    expected["version"] = "9.8".into();
    expected["size"] = "large".into();
    expected["backup"]["schedule"] = "0 4 * * *".into();
    assert_eq!(*spec(&stored), expected);
    assert_eq!(stored["metadata"], full()["metadata"]);
}

#[test]
fn a_field_taken_away_in_an_old_version_is_gone() {
    let beta = convert(full(), ApiVersion::V1Beta1).unwrap();
    let stored = convert(changed(beta, json!({"backup_schedule": null})), ApiVersion::V1).unwrap();
    assert_eq!(spec(&stored)["backup"], json!({"enabled": true, "to": {"s3": {"bucket": "b"}}}));
}

#[test]
fn a_change_in_one_old_version_is_seen_in_the_other() {
    let alpha = changed(convert(full(), ApiVersion::V1Alpha1).unwrap(), json!({"replicas": 5}));
    let beta = convert(alpha, ApiVersion::V1Beta1).unwrap();
    let beta = changed(beta, json!({"version": "9.8"}));
    let stored = convert(beta, ApiVersion::V1).unwrap();
    assert_eq!((&spec(&stored)["replicas"], &spec(&stored)["version"]), (&json!(5), &json!("9.8")));
}

#[test]
fn a_backup_switched_off_is_not_shown_as_one_and_can_be_switched_on() {
    let off =
        object(ApiVersion::V1, json!({"replicas": 1, "backup": {"enabled": false, "schedule": "@daily"}}));
    let alpha = convert(off, ApiVersion::V1Alpha1).unwrap();
    assert_eq!(*spec(&alpha), json!({"replicas": 1}));
    let on = changed(alpha, json!({"backup": {"schedule": "@hourly", "retention": "30d"}}));
    let stored = convert(on, ApiVersion::V1).unwrap();
    assert_eq!(spec(&stored)["backup"], json!({"schedule": "@hourly", "retention": "30d"}));
}

#[test]
fn a_copy_in_another_version_is_not_overruled_by_what_it_was_copied_with() {
    // As happens when somebody reads v1beta1, writes v1 over it, and leaves the annotations.
    let mut copy = convert(full(), ApiVersion::V1Beta1).unwrap();
    copy["apiVersion"] = "keelson.dev/v1".into();
    copy["spec"] = json!({"version": "17"});
    let beta = convert(copy, ApiVersion::V1Beta1).unwrap();
    assert_eq!(*spec(&convert(beta, ApiVersion::V1).unwrap()), json!({"version": "17"}));
}

#[test]
fn an_annotation_that_says_nothing_does_no_harm() {
    for text in ["", "no json", "[1]", "{\"v1\": 5}"] {
        let mut beta = object(ApiVersion::V1Beta1, json!({"version": "15"}));
        beta["metadata"]["annotations"] = json!({ ANNOTATION: text, "other": "kept" });
        let stored = convert(beta, ApiVersion::V1).unwrap();
        assert_eq!(spec(&stored)["version"], "15", "{text}");
        assert_eq!(stored["metadata"]["annotations"]["other"], "kept");
    }
}

#[test]
fn other_kinds_and_versions_are_refused_with_a_reason() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod"});
    assert!(convert(pod, ApiVersion::V1).unwrap_err().to_string().contains("`Pod`"));
    let v9 = json!({"apiVersion": "keelson.dev/v9", "kind": "Database"});
    assert!(convert(v9, ApiVersion::V1).unwrap_err().to_string().contains("use keelson.dev/v1"));
    assert_eq!(convert(json!(5), ApiVersion::V1), Err(ConversionError::NotAnObject));
}

/// Any JSON, so that nothing depends on what a schema would have let through.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..20).prop_map(Value::from),
        "[a-z0-9 *]{0,6}".prop_map(Value::from),
        Just(json!("0 2 * * *")),
        Just(json!("large")),
        Just(json!("30d")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let key =
            prop_oneof!["[a-c]", Just("enabled".into()), Just("schedule".into()), Just("retention".into())];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A spec with fields of all versions, known and unknown, right and wrong.
fn any_spec() -> impl Strategy<Value = Value> {
    const NAMES: &[&str] = &[
        "engine",
        "version",
        "size",
        "replicas",
        "storage",
        "backup",
        "backup_enabled",
        "backup_schedule",
        "parameters",
        "unheardOf",
    ];
    let sensible = prop_oneof![
        (1i64..11, proptest::option::of("[0-9]d")).prop_map(|(replicas, retention)| {
            json!({"replicas": replicas, "backup": {"schedule": "0 2 * * *", "retention": retention}})
        }),
        (any::<bool>(), prop_oneof!["small", "medium", "large"]).prop_map(|(enabled, size)| {
            json!({"version": "17", "size": size, "backup_enabled": enabled, "backup_schedule": "@daily"})
        }),
        (any::<bool>(), 10u32..99).prop_map(|(enabled, size)| {
            json!({"engine": "postgres", "storage": format!("{size}Gi"), "backup": {"enabled": enabled, "drill": {}}})
        }),
        Just(serde_json::from_str(FULL).unwrap()),
        Just(json!({})),
    ];
    let odd = proptest::collection::btree_map(proptest::sample::select(NAMES), anything(), 0..4);
    (sensible, odd).prop_map(|(mut spec, odd)| {
        for (name, value) in odd {
            spec[name] = value;
        }
        spec
    })
}

fn any_version() -> impl Strategy<Value = ApiVersion> {
    proptest::sample::select(ApiVersion::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn there_and_back_is_the_same_object(from in any_version(), to in any_version(), spec in any_spec()) {
        let original = object(from, spec);
        let there = convert(original.clone(), to).unwrap();
        prop_assert_eq!(&there["status"], &original["status"]);
        prop_assert_eq!(convert(there, from).unwrap(), original);
    }

    #[test]
    fn any_journey_that_ends_where_it_began_changes_nothing(
        from in any_version(), stops in proptest::collection::vec(any_version(), 0..6), spec in any_spec()
    ) {
        let original = object(from, spec);
        let mut travelling = original.clone();
        for stop in stops {
            travelling = convert(travelling, stop).unwrap();
        }
        prop_assert_eq!(convert(travelling, from).unwrap(), original);
    }

    #[test]
    fn a_change_on_the_way_is_kept_to_the_end(
        from in any_version(), spec in any_spec(), stops in proptest::collection::vec(any_version(), 0..4), replicas in 1u32..11
    ) {
        let mut alpha = convert(object(from, spec), ApiVersion::V1Alpha1).unwrap();
        alpha["spec"]["replicas"] = replicas.into();
        let mut travelling = alpha.clone();
        for stop in stops {
            travelling = convert(travelling, stop).unwrap();
        }
        prop_assert_eq!(convert(travelling, ApiVersion::V1Alpha1).unwrap()["spec"].clone(), alpha["spec"].clone());
    }

    #[test]
    fn metadata_is_left_alone_but_for_one_annotation(from in any_version(), to in any_version(), spec in any_spec()) {
        let mut original = object(from, spec);
        original["metadata"]["annotations"] = json!({"mine": "stays"});
        let mut there = convert(original.clone(), to).unwrap();
        there["metadata"]["annotations"].as_object_mut().unwrap().remove(ANNOTATION);
        prop_assert_eq!(&there["metadata"], &original["metadata"]);
    }
}
