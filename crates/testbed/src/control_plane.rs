//! A control plane without nodes: etcd and an API server on loopback, up in seconds and gone with
//! the test that started it. For everything about controllers, webhooks and the API itself.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::client::connect;
use crate::cluster::api_server_ready;
use crate::components;
use crate::error::{During, Error, Result};
use crate::gobuild::Programs;
use crate::init::Component;
use crate::layout::Cache;
use crate::machine::{append_to, tail};
use crate::network::API_SERVICE;
use crate::pki::Pki;
use crate::progress::Progress;

/// Ends the processes and removes the folder when its standard input closes, which it does when
/// the process that holds the other end is gone, however it went.
const WATCHDOG: &str = r#"trap '' INT TERM HUP; cat >/dev/null; kill -KILL "-$1"; rm -rf -- "$2""#;

/// A user whose every request the API server writes down. The user has no rights of its own.
#[derive(Clone, Debug)]
pub struct Audited {
    /// For programs that are to be this user.
    pub kubeconfig: PathBuf,
    /// One JSON object of the kind `audit.k8s.io/v1` `Event` a line: a request that has ended, or, for a
    /// watch, also one that has begun.
    pub log: PathBuf,
}

/// A control plane that runs until it is dropped.
pub struct ControlPlane {
    client: Client,
    address: String,
    folder: PathBuf,
    pki: Pki,
    api_server: Component,
    controllers: Component,
    running: Option<Child>,
    running_controllers: Option<Child>,
    etcd: Child,
    watchdog: Child,
    lifeline: Option<ChildStdin>,
    _ports: Vec<Port>,
}

impl ControlPlane {
    /// Starts one. The first time on a machine this builds Kubernetes.
    pub async fn start() -> Result<ControlPlane> {
        Self::start_with(|_, _| Ok(Vec::new())).await
    }

