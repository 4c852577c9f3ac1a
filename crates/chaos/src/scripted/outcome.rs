//! What is compared of a history: who leads after it, whether that changed, whether anything was lost, whether writes went
//! on, and for how long they did not.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What came of a history that was lived through once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Who leads in the end: the number of an instance.
    pub(crate) leader: usize,
    /// Whether it is another, or leads anew.
    pub(crate) changed: bool,
    /// How many acknowledged writes were lost.
    pub(crate) lost: usize,
    /// Whether writes were acknowledged in the second half of the fault; none where it is over at once.
    pub(crate) wrote: Option<bool>,
    /// The longest time without acknowledged writes, in seconds.
    pub(crate) gap: f64,
}

/// What came of it with many chances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    leaders: BTreeSet<usize>,
    changed: BTreeSet<bool>,
    lost: usize,
    wrote: BTreeSet<bool>,
    gap: (f64, f64),
}

/// What each side measures coarsely by: the pace of its clients, and a machine that others use too.
const COARSE: f64 = 2.0;

impl Range {
    /// All that came.
    pub(crate) fn of(outcomes: &[Outcome]) -> Range {
        let gaps = || outcomes.iter().map(|one| one.gap);
        Range {
            leaders: outcomes.iter().map(|one| one.leader).collect(),
            changed: outcomes.iter().map(|one| one.changed).collect(),
            lost: outcomes.iter().map(|one| one.lost).max().unwrap_or_default(),
            wrote: outcomes.iter().filter_map(|one| one.wrote).collect(),
            gap: (gaps().fold(f64::MAX, f64::min), gaps().fold(0.0, f64::max)),
        }
    }

    /// Why what was seen elsewhere is not one of those, if it is not. Times are compared by their order only: up to
    /// twice as long or half as long is the same.
    pub(crate) fn differs(&self, seen: &Outcome) -> Option<String> {
        let (least, most) = (self.gap.0 / 2.0 - COARSE, self.gap.1 * 2.0 + COARSE);
        if !self.leaders.contains(&seen.leader) {
            Some(format!("another leads: {}", seen.leader))
        } else if !self.changed.contains(&seen.changed) {
            Some(format!("leadership has {}changed", if seen.changed { "" } else { "not " }))
        } else if (seen.lost > 0) != (self.lost > 0) && seen.lost > 0 {
            Some(format!("{} writes are lost", seen.lost))
        } else if seen.wrote.is_some_and(|wrote| !self.wrote.contains(&wrote)) {
            Some(format!("writes {}go on", if seen.wrote == Some(true) { "" } else { "do not " }))
        } else if !(least..=most).contains(&seen.gap) {
            Some(format!("{:.1} s without writes", seen.gap))
        } else {
            None
        }
    }
}

fn yes(word: bool) -> &'static str {
    if word { "yes" } else { "no" }
}

fn either<'a, T: Ord + 'a>(all: impl IntoIterator<Item = &'a T>, word: impl Fn(&T) -> String) -> String {
    let words: Vec<String> = all.into_iter().map(word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join("/") }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { leaders, changed, lost, wrote, gap: (least, most) } = self;
        let leaders = either(leaders, ToString::to_string);
        let changed = either(changed, |word| yes(*word).to_owned());
        let wrote = either(wrote, |word| yes(*word).to_owned());
        write!(f, "leader {leaders} changed {changed} lost {lost} wrote {wrote} gap {least:.1} to {most:.1}")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { leader, changed, lost, wrote, gap } = self;
        let wrote = wrote.map_or("-", yes);
        write!(f, "leader {leader} changed {} lost {lost} wrote {wrote} gap {gap:.1}", yes(*changed))
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["leader", leader, "changed", changed, "lost", lost, "wrote", wrote, "gap", gap] =
            words.as_slice()
        else {
            return Err("it is not `leader N changed WORD lost N wrote WORD gap SECONDS`".to_owned());
        };
        let word = |word: &str| match word {
            "yes" => Ok(Some(true)),
            "no" => Ok(Some(false)),
            "-" => Ok(None),
            other => Err(format!("`{other}` is neither yes nor no")),
        };
        Ok(Outcome {
            leader: leader.parse().map_err(|error| format!("`{leader}`: {error}"))?,
            changed: word(changed)?.ok_or("changed must be yes or no")?,
            lost: lost.parse().map_err(|error| format!("`{lost}`: {error}"))?,
            wrote: word(wrote)?,
            gap: gap.parse().map_err(|error| format!("`{gap}`: {error}"))?,
        })
    }
}

/// Of the table.
pub(crate) fn heading() -> String {
    let titles = "| what happens to instance 0, which leads | | leads then | leadership changed | lost | \
                  writes went on | longest without, s | agree |";
    format!("{titles}\n|---|---|---|---|---:|---|---:|---|")
}

/// Two lines of the table; one where the testbed has shown nothing yet.
pub(crate) fn rows(what: &str, model: &Range, real: Option<&Outcome>, differs: Option<&str>) -> String {
    let Range { leaders, changed, lost, wrote, gap: (least, most) } = model;
    let first = format!(
        "| {what} | simulator | {} | {} | {lost} | {} | {least:.1} to {most:.1} | |",
        either(leaders, ToString::to_string),
        either(changed, |word| yes(*word).to_owned()),
        either(wrote, |word| yes(*word).to_owned()),
    );
    let Some(Outcome { leader, changed, lost, wrote, gap }) = real else { return first };
    let (changed, wrote) = (yes(*changed), wrote.map_or("-", yes));
    let agree = differs.map_or("yes".to_owned(), |why| format!("**no**: {why}"));
    format!("{first}\n| | testbed | {leader} | {changed} | {lost} | {wrote} | {gap:.1} | {agree} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(leader: usize, gap: f64) -> Outcome {
        Outcome { leader, changed: leader != 0, lost: 0, wrote: Some(true), gap }
    }

    #[test]
    fn an_outcome_comes_back_from_its_text() {
        for wrote in [None, Some(true), Some(false)] {
            let one = Outcome { wrote, ..seen(2, 1.5) };
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("leader x changed yes lost 0 wrote - gap 1".parse::<Outcome>().is_err());
    }

    #[test]
    fn one_of_those_that_came_agrees_and_others_do_not() {
        let range = Range::of(&[seen(1, 4.0), seen(2, 8.0)]);
        assert_eq!(range.differs(&seen(1, 5.0)), None);
        assert_eq!(range.differs(&seen(2, 17.0)), None);
        for (other, why) in [
            (seen(0, 5.0), "another leads"),
            (Outcome { changed: false, ..seen(1, 5.0) }, "not changed"),
            (Outcome { lost: 3, ..seen(1, 5.0) }, "3 writes are lost"),
            (Outcome { wrote: Some(false), ..seen(1, 5.0) }, "do not go on"),
            (seen(1, 40.0), "40.0 s without"),
        ] {
            let found = range.differs(&other).unwrap();
            assert!(found.contains(why), "{found}");
        }
        let long = Range::of(&[seen(1, 20.0), seen(1, 22.0)]);
        assert!(long.differs(&seen(1, 2.0)).unwrap().contains("2.0 s"));
    }
}
