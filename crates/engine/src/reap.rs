//! Orphans. The first process of a container inherits every process whose parent has ended, and must take
//! note of its end, or it stays as a zombie; after a crash of the postmaster these are all its backends.
//! A plain `waitpid(-1)` would steal the exit status of children that somebody waits for. So children are
//! started through here and known, and only others are reaped.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

static KNOWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn known() -> MutexGuard<'static, BTreeSet<i32>> {
    // A set of numbers can't be half-changed.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child process that is waited for, and so left alone by [`reap`].
#[derive(Debug)]
pub struct Child {
    inner: tokio::process::Child,
    pid: i32,
}

impl Child {
    /// Starts a program. Nobody can take its exit status, however soon it ends.
    pub fn spawn(command: &mut Command) -> io::Result<Child> {
        let mut known = known();
        let inner = command.spawn()?;
        let pid = inner.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        known.insert(pid);
        Ok(Child { inner, pid })
    }

    /// Its number. It is nobody else's until [`Child::wait`] has returned.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.pid)
    }

    /// What it prints, once.
    pub fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.inner.stdout.take(), self.inner.stderr.take())
    }

    /// Waits until it has ended.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.inner.wait().await
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If it still runs, nobody will ask for its status any more.
        known().remove(&self.pid);
    }
}

/// Takes note of the ends of all orphans. Returns how many there were, and whether it had to stop at
/// a child that is waited for but has not been collected yet.
pub fn reap() -> (usize, bool) {
    let mut count = 0;
    loop {
        // Held over both calls: a child that is being started must be known before its end is looked at.
        let known = known();
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, peek) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
            _ => return (count, false),
        };
        if known.contains(&pid.as_raw()) {
            return (count, true);
        }
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(_) => count += 1,
            Err(_) => return (count, false),
        }
    }
}

/// Reaps orphans for as long as it is polled. For a program that is the first in its container; any other
/// has no orphans, and does no harm by it.
pub async fn reap_forever() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        let (_, blocked) = reap();
        // The kernel shows the oldest end first, so what is behind one that is ours has to wait for it.
        if blocked {
            tokio::time::sleep(Duration::from_millis(100)).await;
        } else {
            ended.recv().await;
        }
    }
}
