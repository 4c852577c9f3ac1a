//! Each rule lets one object pass and refuses another, in its words.

use std::collections::BTreeSet;

use keelson_api::convert::ApiVersion;
use keelson_api::policy;
use keelson_api::v1::rules;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::plane::{api, client, create, databases, object, refusal, try_create};

/// A spec that passes and one that does not, with a part of the message. With `before`, both are merge
/// patches to a database that has it, and runs the version that it names.
struct Case {
    message: &'static str,
    before: Option<Value>,
    passes: Value,
    refused: Value,
}

fn creation(message: &'static str, passes: Value, refused: Value) -> Case {
    Case { message, before: None, passes, refused }
}

fn change(message: &'static str, before: Value, passes: Value, refused: Value) -> Case {
    Case { message, before: Some(before), passes, refused }
}

fn cases() -> Vec<Case> {
    let s3 = json!({"bucket": "backups"});
    let from = json!({"database": "old"});
    vec![
        creation("no such version of PostgreSQL", json!({"version": "17.4"}), json!({"version": "9.6"})),
        creation("no such version of PostgreSQL", json!({"version": "18"}), json!({"version": "13"})),
        creation(
            "no such version of MySQL",
            json!({"engine": "mysql", "version": "9.7"}),
            json!({"engine": "mysql", "version": "17"}),
        ),
        change(
            "engine can't be changed",
            json!({}),
            json!({"engine": "postgres"}),
            json!({"engine": "mysql"}),
        ),
        change(
            "version can't be taken away",
            json!({"version": "17"}),
            json!({"version": "17.1"}),
            json!({"version": null}),
        ),
        change(
            "PostgreSQL can't go back",
            json!({"version": "17"}),
            json!({"version": "18"}),
            json!({"version": "16"}),
        ),
        change(
            "PostgreSQL can't go back",
            json!({"version": "17.9"}),
            json!({"version": "17.4"}),
            json!({"version": "16.9"}),
        ),
        change(
            "MySQL can't go back",
            json!({"engine": "mysql", "version": "9.6"}),
            json!({"version": "9.10"}),
            json!({"version": "8.4"}),
        ),
        change("restore says where", json!({}), json!({"replicas": 2}), json!({"restore": {"from": from}})),
        change(
            "restore says where",
            json!({"restore": {"from": from}}),
            json!({"restore": null}),
            json!({"restore": {"from": {"database": "other"}}}),
        ),
        change(
            "give restore.inPlace a name that it did not have",
            json!({"restore": {"inPlace": "one", "to": {"lsn": "0/1"}}}),
            json!({"restore": {"inPlace": "two", "to": {"lsn": "0/2", "timeline": 3}}}),
            json!({"restore": {"to": {"lsn": "0/3"}}}),
        ),
        change(
            "restore says where",
            json!({"restore": {"from": {"backup": "nightly"}}}),
            json!({"restore": {"inPlace": "one"}}),
            json!({"restore": {"from": {"backup": "weekly"}}}),
        ),
        creation("restore.from is missing", json!({"restore": {"from": from}}), json!({"restore": {}})),
        creation(
            "from its own repository",
            json!({"restore": {"inPlace": "one", "from": {"backup": "nightly"}}}),
            json!({"restore": {"inPlace": "one", "from": from}}),
        ),
        creation(
            "ttl must be from 2s to 5m",
            json!({"failover": {"ttl": "10s"}}),
            json!({"failover": {"ttl": "1s"}}),
        ),
        creation(
            "at least 100ms",
            json!({"failover": {"interval": "100ms", "margin": "500ms"}}),
            json!({"failover": {"interval": "50ms"}}),
        ),
        creation(
            "margin plus twice the interval",
            json!({"failover": {"ttl": "2500ms"}}),
            json!({"failover": {"ttl": "2400ms"}}),
        ),
        creation(
            "set by Keelson itself",
            json!({"parameters": {"work_mem": "64MB", "max_connections": 500}}),
            json!({"parameters": {"work_mem": "64MB", "fsync": "off"}}),
        ),
        creation(
            "exactly one place for backups",
            json!({"backup": {"to": {"s3": s3}}}),
            json!({"backup": {"to": {"s3": s3, "folder": {"claim": "disk"}}}}),
        ),
        creation("exactly one place for backups", json!({}), json!({"backup": {"to": {}}})),
        creation(
            "exactly one source",
            json!({"restore": {"from": from}}),
            json!({"restore": {"from": {"database": "a", "backup": "b"}}}),
        ),
        creation(
            "at most one moment",
            json!({"restore": {"from": from, "to": {"time": "2026-11-16T09:30:00Z"}}}),
            json!({"restore": {"from": from, "to": {"time": "2026-11-16T09:30:00Z", "lsn": "0/1"}}}),
        ),
        creation("storage is a size", json!({"storage": "50Gi"}), json!({"storage": 50})),
        creation(
            "storage is a size",
            json!({"storage": {"size": "50Gi", "class": "fast", "autogrow": {"limit": "1Ti"}}}),
            json!({"storage": {"size": "50Gi", "clas": "fast"}}),
        ),
        creation("more than nothing", json!({"storage": "1Mi"}), json!({"storage": "0Gi"})),
        change(
            "storage can't shrink",
            json!({"storage": "50Gi"}),
            json!({"storage": "51200Mi"}),
            json!({"storage": "50G"}),
        ),
        change(
            "storage can't shrink",
            json!({"storage": "50Gi"}),
            json!({"storage": {"size": "60Gi"}}),
            json!({"storage": {"size": "40Gi"}}),
        ),
        change(
            "storage can't shrink",
            json!({"storage": {"size": "50Gi"}}),
            json!({"storage": "1Ti"}),
            json!({"storage": null}),
        ),
        change("storage can't shrink", json!({}), json!({"storage": "10Gi"}), json!({"storage": "9Gi"})),
        change(
            "storage class can't be changed",
            json!({"storage": {"class": "fast"}}),
            json!({"storage": {"size": "20Gi"}}),
            json!({"storage": {"class": "slow"}}),
        ),
        creation(
            "autogrow.limit must not be less",
            json!({"storage": {"size": "5Gi", "autogrow": {"limit": "5Gi"}}}),
            json!({"storage": {"size": "5Gi", "autogrow": {"limit": "4Gi"}}}),
        ),
    ]
}

