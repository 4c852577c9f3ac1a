//! Carrying out what retention decided. It may break off anywhere and be begun again.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::catalogue::segment_of;
use crate::error::Result;
use crate::history::timeline_of;
use crate::repository::{BACKUPS, LOG, Object, POINTS, Repository, Writer};
use crate::retention::{Clearing, Kept, Policy, Unfinished, clear};
use crate::sentinel::{backup_of_sentinel, is_backup_name, sentinel_path};
use crate::wal::{Segment, SegmentSize, WalFile};

/// How many objects are removed at once.
const AT_ONCE: usize = 8;

/// What went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Backups.
    pub backups: Vec<String>,
    /// Unfinished ones.
    pub unfinished: Vec<String>,
    /// How many files of the log.
    pub log: u64,
    /// How many bytes that was in all.
    pub bytes: u64,
    /// How many objects are not of Keelson's or WAL-G's making. They were let be.
    pub foreign: u64,
}

/// Removes what the policy no longer asks for. `running` are backups that are being made now.
pub async fn prune(writer: &Writer, policy: Policy, now: Timestamp, running: &[String]) -> Result<Pruned> {
    writer.check().await?;
    let repository = writer.repository();
    let size = writer.claim().segment_size;
    // If one of them can't be read, what it needs is not known, and nothing goes.
    let backups = repository.backups().await?;
    let (unfinished, foreign) = unfinished(repository, running).await?;
    let Clearing { backups: old, unfinished, log } = clear(&backups, &unfinished, policy, now, size);
    let mut pruned = Pruned { foreign, ..Pruned::default() };
    for name in old {
        // Without its note it is no backup any more, and so never one that lacks something.
        writer.check().await?;
        writer.remove(&sentinel_path(&name)).await?;
        pruned.bytes += remove_folder(writer, &format!("{BACKUPS}/{name}")).await?;
        pruned.backups.push(name);
    }
    for name in unfinished {
        writer.check().await?;
        pruned.bytes += remove_folder(writer, &format!("{BACKUPS}/{name}")).await?;
        pruned.unfinished.push(name);
    }
    if let Some(kept) = log {
        prune_log(writer, &kept, size, &mut pruned).await?;
    }
    Ok(pruned)
}

/// Removes everything of a database that is gone, its mark last. What is not known to be its own is let be and
/// counted.
pub async fn remove_all(writer: &Writer) -> Result<Pruned> {
    writer.check().await?;
    let mut pruned = Pruned::default();
    for name in writer.repository().backups().await?.into_iter().rev().map(|backup| backup.name) {
        writer.remove(&sentinel_path(&name)).await?;
        pruned.backups.push(name);
    }
    for folder in [BACKUPS, LOG, POINTS] {
        let size = writer.claim().segment_size;
        let (own, foreign): (Vec<Object>, Vec<Object>) =
            list(writer.repository(), folder).await?.into_iter().partition(|object| is_own(object, size));
        pruned.foreign += foreign.len() as u64;
        pruned.log += if folder == LOG { own.len() as u64 } else { 0 };
        pruned.bytes += remove(writer, own).await?;
    }
    if pruned.foreign == 0 {
        writer.remove("keelson.json").await?;
    }
    Ok(pruned)
}

async fn list(repository: &Repository, folder: &str) -> Result<Vec<Object>> {
    repository.list(folder).try_collect().await
}

/// Backups without their note, and how many objects are nobody's.
async fn unfinished(repository: &Repository, running: &[String]) -> Result<(Vec<Unfinished>, u64)> {
    let mut newest: BTreeMap<String, (Timestamp, bool)> = BTreeMap::new();
    let mut foreign = 0;
    let mut all = repository.list(BACKUPS).boxed();
    while let Some(object) = all.try_next().await? {
        let inner = object.path.strip_prefix(BACKUPS).unwrap_or_default().trim_start_matches('/');
        let folder = inner.split_once('/').map(|(folder, _)| folder).filter(|folder| is_backup_name(folder));
        let (name, note) = match (backup_of_sentinel(&object.path), folder) {
            (Some(name), _) => (name, true),
            (None, Some(folder)) => (folder, false),
            (None, None) => {
                foreign += 1;
                continue;
            }
        };
        let entry = newest.entry(name.to_owned()).or_insert((object.modified, false));
        *entry = (entry.0.max(object.modified), entry.1 || note);
    }
    let without = newest.into_iter().filter(|(name, (_, note))| !note && !running.contains(name));
    Ok((without.map(|(name, (newest, _))| Unfinished { name, newest }).collect(), foreign))
}

