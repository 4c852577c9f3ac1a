//! What is measured, as a process: started, looked at from outside, ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use testbed::{Look, until};

use crate::error::{During, Error, Result};

/// In how many parts the kernel cuts a second when it tells times to programs, on every architecture.
const TICKS: f64 = 100.0;
const MINUTE: Duration = Duration::from_secs(60);

/// A process under way. Killed when dropped.
pub(super) struct Process {
    child: Child,
    who: String,
    log: PathBuf,
    pub(super) started: Timestamp,
}

/// What it holds of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Memory {
    /// The most so far.
    pub(super) peak_mib: f64,
    /// Now.
    pub(super) resident_mib: f64,
}

impl Process {
    /// Starts it with nothing in its environment that could change how it works.
    pub(super) fn start(
        who: &str,
        program: &Path,
        arguments: &[String],
        kubeconfig: &Path,
        log: PathBuf,
    ) -> Result<Process> {
        let file = File::options().create(true).append(true).open(&log).during("opening", &log)?;
        let errors = file.try_clone().during("sharing", &log)?;
        let started = Timestamp::now();
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .during("starting", program)?;
        Ok(Process { child, who: who.to_owned(), log, started })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn memory(&self) -> Result<Memory> {
        memory_of(self.id())
    }

    /// Processor time used so far, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        let text = file(self.id(), "stat")?;
        cpu(&text).ok_or_else(|| unreadable(&self.who, text))
    }

    /// An error if it has ended, which it should not do by itself.
    pub(super) fn alive(&mut self) -> Result<()> {
        match self.child.try_wait().during("asking after", &self.who)? {
            None => Ok(()),
            Some(status) => {
                let text = fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(20)..].join("\n");
                Err(Error::Ended { who: self.who.clone(), how: status.to_string(), tail })
            }
        }
    }

    /// Asks it to end, as a kubelet would, and waits until it has.
    pub(super) async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or_default());
        kill(pid, Signal::SIGTERM).map_err(std::io::Error::from).during("ending", &self.who)?;
        let child = &mut self.child;
        until("the contestant to end", MINUTE, || {
            let look = match child.try_wait() {
                Ok(Some(_)) => Look::There(()),
                Ok(None) => Look::NotYet("it runs".into()),
                Err(error) => Look::Never(error.to_string()),
            };
            async { look }
        })
        .await?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail for one that has ended and was waited for, and that is as it should be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(process: u32, name: &str) -> Result<String> {
    let path = Path::new("/proc").join(process.to_string()).join(name);
    fs::read_to_string(&path).during("reading", &path)
}

/// What any process of this machine holds of its memory.
pub(super) fn memory_of(process: u32) -> Result<Memory> {
    let text = file(process, "status")?;
    memory(&text).ok_or_else(|| unreadable(&format!("process {process}"), text))
}

fn unreadable(who: &str, text: String) -> Error {
    Error::Unreadable { what: format!("what the kernel says of {who}"), why: text }
}

fn memory(status: &str) -> Option<Memory> {
    let mib = |field: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1024.0)
    };
    Some(Memory { peak_mib: mib("VmHWM:")?, resident_mib: mib("VmRSS:")? })
}

fn cpu(stat: &str) -> Option<f64> {
    // The second field is the program's name in brackets, which may itself have blanks and brackets.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_what_the_kernel_says() {
        let text =
            "Name:\tgreeting\nVmPeak:\t 99999 kB\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\nThreads:\t3\n";
        assert_eq!(memory(text), Some(Memory { peak_mib: 20.0, resident_mib: 10.0 }));
        assert_eq!(memory("Name:\tkthreadd\n"), None, "a thread of the kernel, or one that has ended");
    }

    #[test]
    fn processor_time_is_read_also_when_the_name_is_odd() {
        let text = "42 (a ) (b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 12345 1 1";
        assert_eq!(cpu(text), Some(3.0));
        assert_eq!(cpu("42"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let own = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap();
        let memory = memory(&own("status")).unwrap();
        assert!(memory.peak_mib >= memory.resident_mib && memory.resident_mib > 0.1);
        assert!(cpu(&own("stat")).is_some());
    }
}
