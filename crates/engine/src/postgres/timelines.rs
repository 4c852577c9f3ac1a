//! Numbers of timelines. PostgreSQL gives a new one the next number that it knows no history of. So two instances
//! that were promoted without having heard of each other would give theirs the same number, and nothing could
//! tell the two apart afterwards: a replica of one would follow the other, and `pg_rewind` would find nothing to do.
//! An instance that is to begin a later one is shown histories of those in between.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Postgres;
use crate::engine::Engine;
use crate::error::{During, Result};
use crate::lsn::Lsn;

/// The file that says where a timeline comes from.
fn file_name(timeline: u64) -> String {
    format!("{timeline:08X}.history")
}

/// What such a file says of one that would have branched off here.
fn history(parents: &str, timeline: u64, end: Lsn) -> String {
    let mut text = parents.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + &format!("{timeline}\t{end}\tpassed over: another instance may have begun it\n")
}

/// Writes what is missing between the timeline of this log and the one that is to come.
fn pass_over(log: &Path, timeline: u64, end: Lsn, next: u64) -> Result<()> {
    let own = log.join(file_name(timeline));
    let parents = match timeline {
        // The first has none.
        0 | 1 => String::new(),
        _ => fs::read_to_string(&own).during("reading", &own)?,
    };
    let text = history(&parents, timeline, end);
    for missing in (timeline + 1..next).map(|number| log.join(file_name(number))) {
        if missing.exists() {
            continue;
        }
        let new = missing.with_extension("passed-over");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = file.as_mut().map_err(|error| std::io::Error::new(error.kind(), error.to_string()));
        written
            .and_then(|file| file.write_all(text.as_bytes()).and(file.sync_all()))
            .during("writing", &new)?;
        fs::rename(&new, &missing).during("renaming", &new)?;
    }
    fs::File::open(log).and_then(|folder| folder.sync_all()).during("syncing", log)
}

/// Has a replay of that timeline, in a folder that is none yet, begin one with the number `next` or a greater one: those in
/// between are taken for ones that are there. It asks for them by the name of their histories alone.
pub(super) fn reserve(log: &Path, replayed: u32, next: u32) -> Result<()> {
    fs::create_dir_all(log).during("creating", log)?;
    for number in u64::from(replayed) + 1..u64::from(next) {
        let path = log.join(file_name(number));
        if !path.exists() {
            super::folders::write(&path, "# passed over: it was begun before this restore\n")?;
        }
    }
    Ok(())
}

impl Postgres {
    /// Has the timeline that begins with the next promotion get this number, or a greater one.
    pub(super) async fn pass_over_timelines(&self, next: u64) -> Result<()> {
        let status = self.status(super::TAKEN).await?;
        let (timeline, end) = (u64::from(status.timeline), status.position());
        if next <= timeline + 1 {
            return Ok(());
        }
        tracing::warn!(timeline, next, "timelines are passed over that others may have begun");
        self.blocking(move |layout| pass_over(&layout.data().join("pg_wal"), timeline, end, next)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_that_is_passed_over_would_have_branched_off_here() {
        let text = history("1\t0/3000000\tno recovery target specified\n", 2, Lsn(0x400_0000));
        assert_eq!(
            text,
            "1\t0/3000000\tno recovery target specified\n\
             2\t0/4000000\tpassed over: another instance may have begun it\n"
        );
        assert_eq!(file_name(26), "0000001A.history");
    }
}
