//! Bringing files back, and looking at them without.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;

use crate::catalogue::Backup;
use crate::error::{Error, Result, of_file};
use crate::repository::{BACKUPS, Repository};
use crate::restore::unpack::{Plan, unpack};
use crate::sentinel::{FilesMetadata, Manifest, Sentinel, note_path, part_path, sentinel_path};
use crate::transfer::{download, hex};

/// How it is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many parts are fetched at once.
    pub parallel: usize,
    /// Where tablespaces go, by their names (numbers). Folders that are empty or not there.
    pub tablespaces: BTreeMap<String, PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { parallel: 4, tablespaces: BTreeMap::new() }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many parts are done.
    pub parts: usize,
    /// How many there are.
    pub of: usize,
    /// How many bytes were written.
    pub written: u64,
}

/// What a look at a backup found to be good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many parts were read.
    pub parts: usize,
    /// How many bytes of the store that was.
    pub bytes: u64,
    /// How many files are in them.
    pub files: u64,
    /// Whether there was a manifest to compare with. Without, only what the parts say of themselves was looked at.
    pub against_manifest: bool,
}

/// Brings back the files of a chain of backups, the full one first, as [`choose`](crate::restore::choose) gave it.
/// The folder must be empty or not there, and is no database until this has returned: the file without which
/// PostgreSQL does not start comes last.
pub async fn restore(
    repository: &Repository,
    chain: &[Backup],
    to: &Path,
    options: &Options,
    progress: &watch::Sender<Progress>,
) -> Result<()> {
    let Some(last) = chain.last() else { return Err(Error::Refused("there is nothing to restore".into())) };
    prepare(to)?;
    let mut contents = Vec::new();
    for backup in chain {
        contents.push(Contents::read(repository, backup).await?);
    }
    // Of the control files, only the last one is wanted.
    let control = contents.last().map_or(0, |last| last.control_parts().len());
    let of = contents.iter().map(|contents| contents.data_parts().len()).sum::<usize>() + control;
    progress.send_replace(Progress { parts: 0, of, written: 0 });
    link_tablespaces(repository, last, to, options).await?;
    let wanted = contents.last().filter(|_| chain.len() > 1).map(|last| Arc::clone(&last.files));
    let written = Arc::new(AtomicU64::new(0));
    let mut control = None;
    for (backup, contents) in chain.iter().zip(contents) {
        let plan = Plan {
            folder: Some(to.to_owned()),
            incremented: Arc::clone(&contents.incremented),
            wanted: wanted.clone(),
            written: Arc::clone(&written),
        };
        fetch_parts(repository, backup, &contents, &contents.data_parts(), &plan, options.parallel, progress)
            .await?;
        control = Some((backup, contents, plan));
    }
    if let Some((backup, contents, plan)) = control {
        let parts = contents.control_parts();
        if parts.is_empty() {
            return Err(repository.corrupt(&part_path(&backup.name, "pg_control.tar"), "it is missing"));
        }
        for place in options.tablespaces.values().map(PathBuf::as_path).chain([to]) {
            sync(place).await?;
        }
        fetch_parts(repository, backup, &contents, &parts, &plan, 1, progress).await?;
    }
    sync(to).await
}

/// Reads every byte of a backup and compares it with what was written.
pub async fn verify(repository: &Repository, backup: &Backup, parallel: usize) -> Result<Verified> {
    let contents = Contents::read(repository, backup).await?;
    let plan = Plan {
        folder: None,
        incremented: Arc::clone(&contents.incremented),
        wanted: None,
        written: Arc::default(),
    };
    let all: Vec<String> = contents.parts.keys().cloned().collect();
    let quiet = watch::Sender::default();
    let (bytes, files) = fetch_parts(repository, backup, &contents, &all, &plan, parallel, &quiet).await?;
    Ok(Verified { parts: all.len(), bytes, files, against_manifest: backup.manifest.is_some() })
}

/// What a backup has.
struct Contents {
    /// By name; with what each must be, if there is a manifest.
    parts: BTreeMap<String, Option<(u64, String)>>,
    incremented: Arc<BTreeSet<String>>,
    files: Arc<BTreeSet<String>>,
}

impl Contents {
    async fn read(repository: &Repository, backup: &Backup) -> Result<Contents> {
        let folder = format!("{BACKUPS}/{}/tar_partitions", backup.name);
        let there: BTreeSet<String> = repository
            .list(&folder)
            .try_filter_map(|object| async move { Ok(object.path.rsplit('/').next().map(str::to_owned)) })
            .try_collect()
            .await?;
        let manifest = read_manifest(repository, backup).await?;
        let parts: BTreeMap<_, _> = match &manifest {
            None => there.into_iter().map(|name| (name, None)).collect(),
            Some(manifest) => {
                let named: BTreeSet<String> = manifest.parts.keys().cloned().collect();
                if let Some(odd) = named.symmetric_difference(&there).next() {
                    let how = if named.contains(odd) { "it is gone" } else { "it was added to the backup" };
                    return Err(repository.corrupt(&part_path(&backup.name, odd), how));
                }
                let sums = manifest.parts.iter();
                sums.map(|(name, sum)| (name.clone(), Some((sum.size, sum.sha256.clone())))).collect()
            }
        };
        let files = read_files(repository, backup, manifest.as_ref()).await?;
        let bare = |name: &String| name.trim_start_matches('/').to_owned();
        let incremented = files.files.iter().filter(|(_, note)| note.incremented).map(|(name, _)| bare(name));
        let incremented = Arc::new(incremented.collect());
        Ok(Contents { parts, incremented, files: Arc::new(files.files.keys().map(bare).collect()) })
    }

