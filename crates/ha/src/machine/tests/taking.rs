//! Who takes the Lease without being elected: the first of all, who led before, and one that may be alone.

use super::*;

#[test]
fn the_first_instance_makes_the_database_and_the_others_copy_it() {
    let start = Instant::now();
    let mut me = machine(0, settings());
    assert_eq!(me.step(Input::Instance(empty()), start), Some(Request::Read));
    let taken = me.step(Input::Read(None), start);
    let draft = Draft {
        holder: Some(holder(0, "a")),
        epoch: 1,
        system: None,
        successor: None,
        quorum: Quorum::default(),
        history: 1,
        restores: Restores::default(),
        end: None,
        ttl: settings().ttl,
    };
    assert_eq!(taken, Some(Request::Write { draft: Box::new(draft), replaces: None }));
    assert_eq!(me.step(Input::Written { version: "1".into(), sent: start }, start), None);
    assert_eq!(me.target(start), Target::Create);
    assert_eq!(me.reign(), Some(Reign { epoch: 1, cause: Cause::First, lacks: None }));
    me.step(Input::Instance(primary(1, 5, &[], Quorum::default())), start);
    assert_eq!(me.target(start), Target::Primary { epoch: 1, history: 1, commits: Quorum::fence() });

    let mut other = machine(1, settings());
    other.step(Input::Instance(empty()), start);
    other.step(Input::Read(Some(lease("1", Some(holder(0, "a")), 1, quorum(&[])))), start);
    other.step(Input::Seen(lease("2", Some(holder(0, "a")), 1, quorum(&[]))), start);
    let copy = Target::Replica { of: name(0), epoch: 1, system: "7".into() };
    assert_eq!(other.target(start), copy);
    assert!(!other.answer().able, "it has nothing yet");
}

#[test]
fn no_other_instance_makes_a_database_nor_one_where_there_has_been_one() {
    let start = Instant::now();
    let mut second = machine(1, settings());
    second.step(Input::Instance(empty()), start);
    assert_eq!(second.step(Input::Read(None), start), None, "it waits for the first");
    assert_eq!(second.target(start), Target::Wait);

    let mut first = machine(0, Settings { system: Some("7".into()), ..settings() });
    first.step(Input::Instance(empty()), start);
    assert_eq!(first.step(Input::Read(None), start), None, "a database is known, and the volume is empty");

    let mut first = machine(0, settings());
    first.step(Input::Instance(empty()), start);
    let free = lease("9", None, 4, quorum(&[]));
    assert_eq!(first.step(Input::Read(Some(free)), start), None, "the Lease knows of one");
}

#[test]
fn one_that_died_before_it_made_the_database_is_replaced_by_the_next_of_its_name() {
    let start = Instant::now();
    let mut first = Machine::new(Identity { holder: holder(0, "b"), ordinal: 0 }, settings());
    let mut unmade = lease("3", None, 1, quorum(&[]));
    unmade.system = None;
    first.step(Input::Instance(empty()), start);
    assert_eq!(takes(&first.step(Input::Read(Some(unmade)), start)), Some("3"));
}

#[test]
fn a_container_that_was_restarted_leads_again_at_once_and_a_pod_of_its_name_waits() {
    let start = Instant::now();
    for (incarnation, waits) in [("a", false), ("b", true)] {
        let mut me = Machine::new(Identity { holder: holder(0, incarnation), ordinal: 0 }, settings());
        me.step(Input::Instance(having_led(4, Running::Stopped)), start);
        let held = lease("3", Some(holder(0, "a")), 4, quorum(&[1, 2]));
        let seen = me.step(Input::Read(Some(held.clone())), start);
        assert_eq!(takes(&seen).is_none(), waits);
        if waits {
            me.step(Input::Tick, start + 4 * SECOND);
            me.step(Input::Read(Some(held)), start + 4 * SECOND);
            let taken = me.step(Input::Tick, start + 5 * SECOND);
            assert_eq!(takes(&taken), Some("3"));
            let Some(Request::Write { draft, .. }) = taken else { panic!() };
            assert_eq!((draft.epoch, draft.quorum), (5, quorum(&[1, 2])), "who may be elected stays so");
            me.step(Input::Written { version: "4".into(), sent: start + 5 * SECOND }, start + 5 * SECOND);
            assert_eq!(me.reign().map(|reign| reign.cause), Some(Cause::Again));
            let target = Target::Primary { epoch: 5, history: 1, commits: quorum(&[1, 2]) };
            assert_eq!(me.target(start + 5 * SECOND), target, "its first commit waits");
        }
    }
}

