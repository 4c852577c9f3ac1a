//! Every branch of the plan, from facts made by hand.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::Report;
use keelson_api::v1::{Leadership, Role};
use keelson_api::value::Written;
use serde_json::{Value, json};

use super::*;
use crate::database::children::stateful_set::asked;
use crate::database::facts::{Claim, Hindrance, Lately, Set, doubt};

mod backups;
mod drills;
mod in_place;
mod restores;

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn fresh(spec: Value) -> Observed {
    Observed {
        name: "orders".to_owned(),
        namespace: "shop".to_owned(),
        uid: "1".to_owned(),
        made: ago(7200),
        generation: Some(1),
        spec: serde_json::from_value(spec).unwrap(),
        status: DatabaseStatus::default(),
        adopt: false,
        discard: None,
        restart: None,
        secrets_mark: "mark".to_owned(),
        config: None,
        account: Some(ago(7200)),
        set: None,
        instances: Vec::new(),
        claims: Vec::new(),
        backups: Vec::new(),
        drill: Default::default(),
        source: None,
        lately: Lately::default(),
        agent_image: "keelson:0.1.0".to_owned(),
    }
}

fn claim(ordinal: u32) -> Claim {
    Claim {
        name: format!("data-orders-{ordinal}"),
        ordinal,
        uid: format!("c{ordinal}"),
        resource_version: "6".to_owned(),
        database_uid: Some("1".to_owned()),
        adopted: false,
        made: ago(3600),
        requested: Some(Size::gibibytes(10)),
        bound: true,
        deleting: false,
        stuck: None,
    }
}

fn follower(ordinal: u32, wanted: &Wanted) -> Instance {
    Instance {
        name: format!("orders-{ordinal}"),
        ordinal,
        uid: format!("p{ordinal}"),
        resource_version: "5".to_owned(),
        made: ago(3600),
        deleting: false,
        ready: true,
        missed: false,
        unmounted: false,
        asked: Some(asked(wanted)),
        restart: None,
        report: Some(Report {
            role: Role::Replica,
            timeline: Some(1),
            lag_bytes: Some(0),
            version: Some("17.5".to_owned()),
            system_id: Some("7".to_owned()),
            settings: Some(fingerprint(&wanted.instance.to_json().unwrap())),
            leader: "orders-0".to_owned(),
            epoch: 3,
            ..Report::default()
        }),
        hindrance: None,
    }
}

/// Carries a plan out, as far as the API server's part goes: what was applied is there.
fn applied(seen: &mut Observed) -> Plan {
    let made = plan(seen, now());
    if let Some(wanted) = &made.wanted {
        seen.config = Some(wanted.instance.clone());
        if made.apply_set {
            let set = Set {
                uid: "s".to_owned(),
                pods: wanted.pods,
                storage: Some(wanted.storage),
                deleting: false,
            };
            seen.set = Some(set);
        }
    }
    seen.status = made.status.clone();
    seen.status.conditions = keelson_kit::conditions::merge(
        &seen.status.conditions,
        &made.findings,
        Some(1),
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()),
    );
    made
}

/// A database that runs, with `orders-0` leading.
fn running(spec: Value) -> Observed {
    let mut seen = fresh(spec);
    let wanted = applied(&mut seen).wanted.unwrap();
    let replicas = wanted.settings.replicas;
    seen.claims = (0..replicas).map(claim).collect();
    seen.instances = (0..replicas).map(|ordinal| follower(ordinal, &wanted)).collect();
    lead(&mut seen, 0);
    assert_eq!(phase(&applied(&mut seen)), Phase::Running);
    seen
}

/// This one leads from now on.
fn lead(seen: &mut Observed, ordinal: u32) {
    for instance in &mut seen.instances {
        let report = instance.report.as_mut().unwrap();
        report.epoch += 1;
        report.leader = format!("orders-{ordinal}");
        report.writable = instance.ordinal == ordinal;
        report.role = if report.writable { Role::Primary } else { Role::Replica };
    }
}

use keelson_api::v1::Phase;

fn phase(plan: &Plan) -> Phase {
    plan.status.phase.as_ref().unwrap().parse().unwrap()
}

fn condition<'a>(plan: &'a Plan, kind: &str) -> (Option<bool>, &'a str, &'a str) {
    let found = plan.findings.iter().find(|finding| finding.kind == kind).unwrap();
    (found.holds, &found.reason, &found.message)
}

fn respec(seen: &mut Observed, spec: Value) {
    seen.spec = serde_json::from_value(spec).unwrap();
}

#[test]
fn a_new_database_gets_secrets_and_all_children_at_once() {
    let made = plan(&fresh(json!({"replicas": 3})), now());
    let wanted = made.wanted.as_ref().unwrap();
    assert_eq!((wanted.pods, wanted.image.as_str(), made.apply_set), (3, "postgres:17", true));
    assert_eq!(made.secrets, Some(now() + CERTIFICATE_LASTS));
    assert_eq!(
        (phase(&made), made.steps.as_slice(), made.news.as_slice()),
        (Phase::Creating, &[][..], &[][..])
    );
    assert_eq!(condition(&made, "Ready"), (Some(false), "Creating", "its instances are being made"));
    assert_eq!(condition(&made, "Progressing").0, Some(true));
    assert_eq!(made.status.endpoint.as_deref(), Some("orders-rw.shop.svc:5432"));
}

#[test]
fn one_that_runs_is_left_alone_and_says_so() {
    let seen = running(json!({"replicas": 3}));
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), made.secrets, made.news.len()), (0, None, 0));
    assert_eq!(made.wanted.unwrap().instance, seen.config.unwrap());
    let status = &made.status;
    assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(3)));
    assert_eq!(
        (status.primary.as_deref(), status.version.as_ref().unwrap().as_str()),
        (Some("orders-0"), "17.5")
    );
    assert_eq!(status.instances[1].role.as_ref().unwrap().as_str(), "replica");
    for (kind, holds) in [("Ready", true), ("Progressing", false), ("Degraded", false)] {
        assert_eq!(made.findings.iter().find(|one| one.kind == kind).unwrap().holds, Some(holds), "{kind}");
    }
    assert_eq!(made.again, Some(Duration::from_secs(60 * 86_400)), "the certificate");
}

