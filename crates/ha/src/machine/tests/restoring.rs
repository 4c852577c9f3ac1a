//! Restores in place.

use super::*;

const X: &str = "undo-the-migration";

fn asked() -> Settings {
    Settings { restore: Some(X.to_owned()), required: true, ..settings() }
}

fn ready() -> Restore {
    Restore::Ready { name: X.into() }
}

fn whole(history: u64) -> Restore {
    Restore::Whole { name: X.into(), history }
}

fn written(request: Option<Request>) -> Draft {
    match request {
        Some(Request::Write { draft, .. }) => *draft,
        other => panic!("{other:?}"),
    }
}

fn settled(origin: u64) -> Restores {
    Restores { settled: Some(X.into()), done: origin > 0, origin }
}

/// The first instance leads in epoch 2 on history 1, was asked for a restore, and could begin.
fn about_to(start: Instant) -> (Machine, Option<Request>) {
    let mut me = leader(start, asked(), &[1, 2]);
    assert!(matches!(me.target(start), Target::Primary { .. }), "nothing is stopped before it was looked at");
    let could = Instance { restore: ready(), ..primary(2, 100, &[1, 2], quorum(&[1, 2])) };
    let request = me.step(Input::Instance(could), start);
    (me, request)
}

/// It has a number, and its program has ended.
fn begun(start: Instant) -> Machine {
    let (mut me, request) = about_to(start);
    assert_eq!(written(request).history, 2);
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    let old = Instance { restore: ready(), position: at(1, 100), ..having_led(2, Running::Stopped) };
    me.step(Input::Instance(old), start);
    me
}

/// The data is whole.
fn made(start: Instant) -> (Machine, Option<Request>) {
    let mut me = begun(start);
    let whole = Instance { restore: whole(2), position: at(1, 100), ..having_led(2, Running::Stopped) };
    let request = me.step(Input::Instance(whole), start);
    (me, request)
}

#[test]
fn a_restore_gets_a_history_of_its_own_before_anything_ends() {
    let start = Instant::now();
    let (mut me, request) = about_to(start);
    let draft = written(request);
    assert_eq!((draft.history, &draft.restores), (2, &Restores::default()));
    assert_eq!(draft.quorum, quorum(&[1, 2]), "if this one is lost, another leads with the old data");
    assert!(matches!(me.target(start), Target::Primary { .. }), "not before the Lease has it");
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    assert_eq!(me.target(start), Target::Restore { name: X.into(), history: 2 });
}

#[test]
fn nothing_is_restored_that_nobody_asks_for_or_that_has_come_to_its_end() {
    let start = Instant::now();
    let could = || Instance { restore: ready(), ..primary(2, 100, &[1, 2], quorum(&[1, 2])) };
    let mut unasked = leader(start, settings(), &[1, 2]);
    assert_eq!(unasked.step(Input::Instance(could()), start), None);
    let mut again = leader(start, asked(), &[1, 2]);
    let known = Lease { restores: settled(1), ..lease("10", Some(holder(0, "a")), 2, quorum(&[1, 2])) };
    again.step(Input::Seen(known), start);
    assert_eq!(again.step(Input::Instance(could()), start), None, "whoever did it, or did not");
    assert!(matches!(again.target(start), Target::Primary { .. }));
}

#[test]
fn one_that_restores_for_long_keeps_its_lease_and_the_quorum() {
    let start = Instant::now();
    let mut me = begun(start);
    let mut now = start;
    for version in 12..200 {
        now += SECOND;
        let draft = written(me.step(Input::Tick, now));
        assert_eq!((draft.holder, &draft.quorum), (Some(holder(0, "a")), &quorum(&[1, 2])), "{version}");
        me.step(Input::Written { version: version.to_string(), sent: now }, now);
        assert_eq!(me.target(now), Target::Restore { name: X.into(), history: 2 });
    }
}

#[test]
fn one_that_can_not_renew_its_lease_stops_restoring() {
    let start = Instant::now();
    let mut me = begun(start);
    me.step(Input::Tick, start + SECOND);
    me.step(Input::Failed, start + SECOND);
    assert_eq!(me.target(start + 4 * SECOND), Target::Close, "another may lead with the old data");
}

#[test]
fn what_is_called_off_before_it_is_decided_leaves_the_old_data() {
    let start = Instant::now();
    let mut me = begun(start);
    me.step(Input::Settings(settings()), start);
    assert!(matches!(me.target(start), Target::Primary { .. }));
    let mut me = begun(start);
    let failed = Restore::GivenUp { name: X.into() };
    let failed = Instance { restore: failed, position: at(1, 100), ..having_led(2, Running::Stopped) };
    let draft = written(me.step(Input::Instance(failed), start));
    assert!(matches!(me.target(start), Target::Primary { .. }), "it serves at once");
    assert_eq!((&draft.restores, &draft.quorum), (&settled(0), &quorum(&[1, 2])));
}

#[test]
fn one_write_decides_and_from_there_nobody_else_may_lead() {
    let start = Instant::now();
    let (mut me, request) = made(start);
    let draft = written(request);
    assert_eq!((&draft.restores, &draft.quorum, draft.history), (&settled(2), &Quorum::default(), 2));
    assert!(matches!(me.target(start), Target::Restore { .. }), "it is not decided yet");
    me.step(Input::Written { version: "12".into(), sent: start }, start);
    assert_eq!(me.target(start), Target::Place);
    assert_eq!(me.target(start + 3600 * SECOND), Target::Place, "there is nobody to fear");

    let placed = Instance {
        restore: whole(2),
        history: 2,
        position: at(2, 50),
        ..instance(Data::Present { system: "7".into(), led: None }, Running::Stopped)
    };
    me.step(Input::Instance(placed), start);
    let commits = me.demanded(&Quorum::default());
    assert_eq!(me.target(start), Target::Primary { epoch: 2, history: 2, commits });
}

