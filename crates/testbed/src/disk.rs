//! Volumes: an image file of exactly the size that was asked for, with a file system in it, mounted
//! through a loop device. So a full volume is full, growth is real, and a disk can be made to hang,
//! to turn read-only or to fail.
//!
//! The file system is XFS: it grows while in use also where the machine lacks CAP_SYS_RESOURCE,
//! which ext4 asks for, and it survives a disk that fails for a while.
//!
//! These functions run inside a machine or, through [`Machine`], from outside of it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{During, Error, Result};
use crate::machine::Machine;
use crate::shell::{run, run_command};

/// Where a machine keeps its volumes: `NAME.img`, mounted on the folder `NAME` beside it.
pub(crate) const FOLDER: &str = "/var/lib/volumes";
/// What fills a volume up. It is removed again when the fault is healed.
const FILLER: &str = ".testbed-filler";

/// Where a volume is mounted.
pub(crate) fn mount_point(volume: &str) -> String {
    format!("{FOLDER}/{volume}")
}

fn image(volume: &str) -> String {
    format!("{FOLDER}/{volume}.img")
}

/// Makes a volume and mounts it. Done again, it does nothing.
pub(crate) fn create(volume: &str, bytes: u64) -> Result<()> {
    let (image, draft) = (image(volume), format!("{}.new", image(volume)));
    if !Path::new(&image).exists() {
        fs::create_dir_all(FOLDER).during("creating", FOLDER)?;
        let file = File::create(&draft).during("creating", &draft)?;
        file.set_len(bytes).during("sizing", &draft)?;
        // The log lies in front, so that the rest of the disk can be made to fail without breaking
        // the file system itself (see `fail`). The variables are those of XFS's own test suite: they
        // let it make a file system below 300 MB.
        let mut mkfs = Command::new("mkfs.xfs");
        mkfs.args(["-q", "-l", "agnum=0", &draft]);
        mkfs.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
        run_command(mkfs)?;
        fs::rename(&draft, &image).during("naming", &image)?;
    }
    mount(volume)?;
    // Anybody may use a fresh disk; fsGroup narrows it where a pod asks for that.
    let point = mount_point(volume);
    fs::set_permissions(&point, fs::Permissions::from_mode(0o777)).during("opening up", &point)
}

/// Mounts a volume, unless it is.
fn mount(volume: &str) -> Result<()> {
    let point = mount_point(volume);
    fs::create_dir_all(&point).during("creating", &point)?;
    if mounted_device(volume).is_some() {
        return Ok(());
    }
    run(&["sh", "-c", &mounting("rw", volume)]).map(drop)
}

/// A script that mounts a volume. Somebody else may take the loop device that was found to be free.
fn mounting(mode: &str, volume: &str) -> String {
    let (image, point) = (image(volume), mount_point(volume));
    format!(
        "left=20\n\
         until mount -o loop,{mode} {image} {point}; do\n\
         left=$((left - 1)); [ $left -gt 0 ] || exit 1; sleep 0.1\n\
         done\n"
    )
}

/// Mounts every volume of this machine, as a real one does when it boots.
pub(crate) fn mount_all() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(volume) = name.strip_suffix(".img") else { continue };
        if let Err(error) = mount(volume) {
            eprintln!("volume {volume} can't be mounted: {error}");
        }
    }
}

/// Grows a volume while it is in use.
pub(crate) fn grow(volume: &str, bytes: u64) -> Result<()> {
    let image = image(volume);
    let file = File::options().write(true).open(&image).during("opening", &image)?;
    if file.metadata().during("reading", &image)?.len() < bytes {
        file.set_len(bytes).during("growing", &image)?;
    }
    let device = mounted_device(volume)
        .ok_or_else(|| Error::Refused(format!("volume {volume} is not mounted, so it can't grow")))?;
    run(&["losetup", "--set-capacity", &device])?;
    run(&["xfs_growfs", &mount_point(volume)]).map(drop)
}

