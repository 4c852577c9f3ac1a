//! A position in the log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A position in the write-ahead log, in bytes since its beginning: `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// How many bytes lie between an earlier position and this one; none if it is not earlier.
    pub fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Text that is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no position in the log: it is two hexadecimal numbers, such as 16/B374D848")]
pub struct LsnError(String);

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let half = |part: &str| {
            let plain = (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(part, 16).ok()).flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Lsn(half(high)? << 32 | half(low)?)))
            .ok_or_else(|| LsnError(text.to_owned()))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_position_is_refused() {
        for text in ["", "0", "0/", "/0", "0/0/0", "g/0", "+1/0", "0/123456789", " 0/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn positions_come_back_from_their_text(position: u64) {
            prop_assert_eq!(Lsn(position).to_string().parse(), Ok(Lsn(position)));
        }

        #[test]
        fn the_distance_is_never_negative(one: u64, other: u64) {
            let distance = Lsn(one).since(Lsn(other));
            prop_assert_eq!(distance > 0, one > other);
        }
    }
}
