//! A client of the API server that does not wait for ever.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::{Asking, Error, Result};

/// Connects with the given kubeconfig.
pub async fn connect(kubeconfig: &Path) -> Result<Client> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::Refused(format!("reading the kubeconfig {}: {error}", kubeconfig.display()))
    };
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| refused(&error))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    with_deadlines(config.map_err(|error| refused(&error))?)
}

/// Connects to the cluster that `kubectl` would talk to.
pub async fn connect_current() -> Result<Client> {
    let config = Config::infer().await.map_err(|error| {
        Error::Refused(format!("no current cluster: {error}. Set KUBECONFIG to the file that leads to it"))
    })?;
    with_deadlines(config)
}

fn with_deadlines(mut config: Config) -> Result<Client> {
    // Without these a silent API server hangs a call for ever.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(90));
    Client::try_from(config).asking("building the client")
}
