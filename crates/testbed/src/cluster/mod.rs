//! A whole cluster: up, down, and what one does with it in between.

mod down;
mod ready;
mod up;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};
use nix::sys::signal::Signal;

use crate::client::{connect, connect_current};
use crate::components::CONTAINERD_SOCKET;
use crate::debian::image_archive;
use crate::error::{Asking, During, Error, Result};
use crate::fault::{self, Fault, Volume};
use crate::gobuild::Programs;
use crate::image::{Image, full_name};
use crate::layout::{Cache, Layout};
use crate::network::Node;
use crate::pods::{Container, Which, Who};
use crate::progress::Progress;
use crate::provisioner::node_of;
use crate::shell::run_command;

pub(crate) use ready::api_server_ready;
use up::{Made, node_machines, running};

/// A cluster that runs: the testbed's own, or one that somebody already has.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    testbed: Option<Layout>,
}

impl Cluster {
    /// The cluster that tests and demos should use: the testbed of this checkout, started if it does
    /// not run, or the current one of `kubectl` when `CLUSTER=current` is set.
    pub async fn from_env() -> Result<Cluster> {
        match std::env::var("CLUSTER").as_deref() {
            Ok("current") => Ok(Cluster { client: connect_current().await?, testbed: None }),
            Ok("testbed") | Err(_) => Cluster::up(&Layout::of_checkout()?, None).await,
            Ok(other) => Err(Error::Refused(format!(
                "CLUSTER={other} is unknown: leave it out, or say CLUSTER=current"
            ))),
        }
    }

