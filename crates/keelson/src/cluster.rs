//! The cluster that kubectl would talk to, and the Database that a person means.

use clap::Args;
use keelson_api::v1::Database;
use kube::{Api, Client};

/// Which Database.
#[derive(Args)]
pub struct Which {
    /// The Database.
    pub database: String,
    /// Its namespace; without it, the one that kubectl would use.
    #[arg(long, short)]
    namespace: Option<String>,
}

/// A Database, and how to reach what belongs to it.
pub struct Found {
    pub client: Client,
    pub namespace: String,
    pub database: Database,
}

impl Which {
    /// Looks it up.
    pub async fn find(&self) -> Result<Found, String> {
        let client = Client::try_default().await.map_err(|error| format!("no way to a cluster: {error}"))?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let name = &self.database;
        let databases: Api<Database> = Api::namespaced(client.clone(), &namespace);
        match databases.get_opt(name).await.map_err(|error| format!("reading {name}: {error}"))? {
            Some(database) => Ok(Found { client, namespace, database }),
            None => Err(format!(
                "there is no Database {name} in the namespace {namespace}: kubectl get databases --all-namespaces \
                 lists them"
            )),
        }
    }
}
