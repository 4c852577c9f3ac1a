use keelson_api::v1::{AppHealth, AppPort, AppSpec, Autoscale, Pooler};
use serde_json::{Value, json};

use super::*;
use crate::app::revision::asked;

fn spec() -> AppSpec {
    AppSpec {
        image: "shop:1".into(),
        ports: vec![AppPort { name: "http".into(), port: 8080 }],
        database: Some("orders".into()),
        ..AppSpec::default()
    }
}

fn wanted(spec: &AppSpec) -> Wanted {
    let asked = asked(spec, None);
    let template = template::template("shop", spec, &asked, Some("orders-app"), "bouncer:1");
    Wanted {
        name: "shop".into(),
        revision: Revision { asked, image: spec.image.clone(), database: None, credentials: None, template },
        credentials: Some("one".into()),
        pods: Some(2),
        deadline: 300,
        last_ready: None,
        undone: None,
        ports: spec.ports.clone(),
        autoscale: spec.autoscale.clone(),
        several: true,
    }
}

fn pod(spec: &AppSpec) -> Value {
    let made = children(&wanted(spec)).unwrap().deployment;
    json!(made)["spec"]["template"]["spec"].clone()
}

#[test]
fn a_pod_needs_no_rights_and_gets_its_credentials_as_files_and_environment() {
    let pod = pod(&spec());
    let app = &pod["containers"][0];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(app["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(app["volumeMounts"][0]["mountPath"], "/bindings/orders");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "orders-app");
    assert_eq!(app["env"][0], json!({"name": "SERVICE_BINDING_ROOT", "value": "/bindings"}));
    assert_eq!(app["env"][1]["valueFrom"]["secretKeyRef"], json!({"name": "orders-app", "key": "uri"}));
    assert_eq!(app["readinessProbe"]["tcpSocket"]["port"], "http");
    assert!(pod.get("initContainers").is_none());
}

#[test]
fn without_a_database_nothing_is_bound() {
    let pod = pod(&AppSpec { database: None, pooler: Some(Pooler::default()), ..spec() });
    assert!(pod.get("volumes").is_none() && pod["containers"][0].get("env").is_none());
    assert!(pod.get("initContainers").is_none());
}

#[test]
fn a_pooler_starts_before_the_program_which_is_led_to_it() {
    let pod = pod(&AppSpec { pooler: Some(Pooler { connections: Some(4), enabled: None }), ..spec() });
    let pooler = &pod["initContainers"][0];
    assert_eq!((&pooler["image"], &pooler["restartPolicy"]), (&json!("bouncer:1"), &json!("Always")));
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "PGHOST", "value": "127.0.0.1"})), "{env:?}");
    let off = Pooler { enabled: Some(false), connections: None };
    assert!(self::pod(&AppSpec { pooler: Some(off), ..spec() }).get("initContainers").is_none());
}

#[test]
fn a_page_says_when_a_pod_is_ready() {
    let health = AppHealth { path: "/readyz".into(), port: None };
    let pod = pod(&AppSpec { health: Some(health), ..spec() });
    let page = &pod["containers"][0]["readinessProbe"]["httpGet"];
    assert_eq!((&page["path"], &page["port"]), (&json!("/readyz"), &json!("http")));
}

#[test]
fn a_new_pod_serves_before_an_old_one_goes_and_starts_with_the_credentials_of_the_moment() {
    let made = json!(children(&wanted(&spec())).unwrap().deployment);
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let notes = &made["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(notes["keelson.dev/credentials"], "one");
    assert!(notes["keelson.dev/asked"].is_string());
    assert!(made["metadata"].get("annotations").is_none());
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert!(labels.get("keelson.dev/database").is_none(), "it would be taken for an instance of a database");
}

#[test]
fn what_is_not_asked_for_is_not_made() {
    let autoscale = Some(Autoscale { min: Some(2), max: 5, cpu_percent: None });
    let all = children(&wanted(&AppSpec { autoscale, ..spec() })).unwrap();
    let autoscaler = json!(all.autoscaler.unwrap());
    assert_eq!(autoscaler["spec"]["metrics"][0]["containerResource"]["target"]["averageUtilization"], 80);
    assert!(all.service.is_some() && all.disruption.is_some());
    let bare = Wanted { ports: Vec::new(), several: false, ..wanted(&spec()) };
    let Children { deployment: _, service, autoscaler, disruption } = children(&bare).unwrap();
    assert!(service.is_none() && autoscaler.is_none() && disruption.is_none());
}