/// Unmounts a volume and removes its data.
pub(crate) fn remove(volume: &str) -> Result<()> {
    if mounted_device(volume).is_some() {
        run(&["umount", &mount_point(volume)])?;
    }
    for path in [image(volume), mount_point(volume)] {
        let removed = if Path::new(&path).is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).during("removing", &path);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The loop device of a volume that is mounted here.
fn mounted_device(volume: &str) -> Option<String> {
    device_in(&fs::read_to_string("/proc/self/mounts").ok()?, volume)
}

fn device_in(mounts: &str, volume: &str) -> Option<String> {
    let point = mount_point(volume);
    let mut fields = mounts.lines().map(|line| line.split(' '));
    fields
        .find_map(|mut line| Some((line.next()?, line.next()?)).filter(|(_, at)| *at == point))
        .map(|(device, _)| device.to_owned())
}

/// A volume of a running machine, as a fault sees it.
pub(crate) struct Disk<'a> {
    machine: &'a Machine,
    volume: &'a str,
}

impl<'a> Disk<'a> {
    pub(crate) fn new(machine: &'a Machine, volume: &'a str) -> Self {
        Disk { machine, volume }
    }

    /// Every volume that is mounted on a machine.
    pub(crate) fn mounted(machine: &Machine) -> Vec<String> {
        let mounts = mounts_of(machine);
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        points.filter_map(|point| point.strip_prefix(FOLDER)?.strip_prefix('/')).map(str::to_owned).collect()
    }

    pub(crate) fn device(&self) -> Result<String> {
        device_in(&mounts_of(self.machine), self.volume)
            .ok_or_else(|| Error::Refused(format!("volume {} is not mounted there", self.volume)))
    }

    fn folder(&self) -> PathBuf {
        self.machine.path(&mount_point(self.volume))
    }

    /// Takes every free block.
    pub(crate) fn fill(&self) -> Result<()> {
        let filler = format!("{}/{FILLER}", mount_point(self.volume));
        // In one go what can be had in one go, then block by block until there is no more.
        self.machine.shell(&format!(
            "fallocate -l $(( $(stat -f -c '%a*%S' {point}) )) {filler} || true\n\
             dd if=/dev/zero of={filler} oflag=append conv=notrunc bs=4k 2>/dev/null || true\n\
             sync -f {filler}\n",
            point = mount_point(self.volume)
        ))
    }

    /// Gives them back.
    pub(crate) fn empty(&self) -> Result<()> {
        self.machine.run(&["rm", "-f", &format!("{}/{FILLER}", mount_point(self.volume))]).map(drop)
    }

    /// From now on every write hangs, and everything that waits for one.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.machine.run(&["fsfreeze", "--freeze", &mount_point(self.volume)]).map(drop)
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        let folder = self.folder();
        let root = File::open(&folder).during("opening", &folder)?;
        ioctl::thaw(&root).during("thawing", &folder)
    }

    /// Takes the volume away from everything that uses it and gives it back, read-only or not. The
    /// processes that have it open must be gone.
    pub(crate) fn mount_again(&self, read_only: bool) -> Result<()> {
        let (point, device) = (mount_point(self.volume), self.device()?);
        let mounts = mounts_of(self.machine);
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let users: Vec<String> = fields
            .filter(|line| {
                line.first() == Some(&device.as_str()) && line.get(1).is_some_and(|at| *at != point)
            })
            .map(|line| line[1].to_owned())
            .collect();
        let mut script = String::new();
        for user in users.iter().chain([&point]) {
            script.push_str(&format!("umount {user}\n"));
        }
        let mode = if read_only { "ro" } else { "rw" };
        script.push_str(&mounting(mode, self.volume));
        for user in &users {
            script.push_str(&format!("mount --bind {point} {user}\n"));
        }
        self.machine.shell(&script)
    }

    /// Makes every access to the disk's data fail with EIO: the loop device is told that it ends
    /// where the file system's log ends. The log stays reachable, so the file system does not give
    /// up, and works again when the device has its size back.
    pub(crate) fn fail(&self) -> Result<()> {
        self.set_limit(self.end_of_log()?)
    }

    /// Gives the device its size back.
    pub(crate) fn work_again(&self) -> Result<()> {
        self.set_limit(0)
    }

    fn set_limit(&self, bytes: u64) -> Result<()> {
        let path = PathBuf::from(self.device()?);
        let device = File::options().read(true).write(true).open(&path).during("opening", &path)?;
        ioctl::set_size_limit(&device, bytes).during("limiting", &path)
    }

    fn end_of_log(&self) -> Result<u64> {
        let device = self.device()?;
        let told = run(&["xfs_db", "-r", "-c", "sb 0", "-c", "print logstart logblocks blocksize", &device])?;
        end_of_log(&told)
            .ok_or_else(|| Error::Refused(format!("can't tell where the log of {device} ends:\n{told}")))
    }

    /// Cuts the disk's power: what has not reached it by now never will.
    pub(crate) fn lose_power(&self) -> Result<()> {
        let folder = self.folder();
        let root = File::open(&folder).during("opening", &folder)?;
        ioctl::shut_down(&root).and_then(|()| ioctl::thaw(&root)).during("shutting down", &folder)
    }
}

