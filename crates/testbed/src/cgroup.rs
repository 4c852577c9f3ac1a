//! Control groups. Every process of a cluster lives below one folder of them, which is how the
//! testbed finds, freezes and kills all of a machine, or of the cluster, at once, also after a
//! start that broke off half-way.
//!
//! Version 1 (one tree a controller) and version 2 (one tree) are both handled; on version 1 the
//! freezer's tree is the one that lists processes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{During, Result};
use crate::wait::{Look, until_blocking};

const MOUNT: &str = "/sys/fs/cgroup";

/// A folder of control groups, in every tree that there is.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// Relative to the root of each tree, without a slash in front.
    path: PathBuf,
}

impl Cgroup {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Cgroup { path: path.into() }
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Cgroup { path: self.path.join(name) }
    }

    /// The name of the folder above.
    pub(crate) fn parent_name(&self) -> Option<&str> {
        self.path.parent()?.file_name()?.to_str()
    }

    /// The name as the kubelet wants it: absolute within its tree.
    pub(crate) fn absolute(&self) -> String {
        format!("/{}", self.path.display())
    }

    /// Makes the folder in every tree.
    pub(crate) fn create(&self) -> Result<()> {
        for tree in trees() {
            let folder = tree.join(&self.path);
            fs::create_dir_all(&folder).during("creating the control group", &folder)?;
            if tree.ends_with("cpuset") {
                self.inherit_cpuset(&tree)?;
            }
        }
        Ok(())
    }

    /// A new cpuset of version 1 is empty, and nothing can run in it, until it is told what it has.
    fn inherit_cpuset(&self, tree: &Path) -> Result<()> {
        let mut folder = tree.to_path_buf();
        for part in self.path.iter() {
            let parent = folder.clone();
            folder.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let value = fs::read_to_string(parent.join(file)).during("reading", parent.join(file))?;
                fs::write(folder.join(file), value).during("writing", folder.join(file))?;
            }
        }
        Ok(())
    }

    /// The file that a process writes its number into to become a member.
    pub(crate) fn procs_file(&self) -> PathBuf {
        self.listing().join("cgroup.procs")
    }

    fn listing(&self) -> PathBuf {
        listing_tree().join(&self.path)
    }

    /// The number of every process in this folder and below, as seen from the machine itself.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        collect_processes(&self.listing(), &mut found);
        found
    }

    /// Folders below this one, at any depth, whose name contains `part`.
    pub(crate) fn find(&self, part: &str) -> Vec<Cgroup> {
        let mut found = Vec::new();
        collect_folders(&self.listing(), &mut |folder| {
            let named = folder.file_name().is_some_and(|name| name.to_string_lossy().contains(part));
            if let (true, Ok(path)) = (named, folder.strip_prefix(listing_tree())) {
                found.push(Cgroup::new(path));
            }
        });
        found
    }

    /// Stops every process at once, where it stands.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.set_frozen(true)
    }

    /// Lets them go on. Nothing happens where nothing is frozen.
    pub(crate) fn thaw(&self) -> Result<()> {
        if self.listing().exists() { self.set_frozen(false) } else { Ok(()) }
    }

    fn set_frozen(&self, frozen: bool) -> Result<()> {
        let folder = self.listing();
        let (file, value, state_file, done) = match (version_2(), frozen) {
            (true, true) => ("cgroup.freeze", "1", "cgroup.events", "frozen 1"),
            (true, false) => ("cgroup.freeze", "0", "cgroup.events", "frozen 0"),
            (false, true) => ("freezer.state", "FROZEN", "freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED", "freezer.state", "THAWED"),
        };
        fs::write(folder.join(file), value).during("writing", folder.join(file))?;
        until_blocking("the freezer", Duration::from_secs(10), || {
            match fs::read_to_string(folder.join(state_file)) {
                Ok(state) if state.contains(done) => Look::There(()),
                Ok(state) => Look::NotYet(state),
                Err(error) => Look::NotYet(error.to_string()),
            }
        })
    }

    /// Kills every process in this folder and below, and waits until they are gone.
    pub(crate) fn kill(&self) -> Result<()> {
        for folder in self.find("") {
            folder.thaw()?;
        }
        self.thaw()?;
        until_blocking("all processes to end", Duration::from_secs(30), || {
            let left = self.processes();
            if left.is_empty() {
                return Look::There(());
            }
            for &process in &left {
                // It may be gone already, which is what is wanted.
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
            Look::NotYet(format!("processes {left:?} in {}", self.listing().display()))
        })
    }

    /// Removes the folder from every tree, with all below it. There must be no process left in it.
    pub(crate) fn remove(&self) -> Result<()> {
        for tree in trees() {
            remove_folders(&tree.join(&self.path))?;
        }
        Ok(())
    }

    /// Whether any tree has this folder.
    pub(crate) fn exists(&self) -> bool {
        trees().iter().any(|tree| tree.join(&self.path).exists())
    }
}

fn version_2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

fn listing_tree() -> PathBuf {
    if version_2() { PathBuf::from(MOUNT) } else { Path::new(MOUNT).join("freezer") }
}

fn trees() -> Vec<PathBuf> {
    if version_2() {
        return vec![PathBuf::from(MOUNT)];
    }
    let entries = fs::read_dir(MOUNT).into_iter().flatten().flatten();
    let mut trees: Vec<PathBuf> = entries
        // Some names are links to the same tree (cpuacct → cpu,cpuacct).
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect();
    trees.sort();
    trees
}

fn collect_processes(folder: &Path, found: &mut Vec<i32>) {
    collect_folders(folder, &mut |folder| {
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
    });
}

/// Visits a folder and all below it, children first.
fn collect_folders(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_folders(&entry.path(), visit);
        }
    }
    if folder.exists() {
        visit(folder);
    }
}

fn remove_folders(folder: &Path) -> Result<()> {
    let mut all = Vec::new();
    collect_folders(folder, &mut |folder| all.push(folder.to_path_buf()));
    for folder in all {
        // A process that has just been killed may still count for a moment.
        until_blocking("the control group to empty", Duration::from_secs(10), || {
            match fs::remove_dir(&folder) {
                Ok(()) => Look::There(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Look::There(()),
                Err(error) => Look::NotYet(format!("{}: {error}", folder.display())),
            }
        })?;
    }
    Ok(())
}
