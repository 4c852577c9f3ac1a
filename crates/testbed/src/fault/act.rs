//! Making a fault bite, and undoing it.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Fault, HubComponent, Volume};
use crate::disk::Disk;
use crate::error::{During, Error, Result};
use crate::init::Order;
use crate::layout::Layout;
use crate::machine::{HUB, Machine, machine_cgroup, system_cgroup};
use crate::network::{self, Break, Node};
use crate::pods::{Container, Which};
use crate::shell::run_with_input;
use crate::wait::{Look, until_blocking};

/// The faults in force, oldest first.
pub(crate) fn in_force(layout: &Layout) -> Vec<Fault> {
    fs::read(file(layout)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn file(layout: &Layout) -> std::path::PathBuf {
    layout.root().join("faults.json")
}

fn remember(layout: &Layout, faults: &[Fault]) -> Result<()> {
    let text = serde_json::to_vec_pretty(faults).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(file(layout), text)).during("writing", file(layout))
}

/// Makes it so. A fault that is in force already is left alone.
pub(crate) fn inject(layout: &Layout, fault: &Fault) -> Result<()> {
    let _held = layout.lock()?;
    let mut faults = in_force(layout);
    if faults.contains(fault) {
        return Ok(());
    }
    possible(layout, fault)?;
    if let Fault::NodeCrash { node } = fault {
        faults.retain(|other| other.survives_crash_of(*node));
    }
    faults.push(fault.clone());
    // Remembered first: a fault that bit half-way can still be healed.
    remember(layout, &faults)?;
    set_network(layout, &faults)?;
    bite(layout, fault, &faults)
}

/// Undoes it. A fault that is not in force is left alone.
pub(crate) fn heal(layout: &Layout, fault: &Fault) -> Result<()> {
    let _held = layout.lock()?;
    let mut faults = in_force(layout);
    if !faults.contains(fault) {
        return Ok(());
    }
    faults.retain(|other| other != fault);
    // While a node boots it is still cut off by other faults, if any, but no longer by this one.
    set_network(layout, &faults)?;
    undo(layout, fault, &faults)?;
    remember(layout, &faults)
}

/// Undoes them all, the latest first. One that can't be undone does not keep the others. The API
/// server is not needed.
pub fn heal_all(layout: &Layout) -> Result<()> {
    let mut faults = in_force(layout);
    let mut first_error = None;
    while let Some(fault) = faults.pop() {
        if let Err(error) = heal(layout, &fault) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

fn set_network(layout: &Layout, faults: &[Fault]) -> Result<()> {
    let breaks: Vec<Break> = faults.iter().flat_map(Fault::breaks).collect();
    let hub = machine(layout, HUB)?;
    run_with_input(
        &["nsenter", "--target", &hub.pid().to_string(), "--net", "--", "nft", "-f", "-"],
        &network::ruleset(&breaks),
    )
}

/// Refuses what names something that is not there, before anything is done.
fn possible(layout: &Layout, fault: &Fault) -> Result<()> {
    let exists = |node: Node| match layout.machine(&node.name()).exists() {
        true => Ok(()),
        false => Err(Error::Refused(format!("there is no {node} in this cluster"))),
    };
    let runs = |node: Node| exists(node).and_then(|()| machine(layout, &node.name()).map(drop));
    match fault {
        Fault::NodeCrash { node } | Fault::NodeFreeze { node } => runs(*node),
        Fault::NodeCutOff { node } | Fault::ApiCut { node } | Fault::PacketLoss { node, .. } => exists(*node),
        Fault::LinkCut { from, to, .. } => exists(*from).and_then(|()| exists(*to)),
        Fault::ComponentStop { .. } | Fault::ComponentPause { .. } | Fault::ComponentSlow { .. } => {
            machine(layout, HUB).map(drop)
        }
        Fault::ProcessPause { container, which } => {
            if container.processes(layout, which).is_empty() {
                return Err(no_process(container));
            }
            Ok(())
        }
        Fault::VolumeFull { volume }
        | Fault::VolumeFreeze { volume }
        | Fault::VolumeReadOnly { volume }
        | Fault::VolumeIoError { volume } => on_disk(layout, volume, |disk| disk.device().map(drop)),
    }
}

/// `faults`: all that are in force now, this one among them.
fn bite(layout: &Layout, fault: &Fault, faults: &[Fault]) -> Result<()> {
    match fault {
        Fault::NodeCrash { node } => crash(layout, *node),
        Fault::NodeFreeze { node } => machine_cgroup(layout, &node.name()).freeze(),
        Fault::NodeCutOff { .. }
        | Fault::LinkCut { .. }
        | Fault::ApiCut { .. }
        | Fault::PacketLoss { .. } => Ok(()),
        Fault::ComponentStop { component }
        | Fault::ComponentPause { component }
        | Fault::ComponentSlow { component, .. } => give_order(layout, *component, faults),
        Fault::ProcessPause { container, which } => signal(layout, container, which, Signal::SIGSTOP),
        Fault::VolumeFull { volume } => on_disk(layout, volume, |disk| disk.fill()),
        Fault::VolumeFreeze { volume } => on_disk(layout, volume, |disk| disk.freeze()),
        Fault::VolumeReadOnly { volume } => mount_again(layout, volume, true),
        Fault::VolumeIoError { volume } => on_disk(layout, volume, |disk| disk.fail()),
    }
}

/// `faults`: those that stay in force.
fn undo(layout: &Layout, fault: &Fault, faults: &[Fault]) -> Result<()> {
    // What was wrong inside a node that has crashed since went with it.
    if fault.volume().is_some_and(|volume| Machine::find(layout, &volume.node.name()).is_none()) {
        return Ok(());
    }
    match fault {
        Fault::NodeCrash { node } => boot(layout, *node),
        Fault::NodeFreeze { node } => machine_cgroup(layout, &node.name()).thaw(),
        Fault::NodeCutOff { .. }
        | Fault::LinkCut { .. }
        | Fault::ApiCut { .. }
        | Fault::PacketLoss { .. } => Ok(()),
        Fault::ComponentStop { component }
        | Fault::ComponentPause { component }
        | Fault::ComponentSlow { component, .. } => give_order(layout, *component, faults),
        Fault::ProcessPause { container, which } => {
            if container.processes(layout, which).is_empty() {
                return Ok(());
            }
            signal(layout, container, which, Signal::SIGCONT)
        }
        Fault::VolumeFull { volume } => on_disk(layout, volume, |disk| disk.empty()),
        Fault::VolumeFreeze { volume } => on_disk(layout, volume, |disk| disk.thaw()),
        Fault::VolumeReadOnly { volume } => mount_again(layout, volume, false),
        Fault::VolumeIoError { volume } => on_disk(layout, volume, |disk| disk.work_again()),
    }
}

/// Sends a signal to processes of a container.
pub(crate) fn signal(layout: &Layout, container: &Container, which: &Which, signal: Signal) -> Result<()> {
    let processes = container.processes(layout, which);
    if processes.is_empty() {
        return Err(no_process(container));
    }
    // A process could be born between two signals: stand still first, all at once.
    let cgroups = machine_cgroup(layout, &container.node.name()).find(&container.id);
    let at_once = *which == Which::All && signal != Signal::SIGCONT;
    if at_once {
        cgroups.iter().try_for_each(|cgroup| cgroup.freeze())?;
    }
    let processes = if at_once { container.processes(layout, which) } else { processes };
    for pid in processes {
        // One that ended meanwhile needs no signal.
        let _ = kill(Pid::from_raw(pid), signal);
    }
    if at_once {
        cgroups.iter().try_for_each(|cgroup| cgroup.thaw())?;
    }
    Ok(())
}

fn no_process(container: &Container) -> Error {
    Error::Refused(format!("{container} has no such process on {}", container.node))
}

fn machine(layout: &Layout, name: &str) -> Result<Machine> {
    Machine::find(layout, name).ok_or_else(|| {
        Error::Refused(format!(
            "{name} does not run: see `testbed status`, then `testbed heal all` or `make cluster`"
        ))
    })
}

fn on_disk(layout: &Layout, volume: &Volume, act: impl Fn(&Disk<'_>) -> Result<()>) -> Result<()> {
    act(&Disk::new(&machine(layout, &volume.node.name())?, &volume.name))
}

fn crash(layout: &Layout, node: Node) -> Result<()> {
    let machine = machine(layout, &node.name())?;
    lose_power(&machine);
    let cgroup = machine_cgroup(layout, &node.name());
    cgroup.kill()?;
    // None survives a real boot; the kubelet would look for a container in each, 3 s long.
    cgroup.remove()?;
    network::leave_silence(&self::machine(layout, HUB)?, node)
}

/// What a machine had not written to its disks by now is lost. Nothing waits for a frozen disk any
/// more, so that everything can be killed.
pub(crate) fn lose_power(machine: &Machine) {
    for volume in Disk::mounted(machine) {
        if let Err(error) = Disk::new(machine, &volume).lose_power() {
            eprintln!("cutting the power of volume {volume}: {error}");
        }
    }
}

fn boot(layout: &Layout, node: Node) -> Result<()> {
    let spec_file = layout.machine(&node.name()).join("spec.json");
    let text = fs::read(&spec_file).during("reading", &spec_file)?;
    let spec = serde_json::from_slice(&text).map_err(std::io::Error::from).during("parsing", &spec_file)?;
    let booted = Machine::start(layout, &spec)?;
    network::connect(&machine(layout, HUB)?, &booted, node)?;
    booted.go(layout)
}

/// Tells the hub's PID 1 what a component should do, and waits until it has obeyed. Where several
/// faults want something of it, the last one has its way.
fn give_order(layout: &Layout, component: HubComponent, faults: &[Fault]) -> Result<()> {
    let wanted = faults.iter().rev().filter_map(Fault::order).find(|(meant, _)| *meant == component);
    let order = wanted.map_or(Order::Run, |(_, order)| order);
    let hub = machine(layout, HUB)?;
    let control = layout.machine(HUB).join("control").join(component.name());
    let draft = control.with_extension("new");
    let text = serde_json::to_vec(&order).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(&draft, text)).during("writing", &draft)?;
    fs::rename(&draft, &control).during("writing", &control)?;
    until_blocking(&format!("{} to obey", component.name()), Duration::from_secs(10), || {
        let status = hub.status(layout).and_then(|mut status| status.components.remove(component.name()));
        match status {
            Some(status) if status.order == order && (order == Order::Stop) == status.pid.is_none() => {
                Look::There(())
            }
            other => Look::NotYet(format!("{other:?}")),
        }
    })
}

/// Takes a volume away and gives it back. Whatever has it open is killed first, while the kubelet
/// stands still so that it can't start it again too early.
fn mount_again(layout: &Layout, volume: &Volume, read_only: bool) -> Result<()> {
    let node = machine(layout, &volume.node.name())?;
    let kubelet = node
        .status(layout)
        .and_then(|status| status.components.get("kubelet")?.pid)
        .and_then(|pid| node.outer_pid(layout, pid))
        .map(Pid::from_raw)
        .ok_or_else(|| Error::Refused(format!("the kubelet of {} does not run", volume.node)))?;
    let _ = kill(kubelet, Signal::SIGSTOP);
    let done = kill_users(layout, &node, volume)
        .and_then(|()| Disk::new(&node, &volume.name).mount_again(read_only));
    let _ = kill(kubelet, Signal::SIGCONT);
    done
}

/// Kills every process outside of the node's own that can see the volume.
fn kill_users(layout: &Layout, node: &Machine, volume: &Volume) -> Result<()> {
    let system = system_cgroup(layout, &volume.node.name()).processes();
    let device = Disk::new(node, &volume.name).device()?;
    until_blocking("the volume's users to end", Duration::from_secs(10), || {
        let all = machine_cgroup(layout, &volume.node.name()).processes();
        let uses = |pid: &i32| {
            let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap_or_default();
            mounts.lines().any(|line| line.split(' ').next() == Some(&device))
        };
        let users: Vec<i32> = all.into_iter().filter(|pid| !system.contains(pid)).filter(uses).collect();
        for &pid in &users {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if users.is_empty() { Look::There(()) } else { Look::NotYet(format!("processes {users:?}")) }
    })
}
