//! What there is of a database, as the cluster tells whoever asks. What may not be read is named, and the rest is shown.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use keelson_api::instance::{Names, labels};
use keelson_api::v1::{Backup, Database};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// What there is.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The Database itself.
    pub database: Option<Database>,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// The claims of its volumes.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The Lease that decides who leads.
    pub lease: Option<Lease>,
    /// Its Backups.
    pub backups: Vec<Backup>,
    /// What happened to it and to its pods.
    pub events: Vec<Event>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// Asks for all of it.
pub async fn gather(client: &Client, database: Database) -> Facts {
    let name = database.name_any();
    let namespace = database.namespace().unwrap_or_default();
    let of_it = ListParams::default().labels(&format!("{}={name}", labels::DATABASE));
    let mut unread = Vec::new();
    let pods: Vec<Pod> = listed(client, &namespace, &of_it, "pods", &mut unread).await;
    let claims = listed(client, &namespace, &of_it, "volumes", &mut unread).await;
    // Those that a person asks for have no label until the operator has seen them.
    let all = ListParams::default();
    let backups: Vec<Backup> = listed(client, &namespace, &all, "backups", &mut unread).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let lease = match leases.get_opt(&Names(&name).lease()).await {
        Ok(lease) => lease,
        Err(error) => {
            unread.push(why("the Lease", &error));
            None
        }
    };
    let mut events: Vec<Event> = Vec::new();
    let about =
        ListParams::default().fields(&format!("involvedObject.kind=Database,involvedObject.name={name}"));
    events.extend(listed::<Event>(client, &namespace, &about, "events", &mut unread).await);
    let about = ListParams::default().fields("involvedObject.kind=Pod");
    let of_pods: Vec<Event> = listed(client, &namespace, &about, "events of pods", &mut unread).await;
    let is_its = |event: &Event| {
        event.involved_object.name.as_deref().is_some_and(|pod| Names(&name).ordinal(pod).is_some())
    };
    events.extend(of_pods.into_iter().filter(is_its));
    let backups = backups.into_iter().filter(|backup| backup.spec.database == name).collect();
    Facts { database: Some(database), pods, claims, lease, backups, events, unread }
}

/// Those that may be listed.
pub async fn listed<K>(
    client: &Client,
    namespace: &str,
    params: &ListParams,
    what: &str,
    unread: &mut Vec<String>,
) -> Vec<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    match Api::<K>::namespaced(client.clone(), namespace).list(params).await {
        Ok(list) => list.items,
        Err(error) => {
            unread.push(why(what, &error));
            Vec::new()
        }
    }
}

fn why(what: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{what}: {}", status.message),
        other => format!("{what}: {other}"),
    }
}
