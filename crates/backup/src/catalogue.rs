//! What is in a repository: backups, histories, the log.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::history::{History, timeline_of};
use crate::lsn::Lsn;
use crate::repository::{BACKUPS, LOG, Object, POINTS, Repository, Writer};
use crate::sentinel::{Sentinel, backup_of_sentinel, sentinel_path};
use crate::wal::{Segment, SegmentSize};

/// A base backup that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// `base_` and the segment in which it begins.
    pub name: String,
    /// On which timeline it was taken.
    pub timeline: u32,
    /// From where on the log is needed to use it.
    pub start: Lsn,
    /// Up to where the log is needed at least.
    pub finish: Lsn,
    /// When it was begun.
    pub started: Timestamp,
    /// When it was finished. It can bring back no moment before this one.
    pub finished: Timestamp,
    /// The one that it builds on, if it is incremental.
    pub parent: Option<String>,
    /// How many it builds on.
    pub depth: u32,
    /// PostgreSQL's version, such as 170004.
    pub version: u32,
    /// How much was copied, in bytes.
    pub size: u64,
    /// How much that is in the store.
    pub stored: u64,
    /// Whether it is kept until somebody says otherwise.
    pub permanent: bool,
    /// SHA-256 of its manifest. One that WAL-G made has none.
    pub manifest: Option<String>,
}

/// A point in the log that was given a name. PostgreSQL finds it by its name when it gets there; where to begin, so
/// as to get there, it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// As it was given to `pg_create_restore_point`.
    pub name: String,
    /// On which timeline it is.
    pub timeline: u32,
    /// What `pg_create_restore_point` gave back.
    pub lsn: String,
    /// When it was made, for people.
    pub made: String,
}

impl Writer {
    /// Keeps a point that was just made with `pg_create_restore_point`, so that one can restore to it by its name.
    pub async fn record_point(&self, name: &str, timeline: u32, lsn: Lsn) -> Result<Point> {
        let made = Timestamp::now().to_string();
        let point = Point { name: name.to_owned(), timeline, lsn: lsn.to_string(), made };
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
        // A name may be any text, and the name of an object may not.
        let path = format!("{POINTS}/{}.json", &crate::transfer::hex(digest.as_ref())[..32]);
        let json = serde_json::to_vec(&point).map_err(|error| self.repository().corrupt(&path, error))?;
        self.write(&path, json).await?;
        Ok(point)
    }
}

/// All that one needs to know of a repository to restore from it or to clear it up.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Oldest first.
    pub backups: Vec<Backup>,
    /// What segments there are.
    pub log: Coverage,
    /// By timeline. The first has none.
    pub histories: BTreeMap<u32, History>,
    /// Points that were given a name through [`Writer::record_point`](crate::Writer::record_point).
    pub points: BTreeMap<String, Point>,
}

impl Backup {
    pub(crate) fn from_sentinel(name: &str, sentinel: &Sentinel, stored_at: Timestamp) -> Option<Backup> {
        let timeline = crate::lsn::hex(name.get(5..13)?)?;
        let time = |text: &str| text.parse::<Timestamp>().ok();
        let finished = time(&sentinel.finished).unwrap_or(stored_at);
        Some(Backup {
            name: name.to_owned(),
            timeline,
            start: Lsn(sentinel.start_lsn?),
            finish: Lsn(sentinel.finish_lsn?),
            started: time(&sentinel.started).unwrap_or(finished),
            finished,
            parent: sentinel.parent.clone(),
            depth: sentinel.depth.and_then(|depth| depth.try_into().ok()).unwrap_or_default(),
            version: sentinel.pg_version.try_into().unwrap_or_default(),
            size: sentinel.size.try_into().unwrap_or_default(),
            stored: sentinel.stored.try_into().unwrap_or_default(),
            permanent: sentinel.permanent,
            manifest: sentinel.manifest().map(str::to_owned),
        })
    }
}