#[test]
fn that_it_was_created_is_said_when_all_serve() {
    let mut seen = fresh(json!({"replicas": 2}));
    let wanted = applied(&mut seen).wanted.unwrap();
    seen.instances = vec![follower(0, &wanted)];
    lead(&mut seen, 0);
    let made = applied(&mut seen);
    assert_eq!(
        (phase(&made), condition(&made, "Ready").0),
        (Phase::Creating, Some(true)),
        "one serves already"
    );
    seen.instances.push(follower(1, &wanted));
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.news[0].reason.as_str()), (Phase::Running, "Created"));
}

#[test]
fn a_spec_that_means_nothing_is_said_and_nothing_is_done() {
    let mut seen = fresh(json!({"backup": {"schedule": "61 * * * *"}}));
    let made = plan(&seen, now());
    assert_eq!((made.wanted.is_none(), made.steps.len(), phase(&made)), (true, 0, Phase::Failed));
    let (holds, reason, message) = condition(&made, "Degraded");
    assert_eq!((holds, reason), (Some(true), "InvalidSpec"));
    assert!(message.contains("61 in the minute field") && message.contains("Correct it"), "{message}");
    assert_eq!(made.news[0].reason, "InvalidSpec");

    seen = running(json!({}));
    respec(&mut seen, json!({"backup": {"schedule": "61 * * * *"}}));
    let made = plan(&seen, now());
    assert_eq!(
        (phase(&made), condition(&made, "Ready").0),
        (Phase::Degraded, Some(true)),
        "it goes on serving"
    );
}

#[test]
fn what_is_not_supported_yet_is_said_and_not_done_differently() {
    let made = plan(&fresh(json!({"engine": "mysql", "version": "9.7"})), now());
    assert_eq!((made.wanted.is_none(), condition(&made, "Degraded").1), (true, "EngineNotSupported"));
    let mut seen = running(json!({"version": "17"}));
    respec(&mut seen, json!({"version": "18"}));
    let made = plan(&seen, now());
    let (_, reason, message) = condition(&made, "Degraded");
    assert!(made.wanted.is_none() && message.contains("back to 17"), "{message}");
    assert_eq!(reason, "MajorUpgradeNotSupported");
}

#[test]
fn a_version_that_does_not_exist_is_corrected_where_none_has_run_yet() {
    let mut seen = fresh(json!({"version": "99"}));
    let wanted = applied(&mut seen).wanted.unwrap();
    let hindrance = Some(Hindrance::Image("manifest unknown".to_owned()));
    seen.instances = vec![Instance { ready: false, report: None, hindrance, ..follower(0, &wanted) }];
    let made = applied(&mut seen);
    assert_eq!((phase(&made), condition(&made, "Ready").1), (Phase::Failed, "ImageNotPulled"));
    respec(&mut seen, json!({"version": "17"}));
    let made = applied(&mut seen);
    assert_eq!((made.wanted.unwrap().image.as_str(), replaced(&made.steps[0])), ("postgres:17", "orders-0"));
}

#[test]
fn a_database_without_a_version_keeps_the_one_it_has() {
    let mut seen = running(json!({"version": "15"}));
    respec(&mut seen, json!({}));
    assert_eq!(plan(&seen, now()).wanted.unwrap().image, "postgres:15");
    let mut lost = Observed { config: None, ..seen.clone() };
    lost.status.version = Some(keelson_api::value::Written::new("15.4"));
    assert_eq!(plan(&lost, now()).wanted.unwrap().image, "postgres:15", "as the status has it");
    respec(&mut seen, json!({"version": "15.4"}));
    assert_eq!(plan(&seen, now()).wanted.unwrap().image, "postgres:15.4");
    respec(&mut seen, json!({"version": "15", "image": "mirror/postgres:15"}));
    assert_eq!(plan(&seen, now()).wanted.unwrap().image, "mirror/postgres:15");
}

#[test]
fn volumes_of_an_older_one_of_its_name_are_not_taken_unasked() {
    let mut seen = fresh(json!({}));
    seen.claims = vec![Claim { database_uid: Some("0".to_owned()), ..claim(0) }];
    let made = plan(&seen, now());
    assert_eq!((made.wanted.is_none(), phase(&made)), (true, Phase::Pending));
    let (holds, reason, message) = condition(&made, "Ready");
    assert_eq!((holds, reason), (Some(false), "VolumesFound"));
    assert!(
        message.contains("data-orders-0") && message.contains("keelson.dev/adopt-volumes=yes"),
        "{message}"
    );
    assert_eq!(condition(&made, "Degraded").0, Some(false), "nothing is wrong");
    seen.adopt = true;
    let made = plan(&seen, now());
    assert_eq!(made.steps, [Step::Adopt { claim: "data-orders-0".to_owned(), from: "0".to_owned() }]);
    assert!(made.wanted.is_some() && made.apply_set);
}

#[test]
fn pods_of_an_older_one_of_its_name_are_gone_before_it_has_its_own() {
    let older = running(json!({"replicas": 3}));
    let mut seen = fresh(json!({"replicas": 3}));
    seen.made = ago(60);
    seen.instances = vec![Instance { deleting: true, ..older.instances[2].clone() }];
    let made = plan(&seen, now());
    assert_eq!((made.wanted.is_none(), made.apply_set, phase(&made)), (true, false, Phase::Pending));
    let (holds, reason, message) = condition(&made, "Ready");
    assert_eq!((holds, reason, message.contains("orders-2")), (Some(false), "PodsFound", true));
    seen.instances.clear();
    assert!(plan(&seen, now()).apply_set);
}

/// One of them may be gone, and be that of the first instance, which would make a new database on an empty volume.
#[test]
fn where_volumes_were_adopted_no_database_is_made_anew() {
    let mut seen = fresh(json!({"replicas": 2}));
    let adopted = |seen: &Observed| plan(seen, now()).wanted.unwrap().instance.adopted;
    assert!(!adopted(&seen));
    seen.adopt = true;
    assert!(!adopted(&seen), "there were none");
    seen.claims = vec![Claim { database_uid: Some("0".to_owned()), ..claim(1) }];
    assert!(adopted(&seen), "before they are");
    seen.claims = vec![Claim { adopted: true, ..claim(1) }];
    seen.adopt = false;
    assert!(adopted(&seen), "and ever after");
}

#[test]
fn volumes_of_an_older_one_are_taken_only_with_an_instance_for_each() {
    let mut seen = fresh(json!({"replicas": 2}));
    let old = |ordinal| Claim { database_uid: Some("0".to_owned()), ..claim(ordinal) };
    seen.claims = vec![old(0), old(2)];
    seen.adopt = true;
    let made = plan(&seen, now());
    let (holds, reason, message) = condition(&made, "Ready");
    assert_eq!((holds, reason), (Some(false), "MoreVolumesFound"));
    assert!(message.contains("spec.replicas to 3") && message.contains("data-orders-2"), "{message}");
    assert!(
        made.wanted.is_none() && made.steps.is_empty(),
        "the newest data may be on the one that is left out"
    );
    seen.spec.replicas = Some(3);
    assert_eq!(plan(&seen, now()).steps.len(), 2);
}

