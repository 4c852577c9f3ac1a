//! Amounts of storage, memory and processor time, as Kubernetes writes them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What the schema lets through.
pub(crate) const PATTERN: &str = r"^[0-9]{1,12}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$";

/// A Kubernetes quantity: `50Gi`, `512Mi`, `1.5Gi`, `500m`. Two that mean the same amount are equal
/// and compare so, however they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size {
    /// Thousandths, which is as fine as a quantity of ours can be.
    milli: u128,
}

/// Text that is no amount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Not a number with a unit.
    #[error(
        "`{found}` is not a size: write a number and a unit, such as 50Gi (storage), 512Mi (memory) or 500m (cpu)"
    )]
    NotASize {
        /// What was written.
        found: String,
    },
    /// A unit that Kubernetes does not know.
    #[error(
        "`{unit}` in `{found}` is not a unit: use Ki, Mi, Gi, Ti (powers of 1024), k, M, G, T (powers of 1000), m (thousandths) or none"
    )]
    Unit {
        /// What was written.
        found: String,
        /// Its unit.
        unit: String,
    },
    /// More than Kubernetes can count.
    #[error("`{found}` is more than Kubernetes can count: use less than 8Ei")]
    TooLarge {
        /// What was written.
        found: String,
    },
}

/// Units with their worth in thousandths, from the largest down, binary before decimal: the order in
/// which [`Display`](fmt::Display) tries them.
const UNITS: [(&str, u128); 14] = [
    ("Ei", 1000 << 60),
    ("Pi", 1000 << 50),
    ("Ti", 1000 << 40),
    ("Gi", 1000 << 30),
    ("Mi", 1000 << 20),
    ("Ki", 1000 << 10),
    ("E", 1_000_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("G", 1_000_000_000_000),
    ("M", 1_000_000_000),
    ("k", 1_000_000),
    ("", 1000),
    ("m", 1),
];

/// Kubernetes counts in 63 bits.
const LIMIT: u128 = 1000 << 63;

impl Size {
    /// So many bytes, or whole processors.
    pub const fn new(units: u64) -> Size {
        Size { milli: units as u128 * 1000 }
    }

    /// So many GiB.
    pub const fn gibibytes(count: u32) -> Size {
        Size { milli: (count as u128 * 1000) << 30 }
    }

    /// So many MiB.
    pub const fn mebibytes(count: u32) -> Size {
        Size { milli: (count as u128 * 1000) << 20 }
    }

    /// So many thousandths of a processor.
    pub const fn millis(count: u32) -> Size {
        Size { milli: count as u128 }
    }

    /// In bytes (or whole processors), rounded up as Kubernetes does.
    pub fn bytes(self) -> u64 {
        u64::try_from(self.milli.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// In thousandths, for processors.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.milli).unwrap_or(u64::MAX)
    }

    /// Whether it is nothing at all.
    pub const fn is_zero(self) -> bool {
        self.milli == 0
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_a_size = || SizeError::NotASize { found: text.to_owned() };
        let too_large = || SizeError::TooLarge { found: text.to_owned() };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() && !fraction.contains('.') => (whole, fraction),
            Some(_) => return Err(not_a_size()),
            None => (number, ""),
        };
        if whole.is_empty() || fraction.len() > 9 {
            return Err(not_a_size());
        }
        let worth = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, worth)| *worth);
        let worth = worth.ok_or_else(|| SizeError::Unit { found: text.to_owned(), unit: unit.to_owned() })?;
        let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
        let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| not_a_size())?);
        let milli = digits.checked_mul(worth).ok_or_else(too_large)?.div_ceil(scale);
        if milli < LIMIT { Ok(Size { milli }) } else { Err(too_large()) }
    }
}

impl fmt::Display for Size {
    /// In the largest unit that needs no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |worth: u128| self.milli >= worth && self.milli.is_multiple_of(worth);
        match UNITS.iter().find(|(_, worth)| fits(*worth)) {
            Some((unit, worth)) => write!(f, "{}{unit}", self.milli / worth),
            None => f.write_str("0"),
        }
    }
}

super::text_value!(Size, pattern = PATTERN, max = 24, example = "50Gi");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(text: &str) -> Size {
        text.parse().unwrap()
    }

    #[test]
    fn sizes_compare_by_what_they_mean() {
        assert_eq!(size("1Gi"), size("1024Mi"));
        assert_eq!(size("1.5Gi"), size("1536Mi"));
        assert_eq!(size("0.5"), size("500m"));
        assert_eq!(size("1Gi"), Size::gibibytes(1));
        assert!(size("1Gi") > size("1G"));
        assert!(size("50Gi") < size("0.1Ti"));
        assert_eq!(size("50Gi").bytes(), 50 << 30);
        assert_eq!(size("1.5").as_millis(), 1500);
    }

    #[test]
    fn sizes_are_shown_short() {
        for (written, shown) in
            [("1024Mi", "1Gi"), ("1000m", "1"), ("500m", "500m"), ("1.5Gi", "1536Mi"), ("0", "0")]
        {
            assert_eq!(size(written).to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_would_be_one() {
        for (text, says) in [
            ("", "write a number"),
            ("big", "write a number"),
            ("-5Gi", "write a number"),
            ("1..5Gi", "write a number"),
            ("50GB", "`GB`"),
            ("50 Gi", "` Gi`"),
            ("9Ei", "less than 8Ei"),
            ("99999999999999999999999999999999999999999", "less than 8Ei"),
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn sizes_come_back_from_their_text(milli in 0..LIMIT) {
            let size = Size { milli };
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,24}") {
            if let Ok(size) = text.parse::<Size>() {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }
    }
}