impl Repository {
    /// All backups that are whole, oldest first.
    pub async fn backups(&self) -> Result<Vec<Backup>> {
        let all = self.list(BACKUPS).try_filter_map(|object| async move {
            Ok(backup_of_sentinel(&object.path).map(|name| (name.to_owned(), object.modified)))
        });
        let found: Vec<(String, Timestamp)> = all.try_collect().await?;
        let read =
            futures::stream::iter(found).map(|(name, at)| async move { self.read_backup(&name, at).await });
        let mut backups: Vec<Backup> =
            read.buffer_unordered(8).try_filter_map(|backup| async move { Ok(backup) }).try_collect().await?;
        backups.sort_by(|a, b| (a.finished, &a.name).cmp(&(b.finished, &b.name)));
        Ok(backups)
    }

    async fn read_backup(&self, name: &str, at: Timestamp) -> Result<Option<Backup>> {
        let path = sentinel_path(name);
        // Gone between the listing and now: then it is none.
        let Some(sentinel) = self.read_json::<Sentinel>(&path).await? else { return Ok(None) };
        let backup = Backup::from_sentinel(name, &sentinel, at);
        backup
            .map(Some)
            .ok_or_else(|| self.corrupt(&path, "it does not say where the backup begins and ends"))
    }

    /// Everything, from the backups to the log. Segments are counted, not listed: this takes little memory
    /// however many there are.
    pub async fn catalogue(&self, size: SegmentSize) -> Result<Catalogue> {
        let mut catalogue = Catalogue { backups: self.backups().await?, ..Catalogue::default() };
        let mut timelines = Vec::new();
        let mut log = self.list(LOG).boxed();
        while let Some(object) = log.try_next().await? {
            let Some(name) = object.path.strip_prefix(LOG).and_then(|name| name.strip_prefix('/')) else {
                continue;
            };
            if let Some(timeline) = timeline_of(name) {
                timelines.push((timeline, object.path.clone()));
            } else if let Some(segment) = segment_of(&object, size) {
                catalogue.log.insert(segment, object.modified);
            }
        }
        for (timeline, path) in timelines {
            catalogue.histories.insert(timeline, self.read_history(timeline, path).await?);
        }
        let mut points = self.list(POINTS).boxed();
        while let Some(object) = points.try_next().await? {
            if let Some(point) = self.read_json::<Point>(&object.path).await? {
                catalogue.points.insert(point.name.clone(), point);
            }
        }
        Ok(catalogue)
    }

    /// The history of a timeline. The first has none, and so needs no object.
    pub(crate) async fn history(&self, timeline: u32) -> Result<History> {
        for path in [format!("{LOG}/{timeline:08X}.history.zst"), format!("{LOG}/{timeline:08X}.history")] {
            match self.read_history(timeline, path).await {
                Err(Error::NotFound { .. }) => (),
                other => return other,
            }
        }
        match timeline {
            1 => Ok(History::first(1)),
            _ => Err(Error::NotFound { doing: "reading", object: format!("{LOG}/{timeline:08X}.history") }),
        }
    }

    async fn read_history(&self, timeline: u32, path: String) -> Result<History> {
        let (owner, name) = (self.clone(), path.clone());
        let consume = move |from: &mut dyn std::io::Read| {
            let mut text = String::new();
            from.read_to_string(&mut text).map_err(|error| owner.corrupt(&name, error))?;
            Ok(text)
        };
        let (text, _) = crate::transfer::download(self, &path, consume).await?;
        History::parse(timeline, &text).map_err(|error| self.corrupt(&path, error))
    }
}

/// The segment that an object is, whatever it is packed with. `None` for what is no whole segment.
pub(crate) fn segment_of(object: &Object, size: SegmentSize) -> Option<Segment> {
    let name = object.path.strip_prefix(LOG)?.strip_prefix('/')?;
    let (segment, rest) = name.split_at_checked(24)?;
    let packed = matches!(rest, "" | ".zst" | ".lz4" | ".br" | ".lzma" | ".gz");
    packed.then(|| Segment::parse(segment, size)).flatten()
}
