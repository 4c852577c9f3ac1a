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

const SILENT: Duration = Duration::from_secs(5);

/// An instance that holds still since the leader's term is over, has so much, and receives nothing.
fn holding(ordinal: u32, start: Instant, settings: Settings, members: &[u32], offset: u64) -> Machine {
    let mut me = follower(ordinal, start, settings, members);
    me.step(Input::Instance(replica(offset, Receiving::Waiting)), start + SECOND);
    me.step(Input::Failed, start + SECOND);
    me.step(Input::Tick, start + SILENT);
    me.step(Input::Failed, start + SILENT);
    me.step(Input::Instance(replica(offset, Receiving::Cut)), start + SILENT);
    me
}

fn vote(ordinal: u32, version: &str, offset: u64, able: bool) -> Input {
    let (holder, holds) = (holder(ordinal, "a"), Some(version.to_owned()));
    let answer = Answer {
        holder,
        confirms: None,
        holds,
        position: at(1, offset),
        able,
        full: false,
        led: Some(0),
        empty: false,
    };
    Input::Answered { sent: Instant::now(), answer }
}

fn ask_to_hold(version: &str) -> Input {
    Input::Asked(Question::Hold { version: version.into() })
}

#[test]
fn when_the_leader_falls_silent_its_followers_hold_still_and_ask_each_other_to() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    assert_eq!(me.question(start + SILENT), None);
    me.step(Input::Tick, start + SILENT - SECOND / 10);
    assert_ne!(me.target(start + SILENT), Target::Hold, "not before the whole term is over");
    me.step(Input::Tick, start + SILENT);
    assert_eq!(me.target(start + SILENT), Target::Hold);
    let asks = Some((Question::Hold { version: "10".into() }, [name(2)].into()));
    assert_eq!(me.question(start + SILENT), asks);
    assert_eq!(me.answer().holds, None, "the log still comes in");
    me.step(Input::Instance(replica(100, Receiving::Cut)), start + SILENT);
    assert_eq!(me.answer().holds.as_deref(), Some("10"));
    me.step(vote(2, "10", 100, true), start + SILENT);
    assert_eq!(me.question(start + SILENT), None, "all have answered");
}

#[test]
fn one_that_is_asked_holds_still_only_if_it_sees_nobody_lead_either() {
    let start = Instant::now();
    let mut me = follower(2, start, settings(), &[1, 2]);
    me.step(ask_to_hold("10"), start + SECOND);
    assert!(me.hold.is_none(), "it has heard of the leader since");
    me.step(ask_to_hold("9"), start + SILENT);
    assert_eq!(
        me.hold.as_ref().map(|hold| hold.version.as_str()),
        Some("10"),
        "what it sees, and not what it is asked"
    );
}

#[test]
fn one_that_can_not_lead_votes_all_the_same() {
    let start = Instant::now();
    let mut me = follower(2, start, settings(), &[1, 2]);
    let damaged = |receiving| Instance { damaged: true, ..replica(100, receiving) };
    me.step(Input::Instance(damaged(Receiving::Waiting)), start);
    me.step(Input::Tick, start + SILENT);
    assert!(me.hold.is_none(), "not by itself");
    me.step(ask_to_hold("10"), start + SILENT);
    me.step(Input::Instance(damaged(Receiving::Cut)), start + SILENT);
    let answer = me.answer();
    assert_eq!((answer.holds.as_deref(), answer.able), (Some("10"), false));
    assert_eq!(takes(&me.step(vote(1, "10", 1, true), start + SILENT)), None);
}

#[test]
fn the_furthest_of_enough_is_elected() {
    let start = Instant::now();
    let now = start + SILENT;
    // Who has how much, who votes with how much, and whether the first of them takes the Lease.
    for (mine, votes, elected) in [
        (100, vec![], false),
        (100, vec![(2, 99)], true),
        (100, vec![(2, 100)], true),
        (100, vec![(2, 101)], false),
        (100, vec![(3, 100)], false),
    ] {
        let mut me = holding(1, start, settings(), &[1, 2], mine);
        let mut taken = me.step(Input::Tick, now);
        for (ordinal, offset) in &votes {
            taken = taken.or(me.step(vote(*ordinal, "10", *offset, true), now));
        }
        assert_eq!(takes(&taken).is_some(), elected, "{mine} against {votes:?}");
        if let Some(Request::Write { draft, replaces }) = taken.filter(|_| elected) {
            assert_eq!((draft.epoch, replaces.as_deref()), (3, Some("10")));
            assert_eq!(draft.quorum, quorum(&[1, 2]), "the other may lack what only this one has");
        }
    }
}

