//! Ending a cluster without a trace.

use std::fs;
use std::time::Duration;

use crate::disk;
use crate::error::{During, Result};
use crate::fault;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::shell::run;
use crate::wait::{Look, until_blocking};

/// Ends everything that belongs to the folder, also what a start that broke off has left.
pub(super) fn take_down(layout: &Layout) -> Result<()> {
    let cgroup = layout.cgroup();
    if cgroup.exists() {
        for name in machine_names(layout) {
            if let Some(machine) = Machine::find(layout, &name) {
                // Processes that wait for a frozen disk can't be killed.
                fault::lose_power(&machine);
            }
        }
        cgroup.kill()?;
        cgroup.remove()?;
    }
    let images = disk_images(layout);
    // The kernel gives loop devices back a moment after the last user of their namespace has died.
    until_blocking("the loop devices to be given back", Duration::from_secs(20), || {
        match run(&["losetup", "--list", "--noheadings", "--output", "BACK-INO"]) {
            Ok(used) => match used.lines().find(|inode| images.contains(&inode.trim().to_owned())) {
                Some(inode) => Look::NotYet(format!("a loop device still uses inode {inode}")),
                None => Look::There(()),
            },
            Err(error) => Look::NotYet(error.to_string()),
        }
    })?;
    match fs::remove_dir_all(layout.root()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).during("removing", layout.root())
        }
        _ => Ok(()),
    }
}

/// Every machine that has a control group.
fn machine_names(layout: &Layout) -> Vec<String> {
    let systems = layout.cgroup().find("system");
    systems.iter().filter_map(|system| Some(system.parent_name()?.to_owned())).collect()
}

/// The inodes of all volumes' images.
fn disk_images(layout: &Layout) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let machines = fs::read_dir(layout.root().join("machines")).into_iter().flatten().flatten();
    let volumes =
        machines.map(|machine| machine.path().join("lib").join(disk::FOLDER.trim_start_matches("/var/lib/")));
    let files = volumes.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    files.filter_map(|file| Some(file.metadata().ok()?.ino().to_string())).collect()
}
