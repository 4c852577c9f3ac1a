//! What a reconciler is given for one round of work on one object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, Preconditions,
};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::conditions::{self, Finding};
use crate::controller::Key;
use crate::desired::{self, Names};
use crate::error::Error;
use crate::events::{Event, Events, Severity};
use crate::finalizer::{self, Stage};
use crate::watch::{Applied, Held, Interest, Source, Uid, key_of};

mod unread;

/// What all rounds of a controller share.
pub(crate) struct Shared {
    /// Sends no write once this process no longer leads.
    pub client: Client,
    pub names: Names,
    pub itself: Arc<Source>,
    pub children: Vec<Arc<Source>>,
    /// Kinds of children that are written and never read.
    pub unread: Vec<ApiResource>,
    pub events: Events,
}

impl Shared {
    fn source(&self, resource: &ApiResource) -> Option<&Arc<Source>> {
        self.children.iter().find(|source| source.resource() == resource)
    }

    pub(crate) fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, resource),
        }
    }

    /// Takes in the answer to a write or a read of the object itself.
    pub(crate) fn learn(&self, mut object: DynamicObject) -> Option<Box<[u8]>> {
        let (key, released) = (key_of(&object.metadata), finalizer::is_released(&object.metadata));
        let held = Held::itself(&mut object, &self.names);
        let text = held.text.clone();
        // A watch may have told of its end before the write that let it go was answered. Entered now, it would stay.
        if !released {
            self.itself.store().wrote(key, held);
        }
        text
    }
}

/// One round of work on one object: the way to read its children and to change the world.
///
/// Nothing is written when nothing has changed, and no write is sent once this process no longer leads.
pub struct Round {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) meta: ObjectMeta,
    pub(crate) status: Value,
    /// Whether the object is known to be what `meta` says of it.
    pub(crate) confirmed: AtomicBool,
}

impl Round {
    /// A client for whatever else there is to do. It sends no write once this process no longer leads.
    pub fn client(&self) -> Client {
        self.shared.client.clone()
    }

    /// The object's name and namespace.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What makes a child one of this object's.
    pub fn owner(&self) -> OwnerReference {
        let resource = self.shared.itself.resource();
        OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: self.key.name.clone(),
            uid: self.meta.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Asks the API server itself whether the object is still what this round knows of it. What watches tell
    /// may be long past: an object that has been changed since would have its children changed back, and one
    /// that is gone would have them made anew. One read, once a round; a write to the object does as well.
    ///
    /// [`apply`](Round::apply) asks before it writes. Whoever takes something away in another way asks first.
    pub async fn confirm(&self) -> Result<(), Error> {
        if self.confirmed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let api = self.shared.api(self.shared.itself.resource(), &self.key.namespace);
        let found = api.get_metadata_opt(&self.key.name).await;
        let found = found.map_err(|source| Error::Api { doing: "reading", object: self.object(), source })?;
        let version = |meta: &ObjectMeta| (meta.uid.clone(), meta.resource_version.clone());
        match found {
            Some(found) if version(&found.metadata) == version(&self.meta) => {
                self.confirmed.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Error::Outdated { object: self.object() }),
        }
    }

    /// Makes a child what it should be: made if it is missing, repaired where somebody has changed what
    /// should be, and otherwise left alone, without a request. What others have added stays.
    ///
    /// The kind must have been named with [`owns`](crate::Kind::owns) or
    /// [`owns_content`](crate::Kind::owns_content); one that was named with
    /// [`owns_unread`](crate::Kind::owns_unread) is sent each time. Returns whether more is known of it than before: it was
    /// written, or was found to be newer than any watch had told.
    pub async fn apply<C>(&self, child: &C) -> Result<bool, Error>
    where
        C: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<C>(&());
        let key = Key {
            namespace: self.key.namespace.clone(),
            name: child.meta().name.clone().unwrap_or_default(),
        };
        let object = format!("{} {key}", resource.kind);
        let unread = self.shared.unread.contains(&resource);
        let Some(source) = self.shared.source(&resource).filter(|_| !unread) else {
            if unread {
                return unread::send(self, &resource, key, child).await;
            }
            let why = "its kind was not named as one that this controller owns".to_owned();
            return Err(Error::Unwritable { object, why });
        };
        let value = serde_json::to_value(child)
            .map_err(|error| Error::Unwritable { object: object.clone(), why: error.to_string() })?;
        let (value, hash) = desired::mark(value, &self.owner(), &self.shared.names);
        let apply = Apply { round: self, source, key, object, value, hash };
        match source.store().glance(&apply.key).filter(|_| source.store().stranger(&apply.key).is_none()) {
            Some(held) if held.owner.as_ref().is_some_and(|owner| owner.uid == self.uid()) => {
                apply.again(held).await
            }
            Some(Held { owner: Some(owner), .. }) => {
                Err(apply.taken(format!("it belongs to {} {}", owner.kind, owner.name)))
            }
            _ => apply.first().await,
        }
    }

