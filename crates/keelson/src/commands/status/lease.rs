//! What the Lease says of who leads.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use keelson_api::instance::annotations;
use serde::{Deserialize, Serialize};

use crate::commands::words::since;

/// Who leads, and who may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// The instance that holds it.
    pub holder: Option<String>,
    /// How often the holder has changed.
    pub epoch: Option<u64>,
    /// For how many seconds it is good after each renewal.
    pub seconds: Option<i32>,
    /// How long ago it was renewed, by the clocks of the holder and of whoever asks.
    pub renewed_seconds_ago: Option<i64>,
    /// Who may be elected, the holder among them.
    pub electable: Vec<String>,
    /// For how many others a commit waits.
    pub commits_wait_for: usize,
    /// To whom it is to be handed over.
    pub handover_to: Option<String>,
}

/// As the leader writes it down.
#[derive(Default, Deserialize)]
struct Sync {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    count: usize,
}

impl LeaseView {
    /// From the object.
    pub fn of(lease: &Lease, now: Timestamp) -> LeaseView {
        let note = |key: &str| lease.metadata.annotations.as_ref()?.get(key).cloned();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let holder = holder.split('/').next().filter(|name| !name.is_empty()).map(str::to_owned);
        let sync = note(annotations::SYNC).and_then(|text| serde_json::from_str::<Sync>(&text).ok());
        // The leader's own acknowledgement is no instance.
        let sync = sync.unwrap_or_default();
        let others: Vec<String> = sync.names.into_iter().filter(|name| name.contains('-')).collect();
        let commits_wait_for = if others.is_empty() { 0 } else { sync.count };
        let mut electable: Vec<String> = holder.iter().cloned().chain(others).collect();
        electable.sort();
        electable.dedup();
        LeaseView {
            epoch: note(annotations::EPOCH).and_then(|epoch| epoch.parse().ok()),
            seconds: spec.lease_duration_seconds,
            renewed_seconds_ago: spec.renew_time.map(|time| since(time.0, now)),
            handover_to: note(annotations::HANDOVER_TO),
            commits_wait_for,
            electable,
            holder,
        }
    }

    /// Whether it has run out, as far as clocks agree: by more than they usually differ.
    pub fn is_stale(&self) -> bool {
        const CLOCKS_DIFFER: i64 = 10;
        let bound = i64::from(self.seconds.unwrap_or(5)) + CLOCKS_DIFFER;
        self.holder.is_none() || self.renewed_seconds_ago.is_some_and(|ago| ago > bound)
    }
}
