//! A position in the log.

use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log, in bytes since its beginning: `16/B374D848`.
///
/// The engine has a type of this name too. This crate stands beside it and not upon it, so that who only reads
/// a repository needs no engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Text that is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no position in the log: it is two hexadecimal numbers, such as 16/B374D848")]
pub struct LsnError(String);

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let (high, low) = text.split_once('/').ok_or_else(|| LsnError(text.to_owned()))?;
        match (hex(high), hex(low)) {
            (Some(high), Some(low)) => Ok(Lsn(u64::from(high) << 32 | u64::from(low))),
            _ => Err(LsnError(text.to_owned())),
        }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// Up to eight hexadecimal digits, and nothing else: `from_str_radix` alone would take a sign.
pub(crate) fn hex(text: &str) -> Option<u32> {
    let plain = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written() {
        for lsn in [Lsn(0), Lsn(0x16_B374_D848), Lsn(u64::MAX)] {
            assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
        for bad in ["", "/", "0/", "1", "0/+1", "0/123456789", "g/0"] {
            assert!(bad.parse::<Lsn>().is_err(), "{bad}");
        }
    }
}
