//! Where everything is.

use std::path::{Path, PathBuf};

/// The folders of one instance. The defaults are those of a Keelson pod; tests use others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The volume. The database is in `data` below it; what is being made, or kept for a while, lies
    /// beside that, on the same file system, so that it can be renamed.
    pub volume: PathBuf,
    /// Where the local socket is.
    pub sockets: PathBuf,
    /// The installed versions: `17/bin/postgres` is below it.
    pub installed: PathBuf,
}

impl Default for Layout {
    fn default() -> Self {
        Layout {
            volume: "/var/lib/keelson".into(),
            sockets: "/run/postgresql".into(),
            installed: "/usr/lib/postgresql".into(),
        }
    }
}

impl Layout {
    /// The data folder. If it is there, it is whole: see [`crate::postgres::folders`].
    pub fn data(&self) -> PathBuf {
        self.volume.join("data")
    }

    /// The folder for Keelson's own small files.
    pub fn agent(&self) -> PathBuf {
        self.volume.join("agent")
    }

    /// Where the configuration is. Outside of the data folder, since base backups and `pg_rewind` copy
    /// what lies in there from another instance.
    pub fn config(&self) -> PathBuf {
        self.agent().join("postgres")
    }

    /// A program of a version.
    pub fn program(&self, major: u32, name: &str) -> PathBuf {
        self.installed.join(major.to_string()).join("bin").join(name)
    }

    pub(crate) fn beside(&self, what: &str) -> PathBuf {
        self.volume.join(format!("data.{what}"))
    }

    pub(crate) fn config_file(&self, name: &str) -> PathBuf {
        self.config().join(name)
    }

    /// The newest version that is installed; an official image has exactly one.
    pub fn newest(&self) -> Option<u32> {
        let folders = std::fs::read_dir(&self.installed).ok()?.flatten();
        let major = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let there = |major: &u32| self.program(*major, "postgres").exists();
        folders.filter_map(|entry| major(&entry.path())).filter(there).max()
    }
}