    /// Starts one that writes down what one user asks for. Whoever else asks leaves no trace there, so
    /// that a program's requests can be counted while others look on.
    pub async fn start_audited(user: &str) -> Result<(ControlPlane, Audited)> {
        let plane = Self::start_with(|pki, folder| {
            pki.sign(user, user, &[], &[], &[])?;
            let policy = folder.join("audit-policy.json");
            crate::pki::write_secret(&policy, &audit_policy(user))?;
            Ok(vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", folder.join("audit.log").display()),
                // In megabytes: never begun anew while somebody reads it.
                "--audit-log-maxsize=100000".into(),
            ])
        })
        .await?;
        let audited = Audited {
            kubeconfig: plane.folder.join(format!("{user}.kubeconfig")),
            log: plane.folder.join("audit.log"),
        };
        plane.pki.write_kubeconfig(user, &plane.address, &audited.kubeconfig)?;
        Ok((plane, audited))
    }

    /// `more` makes further flags of the API server.
    async fn start_with(more: impl FnOnce(&Pki, &Path) -> Result<Vec<String>>) -> Result<ControlPlane> {
        let cache = Cache::open()?;
        let programs = Programs::build_kubernetes(&cache, &Progress::new(&cache))?;
        let ports = [Port::take()?, Port::take()?, Port::take()?];
        let [port, etcd_port, etcd_peer_port] = ports.each_ref().map(|port| port.number);
        let folder = std::env::temp_dir().join(format!("keelson-control-plane-{port}"));
        if folder.exists() {
            fs::remove_dir_all(&folder).during("removing", &folder)?;
        }
        let pki = Pki::create(&folder.join("pki"))?;
        pki.sign_api_server(&[Ipv4Addr::LOCALHOST, API_SERVICE])?;
        let address = format!("https://127.0.0.1:{port}");
        pki.write_admin(&address, &folder.join("kubeconfig"))?;
        let plane = components::ControlPlane {
            programs: &programs,
            pki: &pki,
            etcd_data: folder.join("etcd"),
            etcd_port,
            etcd_peer_port,
            address: Ipv4Addr::LOCALHOST,
            port,
        };
        let etcd = launch(&plane.etcd(), &folder, 0)?;
        let group = i32::try_from(etcd.id()).unwrap_or_default();
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "sh", &group.to_string()])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .during("starting", "the watchdog")?;
        let lifeline = watchdog.stdin.take();
        let mut api_server = plane.api_server();
        api_server.argv.extend(more(&pki, &folder)?);
        let running = Some(launch(&api_server, &folder, group)?);
        let mut controllers = plane.controller_manager(&folder.join("kubeconfig"));
        // Nobody asks it anything, and others of its kind run on this machine.
        controllers.argv.push("--secure-port=0".into());
        let client = connect(&folder.join("kubeconfig")).await?;
        let plane = ControlPlane {
            client,
            address,
            folder,
            pki,
            api_server,
            controllers,
            running,
            running_controllers: None,
            etcd,
            watchdog,
            lifeline,
            _ports: ports.into(),
        };
        plane.ready().await?;
        Ok(plane)
    }

    async fn ready(&self) -> Result<()> {
        api_server_ready(&self.client, Duration::from_secs(60)).await.map_err(|error| {
            let log = self.folder.join("kube-apiserver.log");
            Error::Component {
                component: "kube-apiserver".into(),
                reason: error.to_string(),
                tail: tail(&log),
                log,
                hint: "read what it says; `etcd.log` is beside it".into(),
            }
        })
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// For programs that want a file.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Starts Kubernetes's own controllers: those of StatefulSets, for one. `flags` are further ones of
    /// `kube-controller-manager`. They end with the control plane.
    pub fn start_controllers(&mut self, flags: &[&str]) -> Result<()> {
        let mut controllers = self.controllers.clone();
        controllers.argv.extend(flags.iter().map(|&flag| flag.to_owned()));
        let group = i32::try_from(self.etcd.id()).unwrap_or_default();
        self.running_controllers = Some(launch(&controllers, &self.folder, group)?);
        Ok(())
    }

    /// Makes the API server stand still: connections stay open, and nothing is said on them.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the API server. What it knew is kept.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL);
        match self.running.take() {
            Some(mut child) => child.wait().map(drop).during("ending", "kube-apiserver"),
            None => Ok(()),
        }
    }

    /// Starts it again, on the same port, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        let group = i32::try_from(self.etcd.id()).unwrap_or_default();
        self.running = Some(launch(&self.api_server, &self.folder, group)?);
        self.ready().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.running.as_ref().and_then(|child| i32::try_from(child.id()).ok()) {
            // Not reaped yet, so the number is still its own.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// The way to the one control plane that all tests of a program share: started and prepared when the first
/// asks, and gone with the program. Each test has a runtime of its own, and so needs a client of its own.
pub fn shared_control_plane<F>(prepare: impl FnOnce(Client) -> F + Send + 'static) -> PathBuf
where
    F: Future<Output = ()>,
{
    static KUBECONFIG: OnceLock<PathBuf> = OnceLock::new();
    let start = || {
        let (tell, told) = mpsc::channel();
        // On a thread that outlives every test: its children serve whoever comes next.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let plane = ControlPlane::start().await.unwrap();
                prepare(plane.client()).await;
                tell.send(plane.kubeconfig()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        // Whatever went wrong has been said by the panic over there.
        told.recv().unwrap()
    };
    KUBECONFIG.get_or_init(start).clone()
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _ = self.watchdog.wait();
        for child in [Some(&mut self.etcd), self.running.as_mut(), self.running_controllers.as_mut()]
            .into_iter()
            .flatten()
        {
            // Dead already, unless the watchdog failed: then a wait alone would be for ever.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn audit_policy(user: &str) -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "users": [user] }, { "level": "None" }],
    })
    .to_string()
}

fn launch(component: &Component, folder: &Path, group: i32) -> Result<Child> {
    let log = append_to(&folder.join(format!("{}.log", component.name)))?;
    let errors = log.try_clone().during("sharing the log of", &component.name)?;
    Command::new(&component.argv[0])
        .args(&component.argv[1..])
        .process_group(group)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .during("starting", &component.name)
}

/// A port that nobody else who asks here gets, for as long as it is held. The kernel's own choice
/// would do until two tests start at once: it is free only until somebody else is told the same.
struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    fn take() -> Result<Port> {
        // Below the range from which the kernel serves outgoing connections.
        const RANGE: std::ops::Range<u16> = 21000..31000;
        let folder = std::env::temp_dir().join("keelson-ports");
        fs::create_dir_all(&folder).during("creating", &folder)?;
        let start = RANGE.start + (std::process::id() % 9000) as u16;
        for number in (start..RANGE.end).chain(RANGE.start..start) {
            let path = folder.join(number.to_string());
            let lock = File::create(&path).during("creating", &path)?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Port { number, _lock: lock });
            }
        }
        Err(Error::Refused("no port between 21000 and 31000 is free on loopback".into()))
    }
}
