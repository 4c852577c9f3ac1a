//! The one error type of this program. Each variant says what was tried and what the person can do.

use std::path::{Path, PathBuf};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The cluster, or a condition that did not come true.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// What all trials share.
    #[error(transparent)]
    Rig(#[from] keelson_rig::Error),
    /// A file did not do as told.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// What was read is not what it should be.
    #[error("{what} can't be read: {why}")]
    Unreadable {
        /// What was read.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The program was not built.
    #[error("{} is missing: `make chaos` builds it", .0.display())]
    NotBuilt(PathBuf),
    /// A fault that the testbed has nothing for.
    #[error("{0}: the testbed has no such fault; take it out of the scenario")]
    Unplayable(String),
    /// Something was not as promised.
    #[error("{count} promises were broken; what was seen is in {}", folder.display())]
    Violated {
        /// How many.
        count: usize,
        /// Where the evidence is.
        folder: PathBuf,
    },
    /// The simulator and the testbed do not agree.
    #[error("{0} scenarios have other outcomes in the simulator than on the testbed")]
    Different(usize),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being done when an error came up.
pub(crate) trait During<T> {
    /// `what` was tried on `path`.
    fn during(self, what: &str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: &str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { what: format!("{what} {}", path.as_ref().display()), source })
    }
}
