//! The names of what is in `pg_wal`, and whether a segment is what its name says.

use std::fmt;

use crate::lsn::{Lsn, hex};

/// How much log a segment holds: a power of two between 1 MiB and 1 GiB, chosen when a database is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSize(u64);

impl SegmentSize {
    /// What PostgreSQL has unless told otherwise.
    pub const DEFAULT: SegmentSize = SegmentSize(16 << 20);

    /// `None` if PostgreSQL has no segments of this size.
    pub fn new(bytes: u64) -> Option<SegmentSize> {
        (bytes.is_power_of_two() && (1 << 20..=1 << 30).contains(&bytes)).then_some(SegmentSize(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn in_four_gigabytes(self) -> u64 {
        (1 << 32) / self.0
    }
}

/// A piece of the log on one timeline, numbered from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// Which history it belongs to.
    pub timeline: u32,
    /// Its number: the position of its first byte, divided by the size of a segment.
    pub number: u64,
}

impl Segment {
    /// The segment that has the byte at a position.
    pub fn at(timeline: u32, lsn: Lsn, size: SegmentSize) -> Segment {
        Segment { timeline, number: lsn.0 / size.0 }
    }

    /// The segment that has the last byte before a position, which is where something ended.
    pub fn before(timeline: u32, lsn: Lsn, size: SegmentSize) -> Segment {
        Segment { timeline, number: lsn.0.saturating_sub(1) / size.0 }
    }

    /// Its first byte.
    pub fn start(self, size: SegmentSize) -> Lsn {
        Lsn(self.number.saturating_mul(size.0))
    }

    /// The one after it on the same timeline.
    pub fn next(self) -> Segment {
        Segment { number: self.number + 1, ..self }
    }

    /// What its file is called.
    pub fn name(self, size: SegmentSize) -> String {
        let per = size.in_four_gigabytes();
        format!("{:08X}{:08X}{:08X}", self.timeline, self.number / per, self.number % per)
    }

    /// Reads a name of 24 digits.
    pub fn parse(name: &str, size: SegmentSize) -> Option<Segment> {
        if name.len() != 24 || !name.is_ascii() {
            return None;
        }
        let (timeline, high, low) = (hex(&name[..8])?, hex(&name[8..16])?, hex(&name[16..])?);
        let per = size.in_four_gigabytes();
        let (high, low) = (u64::from(high), u64::from(low));
        (timeline > 0 && low < per).then_some(Segment { timeline, number: high * per + low })
    }
}

/// What PostgreSQL gives to be archived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WalFile {
    /// The history of a timeline. Nothing of it can be found without, so these come first.
    History(u32),
    /// A whole segment.
    Segment(String),
    /// The last segment of a timeline that ended in the middle of it.
    Partial(String),
    /// A note on a base backup that was taken.
    Note(String),
}

impl WalFile {
    /// Reads a name. `None` if it is none that PostgreSQL would give.
    pub fn parse(name: &str) -> Option<WalFile> {
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(timeline) = name.strip_suffix(".history") {
            let timeline = (timeline.len() == 8).then(|| hex(timeline)).flatten()?;
            return Some(WalFile::History(timeline));
        }
        let segment = name.get(..24).filter(|segment| is_hex(segment))?;
        match &name[segment.len()..] {
            "" => Some(WalFile::Segment(name.to_owned())),
            ".partial" => Some(WalFile::Partial(name.to_owned())),
            rest => {
                let offset = rest.strip_prefix('.')?.strip_suffix(".backup")?;
                (offset.len() == 8 && is_hex(offset)).then(|| WalFile::Note(name.to_owned()))
            }
        }
    }
}

impl fmt::Display for WalFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalFile::History(timeline) => write!(f, "{timeline:08X}.history"),
            WalFile::Segment(name) | WalFile::Partial(name) | WalFile::Note(name) => f.write_str(name),
        }
    }
}

/// Why a file is not the segment that its name says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTheSegment {
    /// It has another length.
    #[error("it has {found} bytes instead of {wanted}")]
    Size {
        /// Its own.
        found: u64,
        /// That of a segment.
        wanted: u64,
    },
    /// It does not begin as segments do.
    #[error("it does not begin with the header of a segment")]
    Header,
    /// It is of another database.
    #[error("it was written by the database {found}, and not by {wanted}")]
    Database {
        /// The system identifier in it.
        found: u64,
        /// Whose repository this is.
        wanted: u64,
    },
    /// It holds another part of the log.
    #[error("it holds the log from {found} on, and not from {wanted}")]
    Position {
        /// Where it begins.
        found: Lsn,
        /// Where it should.
        wanted: Lsn,
    },
    /// It was written on a timeline that came later than its name says.
    #[error("it was written on the timeline {found}, which is later than {wanted}")]
    Timeline {
        /// In the file.
        found: u32,
        /// In its name.
        wanted: u32,
    },
}

/// How much of a segment's beginning is looked at.
pub(crate) const HEADER: usize = 40;

