//! One file of the log to the repository.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, Digest, SHA256};
use object_store::PutMode;

use crate::error::{Error, Result, of_file};
use crate::repository::{LOG, Repository, Writer};
use crate::transfer::{download, upload};
use crate::wal::{HEADER, Segment, SegmentSize, WalFile, check_segment};

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// Its own size.
    pub(crate) size: u64,
    /// What the store has of it; nothing if it had it already.
    pub(crate) stored: u64,
}

/// Its path in the repository.
pub(crate) fn object(file: &WalFile) -> String {
    format!("{LOG}/{file}.zst")
}

/// Stores a file. When this returns, the store has it and has been seen to. If something is there under its
/// name already, it is compared: the same is well, anything else is an error and stays as it is.
pub(crate) async fn push(writer: &Writer, pg_wal: &Path, file: &WalFile) -> Result<Pushed> {
    let (path, relative) = (pg_wal.join(file.to_string()), object(file));
    let size = writer.claim().segment_size;
    let expected = match file {
        WalFile::Segment(name) => Segment::parse(name, size)
            .map(|segment| Some((segment, size, writer.claim().system_identifier)))
            .ok_or_else(|| Error::Refused(format!("`{name}` is no segment of {} bytes", size.bytes())))?,
        WalFile::History(_) | WalFile::Partial(_) | WalFile::Note(_) => None,
    };
    // A segment goes in one request, however little it compresses, unless segments are very large.
    let whole = (size.bytes() as usize).saturating_add(1 << 16).min(20 << 20);
    let from = path.clone();
    let produce = move |to: &mut dyn Write| copy(&from, expected, to);
    match upload(writer, &relative, PutMode::Create, whole, produce).await {
        Ok(((length, _), stored)) => Ok(Pushed { size: length, stored: stored.size }),
        Err(Error::Conflict { object }) => {
            let (length, own) = tokio::task::spawn_blocking(move || copy(&path, expected, &mut io::sink()))
                .await
                .map_err(|error| Error::lost("reading a segment", error))??;
            let there = content(writer.repository(), &relative).await?;
            match there.as_ref() == own.as_ref() {
                true => Ok(Pushed { size: length, stored: 0 }),
                false => Err(Error::Conflict { object }),
            }
        }
        Err(error) => Err(error),
    }
}

/// Reads a file, sees that it is what its name says, and says how long it is and what is in it.
fn copy(
    path: &Path,
    expected: Option<(Segment, SegmentSize, u64)>,
    to: &mut dyn Write,
) -> Result<(u64, Digest)> {
    let unreadable = |error| of_file("reading", path, error);
    let mut file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut buffer = vec![0; 1 << 17];
    let mut digest = Context::new(&SHA256);
    let mut copied = 0;
    loop {
        let read = file.read(&mut buffer).map_err(unreadable)?;
        if copied == 0
            && let Some((segment, size, system_identifier)) = expected
        {
            let beginning = &buffer[..read.min(HEADER)];
            check_segment(beginning, length, segment, size, system_identifier)
                .map_err(|reason| Error::Segment { name: segment.name(size), reason })?;
        }
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read]).map_err(unreadable)?;
        copied += read as u64;
    }
    if copied != length {
        return Err(of_file("reading", path, io::Error::other("its length changed while it was read")));
    }
    Ok((length, digest.finish()))
}

/// The digest of what is in an object.
async fn content(repository: &Repository, relative: &str) -> Result<Digest> {
    let (owner, name) = (repository.clone(), relative.to_owned());
    let consume = move |from: &mut dyn Read| {
        let (mut digest, mut buffer) = (Context::new(&SHA256), vec![0; 1 << 17]);
        loop {
            match from.read(&mut buffer).map_err(|error| owner.corrupt(&name, error))? {
                0 => return Ok(digest.finish()),
                read => digest.update(&buffer[..read]),
            }
        }
    };
    Ok(download(repository, relative, consume).await?.0)
}
