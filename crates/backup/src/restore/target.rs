//! Which backup brings a database back to where a person wants it: a decision without IO.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::catalogue::{Backup, Catalogue};
use crate::history::History;
use crate::lsn::Lsn;
use crate::wal::{Segment, SegmentSize};

/// Where a database is to be brought back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// As far as the log goes.
    Latest,
    /// A moment: everything that was committed up to then.
    Time(Timestamp),
    /// A position in the log.
    Lsn(Lsn),
    /// A point that was given a name.
    Name(String),
    /// The end of the newest backup, with as little log as will do.
    Immediate,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Latest => f.write_str("the latest"),
            Target::Time(time) => write!(f, "{time}"),
            Target::Lsn(lsn) => write!(f, "{lsn}"),
            Target::Name(name) => write!(f, "the point `{name}`"),
            Target::Immediate => f.write_str("the end of the newest backup"),
        }
    }
}

/// What is to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The backups to lay over each other, the full one first.
    pub chain: Vec<Backup>,
    /// Which timeline recovery follows.
    pub timeline: u32,
    /// Where to.
    pub target: Target,
    /// What would have been possible.
    pub window: Window,
}

/// Between which points any can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// On which timeline.
    pub timeline: u32,
    /// The first moment.
    pub first: Timestamp,
    /// Its position.
    pub first_lsn: Lsn,
    /// The last moment of which it is certain that the log is there.
    pub last: Timestamp,
    /// The position up to which it is.
    pub last_lsn: Lsn,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { timeline, first, first_lsn, last, last_lsn } = self;
        write!(f, "from {first} ({first_lsn}) to {last} ({last_lsn}) on timeline {timeline}")
    }
}

/// Why it can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing can be restored at all.
    #[error("nothing can be restored on timeline {timeline}: {reason}")]
    Nothing {
        /// Which was looked at.
        timeline: u32,
        /// Why.
        reason: String,
    },
    /// Before the first backup.
    #[error("{target} is before the first backup was complete. Possible is {window}")]
    TooEarly {
        /// What was wanted.
        target: Target,
        /// What is possible.
        window: Box<Window>,
    },
    /// Behind the end of the log.
    #[error("{target} is behind what was archived. Possible is {window}")]
    TooLate {
        /// What was wanted.
        target: Target,
        /// What is possible.
        window: Box<Window>,
    },
    /// The log has a hole before it.
    #[error(
        "the log lacks the segment {missing} on the way from `{backup}` to {target}. Possible is {window}"
    )]
    Gap {
        /// What was wanted.
        target: Target,
        /// What is missing.
        missing: String,
        /// From where.
        backup: String,
        /// What is possible from there.
        window: Box<Window>,
    },
    /// Nobody knows the name.
    #[error("no point `{name}` is known. Known are: {known}. Possible by time or position is {window}")]
    NoSuchPoint {
        /// What was wanted.
        name: String,
        /// What there is.
        known: String,
        /// What is possible.
        window: Box<Window>,
    },
    /// On a branch that was left.
    #[error(
        "{target} is on timeline {on}, which is no part of the history of timeline {timeline}. Ask for timeline {on}"
    )]
    OtherTimeline {
        /// What was wanted.
        target: Target,
        /// Where it is.
        on: u32,
        /// What was looked at.
        timeline: u32,
    },
    /// The backup needs one that is gone.
    #[error("`{backup}` builds on `{missing}`, which is gone")]
    BrokenChain {
        /// Which.
        backup: String,
        /// What it needs.
        missing: String,
    },
}

/// Stores tell when something was stored in whole seconds, and what they leave out is less than this.
const WHOLE_SECONDS: SignedDuration = SignedDuration::from_secs(1);

/// A backup that can be used, and how far one gets from it.
struct Usable<'a> {
    backup: &'a Backup,
    end: Lsn,
    last: Timestamp,
    missing: Segment,
    gap: bool,
}