#[test]
fn a_newer_history_is_further_whatever_the_offset() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    let Input::Answered { sent, answer } = vote(2, "10", 50, true) else { panic!() };
    let newer = Input::Answered { sent, answer: Answer { position: at(2, 50), ..answer } };
    assert_eq!(takes(&me.step(newer, start + SILENT)), None);
}

#[test]
fn the_first_of_equals_goes_first_if_it_can() {
    let start = Instant::now();
    let now = start + SILENT;
    for (able, waits) in [(true, true), (false, false)] {
        let mut me = holding(2, start, settings(), &[1, 2], 100);
        assert_eq!(takes(&me.step(vote(1, "10", 100, able), now)).is_none(), waits);
        if waits {
            me.step(Input::Failed, now + SECOND / 2);
            assert_eq!(takes(&me.step(Input::Tick, now + SECOND)), Some("10"), "it did not come");
        }
    }
}

#[test]
fn one_that_has_more_is_waited_for_even_if_it_can_not_lead() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    assert_eq!(takes(&me.step(vote(2, "10", 101, false), start + SILENT)), None);
    assert_eq!(takes(&me.step(Input::Tick, start + 60 * SECOND)), None);
}

#[test]
fn where_commits_wait_for_nobody_one_that_has_more_and_can_not_lead_is_waited_for_only_a_moment() {
    let start = Instant::now();
    for (able, offset, may) in [(false, 95, true), (true, 95, false), (false, 50, false)] {
        let mut me = holding(1, start, asynchronous(), &[1, 2], offset);
        assert_eq!(takes(&me.step(vote(2, "10", 100, able), start + SILENT)), None);
        me.step(Input::Failed, start + SILENT + SECOND / 2);
        let taken = me.step(Input::Tick, start + SILENT + 2 * SECOND);
        assert_eq!(takes(&taken).is_some(), may, "{able} {offset}");
    }
}

#[test]
fn a_vote_for_another_version_does_not_count() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    assert_eq!(takes(&me.step(vote(2, "9", 100, true), start + SILENT)), None);
    assert_eq!(takes(&me.step(vote(2, "10", 100, true), start + SILENT)), Some("10"));
}

#[test]
fn the_only_one_of_a_quorum_elects_itself_once_it_receives_nothing() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1]);
    assert_eq!(takes(&me.step(Input::Tick, start + SILENT)), None);
    me.step(Input::Failed, start + SILENT);
    let taken = me.step(Input::Instance(replica(100, Receiving::Cut)), start + SILENT);
    assert_eq!(takes(&taken), Some("10"));
    me.step(Input::Written { version: "11".into(), sent: start + SILENT }, start + SILENT);
    let lead = Target::Primary { epoch: 3, history: 2, commits: Quorum::fence() };
    assert_eq!(me.target(start + SILENT), lead);
}

#[test]
fn one_that_commits_did_not_wait_for_is_not_elected() {
    let start = Instant::now();
    for members in [&[2][..], &[2, 3], &[]] {
        let mut me = holding(1, start, settings(), members, 100);
        assert!(me.hold.is_none(), "{members:?}");
        me.step(ask_to_hold("10"), start + SILENT);
        me.step(Input::Instance(replica(100, Receiving::Cut)), start + SILENT);
        for other in members {
            assert_eq!(takes(&me.step(vote(*other, "10", 1, true), start + SILENT)), None, "{members:?}");
        }
        assert_eq!(takes(&me.step(Input::Tick, start + 60 * SECOND)), None);
    }
}

