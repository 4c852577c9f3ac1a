//! Building and starting.

use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use kube::Client;
use serde::{Deserialize, Serialize};

use super::ready::Wait;
use crate::client::connect;
use crate::error::{During, Error, Result};
use crate::gobuild::Programs;
use crate::layout::{Cache, Layout, hex};
use crate::machine::{HUB, Machine};
use crate::network::{self, API, API_SERVICE, DNS, Node, S3, S3_PORT};
use crate::pki::Pki;
use crate::progress::Progress;
use crate::{addons, components, debian, gate, store};

/// What `up` made, written down for later commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) nodes: u8,
    /// Changes with everything that the cluster is made from.
    pub(super) programs: String,
    pub(super) store: PathBuf,
}

/// Refuses what can't work, before anything is touched.
pub(super) fn preflight(folders: &[&Path]) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Refused(
            "the testbed makes namespaces, mounts and loop devices: run it as root".into(),
        ));
    }
    for hidden in ["/var/lib", "/var/log", "/run"] {
        if let Some(folder) = folders.iter().find(|folder| folder.starts_with(hidden)) {
            let folder = folder.display();
            return Err(Error::Refused(format!(
                "a node has a {hidden} of its own and can't see {folder}: move it"
            )));
        }
    }
    Ok(())
}

/// Builds everything; compiling and unpacking go side by side.
pub(super) fn build(cache: &Cache, progress: &Progress) -> Result<(Programs, PathBuf)> {
    debian::install_packages(progress)?;
    let (programs, archives) = std::thread::scope(|scope| {
        let images = scope.spawn(|| debian::make_images(cache, progress));
        let programs = Programs::build(cache, progress);
        let images =
            images.join().unwrap_or_else(|_| Err(Error::Refused("making the images panicked".into())));
        (programs, images)
    });
    let (programs, archives) = (programs?, archives?);
    let store = store::fill(cache, progress, &programs, &archives)?;
    Ok((programs, store))
}

/// What runs in this folder: the hub must live.
pub(super) fn running(layout: &Layout) -> Option<Made> {
    Machine::find(layout, HUB)?;
    serde_json::from_slice(&fs::read(layout.root().join("cluster.json")).ok()?).ok()
}

pub(super) fn node_machines(layout: &Layout) -> Vec<Machine> {
    let count = running(layout).map_or(0, |made| made.nodes);
    Node::all(count).filter_map(|node| Machine::find(layout, &node.name())).collect()
}

/// Starts the hub, then the nodes, and waits until all of it works.
pub(super) async fn start(layout: &Layout, programs: &Programs, made: &Made) -> Result<Client> {
    let root = layout.root();
    fs::create_dir_all(root.join("bin")).during("creating", root)?;
    let program = own_program()?;
    fs::copy(&program, layout.program()).during("copying", &program)?;
    for name in ["kubectl", "helm"] {
        let link = root.join("bin").join(name);
        std::os::unix::fs::symlink(programs.find(name), &link).during("linking", &link)?;
    }

    let pki = Pki::create(&layout.pki())?;
    pki.sign_api_server(&[API, API_SERVICE, Ipv4Addr::LOCALHOST])?;
    let s3_keys = [("ROOT_ACCESS_KEY".to_owned(), random()?), ("ROOT_SECRET_KEY".to_owned(), random()?)];
    let hub = Machine::start(layout, &components::hub(layout, programs, &pki, &s3_keys)?)?;
    network::set_up_hub(&hub)?;
    hub.go(layout)?;
    let port = gate::open(layout, &hub)?;
    pki.write_admin(&format!("https://127.0.0.1:{port}"), &layout.kubeconfig())?;

    std::thread::scope(|scope| {
        let (hub, pki) = (&hub, &pki);
        let nodes: Vec<_> = Node::all(made.nodes)
            .map(|node| scope.spawn(move || start_node(layout, programs, pki, hub, &made.store, node)))
            .collect();
        let panicked = || Error::Refused("starting a node panicked".into());
        nodes.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
    })?;

    let client = connect(&layout.kubeconfig()).await?;
    let wait = Wait { layout, client: &client, hub: &hub };
    wait.for_api_server().await?;
    addons::apply_all(&client, &s3_keys).await?;
    wait.for_nodes(made.nodes).await?;
    wait.for_service_account().await?;
    wait.for_answer(&format!("{DNS}:8181"), "/ready")?;
    wait.for_answer(&format!("{S3}:{S3_PORT}"), "/")?;

    let file = root.join("cluster.json");
    let text = serde_json::to_vec_pretty(made).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(&file, text)).during("writing", &file)?;
    Ok(client)
}

fn start_node(
    layout: &Layout,
    programs: &Programs,
    pki: &Pki,
    hub: &Machine,
    images: &Path,
    node: Node,
) -> Result<()> {
    let spec = components::node(layout, programs, pki, node)?;
    store::copy(images, &spec.folder.join("lib/containerd"))?;
    let machine = Machine::start(layout, &spec)?;
    network::connect(hub, &machine, node)?;
    machine.go(layout)
}

/// This program, also when it is a test that uses the library.
fn own_program() -> Result<PathBuf> {
    let running = std::env::current_exe().during("finding", "this program")?;
    if running.file_name().is_some_and(|name| name == "testbed") {
        return Ok(running);
    }
    let beside =
        running.ancestors().skip(1).take(2).map(|folder| folder.join("testbed")).find(|path| path.is_file());
    beside
        .ok_or_else(|| Error::Refused("the program `testbed` is not built: `cargo build -p testbed`".into()))
}

fn random() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .during("reading", "/dev/urandom")?;
    Ok(hex(&bytes))
}
