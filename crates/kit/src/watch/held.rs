//! What is held of one object.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use kube::core::{DynamicObject, ObjectMeta};
use serde_json::Value;

use crate::desired::Names;

/// What is held of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Tells it from another of the same name.
    pub uid: Uid,
    /// Its resource version; zero where that is no number.
    pub version: u64,
    /// The name of the object that controls it, with its uid.
    pub owner: Option<Owner>,
    /// The name of the object that it belongs to by a label, where that is how it is found; of an object for its own
    /// sake, the name of the one that it refers to.
    pub member_of: Option<Box<str>>,
    /// Stands for what is not to change without a look: of a child, all that this operator has set on it;
    /// of an object for its own sake, all but its status as this operator wrote it.
    pub fingerprint: u64,
    /// What was applied last by this process, and the fingerprint that it had then.
    pub applied: Option<Applied>,
    /// What another process has left to tell what it applied, until this one knows better.
    pub left: Option<Box<Left>>,
    /// The object itself, where it is of interest.
    pub text: Option<Box<[u8]>>,
    /// The list in which it was seen last.
    pub(super) round: u64,
}

/// Takes away what is of no interest, so that it costs no memory.
pub type Trim = fn(&mut DynamicObject);

/// Who controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, in the same namespace.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
    /// Its kind.
    pub kind: Arc<str>,
}

/// What tells an object from all others, ever, in a third of the space of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uid(u128);

impl Uid {
    /// From its text.
    pub fn new(text: &str) -> Uid {
        let digits = text.bytes().filter(|byte| *byte != b'-');
        let number = digits.fold(0u128, |number, byte| {
            // A UUID has 32 hexadecimal digits. Of what is none, all that matters is that another is another.
            let digit = char::from(byte).to_digit(16).unwrap_or(u32::from(byte));
            number.wrapping_mul(16).wrapping_add(u128::from(digit))
        });
        Uid(number)
    }

    /// Its text, if it is a UUID, which those of an API server are.
    pub fn text(self) -> String {
        let digits = format!("{:032x}", self.0);
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }
}

/// What another process has left on a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The hash of what it applied.
    pub desired: u64,
    /// The account of its fields, as text.
    pub account: Box<str>,
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
    pub fn itself(object: &mut DynamicObject, names: &Names) -> Held {
        let manager = names.manager.as_str();
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
    pub fn content(object: &mut DynamicObject, names: &Names, trim: Option<Trim>) -> Held {
        let held = Held::new(&object.metadata, &names.manager);
        let mut held = held.with_left(&object.metadata, names);
        // What there is to know of who has set which field, `trim` may keep.
        if let Some(trim) = trim {
            trim(object);
        }
        object.metadata.managed_fields = None;
        held.text = serde_json::to_vec(&*object).ok().map(Vec::into_boxed_slice);
        held
    }

    /// The same, with what another process may have left to tell what it applied.
    pub fn with_left(mut self, meta: &ObjectMeta, names: &Names) -> Held {
        let mark = meta.annotations.as_ref().and_then(|all| all.get(&names.applied()));
        let desired = mark.and_then(|mark| u64::from_str_radix(mark, 16).ok());
        let account = ours(meta, &names.manager).next();
        self.left = desired
            .zip(account)
            .map(|(desired, account)| Box::new(Left { desired, account: account.to_string().into() }));
        self
    }

    /// Somebody else's object that belongs to one of ours by a label. What is not to change without a
    /// look is what `trim` leaves of it.
    pub fn related(object: &mut DynamicObject, label: &str, names: &Names, trim: Option<Trim>) -> Held {
        let mut held = Held::content(object, names, trim);
        held.left = None;
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
            uid: Uid::new(meta.uid.as_deref().unwrap_or_default()),
            version: version.unwrap_or_default(),
            owner: owner.map(|owner| Owner {
                name: owner.name.as_str().into(),
                uid: Uid::new(&owner.uid),
                kind: shared(&owner.kind),
            }),
            member_of: None,
            fingerprint: fingerprint(meta, manager),
            applied: None,
            left: None,
            text: None,
            round: 0,
        }
    }
}

/// One text for all objects whose owners are of one kind: there are few kinds, and many objects.
fn shared(kind: &str) -> Arc<str> {
    static KINDS: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.get(kind) {
        return known.clone();
    }
    let new: Arc<str> = kind.into();
    // Anybody may make anything an owner: what is shared is bounded.
    if kinds.len() < 64 {
        kinds.insert(new.clone());
    }
    new
}

/// The API server keeps account of who has set which field. A field that somebody else changes is
/// no longer ours, so the account of our fields tells of every change to one of them, and of none to any
/// other: drift is seen without the content, and without a request.
fn fingerprint(meta: &ObjectMeta, manager: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    meta.uid.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    for account in ours(meta, manager) {
        account.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// The account of the fields that a manager has applied.
fn ours<'a>(meta: &'a ObjectMeta, manager: &str) -> impl Iterator<Item = &'a Value> {
    let entries = meta.managed_fields.iter().flatten().filter(move |entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    entries.filter_map(|entry| entry.fields_v1.as_ref()).map(|fields| &fields.0)
}