    fn data_parts(&self) -> Vec<String> {
        self.parts.keys().filter(|name| !name.starts_with("pg_control")).cloned().collect()
    }

    fn control_parts(&self) -> Vec<String> {
        self.parts.keys().filter(|name| name.starts_with("pg_control")).cloned().collect()
    }
}

async fn read_manifest(repository: &Repository, backup: &Backup) -> Result<Option<Manifest>> {
    let Some(sha256) = &backup.manifest else { return Ok(None) };
    let path = note_path(&backup.name, "keelson_manifest.json");
    let bytes = match repository.read(&path).await {
        Err(Error::NotFound { .. }) => return Err(repository.corrupt(&path, "it is gone")),
        other => other?,
    };
    if hex(digest(&SHA256, &bytes).as_ref()) != *sha256 {
        return Err(repository.corrupt(&path, "it is not the one that the backup was finished with"));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| repository.corrupt(&path, error))
}

async fn read_files(
    repository: &Repository,
    backup: &Backup,
    manifest: Option<&Manifest>,
) -> Result<FilesMetadata> {
    let path = note_path(&backup.name, "files_metadata.json");
    let bytes = match repository.read(&path).await {
        // Old backups of WAL-G have none, and need none, unless they are incremental.
        Err(Error::NotFound { .. }) if manifest.is_none() && backup.parent.is_none() => {
            return Ok(FilesMetadata::default());
        }
        other => other?,
    };
    if manifest.is_some_and(|manifest| hex(digest(&SHA256, &bytes).as_ref()) != manifest.files_metadata) {
        return Err(repository.corrupt(&path, "it is not the one that the backup was finished with"));
    }
    serde_json::from_slice(&bytes).map_err(|error| repository.corrupt(&path, error))
}

/// Fetches parts, several at once. Gives how many bytes and files there were.
async fn fetch_parts(
    repository: &Repository,
    backup: &Backup,
    contents: &Contents,
    parts: &[String],
    plan: &Plan,
    parallel: usize,
    progress: &watch::Sender<Progress>,
) -> Result<(u64, u64)> {
    // Owned, or the compiler can't see that the whole may go from thread to thread.
    let fetching = futures::stream::iter(parts.to_vec()).map(|part| async move {
        let path = part_path(&backup.name, &part);
        let (owner, name, inner) = (repository.clone(), path.clone(), plan.clone());
        let consume = move |from: &mut dyn std::io::Read| unpack(&owner, &name, &inner, from);
        let (files, stored) = download(repository, &path, consume).await.map_err(|error| match error {
            // Named by the manifest or the listing a moment ago.
            Error::NotFound { .. } => repository.corrupt(&path, "it is gone"),
            other => other,
        })?;
        if let Some(Some((size, sha256))) = contents.parts.get(&part)
            && (stored.size != *size || stored.sha256 != *sha256)
        {
            return Err(repository.corrupt(&path, "it is not what the manifest says"));
        }
        Ok::<_, Error>((stored.size, files))
    });
    let mut fetching = fetching.buffer_unordered(parallel.max(1));
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let (mut bytes, mut files) = (0, 0);
    loop {
        tokio::select! {
            done = fetching.next() => match done {
                Some(done) => {
                    let (more, inside) = done?;
                    bytes += more;
                    files += inside;
                    progress.send_modify(|progress| progress.parts += 1);
                }
                None => break,
            },
            _ = tick.tick() => progress.send_modify(|progress| progress.written = plan.written.load(Ordering::Relaxed)),
        }
    }
    progress.send_modify(|progress| progress.written = plan.written.load(Ordering::Relaxed));
    Ok((bytes, files))
}

/// The folder, empty, and with the mode that PostgreSQL wants.
fn prepare(to: &Path) -> Result<()> {
    let failed = |error| of_file("preparing", to, error);
    std::fs::create_dir_all(to).map_err(failed)?;
    if std::fs::read_dir(to).map_err(failed)?.next().is_some() {
        return Err(Error::Refused(format!(
            "`{}` is not empty; nothing is restored over what is there",
            to.display()
        )));
    }
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).map_err(failed)
}

async fn link_tablespaces(
    repository: &Repository,
    last: &Backup,
    to: &Path,
    options: &Options,
) -> Result<()> {
    let path = sentinel_path(&last.name);
    let sentinel: Option<Sentinel> = repository.read_json(&path).await?;
    let spec = sentinel.and_then(|sentinel| sentinel.tablespaces).unwrap_or_default();
    let folder = to.join("pg_tblspc");
    std::fs::create_dir_all(&folder).map_err(|error| of_file("creating", &folder, error))?;
    for name in &spec.names {
        let Some(place) = options.tablespaces.get(name) else {
            let was = spec.places.get(name).map_or("nobody knows where", |place| place.location.as_str());
            return Err(Error::Refused(format!(
                "the backup has the tablespace {name} (it was at `{was}`): say where it is to go"
            )));
        };
        prepare(place)?;
        let link = folder.join(name);
        std::os::unix::fs::symlink(place, &link).map_err(|error| of_file("linking", &link, error))?;
    }
    Ok(())
}

/// So that what was restored is there after a power cut.
async fn sync(folder: &Path) -> Result<()> {
    let path = folder.to_owned();
    let syncing = tokio::task::spawn_blocking(move || {
        let failed = |error: std::io::Error| of_file("syncing", &path, error);
        let file = std::fs::File::open(&path).map_err(failed)?;
        nix::unistd::syncfs(&file).map_err(|error| failed(error.into()))
    });
    syncing.await.map_err(|error| Error::lost("syncing", error))?
}
