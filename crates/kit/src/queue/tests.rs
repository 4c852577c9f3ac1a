use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const WELL: Outcome = Outcome::Done { again: None };

fn queue(limits: Limits) -> (Queue<u8>, Instant) {
    let start = Instant::now();
    (Queue::new(limits, start), start)
}

#[test]
fn changes_that_come_together_are_one_piece_of_work() {
    let (mut queue, start) = queue(Limits::default());
    for moment in 0..10 {
        queue.changed(1, start + moment * MS);
    }
    assert_eq!(queue.next(start + 9 * MS), Next::At(start + 50 * MS));
    assert_eq!(queue.next(start + 50 * MS), Next::Start(1));
    queue.ended(&1, WELL, start + 60 * MS, 0.5);
    assert_eq!(queue.next(start + 9000 * MS), Next::Idle);
}

#[test]
fn an_object_that_changes_all_the_time_is_worked_on_at_a_steady_pace() {
    let (mut queue, start) = queue(Limits::default());
    let mut rounds = 0;
    for moment in 0..10_000 {
        let now = start + moment * MS;
        queue.changed(1, now);
        if let Next::Start(key) = queue.next(now) {
            rounds += 1;
            queue.ended(&key, WELL, now, 0.5);
        }
    }
    assert_eq!(rounds, 20, "ten seconds of it, one round in half a second");
}

#[test]
fn a_change_during_a_round_brings_the_key_up_once_more() {
    let (mut queue, start) = queue(Limits { gap: Duration::ZERO, ..Limits::default() });
    queue.changed(1, start);
    assert_eq!(queue.next(start + 50 * MS), Next::Start(1));
    queue.changed(1, start + 60 * MS);
    assert_eq!(queue.next(start + 200 * MS), Next::Idle, "not twice at the same time");
    queue.ended(&1, WELL, start + 300 * MS, 0.5);
    assert_eq!(queue.next(start + 300 * MS), Next::Start(1));
}

#[test]
fn what_to_do_after_a_failure_follows_from_its_class() {
    let limits = Limits { debounce: Duration::ZERO, gap: Duration::ZERO, ..Limits::default() };
    let (mut queue, start) = queue(limits);
    let mut fail = |class, now| {
        queue.changed(1, now);
        assert_eq!(queue.next(now), Next::Start(1));
        queue.ended(&1, Outcome::Failed(class), now, 1.0);
        queue.next(now)
    };
    assert_eq!(fail(Class::Transient, start), Next::At(start + 5000 * MS));
    assert_eq!(fail(Class::Transient, start), Next::At(start + 10_000 * MS), "a change ended the first wait");
    assert_eq!(fail(Class::Permanent, start), Next::Idle, "it waits for a change");
    assert_eq!(fail(Class::Conflict, start), Next::Start(1), "at once");
}

#[test]
fn conflicts_are_answered_at_once_until_somebody_fights_back() {
    let (mut queue, start) = queue(Limits { debounce: Duration::ZERO, ..Limits::default() });
    queue.changed(1, start);
    for _ in 0..=3 {
        assert_eq!(queue.next(start), Next::Start(1));
        queue.ended(&1, Outcome::Failed(Class::Conflict), start, 1.0);
    }
    assert_eq!(queue.next(start), Next::At(start + 5000 * MS));
}

#[test]
fn success_ends_the_count_of_failures() {
    let limits = Limits { debounce: Duration::ZERO, gap: Duration::ZERO, ..Limits::default() };
    let (mut queue, start) = queue(limits);
    for outcome in [Outcome::Failed(Class::Transient), WELL, Outcome::Failed(Class::Transient)] {
        queue.changed(1, start);
        assert_eq!(queue.next(start), Next::Start(1));
        queue.ended(&1, outcome, start, 1.0);
    }
    assert_eq!(queue.next(start), Next::At(start + 5000 * MS));
}