#[test]
fn secrets_are_written_when_they_change_when_their_time_comes_and_when_somebody_misses_them() {
    let mut seen = running(json!({}));
    assert_eq!(plan(&seen, now()).secrets, None);
    seen.secrets_mark = "another".to_owned();
    assert!(plan(&seen, now()).secrets.is_some(), "rotated");
    seen.secrets_mark = "mark".to_owned();
    let later = now() + SignedDuration::from_hours(61 * 24);
    assert_eq!(plan(&seen, later).secrets, Some(later + CERTIFICATE_LASTS), "renewed");

    let report = seen.instances[0].report.as_mut().unwrap();
    report.problem = Some("the Secret orders-app is empty".to_owned());
    report.reason = Some(reasons::SECRETS_DAMAGED.to_owned());
    let made = plan(&seen, now());
    assert_eq!(made.secrets, Some(now() + CERTIFICATE_LASTS), "the same certificate's time as before");
    assert_eq!((made.repair, condition(&made, "Degraded").1), (true, "SecretsDamaged"));
    seen.lately.secrets = Some(Duration::from_secs(30));
    let made = plan(&seen, now());
    assert_eq!(
        (made.secrets, made.again),
        (None, Some(SECRETS_PACE - Duration::from_secs(30))),
        "in a while"
    );
    seen.lately.secrets = Some(SECRETS_PACE);
    assert!(plan(&seen, now()).repair);

    let mut silent = running(json!({}));
    let pod = &mut silent.instances[0];
    (pod.ready, pod.unmounted, pod.report, pod.made) = (false, true, None, ago(5));
    let made = plan(&silent, now());
    assert_eq!((made.secrets, made.again), (None, Some(MOUNTS_TAKE - Duration::from_secs(5))));
    silent.instances[0].made = ago(20);
    assert!(plan(&silent, now()).repair, "a pod that can't mount them says nothing at all");
    silent.instances[0].unmounted = false;
    assert_eq!(plan(&silent, now()).secrets, None, "its image is on the way");
}

#[test]
fn more_instances_come_all_at_once() {
    let mut seen = running(json!({"replicas": 1}));
    respec(&mut seen, json!({"replicas": 3}));
    let made = applied(&mut seen);
    assert_eq!((made.wanted.as_ref().unwrap().pods, phase(&made)), (3, Phase::Scaling));
    assert_eq!(
        (made.news[0].reason.as_str(), made.news[0].note.as_str()),
        ("Scaling", "from 1 to 3 instances")
    );
    let wanted = made.wanted.unwrap();
    let young = |ordinal| Instance { ready: false, made: ago(5), report: None, ..follower(ordinal, &wanted) };
    seen.instances.extend([young(1), young(2)]);
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.steps.len()), (Phase::Scaling, 0), "until all serve");
    seen.instances.truncate(1);
    seen.instances.extend([follower(1, &wanted), follower(2, &wanted)]);
    lead(&mut seen, 0);
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.news[0].reason.as_str()), (Phase::Running, "Scaled"));
}

#[test]
fn fewer_instances_wait_until_none_of_those_that_go_leads() {
    let mut seen = running(json!({"replicas": 3}));
    respec(&mut seen, json!({"replicas": 1}));
    assert_eq!(plan(&seen, now()).wanted.unwrap().pods, 1, "the leader stays: they may go");

    lead(&mut seen, 2);
    let made = plan(&seen, now());
    assert_eq!(made.wanted.as_ref().unwrap().pods, 3);
    let handover = Step::HandOver { from: "orders-2".to_owned(), to: "orders-0".to_owned() };
    assert_eq!(made.steps, [handover]);
    assert_eq!((phase(&made), made.again), (Phase::Scaling, Some(HANDOVER_PACE)));
    seen.lately.handover = Some(("orders-2".to_owned(), Duration::from_secs(10)));
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), made.again), (0, Some(Duration::from_secs(20))), "not asked again at once");
    seen.lately.handover = Some(("orders-2".to_owned(), HANDOVER_PACE));
    assert_eq!(plan(&seen, now()).steps.len(), 1);

    seen.instances[0].ready = false;
    let made = plan(&seen, now());
    assert_eq!((made.wanted.unwrap().pods, made.steps.len()), (3, 0), "nobody could take over");

    for instance in &mut seen.instances {
        instance.report.as_mut().unwrap().leader = String::new();
    }
    assert_eq!(plan(&seen, now()).wanted.unwrap().pods, 3, "nobody leads: the newest data may be anywhere");
    seen.instances.iter_mut().for_each(|instance| instance.report = None);
    seen.status.version = None;
    assert_eq!(plan(&seen, now()).wanted.unwrap().pods, 1, "there has never been any data");
}

/// One that is told to be alone leads with what it has, which may be less than what others have.
#[test]
fn agents_are_told_of_fewer_instances_once_somebody_leads() {
    let told = |seen: &Observed| {
        let wanted = plan(seen, now()).wanted.unwrap();
        (wanted.pods, wanted.instance.replicas)
    };
    let mut seen = running(json!({"replicas": 3}));
    respec(&mut seen, json!({"replicas": 1}));
    seen.instances[2].report.as_mut().unwrap().role = Role::Synchronous;
    assert_eq!(told(&seen), (3, 1), "the leader lets one go that it has waited for");
    for instance in &mut seen.instances {
        instance.report.as_mut().unwrap().leader = String::new();
    }
    assert_eq!(told(&seen), (3, 3));

    seen.instances.clear();
    (seen.status.version, seen.config) = (None, None);
    seen.claims.iter_mut().for_each(|claim| claim.adopted = true);
    assert_eq!(told(&seen), (3, 3), "nobody has said yet what is on the volumes that were taken");
}