/// Decides. `timeline` is that of the end of the way; the latest unless somebody says otherwise.
pub fn choose(
    catalogue: &Catalogue,
    size: SegmentSize,
    target: &Target,
    timeline: Option<u32>,
) -> Result<Choice, Refusal> {
    let latest = || {
        let backups = catalogue.backups.iter().map(|backup| backup.timeline);
        let known = backups.chain(catalogue.histories.keys().copied()).chain(catalogue.log.latest_timeline());
        known.max().unwrap_or(1)
    };
    let timeline = timeline.unwrap_or_else(latest);
    let first = History::first(timeline);
    let history = catalogue.histories.get(&timeline).unwrap_or(&first);
    let usable = usable(catalogue, history, size);
    let window = window(&usable, timeline).ok_or_else(|| nothing(catalogue, history, timeline))?;
    let position = match target {
        Target::Lsn(lsn) => Some(*lsn),
        Target::Name(name) => Some(point(catalogue, name, history, &window)?),
        Target::Latest | Target::Time(_) | Target::Immediate => None,
    };
    let before = |usable: &&Usable<'_>| match (target, position) {
        (_, Some(lsn)) => usable.backup.finish <= lsn,
        (Target::Time(time), _) => usable.backup.finished <= *time,
        _ => true,
    };
    let early = || Refusal::TooEarly { target: target.clone(), window: Box::new(window.clone()) };
    let best = usable.iter().rfind(before).ok_or_else(early)?;
    let beyond = match (target, position) {
        (_, Some(lsn)) => lsn > best.end,
        // Within what a store leaves out of its times, the replay itself finds out.
        (Target::Time(time), _) => time.duration_since(best.last) >= WHOLE_SECONDS,
        (Target::Latest, _) => best.gap,
        _ => false,
    };
    if beyond && best.gap {
        return Err(Refusal::Gap {
            target: target.clone(),
            missing: best.missing.name(size),
            backup: best.backup.name.clone(),
            window: Box::new(self::window(std::slice::from_ref(best), timeline).unwrap_or(window)),
        });
    }
    if beyond {
        return Err(Refusal::TooLate { target: target.clone(), window: Box::new(window) });
    }
    let chain = chain(&catalogue.backups, best.backup)?;
    Ok(Choice { chain, timeline, target: target.clone(), window })
}

/// The backups from which this timeline can be reached at all, oldest first.
fn usable<'a>(catalogue: &'a Catalogue, history: &History, size: SegmentSize) -> Vec<Usable<'a>> {
    let fit = catalogue.backups.iter().filter(|backup| history.has(backup.timeline, backup.finish));
    let found = fit.filter_map(|backup| {
        let reach = catalogue.log.reach(&history.path(backup.timeline, backup.start, size))?;
        let end = reach.missing.start(size);
        // Its own log must be there, or it is no backup.
        let last = reach.newest.filter(|_| end >= backup.finish)?.max(backup.finished);
        Some(Usable { backup, end, last, missing: reach.missing, gap: reach.gap })
    });
    found.collect()
}

fn window(usable: &[Usable<'_>], timeline: u32) -> Option<Window> {
    let (first, last) = (usable.first()?, usable.last()?);
    Some(Window {
        timeline,
        first: first.backup.finished,
        first_lsn: first.backup.finish,
        last: last.last,
        last_lsn: last.end,
    })
}

fn nothing(catalogue: &Catalogue, history: &History, timeline: u32) -> Refusal {
    let fit = catalogue.backups.iter().any(|backup| history.has(backup.timeline, backup.finish));
    let reason = match (catalogue.backups.is_empty(), fit) {
        (true, _) => "there is no backup".to_owned(),
        (false, false) => {
            let others: Vec<String> =
                catalogue.backups.iter().map(|backup| backup.timeline.to_string()).collect();
            format!("all backups are on timelines that are no part of its history ({})", others.join(", "))
        }
        (false, true) => "the log that the backups need is not there".to_owned(),
    };
    Refusal::Nothing { timeline, reason }
}

fn point(catalogue: &Catalogue, name: &str, history: &History, window: &Window) -> Result<Lsn, Refusal> {
    let found =
        catalogue.points.get(name).and_then(|point| Some((point.timeline, point.lsn.parse::<Lsn>().ok()?)));
    let Some((on, lsn)) = found else {
        let known: Vec<&str> = catalogue.points.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Refusal::NoSuchPoint { name: name.to_owned(), known, window: Box::new(window.clone()) });
    };
    if !history.has(on, lsn) {
        let target = Target::Name(name.to_owned());
        return Err(Refusal::OtherTimeline { target, on, timeline: history.timeline() });
    }
    Ok(lsn)
}

/// A backup and all that it builds on, the full one first.
pub(crate) fn chain(backups: &[Backup], last: &Backup) -> Result<Vec<Backup>, Refusal> {
    let by_name: BTreeMap<&str, &Backup> =
        backups.iter().map(|backup| (backup.name.as_str(), backup)).collect();
    let mut chain = vec![last.clone()];
    let mut parent = last.parent.as_deref();
    while let Some(name) = parent {
        let broken = || Refusal::BrokenChain { backup: last.name.clone(), missing: name.to_owned() };
        let below = by_name.get(name).ok_or_else(broken)?;
        // One that builds on itself, over whatever detour, has no beginning.
        if chain.len() > backups.len() {
            return Err(broken());
        }
        chain.push((*below).clone());
        parent = below.parent.as_deref();
    }
    chain.reverse();
    Ok(chain)
}

