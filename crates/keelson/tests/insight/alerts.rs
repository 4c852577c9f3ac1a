//! Each alert fires when it should and not when it should not, and leads to a page that says what to do.

use std::process::Command;

use serde_json::Value;

use crate::known::{project, text, unknown};

const RULES: &str = "deploy/monitoring/alerts.yaml";
const CASES: &str = "deploy/monitoring/alerts_test.yaml";

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn rules() -> Vec<Value> {
    let groups = yaml(RULES);
    list(&groups["groups"]).iter().flat_map(|group| list(&group["rules"])).cloned().collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().unwrap()
}

#[test]
fn each_alert_fires_when_it_should_and_not_when_it_should_not() {
    let promtool = testbed::prometheus().unwrap().join("promtool");
    let output = Command::new(promtool).args(["test", "rules"]).arg(project(CASES)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn there_are_cases_of_both_kinds_for_each_alert() {
    let cases = yaml(CASES);
    let asked: Vec<&Value> =
        list(&cases["tests"]).iter().flat_map(|case| list(&case["promql_expr_test"])).collect();
    for rule in rules() {
        let of_it = format!("ALERTS{{alertname=\"{}\", alertstate=\"firing\"}}", name(&rule));
        let cases: Vec<&&Value> = asked.iter().filter(|case| case["expr"] == of_it.as_str()).collect();
        let fires = |case: &&&Value| !list(&case["exp_samples"]).is_empty();
        assert!(cases.iter().any(fires), "{of_it} is never seen to fire");
        assert!(!cases.iter().all(fires), "{of_it} is never seen to be quiet");
    }
}

#[test]
fn each_alert_speaks_of_metrics_that_exist_and_leads_to_its_page() {
    for rule in rules() {
        let (name, notes) = (name(&rule), &rule["annotations"]);
        assert_eq!(unknown(rule["expr"].as_str().unwrap()), Vec::<String>::new(), "{name}");
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(notes["summary"].is_string() && notes["description"].is_string(), "{name}");
        let page = format!("docs/runbooks/{name}.md");
        assert_eq!(notes["runbook_url"], page.as_str());
        let page = text(&page);
        for part in ["## What it means", "## How to see it", "## What to do", "## When it ends"] {
            assert!(page.contains(part), "the page of {name} lacks `{part}`");
        }
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
    }
}

#[test]
fn there_is_a_page_for_no_other_alert() {
    let rules = rules();
    for entry in std::fs::read_dir(project("docs/runbooks")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let page = file.trim_end_matches(".md");
        assert!(page == "README" || rules.iter().any(|rule| name(rule) == page), "{file} is of no alert");
    }
    let listed = text("docs/runbooks/README.md");
    for rule in &rules {
        assert!(listed.contains(&format!("({}.md)", name(rule))), "{} is not listed", name(rule));
    }
}
