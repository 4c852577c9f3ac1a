//! What the chart brings for those who watch, when it is asked for.

use serde_json::Value;

use crate::rendered::{helm, kind, name, rendered, said};

const ALL: [&str; 4] = [
    "monitoring.serviceMonitor.enabled=true",
    "monitoring.podMonitor.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboards.enabled=true",
];

fn is_for_watching(object: &Value) -> bool {
    object["apiVersion"] == "monitoring.coreos.com/v1" || name(object).starts_with("keelson-dashboard")
}

fn find<'a>(objects: &'a [Value], wanted: &str) -> &'a Value {
    objects.iter().find(|object| kind(object) == wanted).unwrap_or_else(|| panic!("there is no {wanted}"))
}

#[test]
fn nothing_of_it_is_installed_unasked_and_each_part_by_itself() {
    assert!(!rendered(&[]).iter().any(is_for_watching));
    for (set, kinds) in [
        (ALL[0], &["ServiceMonitor"][..]),
        (ALL[1], &["PodMonitor"]),
        (ALL[2], &["PrometheusRule"]),
        (ALL[3], &["ConfigMap", "ConfigMap"]),
    ] {
        let objects = rendered(&[set]);
        let found: Vec<&str> = objects.iter().filter(|object| is_for_watching(object)).map(kind).collect();
        assert_eq!(found, kinds, "{set}");
    }
    let output = helm(&["lint", "--strict"], &ALL);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn monitors_find_what_shows_metrics_and_leave_its_labels_alone() {
    let objects =
        rendered(&[ALL[0], ALL[1], "monitoring.podMonitor.labels.release=prom", "watchNamespace=shop"]);
    let monitor = find(&objects, "ServiceMonitor");
    let port = monitor["spec"]["endpoints"][0]["port"].as_str().unwrap();
    let service = objects.iter().find(|object| name(object) == "keelson-metrics").unwrap();
    assert_eq!(service["spec"]["ports"][0]["name"], port);
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][label], value, "{label}");
    }
    // keelson_databases_total says itself of which namespace it speaks.
    assert_eq!(monitor["spec"]["endpoints"][0]["honorLabels"], true);

    let pods = find(&objects, "PodMonitor");
    assert_eq!(pods["metadata"]["labels"]["release"], "prom");
    assert_eq!(pods["spec"]["namespaceSelector"]["matchNames"][0], "shop");
    let endpoint = &pods["spec"]["podMetricsEndpoints"][0];
    assert_eq!(
        (&endpoint["port"], &endpoint["relabelings"][0]["targetLabel"]),
        (&"metrics".into(), &"keelson_database".into())
    );
    assert!(endpoint["interval"].is_null());
    let everywhere = rendered(&[ALL[1]]);
    assert_eq!(find(&everywhere, "PodMonitor")["spec"]["namespaceSelector"]["any"], true);
}

#[test]
fn rules_and_dashboards_are_those_that_are_tested() {
    let read =
        |path: &str| std::fs::read_to_string(crate::rendered::chart().join("../..").join(path)).unwrap();
    let objects = rendered(&ALL);
    let rules: Value = serde_yaml_ng::from_str(&read("deploy/monitoring/alerts.yaml")).unwrap();
    assert_eq!(find(&objects, "PrometheusRule")["spec"], rules);
    for board in ["fleet", "database"] {
        let map = objects.iter().find(|object| name(object) == format!("keelson-dashboard-{board}")).unwrap();
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let text = map["data"][format!("keelson-{board}.json")].as_str().unwrap();
        let tested: Value =
            serde_json::from_str(&read(&format!("deploy/monitoring/grafana/{board}.json"))).unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), tested);
    }
}

#[test]
fn alerts_lead_to_where_the_runbooks_are_served() {
    let objects = rendered(&[ALL[2], "monitoring.rules.runbooks=https://wiki.example.com/runbooks/"]);
    let rule = &find(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"][0];
    let page = "https://wiki.example.com/runbooks/KeelsonDatabaseNotWritable.md";
    assert_eq!(rule["annotations"]["runbook_url"], page);
}
