//! What somebody writes to have a controller: a [`Reconciler`] for a kind, and a [`Kind`] that says
//! what belongs to it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::conditions::Finding;
use crate::controller::{Change, Controller, Key};
use crate::desired::Names;
use crate::error::Error;
use crate::events::{Events, Severity};
use crate::finalizer::{self, Stage};
use crate::queue::Limits;
use crate::retry::{Class, Classify};
use crate::round::{Round, Shared};
use crate::telemetry::Metrics;
use crate::watch::{self, Interest, Source, Trim};

/// When to look at an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When it or one of its children has changed.
    Change,
    /// After so long at the latest.
    After(Duration),
}

/// Makes the world what the objects of one kind say. One value serves all objects, several at a time;
/// one object is never worked on twice at once.
///
/// A round may be dropped at any `await`, when it takes too long or leadership is lost, and is then begun
/// anew: what it does must lead to the same end from wherever the last one stopped.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static;
    /// What can go wrong.
    type Error: Classify + From<Error> + std::error::Error + Send + Sync + 'static;

    /// The steps of the clean-up of an object that has been deleted, in their order. With any, objects
    /// get a finalizer.
    const CLEANUP: &'static [&'static str] = &[];

    /// Makes the world what this object says.
    fn reconcile(
        &self,
        object: &Self::Object,
        round: &mut Round,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// Takes one step of the clean-up. Children need none: they go with their owner.
    fn clean(
        &self,
        step: &'static str,
        object: &Self::Object,
        round: &mut Round,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (step, object, round);
        async { Ok(()) }
    }

    /// An object is not there any more, whether it was cleaned up after or somebody took its finalizer
    /// away: what is kept of it, such as its share of a metric, can go. It may be told twice.
    fn gone(&self, key: &Key) {
        let _ = key;
    }

    /// A term begins, or is over: what is kept of objects is of the past. Others may have led in between,
    /// and objects may have gone of which this process was never told.
    fn forget(&self) {}

    /// What a failure means for the conditions. By default, one that stays until somebody changes
    /// something makes the object not ready, and one that may go away by itself changes nothing.
    fn findings(&self, error: &Self::Error) -> Vec<Finding> {
        match error.class() {
            Class::Permanent => vec![Finding {
                kind: "Ready".to_owned(),
                holds: Some(false),
                reason: "Failed".to_owned(),
                message: error.to_string(),
            }],
            Class::Transient | Class::Conflict => Vec::new(),
        }
    }
}

/// A kind that is to be looked after: by whom, what belongs to it, how much at once.
pub struct Kind<R> {
    reconciler: R,
    resource: ApiResource,
    children: Vec<Child>,
    unread: Vec<ApiResource>,
    limits: Limits,
    deadline: Duration,
}

/// A kind of objects that belong to those of another.
struct Child {
    resource: ApiResource,
    interest: Interest,
    /// The label by which they are found, where that is not the one of all children.
    label: Option<String>,
    trim: Option<Trim>,
}

impl<R: Reconciler> Kind<R> {
    /// The reconciler's kind, as yet without children.
    pub fn new(reconciler: R) -> Kind<R> {
        let Controller { limits, deadline, .. } = Controller::default();
        let resource = ApiResource::erase::<R::Object>(&());
        Kind { reconciler, resource, children: Vec::new(), unread: Vec::new(), limits, deadline }
    }

    /// Children of this kind need to be there as they were applied. Only their metadata is watched, so
    /// they cost next to no memory, and a change of their status is no reason to look.
    pub fn owns<C: Resource<DynamicType = ()>>(self) -> Self {
        self.child::<C>(Interest::Presence, None, None)
    }

    /// What is in children of this kind matters, their status for one: every change of one is a reason
    /// to look, and [`Round::child`] has them.
    pub fn owns_content<C: Resource<DynamicType = ()>>(self) -> Self {
        self.child::<C>(Interest::Content, None, None)
    }

    /// The same, but only what `trim` leaves of each is kept, and costs memory.
    pub fn owns_content_of<C: Resource<DynamicType = ()>>(self, trim: Trim) -> Self {
        self.child::<C>(Interest::Content, None, Some(trim))
    }

