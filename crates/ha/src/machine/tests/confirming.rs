//! A leader that can't reach the Lease, and those who could be elected in its place.

use super::*;

fn confirm() -> Question {
    Question::Confirm { leader: holder(0, "a"), epoch: 2 }
}

fn confirmed(ordinal: u32, epoch: Option<u64>, sent: Instant) -> Input {
    let position = at(1, 100);
    let answer = Answer {
        holder: holder(ordinal, "a"),
        confirms: epoch,
        holds: None,
        position,
        able: true,
        full: false,
        led: Some(0),
        empty: false,
    };
    Input::Answered { sent, answer }
}

/// A leader whose renewals fail since `start`, at that moment.
fn cut_off(start: Instant, settings: Settings, members: &[u32], seconds: u32) -> Machine {
    let mut me = leader(start, settings, members);
    for second in 1..=seconds {
        me.step(Input::Tick, start + second * SECOND);
        me.step(Input::Failed, start + second * SECOND);
    }
    me
}

#[test]
fn a_leader_asks_those_who_could_be_elected_when_it_could_not_renew() {
    let start = Instant::now();
    let mut me = leader(start, settings(), &[1, 2]);
    assert_eq!(me.question(start + SECOND), None);
    assert_eq!(me.question(start + 2 * SECOND), Some((confirm(), quorum(&[1, 2]).names)));
    me.step(Input::Tick, start + 2 * SECOND);
    me.step(Input::Written { version: "11".into(), sent: start + 2 * SECOND }, start + 2 * SECOND);
    assert_eq!(me.question(start + 3 * SECOND), None);
    let alone = cut_off(start, settings(), &[], 3);
    assert_eq!(alone.question(start + 3 * SECOND), None, "there is nobody to ask");
}

#[test]
fn a_leader_that_enough_confirm_goes_on_for_as_long_as_they_do() {
    let start = Instant::now();
    for settings in [settings(), asynchronous()] {
        let mut me = cut_off(start, settings, &[1, 2], 3);
        for second in 3..60 {
            let now = start + second * SECOND;
            let written = Instance { written: Some(now), ..primary(2, 100, &[1, 2], quorum(&[1, 2])) };
            me.step(Input::Instance(written), now);
            me.step(confirmed(1, Some(2), start + second * SECOND), start + second * SECOND);
            me.step(Input::Tick, start + second * SECOND);
            me.step(Input::Failed, start + second * SECOND);
            assert!(me.leads(start + (second + 3) * SECOND), "the other can elect nobody alone");
            assert_eq!(me.is_failsafe(now), second >= 4, "from when the Lease alone would not do");
        }
        assert_eq!(me.target(start + 63 * SECOND), Target::Close, "the last was asked four seconds before");
    }
}

#[test]
fn a_confirmation_counts_from_when_it_was_asked_for() {
    let start = Instant::now();
    let mut me = cut_off(start, settings(), &[1, 2], 3);
    me.step(confirmed(1, Some(2), start + 2 * SECOND), start + 3 * SECOND);
    assert!(me.leads(start + 5 * SECOND) && !me.leads(start + 6 * SECOND));
    me.step(confirmed(1, Some(2), start + SECOND), start + 3 * SECOND);
    assert!(me.leads(start + 5 * SECOND), "an older answer takes nothing away");
}

#[test]
fn so_many_must_confirm_that_the_others_can_elect_nobody() {
    let start = Instant::now();
    let four = || Settings { instances: 5, ..settings() };
    // Of whom, who confirms, and whether that is enough.
    for (members, confirming, enough) in [
        (&[1][..], &[1][..], true),
        (&[1, 2], &[2], true),
        (&[1, 2, 3], &[2], false),
        (&[1, 2, 3], &[2, 3], true),
        (&[1, 2, 3, 4], &[1], false),
        (&[1, 2, 3, 4], &[1, 4], true),
        (&[1, 2], &[3], false),
    ] {
        let mut me = cut_off(start, four(), members, 3);
        for ordinal in confirming {
            me.step(confirmed(*ordinal, Some(2), start + 3 * SECOND), start + 3 * SECOND);
        }
        assert_eq!(me.leads(start + 5 * SECOND), enough, "{confirming:?} of {members:?}");
    }
}

