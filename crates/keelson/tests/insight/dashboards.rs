//! What the dashboards ask is answered by a real Prometheus.

use serde_json::Value;

use crate::alerts::rules;
use crate::known::{project, text, unknown};
use crate::server::Prometheus;

const FOLDER: &str = "deploy/monitoring/grafana";

fn boards() -> Vec<(String, Value)> {
    let entries = std::fs::read_dir(project(FOLDER)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut boards: Vec<(String, Value)> = names
        .map(|name| {
            let board = serde_json::from_str(&text(&format!("{FOLDER}/{name}")));
            (name.clone(), board.unwrap_or_else(|error| panic!("{name}: {error}")))
        })
        .collect();
    boards.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(boards.len(), 2);
    boards
}

/// The title of each panel with each of its queries.
fn queries(board: &Value) -> Vec<(&str, &str)> {
    let panels = board["panels"].as_array().unwrap().iter();
    panels
        .flat_map(|panel| {
            let targets = panel["targets"].as_array().into_iter().flatten();
            targets.map(|target| (panel["title"].as_str().unwrap(), target["expr"].as_str().unwrap()))
        })
        .collect()
}

/// As Grafana fills it in.
fn filled_in(query: &str) -> String {
    [("$namespace", "shop"), ("$database", "orders"), ("$__rate_interval", "4m")]
        .into_iter()
        .fold(query.to_owned(), |query, (name, value)| query.replace(name, value))
}

#[test]
fn each_query_of_dashboards_and_alerts_is_answered_by_prometheus() {
    let server = Prometheus::start();
    let mut wrong = Vec::new();
    for (name, board) in boards() {
        for (title, query) in queries(&board) {
            match server.query(&filled_in(query)) {
                Ok(found) if found.trim().is_empty() => {
                    wrong.push(format!("{name}, {title}: nothing for {query}"))
                }
                Ok(_) => {}
                Err(said) => wrong.push(format!("{name}, {title}: {query}: {said}")),
            }
        }
    }
    for rule in rules() {
        let query = rule["expr"].as_str().unwrap();
        wrong.extend(server.query(query).err().map(|said| format!("{}: {said}", rule["alert"])));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dashboards_ask_for_metrics_that_exist() {
    for (name, board) in boards() {
        let queries = queries(&board);
        assert!(queries.len() > 20, "{name}");
        for (title, query) in queries {
            assert_eq!(unknown(query), Vec::<String>::new(), "{name}, {title}");
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            let query = variable["definition"].as_str().unwrap_or_default();
            assert_eq!(unknown(query), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn panels_do_not_lie_on_each_other() {
    for (name, board) in boards() {
        let place = |panel: &Value| {
            let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            (at("x"), at("y"), at("w"), at("h"))
        };
        let panels: Vec<&Value> = board["panels"].as_array().unwrap().iter().collect();
        for (number, panel) in panels.iter().enumerate() {
            let (x, y, w, h) = place(panel);
            assert!(x + w <= 24, "{name}: {} is too wide", panel["title"]);
            for other in &panels[number + 1..] {
                let (left, top, wide, high) = place(other);
                let apart = x + w <= left || left + wide <= x || y + h <= top || top + high <= y;
                assert!(apart, "{name}: {} lies on {}", panel["title"], other["title"]);
                assert_ne!(panel["id"], other["id"], "{name}");
            }
        }
    }
}
