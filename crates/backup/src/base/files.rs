//! What belongs into a base backup.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result, of_file};

/// Folders that are there when the database starts, and empty. PostgreSQL's own `pg_basebackup` leaves the same out.
const EMPTY: [&str; 9] = [
    "pg_dynshmem",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_wal",
    "log",
];

/// Files that belong to the running process, to a recovery, or to another backup.
const LEFT_OUT: [&str; 10] = [
    "postmaster.pid",
    "postmaster.opts",
    "postgresql.auto.conf.tmp",
    "current_logfiles",
    "current_logfiles.tmp",
    "backup_label",
    "backup_label.old",
    "tablespace_map",
    "standby.signal",
    "recovery.signal",
];

/// The file that is copied last, in a part of its own: a folder without it is no database.
pub(crate) const CONTROL: &str = "global/pg_control";

/// What becomes of something in the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Take,
    /// As a folder without content.
    Empty,
    Leave,
}

/// Decides by its path in the data folder.
fn fate(relative: &str) -> Fate {
    let name = relative.rsplit('/').next().unwrap_or(relative);
    let temporary =
        name.starts_with("pgsql_tmp") || name.starts_with("pg_internal.init") || is_temporary(name);
    if LEFT_OUT.contains(&relative) || relative == "backup_manifest" || temporary {
        Fate::Leave
    } else if EMPTY.contains(&relative) {
        Fate::Empty
    } else {
        Fate::Take
    }
}

/// A relation of one session: `t3_16384`.
fn is_temporary(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix('t').and_then(|rest| rest.split_once('_')).is_some_and(|(session, relation)| {
        digits(session) && digits(relation.split(['.', '_']).next().unwrap_or_default())
    })
}

/// Whether a file is of an unlogged relation, of which only the empty beginning (`_init`) is worth keeping.
fn is_unlogged(name: &str, unlogged: &BTreeSet<String>) -> bool {
    let relation: String = name.chars().take_while(char::is_ascii_digit).collect();
    let rest = &name[relation.len()..];
    let initial = rest.starts_with("_init");
    !initial && (rest.is_empty() || rest.starts_with(['.', '_'])) && unlogged.contains(&relation)
}

/// Something to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its path in the data folder.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    pub(crate) modified: SystemTime,
    /// `None` for a folder.
    pub(crate) size: Option<u64>,
}

/// What is in a data folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// Names and places of tablespaces.
    pub(crate) tablespaces: Vec<(String, PathBuf)>,
}

/// Looks at all of it. Files come and go meanwhile, and one that is gone is none.
pub(crate) fn walk(data: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    walk_folder(data, "", &mut listing)?;
    Ok(listing)
}

fn walk_folder(folder: &Path, relative: &str, listing: &mut Listing) -> Result<()> {
    let unreadable = |error| of_file("listing", folder, error);
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(unreadable)?,
    };
    let mut names: Vec<String> = Vec::new();
    for entry in read {
        let name = entry.map_err(unreadable)?.file_name();
        names.push(name.into_string().map_err(|name| {
            Error::Refused(format!(
                "`{}` in `{}` is no text, so it can't be backed up",
                name.display(),
                folder.display()
            ))
        })?);
    }
    names.sort();
    let unlogged: BTreeSet<String> =
        names.iter().filter_map(|name| name.strip_suffix("_init").map(str::to_owned)).collect();
    for name in names.iter().filter(|name| !is_unlogged(name, &unlogged)) {
        let inner = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
        walk_one(&folder.join(name), &inner, listing)?;
    }
    Ok(())
}

fn walk_one(path: &Path, relative: &str, listing: &mut Listing) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| of_file("looking at", path, error))?,
    };
    let fate = fate(relative);
    if fate == Fate::Leave || relative == CONTROL {
        return Ok(());
    }
    if metadata.is_symlink() {
        return walk_link(path, relative, fate, listing);
    }
    if metadata.is_dir() {
        listing.entries.push(entry(relative, path, &metadata, None));
        return if fate == Fate::Empty { Ok(()) } else { walk_folder(path, relative, listing) };
    }
    if metadata.is_file() && fate == Fate::Take {
        listing.entries.push(entry(relative, path, &metadata, Some(metadata.len())));
    }
    Ok(())
}

/// Links are tablespaces, or the log on a volume of its own.
fn walk_link(path: &Path, relative: &str, fate: Fate, listing: &mut Listing) -> Result<()> {
    let at = |error| of_file("following", path, error);
    if fate == Fate::Empty {
        let metadata = fs::metadata(path).map_err(at)?;
        listing.entries.push(entry(relative, path, &metadata, None));
        return Ok(());
    }
    match relative.strip_prefix("pg_tblspc/") {
        Some(name) => {
            let place = fs::read_link(path).map_err(at)?;
            listing.tablespaces.push((name.to_owned(), place.clone()));
            walk_folder(&place, relative, listing)
        }
        None => Err(Error::Refused(format!(
            "`{relative}` in the data folder is a link, which PostgreSQL never makes. Replace it by what it points to"
        ))),
    }
}

fn entry(name: &str, path: &Path, metadata: &Metadata, size: Option<u64>) -> Entry {
    Entry {
        name: name.to_owned(),
        path: path.to_owned(),
        mode: metadata.permissions().mode() & 0o7777,
        modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_running_process_is_left() {
        for left in [
            "postmaster.pid",
            "standby.signal",
            "base/1/pg_internal.init",
            "base/pgsql_tmp",
            "base/5/t3_16384",
            "base/5/t3_16384_fsm",
            "base/5/t12_16384.1",
            "global/pg_internal.init.42",
        ] {
            assert_eq!(fate(left), Fate::Leave, "{left}");
        }
        for empty in ["pg_wal", "pg_replslot", "pg_stat_tmp"] {
            assert_eq!(fate(empty), Fate::Empty, "{empty}");
        }
        for taken in [
            "base/1/1259",
            "postgresql.auto.conf",
            "pg_xact/0000",
            "base/5/pg_wal",
            "PG_VERSION",
            "base/5/table_1",
        ] {
            assert_eq!(fate(taken), Fate::Take, "{taken}");
        }
    }

    #[test]
    fn of_unlogged_relations_only_the_beginning_is_kept() {
        let unlogged = ["16384".to_owned()].into();
        for gone in ["16384", "16384.1", "16384_fsm", "16384_vm"] {
            assert!(is_unlogged(gone, &unlogged), "{gone}");
        }
        for kept in ["16384_init", "16385", "163840", "16384_init.1", "PG_VERSION"] {
            assert!(!is_unlogged(kept, &unlogged), "{kept}");
        }
    }
}
