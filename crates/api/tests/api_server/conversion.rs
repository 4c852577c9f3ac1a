//! Conversion as the API server does it.

use keelson_api::convert::{ANNOTATION, ApiVersion};
use keelson_api::v1;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::plane::{client, create, databases, object};

#[tokio::test]
async fn what_people_have_written_works_in_its_version_and_is_seen_in_all() {
    let client = client().await;
    let cases = [
        (
            ApiVersion::V1Alpha1,
            "from-alpha",
            json!({"replicas": 3, "backup": {"schedule": "0 2 * * *", "retention": "30d"}}),
        ),
        (
            ApiVersion::V1Beta1,
            "from-beta",
            json!({"version": "15", "size": "large", "backup_enabled": true, "backup_schedule": "0 2 * * *"}),
        ),
        (
            ApiVersion::V1,
            "from-v1",
            json!({
                "engine": "postgres", "version": "17", "replicas": 3, "storage": "50Gi",
                "backup": {"enabled": true, "schedule": "0 */6 * * *"}
            }),
        ),
    ];
    for (version, name, spec) in cases {
        create(&client, version, name, spec.clone()).await;
        let said = databases(&client, version).get(name).await.unwrap();
        assert_eq!(said.data["spec"], spec);
        let alpha = databases(&client, ApiVersion::V1Alpha1).get(name).await.unwrap();
        assert_eq!(alpha.data["spec"]["replicas"], 3, "{name}");
        let beta = databases(&client, ApiVersion::V1Beta1).get(name).await.unwrap();
        assert_eq!(&beta.data["spec"]["backup_schedule"], spec_schedule(&spec), "{name}");
        let stored = databases(&client, ApiVersion::V1).get(name).await.unwrap();
        assert_eq!(stored.data["spec"]["engine"], "postgres", "{name}");
        assert!(!stored.metadata.annotations.unwrap_or_default().contains_key(ANNOTATION), "{name}");
    }
}

fn spec_schedule(spec: &Value) -> &Value {
    spec.pointer("/backup/schedule").unwrap_or(&spec["backup_schedule"])
}

#[tokio::test]
async fn a_change_in_an_old_version_leaves_what_that_version_cannot_say() {
    let client = client().await;
    let spec = json!({
        "engine": "mysql", "version": "9.7", "size": "large", "storage": {"size": "50Gi", "class": "fast"},
        "backup": {"enabled": true, "schedule": "0 2 * * *", "to": {"s3": {"bucket": "backups"}}},
        "parameters": {"max_connections": "500"}, "failover": {"ttl": "10s"}
    });
    create(&client, ApiVersion::V1, "travels", spec.clone()).await;

    let patch = Patch::Merge(json!({"spec": {"size": "medium"}}));
    let beta = databases(&client, ApiVersion::V1Beta1);
    beta.patch("travels", &PatchParams::default(), &patch).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"backup": {"schedule": "0 4 * * *"}}}));
    let alpha = databases(&client, ApiVersion::V1Alpha1);
    alpha.patch("travels", &PatchParams::default(), &patch).await.unwrap();

    let mut expected = spec;
    expected["size"] = "medium".into();
    expected["backup"]["schedule"] = "0 4 * * *".into();
    let stored = databases(&client, ApiVersion::V1).get("travels").await.unwrap();
    assert_eq!(stored.data["spec"], expected);
    assert_eq!(stored.metadata.annotations, None);
    assert_eq!(alpha.get("travels").await.unwrap().data["spec"]["replicas"], 2);
}

