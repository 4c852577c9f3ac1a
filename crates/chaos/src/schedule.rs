//! What is done when, drawn from a seed: bursts of trouble that overlap, such that what is promised must hold all the
//! same. A schedule is a value that can be printed, and the same for the same seed.
//!
//! What is not drawn together, because a promise would be void or the testbed can't do it:
//!
//! - Where a copy of the data is lost (`volume lost`, `volume fails with EIO`), nothing else happens to that database in
//!   the same burst. A commit is on a majority of the disks; one copy less, and it may be on one alone. What strikes that
//!   one too loses what was acknowledged, as `docs/failover.md` says: one is lost, and the next after it was replaced.
//! - The disk of the primary does not fail with EIO where commits wait for nobody: what is known to be open
//!   (`docs/reliability.md`) is that it keeps the others from being elected.
//! - What is asked of the API server is not drawn where that is away: it would not happen.
//! - A node has one thing wrong with it at a time, and none of its processes is stopped, and its volumes left alone,
//!   while one of its volumes is frozen or mounted anew: what waits for a frozen disk can't be stopped.
//! - One thing at a time is wanted of a database by a person.
//!
//! Everything else overlaps. Two nodes may be away at once: then nobody may be able to write until they are back, and all
//! else still has to hold.

use std::collections::VecDeque;
use std::fmt;

use keelson_sim::chance::Chance;
use testbed::Node;

use crate::cast::Database;
use crate::trouble::{ALL, Kind, Role, Scope, Target, Trouble};

/// How many nodes have databases on them.
pub(crate) const NODES: u8 = 3;

/// Trouble that comes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Which one it is, from 1 on.
    pub(crate) number: usize,
    /// What happens, in order.
    pub(crate) troubles: Vec<Trouble>,
}

/// All that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// What it follows from.
    pub(crate) seed: u64,
    /// One after another, with a rest in between.
    pub(crate) bursts: Vec<Burst>,
}

impl Schedule {
    /// The first so many bursts of a seed.
    pub(crate) fn draw(seed: u64, databases: &[Database], bursts: usize) -> Schedule {
        let mut chance = Chance::new(seed, 1);
        let mut bag = VecDeque::new();
        let bursts = (1..=bursts).map(|number| draw_burst(number, databases, &mut bag, &mut chance));
        Schedule { seed, bursts: bursts.collect() }
    }
}

/// Kinds are taken from a bag with all of them, so that none is left out for long; what does not go with the others
/// is the first of the next burst.
fn draw_burst(number: usize, databases: &[Database], bag: &mut VecDeque<Kind>, chance: &mut Chance) -> Burst {
    let many = 1 + chance.index(4);
    let mut troubles: Vec<Trouble> = Vec::new();
    let mut later = Vec::new();
    let mut at = 0;
    while troubles.len() < many && later.len() < ALL.len() {
        let Some(kind) = bag.pop_front() else {
            bag.extend(shuffled(chance));
            continue;
        };
        let trouble = draw_trouble(kind, at, databases, chance);
        if refused(&troubles, &trouble, databases).is_none() {
            troubles.push(trouble);
            at += chance.magnitude(100..6_000);
        } else {
            later.push(kind);
        }
    }
    later.into_iter().rev().for_each(|kind| bag.push_front(kind));
    Burst { number, troubles }
}

fn shuffled(chance: &mut Chance) -> Vec<Kind> {
    let mut kinds = ALL.to_vec();
    for end in (1..kinds.len()).rev() {
        kinds.swap(end, chance.index(end + 1));
    }
    kinds
}

fn draw_trouble(kind: Kind, at: u64, databases: &[Database], chance: &mut Chance) -> Trouble {
    let database = databases[chance.index(databases.len())].name;
    // The primary is the one to whom things matter.
    let role = if chance.per_mille(650) { Role::Primary } else { Role::Replica };
    let from = chance.of(0..u64::from(NODES));
    let to = (from + 1 + chance.of(0..u64::from(NODES) - 1)) % u64::from(NODES);
    let node = |number: u64| u8::try_from(number + 1).ok().and_then(Node::new);
    let target = match (kind.scope(), node(from), node(to)) {
        (Scope::Instance, ..) => Target::Instance { database, role },
        (Scope::Database, ..) => Target::Database(database),
        (Scope::Node, Some(node), _) => Target::Node(node),
        (Scope::Link, Some(from), Some(to)) => Target::Link(from, to),
        _ => Target::Cluster,
    };
    let long = kind.lasts().map_or(0, |longest| chance.of(2_000..longest));
    Trouble { at, long, kind, target }
}

