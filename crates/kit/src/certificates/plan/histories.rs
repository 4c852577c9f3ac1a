//! Generated histories: two replicas with clocks that differ, on a Secret and some targets, each of
//! their requests a step of its own that may fail, come late, or be the last before a crash.
//!
//! What must hold at every moment: whatever a replica serves with, however long ago it loaded it, is
//! trusted by every target, also by an API server that has not yet heard of the target's last changes.

use proptest::prelude::*;

use super::tests::{moment, pair, settings};
use super::*;

/// How long an API server may go on with what a target was before.
const LAG: i64 = 12;
/// By how much clocks may be wrong: so that two differ by no more than certificates are backdated.
const SKEW: i64 = 7;

#[derive(Clone, Debug)]
enum Action {
    /// A replica's next request is answered.
    Go(usize),
    /// It fails, or its answer is lost: the write may or may not have been done.
    Fail(usize, bool),
    /// A replica dies and starts anew.
    Crash(usize),
    /// Time goes on.
    Wait(i64),
    /// Somebody deletes the Secret.
    Delete,
    /// Somebody writes to a target.
    Overwrite(usize),
}

#[derive(Debug)]
struct Target {
    generation: i64,
    bundle: String,
    /// What it was before, and until when.
    before: Vec<(i64, String)>,
}

/// Where a replica is in its round.
#[derive(Debug)]
enum Round {
    /// It reads the targets, one by one.
    Targets(Vec<(i64, String)>),
    /// It writes bundles into targets that had these generations, then the Secret that had this version.
    Write { bundle: String, targets: Vec<(usize, i64)>, secret: Option<Box<(u64, State<()>)>> },
}

#[derive(Debug)]
struct Actor {
    replica: Replica<()>,
    skew: i64,
    loaded: Option<Pair<()>>,
    round: Round,
}

#[derive(Debug)]
struct World {
    second: i64,
    start: Instant,
    secret: Option<State<()>>,
    version: u64,
    targets: Vec<Target>,
    actors: Vec<Actor>,
    made: usize,
    switches: usize,
    /// Since when all targets carry something.
    begun: Option<i64>,
    /// Nobody came to renew the certificate before it ended: then calls fail, and no order of steps
    /// could help.
    late: bool,
}

fn actor(skew: i64) -> Actor {
    let replica = Replica::new(vec!["a".to_owned()], settings());
    Actor { replica, skew, loaded: None, round: Round::Targets(Vec::new()) }
}

impl World {
    fn new(targets: usize, skews: [i64; 2]) -> World {
        let target = || Target { generation: 1, bundle: String::new(), before: Vec::new() };
        World {
            second: 0,
            start: Instant::now(),
            secret: None,
            version: 0,
            targets: std::iter::repeat_with(target).take(targets).collect(),
            actors: skews.map(actor).into(),
            made: 0,
            switches: 0,
            begun: None,
            late: false,
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Go(who) => self.go(who),
            Action::Fail(who, done) => {
                if done {
                    self.go(who);
                }
                self.actors[who].round = Round::Targets(Vec::new());
            }
            Action::Crash(who) => self.actors[who] = actor(self.actors[who].skew),
            Action::Wait(seconds) => self.second += seconds,
            Action::Delete => {
                self.secret = None;
                self.version += 1;
            }
            Action::Overwrite(target) => {
                let target = target % self.targets.len();
                self.set(target, "nonsense".to_owned());
            }
        }
        if self.begun.is_none() && self.targets.iter().all(|target| !target.bundle.is_empty()) {
            self.begun = Some(self.second);
        }
        let until = self.secret.as_ref().map(|stored| stored.serving.authority.until.0);
        self.late |= until.is_some_and(|until| until <= moment(self.second + SKEW));
    }

    fn set(&mut self, target: usize, bundle: String) {
        let target = &mut self.targets[target];
        let before = std::mem::replace(&mut target.bundle, bundle);
        target.before.push((self.second, before));
        target.generation += 1;
    }

