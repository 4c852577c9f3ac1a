//! Watching the objects of a kind, and those that belong to them.
//!
//! A [`Source`] is one watch: of the kind itself, of children whose content matters, or of children that
//! only need to be there as they were applied. It keeps a [`Store`] up to date and says which objects need
//! a look. A watch that breaks begins again by itself, later each time; [`Source::alive`] tells the truth
//! about it.

mod held;
mod store;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::{DynamicResourceScope, ObjectMeta};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};

use crate::controller::{Change, Key};
use crate::desired::Names;
use crate::retry;
use crate::telemetry::Metrics;

pub use held::{Applied, Held, Left, Owner, Trim, Uid};
pub use store::{News, Store};

/// A watch may be broken for so long before it is said to be.
const GRACE: Duration = Duration::from_secs(30);

/// So many objects are read at a time: whole, as they come, they take ten times the memory of what is held.
const PAGE: u32 = 100;

/// What is done with the objects that a watch tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// They are what the controller is for.
    Itself,
    /// They are children, and what is in them matters: every change of one is a reason to look.
    Content,
    /// They are children that need to be as they were applied: a change to that is a reason to look.
    Presence,
    /// They belong to an object by a label that names it: a change to what is kept of them is a reason to
    /// look.
    Related,
}

/// One watch, and what it has found so far.
#[derive(Debug)]
pub struct Source {
    resource: ApiResource,
    interest: Interest,
    /// The kind whose children these are.
    owner_kind: String,
    /// How this operator names what is its own.
    names: Names,
    /// Only objects with these labels. Of those that are related, this is the label that names whom they
    /// belong to.
    labels: Option<String>,
    /// What is not kept of them.
    trim: Option<Trim>,
    /// What is known.
    store: Arc<Store>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    synced: bool,
    failing: Option<(Instant, String)>,
}

impl Source {
    /// A watch of a kind for its own sake.
    pub fn itself(resource: ApiResource, names: &Names) -> Source {
        let owner_kind = resource.kind.clone();
        Source::new(resource, Interest::Itself, owner_kind, names, None)
    }

    /// A watch of children, found by their labels.
    pub fn children(
        resource: ApiResource,
        interest: Interest,
        owner_kind: &str,
        names: &Names,
        labels: String,
    ) -> Source {
        Source::new(resource, interest, owner_kind.to_owned(), names, Some(labels))
    }

