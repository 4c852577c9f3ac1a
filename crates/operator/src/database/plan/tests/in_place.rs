//! Restores of a database that is there.

use keelson_api::instance::{InPlaceReport, InPlaceStage, KeptReport, RestorePoint, paths};

use super::*;

fn spec(name: &str) -> Value {
    json!({
        "replicas": 2,
        "backup": {"to": {"s3": {"bucket": "backups", "credentialsSecret": "keys"}}},
        "restore": {"to": {"time": "2026-11-16T09:30:00Z"}, "inPlace": name}
    })
}

fn plain() -> Value {
    let mut spec = spec("x");
    spec.as_object_mut().unwrap().remove("restore");
    spec
}

fn says(seen: &mut Observed, name: &str, stage: InPlaceStage, problem: Option<&str>) {
    let problem = problem.map(str::to_owned);
    let reason = problem.as_ref().map(|_| "RestoreTargetRefused".to_owned());
    let report = seen.instances[0].report.as_mut().unwrap();
    report.in_place = Some(InPlaceReport { name: name.to_owned(), stage, reason, problem });
}

fn ordered(plan: &Plan) -> Option<String> {
    plan.wanted.as_ref().unwrap().instance.in_place.as_ref().map(|rule| rule.name.clone())
}

#[test]
fn one_that_is_asked_for_is_told_until_it_is_over_and_never_again() {
    let mut seen = running(plain());
    assert_eq!(ordered(&applied(&mut seen)), None);
    respec(&mut seen, spec("undo"));
    let made = applied(&mut seen);
    let rule = made.wanted.as_ref().unwrap().instance.in_place.clone().unwrap();
    assert_eq!((rule.name.as_str(), rule.rule.backup), ("undo", None));
    assert_eq!(rule.rule.from.credentials.as_deref(), Some(paths::BACKUP_CREDENTIALS), "its own repository");
    assert_eq!(rule.rule.to, RestorePoint::Time("2026-11-16T09:30:00Z".parse().unwrap()));
    assert!(made.steps.is_empty(), "no pod is replaced for it: {:?}", made.steps);

    says(&mut seen, "undo", InPlaceStage::Restoring, None);
    let restoring = applied(&mut seen);
    assert_eq!(ordered(&restoring).as_deref(), Some("undo"));
    assert_eq!(restoring.status.phase.as_ref().map(|phase| phase.as_str()), Some("Restoring"));

    says(&mut seen, "undo", InPlaceStage::Done, None);
    assert_eq!(ordered(&applied(&mut seen)), None);
    // Agents say nothing any more, the status is lost, and the spec stays as it is for ever.
    seen.instances[0].report.as_mut().unwrap().in_place = None;
    seen.status.restore = None;
    assert_eq!(ordered(&applied(&mut seen)), None);
    // Somebody takes the commit back that asked for another one.
    respec(&mut seen, spec("another"));
    assert_eq!(ordered(&applied(&mut seen)).as_deref(), Some("another"));
    says(&mut seen, "another", InPlaceStage::Refused, Some("too early"));
    assert_eq!(ordered(&applied(&mut seen)), None);
    respec(&mut seen, spec("undo"));
    assert_eq!(ordered(&applied(&mut seen)), None, "it was carried out once");
}

#[test]
fn a_manifest_that_names_one_from_the_past_restores_nothing() {
    let mut seen = fresh(spec("undo"));
    let made = applied(&mut seen);
    let instance = made.wanted.unwrap().instance;
    assert_eq!((instance.in_place, instance.settled_restores), (None, vec!["undo".to_owned()]));
    let mut lost = running(spec("undo"));
    lost.config = None;
    assert_eq!(ordered(&applied(&mut lost)), None, "nobody knows whether it was carried out");
}

#[test]
fn one_that_is_refused_is_said_with_what_to_do_and_disturbs_nothing() {
    let mut seen = running(plain());
    applied(&mut seen);
    respec(&mut seen, spec("undo"));
    applied(&mut seen);
    says(&mut seen, "undo", InPlaceStage::Refused, Some("Possible is from here to there"));
    let made = plan(&seen, now());
    let (holds, reason, message) = condition(&made, "RestoredInPlace");
    assert_eq!((holds, reason), (Some(false), "RestoreTargetRefused"));
    assert!(message.contains("Possible is") && message.contains("another name"), "{message}");
    assert_eq!(condition(&made, "Ready").0, Some(true));
    assert!(made.news.iter().any(|news| news.reason == "RestoreRefused"), "{:?}", made.news);
    // Somebody else leads, and knows only that it is over.
    let made = applied(&mut seen);
    says(&mut seen, "undo", InPlaceStage::Refused, None);
    assert_eq!(applied(&mut seen).status.restore.unwrap().message, made.status.restore.unwrap().message);
}

#[test]
fn without_a_repository_there_is_nothing_to_go_back_to() {
    let mut seen = running(json!({"replicas": 2}));
    applied(&mut seen);
    respec(&mut seen, json!({"replicas": 2, "restore": {"inPlace": "undo"}}));
    let made = applied(&mut seen);
    assert_eq!(ordered(&made), None);
    assert!(condition(&made, "RestoredInPlace").2.contains("spec.backup.to"));
    // Who withdraws it is as if it had never been asked for.
    respec(&mut seen, json!({"replicas": 2}));
    let made = applied(&mut seen);
    assert_eq!(made.status.restore, None);
    assert!(made.findings.iter().all(|finding| finding.kind != "RestoredInPlace"));
}

#[test]
fn nobody_is_restarted_or_replaced_while_data_is_brought_back() {
    let mut seen = running(plain());
    applied(&mut seen);
    respec(&mut seen, spec("undo"));
    applied(&mut seen);
    let mut larger = spec("undo");
    larger["resources"] = json!({"memory": "1Gi"});
    respec(&mut seen, larger);
    says(&mut seen, "undo", InPlaceStage::Checking, None);
    assert!(
        plan(&seen, now()).steps.iter().any(|step| step.disturbs().is_some()),
        "it waits for that to begin"
    );
    says(&mut seen, "undo", InPlaceStage::Restoring, None);
    assert_eq!(plan(&seen, now()).steps, []);
}

#[test]
fn old_data_is_shown_until_it_is_gone_also_while_its_instance_is_away() {
    let mut seen = running(plain());
    let since = ago(60);
    let kept = KeptReport { restore: "undo".into(), timeline: 3, since, bytes: 5 << 20 };
    seen.instances[1].report.as_mut().unwrap().kept = Some(kept);
    let made = applied(&mut seen);
    let shown = made.status.restore.clone().unwrap().kept;
    assert_eq!((shown.len(), shown[0].instance.as_str(), shown[0].bytes), (1, "orders-1", 5 << 20));
    let told = made.news.iter().find(|news| news.reason == "OldDataKept").unwrap();
    assert!(told.note.contains("keelson.dev/discard-old-data=undo"), "{}", told.note);
    seen.status = made.status.clone();
    let away = seen.instances.remove(1);
    assert_eq!(plan(&seen, now()).status.restore.unwrap().kept, shown);
    seen.instances.push(away);
    seen.discard = Some("undo".to_owned());
    assert_eq!(plan(&seen, now()).wanted.unwrap().instance.discard.as_deref(), Some("undo"));
    seen.instances[1].report.as_mut().unwrap().kept = None;
    let made = plan(&seen, now());
    assert_eq!(made.status.restore, None);
    assert!(made.news.iter().any(|news| news.reason == "OldDataGone"), "{:?}", made.news);
}
