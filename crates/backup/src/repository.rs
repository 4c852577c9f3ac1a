//! A repository: one database's path in a store, with a mark that says whose it is.
//!
//! Reading needs no more than the repository. All writing goes through a [`Writer`], which reads the mark
//! before each object that it writes, so that a second database on the same path is found before a byte of
//! it is there, and a path that changed hands while a process was paused is found too.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, of_store};
use crate::location::Location;
use crate::seal::Key;
use crate::wal::SegmentSize;

/// The folder of base backups in WAL-G's layout.
pub(crate) const BACKUPS: &str = "basebackups_005";
/// The folder of the log in WAL-G's layout.
pub(crate) const LOG: &str = "wal_005";
/// The folder of named points: Keelson's own, which WAL-G does not look into.
pub(crate) const POINTS: &str = "keelson_points";
const MARK: &str = "keelson.json";

/// How objects are written.
#[derive(Clone, Debug)]
pub struct Format {
    /// How hard zstd tries: 1 is fast, 3 is its own default, 19 is slow.
    pub level: i32,
    /// With which key objects are sealed; whoever reads needs the same.
    pub key: Option<Key>,
}

impl Default for Format {
    fn default() -> Self {
        Format { level: 1, key: None }
    }
}

/// Whose repository it is. Kept as an object beside what WAL-G knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// That of the database, as text: it has more digits than JSON's numbers are safe for.
    system_identifier: String,
    /// How much log a segment holds.
    segment_size: u64,
    /// For people: the namespace and the name of the Database.
    pub owner: String,
    /// When it was claimed.
    pub claimed: String,
}

impl Mark {
    /// Whose it is.
    pub fn system_identifier(&self) -> Option<u64> {
        self.system_identifier.parse().ok()
    }

    /// How much log a segment holds.
    pub fn segment_size(&self) -> Option<SegmentSize> {
        SegmentSize::new(self.segment_size)
    }
}

/// What a repository is claimed for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// That of the database.
    pub system_identifier: u64,
    /// How much log a segment of it holds.
    pub segment_size: SegmentSize,
    /// For people: the namespace and the name of the Database.
    pub owner: String,
}

/// An object, as a listing tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its path in the repository.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// When the store took it.
    pub modified: Timestamp,
}

/// One database's path in a store.
#[derive(Clone, Debug)]
pub struct Repository {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    location: String,
    pub(crate) format: Format,
}

impl Repository {
    /// Gets ready to use one. Nothing is asked of the store yet.
    pub fn open(location: &Location, format: Format) -> Result<Repository> {
        let (store, prefix) = location.connect()?;
        Ok(Repository { store, prefix, location: location.describe(), format })
    }

    /// On any store; for tests.
    #[cfg(test)]
    pub(crate) fn on(store: Arc<dyn ObjectStore>, format: Format) -> Repository {
        Repository { store, prefix: Path::from("test/orders"), location: "memory://".into(), format }
    }

    /// Where it is, without any secret.
    pub fn location(&self) -> &str {
        &self.location
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.store.as_ref()
    }