/// The StatefulSet that is made then takes over the pods that it finds, and removes those that are too many.
#[test]
fn fewer_instances_wait_also_while_the_stateful_set_is_being_made_again() {
    let mut seen = running(json!({"replicas": 3}));
    seen.set = None;
    respec(&mut seen, json!({"replicas": 1}));
    seen.instances[2].report.as_mut().unwrap().role = Role::Synchronous;
    let made = plan(&seen, now());
    assert_eq!((made.apply_set, made.wanted.unwrap().pods), (true, 3), "commits wait for one that is to go");
    lead(&mut seen, 2);
    let made = plan(&seen, now());
    assert_eq!(made.wanted.unwrap().pods, 3);
    assert_eq!(made.steps, [Step::HandOver { from: "orders-2".to_owned(), to: "orders-0".to_owned() }]);
    seen.instances.iter_mut().for_each(|instance| instance.deleting = true);
    assert_eq!(plan(&seen, now()).wanted.unwrap().pods, 1, "they go anyway");
}

/// The operator ended after it had made the instances, and before it had taken the volumes.
#[test]
fn volumes_that_instances_run_on_are_taken_also_where_fewer_are_asked_for_meanwhile() {
    let mut seen = running(json!({"replicas": 3}));
    seen.claims.iter_mut().for_each(|claim| claim.database_uid = Some("0".to_owned()));
    seen.adopt = true;
    respec(&mut seen, json!({"replicas": 2}));
    let adopt = |ordinal| Step::Adopt { claim: format!("data-orders-{ordinal}"), from: "0".to_owned() };
    assert_eq!(plan(&seen, now()).steps, [adopt(0), adopt(1), adopt(2)]);
    seen.adopt = false;
    assert_eq!(plan(&seen, now()).steps, [], "only if a person lets it");
}

#[test]
fn volumes_of_removed_instances_stay_and_are_said_or_go_as_the_policy_has_it() {
    let mut seen = running(json!({"replicas": 2}));
    respec(&mut seen, json!({"replicas": 1}));
    applied(&mut seen);
    seen.instances.truncate(1);
    let made = plan(&seen, now());
    assert_eq!(made.steps, []);
    assert!(made.news[0].note.contains("volumes stay: data-orders-1"), "{:?}", made.news);

    respec(&mut seen, json!({"replicas": 1, "deletionPolicy": "Delete"}));
    let made = plan(&seen, now());
    let removed = Step::RemoveClaim {
        claim: "data-orders-1".to_owned(),
        uid: "c1".to_owned(),
        resource_version: "6".to_owned(),
    };
    assert_eq!(made.steps, [removed]);
    seen.claims[1].database_uid = Some("0".to_owned());
    seen.adopt = true;
    assert!(plan(&seen, now()).steps.is_empty(), "it is another's");
}

#[test]
fn volumes_grow_and_the_stateful_set_is_made_again_for_those_to_come() {
    let mut seen = running(json!({"replicas": 2}));
    respec(&mut seen, json!({"replicas": 2, "storage": "20Gi"}));
    let made = plan(&seen, now());
    let grow = |ordinal| Step::Grow { claim: format!("data-orders-{ordinal}"), to: "20Gi".to_owned() };
    assert_eq!(made.steps, [grow(0), grow(1)]);
    assert_eq!((made.apply_set, made.wanted.as_ref().unwrap().storage), (true, Size::gibibytes(10)));
    assert_eq!(condition(&made, "Progressing"), (Some(true), "Growing", "volumes grow to 20Gi"));
    assert_eq!(phase(&made), Phase::Running);

    seen.lately.growth_refused = Some(("no".to_owned(), Duration::from_secs(100)));
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), made.again), (0, Some(Duration::from_secs(200))), "not again at once");
    assert_eq!((condition(&made, "Degraded").1, made.apply_set), ("VolumeNotGrown", true));
    seen.lately.growth_refused = Some(("no".to_owned(), GROWTH_PACE));
    assert_eq!(plan(&seen, now()).steps, [grow(0), grow(1)]);

    seen.claims.iter_mut().for_each(|claim| claim.requested = Some(Size::gibibytes(20)));
    let made = plan(&seen, now());
    assert_eq!((made.steps.as_slice(), made.apply_set), (&[Step::Remake { uid: "s".to_owned() }][..], false));
    assert_eq!(condition(&made, "Degraded").0, Some(false), "it was allowed after all");
    seen.set.as_mut().unwrap().deleting = true;
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), made.apply_set), (0, false), "until the old one is gone");
    seen.set = None;
    assert!(plan(&seen, now()).apply_set);
    seen.claims[0].stuck = Some("no".to_owned());
    assert_eq!(condition(&plan(&seen, now()), "Degraded").1, "VolumeNotGrown");
}

#[test]
fn a_volume_never_shrinks() {
    let mut seen = running(json!({"storage": "10Gi"}));
    respec(&mut seen, json!({"storage": "5Gi"}));
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), made.wanted.as_ref().unwrap().storage), (0, Size::gibibytes(10)));
    let (_, reason, message) = condition(&made, "Degraded");
    assert_eq!(
        (reason, message),
        ("VolumeCannotShrink", "volumes of 10Gi can't become 5Gi: set spec.storage back to 10Gi")
    );
}

fn replaced(step: &Step) -> &str {
    match step {
        Step::Replace { pod, .. } => pod,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_roll_out_takes_replicas_one_by_one_and_the_leader_last_by_handover() {
    let mut seen = running(json!({"replicas": 3, "version": "17.4"}));
    respec(&mut seen, json!({"replicas": 3, "version": "17.5"}));
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.news[0].reason.as_str()), (Phase::Upgrading, "RollingOut"));
    assert_eq!(replaced(&made.steps[0]), "orders-2");
    let wanted = made.wanted.unwrap();

    let old = seen.instances.pop().unwrap();
    assert_eq!(applied(&mut seen).steps, [], "it is away");
    seen.instances.push(Instance { deleting: true, ..old.clone() });
    assert_eq!(applied(&mut seen).steps, [], "it is going");
    let mut new = Instance { ready: false, made: ago(5), ..follower(2, &wanted) };
    new.report.as_mut().unwrap().epoch = 4;
    seen.instances[2] = Instance { report: None, ..new.clone() };
    assert_eq!(applied(&mut seen).steps, [], "it starts");
    seen.instances[2] = Instance { ready: true, ..new };
    assert_eq!(replaced(&applied(&mut seen).steps[0]), "orders-1");
    let mut next = follower(1, &wanted);
    next.report.as_mut().unwrap().epoch = 4;
    seen.instances[1] = next;
    let made = applied(&mut seen);
    assert!(
        matches!(&made.steps[..], [Step::HandOver { from, .. }] if from == "orders-0"),
        "{:?}",
        made.steps
    );
    lead(&mut seen, 1);
    assert_eq!(replaced(&applied(&mut seen).steps[0]), "orders-0");
    seen.instances[0] = follower(0, &wanted);
    lead(&mut seen, 1);
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.news[0].reason.as_str()), (Phase::Running, "RolledOut"));
}

