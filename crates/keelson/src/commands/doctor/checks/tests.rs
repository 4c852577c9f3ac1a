//! What is said of good installations and of bad ones.

use serde_json::json;

use super::*;
use crate::commands::doctor::text;
use crate::commands::golden::golden;
use crate::commands::paint::Paint;

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn good() -> Facts {
    let mut definitions = crds().unwrap();
    for definition in &mut definitions {
        definition.status = serde_json::from_value(json!({
            "conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"kind": "", "plural": ""}, "storedVersions": []
        }))
        .unwrap();
        if let Some(webhook) = definition.spec.conversion.as_mut().and_then(|one| one.webhook.as_mut()) {
            webhook.client_config.as_mut().unwrap().ca_bundle = Some(k8s_openapi::ByteString(vec![1]));
        }
    }
    let operator = json!({
        "metadata": {
            "name": "keelson", "namespace": "keelson-system",
            "labels": {"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")}
        },
        "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": {"readyReplicas": 2}
    });
    let lease =
        json!({"spec": {"holderIdentity": "keelson-7c9f", "renewTime": "2026-11-18T11:59:57.000000Z"}});
    let webhook = json!({"webhooks": [{
        "name": "x", "clientConfig": {"caBundle": "YQ=="}, "sideEffects": "None", "admissionReviewVersions": ["v1"]
    }]});
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "p", "allowVolumeExpansion": true
    });
    Facts {
        version: Ok("v1.36.1".to_owned()),
        clocks: Some((now(), now())),
        definitions: Ok(definitions),
        operators: Ok(vec![serde_json::from_value(operator).unwrap()]),
        lease: Ok(serde_json::from_value(lease).unwrap()),
        policy: Ok(Some(keelson_api::policy::policy())),
        webhook: Ok(Some(serde_json::from_value(webhook).unwrap())),
        admission: (Err("minute 61".to_owned()), Ok(())),
        classes: Ok(vec![serde_json::from_value(class).unwrap()]),
        missing_rights: Ok(Vec::new()),
        own_missing: Ok(Vec::new()),
        metrics: Ok(true),
        databases: Ok(Vec::new()),
    }
}

#[test]
fn a_good_installation_is_a_page_of_ok() {
    let checks = checks(&good(), now());
    assert!(checks.iter().all(|check| check.level == Level::Ok), "{checks:?}");
    golden("doctor-good.txt", &text(&checks, Paint::OFF));
}

#[test]
fn a_bad_one_says_line_by_line_what_to_do() {
    let mut facts = good();
    facts.version = Ok("v1.28.3".to_owned());
    facts.clocks = Some(("2026-11-18T11:55:00Z".parse().unwrap(), now()));
    facts.definitions.as_mut().unwrap().pop();
    facts.definitions.as_mut().unwrap()[0].spec.conversion = None;
    facts.operators.as_mut().unwrap()[0].status.as_mut().unwrap().ready_replicas = Some(0);
    facts.lease = Ok(None);
    facts.policy = Ok(None);
    facts.webhook = Err("validatingwebhookconfigurations is forbidden".to_owned());
    facts.admission = (Err("no".to_owned()), Err("failed calling webhook: connection refused".to_owned()));
    facts.classes.as_mut().unwrap()[0].allow_volume_expansion = None;
    facts.missing_rights = Ok(vec!["create statefulsets".to_owned(), "patch services".to_owned()]);
    facts.own_missing = Ok(vec!["create pods/exec".to_owned()]);
    facts.metrics = Err("pods/proxy is forbidden".to_owned());
    golden("doctor-bad.txt", &text(&checks(&facts, now()), Paint::OFF));
}

#[test]
fn where_nothing_is_installed_that_is_said() {
    let mut facts = good();
    (facts.definitions, facts.operators) = (Ok(Vec::new()), Ok(Vec::new()));
    let checks = checks(&facts, now());
    let said: Vec<&str> =
        checks.iter().filter(|one| one.level == Level::Fail).map(|one| one.message.as_str()).collect();
    assert!(
        said.contains(&"databases.keelson.dev is not there") && said.contains(&"there is none"),
        "{said:?}"
    );
}
