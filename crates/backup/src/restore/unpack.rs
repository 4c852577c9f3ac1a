//! A part of a backup onto the disk.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tar::EntryType;

use crate::base::apply;
use crate::error::{Result, of_file};
use crate::repository::Repository;

/// What is to be done with the files of one backup of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where to; `None` to look and write nothing.
    pub(crate) folder: Option<PathBuf>,
    /// Those of which only changed pages are there.
    pub(crate) incremented: Arc<BTreeSet<String>>,
    /// Those that the last backup of the chain still has; `None` for all.
    pub(crate) wanted: Option<Arc<BTreeSet<String>>>,
    /// How many bytes were written.
    pub(crate) written: Arc<AtomicU64>,
}

/// Reads a part to its end. Whatever is wrong with it in itself makes it corrupt.
pub(crate) fn unpack(repository: &Repository, part: &str, plan: &Plan, from: &mut dyn Read) -> Result<u64> {
    let corrupt = |error: io::Error| repository.corrupt(part, error);
    let mut archive = tar::Archive::new(from);
    let mut files = 0;
    for entry in archive.entries().map_err(corrupt)? {
        let mut entry = entry.map_err(corrupt)?;
        let path = entry.path().map_err(corrupt)?.into_owned();
        let Some(name) = inside(&path) else {
            return Err(repository
                .corrupt(part, format!("`{}` would lie outside of the data folder", path.display())));
        };
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().map_err(corrupt)?;
        match kind {
            EntryType::Directory => make_folder(plan, &name, mode)?,
            EntryType::Regular => {
                write_file(repository, part, plan, &name, mode, &mut entry)?;
                files += 1;
            }
            other => {
                return Err(repository
                    .corrupt(part, format!("`{name}` is of the kind {other:?}, which no database has")));
            }
        }
    }
    Ok(files)
}

/// Its path in the data folder, unless it leads out of there. WAL-G's begin with a slash.
fn inside(path: &Path) -> Option<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => (),
            Component::Normal(name) => names.push(name.to_str()?),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!names.is_empty()).then(|| names.join("/"))
}

fn make_folder(plan: &Plan, name: &str, mode: u32) -> Result<()> {
    let Some(folder) = &plan.folder else { return Ok(()) };
    let path = folder.join(name);
    fs::create_dir_all(&path).map_err(|error| of_file("creating", &path, error))?;
    // PostgreSQL starts in no folder that others may write to.
    let mode = Permissions::from_mode((mode & 0o750) | 0o700);
    fs::set_permissions(&path, mode).map_err(|error| of_file("setting the mode of", &path, error))
}

fn write_file(
    repository: &Repository,
    part: &str,
    plan: &Plan,
    name: &str,
    mode: u32,
    from: &mut dyn Read,
) -> Result<()> {
    let corrupt = |error: io::Error| repository.corrupt(part, format!("`{name}`: {error}"));
    let unwanted = plan.wanted.as_ref().is_some_and(|wanted| !wanted.contains(name));
    // It would lead PostgreSQL to where tablespaces were, and they are linked to where they are now.
    let unwanted = unwanted || name == "tablespace_map";
    let Some(folder) = plan.folder.as_ref().filter(|_| !unwanted) else {
        io::copy(from, &mut io::sink()).map_err(corrupt)?;
        return Ok(());
    };
    let path = folder.join(name);
    let failed = |error| of_file("writing", &path, error);
    if plan.incremented.contains(name) {
        let file = File::options().write(true).open(&path).map_err(failed)?;
        return apply(from, &file).map_err(corrupt);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = File::create(&path).map_err(failed)?;
    file.set_permissions(Permissions::from_mode((mode & 0o640) | 0o600)).map_err(failed)?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = from.read(&mut buffer).map_err(corrupt)?;
        if read == 0 {
            return Ok(());
        }
        file.write_all(&buffer[..read]).map_err(failed)?;
        plan.written.fetch_add(read as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_data_folder() {
        assert_eq!(inside(Path::new("/base/1/2")), Some("base/1/2".into()));
        assert_eq!(inside(Path::new("./PG_VERSION")), Some("PG_VERSION".into()));
        for bad in ["../x", "base/../../x", "/", ""] {
            assert_eq!(inside(Path::new(bad)), None, "{bad}");
        }
    }
}
