//! Writes what is made from the types: the definitions under `deploy/crds`, policy and webhook under
//! `deploy/admission`, and the field reference `docs/api.md`. `tests/generated.rs` fails when they are stale.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io};

use keelson_api::{admission, crds, policy, reference};
use serde::Serialize;

const HEAD: &str = "# Written by `cargo run --package keelson-api --example generate`; do not edit.\n";

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
    files.push(("docs/api.md".into(), reference::markdown(&crds, &policy)?));
    Ok(files)
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
    Ok(())
}
