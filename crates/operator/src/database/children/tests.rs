//! The children of one database, as they are checked in beside this file, and what differs from them.

use keelson_api::instance::{
    AppAccess, BackupRule, DrillRule, DurabilityRule, FailoverTimes, Names, Store, Use, labels, paths,
};
use keelson_api::v1::{DatabaseSpec, Durability, StandbyPolicy};
use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::database::drills::Order;

pub(crate) fn wanted() -> Wanted {
    wanted_of(json!({"replicas": 3, "storage": "50Gi", "size": "medium"}))
}

fn wanted_of(spec: Value) -> Wanted {
    let spec: DatabaseSpec = serde_json::from_value(spec).unwrap();
    let settings = spec.settings().unwrap();
    Wanted {
        name: "orders".to_owned(),
        namespace: "shop".to_owned(),
        uid: "0b5e".to_owned(),
        scheduling: spec.scheduling.unwrap_or_default(),
        restart: None,
        image: "postgres:17".to_owned(),
        pull_secrets: spec.image_pull_secrets,
        agent_image: "keelson:0.1.0".to_owned(),
        pods: settings.replicas,
        storage: settings.storage.size,
        instance: InstanceSettings {
            engine: settings.engine,
            version: settings.version,
            replicas: settings.replicas,
            durability: DurabilityRule { mode: Durability::Quorum, when_alone: StandbyPolicy::Preferred },
            failover: FailoverTimes {
                ttl_millis: 5000,
                look_millis: 1000,
                margin_millis: 1000,
                max_lag_bytes: 16 << 20,
                max_reader_lag_bytes: 64 << 20,
            },
            parameters: BTreeMap::new(),
            app: AppAccess { database: "app".to_owned(), role: "app".to_owned() },
            adopted: false,
            system: None,
            secrets: "5f".to_owned(),
            certificate: None,
            backup: settings.backup.as_ref().and_then(|backup| backup.to.as_ref()).map(|to| BackupRule {
                to: Store::of(to, "shop", "orders", Use::BackUp),
                max_data_loss_seconds: 60,
                bandwidth: None,
                incrementals: 6,
                retention: None,
                order: None,
                marks: false,
                drill: None,
            }),
            restore: None,
            in_place: None,
            settled_restores: Vec::new(),
            discard: None,
        },
        settings,
    }
}

#[test]
fn the_children_are_those_that_are_checked_in() {
    let Children { config, account, role, binding, set, instances, writers, readers, disruption } =
        children(&wanted()).unwrap();
    fn yaml(object: &impl Serialize) -> String {
        serde_yaml_ng::to_string(&serde_json::to_value(object).unwrap()).unwrap()
    }
    let all = [
        yaml(&config),
        yaml(&account),
        yaml(&role),
        yaml(&binding),
        yaml(&set),
        yaml(&instances),
        yaml(&writers),
        yaml(&readers),
        yaml(&disruption),
    ]
    .join("---\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/database/children/children.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let different = found.lines().zip(all.lines()).enumerate().find(|(_, (old, new))| old != new);
    assert!(found == all, "not as in {path}, first at {different:?}: look, then run the test with UPDATE=1");
}

fn set_of(spec: Value) -> Value {
    serde_json::to_value(children(&wanted_of(spec)).unwrap().set).unwrap()
}

#[test]
fn where_instances_may_run_is_as_asked() {
    let set = set_of(json!({"scheduling": {
        "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "db", "operator": "Exists"}],
        "spread": "required", "spreadOver": "rack", "priorityClassName": "high"
    }, "imagePullSecrets": ["mirror"]}));
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["disk"], "fast");
    assert_eq!(pod["tolerations"][0]["key"], "db");
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "mirror");
    let apart = &pod["affinity"]["podAntiAffinity"];
    assert_eq!(apart["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"], "rack");
    assert!(apart.get("preferredDuringSchedulingIgnoredDuringExecution").is_none());
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn what_a_repository_needs_is_mounted_and_a_missing_secret_keeps_nobody_from_starting() {
    let set = set_of(json!({"backup": {"to": {
        "s3": {"bucket": "backups", "credentialsSecret": "keys"}, "encryptionSecret": "seal"
    }}}));
    let pod = &set["spec"]["template"]["spec"];
    let volume = |name: &str| {
        let all = pod["volumes"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).cloned().unwrap_or_else(|| panic!("{all:?}"))
    };
    assert_eq!(volume("backup-credentials")["secret"]["secretName"], "keys");
    assert_eq!(volume("backup-credentials")["secret"]["optional"], true);
    assert_eq!(volume("backup-key")["secret"]["secretName"], "seal");
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|one| one["name"] == "backup-credentials").unwrap();
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(paths::BACKUP_CREDENTIALS), &json!(true)));

    let set = set_of(json!({"backup": {"to": {"folder": {"claim": "disk"}}}}));
    let pod = &set["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|one| one["name"] == "backup-folder").unwrap();
    assert_eq!(mount["mountPath"], paths::BACKUP_FOLDER);
    assert_eq!(mount.get("readOnly"), None);
}

