//! `keelson report`: what somebody needs who is to find a bug, as one file.
//!
//! Secrets are never read. Of everything else, [`mod@mask`] takes out what may hold any.

mod mask;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::GROUP;
use keelson_api::instance::labels;
use keelson_api::v1::Database;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use self::mask::{mask, mask_text};
use super::cluster::{ClusterArgs, Connected};
use super::output::yaml;
use super::paint::Paint;
use super::words::bytes;
use super::{Ended, Failure, doctor, status};

/// Of what, and where to.
#[derive(Args)]
pub struct ReportArgs {
    /// The Database; without it, all of the namespace.
    database: Option<String>,
    /// The file; without it, keelson-report-TIME.tar.gz here.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// So many of the newest lines of each log.
    #[arg(long, default_value_t = 5000, value_name = "LINES")]
    tail: i64,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A file in the bundle.
#[derive(Debug)]
struct Part {
    name: String,
    text: String,
}

/// Kinds that are taken as they are, but for what is masked: group, version, kind, plural. Secrets are none of them.
const KINDS: &[(&str, &str, &str, &str)] = &[
    (GROUP, "v1", "Database", "databases"),
    (GROUP, "v1", "Backup", "backups"),
    (GROUP, "v1", "App", "apps"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
];

/// Kinds of which all in the namespace are of interest: they have no label of their own.
const UNLABELLED: &[&str] = &["Database", "Backup", "App"];

/// Writes it, and says what is in it.
pub async fn report(args: ReportArgs) -> Result<Ended, Failure> {
    let connected = args.cluster.connect().await?;
    if let Some(name) = &args.database {
        super::cluster::find(&connected.client, &connected.namespace, name).await?;
    }
    let now = Timestamp::now();
    let root = format!("keelson-report-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{root}.tar.gz")));
    let mut parts = vec![about(&connected, now)];
    let progress = |what: &str| eprintln!("{what}");
    progress("looking at the installation");
    parts.push(examined(&connected).await);
    progress("looking at databases");
    parts.extend(statuses(&connected, args.database.as_deref()).await);
    progress("reading objects and events");
    parts.extend(objects(&connected, args.database.as_deref()).await);
    progress("reading logs");
    parts.extend(logs(&connected, args.database.as_deref(), args.tail).await);
    parts.extend(operator(&connected, args.tail).await);
    let listed: String =
        parts.iter().map(|part| format!("{:>9}  {}\n", bytes(part.text.len() as i64), part.name)).collect();
    let note = "Secrets were not read. Values of the environment, of annotations that are not Keelson's or Kubernetes's own,\n\
                and what looks like a password in logs and messages, are masked. Names are not: look before you send it.\n";
    parts.insert(0, Part { name: "CONTENTS.txt".to_owned(), text: format!("{listed}\n{note}") });
    write(&path, &root, &parts, now)
        .map_err(|error| Failure::Said(format!("writing {}: {error}", path.display())))?;
    println!("{} has\n{listed}\n{note}", path.display());
    Ok(Ended::Well)
}

fn about(connected: &Connected, now: Timestamp) -> Part {
    let text =
        format!("keelson {}\nmade {now}\nnamespace {}\n", env!("CARGO_PKG_VERSION"), connected.namespace);
    Part { name: "about.txt".to_owned(), text }
}

async fn examined(connected: &Connected) -> Part {
    let text = match doctor::look(connected).await {
        Ok(checks) => doctor::text(&checks, Paint::NONE),
        Err(failure) => failure.to_string(),
    };
    Part { name: "doctor.txt".to_owned(), text: mask_text(&text) }
}

async fn statuses(connected: &Connected, only: Option<&str>) -> Vec<Part> {
    let databases: Api<Database> = Api::namespaced(connected.client.clone(), &connected.namespace);
    let found = databases.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let mut parts = Vec::new();
    for name in found.iter().map(ResourceExt::name_any).filter(|name| only.is_none_or(|only| only == name)) {
        let text = match status::look(connected, &name).await {
            Ok(view) => status::text::database(&view, Paint::NONE),
            Err(failure) => failure.to_string(),
        };
        parts.push(Part { name: format!("status/{name}.txt"), text: mask_text(&text) });
    }
    parts
}