async fn prune_log(writer: &Writer, kept: &Kept, size: SegmentSize, pruned: &mut Pruned) -> Result<()> {
    writer.check().await?;
    let mut all = writer.repository().list(LOG).boxed();
    let mut batch = Vec::new();
    while let Some(object) = all.try_next().await? {
        match number_of(&object, size) {
            Some(number) if !kept.has(number) => batch.push(object),
            Some(_) => (),
            None if is_own(&object, size) => (),
            None => pruned.foreign += 1,
        }
        if batch.len() >= 1000 {
            pruned.log += batch.len() as u64;
            writer.check().await?;
            pruned.bytes += remove(writer, std::mem::take(&mut batch)).await?;
        }
    }
    pruned.log += batch.len() as u64;
    pruned.bytes += remove(writer, batch).await?;
    Ok(())
}

/// The number of the segment that an object is, or is about. Histories have none: they are small, and needed by all
/// that come after.
fn number_of(object: &Object, size: SegmentSize) -> Option<u64> {
    if let Some(segment) = segment_of(object, size) {
        return Some(segment.number);
    }
    let name = object.path.strip_prefix(LOG)?.strip_prefix('/')?;
    match WalFile::parse(name.strip_suffix(".zst").unwrap_or(name))? {
        WalFile::Partial(name) | WalFile::Note(name) => {
            Segment::parse(name.get(..24)?, size).map(|one| one.number)
        }
        WalFile::Segment(_) | WalFile::History(_) => None,
    }
}

/// Whether an object is one that Keelson or WAL-G makes for a database.
fn is_own(object: &Object, size: SegmentSize) -> bool {
    let in_folder = |folder: &str| object.path.strip_prefix(folder).and_then(|name| name.strip_prefix('/'));
    if let Some(name) = in_folder(LOG) {
        return number_of(object, size).is_some() || timeline_of(name).is_some();
    }
    if let Some(name) = in_folder(BACKUPS) {
        let folder = name.split_once('/').map(|(folder, _)| folder);
        return backup_of_sentinel(&object.path).is_some() || folder.is_some_and(is_backup_name);
    }
    in_folder(POINTS).is_some_and(|name| name.ends_with(".json"))
}

async fn remove_folder(writer: &Writer, folder: &str) -> Result<u64> {
    let objects = list(writer.repository(), folder).await?;
    remove(writer, objects).await
}

