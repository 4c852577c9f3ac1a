//! What Helm makes of the chart, without a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/keelson")
}

pub fn helm(words: &[&str], set: &[&str]) -> Output {
    let mut command = Command::new(testbed::helm().unwrap());
    command.args(words).arg(chart());
    set.iter().for_each(|set| {
        command.args(["--set", set]);
    });
    command.output().unwrap()
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What would be installed into the namespace `elsewhere`.
pub fn rendered(set: &[&str]) -> Vec<Value> {
    let output = helm(&["template", "keelson", "--namespace", "elsewhere"], set);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    objects.filter(|object| !object.is_null()).collect()
}

pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Kinds that the chart has and that are in no namespace.
fn is_of_the_cluster(object: &Value) -> bool {
    ["Cluster", "CustomResource", "Validating"].iter().any(|start| kind(object).starts_with(start))
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn helm_has_nothing_to_say_against_the_chart() {
    for set in [
        &[][..],
        &["watchNamespace=shop"],
        &["webhooks.enabled=false", "crds.install=false", "metrics.service=false"],
        &[
            "priorityClassName=system-cluster-critical",
            "podAnnotations.a=b",
            "podLabels.c=d",
            "log.format=human",
        ],
        &["imagePullSecrets[0].name=secret", "env[0].name=A", "env[0].value=B", "tolerations[0].key=t"],
        &["podDisruptionBudget.enabled=false", "affinity.nodeAffinity.x=y", "nodeSelector.disk=fast"],
    ] {
        let output = helm(&["lint", "--strict"], set);
        assert!(output.status.success(), "{set:?}: {}", said(&output));
        rendered(set);
    }
}

#[test]
fn a_value_that_makes_no_sense_is_refused_by_its_name() {
    for (set, named) in [
        ("replicas=two", "replicas"),
        ("watchNamespase=shop", "watchNamespase"),
        ("image.digest=latest", "digest"),
        ("log.format=xml", "format"),
        ("crds.install=perhaps", "install"),
        ("watchNamespace=Shop", "watchNamespace"),
    ] {
        let output = helm(&["template", "keelson"], &[set]);
        assert!(!output.status.success() && said(&output).contains(named), "{set}: {}", said(&output));
    }
}

#[test]
fn everything_carries_the_labels_and_goes_where_the_release_goes() {
    for object in rendered(&[]) {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], "keelson", "{} {}", kind(&object), name(&object));
        if !is_of_the_cluster(&object) {
            assert_eq!(object["metadata"]["namespace"], "elsewhere", "{} {}", kind(&object), name(&object));
        }
        assert!(!object.to_string().contains("keelson-system"), "{} {}", kind(&object), name(&object));
    }
}

#[test]
fn definitions_stay_when_the_rest_is_uninstalled_and_call_the_releases_webhook() {
    let objects = rendered(&[]);
    let crds: Vec<&Value> = objects.iter().filter(|object| kind(object).starts_with("CustomRes")).collect();
    assert_eq!(crds.len(), 3);
    for crd in crds {
        assert_eq!(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        let config = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
        assert!(config.is_null() || config["service"]["namespace"] == "elsewhere", "{config}");
        // It is the operator that writes it, and what the chart does not say, Helm leaves alone.
        assert!(config["caBundle"].is_null());
    }
}

#[test]
fn nobody_reads_all_secrets() {
    for set in [&[][..], &["watchNamespace=shop"]] {
        for role in rendered(set).iter().filter(|object| kind(object).ends_with("Role")) {
            for rule in role["rules"].as_array().unwrap() {
                let reads =
                    words(&rule["verbs"]).iter().any(|verb| ["get", "list", "watch", "*"].contains(verb));
                let secrets = words(&rule["resources"]).iter().any(|what| ["secrets", "*"].contains(what));
                assert!(!(reads && secrets) || rule["resourceNames"].is_array(), "{} {rule}", name(role));
            }
        }
    }
}

#[test]
fn for_one_namespace_rights_are_given_there_alone() {
    let objects = rendered(&["watchNamespace=shop"]);
    let of_cluster: Vec<&str> =
        objects.iter().filter(|object| kind(object) == "ClusterRoleBinding").map(name).collect();
    assert_eq!(of_cluster, ["keelson-webhooks"]);
    let there: Vec<&str> =
        objects.iter().filter(|object| object["metadata"]["namespace"] == "shop").map(kind).collect();
    assert_eq!(there, ["Role", "RoleBinding"]);
}

#[test]
fn a_second_release_for_another_namespace_brings_nothing_that_the_cluster_has_once() {
    let objects = rendered(&["watchNamespace=shop", "crds.install=false", "webhooks.enabled=false"]);
    let of_cluster: Vec<&str> = objects.iter().filter(|object| is_of_the_cluster(object)).map(name).collect();
    assert_eq!(of_cluster, Vec::<&str>::new());
    let operator = objects.iter().find(|object| kind(object) == "Deployment").unwrap();
    let env = operator["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    assert!(env.contains("KEELSON_NO_WEBHOOKS"), "{env}");
}

#[test]
fn the_operator_asks_for_little_and_is_told_its_own_image() {
    let objects = rendered(&["image.tag=1.2.3"]);
    let operator = objects.iter().find(|object| kind(object) == "Deployment").unwrap();
    assert_eq!(operator["spec"]["replicas"], 2);
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "100m");
    assert_eq!(container["resources"]["limits"]["memory"], "128Mi");
    let env = container["env"].as_array().unwrap();
    let told = env.iter().find(|variable| variable["name"] == "KEELSON_IMAGE").unwrap();
    assert_eq!((&container["image"], &told["value"]), (&"keelson:1.2.3".into(), &"keelson:1.2.3".into()));
}
