//! What is made of the chart for those who do not use Helm is taken by the tools that it is for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

use crate::rendered::{chart, kind, name, said};

fn deploy(path: &str) -> PathBuf {
    chart().join("../../deploy").join(path).canonicalize().unwrap()
}

fn objects(text: &str) -> BTreeMap<String, Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    let objects = objects.filter(|object| !object.is_null());
    objects.map(|object| (format!("{}/{}", kind(&object), name(&object)), object)).collect()
}

/// Whether they say the same: a program in Go writes 1000.0 as 1000.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| alike(value, other)))
        }
        _ => one == other,
    }
}

/// What the real kustomize, which is a part of kubectl, makes of a folder.
fn kustomized(folder: &str) -> BTreeMap<String, Value> {
    let output = Command::new(testbed::kubectl().unwrap()).args(["kustomize", folder]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    objects(&String::from_utf8(output.stdout).unwrap())
}

#[test]
fn kustomize_makes_of_its_base_what_the_plain_manifest_has() {
    let made = kustomized(&deploy("kustomize").to_string_lossy());
    let plain = objects(&std::fs::read_to_string(deploy("install.yaml")).unwrap());
    assert_eq!(made.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
    for (called, object) in &plain {
        assert!(alike(&made[called], object), "{called}: {} instead of {object}", made[called]);
    }
}

#[test]
fn the_example_for_kustomize_sets_the_image_in_both_places_and_another_namespace_everywhere() {
    let folder = chart().join("../../examples/kustomize").canonicalize().unwrap();
    let made = kustomized(&folder.to_string_lossy());
    let container = &made["Deployment/keelson"]["spec"]["template"]["spec"]["containers"][0];
    let told =
        container["env"].as_array().unwrap().iter().find(|one| one["name"] == "KEELSON_IMAGE").unwrap();
    assert_eq!(container["image"], "example.com/keelson:1.2.3");
    assert_eq!(told["value"], container["image"]);
    let left = made.iter().filter(|(_, object)| object.to_string().contains("keelson-system"));
    assert_eq!(left.map(|(called, _)| called).collect::<Vec<_>>(), [""; 0], "not all has moved");
}

fn validated(folder: &str) -> Output {
    Command::new(testbed::bundle_validator().unwrap()).arg(folder).output().unwrap()
}

#[test]
fn the_bundle_is_valid_by_the_rules_of_the_operator_lifecycle_manager() {
    let output = validated(&deploy("olm").to_string_lossy());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_bundle_with_a_definition_that_nobody_owns_is_not() {
    let folder = std::env::temp_dir().join(format!("keelson-bundle-{}", std::process::id()));
    let copied = Command::new("cp").arg("-r").arg(deploy("olm")).arg(&folder).status().unwrap();
    assert!(copied.success());
    let version = folder.join("manifests/keelson.clusterserviceversion.yaml");
    let text = std::fs::read_to_string(&version).unwrap();
    std::fs::write(&version, text.replace("kind: App\n", "kind: Shop\n")).unwrap();
    let output = validated(&folder.to_string_lossy());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!output.status.success() && said(&output).contains("Shop"), "{}", said(&output));
}