    /// Builds what is not built, and starts a cluster of so many nodes (3 unless told otherwise).
    /// Where one runs already this does nothing.
    pub async fn up(layout: &Layout, nodes: Option<u8>) -> Result<Cluster> {
        let cache = Cache::open()?;
        up::preflight(&[layout.root(), cache.root()])?;
        let _held = layout.lock()?;
        let progress = Progress::new(&cache);
        let (programs, store) = up::build(&cache, &progress)?;
        let running = running(layout);
        let count = nodes.or(running.as_ref().map(|made| made.nodes)).unwrap_or(3);
        if Node::new(count).is_none() {
            return Err(Error::Refused(format!("a cluster can't have {count} nodes: 1 to 200 are possible")));
        }
        let made = Made { nodes: count, programs: programs.path(), store };
        match running {
            Some(running) if running == made => match Cluster::attach(layout).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => progress.say(&format!("the cluster that runs here does not answer: {error}")),
            },
            Some(running) if running.nodes != made.nodes => {
                return Err(Error::Refused(format!(
                    "a cluster of {} nodes runs here: `make cluster-down` first, then ask for {}",
                    running.nodes, made.nodes
                )));
            }
            _ => {}
        }
        down::take_down(layout)?;
        let step = progress.begin(&format!("starting a cluster of {count}"));
        let started = up::start(layout, &programs, &made).await;
        step.end(started.is_ok());
        Ok(Cluster { client: started?, testbed: Some(layout.clone()) })
    }

    /// The cluster that runs in this folder.
    pub async fn attach(layout: &Layout) -> Result<Cluster> {
        if running(layout).is_none() {
            return Err(Error::Refused("no cluster runs here: `make cluster` starts one".into()));
        }
        let client = connect(&layout.kubeconfig()).await?;
        let cluster = Cluster { client, testbed: Some(layout.clone()) };
        // Where somebody wants it silent, silence is no reason to start anew.
        if !fault::in_force(layout).iter().any(|fault| fault.order().is_some()) {
            api_server_ready(&cluster.client, Duration::from_secs(20)).await?;
        }
        Ok(cluster)
    }

    /// Ends the cluster of this folder, whatever state it is in, and removes all traces of it.
    pub fn down(layout: &Layout) -> Result<()> {
        let _held = layout.lock()?;
        down::take_down(layout)
    }

    /// A client of its API server, with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A `kubectl` that talks to this cluster.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run("kubectl", arguments)
    }

    /// A `helm` that talks to this cluster.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run("helm", arguments)
    }

    /// A program from the cluster's own folder, else from the `PATH`.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        // Some of its commands would wait for ever.
        let mut command = Command::new("timeout");
        command.arg("300");
        match &self.testbed {
            Some(layout) => {
                command.arg(layout.root().join("bin").join(program)).env("KUBECONFIG", layout.kubeconfig());
            }
            None => {
                command.arg(program);
            }
        }
        command.args(arguments);
        run_command(command)
    }

    /// The testbed's folder; an error when this is somebody else's cluster.
    pub fn testbed(&self) -> Result<&Layout> {
        self.testbed.as_ref().ok_or_else(|| {
            Error::Refused(
                "this needs the testbed, and the cluster in use is another (CLUSTER=current)".into(),
            )
        })
    }

    /// Makes something go wrong.
    pub fn inject(&self, fault: &Fault) -> Result<()> {
        fault::inject(self.testbed()?, fault)
    }

    /// Makes it right again.
    pub fn heal(&self, fault: &Fault) -> Result<()> {
        fault::heal(self.testbed()?, fault)
    }

    /// Makes everything right again.
    pub fn heal_all(&self) -> Result<()> {
        fault::heal_all(self.testbed()?)
    }

    /// What is wrong at the moment, oldest first.
    pub fn faults(&self) -> Result<Vec<Fault>> {
        Ok(fault::in_force(self.testbed()?))
    }

    /// The container of a pod, by name or role: what [`Fault::ProcessPause`] wants.
    pub async fn container(&self, namespace: &str, who: &Who, container: Option<&str>) -> Result<Container> {
        self.testbed()?;
        Container::find(&self.client, namespace, who, container).await
    }

    /// Runs a program in a container, whatever the state of the API server and the kubelet.
    pub fn run_in(&self, container: &Container, argv: &[&str]) -> Result<String> {
        container.run(self.testbed()?, argv)
    }

    /// Kills processes of a container, without a goodbye.
    pub fn kill(&self, container: &Container, which: &Which) -> Result<()> {
        fault::signal(self.testbed()?, container, which, Signal::SIGKILL)
    }

    /// The volume of a claim: what the faults of volumes want.
    pub async fn volume(&self, namespace: &str, claim: &str) -> Result<Volume> {
        self.testbed()?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client(), namespace);
        let found = claims.get(claim).await.asking(format!("reading claim {namespace}/{claim}"))?;
        let Some(name) = found.spec.and_then(|spec| spec.volume_name) else {
            return Err(Error::Refused(format!("claim {namespace}/{claim} has no volume yet")));
        };
        let volume = Api::<PersistentVolume>::all(self.client()).get(&name).await;
        let node = node_of(&volume.asking(format!("reading volume {name}"))?);
        let node =
            node.ok_or_else(|| Error::Refused(format!("volume {name} is not one of the testbed's")))?;
        Ok(Volume { node, name, claim: format!("{namespace}/{claim}") })
    }

    /// Loads an image into every node that runs, so that pods can be started from it.
    pub fn load_image(&self, image: &Image) -> Result<()> {
        let layout = self.testbed()?;
        let archive = layout.root().join(format!("image-{}.tar", std::process::id()));
        image.write(&archive)?;
        let loaded = self.load_archive(&archive);
        fs::remove_file(&archive).during("removing", &archive)?;
        loaded
    }

    /// Loads an image that is made from Debian's packages and that nodes do not have from the start, such as
    /// `patroni:17`. It is made if it is not in the cache yet.
    pub fn load_debian(&self, image: &str) -> Result<()> {
        let cache = Cache::open()?;
        self.load_archive(&image_archive(&cache, &Progress::new(&cache), image)?)
    }

    /// Loads an image that is already an OCI archive.
    pub fn load_archive(&self, archive: &Path) -> Result<()> {
        self.on_images(&["import", "--snapshotter", "overlayfs", &archive.display().to_string()])
    }

    /// Gives an image that every node has another name beside its own: `postgres:17.5` for `postgres:17`.
    pub fn name_image(&self, image: &str, also: &str) -> Result<()> {
        self.on_images(&["tag", "--force", &full_name(image), &full_name(also)])
    }

    /// Does something with the images of every node that runs.
    fn on_images(&self, arguments: &[&str]) -> Result<()> {
        let layout = self.testbed()?;
        let ctr = Programs::build(&Cache::open()?, &Progress::new(&Cache::open()?))?.find("ctr");
        let ctr = ctr.display().to_string();
        let words = [&ctr, "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images"];
        let words = [&words, arguments].concat();
        for machine in node_machines(layout) {
            machine.run(&words)?;
        }
        Ok(())
    }
}
