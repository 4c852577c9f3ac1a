//! The data folder, and what lies beside it. A folder called `data` is always whole: whatever is made is
//! made in `data.new`, and gets its name by renaming when it is complete and on disk.
//!
//! | folder | what it is | after a crash |
//! |---|---|---|
//! | `data` | the database | stays |
//! | `data.new` | one in the making | is removed |
//! | `data.ready` | a complete one, about to become `data` | becomes `data` if there is none, else is removed |
//! | `data.old` | what a clone replaced, kept until the clone is known to be good | stays; becomes `data` if nothing else can |
//! | `data.gone` | on its way out | is removed |
//! | `data.restored` | of an earlier moment, complete, to take the place of `data` if it is decided so | stays; becomes `data` if that was put aside for it |
//! | `data.before` | what it has taken the place of | stays until a person says otherwise |
//!
//! `aside` has the last two.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::aside;
use crate::error::{During, Error, Result};
use crate::layout::Layout;

/// Finishes or undoes what a crash left half-way.
pub(crate) fn settle(layout: &Layout) -> Result<()> {
    for leftover in ["new", "gone"] {
        remove(&layout.beside(leftover))?;
    }
    aside::settle(layout)?;
    let (data, ready, old) = (layout.data(), layout.beside("ready"), layout.beside("old"));
    match (data.exists(), ready.exists(), old.exists()) {
        // The swap had not begun; whoever wanted it will ask again.
        (true, true, _) => retire(layout, &ready),
        (false, true, _) => rename(layout, &ready, &data),
        (false, false, true) => rename(layout, &old, &data),
        _ => Ok(()),
    }
}

/// An empty place in which to make a database.
pub(crate) fn begin(layout: &Layout) -> Result<PathBuf> {
    settle(layout)?;
    // Whoever makes something else has no use for it.
    aside::discard_restored(layout)?;
    let new = layout.beside("new");
    fs::create_dir_all(&new).during("creating", &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).during("protecting", &new)?;
    Ok(new)
}

/// What was made becomes the database. What was there is kept; but if something is kept already, it was
/// replaced by a clone that never proved itself, and it is that clone which goes.
pub(crate) fn finish(layout: &Layout) -> Result<()> {
    let (data, ready, old) = (layout.data(), layout.beside("ready"), layout.beside("old"));
    let new = layout.beside("new");
    sync(&new)?;
    rename(layout, &new, &ready)?;
    if data.exists() {
        let kept = if old.exists() { layout.beside("gone") } else { old };
        rename(layout, &data, &kept)?;
    }
    rename(layout, &ready, &data)?;
    remove(&layout.beside("gone"))
}

/// Removes what was kept.
pub(crate) fn discard_old(layout: &Layout) -> Result<()> {
    retire(layout, &layout.beside("old"))
}

/// Removes a folder so that a crash half-way does not leave half of it under its name.
pub(super) fn retire(layout: &Layout, folder: &Path) -> Result<()> {
    if folder.exists() {
        let gone = layout.beside("gone");
        remove(&gone)?;
        rename(layout, folder, &gone)?;
        remove(&gone)?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).during("removing", folder),
        _ => Ok(()),
    }
}

pub(super) fn rename(layout: &Layout, from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).during("renaming", from)?;
    sync(&layout.volume)
}

/// Makes sure that a folder's list of names is on disk.
pub(crate) fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).during("syncing", folder)
}

/// Writes a file so that it is there wholly or not at all, readable by its owner only.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let beside = path.with_extension("tmp");
    let written = || -> io::Result<()> {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    written().during("writing", path)?;
    path.parent().map_or(Ok(()), sync)
}

/// What kind of thing the data folder is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Database,
    Unusable(String),
}

/// Looks at the data folder. A database of another version is an error: it must be upgraded, and by no
/// means be taken for lost.
pub(crate) fn look(layout: &Layout, major: u32) -> Result<Found> {
    let data = layout.data();
    let empty = match fs::read_dir(&data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).during("reading", &data),
    };
    if empty {
        return Ok(Found::Nothing);
    }
    let version = match fs::read_to_string(data.join("PG_VERSION")) {
        Ok(version) => version.trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Found::Unusable("it is no data folder of PostgreSQL".into()));
        }
        Err(error) => return Err(error).during("reading", data.join("PG_VERSION")),
    };
    if version != major.to_string() {
        let why = format!("the data is of PostgreSQL {version}, the image has {major}");
        return Err(Error::Data { doing: "looking at the data", why });
    }
    Ok(match marked(layout) {
        true => Found::Unusable("a rewind of it broke off".into()),
        false => Found::Database,
    })
}

