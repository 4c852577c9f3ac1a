//! When something happens again and again.

use std::fmt;
use std::str::FromStr;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use thiserror::Error;

/// What the schema lets through: five fields, with a time zone before them if need be.
pub(crate) const PATTERN: &str = concat!(
    r"^(CRON_TZ=[A-Za-z0-9_+/-]{1,64} )?",
    r"(@(hourly|daily|weekly|monthly|yearly)|[0-9A-Za-z*,/-]+( [0-9A-Za-z*,/-]+){4})$"
);

/// A cron expression with a time zone: `0 2 * * *`, or `CRON_TZ=Europe/Berlin 0 2 * * *`. Five
/// fields: minute, hour, day of the month, month, day of the week; `@daily` and its like are known.
/// Without a zone it is UTC.
///
/// When clocks change, a time that happens twice fires once and one that is skipped fires right after
/// the gap, unless the field is a `*` or a step, which then keeps its pace.
#[derive(Debug, Clone)]
pub struct Schedule {
    text: String,
    cron: Cron,
    zone: Option<String>,
    time_zone: TimeZone,
}

/// Text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// Too few or too many fields.
    #[error(
        "`{found}` has {count} fields: a schedule has five (minute, hour, day of month, month, day of week), such as `0 2 * * *` for every night at two"
    )]
    Fields {
        /// What was written.
        found: String,
        /// How many fields that has.
        count: usize,
    },
    /// A number that its field can't have.
    #[error("{value} in the {field} field of `{found}` is out of range: it goes from {least} to {most}")]
    Range {
        /// What was written.
        found: String,
        /// Which of the five.
        field: &'static str,
        /// The number.
        value: u64,
        /// The smallest that is possible.
        least: u32,
        /// The largest that is possible.
        most: u32,
    },
    /// A range that ends before it begins.
    #[error(
        "{from}-{to} in the {field} field of `{found}` goes backwards: write the smaller number first, or two ranges with a comma"
    )]
    Backwards {
        /// What was written.
        found: String,
        /// Which of the five.
        field: &'static str,
        /// Its first number.
        from: u32,
        /// Its last number.
        to: u32,
    },
    /// Something that is not a number, range, step or name.
    #[error(
        "`{part}` in the {field} field of `{found}` can't be read: use *, a number from {least} to {most}, a range such as {least}-{most}, a step such as */2, or a list with commas"
    )]
    Part {
        /// What was written.
        found: String,
        /// Which of the five.
        field: &'static str,
        /// The part of it.
        part: String,
        /// The smallest that is possible.
        least: u32,
        /// The largest that is possible.
        most: u32,
    },
    /// A word with an `@` that is not known.
    #[error(
        "`{found}` is not known: use @hourly, @daily, @weekly, @monthly, @yearly or five fields such as `0 2 * * *`"
    )]
    Nickname {
        /// What was written.
        found: String,
    },
    /// A time zone that is not in the database of time zones.
    #[error("`{zone}` is not a time zone: use a name such as UTC, Europe/Berlin or America/New_York")]
    Zone {
        /// What was written.
        zone: String,
    },
    /// A zone in the text and one beside it.
    #[error("the time zone is given twice, as {inside} in the schedule and as {beside} beside it: keep one")]
    TwoZones {
        /// The one in the text.
        inside: String,
        /// The one beside it.
        beside: String,
    },
    /// A day that never comes, such as the 30th of February.
    #[error("`{found}` never happens: {reason}")]
    Never {
        /// What was written.
        found: String,
        /// What stands in the way.
        reason: String,
    },
}

struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
    first_name: u32,
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[], first_name: 0 },
    Field { name: "hour", least: 0, most: 23, names: &[], first_name: 0 },
    Field { name: "day of month", least: 1, most: 31, names: &[], first_name: 0 },
    Field { name: "month", least: 1, most: 12, names: MONTHS, first_name: 1 },
    // 7 is Sunday as well.
    Field { name: "day of week", least: 0, most: 7, names: DAYS, first_name: 0 },
];

const NICKNAMES: [&str; 5] = ["@hourly", "@daily", "@weekly", "@monthly", "@yearly"];

