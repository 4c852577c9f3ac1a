//! The base for kustomize: the objects of the plain manifest, in files by what they are for.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{HEAD, yaml};

/// Its folder, from the root of the project.
pub const FOLDER: &str = "deploy/kustomize";

/// All files, by their path from the root of the project.
pub fn files(objects: &[Value]) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for object in objects {
        texts.entry(file_of(object)).or_default().push(yaml(object)?);
    }
    let base = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": texts.keys().collect::<Vec<_>>(),
    });
    let mut files: Vec<(&str, String)> =
        texts.into_iter().map(|(name, texts)| (name, texts.join("---\n"))).collect();
    files.push(("kustomization.yaml", yaml(&base)?));
    Ok(files
        .into_iter()
        .map(|(name, text)| (Path::new(FOLDER).join(name), format!("{HEAD}{text}")))
        .collect())
}

fn file_of(object: &Value) -> &'static str {
    let kind = object["kind"].as_str().unwrap_or_default();
    match kind {
        "Namespace" => "namespace.yaml",
        "CustomResourceDefinition" => "definitions.yaml",
        _ if kind.starts_with("Validating") => "admission.yaml",
        _ if kind.contains("Role") || kind == "ServiceAccount" => "rights.yaml",
        _ => "operator.yaml",
    }
}
