//! What is kept when a promise was broken: the schedule, what happened when, what clients were told, objects, and the
//! logs of agents and operators, those of containers that have ended included.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Result};
use crate::schedule::NODES;
use crate::site::Site;

/// Saves all into a folder. Returns it.
pub(crate) fn save(site: &Site, folder: &Path, texts: &[(&str, &str)]) -> Result<PathBuf> {
    fs::create_dir_all(folder).during("creating", folder)?;
    for (name, text) in texts {
        fs::write(folder.join(name), text).during("writing", folder.join(name))?;
    }
    for (name, words) in [
        ("databases.yaml", &["get", "databases,leases,endpointslices", "--output=yaml"][..]),
        ("pods.txt", &["get", "pods,pvc", "--output=wide"]),
        ("events.txt", &["get", "events", "--sort-by=.lastTimestamp"]),
    ] {
        // Whatever of it can be had.
        let text = site.kubectl(words).unwrap_or_else(|error| error.to_string());
        fs::write(folder.join(name), text).during("writing", folder.join(name))?;
    }
    copy(site.history(), &folder.join("clients"))?;
    let layout = site.cluster.testbed()?;
    for number in 1..=NODES + 1 {
        let Some(node) = testbed::Node::new(number) else { continue };
        copy(&layout.pod_logs(node), &folder.join(node.name()))?;
    }
    Ok(folder.to_owned())
}

/// Copies a folder with all in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).during("creating", to)?;
    for entry in fs::read_dir(from).during("reading", from)? {
        let path = entry.during("reading", from)?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        if path.is_dir() {
            copy(&path, &target)?;
        } else if path.is_file() {
            fs::copy(&path, &target).during("copying", &path)?;
        }
    }
    Ok(())
}
