//! A history on the testbed.

use std::path::Path;
use std::time::{Duration, Instant};

use keelson_rig::clock::now;
use keelson_sim::Scenario;
use keelson_sim::fault::{Fault, Kind as Simulated};
use testbed::{Look, until};
use tokio::time::sleep;

use super::outcome::Outcome;
use crate::cast::Database;
use crate::error::{Error, Result};
use crate::evidence;
use crate::judge::{Broken, judge};
use crate::record::{Record, WRITERS, client_of};
use crate::site::{Site, Snapshot};
use crate::strike::{Struck, hand_over, heal, strike};
use crate::timeline::longest_within;
use crate::trouble::{Kind, Role, Target, Trouble};
use crate::whole::{SETTLE, all_write, whole};

const NAME: &str = "orders";

/// What a simulated fault is on the testbed.
enum Played {
    Trouble(Kind),
    /// To the instance of this number.
    HandedOver(usize),
    /// Part of another that begins with it.
    Nothing,
}

fn played(fault: &Fault, all: &[Fault]) -> Result<Played> {
    let kind = match fault.kind {
        Simulated::Kill => Kind::AgentKilled,
        Simulated::Crash => Kind::PostgresKilled,
        Simulated::Delete => Kind::PodDeleted,
        Simulated::Power => Kind::NodeCrashed,
        Simulated::Lose => Kind::VolumeLost,
        Simulated::Outage => Kind::ApiStopped,
        Simulated::Slow => Kind::ApiSlow,
        Simulated::Cut => Kind::LinkCut,
        Simulated::OneWay => Kind::LinkCutOneWay,
        Simulated::Isolate => Kind::NodeCutOff,
        Simulated::Pause => Kind::NodeFrozen,
        Simulated::Hang => Kind::VolumeFrozen,
        Simulated::Full => Kind::VolumeFull,
        Simulated::Eio => Kind::VolumeFails,
        // The testbed cuts both ways to the API server at once.
        Simulated::Mute if beside(fault, all, Simulated::Deaf) => Kind::NodeCutFromApi,
        Simulated::Deaf if beside(fault, all, Simulated::Mute) => return Ok(Played::Nothing),
        Simulated::Wish => return Ok(Played::HandedOver(fault.other)),
        _ => return Err(Error::Unplayable(fault.to_string())),
    };
    Ok(Played::Trouble(kind))
}

fn beside(fault: &Fault, all: &[Fault], kind: Simulated) -> bool {
    all.iter().any(|other| other.kind == kind && other.who == fault.who && other.at == fault.at)
}

/// Whether the testbed has all of it.
pub(super) fn playable(scenario: &Scenario) -> Result<()> {
    scenario.faults.iter().try_for_each(|fault| played(fault, &scenario.faults).map(drop))
}

/// How long a fault lasts; the time until a killed container is started again is the kubelet's.
pub(super) fn lasts(fault: &Fault) -> u64 {
    match fault.kind {
        Simulated::Kill | Simulated::Crash | Simulated::Delete | Simulated::Wish | Simulated::Lose => 0,
        _ => fault.long,
    }
}

/// Plays it on a database as it says, whose first instance leads.
pub(super) async fn play(site: &mut Site, scenario: &Scenario) -> Result<Outcome> {
    let database = Database::of(scenario, NAME);
    if site.databases != [database.clone()] {
        site.set(vec![database.clone()]).await?;
        whole(site, &database).await?;
        site.begin_clients().await?;
    }
    first_leads(site, &database).await?;
    all_write(site).await?;
    let before = whole(site, &database).await?;
    let (from, to) = do_all(site, scenario).await?;
    let after = whole(site, &database).await?;
    all_write(site).await?;
    let told = site.told()?.swap_remove(0);
    let (rows, asked) = site.rows(&after.leader)?;
    let found = judge(&database, &told, &rows, asked);
    if !found.broken.is_empty() {
        return Err(broken(site, &found.broken, from)?);
    }
    let ordinal = after.leader.rsplit('-').next().and_then(|number| number.parse().ok());
    Ok(Outcome {
        leader: ordinal.unwrap_or(usize::MAX),
        changed: before.epoch != after.epoch,
        lost: found.lost,
        wrote: (to > from).then(|| wrote(&told, from + (to - from) / 2, to)),
        gap: longest_within(&told, from, now()),
    })
}

