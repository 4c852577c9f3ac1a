//! Renewal, the quorum, and giving up.

use super::*;

/// What the Lease is to say next, if it is renewed at that moment.
fn renewal(me: &mut Machine, now: Instant) -> Option<Quorum> {
    match me.step(Input::Tick, now) {
        Some(Request::Write { draft, .. }) => Some(draft.quorum),
        _ => None,
    }
}

fn commits(me: &Machine, now: Instant) -> Quorum {
    match me.target(now) {
        Target::Primary { commits, .. } => commits,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leader_renews_and_writes_down_which_database_it_is() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    assert_eq!(me.step(Input::Tick, start + SECOND / 2), None, "not yet");
    let Some(Request::Write { draft, replaces }) = me.step(Input::Tick, start + SECOND) else { panic!() };
    assert_eq!((draft.system.as_deref(), replaces.as_deref()), (Some("7"), Some("10")));
    assert_eq!((draft.epoch, draft.end), (2, at(1, 100)));
    assert_eq!(me.step(Input::Tick, start + 2 * SECOND), None, "one request at a time");
    me.step(Input::Written { version: "11".into(), sent: start + SECOND }, start + 2 * SECOND);
    assert!(
        me.leads(start + SECOND + 3 * SECOND) && !me.leads(start + SECOND + 4 * SECOND),
        "from when it was sent"
    );
}

#[test]
fn a_leader_that_can_not_renew_closes_in_time_and_one_that_has_no_rival_does_not() {
    let start = Instant::now();
    for (members, closes) in [(&[1, 2][..], true), (&[], false)] {
        let mut me = leader(start, settings(), members);
        for second in 1..4 {
            me.step(Input::Tick, start + second * SECOND);
            me.step(Input::Failed, start + second * SECOND);
            assert!(me.leads(start + second * SECOND));
        }
        assert_eq!(me.target(start + 4 * SECOND) == Target::Close, closes);
    }
}

#[test]
fn a_leader_that_finds_another_in_its_place_closes_at_once() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    me.step(Input::Tick, start + SECOND);
    assert_eq!(me.step(Input::Conflict, start + SECOND), Some(Request::Read));
    me.step(Input::Read(Some(lease("15", Some(holder(1, "b")), 3, quorum(&[2])))), start + SECOND);
    assert_eq!(me.target(start + SECOND), Target::Close);
    me.step(Input::Instance(having_led(2, Running::Stopped)), start + SECOND);
    let replica = Target::Replica { of: name(1), epoch: 3, system: "7".into() };
    assert_eq!(me.target(start + SECOND), replica);
}

#[test]
fn a_renewal_that_was_not_answered_is_looked_for_before_the_next() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    me.step(Input::Tick, start + SECOND);
    assert_eq!(me.step(Input::Failed, start + SECOND), None);
    assert_eq!(me.step(Input::Tick, start + 2 * SECOND), Some(Request::Read));
    me.step(Input::Instance(primary(2, 100, &[1, 2], quorum(&[1, 2]))), start + 2 * SECOND);
    let found = lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2]));
    let renewed = me.step(Input::Read(Some(found)), start + 2 * SECOND);
    assert!(!me.leads(start + 4 * SECOND), "nobody knows when it was accepted");
    let Some(Request::Write { replaces, .. }) = renewed else { panic!("it is overdue: {renewed:?}") };
    assert_eq!(replaces.as_deref(), Some("11"));
}

#[test]
fn the_first_standby_is_waited_for_before_it_may_be_elected() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    me.step(Input::Instance(primary(2, 100, &[1], Quorum::default())), later(100));
    assert_eq!(commits(&me, later(100)), quorum(&[1]));
    assert_eq!(me.quorum(), Some(&quorum(&[])));

    // In force, but what was acknowledged before may not be there.
    me.step(Input::Instance(primary(2, 150, &[1], quorum(&[1]))), later(200));
    assert_eq!(me.step(Input::Tick, later(450)), None);
    let mut behind = primary(2, 200, &[1], quorum(&[1]));
    behind.standbys[0].offset = 199;
    assert_eq!(me.step(Input::Instance(behind), later(500)), None, "200 was, and it has 199");
    let mut there = primary(2, 300, &[1], quorum(&[1]));
    there.standbys[0].offset = 200;
    let changed = me.step(Input::Instance(there), later(600));
    assert!(
        matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[1])),
        "{changed:?}"
    );
}

