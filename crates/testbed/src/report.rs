//! What a person sees of a cluster that runs.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::error::{Error, Result};
use crate::fault;
use crate::init::{ComponentStatus, Order};
use crate::layout::Layout;
use crate::machine::{HUB, Machine, machine_cgroup};
use crate::network::Node;
use crate::shell::run_command;

/// Machines, their components with memory, pods' memory, faults in force, and where the logs are.
pub fn report(layout: &Layout) -> Result<String> {
    let Some(hub) = Machine::find(layout, HUB) else {
        return Err(Error::Refused("no cluster runs here: `make cluster` starts one".into()));
    };
    let mut text =
        format!("{:<10} {:<24} {:>9} {:>9}  STATE\n", "MACHINE", "COMPONENT", "MEMORY", "RESTARTS");
    let names = fs::read_dir(layout.root().join("machines")).into_iter().flatten().flatten();
    let mut nodes: Vec<Node> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    nodes.sort();
    let mut total = machine_rows(layout, HUB, Some(&hub), &mut text);
    for node in nodes {
        total += machine_rows(layout, &node.name(), Machine::find(layout, &node.name()).as_ref(), &mut text);
    }
    let _ = writeln!(text, "{:<10} {:<24} {:>9}", "all", "", megabytes(total));
    let _ = writeln!(text, "\nNodes, as Kubernetes sees them:\n{}", nodes_seen(layout));
    let faults = fault::in_force(layout);
    text.push_str(if faults.is_empty() { "No faults in force.\n" } else { "Faults in force:\n" });
    for fault in faults {
        let _ = writeln!(text, "  {fault}");
    }
    let _ = writeln!(text, "\nLogs:       {}", layout.root().join("logs").display());
    let _ = writeln!(text, "Kubeconfig: {}", layout.kubeconfig().display());
    Ok(text)
}

fn nodes_seen(layout: &Layout) -> String {
    let mut kubectl = Command::new(layout.root().join("bin/kubectl"));
    kubectl.args(["get", "nodes", "--request-timeout=3s"]).env("KUBECONFIG", layout.kubeconfig());
    run_command(kubectl).unwrap_or_else(|_| "  the API server does not answer\n".to_owned())
}

/// One machine's rows; returns its memory in kilobytes.
fn machine_rows(layout: &Layout, name: &str, machine: Option<&Machine>, text: &mut String) -> u64 {
    let Some(machine) = machine else {
        let _ = writeln!(text, "{name:<10} {:<24} {:>9} {:>9}  down", "", "-", "-");
        return 0;
    };
    let mut own = 0;
    for (component, status) in machine.status(layout).unwrap_or_default().components {
        let memory = status.pid.and_then(|pid| machine.outer_pid(layout, pid)).map_or(0, resident);
        own += memory;
        let (memory, state) = (megabytes(memory), state(&status));
        let _ = writeln!(text, "{name:<10} {component:<24} {memory:>9} {:>9}  {state}", status.restarts);
    }
    let all: u64 = machine_cgroup(layout, name).processes().into_iter().map(resident).sum();
    let pods = all.saturating_sub(own);
    if name != HUB {
        let _ = writeln!(text, "{name:<10} {:<24} {:>9} {:>9}", "(pods and shims)", megabytes(pods), "");
    }
    all
}

fn state(status: &ComponentStatus) -> String {
    match (status.order, status.pid) {
        (Order::Stop, _) => "stopped by a fault".to_owned(),
        (Order::Pause, _) => "paused by a fault".to_owned(),
        (Order::Stutter { milliseconds }, _) => format!("slowed by a fault, up to {milliseconds} ms"),
        (Order::Run, Some(_)) => "running".to_owned(),
        (Order::Run, None) => format!("not running: {}", status.last_end),
    }
}

/// Memory that a process shares with nobody, in kilobytes.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    anonymous.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn megabytes(kilobytes: u64) -> String {
    format!("{} MB", kilobytes.div_ceil(1024))
}