async fn remove(writer: &Writer, objects: Vec<Object>) -> Result<u64> {
    let removing = futures::stream::iter(objects).map(|object| async move {
        writer.remove(&object.path).await?;
        Ok(object.size)
    });
    removing.buffer_unordered(AT_ONCE).try_fold(0, |sum, size| async move { Ok(sum + size) }).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::repository::{Claim, Format};
    use crate::sentinel::{Sentinel, note_path, part_path};
    use crate::shaky::Shaky;

    const SIZE: SegmentSize = SegmentSize::DEFAULT;

    async fn writer(shaky: &Shaky) -> Writer {
        let repository = Repository::on(Arc::new(shaky.clone()), Format::default());
        let claim = Claim { system_identifier: 1, segment_size: SIZE, owner: "shop/orders".into() };
        repository.claim(&claim).await.unwrap()
    }

    fn name(number: u64) -> String {
        Segment { timeline: 1, number }.name(SIZE)
    }

    /// Three full backups with the log from before the first on, and things that are nobody's.
    async fn fill(writer: &Writer) {
        for number in [2, 4, 6] {
            let backup = format!("base_{}", name(number));
            let at = format!("2026-11-0{number}T00:00:00Z");
            let sentinel = Sentinel::new(number * SIZE.bytes(), number * SIZE.bytes() + 9, at.clone(), at);
            writer.write(&part_path(&backup, "part_001.tar.zst"), vec![0; 10]).await.unwrap();
            writer.write(&note_path(&backup, "metadata.json"), vec![0; 10]).await.unwrap();
            writer.write(&sentinel_path(&backup), serde_json::to_vec(&sentinel).unwrap()).await.unwrap();
        }
        for number in 1..=7 {
            writer.write(&format!("{LOG}/{}.zst", name(number)), vec![0; 10]).await.unwrap();
        }
        for other in ["00000002.history.zst", "notes.txt", &format!("{}.00000028.backup.zst", name(2))] {
            writer.write(&format!("{LOG}/{other}"), vec![0; 10]).await.unwrap();
        }
        writer.write(&format!("{BACKUPS}/readme.md"), vec![0; 10]).await.unwrap();
    }

    async fn paths(writer: &Writer) -> Vec<String> {
        let mut paths: Vec<String> =
            list(writer.repository(), "").await.unwrap().into_iter().map(|object| object.path).collect();
        paths.sort();
        paths
    }

    #[tokio::test]
    async fn what_the_policy_does_not_ask_for_goes_and_nothing_else() {
        let writer = writer(&Shaky::new()).await;
        fill(&writer).await;
        let pruned = prune(&writer, Policy::Count(1), Timestamp::now(), &[]).await.unwrap();
        assert_eq!(pruned.backups, [format!("base_{}", name(4)), format!("base_{}", name(2))]);
        assert_eq!((pruned.log, pruned.foreign), (6, 2));
        let left = paths(&writer).await;
        let expected = [
            format!("{BACKUPS}/base_{}/metadata.json", name(6)),
            format!("{BACKUPS}/base_{}/tar_partitions/part_001.tar.zst", name(6)),
            sentinel_path(&format!("base_{}", name(6))),
            format!("{BACKUPS}/readme.md"),
            "keelson.json".into(),
            format!("{LOG}/{}.zst", name(6)),
            format!("{LOG}/{}.zst", name(7)),
            format!("{LOG}/00000002.history.zst"),
            format!("{LOG}/notes.txt"),
        ];
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(left, expected);
    }

    #[tokio::test]
    async fn wherever_it_breaks_off_it_ends_the_same_when_begun_again() {
        let whole = Shaky::new();
        let reference = writer(&whole).await;
        fill(&reference).await;
        // What was removed half is old enough to be seen as that: the store's clock is this machine's.
        let later = Timestamp::now() + jiff::SignedDuration::from_hours(48);
        prune(&reference, Policy::Count(1), later, &[]).await.unwrap();
        let end = paths(&reference).await;
        for step in 0.. {
            let shaky = Shaky::new();
            let writer = writer(&shaky).await;
            fill(&writer).await;
            shaky.fail_after(step);
            let broke = prune(&writer, Policy::Count(1), later, &[]).await.is_err();
            shaky.come_back();
            // At every moment, what is there as a backup is whole.
            for backup in writer.repository().backups().await.unwrap() {
                let part =
                    writer.repository().head(&part_path(&backup.name, "part_001.tar.zst")).await.unwrap();
                assert!(part.is_some(), "after {step} changes {} lacks a part", backup.name);
            }
            prune(&writer, Policy::Count(1), later, &[]).await.unwrap();
            assert_eq!(paths(&writer).await, end, "after {step} changes");
            if !broke {
                assert!(step > 5, "it never broke off");
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_note_that_cannot_be_read_stops_it() {
        let writer = writer(&Shaky::new()).await;
        fill(&writer).await;
        writer.write(&sentinel_path(&format!("base_{}", name(5))), b"{".to_vec()).await.unwrap();
        let before = paths(&writer).await;
        assert!(prune(&writer, Policy::Count(1), Timestamp::now(), &[]).await.is_err());
        assert_eq!(paths(&writer).await, before);
    }

    #[tokio::test]
    async fn all_of_it_goes_but_what_is_not_its_own() {
        let writer = writer(&Shaky::new()).await;
        fill(&writer).await;
        let pruned = remove_all(&writer).await.unwrap();
        assert_eq!(pruned.foreign, 2);
        let left = paths(&writer).await;
        assert_eq!(left, [format!("{BACKUPS}/readme.md"), "keelson.json".into(), format!("{LOG}/notes.txt")]);
        for foreign in [format!("{BACKUPS}/readme.md"), format!("{LOG}/notes.txt")] {
            writer.remove(&foreign).await.unwrap();
        }
        remove_all(&writer).await.unwrap();
        assert!(paths(&writer).await.is_empty());
    }
}