impl Schedule {
    /// Reads text, in a zone that stands beside it if there is one.
    pub fn in_zone(text: &str, beside: Option<&str>) -> Result<Schedule, ScheduleError> {
        let (inside, expression) = match text.strip_prefix("CRON_TZ=").and_then(|rest| rest.split_once(' ')) {
            Some((zone, expression)) => (Some(zone), expression),
            None => (None, text),
        };
        if let (Some(inside), Some(beside)) = (inside, beside)
            && inside != beside
        {
            return Err(ScheduleError::TwoZones { inside: inside.to_owned(), beside: beside.to_owned() });
        }
        let zone = inside.or(beside);
        check(expression)?;
        let never = |reason: String| ScheduleError::Never { found: expression.to_owned(), reason };
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| never(error.to_string()))?;
        let schedule = Schedule {
            text: expression.to_owned(),
            cron,
            zone: zone.map(str::to_owned),
            time_zone: zone.map_or(Ok(TimeZone::UTC), time_zone)?,
        };
        match schedule.next_after(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(schedule),
            None => Err(never("no month has such a day".to_owned())),
        }
    }

    /// The first time after `moment`, if there is one.
    pub fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
        let start = moment.to_zoned(self.time_zone.clone());
        self.cron.find_next_occurrence(&start, false).ok().map(|next| next.timestamp())
    }

    /// The last time before `moment`, to see whether one was missed.
    pub fn last_before(&self, moment: Timestamp) -> Option<Timestamp> {
        let start = moment.to_zoned(self.time_zone.clone());
        self.cron.find_previous_occurrence(&start, false).ok().map(|last| last.timestamp())
    }

    /// The zone that was named.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

/// From the database that is built in: an image from scratch has none on its disk.
fn time_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    TimeZoneDatabase::bundled().get(name).map_err(|_| ScheduleError::Zone { zone: name.to_owned() })
}

/// Finds what is wrong, in the words of the five fields. The cron crate reads the expression
/// afterwards; its own messages name neither the field nor the range.
fn check(expression: &str) -> Result<(), ScheduleError> {
    if expression.starts_with('@') {
        let known = NICKNAMES.contains(&expression);
        return if known { Ok(()) } else { Err(ScheduleError::Nickname { found: expression.to_owned() }) };
    }
    let parts: Vec<&str> = expression.split_ascii_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(ScheduleError::Fields { found: expression.to_owned(), count: parts.len() });
    }
    for (field, list) in FIELDS.iter().zip(parts) {
        for part in list.split(',') {
            field.check(part, expression)?;
        }
    }
    Ok(())
}

impl Field {
    fn check(&self, part: &str, expression: &str) -> Result<(), ScheduleError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if let Some(step) = step {
            // A step on a single number means nothing in the original cron.
            let steps = self.number(step, part, expression)?;
            if steps == 0 || !(range == "*" || range.contains('-')) {
                return Err(self.unreadable(part, expression));
            }
        }
        if range == "*" {
            return Ok(());
        }
        let Some((from, to)) = range.split_once('-') else {
            return self.value(range, part, expression).map(drop);
        };
        let (from, to) = (self.value(from, part, expression)?, self.value(to, part, expression)?);
        if from <= to {
            return Ok(());
        }
        Err(ScheduleError::Backwards { found: expression.to_owned(), field: self.name, from, to })
    }

    fn value(&self, text: &str, part: &str, expression: &str) -> Result<u32, ScheduleError> {
        if let Some(index) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.first_name + u32::try_from(index).unwrap_or_default());
        }
        let value = self.number(text, part, expression)?;
        match u32::try_from(value) {
            Ok(value) if (self.least..=self.most).contains(&value) => Ok(value),
            _ => Err(ScheduleError::Range {
                found: expression.to_owned(),
                field: self.name,
                value,
                least: self.least,
                most: self.most,
            }),
        }
    }

    fn number(&self, text: &str, part: &str, expression: &str) -> Result<u64, ScheduleError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| self.unreadable(part, expression))
    }

    fn unreadable(&self, part: &str, expression: &str) -> ScheduleError {
        ScheduleError::Part {
            found: expression.to_owned(),
            field: self.name,
            part: part.to_owned(),
            least: self.least,
            most: self.most,
        }
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Schedule::in_zone(text, None)
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone == other.zone
    }
}

impl Eq for Schedule {}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(zone) = &self.zone {
            write!(f, "CRON_TZ={zone} ")?;
        }
        f.write_str(&self.text)
    }
}