    /// Children of this kind are written and never read: there is no right to, and no watch that would
    /// tell of them. [`Round::apply`] sends them each time it is asked to, so ask only when there is reason
    /// to, such as a mark on another child that is written after them. Of a Secret, set `data` and not
    /// `stringData`, whose fields the API server does not keep account of.
    pub fn owns_unread<C: Resource<DynamicType = ()>>(mut self) -> Self {
        self.unread.push(ApiResource::erase::<C>(&()));
        self
    }

    /// Objects of this kind are not its children, but belong to it by a label whose value is its name, as
    /// the pods of a StatefulSet that is a child do. [`Round::related`] has them, as far as `trim` leaves
    /// them, and a change to that is a reason to look. Where others of the kind belong to it by another label, that
    /// is another watch, and [`Round::related_by`] has them.
    pub fn watches<C: Resource<DynamicType = ()>>(self, label: &str, trim: Trim) -> Self {
        self.child::<C>(Interest::Related, Some(label.to_owned()), Some(trim))
    }

    fn child<C: Resource<DynamicType = ()>>(
        mut self,
        interest: Interest,
        label: Option<String>,
        trim: Option<Trim>,
    ) -> Self {
        self.children.push(Child { resource: ApiResource::erase::<C>(&()), interest, label, trim });
        self
    }

    /// How much at once, how often.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The longest that a round may take.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The kind itself.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// The kinds of its children that are watched.
    pub fn children(&self) -> impl Iterator<Item = &ApiResource> {
        let owned = self.children.iter().filter(|child| child.interest != Interest::Related);
        owned.map(|child| &child.resource)
    }

    /// The kinds of its children that are never read.
    pub fn unread(&self) -> impl Iterator<Item = &ApiResource> {
        self.unread.iter()
    }

    /// The kinds of what belongs to it by a label, each once.
    pub fn related(&self) -> impl Iterator<Item = &ApiResource> {
        let related = self.children.iter().filter(|child| child.interest == Interest::Related);
        let mut named: Vec<&ApiResource> = Vec::new();
        for child in related {
            if !named.contains(&&child.resource) {
                named.push(&child.resource);
            }
        }
        named.into_iter()
    }

    /// Whether objects get a finalizer.
    pub fn cleans_up(&self) -> bool {
        !R::CLEANUP.is_empty()
    }

    /// The watches that it needs, the kind itself first.
    pub(crate) fn sources(&self, names: &Names) -> Vec<Arc<Source>> {
        let itself = Source::itself(self.resource.clone(), names);
        let children = self.children.iter().map(|Child { resource, interest, label, trim }| {
            let labels = label.clone().unwrap_or_else(|| names.selector());
            Source::children(resource.clone(), *interest, &self.resource.kind, names, labels).trimmed(*trim)
        });
        std::iter::once(itself).chain(children).map(Arc::new).collect()
    }

    /// Looks after the kind until `stop` is over, and then until the rounds under way have ended.
    pub(crate) async fn run(self: Arc<Self>, world: World, stop: impl Future<Output = ()> + Send + 'static) {
        let _memory = Memory::begin(self.clone());
        let World { client, names, sources, namespace, events, metrics } = world;
        let changes = watch::together(sources.clone(), &client, namespace.as_deref(), &metrics);
        let kind = self.clone();
        let changes = changes.inspect(move |change| match change {
            Change::Gone(key) => kind.reconciler.gone(key),
            Change::Touched(_) => {}
        });
        let changes = changes.take_until(Box::pin(stop));
        let mut sources = sources.into_iter();
        let Some(itself) = sources.next() else { return };
        let (children, unread) = (sources.collect(), self.unread.clone());
        let shared = Arc::new(Shared { client, names, itself, children, unread, events });
        let name = match R::Object::kind(&()) {
            Cow::Borrowed(name) => name,
            // Once a kind.
            Cow::Owned(name) => name.leak(),
        };
        let worker = Arc::new(Worker { kind: self.clone(), shared, conflicted: Mutex::default() });
        let controller = Controller { name, limits: self.limits, deadline: self.deadline };
        controller.run(changes, move |key| worker.clone().round(key), metrics.observer(name)).await;
    }
}

/// What a reconciler keeps of objects, which lasts for one term, however that ends.
struct Memory<R: Reconciler>(Arc<Kind<R>>);

impl<R: Reconciler> Memory<R> {
    fn begin(kind: Arc<Kind<R>>) -> Memory<R> {
        // A round of the last term may have been at work still when that was forgotten.
        kind.reconciler.forget();
        Memory(kind)
    }
}