#[tokio::test]
async fn each_rule_lets_one_object_pass_and_refuses_another_in_its_words() {
    let client = client().await;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    for (number, case) in cases().into_iter().enumerate() {
        let Case { message, before, passes, refused } = case;
        let (good, bad) = match before {
            None => (
                try_create(&client, "Database", passes).await,
                try_create(&client, "Database", refused).await,
            ),
            Some(before) => {
                let name = format!("rule-{number}");
                let databases = databases(&client, ApiVersion::V1);
                let runs = Patch::Merge(json!({"status": {"version": before["version"]}}));
                create(&client, ApiVersion::V1, &name, before).await;
                databases.patch_status(&name, &PatchParams::default(), &runs).await.unwrap();
                let [good, bad] = [passes, refused].map(|spec| Patch::Merge(json!({ "spec": spec })));
                (databases.patch(&name, &dry, &good).await, databases.patch(&name, &dry, &bad).await)
            }
        };
        good.unwrap_or_else(|error| panic!("{number} {message}: {error}"));
        let said = refusal(bad);
        let in_full = messages().find(|full| full.contains(message)).unwrap_or(message);
        assert!(said.contains(in_full), "{number} {message}: {said}");
    }
}

/// The words of every rule on a Database's spec.
fn messages() -> impl Iterator<Item = &'static str> {
    let groups = [
        rules::SPEC,
        rules::DATABASE,
        rules::FAILOVER,
        rules::PARAMETERS,
        rules::REPOSITORY,
        rules::RESTORE_SOURCE,
        rules::RESTORE_TARGET,
        policy::STORAGE,
    ];
    groups.into_iter().flatten().map(|rule| rule.message)
}

#[test]
fn no_rule_on_databases_goes_untried() {
    let tried: BTreeSet<&str> = cases().iter().map(|case| case.message).collect();
    let untried: Vec<&str> =
        messages().filter(|message| !tried.iter().any(|part| message.contains(part))).collect();
    assert_eq!(untried, [""; 0]);
}

#[tokio::test]
async fn names_must_fit_into_host_names() {
    let client = client().await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (name, passes) in
        [("a".repeat(48), true), ("a".repeat(49), false), ("a.b".into(), false), ("1a".into(), false)]
    {
        for (kind, spec) in [("Database", json!({})), ("App", json!({"image": "app"}))] {
            let answer = api(&client, kind, "v1").create(&dry, &object(kind, "v1", &name, spec)).await;
            match passes {
                true => drop(answer.unwrap()),
                false => assert!(refusal(answer).contains("part of host names"), "{name}"),
            }
        }
    }
}