super::text_value!(Schedule, pattern = PATTERN, max = 128, example = "0 2 * * *");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, says) in [
            ("61 * * * *", "61 in the minute field of `61 * * * *` is out of range: it goes from 0 to 59"),
            ("0 24 * * *", "24 in the hour field of `0 24 * * *` is out of range: it goes from 0 to 23"),
            ("0 0 0 * *", "0 in the day of month field"),
            ("0 0 * 13 *", "it goes from 1 to 12"),
            ("0 0 * * 8", "it goes from 0 to 7"),
            ("0 2 * *", "has 4 fields: a schedule has five"),
            ("0 0 2 * * *", "has 6 fields"),
            ("", "has 0 fields"),
            ("0 9-5 * * *", "9-5 in the hour field of `0 9-5 * * *` goes backwards"),
            ("0/5 * * * *", "`0/5` in the minute field"),
            ("*/0 * * * *", "`*/0` in the minute field"),
            ("0 2 * * someday", "`someday` in the day of week field"),
            ("0 2 , * *", "`` in the day of month field"),
            ("@fortnightly", "use @hourly, @daily"),
            ("CRON_TZ=Mars/Olympus 0 2 * * *", "`Mars/Olympus` is not a time zone"),
            ("0 0 30 2 *", "never happens"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_zone_beside_the_text_is_the_same_as_one_in_it() {
        let beside = Schedule::in_zone("0 2 * * *", Some("Europe/Berlin")).unwrap();
        assert_eq!(beside, "CRON_TZ=Europe/Berlin 0 2 * * *".parse().unwrap());
        let twice = Schedule::in_zone("CRON_TZ=UTC 0 2 * * *", Some("Europe/Berlin"));
        assert!(twice.unwrap_err().to_string().contains("given twice"));
    }

    #[test]
    fn the_next_and_the_last_time_follow_the_zone() {
        let nightly = Schedule::in_zone("0 2 * * *", Some("America/New_York")).unwrap();
        assert_eq!(nightly.next_after(at("2026-01-15T12:00:00Z")), Some(at("2026-01-16T07:00:00Z")));
        assert_eq!(nightly.last_before(at("2026-01-15T12:00:00Z")), Some(at("2026-01-15T07:00:00Z")));
    }

    #[test]
    fn a_schedule_fires_once_when_clocks_change() {
        // On 29 March 2026 Berlin has no 02:30; on 25 October it has two.
        let nightly = Schedule::in_zone("30 2 * * *", Some("Europe/Berlin")).unwrap();
        for (day, first) in [("2026-03-28", "2026-03-29T01:00:00Z"), ("2026-10-24", "2026-10-25T00:30:00Z")] {
            let mut moment = at(&format!("{day}T12:00:00Z"));
            let end = moment + jiff::SignedDuration::from_hours(72);
            let mut fired = Vec::new();
            while let Some(next) = nightly.next_after(moment).filter(|next| *next <= end) {
                fired.push(next);
                moment = next;
            }
            assert_eq!(fired.len(), 3, "{day}: {fired:?}");
            assert_eq!(fired[0], at(first), "right after the gap, or at the first of the two");
        }
    }

    #[test]
    fn names_steps_lists_and_nicknames_are_read() {
        for text in ["0 */6 * * *", "0,30 8-18/2 * * mon-fri", "15 3 1 JAN,jul *", "@daily", "0 0 * * 7"] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn schedules_come_back_from_their_text(
            minute in 0u32..60, hour in 0u32..24, day in 1u32..29, step in 1u32..12, zone: bool
        ) {
            let zone = zone.then_some("Asia/Tokyo");
            let schedule = Schedule::in_zone(&format!("{minute} {hour} {day} */{step} *"), zone).unwrap();
            prop_assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }

        #[test]
        fn what_comes_next_comes_after(minute in 0u32..60, hour in 0u32..24, seconds in 0i64..4_000_000_000) {
            let schedule: Schedule = format!("{minute} {hour} * * *").parse().unwrap();
            let moment = Timestamp::from_second(seconds).unwrap();
            let next = schedule.next_after(moment).unwrap();
            prop_assert!(next > moment && next.as_second() - seconds <= 24 * 60 * 60);
            prop_assert!(schedule.last_before(next).unwrap() <= moment);
        }

        #[test]
        fn no_text_is_too_odd(text in "[0-9a-z*/, @=-]{0,20}") {
            let _ = text.parse::<Schedule>();
        }
    }
}
