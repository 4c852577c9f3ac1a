//! A machine of the cluster: one process that is PID 1 of its own process, mount and network
//! namespaces. When it dies the kernel kills all that runs in there and takes the mounts, loop
//! devices and links away, so a crash is real and nothing can be left behind.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::error::{During, Error, Result};
use crate::init::{Spec, Status};
use crate::layout::Layout;
use crate::pki::write_secret;
use crate::shell::{last_lines, let_go, run_command, run_with_input};
use crate::wait::{Look, until_blocking};

/// The machine on which the control plane runs.
pub(crate) const HUB: &str = "hub";

/// A machine that runs.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    name: String,
    pid: i32,
}

impl Machine {
    /// Starts a machine. Its components start as soon as it is told to `go`.
    pub(crate) fn start(layout: &Layout, spec: &Spec) -> Result<Machine> {
        let (folder, logs) = (layout.machine(&spec.name), layout.logs(&spec.name));
        for needed in [&folder, &logs, &folder.join("control")] {
            fs::create_dir_all(needed).during("creating", needed)?;
        }
        for stale in ["status.json", "go"] {
            let _ = fs::remove_file(folder.join(stale));
        }
        let spec_file = folder.join("spec.json");
        let text =
            serde_json::to_string_pretty(spec).map_err(std::io::Error::from).during("writing", &spec_file)?;
        write_secret(&spec_file, &text)?;

        let cgroup = system_cgroup(layout, &spec.name);
        cgroup.create()?;
        let log_file = logs.join("init.log");
        let log = append_to(&log_file)?;
        // The shell joins the control group before anything is born that could be left out of it.
        let unshare = Command::new("sh")
            .arg("-c")
            .arg("echo $$ > \"$1\" && shift && exec \"$@\"")
            .args(["sh", &cgroup.procs_file().to_string_lossy()])
            // A session of its own: neither the end of the terminal nor an interrupt at it is meant for the machine.
            .args([
                "setsid",
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .arg(layout.program())
            .arg("init")
            .arg(&spec_file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().during("sharing", &log_file)?)
            .stderr(log)
            .current_dir("/")
            .env_clear()
            .env("PATH", &spec.path)
            .spawn()
            .during("starting", layout.program())?;
        let_go(unshare);
        until_blocking("the machine's first process", Duration::from_secs(10), || {
            match Machine::find(layout, &spec.name) {
                Some(machine) => Look::There(machine),
                None => Look::NotYet(tail(&log_file)),
            }
        })
    }

    /// The machine of that name, if it runs: the one process of its control group that is PID 1 of
    /// a namespace.
    pub(crate) fn find(layout: &Layout, name: &str) -> Option<Machine> {
        let processes = system_cgroup(layout, name).processes();
        let pid = processes.into_iter().find(|&pid| namespace_pids(pid).get(1..) == Some(&[1]))?;
        // Until it is the program itself, it is still on its way in.
        let program = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        program
            .starts_with(layout.program().to_string_lossy().as_bytes())
            .then(|| Machine { name: name.to_owned(), pid })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the components start.
    pub(crate) fn go(&self, layout: &Layout) -> Result<()> {
        let file = layout.machine(&self.name).join("go");
        fs::write(&file, "").during("writing", &file)
    }

    /// A command that runs inside the machine, seeing its processes, mounts and network.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--net", "--mount", "--pid", "--", program]);
        command
    }

    /// Runs a program inside to its end.
    pub(crate) fn run(&self, argv: &[&str]) -> Result<String> {
        let mut command = self.command(argv[0]);
        command.args(&argv[1..]);
        run_command(command)
    }

    /// Runs a script inside; its first failing line ends it.
    pub(crate) fn shell(&self, script: &str) -> Result<()> {
        let pid = self.pid.to_string();
        run_with_input(&["nsenter", "--target", &pid, "--net", "--mount", "--pid", "--", "sh", "-e"], script)
    }

    /// A path of the machine's own file system, as seen from outside.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid))
    }

    /// The number that a process of this machine has outside of it.
    pub(crate) fn outer_pid(&self, layout: &Layout, inner: i32) -> Option<i32> {
        let processes = system_cgroup(layout, &self.name).processes();
        processes.into_iter().find(|&pid| namespace_pids(pid).get(1) == Some(&inner))
    }

    /// What PID 1 says of its components.
    pub(crate) fn status(&self, layout: &Layout) -> Option<Status> {
        let text = fs::read(layout.machine(&self.name).join("status.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// The control group of all that runs on a machine.
pub(crate) fn machine_cgroup(layout: &Layout, machine: &str) -> Cgroup {
    layout.cgroup().child(machine)
}

/// The control group of a machine's own processes, without its pods.
pub(crate) fn system_cgroup(layout: &Layout, machine: &str) -> Cgroup {
    machine_cgroup(layout, machine).child("system")
}

/// A process's numbers, from the outermost namespace inwards.
pub(crate) fn namespace_pids(pid: i32) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

pub(crate) fn append_to(file: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(file).during("opening", file)
}

pub(crate) fn tail(log: &Path) -> String {
    last_lines(&String::from_utf8_lossy(&fs::read(log).unwrap_or_default()), 15)
}

/// Says which component keeps a machine from working, and what its log ends with.
pub(crate) fn explain(layout: &Layout, machine: &str, reason: &str, hint: &str) -> Error {
    let status = Machine::find(layout, machine).and_then(|found| found.status(layout));
    let worst = status.as_ref().and_then(|status| {
        status
            .components
            .iter()
            .filter(|(_, component)| component.restarts > 0)
            .max_by_key(|(_, c)| c.restarts)
    });
    let (name, reason) = match worst {
        Some((name, component)) => (
            name.clone(),
            format!("{reason}; restarted {} times, last {}", component.restarts, component.last_end),
        ),
        None => ("init".to_owned(), reason.to_owned()),
    };
    let log = layout.logs(machine).join(format!("{name}.log"));
    Error::Component {
        component: format!("{machine}/{name}"),
        reason,
        tail: tail(&log),
        log,
        hint: hint.to_owned(),
    }
}