#[test]
fn a_decision_that_was_not_answered_may_still_come() {
    let start = Instant::now();
    let (mut me, _) = made(start);
    me.step(Input::Failed, start);
    // Called off, too late perhaps: were the old data to take writes now, they could be lost.
    me.step(Input::Settings(settings()), start);
    assert!(matches!(me.target(start), Target::Restore { .. }));
    let before = || lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2]));
    me.step(Input::Read(Some(before())), start + SECOND);
    assert!(matches!(me.target(start + SECOND), Target::Restore { .. }), "it replaces what is still there");
    let carried_out = Lease { restores: settled(2), ..lease("12", Some(holder(0, "a")), 2, quorum(&[])) };
    let mut late = me;
    late.step(Input::Seen(carried_out), start + SECOND);
    assert_eq!(late.target(start + SECOND), Target::Place);

    let (mut me, _) = made(start);
    me.step(Input::Failed, start);
    me.step(Input::Settings(settings()), start);
    let other = lease("12", Some(holder(0, "a")), 2, quorum(&[1, 2]));
    me.step(Input::Read(Some(other)), start + SECOND);
    assert!(matches!(me.target(start + SECOND), Target::Primary { .. }), "it can't come any more");
}

#[test]
fn one_that_crashed_between_decision_and_place_goes_on_and_nobody_overtakes_it() {
    let start = Instant::now();
    let decided =
        || Lease { restores: settled(2), history: 2, ..lease("12", Some(holder(0, "a")), 2, quorum(&[])) };
    let mut me = Machine::new(Identity { holder: holder(0, "b"), ordinal: 0 }, asked());
    let whole = Instance { restore: whole(2), position: at(1, 100), ..having_led(2, Running::Stopped) };
    me.step(Input::Instance(whole), start);
    me.step(Input::Read(Some(decided())), start);
    let taken = me.step(Input::Tick, start + 5 * SECOND);
    assert_eq!(takes(&taken), Some("12"), "its pod was made anew");
    assert_eq!(written(taken).restores, settled(2));
    me.step(Input::Written { version: "13".into(), sent: start + 5 * SECOND }, start + 5 * SECOND);
    assert_eq!(me.target(start + 5 * SECOND), Target::Place);

    // The others have all that there was, and that is no longer the database.
    let free = || Lease { holder: None, successor: Some(Successor::Named(name(0))), ..decided() };
    let mut other = follower(1, start, asked(), &[1, 2]);
    assert_eq!(other.step(Input::Seen(free()), start), None);
    for seconds in 1..60 {
        let request = other.step(Input::Tick, start + seconds * SECOND);
        assert_eq!(takes(&request), None, "after {seconds} s");
        other.step(Input::Read(Some(free())), start + seconds * SECOND);
    }
    assert_eq!(other.answer().holds, None);
}

#[test]
fn those_of_before_copy_and_do_not_follow() {
    let start = Instant::now();
    let mut other = follower(1, start, asked(), &[1, 2]);
    let decided = Lease { restores: settled(2), ..lease("12", Some(holder(0, "a")), 2, quorum(&[])) };
    other.step(Input::Seen(decided), start);
    assert_eq!(other.target(start), Target::Copy { of: name(0), system: "7".into() });
    let held = other.step(Input::Asked(Question::Hold { version: "12".into() }), start);
    assert_eq!((held, other.answer().holds), (None, None));
    let copied = Instance { history: 2, position: at(2, 60), ..filled(Running::Stopped) };
    other.step(Input::Instance(copied), start);
    assert_eq!(other.target(start), Target::Replica { of: name(0), epoch: 2, system: "7".into() });
}

#[test]
fn who_is_elected_meanwhile_begins_anew_with_a_number_of_its_own() {
    let start = Instant::now();
    let mut me = machine(1, asked());
    let could = Instance { restore: ready(), ..having_led(2, Running::Stopped) };
    me.step(Input::Instance(could), start);
    // Somebody led in epoch 3, had reserved the number 5, and is gone.
    let lost = Lease { history: 5, ..lease("20", Some(holder(1, "z")), 3, quorum(&[])) };
    me.step(Input::Read(Some(lost)), start);
    let taken = written(me.step(Input::Tick, start + 5 * SECOND));
    assert_eq!(taken.history, 6);
    let request = me.step(Input::Written { version: "21".into(), sent: start }, start + SECOND);
    let draft = written(request.or_else(|| me.step(Input::Tick, start + 2 * SECOND)));
    assert_eq!(draft.history, 7);

    // What was made before somebody else led is of no use any more.
    me.step(Input::Written { version: "22".into(), sent: start + 2 * SECOND }, start + 2 * SECOND);
    let stale = Instance { restore: whole(5), position: at(1, 100), ..having_led(2, Running::Stopped) };
    assert_eq!(me.step(Input::Instance(stale), start + 2 * SECOND), None);
    assert_eq!(me.target(start + 2 * SECOND), Target::Restore { name: X.into(), history: 7 });
}
