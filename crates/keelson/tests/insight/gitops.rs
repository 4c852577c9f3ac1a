//! The examples for GitOps are YAML, and name fields, conditions and phases that there are.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::known::{project, text};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

fn objects(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// The schema of a kind's status, in the version that is stored.
fn status(plural: &str) -> Value {
    let crd = &objects(&text(&format!("deploy/crds/keelson.dev.{plural}.yaml")))[0];
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
    stored["schema"]["openAPIV3Schema"]["properties"]["status"].clone()
}

/// Words that follow on a text, up to what is no letter.
fn after<'a>(script: &'a str, start: &str) -> Vec<&'a str> {
    let rest = script.split(start).skip(1);
    rest.map(|rest| rest.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default())
        .collect()
}

#[test]
fn each_file_is_yaml_and_says_what_it_is() {
    let mut found = Vec::new();
    files(&project("examples/gitops"), &mut found);
    assert!(found.len() >= 6, "{found:?}");
    for path in found {
        for object in objects(&std::fs::read_to_string(&path).unwrap()) {
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{}", path.display());
        }
    }
}

#[test]
fn health_is_told_by_fields_and_phases_that_there_are() {
    let health = &objects(&text("examples/gitops/argocd/health.yaml"))[0];
    for (kind, plural) in [("Database", "databases"), ("Backup", "backups")] {
        let script =
            health["data"][format!("resource.customizations.health.keelson.dev_{kind}")].as_str().unwrap();
        let schema = status(plural);
        for field in after(script, "obj.status.") {
            assert!(schema["properties"][field].is_object(), "{kind} has no status.{field}");
        }
        let phases = schema["properties"]["phase"].to_string() + &text("docs/api.md");
        for phase in after(script, "obj.status.phase == \"") {
            assert!(phases.contains(phase), "{kind} has no phase {phase}");
        }
    }
}

#[test]
fn flux_waits_for_the_database_of_the_example_by_conditions_that_there_are() {
    let flux = &objects(&text("examples/gitops/flux/kustomization.yaml"))[0]["spec"];
    let database = &objects(&text("examples/gitops/databases/orders.yaml"))[0];
    assert_eq!(flux["healthChecks"][0]["name"], database["metadata"]["name"]);
    assert_eq!(flux["healthChecks"][0]["apiVersion"], database["apiVersion"]);
    assert_eq!(flux["prune"], false);
    let expressions = flux["healthCheckExprs"][0].to_string();
    let schema = status("databases");
    for field in after(&expressions, "status.").into_iter().filter(|field| !field.is_empty()) {
        assert!(schema["properties"][field].is_object(), "Database has no status.{field}");
    }
    for condition in after(&expressions, "c.type == '") {
        assert!(text("docs/reasons.md").contains(&format!("| `{condition}` | Database")), "{condition}");
    }
}
