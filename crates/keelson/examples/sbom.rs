//! Writes what the program `keelson` is made of, as a CycloneDX 1.5 document: `make sbom`. It follows from Cargo's own
//! account of the dependencies and from the lock file, so the same sources give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::process::Command;

use serde_json::{Value, json};

/// What goes into images.
const PROGRAM: &str = "keelson";
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// What Cargo knows of the packages and of who needs whom.
pub fn metadata() -> Result<Value, Box<dyn Error>> {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]);
    let output = command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The checksums of the lock file, by name and version.
pub fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let entries = lock.split("[[package]]").skip(1);
    let found = entries.filter_map(|entry| {
        let field = |name: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.map(|line| line.trim_end_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    found.collect()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Who needs whom to run: what only builds or tests need is not in the program.
fn needs(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let is_normal = |one: &&Value| list(&one["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let nodes = list(&metadata["resolve"]["nodes"]).iter();
    let needs = nodes.map(|node| {
        let needed = list(&node["deps"]).iter().filter(is_normal).map(|one| word(&one["pkg"]));
        (word(&node["id"]), needed.collect())
    });
    needs.collect()
}

/// The document.
pub fn document(metadata: &Value, lock: &str) -> Result<Value, Box<dyn Error>> {
    let (needs, checksums) = (needs(metadata), checksums(lock));
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).iter().map(|package| (word(&package["id"]), package)).collect();
    let root =
        packages.iter().find(|(_, package)| package["name"] == PROGRAM).ok_or("there is no such package")?;
    let (mut reached, mut open) = (BTreeSet::new(), vec![*root.0]);
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            open.extend(needs.get(id).into_iter().flatten());
        }
    }
    let address = |id: &str| {
        let package = packages.get(id).copied().unwrap_or(&Value::Null);
        format!("pkg:cargo/{}@{}", word(&package["name"]), word(&package["version"]))
    };
    let component = |id: &&str| {
        let package = packages.get(id).copied().unwrap_or(&Value::Null);
        let (name, version) = (word(&package["name"]), word(&package["version"]));
        let checksum = checksums.get(&(name.to_owned(), version.to_owned()));
        json!({
            "type": if *id == *root.0 { "application" } else { "library" },
            "bom-ref": address(id), "purl": address(id), "name": name, "version": version,
            "licenses": [{ "expression": word(&package["license"]).replace(" / ", " OR ").replace('/', " OR ") }],
            "hashes": checksum.map(|sum| json!({ "alg": "SHA-256", "content": sum })).into_iter().collect::<Vec<_>>(),
        })
    };
    let dependency = |id: &&str| {
        let needed: BTreeSet<String> = needs
            .get(id)
            .into_iter()
            .flatten()
            .filter(|id| reached.contains(*id))
            .map(|id| address(id))
            .collect();
        json!({ "ref": address(id), "dependsOn": needed })
    };
    let others: Vec<&str> = reached.iter().copied().filter(|id| id != root.0).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(root.0) },
        "components": others.iter().map(component).collect::<Vec<_>>(),
        "dependencies": reached.iter().map(dependency).collect::<Vec<_>>(),
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"))?;
    println!("{}", serde_json::to_string_pretty(&document(&metadata()?, &lock)?)?);
    Ok(())
}
