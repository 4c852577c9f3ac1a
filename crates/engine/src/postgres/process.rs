//! The running postmaster: started as a child, watched, and ended for certain.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use super::damage::Damage;
use crate::engine::{Exit, Process, Stop};
use crate::error::{During, Error, Result};
use crate::reap::Child;

/// How long the last of what it said may take to be read once it has ended. Processes that it has left behind may
/// hold the other end open for longer.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts the postmaster and watches it. That it has ended is told when what it said is known: whether it may be started
/// again can follow from its last line.
pub(crate) fn launch(command: &mut Command, process: &watch::Sender<Process>, damage: &Damage) -> Result<()> {
    let program = PathBuf::from(command.as_std().get_program());
    let mut child = Child::spawn(command).during("starting", program)?;
    let (stdout, stderr) = child.take_output();
    process.send_replace(Process::Running(child.pid().as_raw().unsigned_abs()));
    let (printed, said) = (forward(stdout, damage.clone()), forward(stderr, damage.clone()));
    let (printed, said) = (tokio::spawn(printed), tokio::spawn(said));
    let process = process.clone();
    tokio::spawn(async move {
        let exit = child.wait().await.map_or(Exit::Code(-1), exit);
        let _ = tokio::time::timeout(LAST_WORDS, async { tokio::join!(printed, said) }).await;
        process.send_replace(Process::Ended(exit));
    });
    Ok(())
}

fn exit(status: ExitStatus) -> Exit {
    match status.signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.code().unwrap_or(-1)),
    }
}

/// Whether a line says that PostgreSQL gives up because what it has written can't be brought to disk.
fn tells_of_damage(line: &str) -> bool {
    severity(line) == Severity::Bad && line.contains("PANIC") && line.contains("Input/output error")
}

/// Hands PostgreSQL's log on, line by line, as it is.
async fn forward(output: Option<impl AsyncRead + Unpin>, damage: Damage) {
    let Some(output) = output else { return };
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while let Ok(1..) = output.read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if tells_of_damage(text) {
            damage.tell();
        }
        match severity(text) {
            _ if is_of_our_making(text) => {}
            Severity::Bad => tracing::error!(target: "postgres", "{text}"),
            Severity::Odd => tracing::warn!(target: "postgres", "{text}"),
            Severity::Plain => tracing::info!(target: "postgres", "{text}"),
        }
        line.clear();
    }
}

/// Whether a line complains, every few seconds, that there is no command to archive with: the agent archives without one,
/// and says itself what is wrong when it can't.
fn is_of_our_making(line: &str) -> bool {
    // The name stands in quotes from PostgreSQL 17 on.
    let complaint = line.contains("WARNING:  ") && line.ends_with("yet archiving is not configured");
    complaint || line.ends_with("DETAIL:  archive_command is not set.")
}

#[derive(Debug, PartialEq, Eq)]
enum Severity {
    Bad,
    Odd,
    Plain,
}

/// The first word with a colon and two spaces behind it is the severity.
fn severity(line: &str) -> Severity {
    let word = line.split(":  ").next().and_then(|before| before.rsplit(' ').next()).unwrap_or_default();
    match word {
        "PANIC" | "FATAL" => Severity::Bad,
        "ERROR" | "WARNING" => Severity::Odd,
        _ => Severity::Plain,
    }
}