#[test]
fn a_repository_that_needs_nothing_mounted_takes_no_new_pod() {
    let plain = stateful_set::asked(&wanted_of(json!({})));
    let own_identity = wanted_of(json!({"backup": {"to": {"s3": {"bucket": "backups"}}}}));
    assert_eq!(stateful_set::asked(&own_identity), plain);
    let set = |wanted: &Wanted| serde_json::to_value(stateful_set::stateful_set(wanted)).unwrap();
    assert_eq!(set(&own_identity), set(&wanted_of(json!({}))));
    let keys = json!({"s3": {"bucket": "backups", "credentialsSecret": "keys"}});
    let with_keys = wanted_of(json!({"backup": {"to": keys}}));
    assert_ne!(stateful_set::asked(&with_keys), plain);
    let pod = &set(&with_keys)["spec"]["template"]["spec"];
    assert!(names(&pod["volumes"]).contains(&"backup-credentials"));
    // Another bucket is told to agents, and mounts nothing else.
    let other = json!({"s3": {"bucket": "others", "credentialsSecret": "keys"}});
    let elsewhere = wanted_of(json!({"backup": {"to": other}}));
    assert_eq!(stateful_set::asked(&elsewhere), stateful_set::asked(&with_keys));
}

#[test]
fn what_takes_a_new_pod_is_what_a_person_asked_for_and_not_what_a_newer_operator_does() {
    let before = stateful_set::asked(&wanted());
    let newer = Wanted { agent_image: "keelson:0.2.0".to_owned(), pods: 5, ..wanted() };
    assert_eq!(stateful_set::asked(&newer), before);
    assert_ne!(stateful_set::asked(&Wanted { restart: Some("again".to_owned()), ..wanted() }), before);
    assert_ne!(stateful_set::asked(&Wanted { image: "postgres:17.5".to_owned(), ..wanted() }), before);
    for other in [
        json!({"replicas": 3, "storage": "50Gi", "size": "large"}),
        json!({"replicas": 3, "storage": "50Gi", "size": "medium", "scheduling": {"spread": "required"}}),
        json!({"replicas": 3, "storage": "50Gi", "size": "medium", "imagePullSecrets": ["mirror"]}),
    ] {
        assert_ne!(stateful_set::asked(&wanted_of(other)), before);
    }
}

#[test]
fn a_drill_has_no_secret_of_the_database_no_right_but_over_its_own_pod_and_no_label_of_an_instance() {
    let spec = json!({"backup": {"to": {
        "s3": {"bucket": "backups", "credentialsSecret": "keys"}, "encryptionSecret": "seal"
    }}});
    let wanted = wanted_of(spec);
    let from = &wanted.settings.backup.as_ref().unwrap().to;
    let rule = DrillRule {
        from: Store::of(from.as_ref().unwrap(), "shop", "orders", Use::Restore),
        parameters: BTreeMap::new(),
        marks: true,
    };
    let order = Order { asked: Some("now".to_owned()), deadline: 600, rule };
    let drill::Drill { account, role, binding, claim, pod } = drill::drill(&wanted, &order).unwrap();
    let labels_of = pod.metadata.labels.clone().unwrap();
    assert_eq!(labels_of[labels::DRILL_OF], "orders");
    assert!(!labels_of.contains_key(labels::DATABASE) && !labels_of.contains_key(labels::ROLE));
    let name = Some("orders-drill".to_owned());
    assert!(
        [&account.metadata.name, &role.metadata.name, &claim.metadata.name, &pod.metadata.name]
            .iter()
            .all(|it| **it == name)
    );
    assert_eq!(Names("orders").ordinal("orders-drill"), None);
    let rules = role.rules.unwrap();
    assert_eq!(
        (rules.len(), &rules[0].verbs, &rules[0].resource_names),
        (1, &vec!["patch".to_owned()], &Some(vec!["orders-drill".to_owned()]))
    );
    assert_eq!(binding.subjects.unwrap()[0].name, "orders-drill");

    let pod = serde_json::to_value(&pod).unwrap();
    let secrets: Vec<&str> = pod["spec"]["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["secret"]["secretName"].as_str())
        .collect();
    assert_eq!(secrets, ["keys", "seal"]);
    let container = &pod["spec"]["containers"][0];
    assert!(
        container.get("ports").is_none() && container["securityContext"]["readOnlyRootFilesystem"] == true
    );
    let mounts = container["volumeMounts"].as_array().unwrap();
    let written = |mount: &&Value| {
        mount["mountPath"].as_str().unwrap().starts_with("/etc") && mount["readOnly"] != true
    };
    assert!(!mounts.iter().any(|mount| written(&mount)), "{mounts:?}");
    assert_eq!(
        (&pod["spec"]["restartPolicy"], &pod["spec"]["activeDeadlineSeconds"]),
        (&json!("Never"), &json!(600))
    );
    assert_eq!(pod["spec"]["serviceAccountName"], "orders-drill");
    assert_eq!(pod["metadata"]["annotations"]["keelson.dev/drill"], "now");
}