#[test]
fn the_barrier_is_how_far_the_log_is_when_the_change_is_in_force_for_every_process() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    me.step(Input::Instance(primary(2, 100, &[1], Quorum::default())), later(100));
    for millis in [200, 300, 499] {
        let all_there = primary(2, millis, &[1], quorum(&[1]));
        assert_eq!(
            me.step(Input::Instance(all_there), later(millis)),
            None,
            "another process may not know yet"
        );
    }
    let changed = me.step(Input::Instance(primary(2, 500, &[1], quorum(&[1]))), later(500));
    assert!(matches!(changed, Some(Request::Write { .. })));
}

#[test]
fn a_second_standby_may_be_elected_before_commits_wait_for_it() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1]);
    let changed = me.step(Input::Instance(primary(2, 100, &[1, 2], quorum(&[1]))), start);
    assert!(
        matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[1, 2])),
        "{changed:?}"
    );
    assert_eq!(commits(&me, start), quorum(&[1]));
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    assert_eq!(commits(&me, start), quorum(&[1, 2]));
}

#[test]
fn one_that_went_away_is_no_longer_waited_for_before_it_may_no_longer_be_elected() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    for millis in [500, 1000, 1500] {
        me.step(Input::Instance(primary(2, 100, &[1], quorum(&[1, 2]))), later(millis));
        me.step(Input::Written { version: millis.to_string(), sent: later(millis) }, later(millis));
    }
    assert_eq!(commits(&me, later(1900)), quorum(&[1, 2]), "it may be back soon");
    me.step(Input::Instance(primary(2, 100, &[1], quorum(&[1, 2]))), later(2000));
    assert_eq!(commits(&me, later(2000)), quorum(&[1]));
    me.step(Input::Instance(primary(2, 110, &[1], quorum(&[1]))), later(2100));
    let changed = me.step(Input::Instance(primary(2, 120, &[1], quorum(&[1]))), later(2400));
    assert!(
        matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[1])),
        "{changed:?}"
    );
}

/// Found by the simulator: of two that commits waited for, one was left; to take the others out one by one would have
/// taken commits that two acknowledge.
#[test]
fn when_most_are_away_only_the_leader_may_be_elected_until_commits_have_waited_for_the_rest() {
    let start = Instant::now();
    let mut me = leader(start, Settings { instances: 5, ..settings() }, &[1, 2, 3, 4]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    let few = |offset: u64, commits: Quorum| Input::Instance(primary(2, offset, &[1], commits));
    for millis in [500, 1000, 1500] {
        me.step(few(100, quorum(&[1, 2, 3, 4])), later(millis));
        me.step(Input::Written { version: millis.to_string(), sent: later(millis) }, later(millis));
    }
    assert_eq!(commits(&me, later(1900)), quorum(&[1, 2, 3, 4]), "they may be back soon");
    let written = me.step(few(100, quorum(&[1, 2, 3, 4])), later(2000));
    assert!(matches!(&written, Some(Request::Write { draft, .. }) if draft.quorum.is_empty()), "{written:?}");
    assert_eq!(
        commits(&me, later(2000)),
        quorum(&[1, 2, 3, 4]),
        "the others can be elected until it is written"
    );
    me.step(Input::Written { version: "20".into(), sent: later(2000) }, later(2000));
    me.step(few(100, quorum(&[1, 2, 3, 4])), later(2050));
    assert_eq!(commits(&me, later(2050)), quorum(&[1]));
    me.step(few(110, quorum(&[1])), later(2100));
    let written = me.step(few(120, quorum(&[1])), later(2400));
    assert!(
        matches!(&written, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[1])),
        "{written:?}"
    );
}

#[test]
fn when_all_are_away_the_leader_goes_on_alone_or_waits_as_the_spec_says() {
    let start = Instant::now();
    for required in [false, true] {
        let mut me = leader(start, Settings { required, ..settings() }, &[1]);
        let alone = Input::Instance(primary(2, 100, &[], quorum(&[1])));
        me.step(Input::Tick, start + SECOND);
        me.step(Input::Written { version: "11".into(), sent: start + SECOND }, start + SECOND);
        me.step(alone.clone(), start + 2 * SECOND);
        let next = renewal(&mut me, start + 2 * SECOND).unwrap_or_else(|| me.quorum().cloned().unwrap());
        assert_eq!(
            next.is_empty() || matches!(&me.asked, Some(Asked::Renew { quorum, .. }) if quorum.is_empty()),
            !required
        );
        assert_eq!(commits(&me, start + 2 * SECOND), quorum(&[1]), "not before the Lease says so");
        me.step(Input::Written { version: "12".into(), sent: start + 2 * SECOND }, start + 2 * SECOND);
        me.step(alone, start + 2 * SECOND);
        let expected = if required { quorum(&[1]) } else { Quorum::fence() };
        assert_eq!(commits(&me, start + 2 * SECOND), expected);
    }
}