#[test]
fn a_roll_out_stops_at_the_first_that_does_not_come_up_and_taking_the_edit_back_recovers() {
    let good = json!({"replicas": 3, "version": "17.4"});
    let mut seen = running(good.clone());
    respec(&mut seen, json!({"replicas": 3, "version": "17.99"}));
    let wanted = applied(&mut seen).wanted.unwrap();
    let hindrance = Some(Hindrance::Image("manifest unknown".to_owned()));
    seen.instances[2] =
        Instance { ready: false, report: None, hindrance, made: ago(5), ..follower(2, &wanted) };
    let made = applied(&mut seen);
    assert_eq!((made.steps.len(), phase(&made)), (0, Phase::Degraded));
    let (_, reason, message) = condition(&made, "Degraded");
    assert_eq!(reason, "ImageNotPulled");
    assert!(message.contains("orders-2: manifest unknown. Check spec.version"), "{message}");
    assert_eq!(condition(&made, "Progressing").1, "Stalled");
    assert_eq!(condition(&made, "Ready").0, Some(true));

    respec(&mut seen, good);
    let made = applied(&mut seen);
    assert_eq!(replaced(&made.steps[0]), "orders-2");
    let step = Step::Replace { pod: "orders-2".into(), uid: "p2".into(), resource_version: "5".into() };
    assert_eq!(made.steps, [step], "only as it was seen");
}

#[test]
fn one_that_is_being_cloned_is_let_be_and_a_broken_one_is_replaced_before_others_are_well() {
    let mut seen = running(json!({"replicas": 3, "version": "17.4"}));
    respec(&mut seen, json!({"replicas": 3, "version": "17.5"}));
    seen.instances[1].ready = false;
    seen.instances[1].report.as_mut().unwrap().role = Role::Joining;
    assert_eq!(plan(&seen, now()).steps, []);
    seen.instances[1].report.as_mut().unwrap().problem = Some("no".to_owned());
    assert_eq!(replaced(&plan(&seen, now()).steps[0]), "orders-1");
    lead(&mut seen, 1);
    assert_eq!(plan(&seen, now()).steps, [], "a leader that does not serve is not made to go");
    seen.instances[1].hindrance = Some(Hindrance::Container("back-off".to_owned()));
    assert_eq!(replaced(&plan(&seen, now()).steps[0]), "orders-1", "unless it does not even start");
}

#[test]
fn nobody_takes_a_turn_while_nobody_leads() {
    let mut seen = running(json!({"replicas": 2, "version": "17.4"}));
    respec(&mut seen, json!({"replicas": 2, "version": "17.5"}));
    for instance in &mut seen.instances {
        let report = instance.report.as_mut().unwrap();
        (report.leader, report.role) = (String::new(), Role::Replica);
    }
    let made = plan(&seen, now());
    assert_eq!((made.steps.len(), condition(&made, "Ready").1), (0, "NoPrimary"));
    assert!(condition(&made, "Progressing").2.contains("somebody leads"));
}

#[test]
fn pods_from_before_their_account_was_made_anew_are_replaced_beginning_with_the_leader() {
    let mut seen = running(json!({"replicas": 3}));
    let wanted = plan(&seen, now()).wanted.unwrap();
    seen.account = Some(ago(60));
    assert_eq!(replaced(&plan(&seen, now()).steps[0]), "orders-0", "it can do nothing, not even hand over");
    seen.instances[0] = Instance { made: ago(50), ready: false, report: None, ..follower(0, &wanted) };
    assert_eq!(plan(&seen, now()).steps, [], "the others serve readers meanwhile");
    seen.instances[0] = Instance { made: ago(50), ..follower(0, &wanted) };
    lead(&mut seen, 0);
    assert_eq!(replaced(&plan(&seen, now()).steps[0]), "orders-2");
    for ordinal in [1, 2] {
        seen.instances[ordinal].made = ago(40);
    }
    assert_eq!(plan(&seen, now()).steps, []);
}

#[test]
fn a_single_instance_is_replaced_without_a_handover() {
    let mut seen = running(json!({"version": "17.4"}));
    respec(&mut seen, json!({"version": "17.5"}));
    assert_eq!(replaced(&plan(&seen, now()).steps[0]), "orders-0");
    seen.set.as_mut().unwrap().deleting = true;
    assert_eq!(plan(&seen, now()).steps, [], "nobody would make it anew");
}

/// All agents have read the settings and wait for a restart.
fn pending(seen: &mut Observed) -> String {
    let settings = fingerprint(&seen.config.as_ref().unwrap().to_json().unwrap());
    for instance in &mut seen.instances {
        let report = instance.report.as_mut().unwrap();
        (report.pending_restart, report.settings) = (true, Some(settings.clone()));
    }
    settings
}

#[test]
fn parameters_that_need_it_restart_replicas_one_by_one_and_the_leader_last() {
    let mut seen = running(json!({"replicas": 2}));
    respec(&mut seen, json!({"replicas": 2, "parameters": {"max_connections": "200"}}));
    seen.instances[1].report.as_mut().unwrap().pending_restart = true;
    assert_eq!(applied(&mut seen).steps, [], "it speaks of settings that it had before");
    let token = pending(&mut seen);
    let made = applied(&mut seen);
    assert_eq!(made.steps, [Step::Restart { pod: "orders-1".to_owned(), token: token.clone() }]);
    assert_eq!(phase(&made), Phase::Upgrading);
    seen.instances[1].restart = Some(token.clone());
    assert_eq!(applied(&mut seen).steps, [], "it was told");
    let report = seen.instances[1].report.as_mut().unwrap();
    (report.pending_restart, report.restarted) = (false, Some(token.clone()));
    assert!(matches!(&applied(&mut seen).steps[..], [Step::HandOver { to, .. }] if to == "orders-1"));
    lead(&mut seen, 1);
    assert_eq!(
        applied(&mut seen).steps,
        [Step::Restart { pod: "orders-0".to_owned(), token: token.clone() }]
    );

    let restart = |seen: &mut Observed, token: &str| {
        seen.instances[0].restart = Some(token.to_owned());
        seen.instances[0].report.as_mut().unwrap().restarted = Some(token.to_owned());
    };
    restart(&mut seen, &token);
    let again = format!("{token}.2");
    let pod = "orders-0".to_owned();
    assert_eq!(
        applied(&mut seen).steps,
        [Step::Restart { pod, token: again.clone() }],
        "settings may come back"
    );
    restart(&mut seen, &again);
    assert_eq!(applied(&mut seen).steps.len(), 1);
    restart(&mut seen, &format!("{token}.3"));
    let made = applied(&mut seen);
    assert_eq!((made.steps.len(), condition(&made, "Degraded").1), (0, "RestartDidNotHelp"));
}

