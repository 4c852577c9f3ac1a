//! `keelson install`: what deploy/install.yaml has, which this program carries along.

use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::Value;

use super::cluster::ClusterArgs;
use super::words::program;
use super::{Ended, Failure};

/// Written by `make generate` from the chart.
const MANIFEST: &str = include_str!("../../../../deploy/install.yaml");
/// The image in it.
const IMAGE: &str = concat!("keelson:", env!("CARGO_PKG_VERSION"));
/// The namespace in it.
const SYSTEM: &str = "keelson-system";
/// Whoever applies it.
const MANAGER: &str = "keelson-install";
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// From which image, and whether at all.
#[derive(Args)]
pub struct InstallArgs {
    /// The image that nodes can pull: the operator's, and the one that instances get their agent from.
    #[arg(long, value_name = "NAME:TAG", default_value = IMAGE)]
    image: String,
    /// Print what would be applied, and apply nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many seconds to wait until the operators are ready; 0 to only apply it.
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Applies it, and waits until the operators are ready.
pub async fn install(args: InstallArgs) -> Result<Ended, Failure> {
    let text = rendered(&args.image);
    if args.dry_run {
        print!("{text}");
        return Ok(Ended::Well);
    }
    if args.cluster.namespace.as_deref().is_some_and(|namespace| namespace != SYSTEM) {
        return Err(Failure::Said(format!(
            "this installs into {SYSTEM}. Helm installs into any namespace: docs/install.md says how"
        )));
    }
    let client = args.cluster.connect().await?.client;
    for object in objects(&text)? {
        let (resource, namespaced) = resource(&object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let api: Api<DynamicObject> = match namespaced {
            true => Api::namespaced_with(client.clone(), SYSTEM, &resource),
            false => Api::all_with(client.clone(), &resource),
        };
        let applied = api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await;
        applied.map_err(Failure::during(format!("applying {} {name}", resource.kind)))?;
        eprintln!("{} {name}", resource.kind);
    }
    wait(&Api::namespaced(client, SYSTEM), args.timeout).await
}

async fn wait(deployments: &Api<Deployment>, timeout: u64) -> Result<Ended, Failure> {
    let start = Instant::now();
    let mut said = String::new();
    while start.elapsed() < Duration::from_secs(timeout) {
        let found = deployments.get("keelson").await;
        let found = found.map_err(Failure::during("reading the Deployment keelson".to_owned()))?;
        let wanted = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let generation = found.metadata.generation;
        let status = found.status.unwrap_or_default();
        let ready =
            status.updated_replicas.unwrap_or_default().min(status.ready_replicas.unwrap_or_default());
        if ready >= wanted && status.observed_generation == generation {
            println!("Keelson is ready. A first database is six lines: examples/six-lines.yaml");
            return Ok(Ended::Well);
        }
        let words = format!("{ready} of {wanted} operators are ready");
        if words != said {
            eprintln!("{words}");
            said = words;
        }
        tokio::time::sleep(LOOK).await;
    }
    match timeout {
        0 => Ok(Ended::Well),
        _ => Err(Failure::Said(format!(
            "the operators are not ready after {timeout} s ({said}): `{} doctor` says what is wrong",
            program()
        ))),
    }
}

/// With another image in both places.
fn rendered(image: &str) -> String {
    MANIFEST.replace(&format!("\"{IMAGE}\""), &format!("\"{image}\""))
}

fn objects(text: &str) -> Result<Vec<Value>, Failure> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        Failure::Said(format!("what is to be installed can't be read: {error}. This is a bug"))
    })?;
    Ok(all.into_iter().filter(Value::is_object).collect())
}

/// Where it is found, and whether in a namespace.
fn resource(object: &Value) -> Result<(ApiResource, bool), Failure> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (word(&object["apiVersion"]), word(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (plural, namespaced) = match kind.as_str() {
        "Namespace" => ("namespaces", false),
        "PodDisruptionBudget" => ("poddisruptionbudgets", true),
        "ServiceAccount" => ("serviceaccounts", true),
        "CustomResourceDefinition" => ("customresourcedefinitions", false),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        "Service" => ("services", true),
        "Deployment" => ("deployments", true),
        "ConfigMap" => ("configmaps", true),
        "ValidatingAdmissionPolicy" => ("validatingadmissionpolicies", false),
        "ValidatingAdmissionPolicyBinding" => ("validatingadmissionpolicybindings", false),
        "ValidatingWebhookConfiguration" => ("validatingwebhookconfigurations", false),
        "MutatingWebhookConfiguration" => ("mutatingwebhookconfigurations", false),
        "NetworkPolicy" => ("networkpolicies", true),
        other => return Err(Failure::Said(format!("{other} can't be installed. This is a bug in Keelson"))),
    };
    let kind = GroupVersionKind::gvk(group, version, &kind);
    Ok((ApiResource::from_gvk_with_plural(&kind, plural), namespaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_installed_is_of_a_kind_that_can_be_applied() {
        let all = objects(MANIFEST).unwrap();
        assert!(all.len() > 10);
        for object in &all {
            let (resource, namespaced) = resource(object).unwrap();
            let has = object["metadata"]["namespace"].as_str();
            assert_eq!(has.is_some(), namespaced, "{} {}", resource.kind, object["metadata"]["name"]);
            assert!(has.is_none_or(|has| has == SYSTEM));
        }
        // Nothing can be made in a namespace that is not there.
        assert_eq!(all[0]["kind"], "Namespace");
    }

    #[test]
    fn the_image_is_put_into_both_places() {
        let text = rendered("example/keelson:7");
        assert_eq!(text.matches("\"example/keelson:7\"").count(), 2);
        assert!(!text.contains(&format!("\"{IMAGE}\"")));
    }
}
