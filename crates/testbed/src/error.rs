//! The one error type of the testbed. Each variant says what was tried and what the person can do.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can go wrong.
#[derive(thiserror::Error)]
pub enum Error {
    /// A file, folder or socket did not do as told.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("`{command}` failed ({status})\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A component of the cluster did not come up.
    #[error("{component} did not start: {reason}\n  log: {}\n{}\n  what to do: {hint}", log.display(), indented(tail))]
    Component {
        /// `hub/kube-apiserver`, `node-2/kubelet`, …
        component: String,
        /// What was seen.
        reason: String,
        /// Where its log is.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
        /// What the person can try.
        hint: String,
    },
    /// A condition did not come true in time.
    #[error("waited {}s in vain for {what}; last seen: {state}", after.as_secs())]
    Missed {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What was there instead.
        state: String,
    },
    /// The API server said no, or nothing.
    #[error("{what}: {source}")]
    Api {
        /// What was tried, on which object.
        what: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The request itself can't be carried out; the text says what would.
    #[error("{0}")]
    Refused(String),
}

/// A test that unwraps shows what a person would read.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The testbed's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

/// Says what was being done when an input/output error came up.
pub(crate) trait During<T> {
    /// `what` and the path on which it was tried.
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
    fn asking(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Asking<T> for std::result::Result<T, kube::Error> {
    fn asking(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Api { what: what.into(), source: Box::new(source) })
    }
}
