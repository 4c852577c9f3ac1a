//! What can go wrong, said so that a person can act on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// An engine's failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a folder or a process did not do as told.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What came of it.
        #[source]
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed ({status}): {said}")]
    Program {
        /// Which.
        program: &'static str,
        /// How it ended.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// The database refused, or did not understand.
    #[error("{doing}: {said}")]
    Sql {
        /// What was tried.
        doing: &'static str,
        /// The database's own words.
        said: String,
        /// Its code for them (`42704`), if it gave one.
        code: Option<String>,
    },
    /// It took too long.
    #[error("{doing} took longer than {} ms", after.as_millis())]
    Late {
        /// What was tried.
        doing: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// A parameter that the database would not take. Nothing was changed.
    #[error(
        "PostgreSQL refuses {}: {said}. Correct it under spec.parameters; nothing was changed",
        named(parameter)
    )]
    Parameter {
        /// Which, as far as can be told.
        parameter: Option<String>,
        /// The database's own words.
        said: String,
    },
    /// All of the log was replayed, and the end that was wanted is not in it.
    #[error("the log ends before the moment that is wanted{}", last_commit(last))]
    OutOfLog {
        /// When the last commit was made that is in it, in the database's own words.
        last: Option<String>,
    },
    /// Somebody else has the volume.
    #[error("another instance still runs on {}: wait until it has ended", volume.display())]
    InUse {
        /// The volume.
        volume: PathBuf,
    },
    /// The data is not what the call needs.
    #[error("{doing}: {why}")]
    Data {
        /// What was tried.
        doing: &'static str,
        /// What is there instead.
        why: String,
    },
    /// The data is not to be made primary: its disk has lost something that was written to it.
    #[error(
        "{doing}: the disk has failed this data (EIO), and what is read back from it can't be trusted. Have it copied from \
         another instance, or restore a backup; to use it all the same, remove {}", note.display()
    )]
    Damaged {
        /// What was tried.
        doing: &'static str,
        /// The note that says so, on the volume.
        note: PathBuf,
    },
    /// A check has found damage.
    #[error("{what} is damaged: {said}")]
    Inconsistent {
        /// What.
        what: String,
        /// The check's own words.
        said: String,
    },
    /// The call needs the process to run, or not to.
    #[error("{doing}: the database {}", if *.running { "is running" } else { "is not running" })]
    Running {
        /// What was tried.
        doing: &'static str,
        /// Whether it runs.
        running: bool,
    },
    /// The image has no such version.
    #[error("there is no PostgreSQL below {}: use an image that has it there, as the official ones do", folder.display())]
    NotInstalled {
        /// Where it was looked for.
        folder: PathBuf,
    },
}

/// The result of a call to an engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn last_commit(last: &Option<String>) -> String {
    last.as_ref().map(|last| format!(": its last commit is of {last}")).unwrap_or_default()
}

fn named(parameter: &Option<String>) -> String {
    parameter.as_ref().map_or_else(|| "these parameters".to_owned(), |name| format!("the parameter {name}"))
}

/// Says what was being done when an input/output error came up.
pub(crate) trait During<T> {
    fn during(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { doing, path: path.as_ref().to_path_buf(), source })
    }
}

/// Says what was being asked of the database. The statement itself is never part of the message: it may
/// hold what should not be seen.
pub(crate) trait Asking<T> {
    fn asking(self, doing: &'static str) -> Result<T>;
}

impl<T> Asking<T> for Result<T, tokio_postgres::Error> {
    fn asking(self, doing: &'static str) -> Result<T> {
        self.map_err(|error| {
            let said = match error.as_db_error() {
                Some(said) => said.message().to_owned(),
                None => std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
            };
            Error::Sql { doing, said, code: error.code().map(|code| code.code().to_owned()) }
        })
    }
}

/// Gives up on something after a while.
pub(crate) async fn within<T>(
    deadline: Duration,
    doing: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Late { doing, after: deadline }),
    }
}
