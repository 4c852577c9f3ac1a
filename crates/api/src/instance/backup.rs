//! What operator and agents tell each other about backups.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DrillNote, paths};
use crate::v1::{BackupMethod, BackupPhase, Repository};
use crate::value::Written;

/// Words for [`ArchiveReport::reason`] and for [`BackupReport::reason`]: reasons of conditions.
pub mod backup_reasons {
    /// The Secret to sign in with is missing, or lacks an entry.
    pub const CREDENTIALS_MISSING: &str = "CredentialsMissing";
    /// The Secret with the key is missing, or what it holds is none.
    pub const KEY_MISSING: &str = "EncryptionKeyMissing";
    /// The store says no.
    pub const DENIED: &str = "StoreDenied";
    /// The store does not answer.
    pub const UNREACHABLE: &str = "StoreUnreachable";
    /// The store has no room.
    pub const FULL: &str = "StoreFull";
    /// The path belongs to somebody else.
    pub const FOREIGN: &str = "RepositoryForeign";
    /// What is in the repository is not what was put there.
    pub const CORRUPT: &str = "RepositoryCorrupt";
    /// The settings of the repository can't be.
    pub const REFUSED: &str = "RepositoryRefused";
    /// The database's own files, or the database itself, stand in the way.
    pub const FAILED: &str = "ArchiveFailed";
    /// There is no backup from which the wanted moment could be reached.
    pub const TARGET_REFUSED: &str = "RestoreTargetRefused";
}

/// A repository, and where in the container that is found which one needs to use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// Where it is. Its path is always filled in.
    pub repository: Repository,
    /// The folder with the entries of the Secret to sign in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// The folder with the entries of the Secret with the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The folder where the volume is mounted, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// What a repository is used for: the same Secret may be mounted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Backups go there.
    BackUp,
    /// The first data comes from there.
    Restore,
}

impl Store {
    /// The repository of a database, with a path of its own where none was named.
    pub fn of(repository: &Repository, namespace: &str, database: &str, used: Use) -> Store {
        let repository = repository.with_path(&format!("{namespace}/{database}"));
        let (credentials, key, folder) = match used {
            Use::BackUp => (paths::BACKUP_CREDENTIALS, paths::BACKUP_KEY, paths::BACKUP_FOLDER),
            Use::Restore => (paths::RESTORE_CREDENTIALS, paths::RESTORE_KEY, paths::RESTORE_FOLDER),
        };
        Store {
            credentials: repository.credentials_secret().map(|_| credentials.to_owned()),
            key: repository.encryption_secret.as_ref().map(|_| key.to_owned()),
            folder: repository.folder.as_ref().map(|_| folder.to_owned()),
            repository,
        }
    }
}

/// Whether and where to an instance backs up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRule {
    /// Where to.
    pub to: Store,
    /// How old log may become before it is sent, in seconds.
    pub max_data_loss_seconds: u64,
    /// How many bytes a second a base backup may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// How many incremental backups follow a full one.
    #[serde(default)]
    pub incrementals: u32,
    /// What is kept, such as `30d` or `10 backups`. Without it, everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// The base backup that is to be made now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<BackupOrder>,
    /// Whether the primary writes marks that drills look for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub marks: bool,
    /// How drills went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillNote>,
}

/// A base backup that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupOrder {
    /// The Backup, by name.
    pub name: String,
    /// The Backup: another of that name is another order.
    pub uid: String,
    /// The pod that is to make it.
    pub instance: String,
    /// Full or incremental; without it, as is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Written<BackupMethod>>,
    /// Whether retention leaves it alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// Where the first data of a database comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreRule {
    /// The repository that is read.
    pub from: Store,
    /// The name in the repository of the backup to begin with. Without it, whichever fits best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// Up to where.
    #[serde(default, skip_serializing_if = "RestorePoint::is_latest")]
    pub to: RestorePoint,
    /// On which timeline. Without it, the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<u32>,
}