/// Says what is broken, since when the history was played, and keeps what a person wants to see.
fn broken(site: &Site, broken: &[Broken], from: u64) -> Result<Error> {
    let lines: Vec<String> = broken.iter().map(ToString::to_string).collect();
    let what = format!("{}\nplayed from {from} on", lines.join("\n"));
    println!("BROKEN: {what}");
    let folder = evidence::save(site, Path::new("target/chaos/compare"), &[("broken.txt", &what)])?;
    Ok(Error::Violated { count: broken.len(), folder })
}

/// Whether the first client was acknowledged something between two times.
fn wrote(told: &[Record], from: u64, to: u64) -> bool {
    told.iter().any(|record| match record {
        Record::Write(write) => {
            write.way == WRITERS
                && client_of(write.row.id) == 0
                && write.row.sent >= from
                && write.row.answered < to
        }
        Record::Read(_) => false,
    })
}

/// Asks the first to lead until it does.
async fn first_leads(site: &Site, database: &Database) -> Result<()> {
    let wanted = database.instance(0);
    let mut asked: Option<Instant> = None;
    let leads = until("the first instance to lead", SETTLE, || {
        let again = asked.is_none_or(|at| at.elapsed() > Duration::from_secs(20));
        if again {
            asked = Some(Instant::now());
        }
        let wanted = &wanted;
        async move {
            match whole(site, database).await {
                Ok(well) if well.leader == *wanted => Look::There(()),
                Ok(well) => {
                    let said = if again { hand_over(site, NAME, wanted) } else { Ok(()) };
                    Look::NotYet(format!("{} leads; {said:?}", well.leader))
                }
                Err(error) => Look::NotYet(error.to_string()),
            }
        }
    });
    Ok(leads.await?)
}

/// Lets all happen, each at its time. Returns from when until when.
async fn do_all(site: &Site, scenario: &Scenario) -> Result<(u64, u64)> {
    let snapshot = site.look().await?;
    let first = scenario.faults.iter().map(|fault| fault.at).min().unwrap_or_default();
    let (begun, from) = (Instant::now(), now());
    let mut open: Vec<(u64, Struck)> = Vec::new();
    for fault in &scenario.faults {
        sleep(Duration::from_millis(fault.at - first).saturating_sub(begun.elapsed())).await;
        match played(fault, &scenario.faults)? {
            Played::Nothing => {}
            Played::HandedOver(to) => hand_over(site, NAME, &format!("{NAME}-{to}"))?,
            Played::Trouble(kind) => {
                let target = target(fault, kind, &snapshot)?;
                let trouble = Trouble { at: 0, long: 0, kind, target };
                match strike(site, &snapshot, &trouble, 0)? {
                    (Struck::Not(why), _) => return Err(Error::Unplayable(format!("{fault}: {why}"))),
                    (struck, _) => open.push((fault.at - first + lasts(fault), struck)),
                }
            }
        }
    }
    open.sort_by_key(|(at, _)| *at);
    let mut to = from;
    for (at, struck) in open {
        sleep(Duration::from_millis(at).saturating_sub(begun.elapsed())).await;
        if at > 0 {
            to = now();
        }
        heal(site, &struck)?;
    }
    Ok((from, to))
}

fn target(fault: &Fault, kind: Kind, snapshot: &Snapshot) -> Result<Target> {
    use crate::trouble::Scope;
    let node = |ordinal: usize| {
        let name = format!("{NAME}-{ordinal}");
        let member = snapshot.get(NAME).and_then(|members| members.all.iter().find(|one| one.name == name));
        member
            .map(|member| member.container.node)
            .ok_or_else(|| Error::Unplayable(format!("{name} is nowhere")))
    };
    Ok(match kind.scope() {
        Scope::Instance => Target::Instance { database: NAME, role: Role::Ordinal(fault.who) },
        Scope::Database => Target::Database(NAME),
        Scope::Node => Target::Node(node(fault.who)?),
        Scope::Link => Target::Link(node(fault.who)?, node(fault.other)?),
        Scope::Cluster => Target::Cluster,
    })
}