#[test]
fn one_that_was_told_to_restart_under_earlier_settings_is_waited_for() {
    let mut seen = running(json!({"replicas": 3}));
    seen.instances[2].restart = Some("of earlier settings".to_owned());
    respec(&mut seen, json!({"replicas": 3, "parameters": {"max_connections": "200"}}));
    applied(&mut seen);
    pending(&mut seen);
    seen.instances[2].report.as_mut().unwrap().pending_restart = false;
    assert_eq!(applied(&mut seen).steps, [], "two would restart at once");
    seen.instances[2].report.as_mut().unwrap().restarted = Some("of earlier settings".to_owned());
    assert!(matches!(&applied(&mut seen).steps[..], [Step::Restart { pod, .. }] if pod == "orders-1"));
}

/// Found by the simulator: the request was carried out ten seconds later, when another had been told to.
#[test]
fn while_it_is_not_known_whether_one_was_told_to_restart_no_other_is() {
    let mut seen = running(json!({"replicas": 3}));
    respec(&mut seen, json!({"replicas": 3, "parameters": {"max_connections": "200"}}));
    applied(&mut seen);
    pending(&mut seen);
    let told = |seen: &Observed| plan(seen, now()).steps;
    assert!(matches!(&told(&seen)[..], [Step::Restart { pod, .. }] if pod == "orders-2"));
    seen.lately.doubtful = Some(("orders-1".to_owned(), Duration::from_secs(10)));
    assert!(matches!(&told(&seen)[..], [Step::Restart { pod, .. }] if pod == "orders-1"));
    seen.instances[1].report.as_mut().unwrap().pending_restart = false;
    let made = plan(&seen, now());
    assert_eq!((made.steps, made.again), (vec![], Some(Duration::from_secs(50))));
    seen.lately.doubtful = Some(("orders-1".to_owned(), Duration::from_secs(60)));
    assert!(matches!(&told(&seen)[..], [Step::Restart { pod, .. }] if pod == "orders-2"));
}

#[test]
fn what_is_lowered_restarts_the_leader_where_it_is_and_then_the_replicas() {
    let mut seen = running(json!({"replicas": 2}));
    respec(&mut seen, json!({"replicas": 2, "parameters": {"max_connections": "50"}}));
    applied(&mut seen);
    let token = pending(&mut seen);
    let say = |seen: &mut Observed, ordinal: usize, pending: bool, lowering: bool| {
        let report = seen.instances[ordinal].report.as_mut().unwrap();
        (report.pending_restart, report.lowering) = (pending, lowering);
    };
    say(&mut seen, 0, true, true);
    say(&mut seen, 1, false, true);
    let restart = |pod: &str| Step::Restart { pod: pod.to_owned(), token: token.clone() };
    assert_eq!(applied(&mut seen).steps, [restart("orders-0")], "a handover would bring nothing");
    say(&mut seen, 0, false, false);
    let made = applied(&mut seen);
    assert_eq!((made.steps.len(), phase(&made)), (0, Phase::Upgrading), "it is not done yet");
    say(&mut seen, 1, true, false);
    assert_eq!(applied(&mut seen).steps, [restart("orders-1")]);
}

#[test]
fn who_leads_is_believed_before_what_the_silent_said_last() {
    let mut seen = running(json!({"replicas": 3}));
    let dead = seen.instances[0].clone();
    lead(&mut seen, 1);
    seen.instances[0] = dead;
    seen.instances[1].report.as_mut().unwrap().followers = Some(vec!["orders-2".to_owned()]);
    doubt(&mut seen.instances);
    let made = plan(&seen, now());
    assert_eq!(made.status.primary.as_deref(), Some("orders-1"));
    let rows: Vec<(String, bool)> =
        made.status.instances.iter().map(|row| (row.role.as_ref().unwrap().to_string(), row.ready)).collect();
    let row = |role: &str, ready| (role.to_owned(), ready);
    assert_eq!(rows, [row("unknown", false), row("primary", true), row("replica", true)]);
    assert_eq!((phase(&made), made.status.ready_replicas), (Phase::Degraded, Some(2)));
}

#[test]
fn what_it_means_for_commits_that_no_standby_is_left_is_said() {
    for (policy, word) in [("required", "commits wait"), ("preferred", "commits go on")] {
        let mut seen = running(json!({"replicas": 2, "failover": {"standby": policy}}));
        let report = seen.instances[0].report.as_mut().unwrap();
        report.followers = Some(Vec::new());
        report.writable = policy == "preferred";
        doubt(&mut seen.instances);
        let made = plan(&seen, now());
        let (_, reason, message) = condition(&made, "Degraded");
        assert!(reason == "NoStandby" && message.contains(word), "{reason}: {message}");
        assert_eq!(condition(&made, "Ready").0, Some(policy == "preferred"), "a write works, or does not");

        // Whatever else is amiss comes after it.
        let other = "the volume is almost full".to_owned();
        seen.instances[0].report.as_mut().unwrap().problem = Some(other.clone());
        let made = plan(&seen, now());
        let (_, reason, message) = condition(&made, "Degraded");
        assert!(reason == "NoStandby" && message.contains(word), "{reason}: {message}");
        assert!(message.contains(&other), "{message}");
    }
}

#[test]
fn data_that_nobody_has_any_more_is_said_once_all_have_looked() {
    let mut seen = running(json!({"replicas": 2}));
    for instance in &mut seen.instances {
        let report = instance.report.as_mut().unwrap();
        report.system_id = None;
        (report.role, report.writable, instance.ready) = (Role::Unknown, false, false);
    }
    let made = plan(&seen, now());
    let (_, reason, message) = condition(&made, "Ready");
    assert!(reason == "DataLost" && message.contains("Bring back a volume"), "{reason}: {message}");
    assert_eq!((phase(&made), condition(&made, "Degraded").1), (Phase::Failed, "DataLost"));

    // One that is being made anew may have it, and so may one that has not looked.
    let unknown = |change: fn(&mut Observed)| {
        let mut seen = seen.clone();
        change(&mut seen);
        assert_ne!(condition(&plan(&seen, now()), "Degraded").1, "DataLost");
    };
    unknown(|seen| drop(seen.instances.pop()));
    unknown(|seen| seen.instances[1].report = None);
    unknown(|seen| seen.instances[1].report.as_mut().unwrap().system_id = Some("7".to_owned()));
    unknown(|seen| seen.config.as_mut().unwrap().system = None);
}