/// Why one is not drawn beside the others of its burst; see the top of this file.
fn refused(others: &[Trouble], new: &Trouble, databases: &[Database]) -> Option<&'static str> {
    let copies = |one: &Trouble, other: &Trouble| {
        one.kind.loses_a_copy() && one.database().is_some_and(|name| other.may_strike(name))
    };
    let node_level = |one: &Trouble| matches!(one.target, Target::Node(_));
    let volume_alone = |one: &Trouble, other: &Trouble| {
        one.kind.needs_volume_alone()
            && (node_level(other) || one.database().is_some() && one.database() == other.database())
    };
    let wanted = |one: &Trouble| matches!(one.target, Target::Database(_));
    let promise = |name: &str| databases.iter().find(|one| one.name == name).map(Database::synchronous);
    if let (Kind::VolumeFails, Target::Instance { database, role: Role::Primary }) = (new.kind, new.target)
        && promise(database) == Some(false)
    {
        return Some("a failed disk that has more than the others keeps them from being elected");
    }
    others.iter().find_map(|other| {
        let pair = |rule: &dyn Fn(&Trouble, &Trouble) -> bool| rule(other, new) || rule(new, other);
        if pair(&copies) {
            return Some("a copy of the data is lost, and the one that is left must be let alone");
        }
        if pair(&|one, two| one.kind.takes_api() && two.kind.needs_api()) {
            return Some("nothing can be asked of an API server that is away");
        }
        if pair(&|one, two| one.kind.takes_api() && two.kind.takes_api()) {
            return Some("the API server is away already");
        }
        if pair(&volume_alone) {
            return Some("what waits for a frozen disk can't be stopped");
        }
        if node_level(other) && other.target == new.target {
            return Some("a node has one thing wrong with it at a time");
        }
        if wanted(other) && other.target == new.target {
            return Some("one thing at a time is wanted of a database");
        }
        (other.kind == new.kind && other.target == new.target).then_some("it is so already")
    })
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "burst {}", self.number)?;
        self.troubles.iter().try_for_each(|trouble| writeln!(f, "  {trouble}"))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.bursts.iter().try_for_each(|burst| write!(f, "{burst}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cast::cast;

    fn drawn() -> impl Iterator<Item = Burst> {
        (0..200).flat_map(|seed| Schedule::draw(seed, &cast(), 20).bursts)
    }

    #[test]
    fn a_seed_gives_the_same_schedule_and_another_gives_another() {
        let text = |seed| Schedule::draw(seed, &cast(), 10).to_string();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert!(text(7).starts_with("seed 7\nburst 1\n"), "{}", text(7));
    }

    #[test]
    fn more_minutes_go_on_where_fewer_have_ended() {
        let few = Schedule::draw(3, &cast(), 4).bursts;
        assert_eq!(Schedule::draw(3, &cast(), 9).bursts[..4], few);
    }

    #[test]
    fn within_twenty_bursts_all_kinds_are_drawn() {
        for seed in 0..50 {
            let bursts = Schedule::draw(seed, &cast(), 20).bursts;
            let kinds: BTreeSet<Kind> =
                bursts.iter().flat_map(|burst| &burst.troubles).map(|trouble| trouble.kind).collect();
            assert!(kinds.len() >= ALL.len() - 1, "seed {seed} has {} kinds", kinds.len());
        }
    }

    #[test]
    fn bursts_have_something_in_them_and_many_have_things_that_overlap() {
        let overlap = |burst: &Burst| {
            burst.troubles.windows(2).any(|pair| pair[0].long > 0 && pair[1].at < pair[0].at + pair[0].long)
        };
        assert!(drawn().all(|burst| (1..=4).contains(&burst.troubles.len())));
        assert!(drawn().filter(overlap).count() > 500);
    }

    #[test]
    fn where_a_copy_is_lost_nothing_else_happens_to_that_database() {
        let mut seen = 0;
        for burst in drawn() {
            for lost in burst.troubles.iter().filter(|trouble| trouble.kind.loses_a_copy()) {
                let name = lost.database().unwrap();
                let struck = burst.troubles.iter().filter(|trouble| trouble.may_strike(name));
                assert_eq!(struck.count(), 1, "{burst}");
                seen += 1;
            }
        }
        assert!(seen > 100);
    }

    #[test]
    fn nothing_is_asked_of_an_api_server_that_is_away() {
        let away = |burst: &Burst| burst.troubles.iter().any(|trouble| trouble.kind.takes_api());
        assert!(drawn().any(|burst| away(&burst) && burst.troubles.len() > 1));
        for burst in drawn().filter(away) {
            assert!(!burst.troubles.iter().any(|trouble| trouble.kind.needs_api()), "{burst}");
        }
    }

    #[test]
    fn the_primary_of_an_async_database_keeps_a_disk_that_works() {
        let loose = |trouble: &Trouble| {
            let primary = Target::Instance { database: "loose", role: Role::Primary };
            trouble.kind == Kind::VolumeFails && trouble.target == primary
        };
        assert!(!drawn().any(|burst| burst.troubles.iter().any(loose)));
    }
}
