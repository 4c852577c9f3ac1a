//! The log's way back: for `restore_command`, which recovery asks for one file after the other, and for replicas
//! whose log is gone from the primary.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::error::{Error, Result, of_file};
use crate::repository::{LOG, Repository};
use crate::transfer::download;
use crate::wal::{HEADER, Segment, SegmentSize, WalFile, check_segment};

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It is where it was wanted.
    Found,
    /// The repository does not have it. For recovery this is the end of the log.
    Absent,
}

impl Fetched {
    /// What `restore_command` must end with. Recovery takes anything up to 125 for the end of the log and goes on
    /// to open the database: a store that is away or an object that is corrupt must not look like that.
    pub fn exit_code(result: &Result<Fetched>) -> u8 {
        match result {
            Ok(Fetched::Found) => 0,
            Ok(Fetched::Absent) => 1,
            Err(_) => 200,
        }
    }
}

/// Fetches files of the log, and the next ones ahead of time.
#[derive(Debug)]
pub struct Fetcher {
    repository: Repository,
    expected: Option<(SegmentSize, u64)>,
    folder: PathBuf,
    ahead: usize,
    coming: Mutex<BTreeMap<String, JoinHandle<Result<Fetched>>>>,
}

impl Fetcher {
    /// Gets ready to fetch. `folder` is where those ahead of time wait: on the volume of the database, and nobody
    /// else's. `ahead` is how many of them there are.
    pub async fn new(repository: Repository, folder: impl Into<PathBuf>, ahead: usize) -> Result<Fetcher> {
        let folder = folder.into();
        tokio::fs::create_dir_all(&folder).await.map_err(|error| of_file("creating", &folder, error))?;
        // One that WAL-G wrote has no mark; then the log's own checks must do.
        let mark = repository.mark().await?;
        let expected = mark.and_then(|mark| Some((mark.segment_size()?, mark.system_identifier()?)));
        Ok(Fetcher { repository, expected, folder, ahead, coming: Mutex::default() })
    }

    /// Fetches a file that recovery asks for.
    pub async fn fetch(&self, name: &str, to: &Path) -> Result<Fetched> {
        let Some(file) = WalFile::parse(name) else {
            return Err(Error::Refused(format!("`{name}` is no name of a file of the log")));
        };
        let mut coming = self.coming.lock().await;
        let early = coming.remove(name);
        self.send_for_next(&file, &mut coming);
        drop(coming);
        if let Some(task) = early
            && let Ok(Ok(Fetched::Found)) = task.await
        {
            let waiting = self.folder.join(name);
            return match tokio::fs::rename(&waiting, to).await {
                Ok(()) => Ok(Fetched::Found),
                Err(error) => Err(of_file("moving", &waiting, error)),
            };
        }
        // What was not there, or went wrong, ahead of time: it counts now.
        fetch(&self.repository, &file, self.expected, to).await
    }

    fn send_for_next(&self, file: &WalFile, coming: &mut BTreeMap<String, JoinHandle<Result<Fetched>>>) {
        let (WalFile::Segment(name), Some((size, _))) = (file, self.expected) else { return };
        let Some(mut segment) = Segment::parse(name, size) else { return };
        let mut wanted = Vec::new();
        for _ in 0..self.ahead {
            segment = segment.next();
            wanted.push(segment.name(size));
        }
        coming.retain(|name, task| {
            let keep = wanted.contains(name);
            if !keep {
                task.abort();
                let _ = std::fs::remove_file(self.folder.join(name));
            }
            keep
        });
        for name in wanted {
            let (repository, expected, to) =
                (self.repository.clone(), self.expected, self.folder.join(&name));
            coming.entry(name.clone()).or_insert_with(|| {
                tokio::spawn(async move { fetch(&repository, &WalFile::Segment(name), expected, &to).await })
            });
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        for (name, task) in std::mem::take(self.coming.get_mut()) {
            task.abort();
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }
}

/// Fetches one file. What is there under that name is whole, or nothing is.
async fn fetch(
    repository: &Repository,
    file: &WalFile,
    expected: Option<(SegmentSize, u64)>,
    to: &Path,
) -> Result<Fetched> {
    let half = to.with_file_name(format!(".{file}.part"));
    // Histories may be there as they are: that is how walrus writes them.
    for relative in [format!("{LOG}/{file}.zst"), format!("{LOG}/{file}")] {
        let (owner, name, path, file) = (repository.clone(), relative.clone(), half.clone(), file.clone());
        let consume = move |from: &mut dyn Read| write(&owner, &name, &file, expected, from, &path);
        match download(repository, &relative, consume).await {
            Ok(_) => {
                tokio::fs::rename(&half, to).await.map_err(|error| of_file("moving", &half, error))?;
                return Ok(Fetched::Found);
            }
            Err(Error::NotFound { .. }) => (),
            Err(error) => {
                let _ = tokio::fs::remove_file(&half).await;
                return Err(error);
            }
        }
    }
    Ok(Fetched::Absent)
}

fn write(
    repository: &Repository,
    relative: &str,
    file: &WalFile,
    expected: Option<(SegmentSize, u64)>,
    from: &mut dyn Read,
    path: &Path,
) -> Result<()> {
    let mut to = File::create(path).map_err(|error| of_file("creating", path, error))?;
    let (mut buffer, mut beginning, mut length) = (vec![0; 1 << 17], Vec::new(), 0);
    loop {
        let read = from.read(&mut buffer).map_err(|error| repository.corrupt(relative, error))?;
        if read == 0 {
            break;
        }
        let missing = HEADER.saturating_sub(beginning.len()).min(read);
        beginning.extend_from_slice(&buffer[..missing]);
        length += read as u64;
        io::Write::write_all(&mut to, &buffer[..read]).map_err(|error| of_file("writing", path, error))?;
    }
    if let (WalFile::Segment(name), Some((size, system_identifier))) = (file, expected) {
        let segment = Segment::parse(name, size)
            .ok_or_else(|| Error::Refused(format!("`{name}` is no segment of {} bytes", size.bytes())))?;
        check_segment(&beginning, length, segment, size, system_identifier)
            .map_err(|reason| repository.corrupt(relative, reason))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_takes_nothing_but_absence_for_the_end_of_the_log() {
        let code = Fetched::exit_code;
        assert_eq!(code(&Ok(Fetched::Found)), 0);
        assert!((1..=125).contains(&code(&Ok(Fetched::Absent))));
        assert!(code(&Err(Error::Corrupt { object: "x".into(), reason: "y".into() })) > 125);
    }
}
