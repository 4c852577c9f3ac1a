//! The operator as a process: the controller, webhooks, metrics and health, from start to an orderly end.

use std::future::Future;
use std::io;
use std::sync::Arc;

use keelson_api::convert::{ApiVersion, convert};
use keelson_api::crds::{CONVERT_PATH, SERVICE};
use keelson_api::{GROUP, admission, injection, policy};
use keelson_kit::certificates::{Keeper, Target};
use keelson_kit::telemetry::{self, Metrics};
use keelson_kit::webhook::Webhooks;
use keelson_kit::{Manager, client, serve};
use kube::Client;
use serde_json::Value;
use thiserror::Error;

use crate::NAME;
use crate::metrics::{Apps, Databases};
use crate::root::{Root, RootError};
use crate::{app, backup, database};

/// The Secret with the webhooks' certificates.
pub const WEBHOOK_SECRET: &str = "keelson-webhook";
/// The definition that is converted by webhook.
pub const DEFINITION: &str = "databases.keelson.dev";

/// How the operator is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The image that instances get the agent from: the operator's own.
    pub agent_image: String,
    /// The image that connection poolers are run from.
    pub pooler_image: String,
    /// The namespace that the operator itself lives in; without it, the client's own.
    pub namespace: Option<String>,
    /// Only Databases in this namespace, instead of all.
    pub only_in: Option<String>,
    /// The port of the metrics.
    pub metrics_port: u16,
    /// The port of `/healthz` and `/readyz`.
    pub health_port: u16,
    /// The port of the webhooks; without it, another process serves them.
    pub webhook_port: Option<u16>,
}

/// Why the operator does not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no way to the cluster.
    #[error("connecting to the cluster: {0}")]
    Connect(#[from] kube::Error),
    /// A port can't be had.
    #[error("listening on port {port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is nothing that secrets could follow from.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Webhooks can't be served.
    #[error("webhooks can't be served: {0}")]
    Tls(String),
    /// Nothing can be logged.
    #[error(transparent)]
    Telemetry(#[from] telemetry::Error),
}

/// The operator of Databases, on a cluster. It lives, and its Lease is, in the given namespace.
pub fn manager(client: Client, metrics: Metrics, root: Root, options: &Options) -> Manager {
    let databases = database::kind(Arc::new(root), &options.agent_image, Databases::new(&metrics));
    let apps = app::kind(&options.pooler_image, Apps::apps(&metrics));
    let mut manager = Manager::new(NAME, GROUP, client, metrics)
        .look_after(databases)
        .look_after(backup::kind())
        .look_after(apps);
    if let Some(namespace) = &options.namespace {
        manager = manager.lives_in(namespace);
    }
    match &options.only_in {
        Some(namespace) => manager.only_in(namespace),
        None => manager,
    }
}

/// Runs the operator on the cluster that the environment names until `stop` is over.
pub async fn run(options: Options, stop: impl Future<Output = ()> + Send) -> Result<(), RunError> {
    let telemetry = telemetry::start(telemetry::Settings::from_env(NAME, env!("CARGO_PKG_VERSION")))?;
    let metrics = Metrics::new(NAME);
    metrics.build(env!("CARGO_PKG_VERSION"));
    let client = client::connect(Default::default(), &metrics).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let root = Root::open(client.clone(), &namespace).await?;
    let mut manager = manager(client.clone(), metrics, root, &options)
        .show(listen(options.metrics_port).await?, listen(options.health_port).await?);
    if let Some(port) = options.webhook_port {
        let keeper = keeper(client, &namespace);
        manager = manager
            .answer(listen(port).await?, keeper, webhooks(&options.pooler_image))
            .map_err(|error| RunError::Tls(error.to_string()))?;
    }
    manager.run(stop).await;
    telemetry.shutdown().await;
    Ok(())
}

async fn listen(port: u16) -> Result<tokio::net::TcpListener, RunError> {
    serve::listen(port).await.map_err(|source| RunError::Listen { port, source })
}

/// Conversion, admission, and poolers beside other people's programs.
fn webhooks(pooler_image: &str) -> Webhooks {
    let image = pooler_image.to_owned();
    let inject = move |request: &Value| Ok::<_, String>(app::injection::inject(request, &image));
    Webhooks::new()
        .mutate(injection::PATH, inject)
        .convert(CONVERT_PATH, |object, desired| convert(object, ApiVersion::of(desired)?))
        .validate(admission::VALIDATE_PATH, admission::objections)
}

/// The certificates of the webhooks, and who is to trust them.
fn keeper(client: Client, namespace: &str) -> Keeper {
    Keeper::new(client, namespace, WEBHOOK_SECRET)
        .names([format!("{SERVICE}.{namespace}.svc")])
        .target(Target::Definition(DEFINITION.to_owned()))
        .target(Target::Validating(policy::NAME.to_owned()))
        .target(Target::Mutating(injection::NAME.to_owned()))
}
