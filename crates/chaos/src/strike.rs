//! Lets something happen, and undoes it.

use serde_json::json;
use testbed::{Fault, HubComponent, Which};

use crate::cast::CONNECTIONS;
use crate::error::Result;
use crate::site::{Member, Site, Snapshot};
use crate::trouble::{Kind, Role, Target, Trouble};

/// How many of a hundred packets are lost.
const LOSS: u8 = 20;
/// How late an API server may be that is slow.
const LATE: u64 = 1500;
/// How many operators there are.
const OPERATORS: u32 = 2;
const HOME: &str = keelson_rig::install::HOME;

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) enum Struck {
    /// It is over.
    Once,
    /// It lasts until it is healed.
    Fault(Fault),
    /// There is no operator.
    NoOperator,
    /// A database has another number of instances than it had.
    Scaled { database: &'static str, instances: usize },
    /// It could not happen, because of something else that had.
    Not(String),
}

/// Lets it happen. Also returns whom it has struck, in words.
pub(crate) fn strike(
    site: &Site,
    now: &Snapshot,
    trouble: &Trouble,
    number: usize,
) -> Result<(Struck, String)> {
    match trouble.target {
        Target::Instance { database, role } => match find(now, database, role) {
            Some(member) => Ok((on_instance(site, trouble.kind, member)?, member.name.clone())),
            None => Ok((Struck::Not(format!("{} is not there", trouble.target)), trouble.target.to_string())),
        },
        Target::Database(database) => {
            Ok((on_database(site, trouble.kind, database, number)?, database.to_owned()))
        }
        _ => Ok((elsewhere(site, trouble)?, trouble.target.to_string())),
    }
}

/// The instance that is meant.
fn find<'a>(now: &'a Snapshot, database: &str, role: Role) -> Option<&'a Member> {
    let members = now.get(database)?;
    let leads = |member: &&Member| Some(&member.name) == members.leader.as_ref();
    match role {
        Role::Primary => members.all.iter().find(leads),
        Role::Replica => members.all.iter().find(|member| members.leader.is_some() && !leads(member)),
        Role::Ordinal(ordinal) => {
            members.all.iter().find(|member| member.name == format!("{database}-{ordinal}"))
        }
    }
}

fn on_instance(site: &Site, kind: Kind, member: &Member) -> Result<Struck> {
    let Member { name, container, volume } = member;
    let delete = |what: &[&str]| site.kubectl(&[&["delete", "--wait=false"], what].concat()).map(drop);
    let container = container.clone();
    match kind {
        Kind::PostgresKilled => {
            let kill = "kill -9 $(head -1 /var/lib/keelson/data/postmaster.pid)";
            return Ok(match site.cluster.run_in(&container, &["timeout", "5", "sh", "-c", kill]) {
                Ok(_) => Struck::Once,
                Err(error) => Struck::Not(error.to_string()),
            });
        }
        Kind::AgentKilled => {
            return Ok(match site.cluster.kill(&container, &Which::Main) {
                Ok(()) => Struck::Once,
                Err(error) => Struck::Not(error.to_string()),
            });
        }
        Kind::PodDeleted => return delete(&["pod", name]).map(|()| Struck::Once),
        Kind::PodDeletedByForce => {
            return delete(&["pod", name, "--force", "--grace-period=0"]).map(|()| Struck::Once);
        }
        Kind::VolumeLost => {
            delete(&["pvc", &format!("data-{name}")])?;
            return delete(&["pod", name]).map(|()| Struck::Once);
        }
        _ => {}
    }
    let pause = |which: Which| Fault::ProcessPause { container: container.clone(), which };
    let fault = match (kind, volume.clone()) {
        (Kind::ProcessesPaused, _) => pause(Which::All),
        (Kind::AgentPaused, _) => pause(Which::Main),
        (Kind::PostgresPaused, _) => pause(Which::Named("postgres".to_owned())),
        (Kind::VolumeFrozen, Some(volume)) => Fault::VolumeFreeze { volume },
        (Kind::VolumeFull, Some(volume)) => Fault::VolumeFull { volume },
        (Kind::VolumeReadOnly, Some(volume)) => Fault::VolumeReadOnly { volume },
        (Kind::VolumeFails, Some(volume)) => Fault::VolumeIoError { volume },
        _ => return Ok(Struck::Not(format!("{name} has no volume"))),
    };
    Ok(inject(site, fault))
}