/// Who takes the Lease may end before its database knows of it. What it had is what its next incarnation has:
/// as long as the Lease has its name, it follows nobody.
#[test]
fn one_that_took_the_lease_and_ended_before_it_took_writes_is_followed_by_the_next_of_its_name() {
    let start = Instant::now();
    for led in [None, Some(3)] {
        let mut me = Machine::new(Identity { holder: holder(0, "b"), ordinal: 0 }, settings());
        let data = Data::Present { system: "7".into(), led };
        me.step(Input::Instance(instance(data, Running::Stopped)), start);
        me.step(Input::Read(Some(lease("3", Some(holder(0, "a")), 4, quorum(&[])))), start);
        assert_eq!(takes(&me.step(Input::Tick, start + 4 * SECOND)), None, "it may still run");
        me.step(Input::Failed, start + 4 * SECOND);
        assert_eq!(takes(&me.step(Input::Tick, start + 5 * SECOND)), Some("3"), "{led:?}");
    }
}

#[test]
fn one_that_ended_in_its_own_favour_before_it_took_writes_comes_back() {
    let start = Instant::now();
    let mut me = machine(0, settings());
    me.step(Input::Instance(having_led(3, Running::Stopped)), start);
    let own = Some(Successor::Named(name(0)));
    let free = Lease { successor: own, end: None, ..lease("3", None, 4, quorum(&[])) };
    assert_eq!(takes(&me.step(Input::Read(Some(free)), start)), Some("3"));
}

#[test]
fn another_database_on_the_volume_does_not_lead() {
    let start = Instant::now();
    let mut me = machine(0, settings());
    let other = Data::Present { system: "8".into(), led: Some(4) };
    me.step(Input::Instance(instance(other, Running::Stopped)), start);
    let held = lease("3", Some(holder(0, "a")), 4, quorum(&[]));
    assert_eq!(me.step(Input::Read(Some(held)), start), None);
    assert_eq!(me.target(start), Target::Wait);
}

#[test]
fn what_was_damaged_does_not_lead_again() {
    let start = Instant::now();
    let mut me = machine(0, settings());
    me.step(Input::Instance(Instance { damaged: true, ..having_led(4, Running::Stopped) }), start);
    let held = lease("3", Some(holder(0, "a")), 4, quorum(&[]));
    assert_eq!(me.step(Input::Read(Some(held)), start), None);
}

#[test]
fn an_answer_that_comes_after_the_term_is_over_makes_no_leader() {
    let start = Instant::now();
    let mut me = machine(0, settings());
    me.step(Input::Instance(having_led(4, Running::Stopped)), start);
    me.step(Input::Read(Some(lease("3", Some(holder(0, "a")), 4, quorum(&[1, 2])))), start);
    let late = start + 4 * SECOND;
    me.step(Input::Written { version: "4".into(), sent: start }, late);
    assert!(!me.leads(late));
    assert_eq!(me.target(late), Target::Wait);
    assert_eq!(me.step(Input::Tick, late + SECOND), Some(Request::Read));
    let own = lease("4", Some(holder(0, "a")), 5, quorum(&[1, 2]));
    assert_eq!(takes(&me.step(Input::Read(Some(own)), late + SECOND)), Some("4"), "it is its own");
}

#[test]
fn where_the_lease_was_removed_only_who_led_makes_another() {
    let start = Instant::now();
    let mut follower = follower(1, start, settings(), &[1, 2]);
    follower.step(Input::Tick, start + 2 * SECOND);
    assert_eq!(follower.step(Input::Read(None), start + 2 * SECOND), None);
    assert_eq!(follower.target(start + 2 * SECOND), Target::Wait);

    let mut led = leader(start, settings(), &[1, 2]);
    led.step(Input::Tick, start + SECOND);
    assert_eq!(led.step(Input::Conflict, start + SECOND), Some(Request::Read));
    let made = led.step(Input::Read(None), start + SECOND);
    assert_eq!(led.target(start + SECOND), Target::Close, "whoever was faster may lead");
    let Some(Request::Write { draft, replaces: None }) = made else { panic!("{made:?}") };
    assert_eq!(
        (draft.epoch, draft.quorum),
        (3, Quorum::default()),
        "nobody else is elected before it says so"
    );
}

#[test]
fn one_alone_leads_with_what_it_has_and_does_not_stop_for_want_of_a_lease() {
    let start = Instant::now();
    let mut me = machine(0, Settings { instances: 1, ..settings() });
    me.step(Input::Instance(filled(Running::Stopped)), start);
    assert_eq!(takes(&me.step(Input::Read(None), start)), Some(""));
    me.step(Input::Written { version: "1".into(), sent: start }, start + 60 * SECOND);
    let target = Target::Primary { epoch: 1, history: 1, commits: Quorum::default() };
    assert_eq!(me.target(start + 400 * SECOND), target);
}

/// The database was scaled down to one instance while another led, which is gone now.
#[test]
fn one_that_is_to_be_alone_does_not_lead_with_less_than_there_was() {
    let start = Instant::now();
    for successor in
        [Some(Successor::Named(name(1))), Some(Successor::Any), Some(Successor::Named(name(0))), None]
    {
        let mut me = machine(0, Settings { instances: 1, ..settings() });
        me.step(Input::Instance(replica(99, Receiving::Waiting)), start);
        me.step(Input::Read(Some(Lease { successor, ..lease("3", None, 4, quorum(&[])) })), start);
        assert_eq!(takes(&me.step(Input::Tick, start + 60 * SECOND)), None, "it has 99 of 100");
    }
}