    pub(crate) fn path(&self, relative: &str) -> Path {
        relative.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// The mark, if there is one.
    pub async fn mark(&self) -> Result<Option<Mark>> {
        match self.read(MARK).await {
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => {
                let mark: Mark = serde_json::from_slice(&bytes).map_err(|error| self.corrupt(MARK, error))?;
                match (mark.system_identifier(), mark.segment_size()) {
                    (Some(_), Some(_)) => Ok(Some(mark)),
                    _ => Err(self.corrupt(MARK, "its numbers make no sense")),
                }
            }
        }
    }

    /// The mark of a repository that must have one.
    pub async fn marked(&self) -> Result<Mark> {
        self.mark().await?.ok_or_else(|| Error::Unclaimed { location: self.location.clone() })
    }

    /// Makes this the repository of a database, or sees that it is already. Of two who come at once, one
    /// is refused.
    pub async fn claim(&self, claim: &Claim) -> Result<Writer> {
        let writer = Writer { repository: self.clone(), claim: claim.clone() };
        if self.mark().await?.is_none() {
            if let Some(object) = self.list_some("").await? {
                return Err(Error::Unmarked { location: self.location.clone(), example: object.path });
            }
            let mark = Mark {
                system_identifier: claim.system_identifier.to_string(),
                segment_size: claim.segment_size.bytes(),
                owner: claim.owner.clone(),
                claimed: Timestamp::now().to_string(),
            };
            let json = serde_json::to_vec_pretty(&mark).map_err(|error| self.corrupt(MARK, error))?;
            match self.put(MARK, json.into(), PutMode::Create).await {
                // Somebody else was quicker. Who it was is seen below.
                Ok(()) | Err(Error::Conflict { .. }) => (),
                Err(error) => return Err(error),
            }
        }
        writer.check().await?;
        Ok(writer)
    }

    /// A small object, whole.
    pub(crate) async fn read(&self, relative: &str) -> Result<Bytes> {
        let at = |error| of_store("reading", relative, error);
        self.store.get(&self.path(relative)).await.map_err(at)?.bytes().await.map_err(at)
    }

    /// A small object of JSON; `None` if there is none.
    pub(crate) async fn read_json<T: serde::de::DeserializeOwned>(
        &self,
        relative: &str,
    ) -> Result<Option<T>> {
        match self.read(relative).await {
            Ok(bytes) => {
                Ok(Some(serde_json::from_slice(&bytes).map_err(|error| self.corrupt(relative, error))?))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the store knows of an object; `None` if there is none.
    pub(crate) async fn head(&self, relative: &str) -> Result<Option<Object>> {
        match self.store.head(&self.path(relative)).await {
            Ok(meta) => Ok(Some(self.object(meta))),
            Err(error) => match of_store("looking for", relative, error) {
                Error::NotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// All objects below a folder, one after the other.
    pub(crate) fn list(&self, folder: &str) -> impl futures::Stream<Item = Result<Object>> + '_ {
        let relative = folder.to_owned();
        let path = if folder.is_empty() { self.prefix.clone() } else { self.path(folder) };
        self.store
            .list(Some(&path))
            .map_ok(|meta| self.object(meta))
            .map_err(move |error| of_store("listing", &relative, error))
    }

    async fn list_some(&self, folder: &str) -> Result<Option<Object>> {
        self.list(folder).boxed().try_next().await
    }

    pub(crate) fn corrupt(&self, relative: &str, reason: impl std::fmt::Display) -> Error {
        Error::Corrupt { object: format!("{}/{relative}", self.location), reason: reason.to_string() }
    }

    async fn put(&self, relative: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        let payload = PutPayload::from_bytes(bytes);
        let put = self.store.put_opts(&self.path(relative), payload, mode.into()).await;
        put.map(drop).map_err(|error| of_store("writing", relative, error))
    }

    fn object(&self, meta: ObjectMeta) -> Object {
        let path = meta.location.as_ref();
        let relative = path.strip_prefix(self.prefix.as_ref()).unwrap_or(path);
        let nanos = meta.last_modified.timestamp_subsec_nanos().cast_signed();
        let modified = Timestamp::new(meta.last_modified.timestamp(), nanos).unwrap_or_default();
        Object { path: relative.trim_start_matches('/').to_owned(), size: meta.size, modified }
    }
}

/// Who may write to a repository: the database that it was claimed for.
#[derive(Clone, Debug)]
pub struct Writer {
    repository: Repository,
    claim: Claim,
}

impl Writer {
    /// What it writes to.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// For whom it writes.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Sees that the repository is still this database's own.
    pub async fn check(&self) -> Result<()> {
        let mark = self.repository.marked().await?;
        let found = mark.system_identifier().unwrap_or_default();
        if found != self.claim.system_identifier {
            return Err(Error::Foreign {
                location: self.repository.location.clone(),
                owner: mark.owner,
                found,
                wanted: self.claim.system_identifier,
            });
        }
        Ok(())
    }

    /// Writes a small object, over what is there.
    pub(crate) async fn write(&self, relative: &str, bytes: Vec<u8>) -> Result<()> {
        self.check().await?;
        self.repository.put(relative, bytes.into(), PutMode::Overwrite).await
    }

    /// Removes an object. One that is gone already is as good as removed.
    pub(crate) async fn remove(&self, relative: &str) -> Result<()> {
        match self.repository.store.delete(&self.repository.path(relative)).await {
            Ok(()) => Ok(()),
            Err(error) => match of_store("deleting", relative, error) {
                Error::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn claim(system_identifier: u64) -> Claim {
        Claim {
            system_identifier,
            segment_size: SegmentSize::DEFAULT,
            owner: format!("shop/orders-{system_identifier}"),
        }
    }

    async fn paths(repository: &Repository) -> Vec<String> {
        repository.list("").map_ok(|object| object.path).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn a_second_database_on_the_path_is_refused_before_a_byte_is_written() {
        let repository = Repository::on(Arc::new(InMemory::new()), Format::default());
        let first = repository.claim(&claim(1)).await.unwrap();
        let before = paths(&repository).await;
        let error = repository.claim(&claim(2)).await.unwrap_err();
        assert!(matches!(error, Error::Foreign { found: 1, wanted: 2, .. }), "{error}");
        assert!(error.to_string().contains("shop/orders-1"), "{error}");
        assert_eq!(paths(&repository).await, before);
        first.check().await.unwrap();
        repository.claim(&claim(1)).await.expect("its own database comes back");
    }

    #[tokio::test]
    async fn of_two_who_claim_at_once_one_wins() {
        let repository = Repository::on(Arc::new(InMemory::new()), Format::default());
        let claims: Vec<Claim> = (1..=8).map(claim).collect();
        let all = futures::future::join_all(claims.iter().map(|claim| repository.claim(claim))).await;
        assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    }

    #[tokio::test]
    async fn what_is_there_without_a_mark_is_left_alone() {
        let repository = Repository::on(Arc::new(InMemory::new()), Format::default());
        repository.put("wal_005/x", Bytes::from_static(b"x"), PutMode::Create).await.unwrap();
        let error = repository.claim(&claim(1)).await.unwrap_err();
        assert!(matches!(error, Error::Unmarked { .. }), "{error}");
        assert_eq!(paths(&repository).await, ["wal_005/x"]);
    }

    #[tokio::test]
    async fn a_path_that_changed_hands_is_not_written_to() {
        let repository = Repository::on(Arc::new(InMemory::new()), Format::default());
        let old = repository.claim(&claim(1)).await.unwrap();
        old.remove(MARK).await.unwrap();
        let error = old.write("wal_005/x", vec![1]).await.unwrap_err();
        assert!(matches!(error, Error::Unclaimed { .. }), "{error}");
        repository.claim(&claim(2)).await.unwrap();
        let error = old.write("wal_005/x", vec![1]).await.unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert_eq!(paths(&repository).await, [MARK]);
    }
}
