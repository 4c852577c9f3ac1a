//! Whether all is well: one leads, all others follow, the status says so, and writes are acknowledged to everybody.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{Names, annotations, labels};
use keelson_api::v1;
use keelson_rig::{Asking, clock};
use kube::ResourceExt;
use kube::api::ListParams;
use testbed::{Look, until};

use crate::cast::Database;
use crate::error::Result;
use crate::record::{CLIENTS, Record, WRITERS, client_of};
use crate::site::{Site, holder};

/// How long it may take until all is well, after all that was wrong is right.
pub(crate) const SETTLE: Duration = Duration::from_secs(240);

/// How many others follow; what the agent itself follows for comes over the socket.
const FOLLOWERS: &str =
    "select count(*) from pg_stat_replication where state = 'streaming' and client_addr is not null";

/// A database that is well.
#[derive(Clone, Debug)]
pub(crate) struct Well {
    pub(crate) leader: String,
    /// In which it leads.
    pub(crate) epoch: u64,
    pub(crate) leaderships: Vec<v1::Leadership>,
}

/// Waits until a database is well.
pub(crate) async fn whole(site: &Site, database: &Database) -> Result<Well> {
    let what = format!("{} to be whole", database.name);
    let found = until(&what, SETTLE, || async {
        look(site, database).await.unwrap_or_else(|error| Look::NotYet(error.to_string()))
    });
    Ok(found.await?)
}

async fn look(site: &Site, database: &Database) -> Result<Look<Well>> {
    let object = site.api::<v1::Database>().get(database.name).await.asking("reading a Database")?;
    let status = object.status.clone().unwrap_or_default();
    if let Some(wrong) = not_told_well(&object, &status, database) {
        return Ok(Look::NotYet(wrong));
    }
    let of_it = ListParams::default().labels(&format!("{}={}", labels::DATABASE, database.name));
    let pods = site.api::<Pod>().list(&of_it).await.asking("listing pods")?;
    if let Some(pod) = pods.items.iter().find(|pod| pod.metadata.deletion_timestamp.is_some()) {
        return Ok(Look::NotYet(format!("{} is about to go", pod.name_any())));
    }
    let lease = site.api::<Lease>().get(&Names(database.name).lease()).await.asking("reading a Lease")?;
    let Some(leader) = holder(&lease) else { return Ok(Look::NotYet("nobody holds the Lease".into())) };
    if status.primary.as_ref() != Some(&leader) {
        return Ok(Look::NotYet(format!("{leader} leads, and the status says {:?}", status.primary)));
    }
    let notes = lease.metadata.annotations.unwrap_or_default();
    if let Some(to) = notes.get(annotations::HANDOVER_TO) {
        return Ok(Look::NotYet(format!("{leader} was asked to hand over to {to}")));
    }
    let others = database.instances - 1;
    let electable = notes.get("keelson.dev/sync").map_or(0, |names| {
        names
            .split(|c: char| !c.is_alphanumeric() && c != '-')
            .filter(|name| name.starts_with(database.name))
            .count()
    });
    if electable != others {
        return Ok(Look::NotYet(format!("{electable} may be elected: {notes:?}")));
    }
    let follow = site.ask(&leader, "postgres", FOLLOWERS)?;
    if follow != others.to_string() {
        return Ok(Look::NotYet(format!("{follow} follow {leader}")));
    }
    let epoch = notes.get("keelson.dev/epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
    Ok(Look::There(Well { leader, epoch, leaderships: status.leaderships }))
}

/// What the status lacks of saying that all is well.
fn not_told_well(object: &v1::Database, status: &v1::DatabaseStatus, database: &Database) -> Option<String> {
    let instances = i32::try_from(database.instances).ok();
    let ready = status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let phase = status.phase.as_ref().map(ToString::to_string);
    let told = ready
        && phase.as_deref() == Some("Running")
        && status.replicas == instances
        && status.ready_replicas == instances
        && status.observed_generation == object.metadata.generation;
    (!told).then(|| serde_json::to_string(status).unwrap_or_default())
}

/// Waits until every client was acknowledged something through the Service that it sent from now on.
pub(crate) async fn all_write(site: &Site) -> Result<()> {
    let moment = clock::now();
    let written = until("every client to be acknowledged", SETTLE, || async {
        let told = match site.told() {
            Ok(told) => told,
            Err(error) => return Look::NotYet(error.to_string()),
        };
        for (records, database) in told.iter().zip(&site.databases) {
            let waits =
                (0..CLIENTS).find(|client| !records.iter().any(|record| is_after(record, *client, moment)));
            if let Some(client) = waits {
                return Look::NotYet(format!("client {client} was not acknowledged by {}", database.name));
            }
        }
        Look::There(())
    });
    Ok(written.await?)
}

fn is_after(record: &Record, client: usize, moment: u64) -> bool {
    match record {
        Record::Write(write) => {
            write.way == WRITERS && client_of(write.row.id) == client && write.row.sent > moment
        }
        Record::Read(_) => false,
    }
}
