//! When a drill begins, what is said of it, and when it goes.

use keelson_api::instance::{
    DrillChecks, DrillPhase, DrillReport, Mark, backup_reasons, drill_reasons, paths,
};
use keelson_api::v1::DrillSummary;
use keelson_kit::events::Severity;

use super::backups::{archives, archiving, asked_for, well};
use super::*;
use crate::database::drills::{DrillClaim, DrillPod, DrillStep, Order};

fn spec() -> Value {
    json!({"replicas": 2, "parameters": {"work_mem": "8MB"}, "backup": {
        "to": {"s3": {"bucket": "backups", "credentialsSecret": "keys"}},
        "timeZone": "Europe/Berlin",
        "drill": {"schedule": "0 4 * * 0", "deadline": "1h"}
    }})
}

/// A database that had its last drill a week ago, and is due for the next one in so many seconds.
fn due_in(seconds: i64) -> Observed {
    let mut seen = archiving(spec());
    summary_of(&mut seen).next = Some(Time(ago(-seconds)));
    seen
}

fn summary_of(seen: &mut Observed) -> &mut DrillSummary {
    seen.status.backup.as_mut().unwrap().drill.get_or_insert_default()
}

fn drill(plan: &Plan) -> &DrillSummary {
    plan.status.backup.as_ref().unwrap().drill.as_ref().unwrap()
}

fn begun(plan: &Plan) -> Option<&Order> {
    plan.drills.iter().find_map(|step| match step {
        DrillStep::Begin(order) => Some(&**order),
        _ => None,
    })
}

/// What was begun is there since so many seconds.
fn there(seen: &mut Observed, seconds: i64, asked: Option<&str>) {
    seen.drill.claim = Some(DrillClaim { uid: "c".to_owned(), deleting: false });
    seen.drill.pod = Some(DrillPod {
        uid: "d1".to_owned(),
        made: ago(seconds),
        deleting: false,
        asked: asked.map(str::to_owned),
        ended: false,
        hindrance: None,
        report: None,
    });
}

fn says(seen: &mut Observed, phase: DrillPhase, more: impl FnOnce(&mut DrillReport)) {
    let mut report = DrillReport::begun(ago(100));
    report.phase = Written::of(&phase);
    report.backup = Some("base_1".to_owned());
    more(&mut report);
    seen.drill.pod.as_mut().unwrap().report = Some(report);
}

fn fails(seen: &mut Observed, reason: &str) {
    says(seen, DrillPhase::Failed, |report| {
        report.finished = Some(ago(5));
        report.reason = Some(reason.to_owned());
        report.problem = Some("the object part_001 is not what was put there".to_owned());
    });
}

fn gone() -> Vec<DrillStep> {
    vec![DrillStep::RemovePod { uid: "d1".to_owned() }, DrillStep::RemoveClaim { uid: "c".to_owned() }]
}

#[test]
fn without_a_schedule_or_a_wish_there_is_no_drill_and_no_word_of_it() {
    let mut seen = archiving(json!({"backup": {"to": {"s3": {"bucket": "backups"}}}}));
    let made = applied(&mut seen);
    assert!(made.drills.is_empty() && made.status.backup.unwrap().drill.is_none());
    assert!(made.findings.iter().all(|found| found.kind != "BackupVerified"));
    let rule = made.wanted.unwrap().instance.backup.unwrap();
    assert!(!rule.marks && rule.drill.is_none());
}

#[test]
fn the_first_is_made_on_schedule_in_the_zone_of_the_policy_and_a_little_later() {
    let mut seen = archiving(spec());
    let made = applied(&mut seen);
    assert!(made.drills.is_empty());
    // 2026-11-22 is the next Sunday; it is winter in Berlin.
    let (next, earliest) = (drill(&made).next.clone().unwrap().0, "2026-11-22T03:00:00Z".parse().unwrap());
    assert!(next >= earliest && next < earliest + SignedDuration::from_hours(1), "{next}");
    assert_eq!(condition(&made, "BackupVerified").1, "NoDrillYet");
    assert!(made.wanted.unwrap().instance.backup.unwrap().marks);
    assert_eq!(drill(&applied(&mut seen)).next, Some(Time(next)), "always the same");
}