    /// One request of a replica.
    fn go(&mut self, who: usize) {
        let round = std::mem::replace(&mut self.actors[who].round, Round::Targets(Vec::new()));
        self.actors[who].round = match round {
            Round::Targets(mut read) => {
                if let Some(target) = self.targets.get(read.len()) {
                    read.push((target.generation, target.bundle.clone()));
                    Round::Targets(read)
                } else {
                    self.read_secret(who, &read)
                }
            }
            Round::Write { bundle, mut targets, secret } => match targets.pop() {
                Some((target, generation)) => {
                    if self.targets[target].generation == generation {
                        self.set(target, bundle.clone());
                    }
                    Round::Write { bundle, targets, secret }
                }
                None => {
                    if let Some((version, state)) = secret.map(|write| *write)
                        && version == self.version
                    {
                        let served = self.secret.as_ref().map(|before| &before.serving.authority);
                        self.switches += usize::from(served != Some(&state.serving.authority));
                        self.version = version + 1;
                        self.secret = Some(state);
                    }
                    Round::Targets(Vec::new())
                }
            },
        };
    }

    fn read_secret(&mut self, who: usize, read: &[(i64, String)]) -> Round {
        let (version, second) = (self.version, self.second);
        let clock = self.start + Duration::from_secs(second.unsigned_abs());
        let actor = &mut self.actors[who];
        let now = moment(second + actor.skew);
        let stored = self.secret.as_ref();
        if let Some(stored) = stored {
            actor.loaded = Some(stored.serving.clone());
        }
        let bundle = stored.map(State::bundle).unwrap_or_default();
        let carries = |(generation, carried): &(i64, String)| match *carried == bundle {
            true => Sighting::Carries(*generation),
            false => Sighting::Lacks,
        };
        let (step, _) = actor.replica.look(stored, read.iter().map(carries).collect(), now, clock);
        let made = &mut self.made;
        let made_at = second + actor.skew;
        let make = |names: &[String]| {
            *made += 1;
            Ok::<_, ()>(pair(&made.to_string(), names, made_at))
        };
        let secret = actor.replica.after(step, now, make).unwrap().map(|state| Box::new((version, state)));
        let lacking = read.iter().enumerate().filter(|(_, (_, carried))| *carried != bundle);
        let targets = match stored {
            Some(_) => lacking.map(|(target, (generation, _))| (target, *generation)).collect(),
            None => Vec::new(),
        };
        Round::Write { bundle, targets, secret }
    }

    /// Every bundle by which some API server may judge at this moment.
    fn in_force(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().flat_map(|target| {
            let recent = target.before.iter().filter(|(until, _)| *until > self.second - LAG);
            recent.map(|(_, bundle)| bundle.as_str()).chain([target.bundle.as_str()])
        })
    }

    fn every_call_gets_through(&self) -> Result<(), TestCaseError> {
        if self.late || self.begun.is_none_or(|begun| self.second <= begun + LAG) {
            return Ok(());
        }
        for actor in &self.actors {
            let Some(loaded) = actor.loaded.as_ref().filter(|pair| pair.is_valid(moment(self.second))) else {
                continue;
            };
            for bundle in self.in_force() {
                prop_assert!(
                    bundle.contains(&loaded.authority.certificate),
                    "{:?} is served, but not trusted: {self:#?}",
                    loaded.authority
                );
            }
        }
        Ok(())
    }

    fn calmly(&mut self, seconds: i64) {
        for _ in 0..seconds {
            for who in [0, 1] {
                (0..12).for_each(|_| self.go(who));
            }
            self.second += 1;
        }
    }

    /// All replicas serve with what is stored, it is valid, and all targets carry its bundle.
    fn all_is_well(&self) -> Result<(), TestCaseError> {
        let stored = self.secret.as_ref().unwrap();
        prop_assert!(stored.serving.is_valid(moment(self.second)));
        for actor in &self.actors {
            prop_assert_eq!(actor.loaded.as_ref(), Some(&stored.serving));
        }
        for target in &self.targets {
            prop_assert_eq!(&target.bundle, &stored.bundle());
        }
        Ok(())
    }
}

