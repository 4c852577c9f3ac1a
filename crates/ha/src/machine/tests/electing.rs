//! Who holds still, who is asked, and who is elected.

use super::*;

fn left(epoch: u64) -> Input {
    Input::Asked(Question::Left { leader: holder(0, "a"), epoch })
}

#[test]
fn what_was_said_of_a_leader_does_not_hold_for_its_next_epoch() {
    let start = Instant::now();
    for settings in [settings(), asynchronous()] {
        let mut me = follower(1, start, settings, &[1, 2]);
        me.step(left(2), start);
        assert_eq!(me.target(start), Target::Hold);
        // Its container was started again.
        me.step(Input::Seen(lease("11", Some(holder(0, "a")), 3, quorum(&[1, 2]))), start);
        assert_eq!(me.target(start), Target::Replica { of: name(0), epoch: 3, system: "7".into() });
        me.step(left(2), start);
        assert!(me.hold.is_none(), "news of the past");
    }
}

#[test]
fn one_that_refused_connections_and_then_renewed_is_there() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    me.step(Input::Instance(replica(100, Receiving::Waiting)), start);
    me.step(Input::Refused(name(0)), start);
    assert_eq!(me.target(start), Target::Hold);
    me.step(Input::Seen(lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2]))), start);
    assert_eq!(me.target(start), Target::Replica { of: name(0), epoch: 2, system: "7".into() });
    me.step(Input::Tick, start + SECOND);
    assert!(me.hold.is_none());
}

#[test]
fn one_that_has_just_started_follows_and_confirms_nobody_before_the_lease_changes() {
    let start = Instant::now();
    let held = |version: &str| lease(version, Some(holder(0, "a")), 2, quorum(&[1, 2]));
    let confirm = || Input::Asked(Question::Confirm { leader: holder(0, "a"), epoch: 2 });
    for (data, target) in [(filled(Running::Stopped), Target::Hold), (empty(), Target::Wait)] {
        let mut me = machine(1, settings());
        me.step(Input::Instance(data), start);
        me.step(Input::Read(Some(held("10"))), start);
        me.step(confirm(), start);
        assert_eq!((me.target(start), me.answer().confirms), (target, None), "it may have voted");
        assert_eq!(me.answer().holds, None, "but it does not know");
        me.step(Input::Seen(held("11")), start);
        me.step(confirm(), start);
        let follow = Target::Replica { of: name(0), epoch: 2, system: "7".into() };
        assert_eq!((me.target(start), me.answer().confirms), (follow, Some(2)));
    }
}
