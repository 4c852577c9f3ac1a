//! What a restore in place makes, and what it puts aside. Its data is `data.restored` until it takes the place of
//! `data`, which becomes `data.before`; notes beside them say what they are. Nothing removes `data.before` before a
//! person says so, by the name of that restore.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Postgres;
use super::folders::{self, number, rename, retire, write};
use crate::error::{During, Error, Result};
use crate::layout::Layout;

const DOING: &str = "putting restored data in its place";

/// Data that was restored, beside the old one or in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The restore.
    pub name: String,
    /// The timeline that it is on.
    pub timeline: u32,
    /// Whether it is the database already.
    pub placed: bool,
}

/// Data that was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutAside {
    /// The restore that has taken its place.
    pub name: String,
    /// The timeline that it was on.
    pub timeline: u32,
    /// When it was put aside.
    pub since: SystemTime,
}

fn restored_note(layout: &Layout) -> PathBuf {
    layout.config_file("restored")
}

fn kept_note(layout: &Layout) -> PathBuf {
    layout.config_file("kept")
}

/// A note of one line: `<number of the folder> <timeline> <name>`.
fn read(note: &Path) -> Option<(String, u32, String)> {
    let text = fs::read_to_string(note).ok()?;
    let mut words = text.splitn(3, ' ');
    let (folder, timeline, name) = (words.next()?, words.next()?, words.next()?);
    Some((folder.to_owned(), timeline.parse().ok()?, name.to_owned()))
        .filter(|(folder, ..)| !folder.is_empty())
}

fn note(path: &Path, folder: &Path, timeline: u32, name: &str) -> Result<()> {
    write(path, &format!("{} {timeline} {name}", number(folder)))
}

/// The restored data on the volume, if its note speaks of what is there.
fn restored(layout: &Layout) -> Option<Restored> {
    let (folder, timeline, name) = read(&restored_note(layout))?;
    let placed = folder == number(&layout.data());
    (placed || folder == number(&layout.beside("restored"))).then_some(Restored { name, timeline, placed })
}

fn kept(layout: &Layout) -> Option<PutAside> {
    let before = layout.beside("before");
    let found = fs::metadata(&before).ok()?;
    let (timeline, name) = match read(&kept_note(layout)) {
        Some((folder, timeline, name)) if folder == number(&before) => (timeline, name),
        // Whatever it is, nobody but a person may remove it.
        _ => (0, "unknown".to_owned()),
    };
    let noted = fs::metadata(kept_note(layout)).and_then(|note| note.modified());
    let since = noted.or_else(|_| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    Some(PutAside { name, timeline, since })
}

/// What was made in `data.new` is whole.
fn set_restored(layout: &Layout, name: &str, timeline: u32) -> Result<()> {
    let (new, restored) = (layout.beside("new"), layout.beside("restored"));
    retire(layout, &restored)?;
    folders::sync(&new)?;
    note(&restored_note(layout), &new, timeline, name)?;
    rename(layout, &new, &restored)
}

/// Restored data becomes the database, and what was the database is kept.
fn place(layout: &Layout, timeline: u32) -> Result<()> {
    let refused = |why: &str| Err(Error::Data { doing: DOING, why: why.to_owned() });
    let Some(found) = restored(layout) else { return refused("there is none on the volume") };
    if found.placed {
        return Ok(());
    }
    let (data, before) = (layout.data(), layout.beside("before"));
    if data.exists() {
        if before.exists() {
            return refused("data that an earlier restore put aside is still there: discard it first");
        }
        note(&kept_note(layout), &data, timeline, &found.name)?;
        rename(layout, &data, &before)?;
    }
    rename(layout, &layout.beside("restored"), &data)
}

/// Goes on with what a crash has left half-way: there is no database, since it was put aside for this one.
pub(super) fn settle(layout: &Layout) -> Result<()> {
    match restored(layout) {
        Some(found) if !found.placed && !layout.data().exists() => {
            rename(layout, &layout.beside("restored"), &layout.data())
        }
        _ => Ok(()),
    }
}

/// What was restored and never took the place of the database goes; of what did, the note.
pub(super) fn discard_restored(layout: &Layout) -> Result<()> {
    retire(layout, &layout.beside("restored"))?;
    remove(&restored_note(layout))
}

fn remove(note: &Path) -> Result<()> {
    match fs::remove_file(note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).during("removing", note),
        _ => Ok(()),
    }
}

fn discard_kept(layout: &Layout, name: &str) -> Result<bool> {
    if kept(layout).is_none_or(|kept| kept.name != name) {
        return Ok(false);
    }
    retire(layout, &layout.beside("before"))?;
    remove(&kept_note(layout)).map(|()| true)
}

/// How many bytes a folder takes on its volume. What goes away meanwhile takes none.
fn size(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { size(&entry.path()) } else { found.blocks() * 512 })
    });
    sizes.sum()
}

impl Postgres {
    /// The data of a restore in place that is on the volume, if there is any.
    pub fn restored(&self) -> Option<Restored> {
        restored(&self.programs.layout)
    }

    /// What a restore in place has put aside.
    pub fn kept(&self) -> Option<PutAside> {
        kept(&self.programs.layout)
    }

    /// How many bytes that takes.
    pub async fn kept_size(&self) -> Result<u64> {
        self.blocking(|layout| Ok(size(&layout.beside("before")))).await
    }