#[test]
fn what_confirms_another_epoch_or_nothing_does_not_count() {
    let start = Instant::now();
    for epoch in [None, Some(1), Some(3)] {
        let mut me = cut_off(start, settings(), &[1, 2], 3);
        for ordinal in [1, 2] {
            me.step(confirmed(ordinal, epoch, start + 3 * SECOND), start + 3 * SECOND);
        }
        assert_eq!(me.target(start + 4 * SECOND), Target::Close, "{epoch:?}");
    }
}

#[test]
fn who_confirms_counts_that_as_a_renewal() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    me.step(Input::Asked(confirm()), start + 4 * SECOND);
    assert_eq!(me.answer().confirms, Some(2));
    me.step(Input::Tick, start + 8 * SECOND);
    assert!(me.hold.is_none());
    me.step(Input::Tick, start + 9 * SECOND);
    assert!(me.hold.is_some());
}

#[test]
fn who_confirms_takes_back_that_the_leader_was_gone() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    me.step(Input::Refused(name(0)), start);
    me.step(Input::Asked(confirm()), start);
    me.step(Input::Instance(replica(100, Receiving::Waiting)), start);
    assert!(me.hold.is_none());
}

#[test]
fn who_holds_still_does_not_confirm() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    me.step(Input::Tick, start + 5 * SECOND);
    me.step(Input::Asked(confirm()), start + 5 * SECOND);
    assert_eq!(me.answer().confirms, None, "it may have been counted");
    assert_eq!(me.target(start + 5 * SECOND), Target::Hold);
}

#[test]
fn one_that_sees_another_lead_or_nothing_looks_again_when_it_is_asked() {
    let start = Instant::now();
    for question in [
        Question::Confirm { leader: holder(0, "b"), epoch: 2 },
        Question::Confirm { leader: holder(0, "a"), epoch: 3 },
        Question::Hold { version: "11".into() },
        Question::Left { leader: holder(2, "a"), epoch: 3 },
    ] {
        let mut me = follower(1, start, settings(), &[1, 2]);
        assert_eq!(me.step(Input::Tick, start + SECOND / 2), None);
        assert_eq!(me.step(Input::Asked(question.clone()), start + SECOND / 2), Some(Request::Read));
        let since = me.seen.as_ref().map(|(_, since)| *since);
        assert_eq!(since, Some(start), "{question:?} is no renewal");
    }
    let mut new = machine(1, settings());
    new.step(Input::Instance(empty()), start);
    new.step(Input::Failed, start);
    assert_eq!(new.step(Input::Asked(confirm()), start), Some(Request::Read));
    assert_eq!(new.answer().confirms, None);
}

#[test]
fn a_leader_that_gives_way_is_confirmed_until_it_has_ended() {
    let start = Instant::now();
    let mut me = cut_off(start, settings(), &[1, 2], 2);
    me.step(Input::Stop, start + 2 * SECOND);
    assert_eq!(me.question(start + 2 * SECOND), Some((confirm(), quorum(&[1, 2]).names)));
    me.step(confirmed(1, Some(2), start + 2 * SECOND), start + 2 * SECOND);
    assert_eq!(me.target(start + 5 * SECOND), Target::Finish, "it may take its time");
    assert_eq!(me.target(start + 6 * SECOND), Target::Close);
}

/// A change of the quorum that was not answered: by the old one the first confirms for both, by the new one
/// the second is enough to elect itself.
#[test]
fn while_it_is_not_known_who_may_be_elected_both_must_be_kept_from_it() {
    let start = Instant::now();
    let mut me = leader(start, asynchronous(), &[1, 2]);
    let later = |millis: u64| start + Duration::from_millis(millis);
    me.step(Input::Tick, later(1500));
    me.step(Input::Written { version: "11".into(), sent: later(1500) }, later(1500));
    // The first streams no more.
    let changed = me.step(Input::Instance(primary(2, 100, &[2], quorum(&[]))), later(2000));
    assert!(
        matches!(&changed, Some(Request::Write { draft, .. }) if draft.quorum == quorum(&[2])),
        "{changed:?}"
    );
    me.step(Input::Failed, later(4000));
    me.step(confirmed(1, Some(2), later(4000)), later(4000));
    assert_eq!(me.target(later(5500)), Target::Close, "the second may be elected without it");
    me.step(confirmed(2, Some(2), later(4000)), later(4000));
    assert!(me.leads(later(5500)));
}