/// A moment in the past of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestorePoint {
    /// As far as the log goes.
    #[default]
    Latest,
    /// A time.
    Time(Timestamp),
    /// A place in the log.
    Lsn(String),
    /// A point that was given a name.
    Name(String),
}

impl RestorePoint {
    /// Whether it is as far as the log goes.
    pub fn is_latest(&self) -> bool {
        *self == RestorePoint::Latest
    }
}

/// How it stands with the log and the repository, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArchiveReport {
    /// How many files of the log wait to be sent, in steps.
    pub waiting: u64,
    /// How many bytes that is.
    pub waiting_bytes: u64,
    /// Since when the oldest of them waits, if that is for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// When one was last sent. Not told each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// What is wrong, in a word; see [`backup_reasons`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence that says what to do. Nothing secret is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// In how many seconds the volume is full if it goes on like this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_in_seconds: Option<u64>,
    /// The first moment that can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_recoverable: Option<Timestamp>,
    /// The last moment that certainly can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_recoverable: Option<Timestamp>,
    /// When the last base backup in the repository was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<Timestamp>,
    /// The names of the backups in the repository, once they are known, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backups: Option<Vec<String>>,
    /// When it was looked which there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked: Option<Timestamp>,
}

/// How it stands with the base backup that an instance was told to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// The Backup.
    pub uid: String,
    /// Where it stands.
    pub phase: Written<BackupPhase>,
    /// How it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Written<BackupMethod>>,
    /// Its name in the repository, when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// How many bytes were read.
    #[serde(default)]
    pub read_bytes: u64,
    /// How many there are to read.
    #[serde(default)]
    pub total_bytes: u64,
    /// How many bytes it takes in the repository.
    #[serde(default)]
    pub stored_bytes: u64,
    /// What went wrong, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence that says what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn repository(json: serde_json::Value) -> Repository {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_repository_without_a_path_gets_one_of_its_own() {
        let s3 = repository(json!({"s3": {"bucket": "backups", "credentialsSecret": "keys"}}));
        let store = Store::of(&s3, "shop", "orders", Use::BackUp);
        assert_eq!(store.repository.s3.as_ref().unwrap().path.as_deref(), Some("shop/orders"));
        assert_eq!(store.credentials.as_deref(), Some(paths::BACKUP_CREDENTIALS));
        assert_eq!((store.key, store.folder), (None, None));
        let named = repository(json!({"gcs": {"bucket": "backups", "path": "mine"}}));
        let store = Store::of(&named, "shop", "orders", Use::BackUp);
        assert_eq!(store.repository.gcs.as_ref().unwrap().path.as_deref(), Some("mine"));
        assert_eq!(store.credentials, None, "the pod's own identity");
    }

    #[test]
    fn what_is_restored_from_is_mounted_elsewhere_than_what_is_backed_up_to() {
        let folder = repository(json!({"folder": {"claim": "disk"}, "encryptionSecret": "key"}));
        let (to, from) = (
            Store::of(&folder, "shop", "orders", Use::BackUp),
            Store::of(&folder, "shop", "orders", Use::Restore),
        );
        assert!(to.folder != from.folder && to.key != from.key && to.repository == from.repository);
    }

    #[test]
    fn reports_of_a_newer_agent_are_read_too() {
        let read: ArchiveReport = serde_json::from_value(json!({"waiting": 3, "colour": "blue"})).unwrap();
        assert_eq!(read, ArchiveReport { waiting: 3, ..ArchiveReport::default() });
        let read: BackupReport =
            serde_json::from_value(json!({"uid": "1", "phase": "Dreaming", "colour": "blue"})).unwrap();
        assert!(read.phase.parse().is_err(), "a phase that is not known yet is no reason to refuse the rest");
    }

    #[test]
    fn a_point_is_written_as_what_it_is() {
        let point = RestorePoint::Lsn("0/3000060".to_owned());
        assert_eq!(serde_json::to_value(&point).unwrap(), json!({"lsn": "0/3000060"}));
        assert_eq!(serde_json::to_value(RestorePoint::Latest).unwrap(), json!("latest"));
    }
}
