//! `keelson switchover`: another instance leads, because somebody wants it to.

use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::coordination::v1::Lease;
use keelson_api::instance::{Names, annotations};
use keelson_api::v1::Database;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::{Found, Which};
use super::words::program;
use super::{Ended, Failure};

/// What to hand over, and to whom.
#[derive(Args)]
pub struct SwitchoverArgs {
    #[command(flatten)]
    which: Which,
    /// The instance that is to lead; without it, the best.
    #[arg(long, value_name = "POD")]
    to: Option<String>,
    /// How many seconds to wait for it.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

struct Leading {
    holder: String,
    wish: Option<String>,
}

/// Asks the leader to hand over, and waits until another leads.
pub async fn switchover(args: SwitchoverArgs) -> Result<Ended, Failure> {
    let Found { client, namespace, database } = args.which.find().await?;
    let name = &args.which.database;
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    let lease = Names(name).lease();
    let before = leading(&leases, &lease).await?.holder;
    if before.is_empty() {
        return said(format!("nobody leads {name} at the moment: `{} status {name}` says why", program()));
    }
    if args.to.as_deref() == Some(&before) {
        println!("{before} leads already");
        return Ok(Ended::Well);
    }
    let able = able(&database, &before);
    if let Some(to) = args.to.as_ref().filter(|to| !able.contains(to)) {
        let able = if able.is_empty() { "none".to_owned() } else { able.join(", ") };
        return said(format!("{to} does not follow {before}, so it can't take over. Those that can: {able}"));
    }
    if able.is_empty() {
        return said(format!("no instance follows {before}, so none can take over"));
    }
    let to = args.to.as_deref().unwrap_or("any");
    let wish = json!({"metadata": {"annotations": {annotations::HANDOVER_TO: to}}});
    let start = Instant::now();
    leases
        .patch(&lease, &PatchParams::default(), &Patch::Merge(wish))
        .await
        .map_err(Failure::during(format!("asking {before} to hand over")))?;
    while start.elapsed() < Duration::from_secs(args.timeout) {
        let now = leading(&leases, &lease).await?;
        if !now.holder.is_empty() && now.holder != before {
            println!("{} leads, {:.1} s after it was asked for", now.holder, start.elapsed().as_secs_f64());
            return Ok(Ended::Well);
        }
        if now.holder == before && now.wish.is_none() && start.elapsed() > Duration::from_secs(5) {
            return said(format!(
                "{before} goes on: {to} could not take over when it was asked for. `{} status {name}` says how its \
                 instances are",
                program()
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
    said(format!("nobody else leads after {} s: `{} status {name}` says why", args.timeout, program()))
}

fn said(words: String) -> Result<Ended, Failure> {
    Err(Failure::Said(words))
}

async fn leading(leases: &Api<Lease>, name: &str) -> Result<Leading, Failure> {
    let lease = leases.get(name).await.map_err(Failure::during(format!("reading the Lease {name}")))?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    Ok(Leading {
        holder: holder.split('/').next().unwrap_or_default().to_owned(),
        wish: lease.metadata.annotations.and_then(|mut notes| notes.remove(annotations::HANDOVER_TO)),
    })
}

/// Those that follow and serve.
fn able(database: &Database, leader: &str) -> Vec<String> {
    let rows = database.status.as_ref().map(|status| status.instances.as_slice()).unwrap_or_default();
    rows.iter().filter(|row| row.ready && row.name != leader).map(|row| row.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_and_serves_can_take_over() {
        let database: Database = serde_json::from_value(json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": {},
            "status": {"instances": [
                {"name": "orders-0", "role": "primary", "ready": true},
                {"name": "orders-1", "role": "replica", "ready": true},
                {"name": "orders-2", "role": "joining", "ready": false}
            ]}
        }))
        .unwrap();
        assert_eq!(able(&database, "orders-0"), ["orders-1"]);
    }
}