    /// Removes a child, if it is there. Returns whether anything was asked of the API server.
    pub async fn remove<C>(&self, name: &str) -> Result<bool, Error>
    where
        C: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<C>(&());
        let key = Key { namespace: self.key.namespace.clone(), name: name.to_owned() };
        let api = self.shared.api(&resource, &key.namespace);
        let failed = |doing, source| Error::Api { doing, object: format!("{} {key}", resource.kind), source };
        let known = self.shared.source(&resource).and_then(|source| source.store().glance(&key));
        let held = match known {
            Some(held) => Some(held),
            // It may be that nobody has told of it yet.
            None => {
                let found = api.get_metadata_opt(name).await.map_err(|source| failed("reading", source))?;
                found.map(|found| Held::new(&found.metadata, &self.shared.names.manager))
            }
        };
        let ours = |held: &Held| held.owner.as_ref().is_some_and(|owner| owner.uid == self.uid());
        let Some(held) = held.filter(ours) else { return Ok(false) };
        let only_this = Preconditions { uid: Some(held.uid.text()), resource_version: None };
        let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::background() };
        match api.delete(name, &params).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            Err(source) => Err(failed("removing", source)),
        }
    }

    /// A child whose content is watched, as it was last seen.
    pub fn child<C>(&self, name: &str) -> Result<Option<C>, Error>
    where
        C: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<C>(&());
        let key = Key { namespace: self.key.namespace.clone(), name: name.to_owned() };
        let held = self.shared.source(&resource).and_then(|source| source.store().get(&key));
        let text = held.and_then(|held| held.text);
        let object = || format!("{} {key}", resource.kind);
        text.map(|text| serde_json::from_slice(&text))
            .transpose()
            .map_err(|source| Error::Unreadable { object: object(), source })
    }

    /// All that belong to this object by the label that [`watches`](crate::Kind::watches) named, as they
    /// were last seen, in the order of their names.
    pub fn related<C>(&self) -> Result<Vec<C>, Error>
    where
        C: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<C>(&());
        self.members(&resource, self.shared.source(&resource))
    }

    /// The same, where [`watches`](crate::Kind::watches) was called more than once for a kind: those that it named this
    /// label for.
    pub fn related_by<C>(&self, label: &str) -> Result<Vec<C>, Error>
    where
        C: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<C>(&());
        let named = |source: &&Arc<Source>| source.resource() == &resource && source.labels() == Some(label);
        self.members(&resource, self.shared.children.iter().find(named))
    }

    fn members<C: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        source: Option<&Arc<Source>>,
    ) -> Result<Vec<C>, Error> {
        let held = source.map(|source| source.store().members(&self.key));
        let texts = held.into_iter().flatten().filter_map(|held| held.text);
        let read = texts.map(|text| {
            serde_json::from_slice(&text).map_err(|source| {
                let object = format!("{} of {}", resource.kind, self.object());
                Error::Unreadable { object, source }
            })
        });
        read.collect()
    }

    /// Writes the status, if it is not that already. Refused as a conflict if the object has changed
    /// since this round began, since the status might not be true of what it is now.
    pub async fn set_status(&mut self, status: &impl Serialize) -> Result<bool, Error> {
        let status = serde_json::to_value(status)
            .map_err(|error| Error::Unwritable { object: self.object(), why: error.to_string() })?;
        let Some(change) = desired::difference(&self.status, &status) else { return Ok(false) };
        let patch = json!({
            "metadata": { "resourceVersion": self.meta.resource_version }, "status": change
        });
        self.patch_itself("writing the status of", Some("status"), patch).await?;
        Ok(true)
    }

    /// The conditions that follow from what was found; see [`conditions::merge`].
    pub fn conditions(&self, current: &[Condition], findings: &[Finding]) -> Vec<Condition> {
        conditions::merge(current, findings, self.meta.generation, &Time(Timestamp::now()))
    }

    /// Writes findings into the conditions and leaves the rest of the status alone.
    pub async fn report(&mut self, findings: &[Finding]) -> Result<bool, Error> {
        let current = self.status.get("conditions").cloned().unwrap_or_default();
        let current: Vec<Condition> = serde_json::from_value(current).unwrap_or_default();
        let mut status = self.status.clone();
        if !status.is_object() {
            status = json!({});
        }
        status["conditions"] = json!(self.conditions(&current, findings));
        self.set_status(&status).await
    }

    /// Says what happened, for `kubectl describe`. It never fails and nobody waits for it.
    pub fn event(&self, severity: Severity, reason: &str, note: impl Into<String>) {
        let resource = self.shared.itself.resource();
        let about = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            name: Some(self.key.name.clone()),
            namespace: Some(self.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            uid: self.meta.uid.clone(),
            resource_version: None,
            field_path: None,
        };
        self.shared.events.tell(Event { about, severity, reason: reason.to_owned(), note: note.into() });
    }

    /// Notes that a stage of the clean-up has been dealt with.
    pub(crate) async fn dealt_with(&mut self, name: &str, stage: Stage) -> Result<(), Error> {
        match finalizer::patch(&self.meta, name, stage) {
            Some(patch) => self.patch_itself("keeping account of the clean-up of", None, patch).await,
            None => Ok(()),
        }
    }

    async fn patch_itself(
        &mut self,
        doing: &'static str,
        subresource: Option<&str>,
        patch: Value,
    ) -> Result<(), Error> {
        let api = self.shared.api(self.shared.itself.resource(), &self.key.namespace);
        let params =
            PatchParams { field_manager: Some(self.shared.names.manager.clone()), ..Default::default() };
        let patch = Patch::Merge(patch);
        let answer = match subresource {
            Some(name) => api.patch_subresource(name, &self.key.name, &params, &patch).await,
            None => api.patch(&self.key.name, &params, &patch).await,
        };
        let object = answer.map_err(|source| Error::Api { doing, object: self.object(), source })?;
        self.meta = object.metadata.clone();
        self.confirmed.store(true, Ordering::Relaxed);
        self.status = object.data.get("status").cloned().unwrap_or_default();
        self.shared.learn(object);
        Ok(())
    }

    fn object(&self) -> String {
        format!("{} {}", self.shared.itself.resource().kind, self.key)
    }

    fn uid(&self) -> Uid {
        uid_of(&self.meta)
    }
}

