//! What the chart has from the types: the same objects as under `deploy`, as templates, and what a plain
//! `kubectl apply` takes, made from the whole chart by Helm.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::rbac::v1::Role;
use keelson_api::crds::NAMESPACE;
use keelson_api::{admission, crds, policy};
use keelson_operator::{NAME, rights};
use serde::Serialize;
use serde_json::json;

use super::{HEAD, yaml};

/// The chart's folder, from the root of the project.
pub const FOLDER: &str = "charts/keelson";
/// What a plain `kubectl apply` takes.
pub const INSTALL: &str = "deploy/install.yaml";

const ALWAYS: &str = "true";
const CRDS: &str = ".Values.crds.install";
const WEBHOOKS: &str = ".Values.webhooks.enabled";
const CLUSTER_WIDE: &str = "not .Values.watchNamespace";
const ONE_NAMESPACE: &str = ".Values.watchNamespace";

/// Stands where Helm puts the labels of all that the chart installs.
const LABELS: &str = "labels-of-the-chart";
/// Stands where Helm puts the one namespace that is looked after.
const WATCHED: &str = "the-watched-namespace";

/// All files, by their path from the root of the project.
pub fn files() -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let mut files = vec![("Chart.yaml".to_owned(), format!("{HEAD}{}", yaml(&about())?))];
    for crd in crds::crds()? {
        let path = format!("templates/generated/crds/{}.{}.yaml", crd.spec.group, crd.spec.names.plural);
        let mut crd = serde_json::to_value(crd)?;
        // To delete the definition is to delete every object of its kind.
        crd["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        files.push((path, templates(&[template(CRDS, &crd)?])));
    }
    let policies = [template(CRDS, &policy::policy())?, template(CRDS, &policy::binding())?];
    files.push(("templates/generated/policy.yaml".to_owned(), templates(&policies)));
    let webhook = [template(WEBHOOKS, &admission::configuration())?];
    files.push(("templates/generated/webhook.yaml".to_owned(), templates(&webhook)));
    files.push(("templates/generated/roles.yaml".to_owned(), templates(&roles()?)));
    files.extend(monitoring(&super::root())?);
    Ok(files.into_iter().map(|(path, text)| (Path::new(FOLDER).join(path), text)).collect())
}

/// Alert rules and dashboards as they are under `deploy`: Helm reads no file outside of a chart.
fn monitoring(root: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let source = root.join("deploy/monitoring");
    let mut files = vec![("files/alerts.yaml".to_owned(), fs::read_to_string(source.join("alerts.yaml"))?)];
    for entry in fs::read_dir(source.join("grafana"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("files/dashboards/{name}"), fs::read_to_string(&path)?));
    }
    Ok(files)
}

/// The chart's own description, with the project's version.
fn about() -> impl Serialize {
    json!({
        "apiVersion": "v2",
        "name": NAME,
        "description": "Databases on Kubernetes that need nobody at night",
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": env!("CARGO_PKG_VERSION"),
        // Admission policies are served from there on.
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["database", "postgresql", "mysql", "operator"],
        "annotations": { "licenses": "Apache-2.0" },
    })
}

/// The roles of both modes, each under its condition.
fn roles() -> Result<Vec<String>, Box<dyn Error>> {
    let (cluster_roles, own) = rights::cluster_wide()?;
    let (_, all) = rights::in_one_namespace()?;
    let mut templates = Vec::new();
    for role in &cluster_roles {
        let databases = role.metadata.name.as_deref() == Some(NAME);
        templates.push(template(if databases { CLUSTER_WIDE } else { WEBHOOKS }, role)?);
    }
    for role in &own {
        templates.push(template(ALWAYS, role)?);
    }
    for role in all.into_iter().filter(|role| !own.contains(role)) {
        templates.push(template(ONE_NAMESPACE, &in_watched(role))?);
    }
    for role in rights::of_people() {
        templates.push(template(CRDS, &role)?);
    }
    Ok(templates)
}

fn in_watched(mut role: Role) -> Role {
    role.metadata.namespace = Some(WATCHED.to_owned());
    role
}

/// An object as a template that counts under a condition, with the chart's labels, and the release's
/// namespace instead of the usual one.
fn template(condition: &str, object: &impl Serialize) -> Result<String, Box<dyn Error>> {
    let mut object = serde_json::to_value(object)?;
    object["metadata"]["labels"][LABELS] = json!("");
    // What looks like a template in the object itself is none.
    let text = yaml(&object)?.replace("{{", "{{ \"{{\" }}");
    let text = [
        (format!("    {LABELS}: ''\n"), "    {{- include \"keelson.labels\" . | nindent 4 }}\n"),
        (format!("namespace: {NAMESPACE}\n"), "namespace: {{ .Release.Namespace | quote }}\n"),
        (format!("namespace: {WATCHED}\n"), "namespace: {{ .Values.watchNamespace | quote }}\n"),
    ]
    .into_iter()
    .fold(text, |text, (mark, words)| text.replace(&mark, words));
    Ok(match condition {
        ALWAYS => format!("---\n{text}"),
        _ => format!("{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"),
    })
}

fn templates(parts: &[String]) -> String {
    format!("{HEAD}{}", parts.concat())
}

/// What the chart installs when nothing is said, as one file, with the namespace that Helm would be told to
/// create.
pub fn install(helm: &Path, root: &Path) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(helm);
    command.args(["template", NAME]).arg(root.join(FOLDER)).args(["--namespace", NAMESPACE]);
    let made = command.output()?;
    if !made.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": {
            "app.kubernetes.io/name": NAME,
            "pod-security.kubernetes.io/enforce": "restricted",
        }},
    });
    Ok(format!("{HEAD}{}{}", yaml(&namespace)?, String::from_utf8(made.stdout)?))
}