    /// How many bytes the database takes.
    pub async fn data_size(&self) -> Result<u64> {
        self.blocking(|layout| Ok(size(&layout.data()))).await
    }

    /// What was restored beside the database takes its place, and the old data is kept. Done again, it does nothing.
    pub async fn place_restored(&self) -> Result<()> {
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        self.processes().none(DOING).await?;
        let timeline = match self.read_data().await {
            Ok(crate::Data::Present(offline)) => offline.timeline,
            _ => 0,
        };
        self.blocking(move |layout| place(layout, timeline)).await?;
        self.damage.forget();
        Ok(())
    }

    /// To be called when the database is started: what was restored has taken its place by then, or never will.
    pub async fn discard_restored(&self) -> Result<()> {
        let _working = self.working.lock().await;
        if restored(&self.programs.layout).is_none() && !self.programs.layout.beside("restored").exists() {
            return Ok(());
        }
        self.blocking(discard_restored).await
    }

    /// Removes what the restore of this name has put aside. Says whether there was any.
    pub async fn discard_kept(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.blocking(move |layout| discard_kept(layout, &name)).await
    }

    pub(super) async fn keep_restored(&self, name: &str, timeline: u32) -> Result<()> {
        let name = name.to_owned();
        self.blocking(move |layout| set_restored(layout, &name, timeline)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Volume(Layout);

    impl Volume {
        fn new(name: &str) -> Volume {
            let volume = std::env::temp_dir().join(format!("keelson-aside-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&volume);
            let layout = Layout { volume, ..Layout::default() };
            fs::create_dir_all(layout.config()).unwrap();
            Volume(layout)
        }

        fn put(&self, folder: &str, what: &str) {
            let folder = self.0.volume.join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("what"), what).unwrap();
        }

        fn what(&self, folder: &str) -> Option<String> {
            fs::read_to_string(self.0.volume.join(folder).join("what")).ok()
        }
    }

    impl Drop for Volume {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.volume);
        }
    }

    #[test]
    fn restored_data_takes_the_place_of_the_old_which_stays_until_it_is_named() {
        let volume = Volume::new("place");
        volume.put("data", "old");
        volume.put("data.new", "restored");
        assert_eq!((restored(&volume.0), kept(&volume.0)), (None, None));
        set_restored(&volume.0, "undo it", 7).unwrap();
        let found = |placed| Some(Restored { name: "undo it".into(), timeline: 7, placed });
        assert_eq!((restored(&volume.0), volume.what("data").as_deref()), (found(false), Some("old")));
        place(&volume.0, 3).unwrap();
        place(&volume.0, 3).unwrap();
        assert_eq!((restored(&volume.0), volume.what("data").as_deref()), (found(true), Some("restored")));
        let before = kept(&volume.0).unwrap();
        assert_eq!((before.name.as_str(), before.timeline), ("undo it", 3));
        assert!(!discard_kept(&volume.0, "another").unwrap());
        folders::settle(&volume.0).unwrap();
        assert_eq!(volume.what("data.before").as_deref(), Some("old"), "nothing else removes it");
        assert!(discard_kept(&volume.0, "undo it").unwrap());
        assert_eq!((kept(&volume.0), volume.what("data.before")), (None, None));
    }

    #[test]
    fn a_crash_at_any_point_leaves_the_old_data_or_the_restored_one() {
        let volume = Volume::new("crash");
        volume.put("data", "old");
        // Half-made: it goes.
        volume.put("data.new", "half");
        folders::settle(&volume.0).unwrap();
        assert_eq!((volume.what("data.new"), volume.what("data").as_deref()), (None, Some("old")));
        // Noted, and not renamed yet.
        volume.put("data.new", "restored");
        note(&restored_note(&volume.0), &volume.0.beside("new"), 7, "x").unwrap();
        assert_eq!(restored(&volume.0), None);
        folders::settle(&volume.0).unwrap();
        // Whole.
        volume.put("data.new", "restored");
        set_restored(&volume.0, "x", 7).unwrap();
        folders::settle(&volume.0).unwrap();
        assert_eq!(volume.what("data").as_deref(), Some("old"), "it is not decided");
        assert!(restored(&volume.0).is_some());
        // The old data was put aside, and then it crashed.
        note(&kept_note(&volume.0), &volume.0.data(), 3, "x").unwrap();
        rename(&volume.0, &volume.0.data(), &volume.0.beside("before")).unwrap();
        folders::settle(&volume.0).unwrap();
        assert_eq!(volume.what("data").as_deref(), Some("restored"));
        assert_eq!(volume.what("data.before").as_deref(), Some("old"));
        assert!(restored(&volume.0).is_some_and(|restored| restored.placed));
    }

    #[test]
    fn what_an_earlier_restore_has_put_aside_is_not_written_over() {
        let volume = Volume::new("twice");
        volume.put("data", "old");
        volume.put("data.before", "older");
        volume.put("data.new", "restored");
        set_restored(&volume.0, "x", 7).unwrap();
        let error = place(&volume.0, 3).unwrap_err().to_string();
        assert!(error.contains("discard it first"), "{error}");
        assert_eq!(volume.what("data").as_deref(), Some("old"));
        assert_eq!(kept(&volume.0).unwrap().name, "unknown", "data of nobody knows what is kept too");
        assert!(size(&volume.0.beside("before")) > 0);
    }
}
