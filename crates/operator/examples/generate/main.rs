//! Writes what is made from the types: the definitions under `deploy/crds`, policy and webhook under
//! `deploy/admission`, roles under `deploy/rbac`, the same as parts of the chart, the plain `deploy/install.yaml`
//! that Helm makes of the chart, the same for kustomize and as an OLM bundle, and the field reference `docs/api.md`.
//! `tests/generated.rs` fails when they are stale.

pub mod chart;
pub mod kustomize;
pub mod olm;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io};

use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use keelson_api::{admission, crds, policy, reference};
use keelson_operator::rights;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const HEAD: &str = "# Written by `make generate`; do not edit.\n";

/// All files, by their path from the root of the project.
pub fn files() -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let crds = crds::crds()?;
    let policy = policy::policy();
    let mut files = Vec::new();
    for crd in &crds {
        let path = format!("deploy/crds/{}.{}.yaml", crd.spec.group, crd.spec.names.plural);
        files.push((path.into(), format!("{HEAD}{}", yaml(crd)?)));
    }
    let policies = format!("{HEAD}{}---\n{}", yaml(&policy)?, yaml(&policy::binding())?);
    files.push(("deploy/admission/policy.yaml".into(), policies));
    let webhook = format!("{HEAD}{}", yaml(&admission::configuration())?);
    files.push(("deploy/admission/webhook.yaml".into(), webhook));
    let (mut cluster_roles, roles) = rights::cluster_wide()?;
    cluster_roles.extend(rights::of_people());
    files.push(("deploy/rbac/cluster.yaml".into(), documents(&cluster_roles, &roles)?));
    let (mut cluster_roles, roles) = rights::in_one_namespace()?;
    cluster_roles.extend(rights::of_people());
    files.push(("deploy/rbac/namespace.yaml".into(), documents(&cluster_roles, &roles)?));
    files.push(("docs/api.md".into(), reference::markdown(&crds, &policy)?));
    files.extend(chart::files()?);
    Ok(files)
}

/// What Helm makes of the chart as it is on the disk, for those who install without Helm.
pub fn installs() -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let install = chart::install(&testbed::helm()?, &root())?;
    let documents = serde_yaml_ng::Deserializer::from_str(&install).map(Value::deserialize);
    let mut objects = documents.collect::<Result<Vec<Value>, _>>()?;
    objects.retain(|object| !object.is_null());
    let mut files = kustomize::files(&objects)?;
    files.extend(olm::files(&objects)?);
    files.push((chart::INSTALL.into(), install));
    Ok(files)
}

fn documents(cluster_roles: &[ClusterRole], roles: &[Role]) -> Result<String, Box<dyn Error>> {
    let mut all = Vec::new();
    for role in cluster_roles {
        all.push(yaml(role)?);
    }
    for role in roles {
        all.push(yaml(role)?);
    }
    Ok(format!("{HEAD}{}", all.join("---\n")))
}

fn yaml(object: &impl Serialize) -> Result<String, Box<dyn Error>> {
    // By way of a value whose keys are sorted, so that the order of fields never depends on a library.
    Ok(serde_yaml_ng::to_string(&serde_json::to_value(object)?)?)
}

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (path, text) in files()? {
        write(&root().join(&path), &text)?;
        println!("{}", path.display());
    }
    for (path, text) in installs()? {
        write(&root().join(&path), &text)?;
        println!("{}", path.display());
    }
    Ok(())
}