/// Ends the postmaster, by force after the deadline, and whatever is left of its children.
pub(crate) async fn stop(
    processes: &Processes,
    process: &watch::Sender<Process>,
    how: Stop,
    deadline: Duration,
) -> Result<Option<Exit>> {
    let mut watched = process.subscribe();
    let running = match *watched.borrow_and_update() {
        Process::Running(pid) => i32::try_from(pid).ok().map(Pid::from_raw),
        Process::Idle | Process::Ended(_) => None,
    };
    if let Some(pid) = running {
        let signal = match how {
            Stop::Smart => Signal::SIGTERM,
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
        };
        // One that ended just now is what was wanted.
        let _ = kill(pid, signal);
        let ended = watched.wait_for(|process| !matches!(process, Process::Running(_)));
        if tokio::time::timeout(deadline, ended).await.is_err() {
            tracing::warn!(pid = pid.as_raw(), "PostgreSQL did not stop in time and is killed");
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
    processes.kill_all().await;
    if running.is_some() {
        let ended = watched.wait_for(|process| !matches!(process, Process::Running(_)));
        // It is dead; only a disk that does not answer can keep it from being gone.
        let _ = tokio::time::timeout(LAST_WORDS + Duration::from_millis(200), ended).await;
    }
    Ok(match *watched.borrow() {
        Process::Ended(exit) => Some(exit),
        Process::Idle | Process::Running(_) => None,
    })
}

/// The processes of one instance, found by what they hold: their program, and the volume's lock as their
/// standard input. A process group does not hold them together, as each backend is a session of its own;
/// and when the postmaster is dead, nor does their parent.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    pub(crate) program: PathBuf,
    pub(crate) lock: PathBuf,
}

impl Processes {
    /// Those that are there. One that has ended and was not reaped yet holds nothing, and does not count.
    pub(crate) fn all(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| self.is_ours(Path::new("/proc").join(pid.to_string()))).map(Pid::from_raw).collect()
    }

    fn is_ours(&self, process: PathBuf) -> bool {
        fs::read_link(process.join("exe")).is_ok_and(|program| program == self.program)
            && fs::read_link(process.join("fd/0")).is_ok_and(|input| input == self.lock)
    }

    /// Kills them all. A process that was killed runs no instruction any more, so that none can
    /// acknowledge anything when this returns; one that waits for a disk may be seen for longer.
    pub(crate) async fn kill_all(&self) {
        let start = Instant::now();
        while self.kill_each() > 0 && start.elapsed() <= Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills those that are there. Returns how many they were.
    pub(crate) fn kill_each(&self) -> usize {
        let left = self.all();
        for pid in &left {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        left.len()
    }

    /// An error if there are any after all that could be done.
    pub(crate) async fn none(&self, doing: &'static str) -> Result<()> {
        self.kill_all().await;
        match self.all().len() {
            0 => Ok(()),
            count => {
                let why =
                    format!("{count} processes of the last run can't be ended: their disk does not answer");
                Err(Error::Data { doing, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_failed_is_told_from_one_that_is_full() {
        let line = |text: &str| format!("2026-01-01 00:00:00.000 UTC [1] {text}");
        let failed = "PANIC:  could not fsync file \"pg_wal/00000001\": Input/output error";
        assert!(tells_of_damage(&line(failed)));
        assert!(!tells_of_damage(&line("PANIC:  could not write to file \"x\": No space left on device")));
        assert!(!tells_of_damage(&line("ERROR:  could not read block 1: Input/output error")));
    }

    #[test]
    fn the_want_of_a_command_to_archive_with_is_not_told() {
        let line = |text: &str| format!("2026-01-01 00:00:00.000 UTC [1] {text}");
        for complaint in [
            "WARNING:  archive_mode enabled, yet archiving is not configured",
            "WARNING:  \"archive_mode\" enabled, yet archiving is not configured",
            "DETAIL:  archive_command is not set.",
        ] {
            assert!(is_of_our_making(&line(complaint)), "{complaint}");
        }
        assert!(!is_of_our_making(&line(
            "WARNING:  archiving write-ahead log file \"x\" failed too many times"
        )));
    }

    #[test]
    fn the_severity_of_a_line_is_known() {
        for (line, expected) in [
            ("2026-01-01 00:00:00.000 UTC [1] LOG:  database system is ready", Severity::Plain),
            (
                "2026-01-01 00:00:00.000 UTC [1] app@app/x ERROR:  relation \"FATAL:  x\" does not exist",
                Severity::Odd,
            ),
            ("2026-01-01 00:00:00.000 UTC [1] PANIC:  could not fsync", Severity::Bad),
            ("\tselect 1", Severity::Plain),
            ("", Severity::Plain),
        ] {
            assert_eq!(severity(line), expected, "{line}");
        }
    }
}
