//! The watch over the agent itself.
//!
//! The agent ends the database before anybody else may lead. One that stands still can't: stopped by a signal, starved, or
//! caught in a fault of its own, while the database goes on. It would acknowledge nothing (see the fences), but tell
//! readers what is old for as long as that lasts. So a small process beside it knows until when this instance may lead,
//! and kills the database when that moment has passed without another word. It knows nothing else, and does nothing else.

use std::io::{PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keelson_engine::postgres::kill_processes;
use keelson_engine::{Layout, reap};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use tokio::process::Command;

/// The subcommand that runs it.
const SUBCOMMAND: &str = "guard";
/// One that has ended is started again after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// A moment as it is told: nanoseconds of the clock that nobody sets. None is 0.
const WORD: usize = size_of::<u64>();

/// The agent's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    pipe: Arc<Mutex<Option<PipeWriter>>>,
}

impl Guard {
    /// Starts one, and another whenever it has ended.
    pub(crate) fn start() -> Guard {
        let guard = Guard::default();
        let keep = guard.clone();
        tokio::spawn(async move {
            loop {
                if let Err(error) = keep.run().await {
                    tracing::error!(%error, "nothing watches over the agent");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        guard
    }

    async fn run(&self) -> std::io::Result<()> {
        let (reader, writer) = std::io::pipe()?;
        // One that stands still itself must not keep the agent waiting.
        fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND).stdin(Stdio::from(reader)).stdout(Stdio::null());
        let mut child = reap::Child::spawn(&mut command)?;
        *self.pipe() = Some(writer);
        let ended = child.wait().await;
        *self.pipe() = None;
        Err(std::io::Error::other(format!("the process that watches over the agent has ended: {ended:?}")))
    }

    /// The database may take writes until then, if at all.
    pub(crate) fn tell(&self, until: Option<Instant>) {
        let word =
            until.map_or(0, |until| nanoseconds(clock() + until.saturating_duration_since(Instant::now())));
        if let Some(pipe) = self.pipe().as_mut() {
            // What does not fit is followed by more.
            let _ = pipe.write(&word.to_ne_bytes());
        }
    }

    fn pipe(&self) -> std::sync::MutexGuard<'_, Option<PipeWriter>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the guard's own process does, until the agent is gone. It says on standard error what it has killed.
pub fn guard() -> std::io::Result<()> {
    let mut told = std::io::stdin();
    let mut until = None;
    loop {
        let patience = until.map(|until| remaining(until, clock()));
        if !is_told(&told, patience)? {
            if patience == Some(Duration::ZERO) {
                let killed = kill_processes(&Layout::default()).map_err(std::io::Error::other)?;
                until = None;
                say(killed);
            }
            continue;
        }
        let mut words = [0; 64 * WORD];
        match told.read(&mut words)? {
            0 => return Ok(()),
            length => until = newest(&words[..length]),
        }
    }
}

/// Waits for a word, for so long at most.
fn is_told(from: &impl AsFd, patience: Option<Duration>) -> std::io::Result<bool> {
    // Rounded up: a moment that is not over yet would be waited for without a pause.
    let milliseconds = |it: Duration| i32::try_from(it.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
    let patience = patience.map(milliseconds).and_then(|it| PollTimeout::try_from(it).ok());
    let mut ends = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ends, patience.unwrap_or(PollTimeout::NONE)) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The last of some words.
fn newest(words: &[u8]) -> Option<Duration> {
    let (_, last) = words.split_at_checked(words.len().checked_sub(WORD)?)?;
    let nanoseconds = u64::from_ne_bytes(last.try_into().ok()?);
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

fn remaining(until: Duration, now: Duration) -> Duration {
    until.saturating_sub(now)
}

/// The clock that goes by, also while nobody runs, and that is nobody's to set.
fn clock() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

fn nanoseconds(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

fn say(killed: usize) {
    let line = serde_json::json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "level": "ERROR",
        "target": "keelson_agent::guard",
        "message": "the agent has stood still for longer than it may lead, and its database was killed",
        "processes": killed,
    });
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_none_is_none() {
        let word = |nanoseconds: u64| nanoseconds.to_ne_bytes();
        assert_eq!(newest(&[word(5), word(7)].concat()), Some(Duration::from_nanos(7)));
        assert_eq!(newest(&[word(5), word(0)].concat()), None);
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn a_word_is_waited_for_as_long_as_there_is_to_wait_and_no_longer() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (start, patience) = (clock(), Duration::from_millis(30));
        assert!(!is_told(&reader, Some(patience)).unwrap());
        assert!(clock() - start >= patience);
        writer.write_all(&1_u64.to_ne_bytes()).unwrap();
        assert!(is_told(&reader, None).unwrap());
        drop(writer);
    }
}