#[test]
fn where_a_standby_is_required_the_first_commit_waits_for_the_first_that_comes() {
    let start = Instant::now();
    let me = leader(start, Settings { required: true, ..settings() }, &[]);
    let any = Quorum { count: 1, ..quorum(&[1, 2]) };
    assert_eq!(commits(&me, start), any);
    let me = leader(start, Settings { required: true, instances: 1, ..settings() }, &[]);
    assert_eq!(commits(&me, start), quorum(&[]), "there is none to wait for");
}

#[test]
fn nothing_changes_about_the_quorum_while_a_write_is_under_way_or_was_not_answered() {
    let start = Instant::now();
    let with_two = || Input::Instance(primary(2, 100, &[1, 2], quorum(&[1])));
    let mut me = leader(start, settings(), &[1]);
    me.step(Input::Tick, start + SECOND);
    assert_eq!(me.step(with_two(), start + SECOND), None);
    me.step(Input::Failed, start + SECOND);
    assert_eq!(me.step(with_two(), start + SECOND), None);
    assert_eq!(commits(&me, start + SECOND), quorum(&[1]));
}

#[test]
fn without_synchronous_commits_all_that_stream_may_be_elected_and_nobody_is_waited_for() {
    let start = Instant::now();
    let mut me = leader(start, asynchronous(), &[1]);
    let changed = me.step(Input::Instance(primary(2, 100, &[1, 2], quorum(&[]))), start);
    assert!(
        matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[1, 2])),
        "{changed:?}"
    );
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    assert_eq!(commits(&me, start), Quorum::fence(), "for nobody else");
    me.step(Input::Settings(settings()), start);
    assert_eq!(commits(&me, start), quorum(&[1, 2]));
    me.step(Input::Settings(asynchronous()), start);
    assert_eq!(commits(&me, start), Quorum::fence());
    assert_eq!(me.leave(start), Some(start + 4 * SECOND), "and no longer than it leads");
}

#[test]
fn one_whose_writes_do_not_reach_the_disk_gives_up_when_there_is_somebody_else() {
    let start = Instant::now();
    for (members, gives_up) in [(&[1, 2][..], true), (&[], false)] {
        let mut me = leader(start, settings(), members);
        let wrote = Instance { written: Some(start), ..primary(2, 100, members, quorum(members)) };
        for second in 0..5 {
            let now = start + second * SECOND;
            me.step(Input::Instance(wrote.clone()), now);
            me.step(Input::Written { version: (11 + second).to_string(), sent: now }, now);
            assert_eq!(me.target(now) == Target::Close, gives_up && second == 4, "{second}");
        }
    }
}

#[test]
fn one_whose_disk_is_damaged_gives_up_at_once_and_leaves_it_to_an_election() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    me.step(Input::Instance(Instance { damaged: true, ..primary(2, 100, &[1, 2], quorum(&[1, 2])) }), start);
    assert_eq!(me.target(start), Target::Close);
    let ended = Instance { damaged: true, ..having_led(2, Running::Stopped) };
    let Some(Request::Write { draft, .. }) = me.step(Input::Instance(ended), start) else { panic!() };
    assert_eq!((draft.holder, draft.successor), (None, Some(Successor::Any)));
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    let free = Lease { successor: Some(Successor::Any), ..lease("11", None, 2, quorum(&[1, 2])) };
    me.step(Input::Seen(free), start);
    assert_eq!(takes(&me.step(Input::Tick, start + 60 * SECOND)), None, "it does not want it back");
}

#[test]
fn damage_is_no_reason_where_nobody_else_can_be_elected() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[]);
    me.step(Input::Instance(Instance { damaged: true, ..primary(2, 100, &[], quorum(&[])) }), start);
    assert!(me.leads(start));
}

#[test]
fn a_term_lasts_as_long_as_was_written_whatever_the_spec_says_by_then() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    me.step(Input::Tick, start + SECOND);
    me.step(Input::Settings(Settings { ttl: 60 * SECOND, ..settings() }), start + SECOND);
    me.step(Input::Written { version: "11".into(), sent: start + SECOND }, start + SECOND);
    assert!(!me.leads(start + 5 * SECOND), "the others wait for five seconds");
}

