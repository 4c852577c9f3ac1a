//! The pages of a relation that changed since another backup, as WAL-G writes them into incremental backups:
//! `wi1` and 0x55, the file's size, how many pages follow, their numbers, and then the pages.
//!
//! Each page says itself where in the log it was last changed, so no other record of changes is needed, and none
//! can have a gap. All pages are read for that; only those that changed are sent.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use crate::lsn::Lsn;

/// The size of a page. PostgreSQL can be built with others; nobody's images are.
pub(crate) const BLOCK: u64 = 8192;
const MAGIC: [u8; 4] = [b'w', b'i', b'1', 0x55];

/// Whether a file is made of pages that say where they were changed: the main fork of a relation. Free space and
/// visibility maps are not reliable in this and small; they are copied whole.
pub(crate) fn is_paged(name: &str, size: u64) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let file = name.rsplit('/').next().unwrap_or(name);
    let relation = match file.split_once('.') {
        Some((relation, segment)) => digits(relation) && digits(segment),
        None => digits(file),
    };
    (name.starts_with("base/") || name.starts_with("pg_tblspc/"))
        && relation
        && size > 0
        && size.is_multiple_of(BLOCK)
}

/// Whether a page may have changed at or after a position. One that was never written (all zeros) says nothing, so it
/// counts as changed.
fn changed(page: &[u8], since: Lsn) -> bool {
    let four =
        |at: usize| u64::from(u32::from_ne_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]));
    let upper = u16::from_ne_bytes([page[14], page[15]]);
    upper == 0 || Lsn(four(0) << 32 | four(4)) >= since
}

/// Which pages of a file changed. The size is that of the file when it was listed; what is beyond it is in the log.
pub(crate) fn find_changed(file: &mut File, size: u64, since: Lsn) -> io::Result<Vec<u32>> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = io::BufReader::with_capacity(1 << 20, file);
    let mut page = vec![0; BLOCK as usize];
    let mut found = Vec::new();
    for number in 0..(size / BLOCK) as u32 {
        match reader.read_exact(&mut page) {
            Ok(()) if changed(&page, since) => found.push(number),
            Ok(()) => (),
            // Cut off meanwhile. The log knows.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// How long the increment of so many pages is.
pub(crate) fn increment_size(pages: usize) -> u64 {
    16 + pages as u64 * (4 + BLOCK)
}

/// What comes before the pages.
pub(crate) fn increment_header(size: u64, pages: &[u32]) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(size.to_le_bytes());
    header.extend((pages.len() as u32).to_le_bytes());
    pages.iter().for_each(|page| header.extend(page.to_le_bytes()));
    header
}

/// Lays an increment over the file that it was made from.
pub(crate) fn apply(increment: &mut dyn Read, file: &File) -> io::Result<()> {
    let bad = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut start = [0; 16];
    increment.read_exact(&mut start)?;
    let (magic, rest) = start.split_at(4);
    if magic != MAGIC {
        return Err(bad("it is no increment"));
    }
    let (size, count) = rest.split_at(8);
    let size = u64::from_le_bytes(size.try_into().unwrap_or_default());
    let count = u32::from_le_bytes(count.try_into().unwrap_or_default());
    if u64::from(count) * BLOCK > size {
        return Err(bad("an increment has more pages than its file"));
    }
    let mut numbers = vec![0; count as usize * 4];
    increment.read_exact(&mut numbers)?;
    file.set_len(size)?;
    let mut page = vec![0; BLOCK as usize];
    for number in numbers.chunks_exact(4) {
        let number = u64::from(u32::from_le_bytes(number.try_into().unwrap_or_default()));
        if (number + 1) * BLOCK > size {
            return Err(bad("an increment has a page behind the end of its file"));
        }
        increment.read_exact(&mut page)?;
        file.write_all_at(&page, number * BLOCK)?;
    }
    match increment.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(bad("an increment is longer than it says")),
    }
}

/// Writes pages of a file one after the other; one that was cut off meanwhile as zeros.
pub(crate) fn copy_pages(file: &File, pages: &[u32], to: &mut dyn Write) -> io::Result<()> {
    let mut page = vec![0; BLOCK as usize];
    for number in pages {
        let at = u64::from(*number) * BLOCK;
        match file.read_exact_at(&mut page, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => page.fill(0),
            other => other?,
        }
        to.write_all(&page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(lsn: u64, fill: u8) -> Vec<u8> {
        let mut page = vec![fill; BLOCK as usize];
        page[..4].copy_from_slice(&((lsn >> 32) as u32).to_ne_bytes());
        page[4..8].copy_from_slice(&(lsn as u32).to_ne_bytes());
        page[14..16].copy_from_slice(&100_u16.to_ne_bytes());
        page
    }

    fn file(bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("keelson-pages-{}-{}", std::process::id(), fastrand()));
        std::fs::write(&path, bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    fn fastrand() -> u64 {
        let mut bytes = [0; 8];
        aws_lc_rs::rand::fill(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn content(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn only_main_forks_are_looked_into() {
        for yes in ["base/5/16384", "base/5/16384.1", "pg_tblspc/16500/PG_17_202406281/5/16384"] {
            assert!(is_paged(yes, BLOCK), "{yes}");
        }
        for no in [
            "base/5/16384_vm",
            "base/5/16384_fsm",
            "global/1260",
            "pg_xact/0000",
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
        ] {
            assert!(!is_paged(no, BLOCK), "{no}");
        }
        assert!(!is_paged("base/5/16384", BLOCK + 1) && !is_paged("base/5/16384", 0));
    }

    #[test]
    fn an_increment_that_lies_is_refused() {
        let target = file(&page(1, 1));
        let too_many = [increment_header(0, &[1]), page(1, 1)].concat();
        let behind = [increment_header(BLOCK, &[1]), page(1, 1)].concat();
        let longer = [increment_header(BLOCK, &[0]), page(1, 1), vec![0]].concat();
        for bad in
            [b"wi2\x550000000000000000".to_vec(), too_many, behind, longer, increment_header(BLOCK, &[0])]
        {
            assert!(apply(&mut bad.as_slice(), &target).is_err());
        }
    }

    proptest! {
        #[test]
        fn an_increment_over_the_old_file_is_the_new_file(
            old in prop::collection::vec(1_u64..50, 1..12),
            new in prop::collection::vec(prop::option::of(50_u64..100), 1..12),
        ) {
            let base: Vec<u8> = old.iter().flat_map(|lsn| page(*lsn, 7)).collect();
            // A page is as it was, or changed since; behind the end of the old file all are new.
            let pages: Vec<Vec<u8>> = new.iter().enumerate().map(|(at, change)| match (change, old.get(at)) {
                (Some(lsn), _) => page(*lsn, 9),
                (None, Some(lsn)) => page(*lsn, 7),
                (None, None) => vec![0; BLOCK as usize],
            }).collect();
            let mut now = file(&pages.concat());
            let size = pages.len() as u64 * BLOCK;
            let found = find_changed(&mut now, size, Lsn(50)).unwrap();
            let mut increment = increment_header(size, &found);
            copy_pages(&now, &found, &mut increment).unwrap();
            prop_assert_eq!(increment.len() as u64, increment_size(found.len()));
            let target = file(&base);
            apply(&mut increment.as_slice(), &target).unwrap();
            prop_assert!(content(&target) == pages.concat());
            prop_assert!(found.len() <= new.iter().filter(|change| change.is_some()).count() + new.len().saturating_sub(old.len()));
        }
    }
}
