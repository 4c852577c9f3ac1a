//! What can go wrong, by what a person can do about it.

use std::path::{Path, PathBuf};

use crate::wal::NotTheSegment;

/// What can go wrong with a repository.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store knows who asks, and says no; or does not know who asks.
    #[error(
        "{doing} `{object}`: the store denies it ({reason}). Check the credentials, and that they may list, read, write and delete below this path"
    )]
    Denied {
        /// What was tried.
        doing: &'static str,
        /// On which object.
        object: String,
        /// What the store said.
        reason: String,
    },
    /// The store does not answer, or answers that it can't now.
    #[error(
        "{doing} `{object}`: the store can't be reached or can't answer now ({reason}). It is tried again; check its address, the network and its state"
    )]
    Unreachable {
        /// What was tried.
        doing: &'static str,
        /// On which object.
        object: String,
        /// What happened.
        reason: String,
    },
    /// There is no such object.
    #[error("{doing} `{object}`: there is no such object in the repository")]
    NotFound {
        /// What was tried.
        doing: &'static str,
        /// On which object.
        object: String,
    },
    /// The store, or the disk that is written to, has no room.
    #[error(
        "{doing} `{object}`: there is no room left ({reason}). Make room, raise the quota, or shorten the retention"
    )]
    Full {
        /// What was tried.
        doing: &'static str,
        /// On which object.
        object: String,
        /// What the store said.
        reason: String,
    },
    /// What is in the repository is not what was put there.
    #[error(
        "`{object}` is corrupt: {reason}. Restore from another backup, and find out what changed the object"
    )]
    Corrupt {
        /// Which object.
        object: String,
        /// How it is seen.
        reason: String,
    },
    /// Something else is there under the name.
    #[error(
        "`{object}` is in the repository already, with other content. Nothing was overwritten. Two databases may have written there, or one was restored and writes to the old path: give it a path of its own"
    )]
    Conflict {
        /// Which object.
        object: String,
    },
    /// The path belongs to another database.
    #[error(
        "the repository at `{location}` belongs to the database {owner} (system identifier {found}), and not to the system identifier {wanted}. Nothing was written: give this database a path of its own"
    )]
    Foreign {
        /// Where.
        location: String,
        /// Whom the mark names.
        owner: String,
        /// The system identifier in the mark.
        found: u64,
        /// That of the database which wants to write.
        wanted: u64,
    },
    /// Something is there, and nothing says whose it is.
    #[error(
        "the repository at `{location}` is not empty (`{example}`) and has no mark that says whose it is. Nothing was written: give this database a path of its own, or remove what is there"
    )]
    Unmarked {
        /// Where.
        location: String,
        /// One of the objects.
        example: String,
    },
    /// The mark is gone.
    #[error(
        "the mark of the repository at `{location}` is gone, so nothing says whose it is. Nothing was written: find out who removed `keelson.json`, and claim the path again"
    )]
    Unclaimed {
        /// Where.
        location: String,
    },
    /// A segment in `pg_wal` is not what its name says.
    #[error("the segment `{name}` is not what its name says: {reason}. It was not taken")]
    Segment {
        /// The file.
        name: String,
        /// Why not.
        #[source]
        reason: NotTheSegment,
    },
    /// A file of the database's own.
    #[error("{doing} `{path}`: {source}")]
    Local {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// The database did not do what it was asked.
    #[error("{doing}: {reason}")]
    Database {
        /// What it was asked.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// Settings that can't be.
    #[error("{field}: {reason}")]
    Settings {
        /// Which field.
        field: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A backup that begins where another one does: the database has made no checkpoint since.
    #[error(
        "`{name}` exists already: the database has made no checkpoint since. Try again after the next one"
    )]
    TooSoon {
        /// Its name.
        name: String,
    },
    /// A wish that can't be fulfilled, with the reason.
    #[error("{0}")]
    Refused(String),
}

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of trouble it is: a label of metrics, and a reason in conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Credentials or rights.
    Denied,
    /// The store or the network.
    Unreachable,
    /// An object that should be there is not.
    NotFound,
    /// No room.
    Full,
    /// Content is damaged.
    Corrupt,
    /// The path is somebody else's, or something else is there.
    Foreign,
    /// The database's own files or the database itself.
    Local,
    /// What was asked for can't be.
    Refused,
}

impl Class {
    /// Whether time alone may help. The others wait for a person, and are looked at less often.
    pub fn passes(self) -> bool {
        matches!(self, Class::Unreachable | Class::Local)
    }

