//! Patroni as its own examples run it on Kubernetes: the leader's lock is an Endpoints object, which also leads
//! the Service's clients.

use std::fs;

use k8s_openapi::api::core::v1::Endpoints;

use super::site::{DATABASE, NAME, Site};
use crate::error::{Asking, During, Result};
use crate::machine::{checkout, read};

/// Of PostgreSQL 17 and Patroni, both from Debian.
pub(super) const IMAGE: &str = "patroni:17";

/// How soon it acts, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// How long the leader's lock is good for.
    ttl: u32,
    /// From one look to the next.
    loop_wait: u32,
    /// How long it tries to reach Kubernetes and PostgreSQL.
    retry_timeout: u32,
}

/// What it does when nobody says anything.
pub(super) const DEFAULTS: Times = Times { ttl: 30, loop_wait: 10, retry_timeout: 10 };
/// The least that it takes: it raises what is below (`patroni/config.py`, `_validate_and_adjust_timeouts`).
pub(super) const FASTEST: Times = Times { ttl: 20, loop_wait: 1, retry_timeout: 3 };

/// The manifests, with the times filled in.
pub(super) fn create(site: &Site<'_>, times: Times) -> Result<()> {
    let template = read(&checkout().join("bench/patroni/orders.yaml"))?;
    let file = site.cluster.testbed()?.root().join("patroni.yaml");
    fs::write(&file, filled_in(&template, times)).during("writing", &file)?;
    site.kubectl(&["apply", "--filename", &file.display().to_string()]).map(drop)
}

fn filled_in(template: &str, Times { ttl, loop_wait, retry_timeout }: Times) -> String {
    let values = [("TTL", ttl), ("LOOP_WAIT", loop_wait), ("RETRY_TIMEOUT", retry_timeout)];
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("@{name}@"), &value.to_string())
    })
}

/// Whoever has the lock, if the two others are those that it may go to.
pub(super) async fn leader_of_all(site: &Site<'_>) -> Result<Option<String>> {
    let endpoints = site.api::<Endpoints>();
    let note = async |object: &str, name: &str| -> Result<Option<String>> {
        let found = endpoints.get_opt(object).await.asking("reading what Patroni has written")?;
        let notes = found.and_then(|found| found.metadata.annotations).unwrap_or_default();
        Ok(notes.get(name).filter(|text| !text.is_empty()).cloned())
    };
    let leader = note(NAME, "leader").await?;
    let electable = note(&format!("{NAME}-sync"), "sync_standby").await?.unwrap_or_default();
    Ok(leader.filter(|_| electable.matches("orders-").count() == 2))
}

pub(super) fn hand_over(site: &Site<'_>, leader: &str) -> Result<()> {
    let exec = ["exec", leader, "--container", DATABASE, "--"];
    let switch =
        ["patronictl", "-c", "/etc/patroni/patroni.yml", "switchover", NAME, "--leader", leader, "--force"];
    site.kubectl(&[&exec[..], &switch[..]].concat()).map(drop)
}

pub(super) fn restart_all(site: &Site<'_>) -> Result<()> {
    site.kubectl(&["rollout", "restart", "statefulset", NAME]).map(drop)
}

/// What Debian has.
pub(super) fn version(site: &Site<'_>) -> Option<String> {
    let said =
        site.kubectl(&["exec", "orders-0", "--container", DATABASE, "--", "patroni", "--version"]).ok()?;
    Some(said.trim().trim_start_matches("patroni ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_filled_in() {
        let template = read(&checkout().join("bench/patroni/orders.yaml")).unwrap();
        let text = filled_in(&template, FASTEST);
        for expected in ["ttl: 20\n", "loop_wait: 1\n", "retry_timeout: 3\n"] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(
            ["@TTL@", "@LOOP_WAIT@", "@RETRY_TIMEOUT@"].iter().all(|name| !text.contains(name)),
            "{text}"
        );
    }
}
