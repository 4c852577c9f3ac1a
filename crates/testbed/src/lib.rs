//! A whole real Kubernetes on one machine, with faults on demand.
//!
//! Everything that Keelson promises is proven on this: a cluster of several nodes, each with its own
//! processes, mounts, network, container runtime and kubelet, started from nothing but package
//! registries. No Docker, no container registry, no download.
//!
//! - [`Cluster::from_env`] gives a test the cluster to use, and starts it if need be.
//! - [`Fault`] lists what can be made to go wrong; [`Cluster::inject`] and [`Cluster::heal`] do it.
//! - [`ControlPlane::start`] gives a test an API server without nodes, in seconds;
//!   [`shared_control_plane`] one that all tests of a program share.
//! - [`build_go`] builds a program from a Go module, once for all checkouts.
//! - [`helm`] is the real Helm, [`s3_server`] a real S3 server.
//! - [`inside`] runs a test inside the image of each PostgreSQL.
//! - [`rootfs`] gives a test the file system of a database image.
//! - [`until`] waits for a condition with a deadline.
//!
//! The command `testbed` does the same for people.

mod addons;
mod cgroup;
mod client;
mod cluster;
mod components;
mod control_plane;
mod debian;
mod disk;
mod error;
mod fault;
mod gate;
mod gobuild;
mod image;
mod init;
pub mod inside;
mod layout;
mod machine;
mod network;
mod pki;
mod pods;
mod progress;
mod prometheus;
mod provisioner;
mod report;
mod rootfs;
mod shell;
mod store;
mod wait;

pub use addons::{NAMESPACE, S3_NAME, STORAGE_CLASS, STORAGE_CLASS_KEPT};
pub use client::connect;
pub use cluster::Cluster;
pub use control_plane::{Audited, ControlPlane, shared_control_plane};
pub use error::{Error, Result};
pub use fault::{Fault, HubComponent, Volume, heal_all};
pub use gobuild::{build_go, bundle_validator, helm, kubectl, s3_server};
pub use image::{Image, Settings};
pub use layout::Layout;
pub use network::Node;
pub use pods::{Container, Which, Who};
pub use prometheus::prometheus;
pub use report::report;
pub use rootfs::rootfs;
pub use wait::{Look, until, until_blocking};

/// What the cluster's own processes run; not for people.
#[doc(hidden)]
pub mod internal {
    use std::path::Path;

    use crate::error::Result;
    use crate::network::Node;

    /// PID 1 of a machine.
    pub fn init(spec: &Path) -> Result<()> {
        crate::init::run_as_init(spec)
    }

    /// The way in to the API server.
    pub async fn gate() -> Result<()> {
        crate::gate::serve().await
    }

    /// A node's provisioner of volumes.
    pub async fn volumes(node: Node, kubeconfig: &Path) -> Result<()> {
        crate::provisioner::serve(node, kubeconfig).await
    }
}