    /// As a label.
    pub fn label(self) -> &'static str {
        match self {
            Class::Denied => "denied",
            Class::Unreachable => "unreachable",
            Class::NotFound => "not-found",
            Class::Full => "full",
            Class::Corrupt => "corrupt",
            Class::Foreign => "foreign",
            Class::Local => "local",
            Class::Refused => "refused",
        }
    }
}

impl Error {
    /// Which kind it is.
    pub fn class(&self) -> Class {
        match self {
            Error::Denied { .. } => Class::Denied,
            Error::Unreachable { .. } => Class::Unreachable,
            Error::NotFound { .. } => Class::NotFound,
            Error::Full { .. } => Class::Full,
            Error::Corrupt { .. } | Error::Segment { .. } => Class::Corrupt,
            Error::Conflict { .. }
            | Error::Foreign { .. }
            | Error::Unmarked { .. }
            | Error::Unclaimed { .. } => Class::Foreign,
            Error::Local { .. } | Error::Database { .. } => Class::Local,
            Error::Settings { .. } | Error::TooSoon { .. } | Error::Refused(_) => Class::Refused,
        }
    }

    /// Of a task that ended without an answer.
    pub(crate) fn lost(doing: &'static str, error: impl std::fmt::Display) -> Error {
        Error::Database { doing, reason: format!("the task ended by itself: {error}") }
    }
}

/// What a store said, by class. The text of the store's answer decides where its kind does not: servers have
/// their own words for a full disk.
pub(crate) fn of_store(doing: &'static str, object: &str, error: object_store::Error) -> Error {
    use object_store::Error as Store;
    let object = object.to_owned();
    let reason = chain(&error);
    match error {
        Store::NotFound { .. } if !names_no_bucket(&reason) => Error::NotFound { doing, object },
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
            Error::Denied { doing, object, reason }
        }
        Store::AlreadyExists { .. } => Error::Conflict { object },
        _ if names_no_bucket(&reason) => Error::Settings {
            field: "bucket",
            reason: format!(
                "{doing} `{object}`: there is no such bucket ({reason}); create it, or correct the name"
            ),
        },
        _ if says_full(&reason) => Error::Full { doing, object, reason },
        _ if says_denied(&reason) => Error::Denied { doing, object, reason },
        _ => Error::Unreachable { doing, object, reason },
    }
}

/// What a file system said.
pub(crate) fn of_file(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::Full { doing, object: path.display().to_string(), reason: source.to_string() }
        }
        _ => Error::Local { doing, path: path.to_owned(), source },
    }
}

fn says_full(reason: &str) -> bool {
    [
        "No space left on device",
        "QuotaExceeded",
        "Insufficient Storage",
        "EntityTooLarge",
        "Disk quota exceeded",
        "XMinioStorageFull",
        "InsufficientCapacity",
        "status code: 507",
    ]
    .iter()
    .any(|word| reason.contains(word))
}

fn says_denied(reason: &str) -> bool {
    [
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "Permission denied",
        "AccountIsDisabled",
        "invalid_grant",
    ]
    .iter()
    .any(|word| reason.contains(word))
}

fn names_no_bucket(reason: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"]
        .iter()
        .any(|word| reason.contains(word))
}

/// An error with all its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn what_a_store_says_has_a_class() {
        let class = |text: &str| of_store("writing", "wal_005/x", generic(text)).class();
        assert_eq!(class("write /data/x: No space left on device"), Class::Full);
        assert_eq!(class("<Code>QuotaExceeded</Code>"), Class::Full);
        assert_eq!(class("<Code>InvalidAccessKeyId</Code>"), Class::Denied);
        assert_eq!(class("connection refused"), Class::Unreachable);
        assert_eq!(class("<Code>NoSuchBucket</Code>"), Class::Refused);
        let missing = object_store::Error::NotFound { path: "x".into(), source: "404".into() };
        assert_eq!(of_store("reading", "x", missing).class(), Class::NotFound);
    }

    #[test]
    fn an_error_names_the_object_and_what_to_do() {
        let text = of_store("writing", "wal_005/x.zst", generic("connection refused")).to_string();
        assert!(text.contains("wal_005/x.zst") && text.contains("check its address"), "{text}");
    }

    #[test]
    fn only_what_passes_by_itself_is_tried_again_soon() {
        assert!(Class::Unreachable.passes());
        assert!(!Class::Denied.passes() && !Class::Foreign.passes() && !Class::Corrupt.passes());
    }
}
