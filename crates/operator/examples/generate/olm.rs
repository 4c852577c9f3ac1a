//! The bundle for the Operator Lifecycle Manager: the objects of the plain manifest, in its words. It makes the account
//! and its roles itself, from what the ClusterServiceVersion says. `deploy/olm/README.md` says what it can't install.

use std::error::Error;
use std::path::{Path, PathBuf};

use keelson_api::crds::NAMESPACE;
use keelson_operator::NAME;
use serde_json::{Value, json};

use super::{HEAD, yaml};

/// Its folder, from the root of the project.
pub const FOLDER: &str = "deploy/olm";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const DESCRIPTION: &str = "Runs databases: a person writes one short `Database`, and Keelson installs it, keeps it \
                           available, scales it and backs it up. Instances elect their own leader, so failover needs \
                           neither the operator nor the control plane's judgement of nodes.";

/// All files, by their path from the root of the project.
pub fn files(objects: &[Value]) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let mut files = vec![
        ("manifests/keelson.clusterserviceversion.yaml".to_owned(), yaml(&version(objects)?)?),
        ("metadata/annotations.yaml".to_owned(), yaml(&json!({ "annotations": annotations() }))?),
        ("Containerfile".to_owned(), container()),
    ];
    for object in objects.iter().filter(|object| is_a_file(object)) {
        let (kind, name) = (word(&object["kind"]).to_lowercase(), word(&object["metadata"]["name"]));
        let short = if kind == "customresourcedefinition" { "crd" } else { &kind };
        files.push((format!("manifests/{name}.{short}.yaml"), yaml(&freed(object.clone()))?));
    }
    Ok(files
        .into_iter()
        .map(|(name, text)| (Path::new(FOLDER).join(name), format!("{HEAD}{text}")))
        .collect())
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is in the bundle beside the ClusterServiceVersion: definitions, Services, and roles for people.
fn is_a_file(object: &Value) -> bool {
    let for_people = ["keelson-view", "keelson-edit"].contains(&word(&object["metadata"]["name"]));
    match word(&object["kind"]) {
        "CustomResourceDefinition" | "Service" | "PodDisruptionBudget" => true,
        "ClusterRole" => for_people,
        _ => false,
    }
}

/// Without what is Helm's, and in whichever namespace it is installed to.
fn freed(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|name, _| name != "helm.sh/chart" && name != "app.kubernetes.io/managed-by");
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("helm.sh/resource-policy");
        }
    }
    object
}

fn the<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value, Box<dyn Error>> {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is).ok_or_else(|| format!("the chart has no {kind} {name}").into())
}

fn rules(objects: &[Value], kind: &str, names: &[&str]) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut rules = Vec::new();
    for name in names {
        rules.extend(the(objects, kind, name)?["rules"].as_array().into_iter().flatten().cloned());
    }
    Ok(rules)
}

fn version(objects: &[Value]) -> Result<Value, Box<dyn Error>> {
    let deployment = the(objects, "Deployment", NAME)?;
    let image = word(&deployment["spec"]["template"]["spec"]["containers"][0]["image"]);
    let all = rules(objects, "ClusterRole", &[NAME, "keelson-webhooks"])?;
    let own = rules(objects, "Role", &[NAME])?;
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{NAME}.v{VERSION}"),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": serde_json::to_string_pretty(&examples())?,
                "capabilities": "Full Lifecycle",
                "categories": "Database",
                "containerImage": image,
                "description": "Databases on Kubernetes that need nobody at night",
                "operatorframework.io/suggested-namespace": NAMESPACE,
            },
        },
        "spec": {
            "displayName": "Keelson",
            "description": DESCRIPTION,
            "version": VERSION,
            "maturity": "alpha",
            "minKubeVersion": "1.30.0",
            "keywords": ["database", "postgresql", "high availability", "backup"],
            "provider": { "name": "Keelson" },
            // Versions are converted by a webhook, which is for the whole cluster.
            "installModes": [
                mode("OwnNamespace", false), mode("SingleNamespace", false),
                mode("MultiNamespace", false), mode("AllNamespaces", true),
            ],
            "customresourcedefinitions": { "owned": owned(objects) },
            "install": { "strategy": "deployment", "spec": {
                "clusterPermissions": [{ "serviceAccountName": NAME, "rules": all }],
                "permissions": [{ "serviceAccountName": NAME, "rules": own }],
                "deployments": [{ "name": NAME, "spec": deployment["spec"] }],
            }},
        },
    }))
}

fn mode(name: &str, supported: bool) -> Value {
    json!({ "type": name, "supported": supported })
}

/// Each kind in each version that is served, with what its schema says of it.
fn owned(objects: &[Value]) -> Vec<Value> {
    let definitions = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let versions = |crd: &Value| {
        let (name, kind) = (crd["metadata"]["name"].clone(), crd["spec"]["names"]["kind"].clone());
        let versions = crd["spec"]["versions"].as_array().cloned().unwrap_or_default();
        versions.into_iter().map(move |version| {
            json!({
                "name": name, "kind": kind, "version": version["name"],
                "displayName": kind,
                "description": version["schema"]["openAPIV3Schema"]["description"],
            })
        })
    };
    definitions.flat_map(versions).collect()
}

/// One object of each kind in each version, as somebody would begin.
fn examples() -> Value {
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": format!("keelson.dev/{version}"), "kind": kind,
            "metadata": { "name": name }, "spec": spec,
        })
    };
    json!([
        object("v1", "Database", "orders", json!({ "size": "medium" })),
        object("v1beta1", "Database", "bills", json!({ "size": "small" })),
        object("v1alpha1", "Database", "stock", json!({ "replicas": 1 })),
        object("v1", "Backup", "before-the-migration", json!({ "database": "orders" })),
        object("v1", "App", "shop", json!({ "image": "shop:1", "database": "orders" })),
    ])
}

fn annotations() -> Value {
    json!({
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": NAME,
        "operators.operatorframework.io.bundle.channels.v1": "alpha",
        "operators.operatorframework.io.bundle.channel.default.v1": "alpha",
    })
}

fn container() -> String {
    let labels = annotations();
    let labels = labels.as_object().into_iter().flatten();
    let labels: String = labels.map(|(name, value)| format!("LABEL {name}={}\n", word(value))).collect();
    format!("FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n")
}
