//! The one error type of the benchmarks. Each variant says what was tried and what the person can do.

use std::path::{Path, PathBuf};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The control plane, a build, or a condition that did not come true.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// What all trials share.
    #[error(transparent)]
    Rig(#[from] keelson_rig::Error),
    /// A file or a process did not do as told.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The API server said no, or nothing.
    #[error("{what}: {source}")]
    Api { what: &'static str, source: Box<kube::Error> },
    /// What was read is not what it should be.
    #[error("{what} can't be read: {why}")]
    Unreadable { what: String, why: String },
    /// A contestant ended in the middle of its work.
    #[error("{who} ended ({how}); the end of its log:\n{tail}")]
    Ended { who: String, how: String, tail: String },
    /// The program was not built.
    #[error("{} is missing: build it with `make bench`", .0.display())]
    NotBuilt(PathBuf),
    /// Everything was measured, and it is not good enough.
    #[error("{0} bounds are missed; the report names them")]
    Missed(usize),
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

/// Says what was being asked of the API server.
pub(crate) trait Asking<T> {
    /// `what` was asked.
    fn asking(self, what: &'static str) -> Result<T>;
}

impl<T> Asking<T> for std::result::Result<T, kube::Error> {
    fn asking(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Api { what, source: Box::new(source) })
    }
}
