//! Lengths of time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// What the schema lets through.
pub(crate) const PATTERN: &str =
    "^[0-9]{1,9} ?(ms|s|m|h|d|w|milliseconds?|seconds?|minutes?|hours?|days?|weeks?)$";

/// What the schema lets through where a rule compares lengths: only what CEL's `duration` reads too.
pub(crate) const SHORT_PATTERN: &str = "^[0-9]{1,7}(ms|s|m|h)$";

/// A length of time: `30d`, `12 weeks`, `720h`, `500ms`. A day has 24 hours, a week 7 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    millis: u64,
}

/// Text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpanError {
    /// No number to begin with.
    #[error(
        "`{found}` is not a length of time: write a whole number and a unit, such as 30d, 12 weeks, 720h or 500ms"
    )]
    NotASpan {
        /// What was written.
        found: String,
    },
    /// A number without unit, or with one that is not a length of time.
    #[error(
        "`{unit}` in `{found}` is not a unit of time: use ms, s, m (minutes), h, d or w, or their full names"
    )]
    Unit {
        /// What was written.
        found: String,
        /// Its unit.
        unit: String,
    },
    /// A number of more than nine digits.
    #[error("`{found}` is too long: use a larger unit, with at most nine digits before it")]
    TooLong {
        /// What was written.
        found: String,
    },
}

/// From the largest down, with the words for one.
const UNITS: [(&str, &str, u64); 6] = [
    ("w", "week", 7 * 24 * 60 * 60 * 1000),
    ("d", "day", 24 * 60 * 60 * 1000),
    ("h", "hour", 60 * 60 * 1000),
    ("m", "minute", 60 * 1000),
    ("s", "second", 1000),
    ("ms", "millisecond", 1),
];

impl Span {
    /// So many thousandths of a second.
    pub const fn millis(count: u32) -> Span {
        Span { millis: count as u64 }
    }

    /// So many seconds.
    pub const fn seconds(count: u32) -> Span {
        Span { millis: count as u64 * 1000 }
    }

    /// So many days of 24 hours.
    pub const fn days(count: u32) -> Span {
        Span { millis: count as u64 * 24 * 60 * 60 * 1000 }
    }

    /// For timers.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.millis == 0
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        if number.is_empty() {
            return Err(SpanError::NotASpan { found: text.to_owned() });
        }
        if number.len() > 9 {
            return Err(SpanError::TooLong { found: text.to_owned() });
        }
        let unit = rest.strip_prefix(' ').unwrap_or(rest);
        let is_it = |(short, one, _): &&(&str, &str, u64)| {
            unit == *short || unit == *one || unit.strip_suffix('s') == Some(*one)
        };
        let Some((_, _, worth)) = UNITS.iter().find(is_it) else {
            return Err(SpanError::Unit { found: text.to_owned(), unit: unit.to_owned() });
        };
        // Nine digits of weeks fit into 64 bits of milliseconds.
        let count: u64 = number.parse().map_err(|_| SpanError::TooLong { found: text.to_owned() })?;
        Ok(Span { millis: count * worth })
    }
}

impl fmt::Display for Span {
    /// In the largest unit that needs no fraction, except that weeks stay days, as people count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |worth: u64| {
            self.millis >= worth && self.millis.is_multiple_of(worth) && self.millis / worth <= 999_999_999
        };
        // Weeks are used only where days would need more digits than may be written.
        let (weeks, smaller) = UNITS.split_at(1);
        match smaller.iter().chain(weeks).find(|(_, _, worth)| fits(*worth)) {
            Some((unit, _, worth)) => write!(f, "{}{unit}", self.millis / worth),
            None => f.write_str("0s"),
        }
    }
}

super::text_value!(Span, pattern = PATTERN, max = 24, example = "30d");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(text: &str) -> Span {
        text.parse().unwrap()
    }

    #[test]
    fn the_same_length_can_be_written_in_many_ways() {
        for text in ["30d", "720h", "30 days", "43200 minutes", "2592000s"] {
            assert_eq!(span(text), Span::days(30), "{text}");
        }
        assert_eq!(span("12 weeks"), Span::days(84));
        assert_eq!(span("1 week"), span("7d"));
        assert_eq!(span("12 weeks").to_string(), "84d");
        assert!(span("90s") > span("1m"));
        assert_eq!(span("1500ms").duration(), Duration::from_millis(1500));
    }

    #[test]
    fn what_is_no_length_is_refused_with_what_would_be_one() {
        for (text, says) in [
            ("", "such as 30d"),
            ("soon", "such as 30d"),
            ("-1d", "such as 30d"),
            ("30", "not a unit of time"),
            ("30 moons", "`moons`"),
            ("1.5h", "`.5h`"),
            ("1h30m", "`h30m`"),
            ("3 ss", "`ss`"),
            ("1234567890s", "larger unit"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn spans_come_back_from_their_text(count in 0u64..1_000_000_000, unit in 0usize..6, long: bool) {
            let (short, one, worth) = UNITS[unit];
            let span = Span { millis: count * worth };
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            let written = if long { format!("{count} {one}s") } else { format!("{count}{short}") };
            prop_assert_eq!(written.parse(), Ok(span));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,24}") {
            if let Ok(span) = text.parse::<Span>() {
                prop_assert_eq!(span.to_string().parse(), Ok(span));
            }
        }
    }
}