#[test]
fn who_is_elected_of_four_lets_the_others_be_elected_by_the_old_quorum() {
    let start = Instant::now();
    let four = Settings { instances: 5, ..settings() };
    let mut me = holding(1, start, four, &[1, 2, 3, 4], 100);
    assert_eq!(takes(&me.step(vote(2, "10", 90, true), start + SILENT)), None, "one more");
    assert_eq!(takes(&me.step(vote(3, "10", 90, true), start + SILENT)), Some("10"));
}

#[test]
fn where_commits_wait_for_nobody_one_may_lack_as_much_as_the_spec_allows() {
    let start = Instant::now();
    for (settings, offset, may) in
        [(asynchronous(), 90, true), (asynchronous(), 89, false), (settings(), 89, true)]
    {
        let mut me = holding(1, start, settings, &[1, 2], offset);
        let taken = me.step(vote(2, "10", 50, true), start + SILENT);
        assert_eq!(takes(&taken).is_some(), may, "{offset} of 100");
    }
}

#[test]
fn one_that_sees_a_renewal_no_longer_holds_still_and_its_votes_are_gone() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    me.step(Input::Seen(lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2]))), start + SILENT);
    assert_eq!(me.target(start + SILENT), Target::Replica { of: name(0), epoch: 2, system: "7".into() });
    assert_eq!(me.answer().holds, None);
    assert_eq!(takes(&me.step(vote(2, "10", 100, true), start + SILENT)), None);
    me.step(Input::Tick, start + 2 * SILENT);
    me.step(Input::Instance(replica(100, Receiving::Cut)), start + 2 * SILENT);
    assert_eq!(takes(&me.step(Input::Tick, start + 2 * SILENT)), None, "the vote was for another version");
}

#[test]
fn a_renewal_that_comes_before_the_lease_is_taken_wins() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    let taken = me.step(vote(2, "10", 100, true), start + SILENT);
    assert_eq!(takes(&taken), Some("10"), "in the very version in which they hold");
    assert_eq!(me.target(start + SILENT), Target::Hold, "still");
    assert_eq!(me.answer().confirms, None);
    assert_eq!(me.step(Input::Conflict, start + SILENT), Some(Request::Read));
    me.step(Input::Read(Some(lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2])))), start + SILENT);
    assert_eq!(me.target(start + SILENT), Target::Replica { of: name(0), epoch: 2, system: "7".into() });
}

#[test]
fn who_is_elected_leads_with_commits_that_wait_for_the_others() {
    let start = Instant::now();
    let now = start + SILENT;
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    me.step(vote(2, "10", 100, true), now);
    me.step(Input::Written { version: "11".into(), sent: now }, now);
    assert_eq!(me.target(now), Target::Primary { epoch: 3, history: 2, commits: quorum(&[2]) });
    assert!(me.leads(now + 60 * SECOND), "the other can't be elected without it");
    assert_eq!(me.leader(), Some((name(1).as_str(), 3)));
}

#[test]
fn a_leader_that_says_that_it_has_ended_is_not_waited_for() {
    let start = Instant::now();
    for settings in [settings(), asynchronous()] {
        let mut me = follower(1, start, settings, &[1, 2]);
        let other = Question::Left { leader: holder(0, "b"), epoch: 2 };
        me.step(Input::Asked(other), start);
        assert!(me.hold.is_none(), "another one said so");
        me.step(left(2), start);
        assert_eq!(me.target(start), Target::Hold);
    }
}

#[test]
fn a_leader_whose_agent_refuses_connections_is_not_waited_for_where_it_could_do_no_harm() {
    let start = Instant::now();
    for (settings, receiving, counts) in [
        (settings(), Receiving::Waiting, true),
        (settings(), Receiving::Streaming, false),
        (asynchronous(), Receiving::Waiting, false),
    ] {
        let mut me = follower(1, start, settings, &[1, 2]);
        me.step(Input::Instance(replica(100, receiving)), start);
        assert_eq!(me.misses(), (receiving == Receiving::Waiting).then_some("orders-0"));
        me.step(Input::Refused(name(2)), start);
        assert!(me.hold.is_none(), "another one refused");
        me.step(Input::Refused(name(0)), start);
        assert_eq!(me.target(start) == Target::Hold, counts);
    }
}

