//! Lets something happen to the instance that leads.

use testbed::{Fault, Which};

use super::case::Case;
use super::site::Site;
use super::system::System;
use crate::error::Result;

/// What is to come of it.
#[derive(Default)]
pub(super) struct Struck {
    /// What must be healed.
    pub(super) fault: Option<Fault>,
    /// The pods that are replaced by others of their names.
    pub(super) replaced: Vec<String>,
}

/// Lets it happen.
pub(super) async fn strike(
    site: &Site<'_>,
    system: System,
    case: Case,
    leader: &str,
    run: usize,
) -> Result<Struck> {
    let container = site.container(leader).await?;
    let node = container.node;
    let replaced = |names: &[&str]| Struck {
        replaced: names.iter().map(|&name| name.to_owned()).collect(),
        ..Struck::default()
    };
    let fault = match case {
        Case::PostgresKilled => {
            let kill = format!("kill -9 $(head -1 {}/postmaster.pid)", system.files());
            site.cluster.run_in(&container, &["sh", "-c", &kill])?;
            return Ok(Struck::default());
        }
        Case::ContainerKilled => {
            site.cluster.kill(&container, &Which::Main)?;
            return Ok(Struck::default());
        }
        Case::PodDeleted => {
            site.kubectl(&["delete", "pod", leader, "--wait=false"])?;
            return Ok(replaced(&[leader]));
        }
        Case::PodDeletedByForce => {
            site.kubectl(&["delete", "pod", leader, "--force", "--grace-period=0", "--wait=false"])?;
            return Ok(replaced(&[leader]));
        }
        Case::HandedOver => {
            system.hand_over(site, leader)?;
            return Ok(Struck::default());
        }
        Case::RollingRestart => {
            system.restart_all(site, run)?;
            return Ok(replaced(&["orders-0", "orders-1", "orders-2"]));
        }
        Case::NodeCrashed => Fault::NodeCrash { node },
        Case::NodeCutOff => Fault::NodeCutOff { node },
        Case::ProcessPaused => Fault::ProcessPause { container, which: Which::All },
        Case::VolumeFrozen => {
            let volume = site.cluster.volume(&site.namespace, &format!("data-{leader}")).await?;
            Fault::VolumeFreeze { volume }
        }
    };
    site.cluster.inject(&fault)?;
    Ok(Struck { fault: Some(fault), ..Struck::default() })
}