#[tokio::test]
async fn any_version_can_be_corrected_and_an_upgrade_called_off_until_it_runs() {
    let client = client().await;
    for (name, spec) in [("called-off", json!({"version": "17"})), ("silent", json!({}))] {
        create(&client, ApiVersion::V1, name, spec).await;
        let databases = databases(&client, ApiVersion::V1);
        let set = async |version: &str| {
            let patch = Patch::Merge(json!({"spec": {"version": version}}));
            databases.patch(name, &PatchParams::default(), &patch).await
        };
        let runs = async |version: &str| {
            let patch = Patch::Merge(json!({"status": {"version": version}}));
            databases.patch_status(name, &PatchParams::default(), &patch).await.unwrap()
        };
        set("99").await.unwrap();
        set("17").await.unwrap();
        runs("17.4").await;
        assert!(refusal(set("16").await).contains("PostgreSQL can't go back"));
        set("18").await.unwrap();
        set("17").await.unwrap();
        set("18").await.unwrap();
        runs("18.1").await;
        assert!(refusal(set("17").await).contains("PostgreSQL can't go back"));
        // Whatever the status says, it can be written.
        runs("19.0").await;
        runs("17.4").await;
    }
}

#[tokio::test]
async fn the_rules_hold_for_requests_in_every_version() {
    let client = client().await;
    create(&client, ApiVersion::V1, "every-version", json!({"version": "17", "storage": "50Gi"})).await;
    let runs = Patch::Merge(json!({"status": {"version": "17.4"}}));
    let stored = databases(&client, ApiVersion::V1);
    stored.patch_status("every-version", &PatchParams::default(), &runs).await.unwrap();
    let beta = databases(&client, ApiVersion::V1Beta1);
    let patch = |patch: Value| Patch::Merge(patch);
    let older = beta
        .patch("every-version", &PatchParams::default(), &patch(json!({"spec": {"version": "15"}})))
        .await;
    assert!(refusal(older).contains("PostgreSQL can't go back"));
    // Without what was kept, the rest of the spec would be gone.
    let forget = json!({"metadata": {"annotations": {"keelson.dev/conversion": null}}});
    let forgotten = beta.patch("every-version", &PatchParams::default(), &patch(forget)).await;
    assert!(refusal(forgotten).contains("storage can't shrink"));
    let newer = beta
        .patch("every-version", &PatchParams::default(), &patch(json!({"spec": {"version": "18"}})))
        .await;
    assert_eq!(newer.unwrap().data["spec"]["version"], "18");
    let stored = stored.get("every-version").await.unwrap();
    assert_eq!(
        (&stored.data["spec"]["version"], &stored.data["spec"]["storage"]),
        (&json!("18"), &json!("50Gi"))
    );
}

#[tokio::test]
async fn bounds_patterns_and_words_are_refused_by_the_schema() {
    let client = client().await;
    for (version, spec, field) in [
        ("v1", json!({"replicas": 0}), "spec.replicas"),
        ("v1", json!({"replicas": 11}), "spec.replicas"),
        ("v1", json!({"engine": "oracle"}), "spec.engine"),
        ("v1", json!({"version": "latest"}), "spec.version"),
        ("v1", json!({"size": "huge"}), "spec.size"),
        ("v1", json!({"storage": "50GB"}), "spec.storage"),
        ("v1", json!({"storage": {"size": "plenty"}}), "spec.storage.size"),
        ("v1", json!({"resources": {"memory": "-1Gi"}}), "spec.resources.memory"),
        ("v1", json!({"backup": {"schedule": "0 2 * *"}}), "spec.backup.schedule"),
        ("v1", json!({"backup": {"retention": "ages"}}), "spec.backup.retention"),
        ("v1", json!({"backup": {"maxDataLoss": "little"}}), "spec.backup.maxDataLoss"),
        ("v1", json!({"failover": {"ttl": "soon"}}), "spec.failover.ttl"),
        ("v1", json!({"durability": "perhaps"}), "spec.durability"),
        ("v1", json!({"deletionPolicy": "Burn"}), "spec.deletionPolicy"),
        ("v1", json!({"image": "post gres"}), "spec.image"),
        ("v1", json!({"imagePullSecrets": ["My Secret"]}), "spec.imagePullSecrets[0]"),
        ("v1", json!({"storage": {"class": "Fast Disk"}}), "spec.storage.class"),
        (
            "v1",
            json!({"scheduling": {"nodeSelector": {"disk": "very fast"}}}),
            "spec.scheduling.nodeSelector",
        ),
        ("v1", json!({"scheduling": {"spreadOver": "the zone"}}), "spec.scheduling.spreadOver"),
        ("v1", json!({"scheduling": {"priorityClassName": "High"}}), "spec.scheduling.priorityClassName"),
        ("v1beta1", json!({"size": "huge"}), "spec.size"),
        ("v1beta1", json!({"backup_schedule": "often"}), "spec.backup_schedule"),
        ("v1alpha1", json!({}), "spec.replicas"),
        ("v1alpha1", json!({"replicas": 11}), "spec.replicas"),
        ("v1alpha1", json!({"replicas": 1, "backup": {"retention": "ages"}}), "spec.backup.retention"),
    ] {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let answer =
            api(&client, "Database", version).create(&dry, &object("Database", version, "tried", spec)).await;
        let said = refusal(answer);
        assert!(said.contains(field), "{version} {field}: {said}");
    }
}