#[test]
fn the_best_replica_takes_over() {
    let mut seen = running(json!({"replicas": 4}));
    respec(&mut seen, json!({"replicas": 3}));
    lead(&mut seen, 3);
    let to = |seen: &Observed| match &plan(seen, now()).steps[..] {
        [Step::HandOver { to, .. }] => to.clone(),
        other => panic!("{other:?}"),
    };
    seen.instances[0].report.as_mut().unwrap().lag_bytes = Some(1 << 20);
    assert_eq!(to(&seen), "orders-1");
    seen.instances[2].report.as_mut().unwrap().role = Role::Synchronous;
    assert_eq!(to(&seen), "orders-2");
}

#[test]
fn ready_is_true_only_while_somebody_takes_writes_and_nobody_knows_a_newer_leader() {
    let mut seen = running(json!({"replicas": 2}));
    seen.instances[1].report.as_mut().unwrap().epoch += 1;
    assert_eq!(condition(&plan(&seen, now()), "Ready").0, Some(true), "a newer epoch of the same leader");
    seen.instances[1].report.as_mut().unwrap().leader = "orders-1".to_owned();
    let made = plan(&seen, now());
    assert_eq!((condition(&made, "Ready").1, phase(&made)), ("NoPrimary", Phase::Degraded));
    assert_eq!(made.status.primary, None);

    for damage in [
        |one: &mut Instance| one.ready = false,
        |one: &mut Instance| one.deleting = true,
        |one: &mut Instance| one.report.as_mut().unwrap().writable = false,
        |one: &mut Instance| one.report = None,
    ] {
        let mut seen = running(json!({"replicas": 2}));
        damage(&mut seen.instances[0]);
        let made = plan(&seen, now());
        assert_eq!(condition(&made, "Ready").0, Some(false));
        assert_eq!(condition(&made, "Degraded").0, Some(true));
    }
}

#[test]
fn what_stands_in_the_way_is_said_once_it_is_that_old_and_looked_at_then() {
    let unwell = |age: i64, hindrance: Option<Hindrance>| {
        let mut seen = fresh(json!({}));
        let wanted = applied(&mut seen).wanted.unwrap();
        seen.instances =
            vec![Instance { ready: false, report: None, made: ago(age), hindrance, ..follower(0, &wanted) }];
        seen.lately.secrets = Some(Duration::ZERO);
        plan(&seen, now())
    };
    let no_node = || Some(Hindrance::Unschedulable("0/3 nodes".to_owned()));
    let made = unwell(10, no_node());
    assert_eq!((phase(&made), made.again), (Phase::Creating, Some(Duration::from_secs(20))));
    let made = unwell(30, no_node());
    assert_eq!((phase(&made), condition(&made, "Ready").1), (Phase::Failed, "Unschedulable"));
    assert_eq!(
        condition(&unwell(1, Some(Hindrance::Container("back-off".into()))), "Degraded").1,
        "ContainerFails"
    );
    assert_eq!(unwell(100, None).again, Some(Duration::from_secs(500)));
    assert_eq!(condition(&unwell(600, None), "Degraded").1, "InstanceNotReady");

    let mut seen = running(json!({}));
    seen.claims[0] = Claim { bound: false, made: ago(59), ..claim(0) };
    assert_eq!(plan(&seen, now()).again, Some(Duration::from_secs(1)));
    seen.claims[0].made = ago(60);
    let made = plan(&seen, now());
    assert_eq!((phase(&made), condition(&made, "Degraded").1), (Phase::Degraded, "VolumeNotBound"));
    assert!(condition(&made, "Degraded").2.starts_with("data-orders-0 has no volume yet. Check"));

    let mut seen = running(json!({}));
    let report = seen.instances[0].report.as_mut().unwrap();
    (report.problem, report.reason) = (Some("work_mem is no number".into()), Some("ParameterRefused".into()));
    let made = plan(&seen, now());
    assert_eq!(
        condition(&made, "Degraded"),
        (Some(true), "ParameterRefused", "orders-0: work_mem is no number")
    );
}

#[test]
fn a_pod_that_waits_for_its_volume_and_a_volume_that_waits_for_its_pod_are_told_apart() {
    let waiting = |why: &str| {
        let mut seen = fresh(json!({}));
        let wanted = applied(&mut seen).wanted.unwrap();
        let hindrance = Some(Hindrance::Unschedulable(why.to_owned()));
        seen.instances = vec![Instance { ready: false, report: None, hindrance, ..follower(0, &wanted) }];
        seen.claims = vec![Claim { bound: false, ..claim(0) }];
        let made = plan(&seen, now());
        let (_, reason, message) = condition(&made, "Ready");
        (reason.to_owned(), message.to_owned())
    };
    let why = r#"0/3 nodes are available: storageclass.storage.k8s.io "golden" not found"#;
    let (reason, message) = waiting(why);
    assert_eq!(reason, "VolumeNotBound");
    assert!(message.contains("data-orders-0") && message.contains(why), "{message}");
    assert!(!message.contains("spec.resources"), "{message}");
    let (reason, message) = waiting("0/3 nodes are available: 3 Insufficient cpu");
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains("spec.resources") && !message.contains("spec.storage"), "{message}");
}

#[test]
fn what_takes_away_or_tells_something_else_is_not_done_by_what_watches_have_told() {
    let weighty = |seen: &Observed| plan(seen, now()).is_weighty(seen);
    let new = fresh(json!({"replicas": 2}));
    assert!(!weighty(&new), "there is nothing yet that could be forgotten");
    let steady = running(json!({"replicas": 2}));
    assert!(!weighty(&steady), "nothing is done");
    let mut grown = steady.clone();
    grown.instances.push(follower(2, &plan(&steady, now()).wanted.unwrap()));
    assert!(!weighty(&grown), "nothing is done about it");
    for damage in [
        |seen: &mut Observed| respec(seen, json!({"replicas": 2, "version": "17.4"})),
        |seen: &mut Observed| respec(seen, json!({"replicas": 1})),
        |seen: &mut Observed| respec(seen, json!({"replicas": 2, "storage": "20Gi"})),
        |seen: &mut Observed| respec(seen, json!({"replicas": 2, "parameters": {"work_mem": "8MB"}})),
        |seen: &mut Observed| seen.config = None,
        |seen: &mut Observed| seen.set = None,
        |seen: &mut Observed| seen.account = Some(now()),
    ] {
        let mut seen = steady.clone();
        damage(&mut seen);
        assert!(weighty(&seen), "{:?}", plan(&seen, now()).steps);
    }
}

