//! Where things are: the state of one cluster, and the cache that all clusters share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cgroup::Cgroup;
use crate::error::{During, Error, Result};
use crate::network::Node;

/// The folder of one cluster (`target/testbed` unless told otherwise). Everything about the cluster
/// is derived from it, so that `down` finds what `up` left even when the folder itself is gone.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    id: String,
}

impl Layout {
    /// The cluster that lives in `root`.
    pub fn new(root: impl AsRef<Path>) -> Result<Self> {
        let root = std::path::absolute(root.as_ref()).during("resolving", root.as_ref())?;
        let id = format!("keelson-testbed-{}", &sha256(root.to_string_lossy().as_bytes())[..8]);
        Ok(Layout { root, id })
    }

    /// The cluster of this checkout: `$TESTBED_DIR`, else `target/testbed`.
    pub fn of_checkout() -> Result<Self> {
        match std::env::var_os("TESTBED_DIR") {
            Some(folder) => Layout::new(PathBuf::from(folder)),
            None => {
                let checkout =
                    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/"));
                Layout::new(checkout.join("target/testbed"))
            }
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// For whoever wants to talk to the cluster.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The logs of a machine's components.
    pub fn logs(&self, machine: &str) -> PathBuf {
        self.root.join("logs").join(machine)
    }

    /// The logs of the containers on a node, those that have ended included, as its kubelet keeps them.
    pub fn pod_logs(&self, node: Node) -> PathBuf {
        self.machine(&node.name()).join("log/pods")
    }

    pub(crate) fn machine(&self, name: &str) -> PathBuf {
        self.root.join("machines").join(name)
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The copy of this program that the cluster's own processes are started from.
    pub(crate) fn program(&self) -> PathBuf {
        self.root.join("bin/testbed")
    }

    pub(crate) fn cgroup(&self) -> Cgroup {
        Cgroup::new(&self.id)
    }

    /// Holds off every other command on this cluster for as long as the file is kept. It lies
    /// beside the folder, so that it survives the folder's removal.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.root.with_extension("lock"))
    }
}

/// What is built once and used by every checkout: `$XDG_CACHE_HOME/keelson-testbed`.
/// Every entry's name ends in a hash of all that it was made from.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(crate) fn open() -> Result<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .ok_or_else(|| Error::Refused("neither XDG_CACHE_HOME nor HOME is set: set one".into()))?;
        let root = base.join("keelson-testbed");
        fs::create_dir_all(&root).during("creating", &root)?;
        Ok(Cache { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The finished entry, if there is one.
    pub(crate) fn finished(&self, entry: &str) -> Option<PathBuf> {
        let path = self.root.join(entry);
        path.exists().then_some(path)
    }

    /// The entry, made by `make` in a folder of its own if it is not there yet. An entry is there
    /// wholly or not at all, and two commands at once make it once.
    pub(crate) fn entry(&self, entry: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.root.join(entry);
        let _held = lock(&self.root.join(format!("{entry}.lock")))?;
        if path.exists() {
            return Ok(path);
        }
        let unfinished = self.root.join(format!("{entry}.unfinished"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).during("removing", &unfinished)?;
        }
        fs::create_dir_all(&unfinished).during("creating", &unfinished)?;
        make(&unfinished)?;
        fs::rename(&unfinished, &path).during("naming", &path)?;
        Ok(path)
    }
}

fn lock(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).during("creating", parent)?;
    }
    let file = File::create(path).during("creating", path)?;
    file.lock().during("locking", path)?;
    Ok(file)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_cluster_follows_from_its_folder() {
        let one = Layout::new("/some/where").unwrap();
        assert_eq!(one.id, Layout::new("/some/where").unwrap().id);
        assert_ne!(one.id, Layout::new("/some/where-else").unwrap().id);
    }

    #[test]
    fn an_entry_that_failed_half_way_is_made_anew() {
        let root = std::env::temp_dir().join(format!("testbed-cache-{}", std::process::id()));
        let cache = Cache { root: root.clone() };
        fs::create_dir_all(&root).unwrap();
        let failed = cache.entry("thing-1", |folder| {
            fs::write(folder.join("half"), "").unwrap();
            Err(Error::Refused("broken off".into()))
        });
        assert!(failed.is_err());
        assert!(cache.finished("thing-1").is_none());
        let path =
            cache.entry("thing-1", |folder| fs::write(folder.join("whole"), "").during("", folder)).unwrap();
        assert!(path.join("whole").exists() && !path.join("half").exists());
        cache.entry("thing-1", |_| panic!("it is there already")).unwrap();
        fs::remove_dir_all(&root).unwrap();
    }
}