#[test]
fn one_that_is_due_begins_with_what_it_needs_and_stays_due_until_it_is_there() {
    let mut seen = due_in(0);
    let made = applied(&mut seen);
    let order = begun(&made).unwrap();
    assert_eq!((order.asked.as_deref(), order.deadline), (None, 3600));
    assert_eq!(order.rule.from.credentials.as_deref(), Some(paths::RESTORE_CREDENTIALS));
    assert_eq!(order.rule.parameters["work_mem"], "8MB");
    assert!(made.is_weighty(&seen), "what watches have told is not enough to go by");
    assert!(begun(&applied(&mut seen)).is_some(), "it may not have come to be");
    there(&mut seen, 1, None);
    let made = applied(&mut seen);
    assert!(made.drills.is_empty() && drill(&made).next.as_ref().unwrap().0 > now());
    assert_eq!(drill(&made).running.as_ref().unwrap().phase.as_str(), "Starting");
}

#[test]
fn however_many_were_missed_one_is_made() {
    let mut seen = due_in(-60 * 86_400);
    assert!(begun(&applied(&mut seen)).is_some());
    there(&mut seen, 0, None);
    let made = applied(&mut seen);
    assert!(drill(&made).next.as_ref().unwrap().0 > now());
}

#[test]
fn another_text_in_the_annotation_asks_for_one_and_the_same_text_for_none() {
    let mut seen = archiving(json!({"backup": {"to": {"s3": {"bucket": "backups"}}}}));
    seen.drill.asked = Some("please".to_owned());
    let made = applied(&mut seen);
    let order = begun(&made).unwrap();
    assert_eq!((order.asked.as_deref(), order.deadline, order.rule.marks), (Some("please"), 6 * 3600, false));
    there(&mut seen, 10, Some("please"));
    let made = applied(&mut seen);
    assert!(made.drills.is_empty() && drill(&made).running.is_some());
    assert_eq!(drill(&made).asked.as_deref(), Some("please"));
    (seen.drill.pod, seen.drill.claim) = (None, None);
    assert!(applied(&mut seen).drills.is_empty());
    seen.drill.asked = Some("again".to_owned());
    assert!(begun(&applied(&mut seen)).is_some());
}

#[test]
fn none_begins_before_there_is_something_to_restore_nor_while_the_database_itself_is() {
    let waits = |change: &dyn Fn(&mut Observed)| {
        let mut seen = due_in(-60);
        change(&mut seen);
        let made = applied(&mut seen);
        assert!(made.drills.is_empty(), "{:?}", made.drills);
        drill(&made).waits.clone().unwrap()
    };
    let empty = || ArchiveReport { backups: Some(vec![]), ..well() };
    assert!(waits(&|seen| archives(seen, empty())).contains("first base backup"));
    let dead = || ArchiveReport { problem: Some("the store is away".to_owned()), ..well() };
    assert!(waits(&|seen| archives(seen, dead())).contains("the store is away"));
    assert!(
        waits(&|seen| seen.status.phase = Some(Written::of(&Phase::Restoring)))
            .contains("itself is restored")
    );
    let nobody = |seen: &mut Observed| {
        seen.instances.iter_mut().for_each(|one| one.report.as_mut().unwrap().writable = false);
    };
    assert!(waits(&nobody).contains("takes writes"));
}

use keelson_api::instance::ArchiveReport;

#[test]
fn there_are_never_two_at_a_time() {
    let mut seen = due_in(-60);
    there(&mut seen, 1800, None);
    seen.drill.asked = Some("now".to_owned());
    summary_of(&mut seen).next = Some(Time(ago(60)));
    let made = applied(&mut seen);
    assert!(made.drills.is_empty());
    assert_eq!(drill(&made).next, Some(Time(ago(60))), "one that came to be due meanwhile is made after it");
    // Its end is taken in, and it goes, but is not gone.
    seen.drill.pod.as_mut().unwrap().deleting = true;
    seen.drill.claim.as_mut().unwrap().deleting = true;
    assert!(applied(&mut seen).drills.is_empty());
    seen.drill.pod = None;
    let made = applied(&mut seen);
    assert!(
        made.drills.is_empty() && drill(&made).waits.as_ref().unwrap().contains("volume of the last one")
    );
    seen.drill.claim = None;
    assert!(begun(&applied(&mut seen)).is_some());
}