#[test]
fn a_pull_secret_that_is_named_twice_is_asked_for_once() {
    let made = plan(&fresh(json!({"imagePullSecrets": ["b", "a", "b"]})), now());
    assert_eq!(made.wanted.unwrap().pull_secrets, ["b", "a"]);
}

#[test]
fn a_pod_that_the_cluster_does_not_make_is_said_after_a_while_and_until_it_is_there() {
    let mut seen = running(json!({"replicas": 2}));
    let pod = seen.instances.pop().unwrap();
    assert_eq!(seen.absent(), ["orders-1"]);
    seen.lately.absent = vec![("orders-1".to_owned(), Duration::from_secs(10))];
    let made = plan(&seen, now());
    assert_eq!(
        (condition(&made, "Degraded").1, made.again),
        ("InstancesMissing", Some(Duration::from_secs(20)))
    );
    seen.lately.absent = vec![("orders-1".to_owned(), Duration::from_secs(30))];
    let made = plan(&seen, now());
    let (_, reason, message) = condition(&made, "Degraded");
    assert!(reason == "PodNotMade" && message.contains("describe statefulset orders"), "{reason}: {message}");
    assert_eq!(condition(&made, "Ready").0, Some(true), "the other serves");
    seen.instances.push(pod);
    assert_eq!(seen.absent(), [""; 0]);
    seen.lately.absent.clear();
    assert_eq!(phase(&plan(&seen, now())), Phase::Running);
}

#[test]
fn what_the_cluster_will_not_have_is_said_while_what_runs_goes_on() {
    let mut seen = running(json!({"replicas": 2}));
    seen.lately.refused = Some("applying StatefulSet shop/orders: no such thing".to_owned());
    let made = plan(&seen, now());
    let (_, reason, message) = condition(&made, "Degraded");
    assert!(reason == "ChildRefused" && message.contains("no such thing"), "{reason}: {message}");
    assert_eq!((phase(&made), condition(&made, "Ready").0), (Phase::Degraded, Some(true)));
    seen.lately.refused = None;
    assert_eq!(phase(&plan(&seen, now())), Phase::Running);
}

#[test]
fn a_backup_without_a_place_to_go_is_said_and_is_in_nobodys_way() {
    let mut seen = running(json!({"backup": {"schedule": "0 2 * * *"}}));
    let made = applied(&mut seen);
    assert_eq!(
        (condition(&made, "BackupReady").1, condition(&made, "Ready").0),
        ("NoRepository", Some(true))
    );
    assert_eq!(phase(&made), Phase::Running);
    respec(&mut seen, json!({}));
    applied(&mut seen);
    let said: Vec<&str> = seen.status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(said, ["Ready", "Progressing", "Degraded"], "as if none had been asked for");
}

#[test]
fn a_field_that_nothing_comes_of_yet_is_said_and_is_in_nobodys_way() {
    let mut seen = running(json!({}));
    respec(&mut seen, json!({"autopilot": "act", "storage": {"autogrow": {"limit": "1Ti"}}}));
    let made = applied(&mut seen);
    let (holds, reason, message) = condition(&made, "SpecEffective");
    assert_eq!((holds, reason), (Some(false), "NotSupported"));
    assert_eq!(message, "spec.autopilot, spec.storage.autogrow are not supported yet: they have no effect");
    assert_eq!((phase(&made), condition(&made, "Ready").0), (Phase::Running, Some(true)));
    respec(&mut seen, json!({"autopilot": "none"}));
    applied(&mut seen);
    let said: Vec<&str> = seen.status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(said, ["Ready", "Progressing", "Degraded"], "as if it had never been asked for");
}

#[test]
fn a_loss_is_degraded_and_its_end_is_recovered() {
    let mut seen = running(json!({"replicas": 3}));
    let lost = seen.instances.pop().unwrap();
    let made = applied(&mut seen);
    assert_eq!(
        (phase(&made), made.steps.len(), made.news[0].reason.as_str()),
        (Phase::Degraded, 0, "InstancesMissing")
    );
    assert_eq!(applied(&mut seen).news, [], "said once");
    seen.instances.push(lost);
    let made = applied(&mut seen);
    assert_eq!((phase(&made), made.news[0].reason.as_str()), (Phase::Running, "Recovered"));
}

fn leadership(who: &str, epoch: i64, why: &str, gap_millis: Option<i64>) -> Leadership {
    let why = Some(Written::new(why));
    Leadership {
        who: who.to_owned(),
        epoch: Some(epoch),
        since: Time(now()),
        why,
        gap_millis,
        lost_bytes: None,
    }
}

#[test]
fn leaderships_are_told_by_whoever_leads_and_each_new_one_is_news() {
    let mut seen = running(json!({"replicas": 3}));
    let first = leadership("orders-0", 4, "First", None);
    seen.instances[0].report.as_mut().unwrap().leaderships = vec![first.clone()];
    let made = applied(&mut seen);
    assert_eq!((made.status.leaderships, made.news), (vec![first.clone()], vec![]), "nothing happened yet");

    lead(&mut seen, 1);
    let second = leadership("orders-2", 5, "PreviousSilent", Some(5203));
    let third = leadership("orders-1", 6, "HandedOver", Some(412));
    let all = vec![third, second, first.clone()];
    seen.instances[1].report.as_mut().unwrap().leaderships = all.clone();
    let report = seen.instances[0].report.as_mut().unwrap();
    (report.epoch, report.leaderships) = (4, vec![first]);
    let made = applied(&mut seen);
    assert_eq!(made.status.leaderships, all, "by the newest epoch");
    let said: Vec<(&str, &str)> =
        made.news.iter().map(|news| (news.reason.as_str(), news.note.as_str())).collect();
    let expected = [
        (
            "FailedOver",
            "orders-2 is primary, since nothing was heard from the one before; nobody took writes for 5.203 s",
        ),
        ("HandedOver", "orders-1 is primary, as was asked for; nobody took writes for 0.412 s"),
    ];
    assert_eq!(said, expected);
    assert!(plan(&seen, now()).news.is_empty(), "said once");

    seen.instances.iter_mut().for_each(|one| one.report = None);
    assert_eq!(plan(&seen, now()).status.leaderships, all, "not forgotten while nobody is heard");
}
