//! A share of a processor for one process, as the kubelet gives it to a container.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Result};

const MOUNT: &str = "/sys/fs/cgroup";
/// The kernel hands out shares anew after so many microseconds; the kubelet leaves it at that.
const PERIOD: u32 = 100_000;

/// A control group that has just so much of a processor. Removed when dropped.
pub(super) struct Limit {
    folder: PathBuf,
    thousandths: u32,
}

impl Limit {
    /// So many thousandths of a processor.
    pub(super) fn thousandths(thousandths: u32) -> Result<Limit> {
        let mount = Path::new(MOUNT);
        let version_2 = mount.join("cgroup.controllers").exists();
        let tree = if version_2 { mount.to_path_buf() } else { mount.join("cpu") };
        let limit = Limit { folder: tree.join(format!("keelson-bench-{}", std::process::id())), thousandths };
        let quota = quota(thousandths);
        let settings = if version_2 {
            vec![
                (tree.join("cgroup.subtree_control"), "+cpu".to_owned()),
                limit.file("cpu.max", &format!("{quota} {PERIOD}")),
            ]
        } else {
            vec![
                limit.file("cpu.cfs_period_us", &PERIOD.to_string()),
                limit.file("cpu.cfs_quota_us", &quota.to_string()),
            ]
        };
        fs::create_dir_all(&limit.folder).during("creating the control group", &limit.folder)?;
        for (file, value) in settings {
            fs::write(&file, value).during("writing", &file)?;
        }
        Ok(limit)
    }

    fn file(&self, name: &str, value: &str) -> (PathBuf, String) {
        (self.folder.join(name), value.to_owned())
    }

    /// How much it is.
    pub(super) fn share(&self) -> u32 {
        self.thousandths
    }

    /// Holds a process to it, with all its threads.
    pub(super) fn hold(&self, process: u32) -> Result<()> {
        let file = self.folder.join("cgroup.procs");
        fs::write(&file, process.to_string()).during("writing", &file)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // It stays behind, empty, if a process is still in it: a nuisance, and no more.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Microseconds in each period.
fn quota(thousandths: u32) -> u32 {
    thousandths * (PERIOD / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_a_processor_is_a_tenth_of_each_period() {
        assert_eq!(quota(100), 10_000);
        assert_eq!(quota(2000), 2 * PERIOD);
    }
}
