//! A base backup from beginning to end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::PutMode;
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::base::files::{CONTROL, Entry, Listing, walk};
use crate::base::pages::BLOCK;
use crate::base::parts;
use crate::base::server::{self, Facts, Stopped};
use crate::base::tarball::{self, Packed, Parent, Shared};
use crate::base::throttle::Throttle;
use crate::catalogue::Backup;
use crate::error::{Error, Result, of_file};
use crate::lsn::Lsn;
use crate::repository::{BACKUPS, Repository, Writer};
use crate::sentinel::{
    FilesMetadata, Manifest, PartSum, Place, Sentinel, Spec, note_path, part_path, sentinel_path,
};
use crate::transfer::{CHUNK, hex, upload};
use crate::wal::{Segment, SegmentSize};

/// What kind of backup it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything.
    Full,
    /// What changed since another one, which must be of this database's own history.
    IncrementalTo(Backup),
}

/// How it is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Full or not.
    pub kind: Kind,
    /// How many parts are written at once. Each takes some 30 MiB of memory.
    pub parallel: usize,
    /// How many bytes a second are read from the disk at most.
    pub rate: Option<u64>,
    /// Whether the database makes its checkpoint at once, or takes its time.
    pub fast_checkpoint: bool,
    /// How long to wait until the repository has the log that the backup needs.
    pub log_within: Duration,
    /// Who made it, for people.
    pub hostname: String,
    /// Whether retention leaves it alone.
    pub permanent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kind: Kind::Full,
            parallel: 2,
            rate: None,
            fast_checkpoint: true,
            log_within: Duration::from_secs(600),
            hostname: String::new(),
            permanent: false,
        }
    }
}

/// What it is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the database's checkpoint.
    #[default]
    Checkpoint,
    /// Copying files.
    Copying,
    /// Waiting until the repository has the log.
    Log,
    /// Done.
    Finished,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// How much of the database was read, in bytes.
    pub read: u64,
    /// How much there is to read.
    pub total: u64,
}

/// Takes a backup of the database that the connection leads to and whose files are in `data`. The connection is
/// its own and ends with it: if this is dropped or fails, PostgreSQL forgets that a backup had begun, and what
/// is in the repository already is no backup, because the note that would make it one is written last.
pub async fn back_up(
    writer: &Writer,
    client: Client,
    data: impl Into<PathBuf>,
    options: &Options,
    progress: &watch::Sender<Progress>,
) -> Result<Backup> {
    let data = data.into();
    let facts = server::facts(&client).await?;
    let size = fit(writer, &facts)?;
    writer.check().await?;
    let started = Timestamp::now();
    let label = format!("keelson {started}");
    let start = server::start(&client, &label, options.fast_checkpoint).await?;
    let timeline = server::timeline(&client).await?;
    let mut run = Run::begin(writer, options, timeline, start, size).await?;
    run.clear_leftovers().await?;
    run.copy(&data, progress).await?;
    let stopped = server::stop(&client).await?;
    run.finish_copy(&data, &stopped).await?;
    progress.send_modify(|progress| progress.phase = Phase::Log);
    run.await_log(stopped.finish).await?;
    let backup = run.publish(&facts, &stopped, started).await?;
    progress.send_modify(|progress| progress.phase = Phase::Finished);
    Ok(backup)
}

/// Sees that this is the database whose repository it is.
fn fit(writer: &Writer, facts: &Facts) -> Result<SegmentSize> {
    let claim = writer.claim();
    if facts.system_identifier != claim.system_identifier {
        return Err(Error::Refused(format!(
            "the connection leads to the database with the system identifier {}, and the repository is that of {}",
            facts.system_identifier, claim.system_identifier
        )));
    }
    if facts.block_size != BLOCK || facts.segment_size != claim.segment_size.bytes() {
        return Err(Error::Refused(format!(
            "pages of {} and segments of {} bytes are not what the repository was claimed for ({BLOCK} and {})",
            facts.block_size,
            facts.segment_size,
            claim.segment_size.bytes()
        )));
    }
    Ok(claim.segment_size)
}

