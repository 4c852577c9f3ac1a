//! The cluster that kubectl would talk to, and the Database that a person means.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use keelson_api::v1::Database;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config, ResourceExt};

use super::Failure;
use super::words::{listed, near};

/// A cluster that does not answer for so long is away.
const CONNECT: Duration = Duration::from_secs(5);

/// Where these options stand in the help.
const CLUSTER: &str = "Cluster";

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// The namespace; without it, the one that kubectl would use.
    #[arg(long, short, help_heading = CLUSTER)]
    pub namespace: Option<String>,
    /// The context of the kubeconfig; without it, the current one.
    #[arg(long, help_heading = CLUSTER)]
    pub context: Option<String>,
    /// The kubeconfig; without it, the one that kubectl would use.
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    pub kubeconfig: Option<PathBuf>,
}

/// Which Database.
#[derive(Debug, Clone, Args)]
pub struct Which {
    /// The Database.
    pub database: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// A way to a cluster.
#[derive(Clone)]
pub struct Connected {
    pub client: Client,
    /// The namespace that is meant where none is named.
    pub namespace: String,
}

/// A Database, and how to reach what belongs to it.
pub struct Found {
    pub client: Client,
    pub namespace: String,
    pub database: Database,
}

impl ClusterArgs {
    /// Connects. Nothing is asked of the cluster yet.
    pub async fn connect(&self) -> Result<Connected, Failure> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        // Nobody waits for ever, but a log may be silent for long.
        config.read_timeout = None;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| Failure::NoKubeconfig { why: error.to_string() })?;
        Ok(Connected { client, namespace })
    }

    async fn config(&self) -> Result<Config, Failure> {
        let why = |error: &dyn Error| Failure::NoKubeconfig { why: error.to_string() };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            // In a pod there is an account instead.
            None if self.context.is_none() => {
                return Config::infer().await.map_err(|error| match error.source() {
                    Some(kubeconfig) => why(kubeconfig),
                    None => why(&error),
                });
            }
            None => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|error| why(&error))?;
        let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| {
            match (&self.context, &error) {
                (Some(context), KubeconfigError::LoadContext(_)) => Failure::NoKubeconfig {
                    why: format!("there is no context {context}, but {}", listed(&contexts)),
                },
                _ => why(&error),
            }
        })
    }

    /// The same for kubectl, which has the same names for them.
    pub fn for_kubectl(&self, namespace: &str) -> Vec<String> {
        let mut words = vec!["--namespace".to_owned(), namespace.to_owned()];
        if let Some(context) = &self.context {
            words.extend(["--context".to_owned(), context.clone()]);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            words.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        }
        words
    }
}

impl Which {
    /// Looks it up.
    pub async fn find(&self) -> Result<Found, Failure> {
        let Connected { client, namespace } = self.cluster.connect().await?;
        let database = find(&client, &namespace, &self.database).await?;
        Ok(Found { client, namespace, database })
    }
}

/// The Database of this name, or what to do since there is none.
pub async fn find(client: &Client, namespace: &str, name: &str) -> Result<Database, Failure> {
    let databases: Api<Database> = Api::namespaced(client.clone(), namespace);
    let doing = format!("reading the Database {namespace}/{name}");
    match databases.get_opt(name).await.map_err(Failure::during(&doing))? {
        Some(database) => Ok(database),
        None => {
            // A cluster that does not know the kind says as little as one that does not know the name.
            let there = databases.list(&ListParams::default()).await.map_err(Failure::during(&doing))?.items;
            let there: Vec<String> = there.iter().map(ResourceExt::name_any).collect();
            // Not everybody may look everywhere.
            let all = Api::<Database>::all(client.clone()).list(&ListParams::default()).await;
            let elsewhere = all.map(|list| list.items).unwrap_or_default();
            let elsewhere = elsewhere.iter().filter(|one| one.name_any() == name);
            Err(Failure::NoDatabase {
                near: near(name, there.iter().map(String::as_str)),
                elsewhere: elsewhere.filter_map(ResourceExt::namespace).collect(),
                none: there.is_empty(),
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            })
        }
    }
}
