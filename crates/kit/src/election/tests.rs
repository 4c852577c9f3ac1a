use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn lease(version: &str, holder: Option<&str>) -> Lease {
    Lease { version: version.into(), holder: holder.map(str::to_owned), term: 15 * SECOND }
}

fn take(replaces: Option<&str>) -> Action {
    Action::Write { holder: Some("me".into()), replaces: replaces.map(str::to_owned) }
}

/// A candidate that leads since `start`.
fn leader(start: Instant) -> Election {
    let mut me = Election::new("me", Timing::default());
    assert_eq!(me.step(Event::Tick, start), [Action::Read]);
    assert_eq!(me.step(Event::Read(None), start), [take(None)]);
    assert_eq!(me.step(Event::Written { version: "1".into(), sent: start }, start), [Action::Work]);
    me
}

#[test]
fn the_first_to_come_leads_and_renews() {
    let start = Instant::now();
    let mut me = leader(start);
    assert!(me.leads(start + 11 * SECOND) && !me.leads(start + 12 * SECOND), "the margin is kept");
    assert_eq!(me.step(Event::Tick, start + SECOND), [], "not yet");
    let later = start + 2 * SECOND;
    assert_eq!(me.step(Event::Tick, later), [take(Some("1"))]);
    assert_eq!(me.step(Event::Written { version: "2".into(), sent: later }, later + SECOND), []);
    assert!(me.leads(later + 11 * SECOND));
}

#[test]
fn a_held_lease_is_left_alone_until_it_has_not_changed_for_a_whole_term() {
    let start = Instant::now();
    let mut me = Election::new("me", Timing::default());
    me.step(Event::Tick, start);
    assert_eq!(me.step(Event::Read(Some(lease("1", Some("other")))), start), []);
    assert_eq!(me.step(Event::Tick, start + 14 * SECOND), [Action::Read]);
    // It was renewed: the term counts from here.
    assert_eq!(me.step(Event::Read(Some(lease("2", Some("other")))), start + 14 * SECOND), []);
    assert_eq!(me.step(Event::Tick, start + 28 * SECOND), [Action::Read]);
    assert_eq!(me.step(Event::Read(Some(lease("2", Some("other")))), start + 28 * SECOND), []);
    assert_eq!(me.step(Event::Tick, start + 29 * SECOND), [take(Some("2"))]);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let start = Instant::now();
    let mut me = Election::new("me", Timing::default());
    me.step(Event::Tick, start);
    assert_eq!(me.step(Event::Read(Some(lease("7", None))), start), [take(Some("7"))]);
}