#[test]
fn one_that_is_told_to_stop_is_not_elected() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    me.step(Input::Stop, start + SILENT);
    assert!(!me.answer().able);
    assert_eq!(takes(&me.step(vote(2, "10", 100, true), start + SILENT)), None);
    assert_eq!(me.target(start + SILENT), Target::Finish);
}

#[test]
fn a_lease_that_was_let_go_for_any_is_open_to_election_at_once_and_one_for_another_later() {
    let start = Instant::now();
    for (successor, at_once) in [(Successor::Any, true), (Successor::Named(name(2)), false)] {
        let mut me = follower(1, start, settings(), &[1, 2]);
        let free = Lease { successor: Some(successor), ..lease("11", None, 2, quorum(&[1, 2])) };
        me.step(Input::Seen(free), start);
        assert_eq!(me.target(start) == Target::Hold, at_once);
        me.step(Input::Tick, start + SILENT);
        assert_eq!(me.target(start + SILENT), Target::Hold);
    }
}

#[test]
fn an_answer_that_was_overtaken_by_news_is_not_news() {
    let start = Instant::now();
    let mut me = follower(1, start, settings(), &[1, 2]);
    assert_eq!(me.step(Input::Tick, start + 2 * SECOND), Some(Request::Read));
    me.step(Input::Seen(lease("11", Some(holder(2, "a")), 3, quorum(&[1, 2]))), start + 2 * SECOND);
    let follow = Target::Replica { of: name(2), epoch: 3, system: "7".into() };
    let old = lease("10", Some(holder(0, "a")), 2, quorum(&[1, 2]));
    me.step(Input::Read(Some(old)), start + 2 * SECOND);
    assert_eq!(me.target(start + 2 * SECOND), follow);
}

#[test]
fn that_nothing_comes_in_is_to_be_seen_anew_each_time() {
    let start = Instant::now();
    let mut me = holding(1, start, settings(), &[1, 2], 100);
    assert_eq!(me.answer().holds.as_deref(), Some("10"));
    me.step(Input::Seen(lease("11", Some(holder(0, "a")), 2, quorum(&[1, 2]))), start + SILENT);
    let any = Some(Successor::Any);
    me.step(Input::Seen(Lease { successor: any, ..lease("12", None, 2, quorum(&[1, 2])) }), start + SILENT);
    assert_eq!(me.target(start + SILENT), Target::Hold);
    assert_eq!(me.answer().holds, None, "it may have followed in between");
    me.step(Input::Instance(replica(120, Receiving::Cut)), start + SILENT);
    assert_eq!((me.answer().holds.as_deref(), me.answer().position), (Some("12"), at(1, 120)));
}

/// Found by the simulator: the leader had let go of the Lease and not come back, and the one that was to take over
/// had been started again meanwhile.
#[test]
fn one_that_is_started_while_nobody_leads_comes_up_to_be_elected() {
    let start = Instant::now();
    for successor in [Successor::Named(name(1)), Successor::Any] {
        let released = Lease { successor: Some(successor), ..lease("9", None, 2, quorum(&[1])) };
        let mut me = machine(1, settings());
        me.step(Input::Instance(filled(Running::Stopped)), start);
        me.step(Input::Read(Some(released)), start);
        assert_eq!(me.target(start), Target::Hold);
        let up = || Input::Instance(replica(100, Receiving::Cut));
        let taken = [me.step(up(), start), me.step(up(), start)];
        assert!(taken.iter().any(|request| takes(request) == Some("9")), "{taken:?}");
    }
}

/// Why a machine leads, once its write of the Lease was accepted.
fn reign(mut me: Machine, now: Instant) -> Reign {
    me.step(Input::Written { version: "11".into(), sent: now }, now);
    me.reign().unwrap()
}