/// What can't be injected, because what it is meant for is not there at this moment, does not happen.
fn inject(site: &Site, fault: Fault) -> Struck {
    match site.cluster.inject(&fault) {
        Ok(()) => Struck::Fault(fault),
        Err(error) => {
            // It may have bitten half-way.
            let healed = site.cluster.heal(&fault);
            Struck::Not(format!(
                "{fault}: {error}{}",
                healed.err().map_or(String::new(), |e| format!("; {e}"))
            ))
        }
    }
}

fn patch(site: &Site, database: &str, spec: serde_json::Value) -> Result<()> {
    let patch = json!({ "spec": spec }).to_string();
    site.kubectl(&["patch", "database", database, "--type", "merge", "--patch", &patch]).map(drop)
}

fn on_database(site: &Site, kind: Kind, database: &'static str, number: usize) -> Result<Struck> {
    let instances = site.databases.iter().find(|one| one.name == database).map_or(1, |one| one.instances);
    match kind {
        Kind::HandedOver => hand_over(site, database, "any")?,
        Kind::Scaled => {
            patch(site, database, json!({ "replicas": instances + 1 }))?;
            return Ok(Struck::Scaled { database, instances });
        }
        Kind::ParameterReloaded => {
            patch(site, database, json!({ "parameters": { "work_mem": format!("{}MB", 5 + number % 7) } }))?;
        }
        Kind::ParameterRestarted => {
            let connections = CONNECTIONS + 1 + u32::try_from(number % 7).unwrap_or_default();
            patch(site, database, json!({ "parameters": { "max_connections": connections.to_string() } }))?;
        }
        other => return Ok(Struck::Not(format!("{} is not done to a database", other.title()))),
    }
    Ok(Struck::Once)
}

/// Asks for a handover to a pod, or to `any`.
pub(crate) fn hand_over(site: &Site, database: &str, to: &str) -> Result<()> {
    let (lease, note) = (format!("{database}-leader"), format!("keelson.dev/handover-to={to}"));
    site.kubectl(&["annotate", "lease", &lease, &note, "--overwrite"]).map(drop)
}

fn elsewhere(site: &Site, trouble: &Trouble) -> Result<Struck> {
    let component = HubComponent::ApiServer;
    let fault = match (trouble.kind, trouble.target) {
        (Kind::NodeCrashed, Target::Node(node)) => Fault::NodeCrash { node },
        (Kind::NodeFrozen, Target::Node(node)) => Fault::NodeFreeze { node },
        (Kind::NodeCutOff, Target::Node(node)) => Fault::NodeCutOff { node },
        (Kind::NodeCutFromApi, Target::Node(node)) => Fault::ApiCut { node },
        (Kind::PacketsLost, Target::Node(node)) => Fault::PacketLoss { node, percent: LOSS },
        (Kind::LinkCut, Target::Link(from, to)) => Fault::LinkCut { from, to, both: true },
        (Kind::LinkCutOneWay, Target::Link(from, to)) => Fault::LinkCut { from, to, both: false },
        (Kind::ApiStopped, _) => Fault::ComponentStop { component },
        (Kind::ApiPaused, _) => Fault::ComponentPause { component },
        (Kind::ApiSlow, _) => Fault::ComponentSlow { component, milliseconds: LATE },
        (Kind::OperatorsKilled, _) => {
            let words = ["delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false"];
            site.cluster.kubectl(&[&["--namespace", HOME], &words[..]].concat())?;
            return Ok(Struck::Once);
        }
        (Kind::OperatorsAway, _) => return operators(site, 0).map(|()| Struck::NoOperator),
        (other, target) => return Ok(Struck::Not(format!("{} is not done to {target}", other.title()))),
    };
    Ok(inject(site, fault))
}

fn operators(site: &Site, count: u32) -> Result<()> {
    let count = format!("--replicas={count}");
    site.cluster.kubectl(&["--namespace", HOME, "scale", "deployment", "keelson", &count])?;
    Ok(())
}

/// Undoes it.
pub(crate) fn heal(site: &Site, struck: &Struck) -> Result<()> {
    match struck {
        Struck::Once | Struck::Not(_) => Ok(()),
        Struck::Fault(fault) => Ok(site.cluster.heal(fault)?),
        Struck::NoOperator => operators(site, OPERATORS),
        Struck::Scaled { database, instances } => patch(site, database, json!({ "replicas": instances })),
    }
}
