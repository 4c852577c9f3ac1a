//! Which metrics there are: the list in the documents, which tests of each program hold against what it shows.

use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// A metric, as the documents have it.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub labels: Vec<&'static str>,
    pub histogram: bool,
}

/// The file or folder at this path in the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What is written in a file of the project.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn metrics() -> Vec<Metric> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let metric = |(called, rest): (&'static str, &'static str)| {
        let (name, labels) = called.trim_end_matches('}').split_once('{').unwrap_or((called, ""));
        let labels = labels.split(',').filter(|label| !label.is_empty()).collect();
        Metric { name, labels, histogram: rest.starts_with("histogram") }
    };
    let metrics: Vec<Metric> = rows.map(metric).collect();
    assert!(metrics.len() > 60, "docs/metrics.md is no longer read right: {metrics:?}");
    metrics
}

/// Names in a query that look like metrics and are none.
pub fn unknown(query: &str) -> Vec<String> {
    let metrics = metrics();
    let is_known = |word: &str| {
        ["up", "keelson_database"].contains(&word)
            || metrics.iter().any(|metric| match word.strip_prefix(metric.name) {
                Some(rest) if metric.histogram => ["_bucket", "_count", "_sum"].contains(&rest),
                Some(rest) => rest.is_empty(),
                None => false,
            })
    };
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let metrics = words.filter(|word| word.starts_with("keelson_") || word.starts_with("process_"));
    metrics.filter(|word| !is_known(word)).map(str::to_owned).collect()
}

#[test]
fn a_name_that_no_program_shows_is_found_out() {
    assert_eq!(unknown("rate(keelson_agent_writeable[5m]) + process_threads"), ["keelson_agent_writeable"]);
    assert_eq!(
        unknown("keelson_reconciliation_duration_seconds"),
        ["keelson_reconciliation_duration_seconds"]
    );
    assert!(unknown("sum by (keelson_database) (keelson_api_request_duration_seconds_bucket)").is_empty());
}