#[test]
fn one_that_is_elected_knows_why_and_what_it_lacks() {
    let start = Instant::now();
    let later = start + SILENT;
    let mut silent = holding(1, start, settings(), &[1, 2], 90);
    assert_eq!(takes(&silent.step(vote(2, "10", 90, true), later)), Some("10"));
    assert_eq!(reign(silent, later), Reign { epoch: 3, cause: Cause::Silent, lacks: Some(10) });

    let evidence: [(Input, Cause); 2] = [(left(2), Cause::Left), (Input::Refused(name(0)), Cause::Died)];
    for (news, cause) in evidence {
        let mut me = follower(1, start, settings(), &[1, 2]);
        me.step(Input::Instance(replica(100, Receiving::Waiting)), start);
        me.step(news, start);
        me.step(Input::Instance(replica(100, Receiving::Cut)), start);
        assert_eq!(takes(&me.step(vote(2, "10", 100, true), start)), Some("10"));
        assert_eq!(reign(me, start), Reign { epoch: 3, cause, lacks: Some(0) });
    }

    for (successor, cause) in
        [(Successor::Any, Cause::GaveUp), (Successor::Named(name(1)), Cause::HandedOver)]
    {
        let mut me = follower(1, start, settings(), &[1, 2]);
        let given = Lease { successor: Some(successor), ..lease("11", None, 2, quorum(&[1, 2])) };
        let mut taken = me.step(Input::Seen(given), start);
        if takes(&taken).is_none() {
            me.step(Input::Instance(replica(100, Receiving::Cut)), start);
            taken = me.step(vote(2, "11", 100, true), start);
        }
        assert_eq!(takes(&taken), Some("11"));
        assert_eq!(reign(me, start).cause, cause);
    }
}

#[test]
fn a_history_that_another_may_have_begun_unseen_keeps_its_number() {
    let start = Instant::now();
    // The one before was to begin the second, and nobody has heard of it; or this instance has come further.
    for (promised, own, next) in [(2, 1, 3), (1, 1, 2), (1, 4, 5), (0, 1, 2)] {
        let mut me = follower(1, start, settings(), &[1, 2]);
        let given = Lease {
            successor: Some(Successor::Any),
            history: promised,
            end: None,
            ..lease("11", None, 2, quorum(&[1, 2]))
        };
        me.step(Input::Seen(given), start);
        me.step(Input::Instance(Instance { position: at(own, 100), ..replica(100, Receiving::Cut) }), start);
        let holds = Some("11".to_owned());
        let answer = Answer {
            holder: holder(2, "a"),
            confirms: None,
            holds,
            position: at(own, 9),
            able: true,
            full: false,
            led: Some(0),
            empty: false,
        };
        let taken = me.step(Input::Answered { sent: start, answer }, start);
        let Some(Request::Write { draft, .. }) = taken else { panic!("{taken:?}") };
        assert_eq!(draft.history, next, "for all who come after");
        me.step(Input::Written { version: "12".into(), sent: start }, start);
        assert!(matches!(me.target(start), Target::Primary { history, .. } if history == next));
    }
}

/// Somebody writes on the Lease all the time: a tool that labels it, say. Its holder is no more alive for it.
#[test]
fn a_note_that_somebody_puts_on_the_lease_is_no_renewal_and_the_election_goes_on() {
    let start = Instant::now();
    let noted = |version: &str| Lease {
        renewal: "10".into(),
        ..lease(version, Some(holder(0, "a")), 2, quorum(&[1, 2]))
    };
    let mut me = follower(1, start, settings(), &[1, 2]);
    for second in 1..5u32 {
        me.step(Input::Seen(noted(&(10 + second).to_string())), start + second * SECOND);
        assert!(me.hold.is_none(), "its term is not over");
    }
    let now = start + SILENT;
    me.step(Input::Seen(noted("15")), now);
    assert_eq!(me.target(now), Target::Hold);
    me.step(Input::Seen(noted("16")), now);
    assert_eq!(me.target(now), Target::Hold, "in the new version");
    me.step(Input::Instance(replica(100, Receiving::Cut)), now);
    assert_eq!(takes(&me.step(vote(2, "15", 100, true), now)), None, "which is another");
    assert_eq!(takes(&me.step(vote(2, "16", 100, true), now)), Some("16"));
}