fn disturbances() -> impl Strategy<Value = Vec<Action>> {
    let wait = || (1i64..8).prop_map(Action::Wait);
    let action = prop_oneof![
        60 => (0usize..2).prop_map(Action::Go),
        12 => wait(),
        3 => (0usize..2, any::<bool>()).prop_map(|(who, done)| Action::Fail(who, done)),
        1 => (0usize..2).prop_map(Action::Crash),
    ];
    // One of the two is often left standing in mid-round while the other goes on, for long.
    let alone = (
        0usize..2,
        proptest::collection::vec(prop_oneof![8 => Just(None), 1 => wait().prop_map(Some)], 1..300),
    )
        .prop_map(|(who, waits)| {
            waits.into_iter().map(|wait| wait.unwrap_or(Action::Go(who))).collect::<Vec<_>>()
        });
    let piece = prop_oneof![60 => action.prop_map(|action| vec![action]), 1 => alone];
    proptest::collection::vec(piece, 100..900).prop_map(|pieces| pieces.concat())
}

fn skews() -> impl Strategy<Value = [i64; 2]> {
    (-SKEW..=SKEW, -SKEW..=SKEW).prop_map(|(one, other)| [one, other])
}

proptest! {
    #[test]
    fn no_call_fails_whatever_is_late_fails_or_crashes(
        actions in disturbances(), targets in 1usize..4, skews in skews()
    ) {
        let mut world = World::new(targets, skews);
        for action in &actions {
            world.act(action);
            world.every_call_gets_through()?;
        }
    }

    #[test]
    fn in_calm_times_certificates_change_in_time_and_are_always_valid(
        targets in 1usize..4, skews in skews()
    ) {
        let mut world = World::new(targets, skews);
        world.calmly(2);
        for _ in 0..1000 {
            world.calmly(1);
            world.every_call_gets_through()?;
            let now = moment(world.second);
            prop_assert!(world.actors.iter().all(|actor| actor.loaded.as_ref().unwrap().is_valid(now)));
        }
        prop_assert!((8..=10).contains(&world.switches), "{}", world.switches);
        prop_assert!(world.secret.unwrap().trusted.len() <= 3);
    }

    #[test]
    fn a_secret_that_is_deleted_in_calm_times_fails_no_call(
        deletions in proptest::collection::vec(1i64..60, 1..10), targets in 1usize..4, skews in skews()
    ) {
        let mut world = World::new(targets, skews);
        world.calmly(LAG + 2);
        for wait in deletions {
            for _ in 0..wait {
                world.calmly(1);
                world.every_call_gets_through()?;
            }
            let before = world.secret.as_ref().unwrap().bundle();
            world.act(&Action::Delete);
            world.calmly(2);
            world.every_call_gets_through()?;
            let stored = world.secret.as_ref().unwrap();
            prop_assert!(before.contains(&stored.serving.authority.certificate), "it is not all anew");
            prop_assert!(!before.contains(&stored.next.as_ref().unwrap().authority.certificate));
        }
    }

    #[test]
    fn whatever_has_been_done_to_it_all_is_well_soon_after(
        actions in disturbances(),
        harm in proptest::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![Just(Action::Delete), (0usize..3).prop_map(Action::Overwrite)],
            ),
            0..10,
        ),
        targets in 1usize..4,
        skews in skews(),
    ) {
        let mut world = World::new(targets, skews);
        let mut actions = actions;
        for (place, action) in harm {
            actions.insert(place.index(actions.len()), action);
        }
        actions.iter().for_each(|action| world.act(action));
        world.calmly(60);
        // It may just be in the middle of a renewal.
        let well = (0..5).any(|_| {
            world.calmly(1);
            world.all_is_well().is_ok()
        });
        prop_assert!(well, "{world:#?}");
        world.calmly(LAG);
        world.every_call_gets_through()?;
    }
}