/// The mark of a folder that is being rewound. Outside, since a rewind removes what it does not know; with
/// the folder's number, so that it does not speak of one that has taken its place.
fn mark(layout: &Layout) -> PathBuf {
    layout.config_file("rewinding")
}

/// The number of the data folder: another folder under its name has another. Empty where there is none.
pub(crate) fn identity(layout: &Layout) -> String {
    number(&layout.data())
}

/// The number of a folder; empty where there is none.
pub(super) fn number(folder: &Path) -> String {
    fs::metadata(folder).map(|data| data.ino().to_string()).unwrap_or_default()
}

/// The newest timeline of which there is log. A promotion writes some at once; the control file knows of it only
/// after the next checkpoint, and one that crashed before that would be taken for what it was before.
pub(crate) fn newest_timeline(layout: &Layout) -> Option<u32> {
    let entries = fs::read_dir(layout.data().join("pg_wal")).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let segment = |name: &String| name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    names.filter(segment).filter_map(|name| u32::from_str_radix(&name[..8], 16).ok()).max()
}

fn marked(layout: &Layout) -> bool {
    fs::read_to_string(mark(layout)).is_ok_and(|marked| marked == identity(layout))
}

/// From here on the data is unusable, until [`unmark`].
pub(crate) fn set_mark(layout: &Layout) -> Result<()> {
    write(&mark(layout), &identity(layout))
}

pub(crate) fn unmark(layout: &Layout) -> Result<()> {
    fs::remove_file(mark(layout)).during("removing", mark(layout))
}

fn led_mark(layout: &Layout) -> PathBuf {
    layout.config_file("led")
}

/// The last epoch in which this very folder took writes.
pub(crate) fn led(layout: &Layout) -> Option<u64> {
    let text = fs::read_to_string(led_mark(layout)).ok()?;
    let (folder, epoch) = text.split_once(' ')?;
    epoch.parse().ok().filter(|_| folder == identity(layout))
}

/// Writes it down; or, for none, that it follows another.
pub(crate) fn set_led(layout: &Layout, epoch: Option<u64>) -> Result<()> {
    match epoch {
        Some(epoch) => write(&led_mark(layout), &format!("{} {epoch}", identity(layout))),
        None => match fs::remove_file(led_mark(layout)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).during("removing", led_mark(layout))
            }
            _ => Ok(()),
        },
    }
}

pub(crate) fn damage_mark(layout: &Layout) -> PathBuf {
    layout.config_file("damaged")
}

/// Whether the volume says that its disk has failed this very folder. What can't be read is no better.
pub(crate) fn is_damaged(layout: &Layout) -> bool {
    match fs::read_to_string(damage_mark(layout)) {
        Ok(folder) => folder == identity(layout),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Writes down that the disk has failed the folder of this number.
pub(crate) fn set_damaged(layout: &Layout, folder: &str) -> Result<()> {
    write(&damage_mark(layout), folder)
}

/// Makes a data folder ready to be started: as a replica, or as a primary. Nobody else may be running on
/// it, which the volume's lock ensures; so whatever `postmaster.pid` says is of the past. PostgreSQL itself
/// would take it for true whenever another process of the container has that number now.
pub(crate) fn prepare(layout: &Layout, major: u32, replica: bool) -> Result<()> {
    let data = layout.data();
    // Kubernetes opens volumes up for a pod's group; PostgreSQL refuses to start then.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).during("protecting", &data)?;
    let absent = |name: &str| match fs::remove_file(data.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).during("removing", data.join(name))
        }
        _ => Ok(()),
    };
    absent("postmaster.pid")?;
    absent("recovery.signal")?;
    if replica {
        write(&data.join("standby.signal"), "")?
    } else {
        absent("standby.signal")?
    }
    let sealed = "# Not used: Keelson sets parameters. See spec.parameters.\n";
    write(&data.join("postgresql.auto.conf"), sealed)?;
    write(
        &data.join("postgresql.conf"),
        "# Not used: Keelson keeps its configuration outside of the data.\n",
    )?;
    // ALTER SYSTEM writes to this name first. Base backups and pg_rewind leave it out.
    let block = data.join("postgresql.auto.conf.tmp");
    if major < 17 && !block.is_dir() {
        absent("postgresql.auto.conf.tmp")?;
        fs::create_dir(&block).during("creating", &block)?;
    }
    sync(&data)
}

#[cfg(test)]
mod tests;
