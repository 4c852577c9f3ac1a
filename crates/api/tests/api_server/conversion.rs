//! Conversion as the API server does it.

use keelson_api::convert::{ANNOTATION, ApiVersion};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::plane::{client, create, databases};

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