    fn new(
        resource: ApiResource,
        interest: Interest,
        owner_kind: String,
        names: &Names,
        labels: Option<String>,
    ) -> Source {
        Source {
            resource,
            interest,
            owner_kind,
            names: names.clone(),
            labels,
            trim: None,
            store: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Keeps only what this leaves of each object.
    pub fn trimmed(mut self, trim: Option<Trim>) -> Source {
        self.trim = trim;
        self
    }

    /// What is held of an object of this kind.
    pub(crate) fn hold(&self, object: &mut DynamicObject) -> Held {
        match self.interest {
            Interest::Itself => Held::itself(object, &self.names),
            Interest::Content => Held::content(object, &self.names, self.trim),
            Interest::Related => {
                let label = self.labels.as_deref().unwrap_or_default();
                Held::related(object, label, &self.names, self.trim)
            }
            Interest::Presence => Held::new(&object.metadata, &self.names.manager),
        }
    }

    /// The kind that is watched.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// The labels that its objects have.
    pub fn labels(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    /// What is known.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Why it is watched.
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Whether all there was has been seen once.
    pub fn synced(&self) -> bool {
        self.state().synced
    }

    /// Whether it sees what happens: nothing to say, or what is wrong.
    pub fn alive(&self) -> Result<(), String> {
        let kind = &self.resource.kind;
        let state = self.state();
        match &state.failing {
            Some((since, why)) if !state.synced || since.elapsed() > GRACE => {
                Err(format!("{kind} can't be watched for {} s: {why}", since.elapsed().as_secs()))
            }
            None if !state.synced => Err(format!("{kind}: not everything has been seen yet")),
            _ => Ok(()),
        }
    }

    /// Watches for ever, in the given namespace or in all.
    fn notices(
        self: Arc<Self>,
        client: Client,
        namespace: Option<&str>,
        metrics: &Metrics,
    ) -> BoxStream<'static, Notice> {
        match self.interest {
            Interest::Itself | Interest::Content | Interest::Related => {
                self.watch(client, namespace, metrics, |source: &Source, object| source.hold(object))
            }
            Interest::Presence => {
                let presence = |source: &Source, object: &mut PartialObjectMeta<DynamicObject>| {
                    let held = Held::new(&object.metadata, &source.names.manager);
                    held.with_left(&object.metadata, &source.names)
                };
                self.watch(client, namespace, metrics, presence)
            }
        }
    }

    fn watch<K>(
        self: Arc<Self>,
        client: Client,
        namespace: Option<&str>,
        metrics: &Metrics,
        hold: fn(&Source, &mut K) -> Held,
    ) -> BoxStream<'static, Notice>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let api: Api<K> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        };
        let config = self
            .labels
            .iter()
            .fold(watcher::Config::default().page_size(PAGE), |config, labels| config.labels(labels));
        let metrics = metrics.clone();
        watcher(api, config)
            .backoff(Pauses(0))
            .flat_map(move |event| {
                if event.is_err() {
                    metrics.watch_restarted(&self.resource.kind);
                }
                futures::stream::iter(self.take_in(event, hold))
            })
            .boxed()
    }

    fn take_in<K: Resource>(
        &self,
        event: watcher::Result<watcher::Event<K>>,
        hold: fn(&Source, &mut K) -> Held,
    ) -> Vec<Notice> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(kind = self.resource.kind, error = why, "a watch was interrupted");
                self.state().failing.get_or_insert((Instant::now(), why));
                return Vec::new();
            }
        };
        self.state().failing = None;
        match event {
            watcher::Event::Init => {
                self.store.list_begins();
                Vec::new()
            }
            watcher::Event::InitDone => {
                self.state().synced = true;
                let gone = self.store.list_ended();
                let changes = gone.into_iter().filter_map(|(key, held)| self.vanished(key, &held));
                changes.map(Notice::Change).chain([Notice::Listed]).collect()
            }
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                self.appeared(object, hold).into_iter().map(Notice::Change).collect()
            }
            watcher::Event::Delete(object) => {
                let key = key_of(object.meta());
                let held = self.store.gone(&key, Uid::new(object.meta().uid.as_deref().unwrap_or_default()));
                let change = held.and_then(|held| self.vanished(key, &held));
                change.map(Notice::Change).into_iter().collect()
            }
        }
    }

    fn appeared<K: Resource>(&self, mut object: K, hold: fn(&Source, &mut K) -> Held) -> Vec<Change> {
        let held = hold(self, &mut object);
        let key = key_of(object.meta());
        if self.interest == Interest::Related {
            return self.related(key, held);
        }
        let owner = held.owner.clone();
        let news = self.store.seen(key.clone(), held);
        let change = match self.interest {
            Interest::Itself if news == News::Changed => Some(Change::Touched(key)),
            Interest::Content if news != News::None => self.owner(&key, owner),
            Interest::Presence if news == News::Changed => self.owner(&key, owner),
            _ => None,
        };
        change.into_iter().collect()
    }

    /// Something that came to belong to another is news to both.
    fn related(&self, key: Key, held: Held) -> Vec<Change> {
        let now = belongs_to(&key, &held);
        let before = self.store.glance(&key).and_then(|known| belongs_to(&key, &known));
        match self.store.seen(key, held) {
            News::Changed if before == now => now.into_iter().collect(),
            News::Changed => before.into_iter().chain(now).collect(),
            News::None | News::Beside => Vec::new(),
        }
    }

    fn vanished(&self, key: Key, held: &Held) -> Option<Change> {
        match self.interest {
            Interest::Related => belongs_to(&key, held),
            Interest::Itself => Some(Change::Gone(key)),
            Interest::Content | Interest::Presence => self.owner(&key, held.owner.clone()),
        }
    }

    fn owner(&self, child: &Key, seen: Option<Owner>) -> Option<Change> {
        let owner = seen.or_else(|| self.store.glance(child)?.owner)?;
        let name = owner.name.into_string();
        (*owner.kind == *self.owner_kind)
            .then(|| Change::Touched(Key { namespace: child.namespace.clone(), name }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom a related object belongs to.
fn belongs_to(key: &Key, held: &Held) -> Option<Change> {
    let name = held.member_of.as_ref()?.to_string();
    Some(Change::Touched(Key { namespace: key.namespace.clone(), name }))
}

/// The key of an object.
pub fn key_of(meta: &ObjectMeta) -> Key {
    Key { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
}

/// Changes of several watches as one stream that is silent until each has seen all there is: a child that
/// has not been listed yet must not be taken for one that is missing.
pub fn together(
    sources: Vec<Arc<Source>>,
    client: &Client,
    namespace: Option<&str>,
    metrics: &Metrics,
) -> BoxStream<'static, Change> {
    let notices = sources.iter().map(|source| source.clone().notices(client.clone(), namespace, metrics));
    let notices: Vec<_> = notices.collect();
    let mut open = false;
    futures::stream::select_all(notices)
        .flat_map(move |notice| {
            let changes = match notice {
                Notice::Change(change) if open => vec![change],
                Notice::Listed if !open && sources.iter().all(|source| source.synced()) => {
                    open = true;
                    let itself = sources.iter().filter(|source| source.interest == Interest::Itself);
                    itself.flat_map(|source| source.store.keys()).map(Change::Touched).collect()
                }
                Notice::Change(_) | Notice::Listed => Vec::new(),
            };
            futures::stream::iter(changes)
        })
        .boxed()
}

/// What a watch has to say.
enum Notice {
    /// Something needs a look.
    Change(Change),
    /// Everything there was has been seen.
    Listed,
}

/// The pauses between tries of a watch that does not come about.
struct Pauses(u32);

const PAUSES: retry::Backoff =
    retry::Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0.saturating_add(1);
        Some(PAUSES.delay(self.0, fastrand::f64()))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0 = 0;
    }
}