struct Run<'a> {
    writer: &'a Writer,
    options: &'a Options,
    name: String,
    timeline: u32,
    start: Lsn,
    size: SegmentSize,
    shared: Shared,
    listing: Listing,
    files: FilesMetadata,
    manifest: Manifest,
    tar_size: u64,
    stored: u64,
}

impl<'a> Run<'a> {
    async fn begin(
        writer: &'a Writer,
        options: &'a Options,
        timeline: u32,
        start: Lsn,
        size: SegmentSize,
    ) -> Result<Run<'a>> {
        let own = format!("base_{}", Segment::at(timeline, start, size).name(size));
        let (name, parent) = match &options.kind {
            Kind::Full => (own, None),
            Kind::IncrementalTo(parent) => {
                let found = parent_of(writer.repository(), parent, timeline, start).await?;
                let segment = parent.name.get(5..29).unwrap_or_default();
                (format!("{own}_D_{segment}"), Some(Arc::new(found)))
            }
        };
        let throttle = Arc::new(Throttle::new(options.rate));
        let shared = Shared { throttle, read: Arc::new(AtomicU64::new(0)), parent };
        Ok(Run {
            writer,
            options,
            name,
            timeline,
            start,
            size,
            shared,
            listing: Listing::default(),
            files: FilesMetadata::default(),
            manifest: Manifest { version: 1, ..Manifest::default() },
            tar_size: 0,
            stored: 0,
        })
    }

    /// An attempt that broke off may have left parts under this name, which a restore would take for ours.
    async fn clear_leftovers(&self) -> Result<()> {
        let repository = self.writer.repository();
        if repository.head(&sentinel_path(&self.name)).await?.is_some() {
            return Err(Error::TooSoon { name: self.name.clone() });
        }
        let mut left = repository.list(&format!("{BACKUPS}/{}", self.name)).boxed();
        while let Some(object) = left.try_next().await? {
            self.writer.remove(&object.path).await?;
        }
        Ok(())
    }

    async fn copy(&mut self, data: &std::path::Path, progress: &watch::Sender<Progress>) -> Result<()> {
        let folder = data.to_owned();
        let walking = tokio::task::spawn_blocking(move || walk(&folder));
        self.listing = walking.await.map_err(|error| Error::lost("listing files", error))??;
        let sizes: Vec<u64> =
            self.listing.entries.iter().map(|entry| entry.size.unwrap_or_default()).collect();
        let total = sizes.iter().sum();
        progress.send_replace(Progress { phase: Phase::Copying, read: 0, total });
        let plan = parts::plan(&sizes, self.options.parallel);
        let parts = plan.into_iter().enumerate().map(|(number, indices)| {
            let entries: Vec<Entry> =
                indices.into_iter().map(|index| self.listing.entries[index].clone()).collect();
            (format!("part_{:03}.tar.zst", number + 1), entries)
        });
        let parts: Vec<_> = parts.collect();
        let (writer, name, shared) = (self.writer, &self.name, &self.shared);
        let copying = futures::stream::iter(parts).map(|(part, entries)| async move {
            let (path, inner) = (part_path(name, &part), shared.clone());
            let produce = move |to: &mut dyn std::io::Write| tarball::write(&entries, &inner, to);
            let (packed, stored) = upload(writer, &path, PutMode::Overwrite, CHUNK, produce).await?;
            Ok::<_, Error>((part, packed, stored))
        });
        let mut copying = copying.buffer_unordered(self.options.parallel.max(1));
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        let mut done = Vec::new();
        loop {
            tokio::select! {
                part = copying.next() => match part {
                    Some(part) => done.push(part?),
                    None => break,
                },
                _ = tick.tick() => progress.send_modify(|progress| progress.read = shared.read.load(Ordering::Relaxed)),
            }
        }
        drop(copying);
        progress.send_modify(|progress| progress.read = self.shared.read.load(Ordering::Relaxed));
        for (part, packed, stored) in done {
            self.note(part, packed, PartSum { size: stored.size, sha256: stored.sha256 });
        }
        Ok(())
    }

    fn note(&mut self, part: String, packed: Packed, sum: PartSum) {
        self.tar_size += packed.size;
        self.stored += sum.size;
        self.files.parts.insert(part.clone(), packed.files.keys().cloned().collect());
        self.files.files.extend(packed.files);
        self.manifest.parts.insert(part, sum);
    }

    /// What must come after everything else: the control file, and what the database said at the end.
    async fn finish_copy(&mut self, data: &std::path::Path, stopped: &Stopped) -> Result<()> {
        let began = server::timeline_of_label(&stopped.label);
        if began != Some(self.timeline) {
            return Err(Error::Refused(format!(
                "the timeline changed from {} while the backup was begun: take another one",
                self.timeline
            )));
        }
        let number = self.manifest.parts.len() + 1;
        let texts: Vec<(&str, Vec<u8>)> = match stopped.tablespace_map.trim().is_empty() {
            true => vec![("backup_label", stopped.label.clone().into_bytes())],
            false => vec![
                ("backup_label", stopped.label.clone().into_bytes()),
                ("tablespace_map", stopped.tablespace_map.clone().into_bytes()),
            ],
        };
        self.put_texts(format!("part_{number:03}.tar.zst"), texts).await?;
        let path = data.join(CONTROL);
        let control = tokio::fs::read(&path).await.map_err(|error| of_file("reading", &path, error))?;
        self.put_texts("pg_control.tar.zst".to_owned(), vec![(CONTROL, control)]).await
    }

    async fn put_texts(&mut self, part: String, texts: Vec<(&'static str, Vec<u8>)>) -> Result<()> {
        let path = part_path(&self.name, &part);
        let produce = move |to: &mut dyn std::io::Write| {
            let texts: Vec<(&str, &[u8])> =
                texts.iter().map(|(name, text)| (*name, text.as_slice())).collect();
            tarball::write_texts(&texts, to)
        };
        let (packed, stored) = upload(self.writer, &path, PutMode::Overwrite, CHUNK, produce).await?;
        self.note(part, packed, PartSum { size: stored.size, sha256: stored.sha256 });
        Ok(())
    }

    /// Without the log from its beginning to its end a backup is none.
    async fn await_log(&self, finish: Lsn) -> Result<()> {
        let last = Segment::before(self.timeline, finish, self.size);
        let deadline = Instant::now() + self.options.log_within;
        let mut segment = Segment::at(self.timeline, self.start, self.size);
        while segment <= last {
            let name = segment.name(self.size);
            let path = format!("{}/{name}.zst", crate::repository::LOG);
            if self.writer.repository().head(&path).await?.is_some() {
                segment = segment.next();
            } else if Instant::now() >= deadline {
                return Err(Error::Refused(format!(
                    "the files are copied, and the segment `{name}`, which the backup needs, was not archived within {} s. \
                     Look at why the log is not archived; the backup does not count",
                    self.options.log_within.as_secs()
                )));
            } else {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(())
    }

    /// Writes the notes; the one that makes it a backup last.
    async fn publish(self, facts: &Facts, stopped: &Stopped, started: Timestamp) -> Result<Backup> {
        let finished = Timestamp::now();
        let (start, finish) = (self.start.0, stopped.finish.0);
        let mut sentinel = Sentinel::new(start, finish, started.to_string(), finished.to_string());
        sentinel.pg_version = facts.version;
        sentinel.system_identifier = Some(facts.system_identifier);
        sentinel.size = self.tar_size.cast_signed();
        sentinel.stored = self.stored.cast_signed();
        sentinel.data_size = self.shared.read.load(Ordering::Relaxed).cast_signed();
        sentinel.hostname = self.options.hostname.clone();
        sentinel.data_dir = facts.data_directory.clone();
        sentinel.permanent = self.options.permanent;
        sentinel.tablespaces = spec(&self.listing, &facts.data_directory);
        if let Kind::IncrementalTo(parent) = &self.options.kind {
            sentinel.parent_lsn = Some(parent.start.0);
            sentinel.parent = Some(parent.name.clone());
            sentinel.full = Some(self.full_of(parent).await?);
            sentinel.depth = Some(parent.depth.cast_signed() + 1);
        }
        let json = |note: &str, bytes: serde_json::Result<Vec<u8>>| {
            bytes.map_err(|error| self.writer.repository().corrupt(&note_path(&self.name, note), error))
        };
        let files = json("files_metadata.json", serde_json::to_vec(&self.files))?;
        let mut manifest = self.manifest.clone();
        manifest.files_metadata = hex(digest(&SHA256, &files).as_ref());
        let manifest = json("keelson_manifest.json", serde_json::to_vec_pretty(&manifest))?;
        sentinel.set_manifest(&hex(digest(&SHA256, &manifest).as_ref()));
        let metadata = json("metadata.json", serde_json::to_vec(&sentinel.metadata()))?;
        let text = json("sentinel", serde_json::to_vec(&sentinel))?;
        self.writer.write(&note_path(&self.name, "files_metadata.json"), files).await?;
        self.writer.write(&note_path(&self.name, "keelson_manifest.json"), manifest).await?;
        self.writer.write(&note_path(&self.name, "metadata.json"), metadata).await?;
        self.writer.write(&sentinel_path(&self.name), text).await?;
        Backup::from_sentinel(&self.name, &sentinel, finished).ok_or_else(|| {
            self.writer.repository().corrupt(&sentinel_path(&self.name), "it can't be read back")
        })
    }

    async fn full_of(&self, parent: &Backup) -> Result<String> {
        let path = sentinel_path(&parent.name);
        let sentinel: Option<Sentinel> = self.writer.repository().read_json(&path).await?;
        let Some(sentinel) = sentinel else {
            return Err(Error::NotFound { doing: "reading the backup below", object: path });
        };
        Ok(sentinel.full.unwrap_or_else(|| parent.name.clone()))
    }
}

/// What is to be known of the backup below: it must be there, and lie in this database's own past.
async fn parent_of(repository: &Repository, parent: &Backup, timeline: u32, start: Lsn) -> Result<Parent> {
    let unfit = |reason: String| {
        Error::Refused(format!("`{}` can't be built upon: {reason}. Take a full backup", parent.name))
    };
    if parent.start >= start {
        return Err(unfit(format!("it begins at {}, and this one would at {start}", parent.start)));
    }
    if parent.timeline != timeline {
        let history = repository.history(timeline).await?;
        if !history.has(parent.timeline, parent.finish) {
            return Err(unfit(format!("timeline {} left its history before it", timeline)));
        }
    }
    let path = note_path(&parent.name, "files_metadata.json");
    let files: FilesMetadata =
        repository.read_json(&path).await?.ok_or_else(|| unfit("the list of its files is gone".into()))?;
    if files.files.is_empty() {
        return Err(unfit("it has no list of its files".into()));
    }
    let files: BTreeSet<String> =
        files.files.into_keys().map(|name| name.trim_start_matches('/').to_owned()).collect();
    Ok(Parent { since: parent.start, files })
}

fn spec(listing: &Listing, data: &str) -> Option<Spec> {
    if listing.tablespaces.is_empty() {
        return None;
    }
    let mut spec = Spec { base_prefix: data.to_owned(), ..Spec::default() };
    for (name, place) in &listing.tablespaces {
        let place = Place { location: place.display().to_string(), link: format!("pg_tblspc/{name}") };
        spec.names.push(name.clone());
        spec.places.insert(name.clone(), place);
    }
    Some(spec)
}
