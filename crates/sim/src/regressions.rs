//! Histories that went wrong once, each with a name.

use crate::Scenario;

const KEPT: &str = include_str!("../regressions.txt");

/// All of them, by name.
pub fn all() -> Result<Vec<(&'static str, Scenario)>, String> {
    let blocks = KEPT.split("\n== ").skip(1);
    let parsed = blocks.map(|block| {
        let (name, text) = block.split_once('\n').unwrap_or((block, ""));
        let scenario = text.parse().map_err(|error| format!("{name}: {error}"))?;
        Ok((name.trim(), scenario))
    });
    parsed.collect()
}