fn mounts_of(machine: &Machine) -> String {
    fs::read_to_string(format!("/proc/{}/mounts", machine.pid())).unwrap_or_default()
}

/// From what `xfs_db` prints: `logstart = 6`, `logblocks = 1368`, `blocksize = 4096`.
fn end_of_log(told: &str) -> Option<u64> {
    let value = |name: &str| -> Option<u64> {
        told.lines()
            .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim().parse().ok())
    };
    Some((value("logstart")? + value("logblocks")?) * value("blocksize")?)
}

/// The calls to the kernel that no program of Debian's base system makes for us.
#[expect(unsafe_code, reason = "ioctl has no safe form; each call hands over a buffer that outlives it")]
mod ioctl {
    use super::{AsRawFd, File};

    nix::ioctl_read!(fs_shutdown, b'X', 125, u32);
    nix::ioctl_readwrite!(fs_thaw, b'X', 120, i32);
    nix::ioctl_write_ptr_bad!(loop_set_status, 0x4C04, [u8; 232]);
    nix::ioctl_read_bad!(loop_get_status, 0x4C05, [u8; 232]);

    /// `XFS_FSOP_GOING_FLAGS_NOLOGFLUSH`: not even the log is written out.
    const NO_FLUSH: u32 = 2;
    /// Where `lo_sizelimit` is in `struct loop_info64`.
    const SIZE_LIMIT: std::ops::Range<usize> = 32..40;

    pub(super) fn shut_down(folder: &File) -> std::io::Result<()> {
        let mut flags = NO_FLUSH;
        unsafe { fs_shutdown(folder.as_raw_fd(), &mut flags) }?;
        Ok(())
    }

    /// Nothing happens where nothing is frozen.
    pub(super) fn thaw(folder: &File) -> std::io::Result<()> {
        let mut unused = 0;
        match unsafe { fs_thaw(folder.as_raw_fd(), &mut unused) } {
            Ok(_) | Err(nix::errno::Errno::EINVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn set_size_limit(device: &File, bytes: u64) -> std::io::Result<()> {
        let mut info = [0u8; 232];
        unsafe { loop_get_status(device.as_raw_fd(), &mut info) }?;
        info[SIZE_LIMIT].copy_from_slice(&bytes.to_ne_bytes());
        unsafe { loop_set_status(device.as_raw_fd(), &info) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_log_is_read_from_what_xfs_db_tells() {
        assert_eq!(end_of_log("logstart = 6\nlogblocks = 1368\nblocksize = 4096\n"), Some(1374 * 4096));
        assert_eq!(end_of_log("logstart = 6\n"), None);
    }

    #[test]
    fn a_volumes_device_is_found_among_the_mounts() {
        let mounts =
            "/dev/loop3 /var/lib/volumes/pvc-1 xfs rw 0 0\n/dev/loop4 /var/lib/volumes/pvc-12 xfs rw 0 0\n";
        assert_eq!(device_in(mounts, "pvc-12").as_deref(), Some("/dev/loop4"));
        assert_eq!(device_in(mounts, "pvc-2"), None);
    }
}