async fn objects(connected: &Connected, only: Option<&str>) -> Vec<Part> {
    let Connected { client, namespace } = connected;
    let label = only.map_or(labels::DATABASE.to_owned(), |name| format!("{}={name}", labels::DATABASE));
    let mut parts = Vec::new();
    for (group, version, kind, plural) in KINDS {
        let params = match UNLABELLED.contains(kind) {
            true => ListParams::default(),
            false => ListParams::default().labels(&label),
        };
        let resource = resource(group, version, kind, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let text = match api.list(&params).await {
            Ok(list) => {
                let mine = |object: &&DynamicObject| {
                    *kind != "Database" || only.is_none_or(|only| only == object.name_any())
                };
                let all: Vec<Value> =
                    list.items.iter().filter(mine).map(|object| mask(json!(object))).collect();
                written(&all)
            }
            Err(error) => format!("# could not be read: {error}\n"),
        };
        parts.push(Part { name: format!("objects/{plural}.yaml"), text });
    }
    let resource = resource("", "v1", "Event", "events");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let text = match api.list(&ListParams::default()).await {
        Ok(list) => written(&list.items.iter().map(|event| mask(json!(event))).collect::<Vec<_>>()),
        Err(error) => format!("# could not be read: {error}\n"),
    };
    parts.push(Part { name: "events.yaml".to_owned(), text });
    parts
}

async fn logs(connected: &Connected, only: Option<&str>, tail: i64) -> Vec<Part> {
    let label = only.map_or(labels::DATABASE.to_owned(), |name| format!("{}={name}", labels::DATABASE));
    let pods: Api<Pod> = Api::namespaced(connected.client.clone(), &connected.namespace);
    logs_of(&pods, &label, "database", "logs", tail).await
}

/// The operators, wherever they are.
async fn operator(connected: &Connected, tail: i64) -> Vec<Part> {
    let client: &Client = &connected.client;
    const LABEL: &str = "app.kubernetes.io/name=keelson";
    let resource = resource("apps", "v1", "Deployment", "deployments");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match api.list(&ListParams::default().labels(LABEL)).await {
        Ok(list) => list.items,
        Err(error) => {
            let text = format!("# could not be read: {error}\n");
            return vec![Part { name: "operator/deployments.yaml".to_owned(), text }];
        }
    };
    let all: Vec<Value> = found.iter().map(|object| mask(json!(object))).collect();
    let mut parts = vec![Part { name: "operator/deployments.yaml".to_owned(), text: written(&all) }];
    for namespace in found.iter().filter_map(ResourceExt::namespace) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        parts.extend(logs_of(&pods, LABEL, "", "operator", tail).await);
    }
    parts
}

/// What each pod has logged, and what it had before its container was started anew.
async fn logs_of(pods: &Api<Pod>, label: &str, container: &str, folder: &str, tail: i64) -> Vec<Part> {
    let found =
        pods.list(&ListParams::default().labels(label)).await.map(|list| list.items).unwrap_or_default();
    let mut parts = Vec::new();
    for pod in found.iter().map(ResourceExt::name_any) {
        for (previous, suffix) in [(false, ""), (true, "-previous")] {
            let params = LogParams {
                container: Some(container.to_owned()).filter(|container| !container.is_empty()),
                previous,
                tail_lines: Some(tail),
                timestamps: true,
                ..LogParams::default()
            };
            match pods.logs(&pod, &params).await {
                Ok(text) => {
                    parts.push(Part { name: format!("{folder}/{pod}{suffix}.log"), text: mask_text(&text) });
                }
                // Most have been started only once.
                Err(_) if previous => {}
                Err(error) => {
                    let text = format!("could not be read: {error}\n");
                    parts.push(Part { name: format!("{folder}/{pod}{suffix}.log"), text });
                }
            }
        }
    }
    parts
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn written(objects: &[Value]) -> String {
    let texts: Vec<String> =
        objects.iter().map(|object| yaml(object).unwrap_or_else(|failure| failure.to_string())).collect();
    texts.join("---\n")
}

fn write(path: &Path, root: &str, parts: &[Part], now: Timestamp) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(File::create(path)?, Compression::default()));
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        archive.append_data(&mut header, format!("{root}/{}", part.name), part.text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn no_kind_that_is_taken_holds_secrets() {
        assert!(KINDS.iter().all(|(.., kind, plural)| *kind != "Secret" && *plural != "secrets"));
    }

    #[test]
    fn the_bundle_is_an_archive_of_its_parts() {
        let path = std::env::temp_dir().join(format!("keelson-report-test-{}.tar.gz", std::process::id()));
        let parts = [Part { name: "objects/a.yaml".to_owned(), text: "a: 1\n".to_owned() }];
        write(&path, "root", &parts, Timestamp::UNIX_EPOCH).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(
            (entry.path().unwrap().display().to_string().as_str(), text.as_str()),
            ("root/objects/a.yaml", "a: 1\n")
        );
        std::fs::remove_file(path).unwrap();
    }
}
