//! One run: all is well, something happens, and all is well again, with a client that writes all the while.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_rig::clock::now;
use keelson_rig::history::{check, longest_gap};
use keelson_rig::objects::DEADLINE;
use serde::{Deserialize, Serialize};
use testbed::{Look, Node, until};

use super::case::Case;
use super::client::Client;
use super::site::{INSTANCES, Site};
use super::strike::{Struck, strike};
use super::system::System;
use crate::error::{Error, Result};

/// How long a system may take to serve again before what is wrong is made right for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A write that was sent so long after something happened, and was acknowledged, was written by whoever leads
/// from then on.
const SURELY_AFTER: u64 = 1000;

/// What was seen in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) system: System,
    pub(super) case: Case,
    /// The longest time without an acknowledged write, in seconds.
    pub(super) gap: f64,
    /// It did not serve again until what was wrong was made right.
    pub(super) had_to_be_healed: bool,
    pub(super) acknowledged: usize,
    pub(super) lost: usize,
    pub(super) doubled: usize,
    /// Who led before and after.
    pub(super) led: (String, String),
    /// The time of day, in milliseconds since 1970, when it happened, and the last and the first acknowledgement
    /// around the gap: for those who look into logs.
    pub(super) times: [u64; 3],
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Run { gap, acknowledged, lost, doubled, led, times: [struck, from, to], .. } = self;
        write!(f, "{gap:.2} s without writes ({:+} to {:+} ms, ", diff(*from, *struck), diff(*to, *struck))?;
        write!(f, "{} to {}), {acknowledged} acknowledged, {lost} lost, {doubled} doubled", led.0, led.1)?;
        if self.had_to_be_healed { write!(f, "; had to be healed") } else { Ok(()) }
    }
}

fn diff(a: u64, b: u64) -> i128 {
    i128::from(a) - i128::from(b)
}

/// Waits until somebody leads, the others follow and count for commits, and no pod of `before` that is to be
/// replaced is left. Returns who leads, and the pods.
pub(super) async fn whole(
    site: &Site<'_>,
    system: System,
    before: &BTreeMap<String, String>,
    replaced: &[String],
) -> Result<(String, BTreeMap<String, String>)> {
    let look = async || -> Result<Look<(String, BTreeMap<String, String>)>> {
        let pods = site.ready_pods().await?;
        if pods.len() < INSTANCES {
            return Ok(Look::NotYet(format!("ready are {:?}", pods.keys())));
        }
        if let Some(old) = replaced.iter().find(|name| pods.get(*name) == before.get(*name)) {
            return Ok(Look::NotYet(format!("{old} is still the old one")));
        }
        let Some(leader) = system.leader_of_all(site).await? else {
            return Ok(Look::NotYet("nobody leads all".to_owned()));
        };
        Ok(match site.followers(&leader)? {
            count if count + 1 == INSTANCES => Look::There((leader, pods)),
            count => Look::NotYet(format!("{count} follow {leader}")),
        })
    };
    let found = until("all to follow one that leads", DEADLINE, || async {
        look().await.unwrap_or_else(|error| Look::NotYet(error.to_string()))
    });
    Ok(found.await?)
}

/// Does it once.
pub(super) async fn run(site: &Site<'_>, system: System, case: Case, number: usize) -> Result<Run> {
    let (before, pods) = whole(site, system, &BTreeMap::new(), &[]).await?;
    let client =
        Client::start(site, away_from(site, &before).await?, &site.address(system.writers()).await?).await?;
    let struck_at = now();
    let Struck { fault, replaced } = strike(site, system, case, &before, number).await?;
    let mut had_to_be_healed = false;
    if let Some(fault) = fault {
        let served = client.writes_since(struck_at + SURELY_AFTER, PATIENCE).await;
        had_to_be_healed = served.is_err();
        site.cluster.heal(&fault)?;
    }
    client.writes_since(struck_at + SURELY_AFTER, DEADLINE).await?;
    let again = whole(site, system, &pods, &replaced).await;
    let (after, _) = again.inspect_err(|_| eprintln!("the client says:\n{}", client.says()))?;
    client.writes_since(now() + SURELY_AFTER, DEADLINE).await?;
    let history = client.finish().await?;
    let rows = rows(site, &after)?;
    let verdict = check(&history, &rows);
    let gap = longest_gap(&history, struck_at)
        .ok_or_else(|| Error::Unreadable { what: "what the client saw".into(), why: "nothing".into() })?;
    Ok(Run {
        system,
        case,
        gap: gap.seconds(),
        had_to_be_healed,
        acknowledged: history.len(),
        lost: verdict.lost,
        doubled: verdict.doubled,
        led: (before, after),
        times: [struck_at, gap.from, gap.to],
    })
}

/// The node of an instance that does not lead.
async fn away_from(site: &Site<'_>, leader: &str) -> Result<Node> {
    let other = if leader == "orders-0" { "orders-1" } else { "orders-0" };
    Ok(site.container(other).await?.node)
}

/// What is there in the end.
fn rows(site: &Site<'_>, leader: &str) -> Result<Vec<u64>> {
    let said = site.ask(leader, "app", "select id from written")?;
    let number = |line: &str| {
        line.parse().map_err(|_| Error::Unreadable { what: "the rows".into(), why: line.to_owned() })
    };
    said.lines().map(number).collect()
}
