//! The error type of what trials share. Each variant says what was tried and what the person can do.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster, or a condition that did not come true.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// The API server said no, or nothing.
    #[error("{what}: {source}")]
    Api {
        /// What was asked.
        what: &'static str,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// What was read is not what it should be.
    #[error("{what} can't be read: {why}")]
    Unreadable {
        /// What was read.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// With the error of what trials share.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being asked of the API server.
pub trait Asking<T> {
    /// `what` was asked.
    fn asking(self, what: &'static str) -> Result<T>;
}

impl<T> Asking<T> for std::result::Result<T, kube::Error> {
    fn asking(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Api { what, source: Box::new(source) })
    }
}
