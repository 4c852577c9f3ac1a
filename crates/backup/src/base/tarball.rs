//! One part of a base backup.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tar::{EntryType, Header};

use crate::base::files::Entry;
use crate::base::pages::{copy_pages, find_changed, increment_header, increment_size, is_paged};
use crate::base::throttle::Throttle;
use crate::error::{Result, of_file};
use crate::lsn::Lsn;
use crate::sentinel::FileNote;

/// What all parts of a backup share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) throttle: Arc<Throttle>,
    /// How many bytes of the database have been read.
    pub(crate) read: Arc<AtomicU64>,
    /// For an incremental backup: what the one below has, and since when a page counts as changed.
    pub(crate) parent: Option<Arc<Parent>>,
}

#[derive(Debug)]
pub(crate) struct Parent {
    pub(crate) since: Lsn,
    pub(crate) files: std::collections::BTreeSet<String>,
}

/// What a part came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub(crate) files: BTreeMap<String, FileNote>,
    /// Of the tar, before it is compressed.
    pub(crate) size: u64,
}

/// Writes a tar of these files. One that is gone meanwhile is left out: the log says that it was removed.
pub(crate) fn write(entries: &[Entry], shared: &Shared, to: &mut dyn Write) -> Result<Packed> {
    let mut tar = tar::Builder::new(Counted { inner: to, size: 0 });
    let mut packed = Packed::default();
    for entry in entries {
        let failed = |error| of_file("copying", &entry.path, error);
        if entry.size.is_none() {
            let header =
                header(&entry.name, EntryType::Directory, 0, entry.mode, entry.modified).map_err(failed)?;
            tar.append(&header, io::empty()).map_err(failed)?;
            continue;
        }
        let file = match File::open(&entry.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        let incremented = append(&mut tar, entry, file, shared).map_err(failed)?;
        packed.files.insert(entry.name.clone(), note(entry.modified, incremented));
    }
    let counted = tar.into_inner().map_err(|error| of_file("writing", Path::new("the tar"), error))?;
    packed.size = counted.size;
    Ok(packed)
}

/// A tar of texts.
pub(crate) fn write_texts(texts: &[(&str, &[u8])], to: &mut dyn Write) -> Result<Packed> {
    let failed = |error| of_file("writing", Path::new("the tar"), error);
    let mut tar = tar::Builder::new(Counted { inner: to, size: 0 });
    let mut packed = Packed::default();
    let now = SystemTime::now();
    for (name, text) in texts {
        let header = header(name, EntryType::Regular, text.len() as u64, 0o600, now).map_err(failed)?;
        tar.append(&header, *text).map_err(failed)?;
        packed.files.insert((*name).to_owned(), note(now, false));
    }
    packed.size = tar.into_inner().map_err(failed)?.size;
    Ok(packed)
}

/// Whether only its changed pages were written.
fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    entry: &Entry,
    mut file: File,
    shared: &Shared,
) -> io::Result<bool> {
    let size = file.metadata()?.len();
    let parent = shared
        .parent
        .as_ref()
        .filter(|parent| is_paged(&entry.name, size) && parent.files.contains(&entry.name));
    let Some(parent) = parent else {
        let header = header(&entry.name, EntryType::Regular, size, entry.mode, entry.modified)?;
        let watched = Watched { file, left: size, shared };
        tar.append(&header, watched)?;
        return Ok(false);
    };
    shared.throttle.wait(size);
    let pages = find_changed(&mut file, size, parent.since)?;
    shared.read.fetch_add(size, Ordering::Relaxed);
    let header =
        header(&entry.name, EntryType::Regular, increment_size(pages.len()), entry.mode, entry.modified)?;
    tar.append(&header, io::empty().take(0)).and_then(|()| {
        let to = tar.get_mut();
        to.write_all(&increment_header(size, &pages))?;
        copy_pages(&file, &pages, to)?;
        let over = (increment_size(pages.len()) % 512) as usize;
        to.write_all(&vec![0; if over == 0 { 0 } else { 512 - over }])
    })?;
    Ok(true)
}

fn header(name: &str, kind: EntryType, size: u64, mode: u32, modified: SystemTime) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(if kind == EntryType::Directory { format!("{name}/") } else { name.to_owned() })?;
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(modified.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default());
    header.set_cksum();
    Ok(header)
}

fn note(modified: SystemTime, incremented: bool) -> FileNote {
    let modified = Timestamp::try_from(modified).unwrap_or_default().to_string();
    FileNote { incremented, skipped: false, modified, updates: 0 }
}

/// Reads exactly as much as was promised: a file that was cut off meanwhile ends in zeros, and what was added is in
/// the log.
struct Watched<'a> {
    file: File,
    left: u64,
    shared: &'a Shared,
}

impl Read for Watched<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let want = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if want == 0 {
            return Ok(0);
        }
        self.shared.throttle.wait(want as u64);
        let read = match self.file.read(&mut out[..want])? {
            0 => {
                out[..want].fill(0);
                want
            }
            read => read,
        };
        self.left -= read as u64;
        self.shared.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

struct Counted<'a> {
    inner: &'a mut dyn Write,
    size: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(parent: Option<Parent>) -> Shared {
        Shared { throttle: Arc::new(Throttle::new(None)), read: Arc::default(), parent: parent.map(Arc::new) }
    }

    fn entry(name: &str, path: &Path, size: Option<u64>) -> Entry {
        Entry { name: name.into(), path: path.into(), mode: 0o600, modified: UNIX_EPOCH, size }
    }

    #[test]
    fn a_part_is_a_tar_that_anybody_can_read() {
        let folder = std::env::temp_dir().join(format!("keelson-tarball-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("16384");
        std::fs::write(&path, vec![3; 3 * 8192]).unwrap();
        let entries = [
            entry("base/5", &folder, None),
            entry("base/5/16384", &path, Some(1)),
            entry("base/5/gone", &folder.join("gone"), Some(1)),
            entry("base/5/1", &path, Some(1)),
        ];
        for parent in [None, Some(Parent { since: Lsn(u64::MAX), files: ["base/5/16384".to_owned()].into() })]
        {
            let incremental = parent.is_some();
            let mut bytes = Vec::new();
            let packed = write(&entries, &shared(parent), &mut bytes).unwrap();
            assert_eq!(packed.size, bytes.len() as u64);
            let mut archive = tar::Archive::new(bytes.as_slice());
            let found: Vec<(String, u64)> = archive
                .entries()
                .unwrap()
                .map(|entry| {
                    entry.map(|entry| (entry.path().unwrap().display().to_string(), entry.size())).unwrap()
                })
                .collect();
            let size = if incremental { 16 } else { 3 * 8192 };
            let wanted = [("base/5/", 0), ("base/5/16384", size), ("base/5/1", 3 * 8192)];
            assert_eq!(found, wanted.map(|(name, size)| (name.to_owned(), size)));
            assert_eq!(packed.files["base/5/16384"].incremented, incremental);
            assert_eq!(packed.files.len(), 2);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
