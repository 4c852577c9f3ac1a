//! What is known of the objects of one kind, in as little memory as will do.
//!
//! Objects are held as text and decoded when they are worked on: ten thousand of them are then some
//! megabytes instead of some hundred, and one that can't be decoded is its own affair. Of children that
//! only need to be there, not even the text is held.
//!
//! What this process has written itself is entered from the API server's answer, so that it is known
//! before the watch tells of it, and is no news when it does.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::core::{DynamicObject, ObjectMeta};

use crate::controller::Key;

/// What is held of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Tells it from another of the same name.
    pub uid: Box<str>,
    /// Its resource version; zero where that is no number.
    pub version: u64,
    /// The name of the object that controls it, with its uid.
    pub owner: Option<Owner>,
    /// The name of the object that it belongs to by a label, where that is how it is found.
    pub member_of: Option<Box<str>>,
    /// Stands for what is not to change without a look: of a child, all that this operator has set on it;
    /// of an object for its own sake, all but its status as this operator wrote it.
    pub fingerprint: u64,
    /// What was applied last, and the fingerprint that it had then.
    pub applied: Option<Applied>,
    /// The object itself, where it is of interest.
    pub text: Option<Box<[u8]>>,
    /// The list in which it was seen last.
    round: u64,
}

/// Takes away what is of no interest, so that it costs no memory.
pub type Trim = fn(&mut DynamicObject);

/// Who controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, in the same namespace.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
}

/// What was applied last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// A hash of what was asked for.
    pub desired: u64,
    /// The fingerprint that the object had then.
    pub fingerprint: u64,
}

impl Held {
    /// An object for its own sake. Who has set which field is taken out of it: that is half of its size,
    /// and of no use to whoever reads it.
    pub fn itself(object: &mut DynamicObject, manager: &str) -> Held {
        let mut held = Held::new(&object.metadata, manager);
        let mut hasher = DefaultHasher::new();
        for entry in object.metadata.managed_fields.take().iter().flatten() {
            let status = entry.subresource.as_deref() == Some("status");
            if let Some(fields) = entry.fields_v1.as_ref()
                && status
                && entry.manager.as_deref() != Some(manager)
            {
                fields.0.to_string().hash(&mut hasher);
            }
        }
        held.text = serde_json::to_vec(&*object).ok().map(Vec::into_boxed_slice);
        let version = object.metadata.resource_version.take();
        let status = object.data.as_object_mut().and_then(|fields| fields.remove("status"));
        // An object can always be written as JSON; where it can't, each change is news.
        serde_json::to_string(&*object).unwrap_or_else(|_| format!("{version:?}")).hash(&mut hasher);
        if let (Some(status), Some(fields)) = (status, object.data.as_object_mut()) {
            fields.insert("status".to_owned(), status);
        }
        object.metadata.resource_version = version;
        held.fingerprint = hasher.finish();
        held
    }

    /// A child whose content matters, as far as `trim` leaves it.
    pub fn content(object: &mut DynamicObject, manager: &str, trim: Option<Trim>) -> Held {
        let mut held = Held::new(&object.metadata, manager);
        object.metadata.managed_fields = None;
        if let Some(trim) = trim {
            trim(object);
        }
        held.text = serde_json::to_vec(&*object).ok().map(Vec::into_boxed_slice);
        held
    }

    /// Somebody else's object that belongs to one of ours by a label. What is not to change without a
    /// look is what `trim` leaves of it.
    pub fn related(object: &mut DynamicObject, label: &str, trim: Option<Trim>) -> Held {
        let mut held = Held::content(object, "", trim);
        let labels = object.metadata.labels.as_ref();
        held.member_of = labels.and_then(|labels| labels.get(label)).map(|name| name.as_str().into());
        let version = object.metadata.resource_version.take();
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(&*object).unwrap_or_else(|_| format!("{version:?}")).hash(&mut hasher);
        object.metadata.resource_version = version;
        held.fingerprint = hasher.finish();
        held
    }

    /// A child, from its metadata, as seen by this field manager.
    pub fn new(meta: &ObjectMeta, manager: &str) -> Held {
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        Held {
            uid: meta.uid.clone().unwrap_or_default().into(),
            version: version.unwrap_or_default(),
            owner: owner.map(|owner| Owner {
                name: owner.name.as_str().into(),
                uid: owner.uid.as_str().into(),
                kind: owner.kind.as_str().into(),
            }),
            member_of: None,
            fingerprint: fingerprint(meta, manager),
            applied: None,
            text: None,
            round: 0,
        }
    }
}