impl<R: Reconciler> Drop for Memory<R> {
    fn drop(&mut self) {
        self.0.reconciler.forget();
    }
}

/// What a kind needs to be looked after.
pub(crate) struct World {
    pub client: Client,
    pub names: Names,
    pub sources: Vec<Arc<Source>>,
    pub namespace: Option<String>,
    pub events: Events,
    pub metrics: Metrics,
}

/// The shell around a reconciler.
struct Worker<R> {
    kind: Arc<Kind<R>>,
    shared: Arc<Shared>,
    /// Objects whose last round met a conflict: what the watch has told of them is not to be relied on.
    conflicted: Mutex<HashSet<Key>>,
}

/// As much of an object as any has.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Value,
}

impl<R: Reconciler> Worker<R> {
    async fn round(self: Arc<Self>, key: Key) -> Result<Option<Duration>, R::Error> {
        let ended = self.look_at(&key).await;
        // It may have gone meanwhile, and this round have kept something of it after that was told.
        if self.shared.itself.store().glance(&key).is_none() {
            self.kind.reconciler.gone(&key);
        }
        let conflict = matches!(&ended, Err(error) if error.class() == Class::Conflict);
        let mut conflicted = self.conflicted.lock().unwrap_or_else(PoisonError::into_inner);
        match conflict {
            true => conflicted.insert(key),
            false => conflicted.remove(&key),
        };
        ended
    }

    async fn look_at(&self, key: &Key) -> Result<Option<Duration>, R::Error> {
        let Some(text) = self.read(key).await? else { return Ok(None) };
        let named = || format!("{} {key}", self.kind.resource.kind);
        let unreadable = |source| Error::Unreadable { object: named(), source };
        let outline: Outline = serde_json::from_slice(&text).map_err(unreadable)?;
        let mut round = Round {
            shared: self.shared.clone(),
            key: key.clone(),
            meta: outline.metadata,
            status: outline.status,
            confirmed: AtomicBool::new(false),
        };
        let ended = match serde_json::from_slice(&text).map_err(unreadable) {
            Ok(object) => self.work(&object, &mut round).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = &ended {
            self.tell(error, &mut round).await;
        }
        match ended? {
            Next::Change => Ok(None),
            Next::After(delay) => Ok(Some(delay)),
        }
    }

    /// The object as it was last seen; after a conflict, as it is.
    async fn read(&self, key: &Key) -> Result<Option<Box<[u8]>>, Error> {
        let doubtful = self.conflicted.lock().unwrap_or_else(PoisonError::into_inner).contains(key);
        let known = self.shared.itself.store().get(key);
        if !doubtful || known.is_none() {
            return Ok(known.and_then(|held| held.text));
        }
        let api = self.shared.api(&self.kind.resource, &key.namespace);
        let found: Option<DynamicObject> = api.get_opt(&key.name).await.map_err(|source| Error::Api {
            doing: "reading",
            object: format!("{} {key}", self.kind.resource.kind),
            source,
        })?;
        Ok(found.and_then(|object| self.shared.learn(object)))
    }

    async fn work(&self, object: &R::Object, round: &mut Round) -> Result<Next, R::Error> {
        let name = format!("{}/{}", self.shared.names.domain, self.kind.resource.kind.to_lowercase());
        loop {
            match finalizer::stage(&round.meta, &name, R::CLEANUP) {
                Stage::Work => return self.kind.reconciler.reconcile(object, round).await,
                Stage::Leave => return Ok(Next::Change),
                Stage::Clean(step) => {
                    self.kind.reconciler.clean(step, object, round).await?;
                    round.dealt_with(&name, Stage::Clean(step)).await?;
                }
                Stage::Protect => round.dealt_with(&name, Stage::Protect).await?,
                Stage::Release => {
                    round.dealt_with(&name, Stage::Release).await?;
                    return Ok(Next::Change);
                }
            }
        }
    }

    /// Says what went wrong where a person looks. That this fails too is no news.
    async fn tell(&self, error: &R::Error, round: &mut Round) {
        if error.class() != Class::Conflict {
            round.event(Severity::Warning, "Failed", error.to_string());
        }
        let findings = self.kind.reconciler.findings(error);
        if !findings.is_empty()
            && let Err(error) = round.report(&findings).await
        {
            tracing::debug!(%error, "the failure could not be written into the status");
        }
    }
}