#[test]
fn a_write_that_comes_after_it_was_looked_for_is_reckoned_with() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    me.step(Input::Instance(primary(2, 100, &[1], quorum(&[]))), later(100));
    me.step(Input::Instance(primary(2, 100, &[1], quorum(&[1]))), later(200));
    let changed = me.step(Input::Instance(primary(2, 100, &[1], quorum(&[1]))), later(600));
    assert!(matches!(changed, Some(Request::Write { .. })));
    me.step(Input::Failed, later(1000));
    me.step(Input::Tick, later(1700));
    // It has not arrived yet.
    let found = lease("10", Some(holder(0, "a")), 2, quorum(&[]));
    let renewed = me.step(Input::Read(Some(found)), later(1700));
    assert!(matches!(&renewed, Some(Request::Write { draft, .. }) if draft.quorum.is_empty()), "{renewed:?}");
    assert!(!me.leads(start + 60 * SECOND), "when it does, there is one that can be elected");
    me.step(Input::Instance(primary(2, 100, &[], quorum(&[1]))), later(1700));
    assert_eq!(commits(&me, later(1701)), quorum(&[1]), "which has to have each commit");
    me.step(Input::Written { version: "11".into(), sent: later(1700) }, later(1800));
    assert!(me.leads(start + 60 * SECOND), "now it can't come any more");
}

#[test]
fn one_that_is_scaled_to_be_alone_waits_for_nobody_even_where_a_standby_was_required() {
    let start = Instant::now();
    let mut me = leader(start, Settings { required: true, ..settings() }, &[1, 2]);
    let changed = me.step(Input::Settings(Settings { required: true, instances: 1, ..settings() }), start);
    assert!(matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum.is_empty()), "{changed:?}");
    me.step(Input::Written { version: "11".into(), sent: start }, start);
    assert_eq!(commits(&me, start), quorum(&[]));
}

#[test]
fn one_that_is_told_to_be_alone_closes_in_time_while_others_can_still_be_elected() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    me.step(Input::Tick, start + SECOND);
    me.step(Input::Settings(Settings { instances: 1, ..settings() }), start + SECOND);
    assert_eq!(me.target(start + 4 * SECOND), Target::Close, "they may not have heard of it");
}

#[test]
fn as_long_as_commits_do_not_wait_for_it_a_standby_may_not_be_elected() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    for millis in [100, 300, 500, 700, 900] {
        let not_yet = Input::Instance(primary(2, 100, &[1], quorum(&[])));
        assert_eq!(me.step(not_yet, later(millis)), None);
        assert_eq!(commits(&me, later(millis)), quorum(&[1]));
    }
    assert_eq!(renewal(&mut me, later(1000)), Some(quorum(&[])));
}

#[test]
fn one_that_does_not_come_to_its_first_write_gives_way_if_there_is_somebody_else() {
    let start = Instant::now();
    for (members, gives_way) in [(&[1, 2][..], true), (&[], false)] {
        let mut me = leader(start, settings(), members);
        for second in 0..40 {
            let now = start + second * SECOND;
            me.step(Input::Instance(primary(2, 100, members, quorum(members))), now);
            me.step(Input::Written { version: (11 + second).to_string(), sent: now }, now);
        }
        assert_eq!(me.target(start + 40 * SECOND) == Target::Close, gives_way);
    }
}

#[test]
fn while_nobody_else_can_be_elected_commits_wait_for_whoever_is_there() {
    let start = Instant::now();
    // It took over from a leader that is back, and the other that it took over with is gone.
    let mut me = leader(start, settings(), &[1]);
    me.step(Input::Seen(lease("11", Some(holder(0, "a")), 2, quorum(&[0, 1]))), start);
    me.step(Input::Instance(primary(2, 100, &[2], quorum(&[1]))), start + 3 * SECOND);
    me.step(Input::Written { version: "12".into(), sent: start + 3 * SECOND }, start + 3 * SECOND);
    assert_eq!(commits(&me, start + 3 * SECOND), quorum(&[2]));
}

/// Found by the simulator: the agent would have asked again and again, without a pause, until its database had ended.
#[test]
fn one_that_gives_up_and_whose_term_is_over_waits_for_its_database_to_end() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    let ill = Instance { damaged: true, written: Some(start), ..primary(2, 100, &[1, 2], quorum(&[1, 2])) };
    me.step(Input::Instance(ill), start);
    assert_eq!(me.target(start), Target::Close);
    let late = start + 10 * SECOND;
    assert_eq!(me.step(Input::Tick, late), None);
    assert!(me.wake(late) > late);
}
