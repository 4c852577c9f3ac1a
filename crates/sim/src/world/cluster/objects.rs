//! The objects of the API server, but for the Lease and the EndpointSlice: each with a uid, a version that changes with
//! every write, and its owner. Who watches hears of each change.
//!
//! Left out: namespaces, field managers and other writers of the operator's children. Services, rights and the like are
//! there or not, and hold nothing.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::{InstanceSettings, Report};
use keelson_api::v1::{DatabaseSpec, DatabaseStatus};
use keelson_api::value::Size;
use keelson_operator::database::orders::Child;
use kube::core::ObjectMeta;

use super::super::World;
use super::super::queue::Micros;

/// What kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The Database.
    Database,
    /// The Secrets, all together.
    Secrets,
    /// One of its children.
    Child(Child),
    /// A pod.
    Pod,
    /// The claim of a volume.
    Claim,
}

/// Which object: of which kind, and for pods and claims the ordinal.
pub type Key = (Kind, u32);

/// The Database.
pub const DATABASE: Key = (Kind::Database, 0);
/// The StatefulSet.
pub const SET: Key = (Kind::Child(Child::Set), 0);
/// What agents are told.
pub const CONFIG: Key = (Kind::Child(Child::Config), 0);

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    pub uid: u64,
    pub version: u64,
    pub owner: Option<u64>,
    pub made: Micros,
    /// Whether it is on its way out.
    pub deleting: bool,
    pub what: What,
}

/// What is in it.
#[derive(Clone, Debug)]
pub enum What {
    Database(Box<DatabaseObject>),
    Config(Box<InstanceSettings>),
    Set(SetObject),
    Pod(Box<PodObject>),
    Claim(ClaimObject),
    /// Nothing that matters.
    Other,
}

/// A Database.
#[derive(Clone, Debug)]
pub struct DatabaseObject {
    pub spec: DatabaseSpec,
    pub generation: i64,
    pub adopt: bool,
    pub status: DatabaseStatus,
    pub finalizers: Vec<String>,
    pub notes: BTreeMap<String, String>,
}

/// A StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct SetObject {
    pub pods: u32,
    /// The size of new volumes, and the Database that they are for.
    pub storage: Size,
    pub database: u64,
    /// What pods are made for, and the version that they run.
    pub asked: String,
    pub version: String,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct PodObject {
    /// Which one of that name on its machine.
    pub incarnation: u32,
    pub ready: bool,
    /// Whether its volumes are there.
    pub mounted: bool,
    pub asked: String,
    pub version: String,
    pub restart: Option<String>,
    pub report: Option<Rc<Report>>,
}

/// A claim.
#[derive(Clone, Debug)]
pub struct ClaimObject {
    pub database: u64,
    pub adopted: bool,
    pub requested: Size,
    pub bound: bool,
}

/// All objects.
#[derive(Debug, Default)]
pub struct Objects {
    pub all: BTreeMap<Key, Rc<Stored>>,
    /// What was there before each of the last changes, for lists that are of the past.
    past: VecDeque<(Key, Option<Rc<Stored>>)>,
}

/// So many changes are remembered.
const REMEMBERED: usize = 40;

impl Objects {
    pub fn get(&self, key: Key) -> Option<&Rc<Stored>> {
        self.all.get(&key)
    }

    pub fn database(&self) -> Option<&DatabaseObject> {
        self.get(DATABASE)?.database()
    }

    pub fn set(&self) -> Option<&SetObject> {
        self.get(SET)?.set()
    }

    pub fn pod(&self, ordinal: u32) -> Option<&PodObject> {
        self.get((Kind::Pod, ordinal))?.pod()
    }

    /// All of a kind, by ordinal.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = (u32, &Rc<Stored>)> {
        self.all.range((kind, 0)..=(kind, u32::MAX)).map(|((_, ordinal), stored)| (*ordinal, stored))
    }

    /// What was there so many changes ago.
    pub fn before(&self, changes: usize) -> BTreeMap<Key, Rc<Stored>> {
        let mut all = self.all.clone();
        for (key, old) in self.past.iter().rev().take(changes) {
            match old {
                Some(old) => all.insert(*key, old.clone()),
                None => all.remove(key),
            };
        }
        all
    }

    fn remember(&mut self, key: Key, old: Option<Rc<Stored>>) {
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back((key, old));
    }
}

impl Stored {
    pub fn database(&self) -> Option<&DatabaseObject> {
        if let What::Database(database) = &self.what { Some(database) } else { None }
    }

    pub fn set(&self) -> Option<&SetObject> {
        if let What::Set(set) = &self.what { Some(set) } else { None }
    }

    pub fn pod(&self) -> Option<&PodObject> {
        if let What::Pod(pod) = &self.what { Some(pod) } else { None }
    }

    pub fn claim(&self) -> Option<&ClaimObject> {
        if let What::Claim(claim) = &self.what { Some(claim) } else { None }
    }

    /// The metadata of a Database, as far as its clean-up goes.
    pub fn meta(&self) -> ObjectMeta {
        let database = self.database();
        ObjectMeta {
            finalizers: database.map(|it| it.finalizers.clone()),
            annotations: database.map(|it| it.notes.clone()),
            deletion_timestamp: self.deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        }
    }
}

impl World {
    fn next_version(&mut self) -> u64 {
        self.api.version += 1;
        self.api.version
    }

    /// An object is made.
    pub(super) fn make(&mut self, key: Key, owner: Option<u64>, what: What) -> u64 {
        let (uid, made) = (self.next_version(), self.now);
        self.write_object(key, Stored { uid, version: 0, owner, made, deleting: false, what });
        uid
    }

    /// An object is changed, if it is there.
    pub(super) fn change(&mut self, key: Key, change: impl FnOnce(&mut Stored)) {
        let found = self.cluster.as_ref().and_then(|cluster| cluster.objects.get(key));
        if let Some(mut stored) = found.map(|found| Stored::clone(found)) {
            change(&mut stored);
            self.write_object(key, stored);
        }
    }

    fn write_object(&mut self, key: Key, mut stored: Stored) {
        stored.version = self.next_version();
        let stored = Rc::new(stored);
        self.api.changed = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let old = cluster.objects.all.insert(key, stored.clone());
        cluster.objects.remember(key, old);
        self.tell_operator(key, Ok(stored));
        self.object_changed(key);
    }

    /// An object is gone.
    pub(super) fn erase(&mut self, key: Key) {
        let Some(cluster) = &mut self.cluster else { return };
        let Some(old) = cluster.objects.all.remove(&key) else { return };
        let uid = old.uid;
        cluster.objects.remember(key, Some(old));
        self.api.changed = self.now;
        self.tell_operator(key, Err(uid));
        self.object_changed(key);
    }
}
