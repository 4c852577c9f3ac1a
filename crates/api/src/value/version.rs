//! Versions of a database program.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What the schema lets through.
pub(crate) const PATTERN: &str = r"^[1-9][0-9]?(\.[0-9]{1,3}){0,2}$";

/// `17`, `17.4`, `9.7`, `9.7.4`. One that leaves a part out stands for the newest of that line, and
/// sorts before those that name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second, if it was given.
    pub minor: Option<u32>,
    /// The third, if it was given.
    pub patch: Option<u32>,
}

/// Text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{found}` is not a version: write one to three numbers with dots between them, such as 17, 17.4 or 9.7"
)]
pub struct VersionError {
    /// What was written.
    pub found: String,
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || VersionError { found: text.to_owned() };
        let mut parts = text.split('.').map(|part| number(part).ok_or_else(error));
        let version = Version {
            major: parts.next().transpose()?.filter(|major| (1..100).contains(major)).ok_or_else(error)?,
            minor: parts.next().transpose()?,
            patch: parts.next().transpose()?,
        };
        if parts.next().is_some() { Err(error()) } else { Ok(version) }
    }
}

/// Plain digits only: `parse` alone would take `+17`. Leading zeros would not come back from
/// [`Display`](fmt::Display).
fn number(part: &str) -> Option<u32> {
    let plain = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (part == "0" || !part.starts_with('0'))).then(|| part.parse().ok()).flatten()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        for part in [self.minor, self.patch].into_iter().flatten() {
            write!(f, ".{part}")?;
        }
        Ok(())
    }
}

super::text_value!(Version, pattern = PATTERN, max = 10, example = "17");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_version_that_says_more_sorts_after_the_one_that_says_less() {
        let mut versions =
            ["18", "17.10", "17", "17.4", "9.7.4"].map(|text| text.parse::<Version>().unwrap());
        versions.sort();
        assert_eq!(versions.map(|version| version.to_string()), ["9.7.4", "17", "17.4", "17.10", "18"]);
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "0", "latest", "17.", ".4", "17.4.1.2", "+17", "017", "17-alpine", "100", " 17"] {
            let error = text.parse::<Version>().unwrap_err();
            assert!(error.to_string().contains("such as 17"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn versions_come_back_from_their_text(
            major in 1u32..100, minor in proptest::option::of(0u32..1000), patch in 0u32..1000
        ) {
            let version = Version { major, minor, patch: minor.map(|_| patch) };
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,12}") {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string(), text);
            }
        }
    }
}