/// Whether a file is what its name says, from its first bytes and its length. The header is PostgreSQL's
/// `XLogLongPageHeaderData`, which is the same in every version that Keelson runs. It is in the byte order of
/// the machine; both of those that PostgreSQL's images are built for are little-endian.
pub fn check_segment(
    beginning: &[u8],
    length: u64,
    segment: Segment,
    size: SegmentSize,
    system_identifier: u64,
) -> Result<(), NotTheSegment> {
    const LONG_HEADER: u16 = 2;
    if length != size.0 {
        return Err(NotTheSegment::Size { found: length, wanted: size.0 });
    }
    let header: &[u8; HEADER] =
        beginning.get(..HEADER).and_then(|header| header.try_into().ok()).ok_or(NotTheSegment::Header)?;
    let four = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
    let flags = u16::from_le_bytes([header[2], header[3]]);
    if flags & LONG_HEADER == 0 || u64::from(four(32)) != size.0 {
        return Err(NotTheSegment::Header);
    }
    let (timeline, position, database) = (four(4), Lsn(eight(8)), eight(24));
    if database != system_identifier {
        return Err(NotTheSegment::Database { found: database, wanted: system_identifier });
    }
    if position != segment.start(size) {
        return Err(NotTheSegment::Position { found: position, wanted: segment.start(size) });
    }
    // Earlier is right: the first segment of a timeline begins with what was written before it.
    if timeline > segment.timeline {
        return Err(NotTheSegment::Timeline { found: timeline, wanted: segment.timeline });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The beginning of a segment as PostgreSQL writes it.
    pub(crate) fn beginning(segment: Segment, size: SegmentSize, system_identifier: u64) -> Vec<u8> {
        let mut header = vec![0x16, 0xD1, 2, 0];
        header.extend(segment.timeline.to_le_bytes());
        header.extend(segment.start(size).0.to_le_bytes());
        header.extend([0; 8]);
        header.extend(system_identifier.to_le_bytes());
        header.extend((size.bytes() as u32).to_le_bytes());
        header.extend(8192_u32.to_le_bytes());
        header
    }

    #[test]
    fn a_segment_is_named_as_postgresql_names_it() {
        let segment = Segment::at(1, Lsn(0x16_B374_D848), SegmentSize::DEFAULT);
        assert_eq!(segment.name(SegmentSize::DEFAULT), "0000000100000016000000B3");
        let large = SegmentSize::new(1 << 30).unwrap();
        assert_eq!(Segment::at(3, Lsn(0x1_C000_0000), large).name(large), "000000030000000100000003");
        assert_eq!(
            Segment::parse("000000030000000100000004", large),
            None,
            "there are four in four gigabytes"
        );
    }

    #[test]
    fn what_is_given_to_be_archived_is_told_apart() {
        let parse = WalFile::parse;
        assert_eq!(parse("0000000A.history"), Some(WalFile::History(10)));
        assert!(matches!(parse("0000000100000016000000B3"), Some(WalFile::Segment(_))));
        assert!(matches!(parse("0000000100000016000000B3.partial"), Some(WalFile::Partial(_))));
        assert!(matches!(parse("0000000100000016000000B3.00000028.backup"), Some(WalFile::Note(_))));
        for foreign in
            ["", "archive_status", "0000000100000016000000B", "x.history", "../../etc/passwd.history"]
        {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_segment_that_is_not_what_its_name_says_is_found() {
        let size = SegmentSize::DEFAULT;
        let segment = Segment { timeline: 2, number: 7 };
        let good = beginning(segment, size, 42);
        let check = |bytes: &[u8], of: Segment| check_segment(bytes, size.bytes(), of, size, 42);
        assert_eq!(check(&good, segment), Ok(()));
        assert_eq!(check(&good, Segment { timeline: 3, number: 7 }), Ok(()), "the first of a new timeline");
        assert!(matches!(
            check(&good, Segment { timeline: 1, number: 7 }),
            Err(NotTheSegment::Timeline { .. })
        ));
        assert!(matches!(check(&good, segment.next()), Err(NotTheSegment::Position { .. })));
        assert!(matches!(check(&[0; HEADER], segment), Err(NotTheSegment::Header)));
        assert!(matches!(check(&good[..HEADER - 1], segment), Err(NotTheSegment::Header)));
        let short = check_segment(&good, 5, segment, size, 42);
        assert!(matches!(short, Err(NotTheSegment::Size { found: 5, .. })));
        let other = check_segment(&good, size.bytes(), segment, size, 43);
        assert!(matches!(other, Err(NotTheSegment::Database { found: 42, wanted: 43 })));
    }

    proptest! {
        #[test]
        fn a_name_is_read_as_it_is_written(timeline in 1_u32.., number in 0_u64..1 << 38, exponent in 20_u32..=30) {
            let size = SegmentSize::new(1 << exponent).unwrap();
            let segment = Segment { timeline, number: number % (1 << (64 - exponent)) };
            prop_assert_eq!(Segment::parse(&segment.name(size), size), Some(segment));
        }

        #[test]
        fn names_of_one_timeline_are_in_the_order_of_the_log(a in 0_u64..1 << 40, b in 0_u64..1 << 40) {
            let name = |number| Segment { timeline: 1, number }.name(SegmentSize::DEFAULT);
            prop_assert_eq!(a.cmp(&b), name(a).cmp(&name(b)));
        }
    }
}
