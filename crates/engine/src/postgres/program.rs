//! PostgreSQL's own programs, run with a known environment and nothing secret in it or in their arguments.

use std::ffi::OsStr;
use std::fs::File;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::error::{During, Error, Result};
use crate::layout::Layout;
use crate::reap::Child;

/// The programs of one version, and the lock of the volume that they work on.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) layout: Layout,
    pub(crate) major: u32,
    lock: File,
}

/// The file that is locked for as long as anybody works on the volume.
pub(crate) const LOCK: &str = "lock";

impl Programs {
    /// Finds the programs and takes the volume's lock. Another container may still be at work on it: one
    /// whose pod was deleted by force, on the same node.
    pub(crate) fn open(layout: Layout) -> Result<Programs> {
        let major =
            layout.newest().ok_or_else(|| Error::NotInstalled { folder: layout.installed.clone() })?;
        let folder = layout.config();
        std::fs::create_dir_all(&folder).during("creating", &folder)?;
        let path = layout.config_file(LOCK);
        // Writing is not needed, but NFS locks nothing that can't be written.
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = lock.during("opening", &path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Programs { layout, major, lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse { volume: layout.volume }),
            Err(std::fs::TryLockError::Error(error)) => Err(error).during("locking", &path),
        }
    }

    /// A program, about to be started. The lock is its standard input: it reads as empty, every process
    /// that it forks inherits it, and so the volume stays locked until the last of them is gone, even when
    /// this process is not there any more. It also tells which processes are of this instance.
    pub(crate) fn command(&self, name: &str) -> Result<Command> {
        let path = self.layout.program(self.major, name);
        let lock = self.lock.try_clone().during("sharing the lock for", &path)?;
        let mut command = Command::new(&path);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            // Messages are read by programs, too.
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("HOME", self.layout.config())
            .current_dir(&self.layout.volume)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a program to its end and returns what it printed. If this is dropped, the program and all that
    /// it started are killed.
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
        name: &'static str,
        arguments: impl IntoIterator<Item = S>,
        said: impl FnMut(&str),
    ) -> Result<String> {
        let mut command = self.command(name)?;
        command.args(arguments).process_group(0);
        let path = self.layout.program(self.major, name);
        let mut child = Child::spawn(&mut command).during("starting", &path)?;
        let mut group = Group(Some(child.pid()));
        let (stdout, stderr) = child.take_output();
        let mut tail = Tail::default();
        let (printed, (), status) =
            tokio::join!(all(stdout), each_line(stderr, |line| tail.add(line), said), child.wait());
        group.0 = None;
        let status = status.during("waiting for", &path)?;
        if status.success() {
            return Ok(printed);
        }
        Err(Error::Program { program: name, status: status.to_string(), said: tail.0.join("\n") })
    }
}

/// Kills a group of processes unless it has ended.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // If it has ended by itself there is nobody to tell.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// The last lines of many.
#[derive(Default)]
struct Tail(Vec<String>);

impl Tail {
    fn add(&mut self, line: &str) {
        if self.0.len() >= 20 {
            self.0.remove(0);
        }
        self.0.push(line.to_owned());
    }
}

async fn all(output: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut output) = output {
        // What was read before an error is all there will be.
        let _ = output.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Hands on lines as they come; those that end in a carriage return are progress, and no part of the tail.
async fn each_line(
    output: Option<impl AsyncRead + Unpin>,
    mut keep: impl FnMut(&str),
    mut said: impl FnMut(&str),
) {
    let Some(mut output) = output else { return };
    let (mut line, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = output.read(&mut chunk).await {
        for &byte in &chunk[..count] {
            if byte != b'\n' && byte != b'\r' {
                line.push(byte);
                continue;
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if !text.trim().is_empty() {
                said(&text);
                if byte == b'\n' {
                    keep(&text);
                }
            }
        }
    }
    if !line.is_empty() {
        keep(&String::from_utf8_lossy(&line));
    }
}