#[tokio::test]
async fn server_side_apply_in_an_old_version_sets_and_takes_away() {
    let client = client().await;
    let beta = databases(&client, ApiVersion::V1Beta1);
    let stored = databases(&client, ApiVersion::V1);
    let apply = async |spec: Value| {
        let object = object("Database", "v1beta1", "applied", spec);
        beta.patch("applied", &PatchParams::apply("somebody"), &Patch::Apply(&object)).await.unwrap()
    };
    apply(json!({"version": "17", "backup_enabled": true, "backup_schedule": "0 2 * * *"})).await;
    let patch = Patch::Merge(json!({"spec": {"storage": "20Gi"}}));
    stored.patch("applied", &PatchParams::default(), &patch).await.unwrap();
    apply(json!({"version": "17", "backup_enabled": true})).await;
    let spec = stored.get("applied").await.unwrap().data["spec"].clone();
    let expected = json!({
        "engine": "postgres", "version": "17", "storage": "20Gi", "backup": {"enabled": true}
    });
    assert_eq!(spec, expected);
}

#[tokio::test]
async fn a_list_in_any_version_holds_objects_of_all() {
    let client = client().await;
    create(&client, ApiVersion::V1Alpha1, "list-alpha", json!({"replicas": 2})).await;
    create(&client, ApiVersion::V1, "list-v1", json!({"size": "medium"})).await;
    for version in ApiVersion::ALL {
        let all = databases(&client, *version).list(&Default::default()).await.unwrap();
        for name in ["list-alpha", "list-v1"] {
            assert!(
                all.iter().any(|object| object.metadata.name.as_deref() == Some(name)),
                "{version} {name}"
            );
        }
    }
}

/// Specs that the API server takes, with any mixture of fields.
fn any_v1_spec() -> impl Strategy<Value = Value> {
    use proptest::option::of;
    let backup = (
        of(any::<bool>()),
        of(prop_oneof![Just("0 2 * * *"), Just("@daily"), Just("CRON_TZ=Asia/Tokyo 0 2 * * *")]),
        of(prop_oneof![Just("30d"), Just("12 weeks"), Just("10 backups")]),
        of(Just(json!({"s3": {"bucket": "backups"}}))),
    )
        .prop_map(|(enabled, schedule, retention, to)| {
            present(json!({"enabled": enabled, "schedule": schedule, "retention": retention, "to": to}))
        });
    let storage = prop_oneof![
        (1u32..100).prop_map(|size| json!(format!("{size}Gi"))),
        (1u32..100).prop_map(|size| json!({"size": format!("{size}Gi"), "class": "fast"})),
    ];
    let fields = (
        of(prop_oneof![Just("15"), Just("17.4"), Just("18")]),
        of(prop_oneof![Just("small"), Just("medium"), Just("large")]),
        of(1i32..11),
        of(storage),
        of(backup),
        of(Just(json!({"work_mem": "64MB", "max_connections": 300}))),
        of(prop_oneof![Just("quorum"), Just("async")]),
    );
    fields.prop_map(|(version, size, replicas, storage, backup, parameters, durability)| {
        present(json!({
            "version": version, "size": size, "replicas": replicas, "storage": storage, "backup": backup,
            "parameters": parameters, "durability": durability
        }))
    })
}

fn present(mut object: Value) -> Value {
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object
}

#[tokio::test]
async fn reading_and_writing_back_in_any_version_changes_nothing() {
    let client = client().await;
    let mut runner = TestRunner::deterministic();
    let stored = databases(&client, ApiVersion::V1);
    for number in 0..40 {
        let name = format!("generated-{number}");
        let spec = any_v1_spec().new_tree(&mut runner).unwrap().current();
        let before = create(&client, ApiVersion::V1, &name, spec.clone()).await;
        for version in ApiVersion::ALL {
            let databases = databases(&client, *version);
            let read = databases.get(&name).await.unwrap();
            databases.replace(&name, &PostParams::default(), &read).await.unwrap();
            let after = stored.get(&name).await.unwrap();
            assert_eq!(after.data, before.data, "{version}");
            assert_eq!(after.metadata.generation, before.metadata.generation, "{version} {spec}");
            assert_eq!(after.metadata.annotations, before.metadata.annotations, "{version}");
        }
        let typed = Api::<v1::Database>::default_namespaced(client.clone()).get(&name).await.unwrap();
        typed.spec.settings().unwrap_or_else(|errors| panic!("{errors:?}"));
    }
}
