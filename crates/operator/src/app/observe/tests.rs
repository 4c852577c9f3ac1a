use super::*;

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn seen(status: Value) -> PodFact {
    let mut pod_object = object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "shop-1", "labels": {APP: "shop", "more": "noise"},
            "annotations": {annotations::ASKED: "ab", "more": "noise"}
        },
        "spec": {"containers": [{"name": "app", "image": "noise"}]},
        "status": status
    }));
    trim_pod(&mut pod_object);
    let text = serde_json::to_string(&pod_object).unwrap();
    assert!(!text.contains("noise"), "{text}");
    pod(&serde_json::from_str(&text).unwrap())
}

fn container(state: Value, last: Value) -> Value {
    json!({"containerStatuses": [{
        "name": "app", "ready": false, "restartCount": 7, "image": "noise", "imageID": "noise",
        "state": state, "lastState": last
    }]})
}

fn trouble_of(status: Value) -> (String, String) {
    let found = seen(status).trouble.unwrap();
    (found.reason, found.message)
}

#[test]
fn what_is_wrong_with_a_pod_is_said_in_words_that_help() {
    let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "noise"}});
    assert_eq!(trouble_of(container(pull, json!({}))).0, "ImagePull");
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let ended = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "noise"}});
    let (reason, message) = trouble_of(container(waits, ended.clone()));
    assert_eq!(reason, "CrashLoop");
    assert!(message.contains("exit code 137 (OOMKilled)"), "{message}");
    assert_eq!(trouble_of(container(ended.clone(), json!({}))).0, "CrashLoop");
    let again = json!({"running": {"startedAt": "2026-11-18T12:00:00Z"}});
    assert_eq!(trouble_of(container(again, ended.clone())).0, "CrashLoop", "it was only started again");
    let refused = json!({"waiting": {"reason": "CreateContainerConfigError", "message": "no such secret"}});
    let (reason, message) = trouble_of(container(refused, json!({})));
    assert!(reason == "ContainerRefused" && message.contains("no such secret"), "{message}");
    let runs = json!({"running": {"startedAt": "2026-11-18T12:00:00Z"}});
    assert_eq!(trouble_of(container(runs, json!({}))).0, "ProbeFails");
    let unscheduled = json!({"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    ]});
    let (reason, message) = trouble_of(unscheduled);
    assert!(reason == "Unschedulable" && message.contains("no room"), "{message}");
}

#[test]
fn one_that_is_ready_or_just_starts_has_no_trouble() {
    let ready = seen(json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    assert!(ready.ready && ready.trouble.is_none());
    assert_eq!(ready.asked.as_deref(), Some("ab"));
    let starts = json!({"waiting": {"reason": "ContainerCreating"}});
    assert!(seen(container(starts, json!({}))).trouble.is_none());
    assert!(seen(json!(null)).trouble.is_none());
}

fn deployed(fields: Value, status: Value) -> DeploymentFact {
    let mut found = object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "shop", "generation": 3, "annotations": {UNDONE: "odd", "more": "noise"},
            "managedFields": fields
        },
        "spec": {"replicas": 4, "selector": {}, "template": {
            "metadata": {"annotations": {annotations::ASKED: "ab", CREDENTIALS: "one"}},
            "spec": {"containers": [{"name": "noise"}]}
        }},
        "status": status
    }));
    trim_deployment(&mut found);
    let text = serde_json::to_string(&found).unwrap();
    assert!(!text.contains("noise"), "{text}");
    deployment(&serde_json::from_str(&text).unwrap())
}

#[test]
fn what_is_needed_of_a_deployment_outlives_the_trimming() {
    let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    let status = json!({"observedGeneration": 3, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3,
                        "availableReplicas": 3, "conditions": late});
    let found = deployed(json!([]), status.clone());
    assert!(found.is_seen && found.stalled && !found.scaled_by_others && found.undone.is_none());
    assert_eq!(
        (found.asked.as_deref(), found.credentials.as_deref(), found.desired),
        (Some("ab"), Some("one"), 4)
    );
    assert_eq!((found.pods, found.updated, found.ready, found.available), (4, 1, 3, 3));
    let mut older = status;
    older["observedGeneration"] = json!(2);
    let older = deployed(json!([]), older);
    assert!(!older.is_seen && !older.stalled, "it speaks of an older order");
    assert!(!deployed(json!([]), json!(null)).is_seen);
}

#[test]
fn who_says_how_many_pods_there_are_is_known_from_the_account_of_fields() {
    let entry = |manager: &str, fields: Value| {
        json!([{"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields}])
    };
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    assert!(deployed(entry("autoscaler", replicas.clone()), json!(null)).scaled_by_others);
    assert!(!deployed(entry(crate::NAME, replicas), json!(null)).scaled_by_others);
    assert!(!deployed(entry("somebody", json!({"f:status": {}})), json!(null)).scaled_by_others);
}

#[test]
fn of_a_database_only_what_matters_to_those_who_use_it_is_kept() {
    let mut found = object(json!({
        "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"},
        "spec": {"replicas": 3},
        "status": {
            "primary": "orders-0", "binding": {"name": "orders-app", "revision": "one"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Writable", "message": "orders-0 takes writes",
                 "lastTransitionTime": "2026-11-18T12:00:00Z"},
                {"type": "Degraded", "status": "False", "reason": "AsAsked", "message": "",
                 "lastTransitionTime": "2026-11-18T12:00:00Z"}
            ]
        }
    }));
    trim_database(&mut found);
    let text = serde_json::to_string(&found).unwrap();
    assert!(!text.contains("orders-0") && !text.contains("Degraded"), "{text}");
    let known = fact(&serde_json::from_str(&text).unwrap());
    assert!(known.ready && known.binding.unwrap().revision.as_deref() == Some("one"));
}