#[test]
fn what_a_good_one_proves_is_in_the_status_before_it_goes() {
    let mut seen = due_in(0);
    seen.backups = vec![asked_for("nightly", 4000)];
    seen.backups[0].status = serde_json::from_value(
        json!({"phase": "Complete", "id": "base_1", "finished": ago(3900).to_string()}),
    )
    .unwrap();
    there(&mut seen, 120, None);
    says(&mut seen, DrillPhase::Checking, |_| ());
    assert_eq!(drill(&applied(&mut seen)).running.as_ref().unwrap().phase.as_str(), "Checking");
    says(&mut seen, DrillPhase::Succeeded, |report| {
        report.finished = Some(ago(5));
        report.answered_seconds = Some(42);
        (report.timeline, report.end_of_log) = (Some(3), Some("0/5000060".to_owned()));
        report.mark = Some(Mark { number: 7, at: ago(130) });
        report.lost_seconds = Some(30);
        report.checks = DrillChecks {
            pages: Some(4000),
            databases: 3,
            tables: 160,
            indexes: 320,
            passed_over: 1,
            marks: 7,
        };
    });
    let made = applied(&mut seen);
    assert!(made.drills.is_empty(), "it stays until its end is known to be written down");
    assert_eq!((made.drilled, made.again), (Some(true), Some(Duration::from_secs(1))));
    let last = drill(&made).last.clone().unwrap();
    assert!(last.passed && last.run == "d1" && drill(&made).running.is_none());
    assert_eq!((last.rto_seconds, last.rpo_seconds, last.timeline), (Some(42), Some(30), Some(3)));
    assert_eq!(
        (last.pages, last.tables, last.indexes, last.marks),
        (Some(4000), Some(160), Some(320), Some(7))
    );
    assert_eq!((last.data_until, last.end_of_log.as_deref()), (Some(Time(ago(130))), Some("0/5000060")));
    let summary = made.status.backup.as_ref().unwrap();
    assert_eq!((summary.last_drill.clone(), summary.last_drill_seconds), (Some(Time(ago(5))), Some(95)));
    let (holds, reason, message) = condition(&made, "BackupVerified");
    assert_eq!((holds, reason), (Some(true), "DrillSucceeded"));
    assert!(
        message.contains("base_1") && message.contains("4000 pages") && message.contains("42 s"),
        "{message}"
    );
    assert!(
        made.news.iter().any(|news| news.reason == "DrillSucceeded" && news.severity == Severity::Normal)
    );

    let made = applied(&mut seen);
    assert!(made.news.is_empty() && made.drilled.is_none(), "it is said once");
    let [DrillStep::Verify { backup, verified, .. }, ..] = made.drills.as_slice() else {
        panic!("{:?}", made.drills)
    };
    assert_eq!((backup.as_str(), verified.passed, verified.seconds), ("nightly", true, Some(95)));
    assert_eq!(made.drills[1..], gone());
    let note = made.wanted.unwrap().instance.backup.unwrap().drill.unwrap();
    assert_eq!((note.last_success, note.failing), (Some(ago(5)), false));
    seen.backups[0].status.verified = Some(verified.clone());
    assert_eq!(applied(&mut seen).drills, gone(), "a Backup is told once");
    (seen.drill.pod, seen.drill.claim) = (None, None);
    let made = applied(&mut seen);
    assert!(made.drills.is_empty() && drill(&made).last.as_ref().unwrap().passed);
}

#[test]
fn a_failed_one_is_loud_keeps_its_message_and_leaves_nothing_behind() {
    let mut seen = due_in(0);
    summary_of(&mut seen).next = Some(Time(ago(200)));
    seen.status.backup.as_mut().unwrap().last_drill = Some(Time(ago(700_000)));
    there(&mut seen, 120, None);
    fails(&mut seen, backup_reasons::CORRUPT);
    let made = applied(&mut seen);
    let (holds, reason, message) = condition(&made, "BackupVerified");
    assert_eq!((holds, reason), (Some(false), "RepositoryCorrupt"));
    assert!(message.contains("part_001") && message.contains("Make a full backup now"), "{message}");
    assert!(made.news.iter().any(|news| news.reason == "DrillFailed" && news.severity == Severity::Warning));
    assert_eq!((made.drilled, phase(&made)), (Some(false), Phase::Running));
    assert_eq!(condition(&made, "Ready").0, Some(true), "it is in nobody's way");
    assert_eq!(made.status.backup.as_ref().unwrap().last_drill, Some(Time(ago(700_000))), "the last success");
    let made = applied(&mut seen);
    assert_eq!(made.drills, gone());
    let note = made.wanted.as_ref().unwrap().instance.backup.as_ref().unwrap().drill.unwrap();
    assert_eq!((note.last_success, note.failing), (Some(ago(700_000)), true));
    (seen.drill.pod, seen.drill.claim) = (None, None);
    let made = applied(&mut seen);
    assert!(made.drills.is_empty(), "the next is made on schedule");
    assert!(condition(&made, "BackupVerified").2.contains("part_001"));
}

