//! Finding a pod, by name or by role, and the processes in it.

use std::fmt;
use std::fs;
use std::process::Command;
use std::str::FromStr;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::error::{Asking, Error, Result};
use crate::layout::Layout;
use crate::machine::{machine_cgroup, namespace_pids};
use crate::network::Node;
use crate::shell::run_command;

/// Who is meant: a pod, or the pod that has a role in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The pod of that name.
    Pod(String),
    /// The holder of the database's Lease, `NAME-leader`.
    Primary(String),
    /// Any other pod of the database that runs.
    Replica(String),
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("pod", name)) => Ok(Who::Pod(name.to_owned())),
            Some(("primary", database)) => Ok(Who::Primary(database.to_owned())),
            Some(("replica", database)) => Ok(Who::Replica(database.to_owned())),
            None => Ok(Who::Pod(text.to_owned())),
            Some((other, _)) => {
                Err(format!("{other:?} is no role: say pod/NAME, primary/DATABASE or replica/DATABASE"))
            }
        }
    }
}

/// Which processes of a container are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// Its PID 1.
    Main,
    /// All of them, at the same moment.
    All,
    /// Those of that name.
    Named(String),
}

impl FromStr for Which {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "main" => Which::Main,
            "all" => Which::All,
            name => Which::Named(name.to_owned()),
        })
    }
}

/// A container that runs on a node of the testbed. It needs no API server to be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Where it runs.
    pub node: Node,
    /// `namespace/pod`.
    pub pod: String,
    /// Its identifier at the container runtime.
    pub id: String,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pod)
    }
}

impl Container {
    /// Finds the container of a pod: the named one, or the first.
    pub async fn find(
        client: &Client,
        namespace: &str,
        who: &Who,
        container: Option<&str>,
    ) -> Result<Container> {
        let name = pod_name(client, namespace, who).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let pod = pods.get(&name).await.asking(format!("reading pod {namespace}/{name}"))?;
        let status = pod.status.unwrap_or_default();
        let statuses = status.container_statuses.unwrap_or_default();
        let found = statuses.iter().find(|status| container.is_none_or(|name| status.name == name));
        let id = found.and_then(|status| status.container_id.as_deref()?.rsplit('/').next());
        let node = pod.spec.and_then(|spec| spec.node_name?.parse().ok());
        match (id, node) {
            (Some(id), Some(node)) => {
                Ok(Container { node, pod: format!("{namespace}/{name}"), id: id.to_owned() })
            }
            _ => Err(Error::Refused(format!(
                "pod {namespace}/{name} has no such container running on a testbed node"
            ))),
        }
    }

    /// The numbers of the meant processes, as seen from the machine itself.
    pub fn processes(&self, layout: &Layout, which: &Which) -> Vec<i32> {
        let cgroups = machine_cgroup(layout, &self.node.name()).find(&self.id);
        let all = cgroups.iter().flat_map(|cgroup| cgroup.processes());
        all.filter(|&pid| match which {
            Which::All => true,
            Which::Main => namespace_pids(pid).last() == Some(&1),
            Which::Named(name) => {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
            }
        })
        .collect()
    }

    /// Runs a program inside the container, without asking the API server or the kubelet.
    pub fn run(&self, layout: &Layout, argv: &[&str]) -> Result<String> {
        let main = self.processes(layout, &Which::Main);
        let Some(pid) = main.first() else {
            return Err(Error::Refused(format!("{self} does not run on {} any more", self.node)));
        };
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &pid.to_string(),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wdns=/",
        ]);
        command.arg("--").args(argv).env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        run_command(command)
    }
}

async fn pod_name(client: &Client, namespace: &str, who: &Who) -> Result<String> {
    match who {
        Who::Pod(name) => Ok(name.clone()),
        Who::Primary(database) => leader_of(client, namespace, database).await,
        Who::Replica(database) => {
            let leader = leader_of(client, namespace, database).await?;
            let selector = ListParams::default().labels(&format!("keelson.dev/database={database}"));
            let pods = Api::<Pod>::namespaced(client.clone(), namespace);
            let listed =
                pods.list(&selector).await.asking(format!("listing the pods of {namespace}/{database}"))?;
            let running =
                |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            let replica = listed.into_iter().find(|pod| running(pod) && pod.name_any() != leader);
            replica.map(|pod| pod.name_any()).ok_or_else(|| {
                Error::Refused(format!("database {namespace}/{database} has no running replica"))
            })
        }
    }
}

async fn leader_of(client: &Client, namespace: &str, database: &str) -> Result<String> {
    let name = format!("{database}-leader");
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = leases.get(&name).await.asking(format!("reading the Lease {namespace}/{name}"))?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    match holder.split('/').next() {
        Some(pod) if !pod.is_empty() => Ok(pod.to_owned()),
        _ => Err(Error::Refused(format!("database {namespace}/{database} has no primary at the moment"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_words() {
        assert_eq!("web-0".parse(), Ok(Who::Pod("web-0".into())));
        assert_eq!("primary/orders".parse(), Ok(Who::Primary("orders".into())));
        assert_eq!("replica/orders".parse(), Ok(Who::Replica("orders".into())));
        assert!("boss/orders".parse::<Who>().unwrap_err().contains("primary/DATABASE"));
    }
}
