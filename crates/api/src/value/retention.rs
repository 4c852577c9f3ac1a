//! How long, or how many, backups are kept.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Span, SpanError};

/// What the schema lets through: a length of time or a count.
pub(crate) const PATTERN: &str = "^[0-9]{1,9} ?(h|d|w|hours?|days?|weeks?)$|^[1-9][0-9]{0,4}( ?backups?)?$";

/// `30d` keeps whatever a restore to any moment of the last 30 days needs; `10` or `10 backups` keeps
/// the last ten backups and the log since the oldest of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retention {
    /// Keep what is this young.
    For(Span),
    /// Keep this many backups.
    Count(u32),
}

/// Text that does not say how long to keep backups.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RetentionError {
    /// Neither a length of time nor a count.
    #[error("{0}; or how many backups to keep, such as `10 backups`")]
    Span(#[from] SpanError),
    /// Nothing at all would be kept.
    #[error("`{found}` would keep no backup at all: keep at least an hour's worth, or one backup")]
    Nothing {
        /// What was written.
        found: String,
    },
}

impl Retention {
    /// What holds when the spec is silent.
    pub const DEFAULT: Retention = Retention::For(Span::days(30));
}

impl FromStr for Retention {
    type Err = RetentionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nothing = || RetentionError::Nothing { found: text.to_owned() };
        let number = text.strip_suffix("backups").or_else(|| text.strip_suffix("backup")).unwrap_or(text);
        let number =
            if number.len() < text.len() { number.strip_suffix(' ').unwrap_or(number) } else { number };
        let digits =
            !number.is_empty() && number.len() <= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(count) = digits.then(|| number.parse().ok()).flatten() {
            return if count == 0 { Err(nothing()) } else { Ok(Retention::Count(count)) };
        }
        let span: Span = text.parse()?;
        if span < Span::seconds(60 * 60) { Err(nothing()) } else { Ok(Retention::For(span)) }
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::For(span) => span.fmt(f),
            Retention::Count(1) => f.write_str("1 backup"),
            Retention::Count(count) => write!(f, "{count} backups"),
        }
    }
}

super::text_value!(Retention, pattern = PATTERN, max = 24, example = "30d");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn backups_are_kept_by_age_or_by_number() {
        for (text, means) in [
            ("30d", Retention::For(Span::days(30))),
            ("12 weeks", Retention::For(Span::days(84))),
            ("10", Retention::Count(10)),
            ("10 backups", Retention::Count(10)),
            ("1 backup", Retention::Count(1)),
        ] {
            assert_eq!(text.parse(), Ok(means), "{text}");
        }
    }

    #[test]
    fn what_keeps_nothing_is_refused() {
        for (text, says) in [
            ("0", "keep no backup"),
            ("0d", "keep no backup"),
            ("30s", "keep no backup"),
            ("for ever", "10 backups"),
        ] {
            let error = text.parse::<Retention>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn retentions_come_back_from_their_text(count in 1u32..100_000, days in 1u32..100_000) {
            for retention in [Retention::Count(count), Retention::For(Span::days(days))] {
                prop_assert_eq!(retention.to_string().parse(), Ok(retention));
            }
        }
    }
}