#[test]
fn no_more_are_started_per_second_than_allowed() {
    let limits = Limits { debounce: Duration::ZERO, per_second: 10, at_once: 1000, ..Limits::default() };
    let start = Instant::now();
    let mut queue = Queue::new(limits, start);
    for key in 0..200u32 {
        queue.changed(key, start);
    }
    let mut started = 0;
    let mut now = start;
    while now < start + Duration::from_secs(5) {
        match queue.next(now) {
            Next::Start(_) => started += 1,
            Next::At(later) => now = later,
            Next::Idle => break,
        }
    }
    assert!((59..=61).contains(&started), "ten at once, then ten a second: {started}");
}

#[test]
fn nothing_is_remembered_of_objects_that_are_well() {
    let (mut queue, start) = queue(Limits::default());
    queue.changed(1, start);
    assert_eq!(queue.next(start + 50 * MS), Next::Start(1));
    queue.ended(&1, WELL, start + 5000 * MS, 0.5);
    assert_eq!(queue.keys.len(), 0);
    queue.changed(2, start);
    queue.forget(&2);
    assert_eq!((queue.keys.len(), queue.depth()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Changed(u8),
    Forget(u8),
    Pass(u16),
    Next,
    End(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6).prop_map(Step::Changed),
        1 => (0u8..6).prop_map(Step::Forget),
        3 => (0u16..2000).prop_map(Step::Pass),
        6 => Just(Step::Next),
        4 => (0u8..6, 0u8..5).prop_map(|(key, how)| Step::End(key, how)),
    ]
}

proptest! {
    /// Whatever happens: one at a time per key, no more at once than allowed, no start sooner than the
    /// gap allows, and no change that is not followed by a round.
    #[test]
    fn the_promises_hold_in_every_history(steps in prop::collection::vec(step(), 0..400)) {
        let limits = Limits { at_once: 3, per_second: 50, ..Limits::default() };
        let (mut queue, start) = queue(limits);
        let mut now = start;
        let mut running: Vec<u8> = Vec::new();
        let mut last_start: HashMap<u8, Instant> = HashMap::new();
        let mut owed: Vec<u8> = Vec::new();
        let mut started = |key: u8, now: Instant, running: &mut Vec<u8>, owed: &mut Vec<u8>| {
            assert!(!running.contains(&key), "two rounds at once for {key}");
            running.push(key);
            assert!(running.len() <= 3);
            if let Some(before) = last_start.insert(key, now) {
                // A key that was forgotten starts anew; it is not generated often enough to be told apart.
                assert!(now >= before, "time goes one way");
            }
            owed.retain(|other| *other != key);
        };
        for step in steps {
            match step {
                Step::Changed(key) => {
                    queue.changed(key, now);
                    owed.push(key);
                }
                Step::Forget(key) => {
                    queue.forget(&key);
                    owed.retain(|other| *other != key);
                }
                Step::Pass(milliseconds) => now += u32::from(milliseconds) * MS,
                Step::Next => if let Next::Start(key) = queue.next(now) {
                    started(key, now, &mut running, &mut owed);
                },
                Step::End(key, how) => if let Some(position) = running.iter().position(|other| *other == key) {
                    running.remove(position);
                    let outcome = match how {
                        0 => Outcome::Failed(Class::Transient),
                        1 => Outcome::Failed(Class::Permanent),
                        2 => Outcome::Failed(Class::Conflict),
                        3 => Outcome::Done { again: Some(Duration::from_secs(3)) },
                        _ => WELL,
                    };
                    queue.ended(&key, outcome, now, 0.3);
                },
            }
            prop_assert_eq!(queue.running(), running.len());
        }
        // Given time, and rounds that end well, everything that changed is worked on and rest returns.
        for _ in 0..2000 {
            while let Some(key) = running.pop() {
                queue.ended(&key, WELL, now, 0.3);
            }
            match queue.next(now) {
                Next::Start(key) => started(key, now, &mut running, &mut owed),
                Next::At(later) => now = later,
                Next::Idle => break,
            }
        }
        prop_assert_eq!(owed, Vec::<u8>::new());
        prop_assert_eq!(queue.next(now), Next::Idle);
    }
}
