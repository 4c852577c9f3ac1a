//! The Lease in the API server: what the machine asks of it, and what it sees there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use keelson_api::instance::{annotations, labels};
use keelson_ha::{Draft, Input, Lease, Position, Quorum, Request, Restores, Successor};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::environment::Environment;

/// The Lease of one database.
#[derive(Clone)]
pub struct Leases {
    api: Api<LeaseObject>,
    name: String,
    here: Environment,
}

/// Leases that nobody has given a length have this one.
const LENGTH: i32 = 5;

impl Leases {
    /// The Lease with this name.
    pub fn new(api: Api<LeaseObject>, name: String, here: Environment) -> Leases {
        Leases { api, name, here }
    }

    /// Carries out a request, for no longer than that, and says what came of it.
    /// A story of leaderships goes along with a write.
    pub async fn carry_out(&self, request: Request, story: Option<String>, deadline: Duration) -> Input {
        let answer = async {
            match request {
                Request::Read => self.api.get_opt(&self.name).await.map(|found| Input::Read(found.map(read))),
                Request::Write { draft, replaces } => self.write(&draft, story, replaces).await,
            }
        };
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(input)) => input,
            // 404: it was removed meanwhile. 409: somebody was faster.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Input::Conflict,
            Ok(Err(error)) => {
                tracing::debug!(%error, lease = self.name, "the Lease could not be read or written");
                Input::Failed
            }
            Err(_) => Input::Failed,
        }
    }

    async fn write(
        &self,
        draft: &Draft,
        story: Option<String>,
        replaces: Option<String>,
    ) -> Result<Input, kube::Error> {
        let sent = Instant::now();
        let written = match replaces {
            Some(version) => {
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let mut patch = patch(draft, &version);
                if let Some(story) = story {
                    patch["metadata"]["annotations"][annotations::LEADERSHIPS] = json!(story);
                }
                self.api.patch(&self.name, &params, &Patch::Merge(patch)).await?
            }
            None => self.api.create(&PostParams::default(), &self.first(draft)).await?,
        };
        let version = written.metadata.resource_version.unwrap_or_default();
        Ok(Input::Written { version, sent })
    }

    /// The Lease of a database that has none yet.
    fn first(&self, draft: &Draft) -> LeaseObject {
        let now = Some(MicroTime(Timestamp::now()));
        LeaseObject {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: Some(vec![self.here.owner()]),
                labels: Some(BTreeMap::from([(labels::DATABASE.to_owned(), self.here.database.clone())])),
                annotations: Some(
                    [
                        (annotations::EPOCH, Some(draft.epoch.to_string())),
                        (annotations::HISTORY, Some(draft.history.to_string())),
                        (annotations::SYSTEM_ID, draft.system.clone()),
                        (annotations::SYNC, sync(&draft.quorum)),
                        (annotations::RESTORES, restores(draft)),
                    ]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                    .collect(),
                ),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: draft.holder.as_ref().map(ToString::to_string),
                lease_duration_seconds: Some(seconds(draft.ttl)),
                acquire_time: now.clone(),
                renew_time: now,
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Changes the Lease, if it is still in this version. Times of day are for people who read it; nothing
/// is decided by them.
fn patch(draft: &Draft, version: &str) -> Value {
    let successor = draft.successor.as_ref().map(|successor| match successor {
        Successor::Named(name) => name.clone(),
        Successor::Any => ANY.to_owned(),
    });
    let mut annotations = json!({
        annotations::EPOCH: draft.epoch.to_string(),
        annotations::HISTORY: draft.history.to_string(),
        annotations::HANDOVER_TO: successor,
        annotations::SYNC: sync(&draft.quorum),
        annotations::LOG_END: draft.end.map(|end| format!("{}/{}", end.history, end.offset)),
        // Two renewals never replace the same version.
        annotations::RENEWAL: version,
    });
    if let Some(system) = &draft.system {
        annotations[annotations::SYSTEM_ID] = json!(system);
    }
    // What was restored is never forgotten either.
    if let Some(restores) = restores(draft) {
        annotations[annotations::RESTORES] = json!(restores);
    }
    json!({
        "metadata": { "resourceVersion": version, "annotations": annotations },
        "spec": {
            "holderIdentity": draft.holder.as_ref().map(ToString::to_string).unwrap_or_default(),
            "leaseDurationSeconds": seconds(draft.ttl),
            "renewTime": MicroTime(Timestamp::now()),
        }
    })
}

/// What there was of restores in place; nothing, where there was none.
fn restores(draft: &Draft) -> Option<String> {
    let some = draft.restores != Restores::default();
    some.then(|| serde_json::to_string(&draft.restores).ok()).flatten()
}

fn sync(quorum: &Quorum) -> Option<String> {
    serde_json::to_string(quorum).ok()
}

fn end(text: &str) -> Option<Position> {
    let (history, offset) = text.split_once('/')?;
    Some(Position { history: history.parse().ok()?, offset: offset.parse().ok()? })
}

/// Whichever instance is best.
const ANY: &str = "any";

fn seconds(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
}

/// A Lease as the machine sees it.
pub fn read(lease: LeaseObject) -> Lease {
    let spec = lease.spec.unwrap_or_default();
    let mut notes = lease.metadata.annotations.unwrap_or_default();
    let mut note = |name: &str| notes.remove(name).filter(|value| !value.is_empty());
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let length = spec.lease_duration_seconds.unwrap_or(LENGTH).max(1).unsigned_abs();
    let version = lease.metadata.resource_version.unwrap_or_default();
    Lease {
        // The first of each Lease is the only one that replaces nothing.
        renewal: format!(
            "{}/{}",
            lease.metadata.uid.unwrap_or_default(),
            note(annotations::RENEWAL).unwrap_or_default()
        ),
        version,
        holder: holder
            .map(|holder| holder.parse().unwrap_or_else(|never: std::convert::Infallible| match never {})),
        ttl: Duration::from_secs(length.into()),
        epoch: note(annotations::EPOCH).and_then(|epoch| epoch.parse().ok()).unwrap_or_default(),
        system: note(annotations::SYSTEM_ID),
        successor: note(annotations::HANDOVER_TO).map(|name| match name.as_str() {
            ANY => Successor::Any,
            _ => Successor::Named(name),
        }),
        // What can't be read lets nobody be elected.
        quorum: note(annotations::SYNC).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        history: note(annotations::HISTORY).and_then(|number| number.parse().ok()).unwrap_or_default(),
        restores: note(annotations::RESTORES)
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default(),
        end: note(annotations::LOG_END).and_then(|text| end(&text)),
    }
}

/// A resource version as a number, so that what is older can be told from what is newer.
pub fn version(lease: &Lease) -> u64 {
    lease.version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use keelson_ha::Holder;

    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let draft = Draft {
            holder: Some(Holder { name: "orders-1".into(), incarnation: "1f".into() }),
            epoch: 7,
            system: Some("77".into()),
            successor: Some(Successor::Any),
            quorum: Quorum::of(["orders-0".to_owned(), "orders-2".to_owned()]),
            history: 4,
            restores: Restores { settled: Some("undo-it".into()), done: true, origin: 3 },
            end: Some(Position { history: 3, offset: 1 << 40 }),
            ttl: Duration::from_millis(4500),
        };
        let mut object = patch(&draft, "5");
        object["metadata"]["name"] = "orders-leader".into();
        let lease = read(serde_json::from_value(object).unwrap());
        assert_eq!(lease.holder, draft.holder);
        assert_eq!((lease.quorum, lease.history, lease.end), (draft.quorum, 4, draft.end));
        assert_eq!(lease.restores, draft.restores);
        assert_eq!((lease.epoch, lease.system, lease.successor), (7, draft.system, draft.successor));
        assert_eq!((lease.version.as_str(), lease.ttl), ("5", Duration::from_secs(5)), "never shorter");
    }

    #[test]
    fn a_release_names_nobody_and_takes_the_wish_away() {
        let (quorum, restores, end, ttl) =
            (Quorum::default(), Restores::default(), None, Duration::from_secs(5));
        let draft = Draft {
            holder: None,
            epoch: 7,
            system: None,
            successor: None,
            quorum,
            history: 3,
            restores,
            end,
            ttl,
        };
        let mut object = patch(&draft, "5");
        let notes = object["metadata"]["annotations"].as_object_mut().unwrap();
        for gone in [annotations::HANDOVER_TO, annotations::LOG_END] {
            assert_eq!(notes.remove(gone), Some(Value::Null));
        }
        assert!(object["metadata"]["annotations"].get(annotations::SYSTEM_ID).is_none(), "never taken away");
        assert_eq!(read(serde_json::from_value(object).unwrap()).holder, None);
    }
}