/// The API server keeps account of who has set which field. A field that somebody else changes is
/// no longer ours, so the account of our fields tells of every change to one of them, and of none to any
/// other: drift is seen without the content, and without a request.
fn fingerprint(meta: &ObjectMeta, manager: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    meta.uid.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    for entry in meta.managed_fields.iter().flatten() {
        let ours = entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty();
        if let Some(fields) = entry.fields_v1.as_ref().filter(|_| ours) {
            fields.0.to_string().hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// What became of something that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was known.
    None,
    /// It is not what it was, but all that this operator has set on it is.
    Beside,
    /// It is new, another one, or changed in what this operator has set.
    Changed,
}

/// The objects of one kind.
#[derive(Debug, Default)]
pub struct Store {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    held: HashMap<Key, Held>,
    /// Those that belong to an object by a label.
    members: HashMap<Key, BTreeSet<Box<str>>>,
    /// Uids of those that this process has applied and that have left its sight: gone, or robbed of the
    /// label by which they are found.
    departed: HashMap<Key, Box<str>>,
    /// Uids of those that turned out to be somebody else's.
    strangers: HashMap<Key, Box<str>>,
    round: u64,
    listing: bool,
}

/// So many of the departed, and so many strangers, are remembered.
const REMEMBERED: usize = 1024;

fn remember(uids: &mut HashMap<Key, Box<str>>, key: &Key, uid: &str) {
    if uids.len() >= REMEMBERED {
        uids.clear();
    }
    uids.insert(key.clone(), uid.into());
}

impl Inner {
    fn insert(&mut self, key: Key, held: Held) {
        let before = self.held.get(&key).and_then(|known| known.member_of.clone());
        if before != held.member_of {
            self.leave(&key, before);
            if let Some(name) = &held.member_of {
                let owner = Key { namespace: key.namespace.clone(), name: name.to_string() };
                self.members.entry(owner).or_default().insert(key.name.as_str().into());
            }
        }
        self.held.insert(key, held);
    }

    fn leave(&mut self, key: &Key, member_of: Option<Box<str>>) {
        let Some(name) = member_of else { return };
        let owner = Key { namespace: key.namespace.clone(), name: name.into_string() };
        if let Some(names) = self.members.get_mut(&owner) {
            names.remove(key.name.as_str());
            if names.is_empty() {
                self.members.remove(&owner);
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Held> {
        let held = self.held.remove(key)?;
        self.leave(key, held.member_of.clone());
        if held.applied.is_some() {
            remember(&mut self.departed, key, &held.uid);
        }
        Some(held)
    }
}

impl Store {
    /// A list begins. What it does not name is gone when it ends.
    pub fn list_begins(&self) {
        let mut inner = self.write();
        inner.round += 1;
        inner.listing = true;
    }

    /// The list has ended: what is gone?
    pub fn list_ended(&self) -> Vec<(Key, Held)> {
        let mut inner = self.write();
        inner.listing = false;
        let round = inner.round;
        let gone: Vec<Key> =
            inner.held.iter().filter(|(_, held)| held.round != round).map(|(key, _)| key.clone()).collect();
        gone.into_iter().filter_map(|key| inner.remove(&key).map(|held| (key, held))).collect()
    }

    /// An object was seen, in a list or by a watch.
    pub fn seen(&self, key: Key, mut held: Held) -> News {
        let mut inner = self.write();
        held.round = inner.round;
        let listing = inner.listing;
        let Some(known) = inner.held.get_mut(&key) else {
            inner.insert(key, held);
            return News::Changed;
        };
        // A watch can be behind what we wrote ourselves. A list is believed as it is: after a restore of
        // the API server's own storage, versions begin lower than they were.
        let old = known.uid == held.uid && held.version != 0 && held.version < known.version;
        if known.uid == held.uid && held.version == known.version || old && !listing {
            known.round = held.round;
            return News::None;
        }
        let changed = known.uid != held.uid || known.fingerprint != held.fingerprint;
        held.applied = known.applied.filter(|_| known.uid == held.uid);
        // Who takes the owner reference away must not take the child away from its owner's sight.
        if held.owner.is_none() {
            held.owner = known.owner.take();
        }
        inner.insert(key, held);
        if changed { News::Changed } else { News::Beside }
    }

    /// The API server has answered a write of ours with this.
    pub fn wrote(&self, key: Key, mut held: Held) {
        let mut inner = self.write();
        held.round = inner.round;
        inner.departed.remove(&key);
        inner.strangers.remove(&key);
        match inner.held.get(&key) {
            Some(known) if known.uid == held.uid && known.version > held.version => {}
            _ => inner.insert(key, held),
        }
    }

    /// A watch says that an object is gone. Another of the same name may be there already.
    pub fn gone(&self, key: &Key, uid: &str) -> Option<Held> {
        let mut inner = self.write();
        match inner.held.get(key) {
            Some(known) if *known.uid == *uid => inner.remove(key),
            _ => None,
        }
    }

    /// Whether this is one that this process has applied and lost sight of.
    pub fn departed(&self, key: &Key, uid: &str) -> bool {
        self.read().departed.get(key).is_some_and(|known| **known == *uid)
    }

    /// What has this name is somebody else's.
    pub fn met(&self, key: &Key, uid: &str) {
        remember(&mut self.write().strangers, key, uid);
    }

    /// The uid of what has this name and is somebody else's.
    pub fn stranger(&self, key: &Key) -> Option<Box<str>> {
        self.read().strangers.get(key).cloned()
    }

    /// What is held of an object.
    pub fn get(&self, key: &Key) -> Option<Held> {
        self.read().held.get(key).cloned()
    }

    /// The same without the text, for those who need only to know that it is there.
    pub fn glance(&self, key: &Key) -> Option<Held> {
        let inner = self.read();
        inner.held.get(key).map(|held| Held {
            uid: held.uid.clone(),
            owner: held.owner.clone(),
            member_of: held.member_of.clone(),
            text: None,
            ..*held
        })
    }

    /// Those that belong to an object by a label, in the order of their names.
    pub fn members(&self, owner: &Key) -> Vec<Held> {
        let inner = self.read();
        let names = inner.members.get(owner).into_iter().flatten();
        let key = |name: &str| Key { namespace: owner.namespace.clone(), name: name.to_owned() };
        names.filter_map(|name| inner.held.get(&key(name)).cloned()).collect()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<Key> {
        self.read().held.keys().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().held.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // What is under the lock is whole at every moment, also if somebody panicked while holding it.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "default".into(), name: name.into() }
    }

    fn meta(uid: &str, version: u64, ours: &str) -> ObjectMeta {
        serde_json::from_value(json!({
            "uid": uid, "resourceVersion": version.to_string(),
            "ownerReferences": [
                {"apiVersion": "example.dev/v1", "kind": "Greeting", "name": "o", "uid": "9", "controller": true}
            ],
            "managedFields": [
                {"manager": "us", "operation": "Apply", "fieldsV1": {"f:data": {ours: {}}}},
                {"manager": "us", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:x": version}},
                {"manager": "them", "operation": "Update", "fieldsV1": {"f:y": version}}
            ]
        }))
        .unwrap()
    }

    fn held(uid: &str, version: u64, ours: &str) -> Held {
        Held::new(&meta(uid, version, ours), "us")
    }

    #[test]
    fn a_change_to_what_we_have_set_is_told_from_any_other() {
        let store = Store::default();
        assert_eq!(store.seen(key("a"), held("1", 1, "f:text")), News::Changed);
        assert_eq!(store.seen(key("a"), held("1", 1, "f:text")), News::None);
        assert_eq!(store.seen(key("a"), held("1", 2, "f:text")), News::Beside);
        assert_eq!(store.seen(key("a"), held("1", 3, "f:other")), News::Changed);
        assert_eq!(store.seen(key("a"), held("2", 4, "f:other")), News::Changed, "another of that name");
    }

    #[test]
    fn a_status_of_our_own_is_no_reason_to_look_and_somebody_elses_is() {
        let object = |version: u64, name: &str, status: &str, by: &str| {
            let mut object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "example.dev/v1", "kind": "Greeting",
                "metadata": {
                    "uid": "1", "resourceVersion": version.to_string(),
                    "managedFields": [
                        {"manager": by, "operation": "Update", "subresource": "status", "fieldsV1": {status: {}}}
                    ]
                },
                "spec": {"name": name}, "status": {"text": status}
            }))
            .unwrap();
            Held::itself(&mut object, "us")
        };
        let store = Store::default();
        store.seen(key("a"), object(1, "x", "", "us"));
        assert_eq!(store.seen(key("a"), object(2, "x", "ready", "us")), News::Beside);
        assert_eq!(store.seen(key("a"), object(3, "x", "nonsense", "them")), News::Changed);
        store.seen(key("a"), object(4, "x", "ready", "us"));
        assert_eq!(store.seen(key("a"), object(5, "y", "ready", "us")), News::Changed);
        let text = store.get(&key("a")).unwrap().text.unwrap();
        let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&text["status"]["text"], &text["metadata"]["resourceVersion"]),
            (&json!("ready"), &json!("5"))
        );
    }

    #[test]
    fn what_we_wrote_is_no_news_and_what_is_older_is_not_believed() {
        let store = Store::default();
        store.seen(key("a"), held("1", 5, "f:old"));
        store.wrote(key("a"), held("1", 7, "f:new"));
        assert_eq!(store.seen(key("a"), held("1", 6, "f:old")), News::None);
        assert_eq!(store.seen(key("a"), held("1", 7, "f:new")), News::None);
        store.wrote(key("a"), held("1", 3, "f:late"));
        assert_eq!(store.get(&key("a")).unwrap().version, 7);
    }

    #[test]
    fn a_list_says_what_is_gone_but_not_of_what_was_written_meanwhile() {
        let store = Store::default();
        store.seen(key("stays"), held("1", 1, "f:x"));
        store.seen(key("goes"), held("2", 2, "f:x"));
        store.list_begins();
        store.seen(key("stays"), held("1", 1, "f:x"));
        store.wrote(key("made"), held("3", 9, "f:x"));
        let gone: Vec<String> = store.list_ended().into_iter().map(|(key, _)| key.name).collect();
        assert_eq!(gone, ["goes"]);
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn after_a_restore_of_the_api_servers_storage_a_list_with_lower_versions_is_believed() {
        let store = Store::default();
        store.seen(key("a"), held("1", 100, "f:new"));
        store.list_begins();
        assert_eq!(store.seen(key("a"), held("1", 40, "f:old")), News::Changed);
        assert_eq!(store.get(&key("a")).unwrap().version, 40);
    }

    #[test]
    fn the_end_of_one_is_not_the_end_of_another_with_its_name() {
        let store = Store::default();
        store.seen(key("a"), held("1", 1, "f:x"));
        store.wrote(key("a"), held("2", 5, "f:x"));
        assert_eq!(store.gone(&key("a"), "1"), None);
        assert!(store.gone(&key("a"), "2").is_some() && store.is_empty());
    }

    #[test]
    fn members_are_found_by_label_told_of_only_when_what_is_kept_changes_and_may_move() {
        let pod = |version: u64, of: &str, phase: &str, noise: u64| {
            let mut object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "uid": "1", "namespace": "default", "resourceVersion": version.to_string(),
                    "labels": {"example.dev/greeting": of}
                },
                "status": {"phase": phase}, "noise": noise
            }))
            .unwrap();
            let trim: Trim = |object| drop(object.data.as_object_mut().unwrap().remove("noise"));
            Held::related(&mut object, "example.dev/greeting", Some(trim))
        };
        let store = Store::default();
        assert_eq!(store.seen(key("p"), pod(1, "a", "Pending", 1)), News::Changed);
        assert_eq!(store.seen(key("p"), pod(2, "a", "Pending", 2)), News::Beside);
        assert_eq!(store.seen(key("p"), pod(3, "a", "Running", 2)), News::Changed);
        let text = |held: &Held| String::from_utf8(held.text.clone().unwrap().into_vec()).unwrap();
        let members = store.members(&key("a"));
        assert!(members.len() == 1 && text(&members[0]).contains("Running"), "{members:?}");
        assert!(!text(&members[0]).contains("noise") && store.members(&key("b")).is_empty());

        store.seen(key("p"), pod(4, "b", "Running", 2));
        assert!(store.members(&key("a")).is_empty() && store.members(&key("b")).len() == 1);
        store.gone(&key("p"), "1");
        assert!(store.members(&key("b")).is_empty());
    }

    #[test]
    fn who_takes_the_owner_reference_away_does_not_hide_the_child_from_its_owner() {
        let store = Store::default();
        store.seen(key("a"), held("1", 1, "f:x"));
        let mut orphan = meta("1", 2, "f:y");
        orphan.owner_references = None;
        assert_eq!(store.seen(key("a"), Held::new(&orphan, "us")), News::Changed);
        assert_eq!(&*store.get(&key("a")).unwrap().owner.unwrap().name, "o");
    }
}
