//! What is known of the objects of one kind, in as little memory as will do.
//!
//! Objects are held as text and decoded when they are worked on: ten thousand of them are then some
//! megabytes instead of some hundred, and one that can't be decoded is its own affair. Of children that
//! only need to be there, not even the text is held.
//!
//! What this process has written itself is entered from the API server's answer, so that it is known
//! before the watch tells of it, and is no news when it does.

use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::held::{Applied, Held, Uid};
use crate::controller::Key;

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
    held: HashMap<Key, Box<Held>>,
    /// Those that belong to an object by a label, or that name it.
    members: HashMap<Key, BTreeSet<Box<str>>>,
    /// Uids of those that this process has applied and that have left its sight: gone, or robbed of the
    /// label by which they are found.
    departed: HashMap<Key, Uid>,
    /// Uids of those that a watch has told the end of.
    ended: HashMap<Key, Uid>,
    /// Uids of those that turned out to be somebody else's.
    strangers: HashMap<Key, Uid>,
    round: u64,
    listing: bool,
}

/// So many of the departed, and so many strangers, are remembered.
const REMEMBERED: usize = 1024;

fn remember(uids: &mut HashMap<Key, Uid>, key: &Key, uid: Uid) {
    if uids.len() >= REMEMBERED {
        uids.clear();
    }
    uids.insert(key.clone(), uid);
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
        self.held.insert(key, Box::new(held));
    }

    fn wrote(&mut self, key: Key, mut held: Held) {
        held.round = self.round;
        self.departed.remove(&key);
        self.strangers.remove(&key);
        match self.held.get(&key) {
            Some(known) if known.uid == held.uid && known.version > held.version => {}
            _ => self.insert(key, held),
        }
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
        let held = *self.held.remove(key)?;
        self.leave(key, held.member_of.clone());
        if held.applied.is_some() {
            remember(&mut self.departed, key, held.uid);
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
        // A watch can be behind what we wrote ourselves, and tell of one that was there before. A list is believed
        // as it is: after a restore of the API server's own storage, versions begin lower than they were.
        let old = held.version != 0 && held.version < known.version;
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
        if held.applied.is_some() {
            held.left = None;
        }
        inner.insert(key, held);
        if changed { News::Changed } else { News::Beside }
    }

    /// The API server has answered a write of ours with this.
    pub fn wrote(&self, key: Key, held: Held) {
        self.write().wrote(key, held);
    }

    /// The same, of an object that no longer belongs here once a watch has told of its end: that may come before the
    /// answer to a write that was made earlier, and what was entered then would stay.
    pub fn wrote_if_there(&self, key: Key, held: Held) {
        let mut inner = self.write();
        if inner.ended.get(&key) != Some(&held.uid) {
            inner.wrote(key, held);
        }
    }

    /// A child has been found to be as it was applied.
    pub fn confirm(&self, key: &Key, applied: Applied) {
        if let Some(held) =
            self.write().held.get_mut(key).filter(|held| held.fingerprint == applied.fingerprint)
        {
            held.applied = Some(applied);
            held.left = None;
        }
    }

    /// A watch says that an object is gone. Another of the same name may be there already.
    pub fn gone(&self, key: &Key, uid: Uid) -> Option<Held> {
        let mut inner = self.write();
        remember(&mut inner.ended, key, uid);
        match inner.held.get(key) {
            Some(known) if known.uid == uid => inner.remove(key),
            _ => None,
        }
    }

    /// Whether this is one that this process has applied and lost sight of.
    pub fn departed(&self, key: &Key, uid: Uid) -> bool {
        self.read().departed.get(key) == Some(&uid)
    }

    /// What has this name is somebody else's.
    pub fn met(&self, key: &Key, uid: Uid) {
        remember(&mut self.write().strangers, key, uid);
    }

    /// The uid of what has this name and is somebody else's.
    pub fn stranger(&self, key: &Key) -> Option<Uid> {
        self.read().strangers.get(key).copied()
    }

    /// What is held of an object.
    pub fn get(&self, key: &Key) -> Option<Held> {
        self.read().held.get(key).map(|held| Held::clone(held))
    }

    /// The same without the text, for those who need only to know that it is there.
    pub fn glance(&self, key: &Key) -> Option<Held> {
        let inner = self.read();
        inner.held.get(key).map(|held| Held {
            uid: held.uid,
            version: held.version,
            owner: held.owner.clone(),
            member_of: held.member_of.clone(),
            fingerprint: held.fingerprint,
            applied: held.applied,
            left: held.left.clone(),
            text: None,
            round: held.round,
        })
    }

    /// Those that belong to an object by a label, in the order of their names.
    pub fn members(&self, owner: &Key) -> Vec<Held> {
        let inner = self.read();
        let names = inner.members.get(owner).into_iter().flatten();
        let key = |name: &str| Key { namespace: owner.namespace.clone(), name: name.to_owned() };
        names.filter_map(|name| inner.held.get(&key(name))).map(|held| Held::clone(held)).collect()
    }

    /// The names of those that belong to an object by a label, or that name it.
    pub fn member_names(&self, owner: &Key) -> Vec<String> {
        self.read().members.get(owner).into_iter().flatten().map(|name| name.to_string()).collect()
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
mod tests;