#[tokio::test]
async fn what_no_schema_can_judge_is_said_by_the_webhook() {
    let client = client().await;
    for (spec, says) in [
        (
            json!({"backup": {"schedule": "61 * * * *"}}),
            "61 in the minute field of `61 * * * *` is out of range: it goes from 0 to 59",
        ),
        (json!({"backup": {"schedule": "0 0 30 2 *"}}), "spec.backup.schedule: `0 0 30 2 *` never happens"),
        (
            json!({"backup": {"schedule": "@daily", "timeZone": "Mars/Olympus"}}),
            "`Mars/Olympus` is not a time zone",
        ),
    ] {
        let said = refusal(try_create(&client, "Database", spec).await);
        assert!(said.contains(says), "{said}");
    }
    let beta = object("Database", "v1beta1", "tried", json!({"backup_schedule": "0 25 * * *"}));
    let said = refusal(databases(&client, ApiVersion::V1Beta1).create(&PostParams::default(), &beta).await);
    assert!(said.contains("25 in the hour field"), "{said}");
}

#[tokio::test]
async fn backups_and_apps_have_their_rules() {
    let client = client().await;
    let app = |autoscale: Value| json!({"image": "app", "autoscale": autoscale});
    try_create(&client, "App", app(json!({"min": 2, "max": 2}))).await.unwrap();
    let said = refusal(try_create(&client, "App", app(json!({"min": 3, "max": 2}))).await);
    assert!(said.contains(rules::AUTOSCALE[0].message), "{said}");
    let port = json!([{"name": "http", "port": 80}]);
    for (number, good, bad) in [
        (0, json!({"progressDeadline": "30s"}), json!({"progressDeadline": "5s"})),
        (0, json!({"progressDeadline": "1h"}), json!({"progressDeadline": "61m"})),
        (1, json!({"health": {"path": "/"}, "ports": port}), json!({"health": {"path": "/"}})),
        (
            1,
            json!({"health": {"path": "/", "port": "http"}, "ports": port}),
            json!({"health": {"path": "/", "port": "web"}, "ports": port}),
        ),
        (2, json!({"pooler": {}, "database": "orders"}), json!({"pooler": {}})),
        (2, json!({"pooler": {"enabled": false}}), json!({"pooler": {"enabled": true}})),
    ] {
        let app = |mut fields: Value| {
            fields["image"] = json!("app");
            fields
        };
        try_create(&client, "App", app(good)).await.unwrap();
        let said = refusal(try_create(&client, "App", app(bad)).await);
        assert!(said.contains(rules::APP[number].message), "{said}");
    }

    let backups = api(&client, "Backup", "v1");
    let backup = object("Backup", "v1", "before-the-change", json!({"database": "orders"}));
    backups.create(&PostParams::default(), &backup).await.unwrap();
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    backups.patch("before-the-change", &PatchParams::default(), &labelled).await.unwrap();
    let moved = Patch::Merge(json!({"spec": {"database": "other"}}));
    let said = refusal(backups.patch("before-the-change", &PatchParams::default(), &moved).await);
    assert!(said.contains(rules::BACKUP[0].message), "{said}");
}

#[tokio::test]
async fn no_rule_stands_in_the_way_of_a_status_or_a_delete() {
    let client = client().await;
    create(&client, ApiVersion::V1, "leaving", json!({"version": "17"})).await;
    let databases = databases(&client, ApiVersion::V1);
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["keelson.dev/test"]}}));
    databases.patch("leaving", &PatchParams::default(), &finalizer).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Running", "replicas": 1}}));
    databases.patch_status("leaving", &PatchParams::default(), &status).await.unwrap();
    databases.delete("leaving", &Default::default()).await.unwrap();
    let done = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    databases.patch("leaving", &PatchParams::default(), &done).await.unwrap();
    assert!(databases.get_opt("leaving").await.unwrap().is_none());
}
