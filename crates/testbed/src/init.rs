//! PID 1 of a machine: makes its mounts, starts its components, starts them again when they end,
//! reaps what nobody waits for, and does to a component what a fault asks (a file in `control/`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::error::{During, Result};
use crate::machine::append_to;
use crate::shell::run;

/// What a machine runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    /// Its folder; `control/`, `go` and `status.json` are in there.
    pub(crate) folder: PathBuf,
    pub(crate) logs: PathBuf,
    /// For every component.
    pub(crate) path: String,
    /// Folders that the machine sees in place of its host's: `(here, there)`.
    pub(crate) binds: Vec<(PathBuf, PathBuf)>,
    pub(crate) components: Vec<Component>,
}

/// One program that is kept running.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// It is started when this file is there.
    pub(crate) after: Option<PathBuf>,
}

/// What became of the components.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) components: BTreeMap<String, ComponentStatus>,
}

/// One component now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ComponentStatus {
    /// Its number inside the machine.
    pub(crate) pid: Option<i32>,
    pub(crate) restarts: u32,
    pub(crate) last_end: String,
    pub(crate) order: Order,
}

/// What somebody wants of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub(crate) enum Order {
    /// To run.
    #[default]
    Run,
    /// To be stopped and stay so.
    Stop,
    /// To stand still in mid-work.
    Pause,
    /// To stand still for so long, again and again, with a moment of work in between.
    Stutter { milliseconds: u64 },
}

/// How long a component that stutters works between two pauses.
const WORK: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_millis(50);
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// Runs as PID 1 until it is killed.
pub(crate) fn run_as_init(spec_file: &Path) -> Result<()> {
    let text = fs::read(spec_file).during("reading", spec_file)?;
    let spec: Spec =
        serde_json::from_slice(&text).map_err(std::io::Error::from).during("parsing", spec_file)?;
    make_mounts(&spec)?;
    while !spec.folder.join("go").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    disk::mount_all();
    let mut tasks: Vec<Task> = spec.components.iter().map(Task::new).collect();
    let mut told = Status::default();
    loop {
        reap(&mut tasks);
        for task in &mut tasks {
            task.follow_orders(&spec);
        }
        let status = Status { components: tasks.iter().map(Task::status).collect() };
        if status.components != told.components {
            match tell(&spec, &status) {
                Ok(()) => told = status,
                // A full disk, say. If PID 1 ended for it, everything would.
                Err(error) => eprintln!("{error}"),
            }
        }
        std::thread::sleep(TICK);
    }
}

fn make_mounts(spec: &Spec) -> Result<()> {
    for (here, there) in &spec.binds {
        run(&["mount", "--bind", &here.to_string_lossy(), &there.to_string_lossy()])?;
    }
    // Sockets, locks and network namespaces of this machine, gone with it.
    run(&["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    // The kubelet wants to pass mounts on to containers; they go no further than this machine.
    run(&["mount", "--make-rshared", "/"]).map(drop)
}

fn tell(spec: &Spec, status: &Status) -> Result<()> {
    let (file, draft) = (spec.folder.join("status.json"), spec.folder.join("status.json.new"));
    let text = serde_json::to_vec_pretty(status).map_err(std::io::Error::from).during("writing", &file)?;
    fs::write(&draft, text).during("writing", &draft)?;
    fs::rename(&draft, &file).during("writing", &file)
}

/// A component and its process.
struct Task<'a> {
    component: &'a Component,
    pid: Option<Pid>,
    restarts: u32,
    last_end: String,
    order: Order,
    not_before: Instant,
    /// Whether it stands still, and since when it does or does not.
    still: bool,
    since: Instant,
}

impl<'a> Task<'a> {
    fn new(component: &'a Component) -> Self {
        let now = Instant::now();
        Task {
            component,
            pid: None,
            restarts: 0,
            last_end: String::new(),
            order: Order::Run,
            not_before: now,
            still: false,
            since: now,
        }
    }

    fn status(&self) -> (String, ComponentStatus) {
        let status = ComponentStatus {
            pid: self.pid.map(Pid::as_raw),
            restarts: self.restarts,
            last_end: self.last_end.clone(),
            order: self.order,
        };
        (self.component.name.clone(), status)
    }

    fn follow_orders(&mut self, spec: &Spec) {
        let file = spec.folder.join("control").join(&self.component.name);
        self.order =
            fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        match (self.order, self.pid) {
            (Order::Stop, Some(pid)) => signal(pid, Signal::SIGKILL),
            (Order::Stop, None) => {}
            (Order::Pause, Some(pid)) => self.stand_still(pid, true),
            (Order::Run, Some(pid)) => self.stand_still(pid, false),
            (Order::Stutter { milliseconds }, Some(pid)) => {
                let limit = if self.still { Duration::from_millis(milliseconds) } else { WORK };
                if self.since.elapsed() >= limit {
                    self.stand_still(pid, !self.still);
                }
            }
            (_, None) => self.start(spec),
        }
    }

    fn stand_still(&mut self, pid: Pid, still: bool) {
        if self.still != still {
            signal(pid, if still { Signal::SIGSTOP } else { Signal::SIGCONT });
            self.still = still;
            self.since = Instant::now();
        }
    }

    fn start(&mut self, spec: &Spec) {
        let awaited = self.component.after.as_ref().is_some_and(|file| !file.exists());
        if awaited || Instant::now() < self.not_before {
            return;
        }
        match self.spawn(spec) {
            Ok(pid) => {
                self.pid = Some(pid);
                (self.still, self.since) = (false, Instant::now());
            }
            Err(error) => self.ended(format!("could not be started: {error}")),
        }
    }

    fn spawn(&self, spec: &Spec) -> Result<Pid> {
        let name = &self.component.name;
        let log = append_to(&spec.logs.join(format!("{name}.log")))?;
        let errors = log.try_clone().during("sharing the log of", name)?;
        let child = Command::new(&self.component.argv[0])
            .args(&self.component.argv[1..])
            .env("PATH", &spec.path)
            .envs(self.component.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .during("starting", name)?;
        let pid = i32::try_from(child.id()).map_err(std::io::Error::other).during("starting", name)?;
        Ok(Pid::from_raw(pid))
    }

    fn ended(&mut self, how: String) {
        self.pid = None;
        self.restarts += u32::from(self.order != Order::Stop);
        self.last_end = how;
        self.not_before = Instant::now() + RESTART_DELAY;
    }
}

fn signal(pid: Pid, signal: Signal) {
    // It may have ended a moment ago; it is reaped in the next round.
    let _ = kill(pid, signal);
}

fn reap(tasks: &mut [Task<'_>]) {
    loop {
        let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, format!("ended with exit code {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("killed by {signal}")),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        if let Some(task) = tasks.iter_mut().find(|task| task.pid == Some(pid)) {
            task.ended(how);
        }
    }
}
