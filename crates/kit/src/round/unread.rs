//! Children that are written and never read, such as Secrets: there is no right to get or to list them.
//!
//! Whose an object is, is told by the answer to a write. Where a write is refused, a patch that changes
//! nothing is answered with what is there; its metadata is all that is asked for.

use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Round, made_by_somebody_else};
use crate::controller::Key;
use crate::desired;
use crate::error::Error;
use crate::watch::Uid;

/// Sends a child. Something of that name that is not this object's is left alone.
pub(super) async fn send(
    round: &Round,
    resource: &ApiResource,
    key: Key,
    child: &impl Serialize,
) -> Result<bool, Error> {
    let object = format!("{} {key}", resource.kind);
    // The child may hold what nobody is to see: no error of its own goes into the message.
    let value = serde_json::to_value(child)
        .map_err(|_| Error::Unwritable { object: object.clone(), why: "it is no JSON".to_owned() })?;
    let (value, _) = desired::mark(value, &round.owner(), &round.shared.names);
    round.confirm().await?;
    let send = Send { round, api: round.shared.api(resource, &key.namespace), resource, key, object };
    match send.apply(&value, false).await {
        Ok(meta) if !send.is_ours_alone(&meta) && made_by_somebody_else(&meta, send.manager()) => {
            send.let_go().await?;
            Err(send.taken("somebody else has made it".to_owned()))
        }
        Ok(_) => Ok(true),
        // Somebody has changed what is ours, or it was never ours.
        Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {
            let found = send.found().await?;
            let owner = found.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
            match owner {
                Some(owner) if Uid::new(&owner.uid) == round.uid() => {
                    send.apply(&value, true).await.map_err(|source| send.failed("applying", source))?;
                    Ok(true)
                }
                Some(owner) => Err(send.taken(format!("it belongs to {} {}", owner.kind, owner.name))),
                None => Err(send.taken("somebody else has made it".to_owned())),
            }
        }
        Err(source) => Err(send.failed("applying", source)),
    }
}

struct Send<'a> {
    round: &'a Round,
    api: Api<DynamicObject>,
    resource: &'a ApiResource,
    key: Key,
    object: String,
}

impl Send<'_> {
    async fn apply(&self, value: &Value, force: bool) -> Result<ObjectMeta, kube::Error> {
        let params =
            PatchParams { field_manager: Some(self.manager().to_owned()), force, ..PatchParams::default() };
        let answer = self.api.patch_metadata(&self.key.name, &params, &Patch::Apply(value)).await?;
        Ok(answer.metadata)
    }

    /// What there is of that name.
    async fn found(&self) -> Result<ObjectMeta, Error> {
        let nothing = Patch::Merge(json!({}));
        let found = self.api.patch_metadata(&self.key.name, &PatchParams::default(), &nothing).await;
        Ok(found.map_err(|source| self.failed("looking at", source))?.metadata)
    }

    /// Whether an apply of an earlier round is known to it: it was ours before this one.
    fn is_ours_alone(&self, meta: &ObjectMeta) -> bool {
        let mut entries = meta.managed_fields.iter().flatten();
        entries.all(|entry| entry.manager.as_deref() == Some(self.manager()))
    }

    /// Takes back all that this operator has set.
    async fn let_go(&self) -> Result<(), Error> {
        let nothing = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": { "name": self.key.name }
        });
        let params = PatchParams::apply(self.manager());
        let done = self.api.patch_metadata(&self.key.name, &params, &Patch::Apply(nothing)).await;
        done.map(drop).map_err(|source| self.failed("letting go of", source))
    }

    fn manager(&self) -> &str {
        &self.round.shared.names.manager
    }

    fn failed(&self, doing: &'static str, source: kube::Error) -> Error {
        Error::Api { doing, object: self.object.clone(), source }
    }

    fn taken(&self, why: String) -> Error {
        Error::Taken { object: self.object.clone(), owner: self.round.object(), why }
    }
}