#[test]
fn a_leader_that_cannot_renew_stops_before_its_term_is_over() {
    let start = Instant::now();
    let mut me = leader(start);
    let mut now = start;
    while me.leads(now) {
        now += SECOND;
        for action in me.step(Event::Tick, now) {
            match action {
                Action::Write { .. } | Action::Read => drop(me.step(Event::Failed, now)),
                Action::Halt => assert_eq!(now, start + 12 * SECOND),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(now, start + 12 * SECOND);
}

#[test]
fn a_renewal_whose_answer_was_lost_is_found_by_reading_and_does_not_lengthen_the_term() {
    let start = Instant::now();
    let mut me = leader(start);
    let later = start + 2 * SECOND;
    me.step(Event::Tick, later);
    assert_eq!(me.step(Event::Failed, later), []);
    assert_eq!(me.step(Event::Tick, later + 2 * SECOND), [Action::Read]);
    let found = Event::Read(Some(lease("2", Some("me"))));
    assert_eq!(me.step(found, later + 2 * SECOND), [take(Some("2"))]);
    assert!(!me.leads(start + 12 * SECOND));
}

#[test]
fn a_leader_that_finds_another_stops_at_once() {
    let start = Instant::now();
    for found in [Some(lease("9", Some("other"))), None] {
        let mut me = leader(start);
        me.step(Event::Tick, start + 2 * SECOND);
        me.step(Event::Failed, start + 2 * SECOND);
        me.step(Event::Tick, start + 4 * SECOND);
        assert_eq!(me.step(Event::Read(found), start + 4 * SECOND), [Action::Halt]);
        assert!(!me.leads(start + 4 * SECOND));
    }
}

#[test]
fn a_leader_that_is_to_end_stops_its_work_then_lets_go() {
    let start = Instant::now();
    let mut me = leader(start);
    assert_eq!(me.step(Event::Stop, start + SECOND), [Action::Halt]);
    assert!(!me.leads(start + SECOND));
    let release = Action::Write { holder: None, replaces: Some("1".into()) };
    assert_eq!(me.step(Event::WorkEnded, start + SECOND), [release]);
    let written = Event::Written { version: "2".into(), sent: start + SECOND };
    assert_eq!(me.step(written, start + SECOND), [Action::End]);
}

/// A small world: one Lease, several candidates with clocks of their own, answers that are late or
/// lost, and candidates that stand still.
struct World {
    start: Instant,
    version: u64,
    lease: Option<Lease>,
    candidates: Vec<Candidate>,
    /// What arrives when, in milliseconds of the world's time.
    arrivals: BTreeMap<(u64, u64), Arrival>,
    sequence: u64,
}

struct Candidate {
    election: Election,
    /// Its clock is so far ahead, and runs so many thousandths faster.
    ahead: u64,
    faster: i64,
    still_until: u64,
    ever_led: bool,
}

enum Arrival {
    AtServer { from: usize, action: Action, sent: Instant, answer_after: Option<u64> },
    AtCandidate { to: usize, event: Event },
}

impl World {
    fn clock(&self, candidate: usize, time: u64) -> Instant {
        let Candidate { ahead, faster, .. } = self.candidates[candidate];
        let own = time as i64 + time as i64 * faster / 1000;
        self.start + Duration::from_millis(ahead) + Duration::from_millis(own as u64)
    }

    fn send(&mut self, time: u64, arrival: Arrival) {
        self.sequence += 1;
        self.arrivals.insert((time, self.sequence), arrival);
    }

    /// The API server: compare and swap.
    fn serve(&mut self, action: &Action, from: usize, sent: Instant) -> Event {
        match action {
            Action::Read => Event::Read(self.lease.clone()),
            Action::Write { holder, replaces } => {
                if self.lease.as_ref().map(|lease| &lease.version) != replaces.as_ref() {
                    return Event::Failed;
                }
                self.version += 1;
                let term = self.candidates[from].election.timing.term;
                let version = self.version.to_string();
                self.lease = Some(Lease { version: version.clone(), holder: holder.clone(), term });
                Event::Written { version, sent }
            }
            _ => Event::Failed,
        }
    }

    fn tell(&mut self, to: usize, event: Event, time: u64, chance: &mut impl FnMut(u64) -> u64) {
        let now = self.clock(to, time);
        for action in self.candidates[to].election.step(event, now) {
            match action {
                Action::Read | Action::Write { .. } => {
                    let answer_after = (chance(10) > 0).then(|| chance(1500));
                    let at = time + chance(1500);
                    self.send(at, Arrival::AtServer { from: to, action, sent: now, answer_after });
                    if answer_after.is_none() {
                        // The request or its answer is lost: the caller gives up after a while.
                        let lost = Arrival::AtCandidate { to, event: Event::Failed };
                        self.send(time + 4000, lost);
                    }
                }
                Action::Work => self.candidates[to].ever_led = true,
                Action::Halt => {
                    self.send(time + chance(800), Arrival::AtCandidate { to, event: Event::WorkEnded })
                }
                Action::End => {}
            }
        }
    }

    fn run(&mut self, until: u64, chance: &mut impl FnMut(u64) -> u64) {
        for time in (0..until).step_by(50) {
            while let Some((&(due, number), _)) = self.arrivals.first_key_value() {
                if due > time {
                    break;
                }
                let Some(arrival) = self.arrivals.remove(&(due, number)) else { break };
                match arrival {
                    Arrival::AtServer { from, action, sent, answer_after } => {
                        let event = self.serve(&action, from, sent);
                        if let Some(after) = answer_after {
                            self.send(time + after, Arrival::AtCandidate { to: from, event });
                        }
                    }
                    // One that stands still hears of it when it goes on.
                    Arrival::AtCandidate { to, event } if time < self.candidates[to].still_until => {
                        let at = self.candidates[to].still_until;
                        self.send(at, Arrival::AtCandidate { to, event });
                    }
                    Arrival::AtCandidate { to, event } => self.tell(to, event, time, chance),
                }
            }
            for candidate in 0..self.candidates.len() {
                if chance(400) == 0 {
                    self.candidates[candidate].still_until = time + chance(40_000);
                }
                if time >= self.candidates[candidate].still_until {
                    self.tell(candidate, Event::Tick, time, chance);
                }
            }
            let leading: Vec<usize> = (0..self.candidates.len())
                .filter(|&candidate| self.candidates[candidate].election.leads(self.clock(candidate, time)))
                .collect();
            assert!(leading.len() <= 1, "{leading:?} lead at once at {time} ms");
        }
    }
}

proptest! {
    /// Clocks that are apart by hours and run at different speeds, pauses, late and lost answers:
    /// never two leaders.
    #[test]
    fn there_are_never_two_leaders(seed: u64, clocks in prop::collection::vec((0u64..10_000_000, -50i64..=50), 3)) {
        let mut state = seed;
        // Splitmix64.
        let mut chance = move |below: u64| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed ^ (mixed >> 31)) % below
        };
        let candidate = |(number, (ahead, faster)): (usize, (u64, i64))| Candidate {
            election: Election::new(format!("candidate-{number}"), Timing::default()),
            ahead,
            faster,
            still_until: 0,
            ever_led: false,
        };
        let mut world = World {
            start: Instant::now(),
            version: 0,
            lease: None,
            candidates: clocks.into_iter().enumerate().map(candidate).collect(),
            arrivals: BTreeMap::new(),
            sequence: 0,
        };
        world.run(300_000, &mut chance);
        prop_assert!(world.candidates.iter().any(|candidate| candidate.ever_led), "somebody gets to lead");
    }
}