/// One child that is to be what it should be.
struct Apply<'a> {
    round: &'a Round,
    source: &'a Source,
    key: Key,
    object: String,
    value: Value,
    hash: u64,
}

impl Apply<'_> {
    /// It is there, and is this object's.
    async fn again(self, held: Held) -> Result<bool, Error> {
        match held.applied {
            Some(applied) if applied == (Applied { desired: self.hash, fingerprint: held.fingerprint }) => {
                Ok(false)
            }
            // Another process applied it. What it left may tell that nothing is to be written, else a read.
            None if self.is_as_left(&held) => Ok(false),
            None => match self.as_desired().await? {
                // The watch, when it comes to tell of that, will have no news: whoever goes by what it told before
                // would never hear of it.
                Some(version) => Ok(version != held.version),
                None => self.write(true).await,
            },
            Some(_) => self.write(true).await,
        }
    }

    fn is_as_left(&self, held: &Held) -> bool {
        let Some(left) = held.left.as_ref().filter(|left| left.desired == self.hash) else { return false };
        let account: Value = serde_json::from_str(&left.account).unwrap_or_default();
        let same = desired::is_named(&desired::unnamed(self.value.clone()), &account);
        if same {
            let applied = Applied { desired: self.hash, fingerprint: held.fingerprint };
            self.source.store().confirm(&self.key, applied);
        }
        same
    }

    /// It is not there, as far as is known. Something of that name that is not ours is not touched: not
    /// what is in it, and not by making it go when this object goes.
    async fn first(self) -> Result<bool, Error> {
        if let Some(stranger) = self.source.store().stranger(&self.key)
            && self.found().await?.is_some_and(|found| uid_of(&found) == stranger)
        {
            return Err(self.taken("somebody else has made it".to_owned()));
        }
        match self.write(false).await {
            Err(Error::Api { source: kube::Error::Api(status), .. })
                if status.is_conflict() && status.message.contains("conflict with") =>
            {
                let found = self.found().await?.unwrap_or_default();
                let owner = self.round.owner();
                if found.owner_references.iter().flatten().any(|one| one.uid == owner.uid) {
                    return self.write(true).await;
                }
                Err(self.met(&found))
            }
            other => other,
        }
    }

    /// What there is of that name.
    async fn found(&self) -> Result<Option<ObjectMeta>, Error> {
        let found = self.api().get_metadata_opt(&self.key.name).await;
        Ok(found.map_err(|source| self.failed("reading", source))?.map(|found| found.metadata))
    }

    /// It is somebody else's. That is remembered, so that the next try is no write.
    fn met(&self, found: &ObjectMeta) -> Error {
        self.source.store().met(&self.key, uid_of(found));
        self.taken("somebody else has made it".to_owned())
    }

    /// The version in which it is as it should be, if it is.
    async fn as_desired(&self) -> Result<Option<u64>, Error> {
        let found =
            self.api().get_opt(&self.key.name).await.map_err(|source| self.failed("reading", source))?;
        let Some(found) = found else { return Ok(None) };
        let value = serde_json::to_value(&found).unwrap_or_default();
        Ok(desired::is_within(&self.value, &value).then(|| self.learn(found)))
    }

    async fn write(&self, force: bool) -> Result<bool, Error> {
        self.round.confirm().await?;
        let params = PatchParams {
            field_manager: Some(self.round.shared.names.manager.clone()),
            force,
            ..PatchParams::default()
        };
        let patch = Patch::Apply(&self.value);
        let failed = |source| self.failed("applying", source);
        let written = match self.source.interest() {
            Interest::Presence => {
                let written = self.api().patch_metadata(&self.key.name, &params, &patch).await;
                let mut object = DynamicObject::new("", self.source.resource());
                object.metadata = written.map_err(failed)?.metadata;
                object
            }
            _ => self.api().patch(&self.key.name, &params, &patch).await.map_err(failed)?,
        };
        if !force && self.is_somebody_elses(&written.metadata) {
            self.let_go().await?;
            return Err(self.met(&written.metadata));
        }
        self.learn(written);
        Ok(true)
    }

    fn is_somebody_elses(&self, meta: &ObjectMeta) -> bool {
        let ours = self.source.store().departed(&self.key, uid_of(meta));
        !ours && made_by_somebody_else(meta, &self.round.shared.names.manager)
    }

    /// Takes back all that this operator has set.
    async fn let_go(&self) -> Result<(), Error> {
        let resource = self.source.resource();
        let nothing = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": { "name": self.key.name }
        });
        let params = PatchParams::apply(&self.round.shared.names.manager);
        let done = self.api().patch_metadata(&self.key.name, &params, &Patch::Apply(nothing)).await;
        done.map(drop).map_err(|source| self.failed("letting go of", source))
    }

    /// Enters what the API server has answered. Returns its version.
    fn learn(&self, mut written: DynamicObject) -> u64 {
        let mut held = self.source.hold(&mut written);
        held.left = None;
        held.applied = Some(Applied { desired: self.hash, fingerprint: held.fingerprint });
        let version = held.version;
        self.source.store().wrote(self.key.clone(), held);
        version
    }

    fn api(&self) -> Api<DynamicObject> {
        self.round.shared.api(self.source.resource(), &self.key.namespace)
    }

    fn failed(&self, doing: &'static str, source: kube::Error) -> Error {
        Error::Api { doing, object: self.object.clone(), source }
    }

    fn taken(&self, why: String) -> Error {
        Error::Taken { object: self.object.clone(), owner: self.round.object(), why }
    }
}

fn uid_of(meta: &ObjectMeta) -> Uid {
    Uid::new(meta.uid.as_deref().unwrap_or_default())
}

/// Whether somebody else has set fields on it as early as it was made. Others may well change what
/// another process of ours has made, also in ways that hide it from us, such as taking its label away;
/// but hardly within the second.
fn made_by_somebody_else(meta: &ObjectMeta, manager: &str) -> bool {
    let made = meta.creation_timestamp.as_ref().map(|time| time.0.as_second());
    meta.managed_fields.iter().flatten().any(|entry| {
        let early = entry.time.as_ref().map(|time| time.0.as_second()) <= made.map(|made| made + 1);
        let whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
        early && whole && entry.manager.as_deref() != Some(manager)
    })
}
