//! Keelson on a cluster, as people install it.

use std::path::{Path, PathBuf};

use testbed::{Cluster, Image};

use crate::error::Result;

/// Where the operator lives.
pub const HOME: &str = "keelson-system";

/// Its image, without a tag.
const REPOSITORY: &str = "keelson";

/// What an operator needs that was built without optimisation.
pub const UNOPTIMISED: &[&str] = &["resources.limits.cpu=1"];

/// Puts this program on all nodes as an image with a tag, and installs that: with a tag of its own each time, so
/// that what runs is what was built.
pub fn install(cluster: &Cluster, program: &Path, tag: &str, values: &[&str]) -> Result<()> {
    let scratch = cluster.testbed()?.root().join(format!("image-{tag}"));
    let image = Image::of_programs(&format!("{REPOSITORY}:{tag}"), &[("/keelson", program)], &scratch)?;
    cluster.load_image(&image)?;
    upgrade(cluster, tag, values)
}

/// Installs the operator with the chart as it is, or upgrades it, from the image with this tag.
pub fn upgrade(cluster: &Cluster, tag: &str, values: &[&str]) -> Result<()> {
    let chart = checkout().join("charts/keelson").display().to_string();
    let repository = format!("image.repository={REPOSITORY}");
    let tag = format!("image.tag={tag}");
    let words = ["upgrade", "--install", "keelson", &chart, "--namespace", HOME, "--create-namespace"];
    let image = ["--set", &repository, "--set-string", &tag, "--wait", "--timeout", "180s"];
    let values = values.iter().flat_map(|value| ["--set", value]);
    let words: Vec<&str> = words.into_iter().chain(image).chain(values).collect();
    cluster.helm(&words)?;
    Ok(())
}

/// The folder of the sources that this was built from.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