#[test]
fn only_a_drill_that_has_seen_the_backup_speaks_of_it() {
    for (reason, speaks) in [
        (backup_reasons::CORRUPT, true),
        (drill_reasons::DAMAGED, true),
        (backup_reasons::UNREACHABLE, false),
        (backup_reasons::KEY_MISSING, false),
    ] {
        let mut seen = due_in(0);
        seen.backups = vec![asked_for("nightly", 4000)];
        seen.backups[0].status =
            serde_json::from_value(json!({"phase": "Complete", "id": "base_1"})).unwrap();
        there(&mut seen, 120, None);
        fails(&mut seen, reason);
        applied(&mut seen);
        let told = applied(&mut seen).drills.into_iter().find_map(|step| match step {
            DrillStep::Verify { verified, .. } => Some(verified.passed),
            _ => None,
        });
        assert_eq!(told, speaks.then_some(false), "{reason}");
    }
}

#[test]
fn one_that_takes_too_long_has_failed_and_goes() {
    let mut seen = due_in(0);
    there(&mut seen, 3599, None);
    seen.drill.pod.as_mut().unwrap().hindrance =
        Some(Hindrance::Unschedulable("no node has room".to_owned()));
    let made = applied(&mut seen);
    assert_eq!(drill(&made).running.as_ref().unwrap().message.as_deref(), Some("no node has room"));
    assert_eq!(made.again, Some(Duration::from_secs(1)));
    there(&mut seen, 3600, None);
    says(&mut seen, DrillPhase::Restoring, |_| ());
    let made = applied(&mut seen);
    let (_, reason, message) = condition(&made, "BackupVerified");
    assert_eq!(reason, "DrillTimedOut");
    assert!(
        message.contains("3600 s") && message.contains("Restoring") && message.contains("deadline"),
        "{message}"
    );
    assert_eq!(applied(&mut seen).drills, gone());
}

#[test]
fn one_whose_pod_ends_without_a_word_has_failed() {
    let mut seen = due_in(0);
    there(&mut seen, 60, None);
    seen.drill.pod.as_mut().unwrap().ended = true;
    assert_eq!(condition(&applied(&mut seen), "BackupVerified").1, "DrillBrokenOff");
    assert_eq!(applied(&mut seen).drills, gone());
}

#[test]
fn one_that_nobody_wants_any_more_is_called_off() {
    for spec in [json!({}), json!({"backup": {"to": {"s3": {"bucket": "backups"}}}})] {
        let mut seen = due_in(0);
        there(&mut seen, 60, None);
        respec(&mut seen, spec);
        let made = applied(&mut seen);
        assert_eq!((made.drills, made.drilled), (gone(), None));
    }
    let mut seen = due_in(0);
    there(&mut seen, 60, Some("by hand"));
    respec(&mut seen, json!({"backup": {"to": {"s3": {"bucket": "backups"}}}}));
    assert!(applied(&mut seen).drills.is_empty(), "who asked for it by hand asked for it without a schedule");
}

#[test]
fn a_volume_that_a_crash_has_left_without_a_pod_is_removed_before_another_is_made() {
    let mut seen = due_in(-60);
    seen.drill.claim = Some(DrillClaim { uid: "c".to_owned(), deleting: false });
    let made = applied(&mut seen);
    assert_eq!(made.drills, [DrillStep::RemoveClaim { uid: "c".to_owned() }]);
    assert!(made.is_weighty(&seen), "the pod may be there, and nobody have told of it yet");
    seen.drill.claim = None;
    assert!(begun(&applied(&mut seen)).is_some());
}