/// What another says of the last epoch in which it led.
fn past(ordinal: u32, led: Option<u64>, sent: Instant) -> Input {
    let holder = holder(ordinal, "a");
    let (confirms, holds, position) = (None, None, None);
    Input::Answered {
        sent,
        answer: Answer { holder, confirms, holds, position, able: true, full: false, led, empty: false },
    }
}

/// Another says that it has never led, and whether it has no data.
fn never_led(ordinal: u32, empty: bool, sent: Instant) -> Input {
    match past(ordinal, Some(0), sent) {
        Input::Answered { sent, answer } => Input::Answered { sent, answer: Answer { empty, ..answer } },
        other => other,
    }
}

/// Volumes were adopted, or somebody removed the Lease just when one that led long ago comes back.
#[test]
fn without_a_lease_only_who_led_after_all_others_makes_one() {
    let start = Instant::now();
    let begin = || {
        let mut me = machine(0, settings());
        me.step(Input::Instance(having_led(3, Running::Stopped)), start);
        assert_eq!(takes(&me.step(Input::Read(None), start)), None);
        assert_eq!(me.question(start), Some((Question::Led, [name(1), name(2)].into())));
        me.step(past(1, Some(2), start), start);
        assert_eq!(me.question(start), Some((Question::Led, [name(2)].into())));
        me
    };
    let mut me = begin();
    assert_eq!(takes(&me.step(past(2, None, start), start)), None, "it does not know yet");
    assert_eq!(takes(&me.step(past(2, Some(4), start), start)), None, "it led after this one");
    assert_eq!(me.question(start), None);
    assert_eq!(me.answer().led, Some(3));

    let mut me = begin();
    let made = me.step(past(2, Some(0), start), start);
    let Some(Request::Write { draft, replaces: None }) = made else { panic!("{made:?}") };
    assert_eq!(draft.epoch, 4);
}

#[test]
fn an_api_server_that_refuses_everything_is_not_asked_all_the_time() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    let mut asked = 0;
    let mut input = Input::Tick;
    for step in 0..300 {
        let now = start + 2 * SECOND + step * SECOND / 100;
        let request = me.step(input, now);
        asked += u32::from(request.is_some());
        input = match request {
            Some(Request::Read) => Input::Read(Some(lease("10", Some(holder(0, "a")), 2, quorum(&[1, 2])))),
            Some(Request::Write { .. }) => Input::Conflict,
            None => Input::Tick,
        };
    }
    assert!((4..20).contains(&asked), "{asked} in three seconds");
}

/// Volumes of an older one were adopted, and the one of the first instance is not among them.
#[test]
fn where_there_has_been_a_database_none_is_made_anew_though_nobody_knows_which_it_was() {
    let start = Instant::now();
    let none = |ordinal: u32, empty: bool| never_led(ordinal, empty, start);
    for (last, made) in [(false, None), (true, Some(""))] {
        let mut me = machine(0, Settings { existing: true, ..settings() });
        me.step(Input::Instance(empty()), start);
        assert_eq!(takes(&me.step(Input::Read(None), start)), None);
        assert_eq!(me.target(start), Target::Wait);
        assert_eq!(me.question(start), Some((Question::Led, [name(1), name(2)].into())));
        assert_eq!(takes(&me.step(none(1, true), start)), None);
        assert_eq!(takes(&me.step(none(2, last), start)), made, "unless there never was one");
    }
    let mut led = machine(1, Settings { existing: true, ..settings() });
    led.step(Input::Instance(having_led(3, Running::Stopped)), start);
    led.step(Input::Read(None), start);
    led.step(past(2, Some(0), start), start);
    let made = led.step(past(0, Some(0), start), start);
    assert!(matches!(&made, Some(Request::Write { draft, .. }) if draft.epoch == 4), "{made:?}");
}

/// A Database was deleted when its database was made and had not been started yet, and its volumes were adopted.
#[test]
fn what_was_made_and_never_led_is_gone_on_with_where_nobody_else_has_data() {
    let start = Instant::now();
    for (empty, made) in [(true, Some("")), (false, None)] {
        let mut me = machine(0, Settings { existing: true, ..settings() });
        me.step(Input::Instance(filled(Running::Stopped)), start);
        assert_eq!(takes(&me.step(Input::Read(None), start)), None);
        assert_eq!(me.question(start), Some((Question::Led, [name(1), name(2)].into())));
        assert_eq!(takes(&me.step(never_led(1, true, start), start)), None, "nobody knows of the last one");
        assert_eq!(takes(&me.step(never_led(2, empty, start), start)), made, "who has more is not known");
    }
    let mut me = machine(0, settings());
    me.step(Input::Instance(filled(Running::Stopped)), start);
    me.step(Input::Read(None), start);
    assert_eq!(me.question(start), None, "no volumes were adopted: who led has only to come back");
}