/// The settings that recovery needs, besides a `restore_command` and a `recovery.signal`.
pub fn recovery_settings(choice: &Choice) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("recovery_target_timeline", choice.timeline.to_string()),
        ("recovery_target_action", "promote".to_owned()),
    ];
    match &choice.target {
        Target::Latest => (),
        Target::Time(time) => {
            let text = time.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string();
            settings.push(("recovery_target_time", text));
        }
        Target::Lsn(lsn) => settings.push(("recovery_target_lsn", lsn.to_string())),
        Target::Name(name) => settings.push(("recovery_target_name", name.clone())),
        Target::Immediate => settings.push(("recovery_target", "immediate".to_owned())),
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Point;

    const SIZE: SegmentSize = SegmentSize::DEFAULT;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A position in a segment.
    fn inside(number: u64) -> Lsn {
        Lsn(number * SIZE.bytes() + 0x100)
    }

    fn backup(timeline: u32, number: u64, parent: Option<&Backup>) -> Backup {
        let name = Segment { timeline, number }.name(SIZE);
        Backup {
            name: format!("base_{name}"),
            timeline,
            start: Lsn(number * SIZE.bytes() + 0x28),
            finish: inside(number),
            started: at(number as i64 * 10),
            finished: at(number as i64 * 10 + 1),
            parent: parent.map(|parent| parent.name.clone()),
            depth: 0,
            version: 170_004,
            size: 0,
            stored: 0,
            permanent: false,
            manifest: None,
        }
    }

    /// Segments are stored ten seconds apart.
    fn log(segments: &[(u32, u64)]) -> crate::coverage::Coverage {
        let stored = |(timeline, number): &(u32, u64)| {
            (Segment { timeline: *timeline, number: *number }, at(*number as i64 * 10 + 9))
        };
        segments.iter().map(stored).collect()
    }

    fn simple() -> Catalogue {
        let first = backup(1, 2, None);
        let second = backup(1, 4, Some(&first));
        Catalogue {
            backups: vec![first, second],
            log: log(&[(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)]),
            ..Catalogue::default()
        }
    }

    fn names(choice: &Choice) -> Vec<u64> {
        choice.chain.iter().map(|backup| backup.start.0 / SIZE.bytes()).collect()
    }

    fn chosen(catalogue: &Catalogue, target: Target) -> Result<Vec<u64>, Refusal> {
        choose(catalogue, SIZE, &target, None).map(|choice| names(&choice))
    }

    #[test]
    fn the_newest_backup_before_the_target_is_taken_with_all_that_it_builds_on() {
        let catalogue = simple();
        assert_eq!(chosen(&catalogue, Target::Latest), Ok(vec![2, 4]));
        assert_eq!(chosen(&catalogue, Target::Immediate), Ok(vec![2, 4]));
        assert_eq!(chosen(&catalogue, Target::Time(at(30))), Ok(vec![2]));
        assert_eq!(chosen(&catalogue, Target::Time(at(41))), Ok(vec![2, 4]));
        assert_eq!(chosen(&catalogue, Target::Lsn(inside(3))), Ok(vec![2]));
        assert_eq!(chosen(&catalogue, Target::Lsn(inside(6))), Ok(vec![2, 4]));
    }

    #[test]
    fn what_is_outside_of_the_window_is_refused_with_the_window() {
        let catalogue = simple();
        for early in [Target::Time(at(20)), Target::Lsn(Lsn(2 * SIZE.bytes()))] {
            let refusal = chosen(&catalogue, early).unwrap_err();
            assert!(
                matches!(&refusal, Refusal::TooEarly { window, .. } if window.first == at(21)),
                "{refusal}"
            );
        }
        let within = at(69) + SignedDuration::from_millis(999);
        assert_eq!(
            chosen(&catalogue, Target::Time(within)),
            Ok(vec![2, 4]),
            "it was stored within this second"
        );
        for late in [Target::Time(at(70)), Target::Lsn(inside(7))] {
            let refusal = chosen(&catalogue, late).unwrap_err();
            assert!(
                matches!(&refusal, Refusal::TooLate { window, .. } if window.last == at(69)),
                "{refusal}"
            );
            assert!(refusal.to_string().contains("from 1970-01-01T00:00:21Z"), "{refusal}");
        }
    }

    #[test]
    fn a_gap_is_not_the_end() {
        let mut catalogue = simple();
        catalogue.log = log(&[(1, 2), (1, 3), (1, 4), (1, 6)]);
        assert_eq!(chosen(&catalogue, Target::Lsn(inside(4))), Ok(vec![2, 4]));
        assert_eq!(chosen(&catalogue, Target::Time(at(49))), Ok(vec![2, 4]), "before the gap");
        for beyond in [Target::Latest, Target::Lsn(inside(6)), Target::Time(at(60))] {
            let refusal = chosen(&catalogue, beyond).unwrap_err();
            assert!(matches!(&refusal, Refusal::Gap { missing, .. } if missing.ends_with("05")), "{refusal}");
        }
    }

    #[test]
    fn a_backup_without_its_log_is_none() {
        let mut catalogue = simple();
        catalogue.log = log(&[(1, 2), (1, 3)]);
        assert_eq!(chosen(&catalogue, Target::Immediate), Ok(vec![2]));
        catalogue.log = log(&[]);
        assert!(matches!(chosen(&catalogue, Target::Latest), Err(Refusal::Nothing { .. })));
        assert!(matches!(chosen(&Catalogue::default(), Target::Latest), Err(Refusal::Nothing { .. })));
    }

    #[test]
    fn the_latest_timeline_is_followed_and_what_was_lost_on_another_is_not() {
        let mut catalogue = simple();
        // Left in the middle of segment 5: the second backup is a part of it, and segment 6 of the first is not.
        catalogue.histories.insert(2, History::parse(2, "1\t0/5000100\tfailover\n").unwrap());
        catalogue.log = log(&[(1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6), (2, 7)]);
        let latest = choose(&catalogue, SIZE, &Target::Latest, None).unwrap();
        assert_eq!((latest.timeline, names(&latest)), (2, vec![2, 4]));
        assert_eq!(latest.window.last_lsn, Lsn(8 * SIZE.bytes()));
        let old = choose(&catalogue, SIZE, &Target::Lsn(inside(6)), Some(1)).unwrap();
        assert_eq!(old.timeline, 1);
        let lost =
            Point { name: "lost".into(), timeline: 1, lsn: inside(6).to_string(), made: String::new() };
        catalogue.points.insert("lost".into(), lost);
        let refusal = chosen(&catalogue, Target::Name("lost".into())).unwrap_err();
        assert!(matches!(refusal, Refusal::OtherTimeline { on: 1, timeline: 2, .. }), "{refusal}");
        // Taken on the branch that was left, and so of no use on the other.
        catalogue.backups.push(backup(1, 6, None));
        assert_eq!(chosen(&catalogue, Target::Latest), Ok(vec![2, 4]));
        let nothing = choose(
            &Catalogue { backups: vec![backup(1, 6, None)], ..catalogue },
            SIZE,
            &Target::Latest,
            Some(2),
        );
        assert!(matches!(nothing, Err(Refusal::Nothing { .. })));
    }

    #[test]
    fn a_named_point_is_found_or_the_known_ones_are_named() {
        let mut catalogue = simple();
        let point = Point {
            name: "before-release".into(),
            timeline: 1,
            lsn: inside(3).to_string(),
            made: String::new(),
        };
        catalogue.points.insert(point.name.clone(), point);
        assert_eq!(chosen(&catalogue, Target::Name("before-release".into())), Ok(vec![2]));
        let refusal = chosen(&catalogue, Target::Name("befor-release".into())).unwrap_err();
        assert!(refusal.to_string().contains("Known are: before-release"), "{refusal}");
    }

    #[test]
    fn a_chain_without_its_beginning_is_refused() {
        let mut catalogue = simple();
        catalogue.backups.remove(0);
        assert!(matches!(chosen(&catalogue, Target::Latest), Err(Refusal::BrokenChain { .. })));
        let mut circle = simple();
        let last = circle.backups[1].name.clone();
        circle.backups[0].parent = Some(last);
        assert!(matches!(chosen(&circle, Target::Latest), Err(Refusal::BrokenChain { .. })));
    }

    #[test]
    fn recovery_is_told_in_postgresqls_words() {
        let catalogue = simple();
        let choice = choose(&catalogue, SIZE, &Target::Time(at(45)), None).unwrap();
        let settings = recovery_settings(&choice);
        assert!(
            settings.contains(&("recovery_target_time", "1970-01-01 00:00:45.000000+00".into())),
            "{settings:?}"
        );
        assert!(settings.contains(&("recovery_target_timeline", "1".into())), "{settings:?}");
    }
}
