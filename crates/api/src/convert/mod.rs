//! Conversion of a `Database` between the versions it is served in, without losing a field in any
//! direction.
//!
//! `v1` can say everything, so every way leads through it. What an older version can't say is kept in
//! an annotation of the object while it has that version's shape: the whole spec, as it was. On the way
//! back, that spec is taken as it stands except for what has been changed since, which is known by
//! converting the kept spec once more and comparing. So nothing kept can undo a change, however old it
//! is, and nothing changed can undo what was kept beside it.
//!
//! All of this works on plain JSON, not on the types: a field that this release has never heard of, or
//! one of a type that makes no sense, travels like any other. A conversion that fails makes an object
//! unreadable, so there is next to nothing that makes one fail.

mod mapping;
mod merge;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::GROUP;
use crate::value::words;
use merge::carry_over;

/// Where specs of other versions are kept: a JSON object from version to spec.
pub const ANNOTATION: &str = "keelson.dev/conversion";

words! {
    /// A version of `Database`.
    ApiVersion, "version of Database" {
        /// The first.
        V1Alpha1 = "v1alpha1",
        /// The second.
        V1Beta1 = "v1beta1",
        /// The stored one.
        V1 = "v1",
    }
}

/// An object that can't be converted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConversionError {
    /// It is not an object at all.
    #[error("what was sent is not an object: send a Database")]
    NotAnObject,
    /// It is of another kind.
    #[error("`{kind}` can't be converted: only Database has several versions")]
    Kind {
        /// The kind it has.
        kind: String,
    },
    /// It is of, or should be of, a version that does not exist.
    #[error(
        "`{found}` is not a version of Database: use keelson.dev/v1, keelson.dev/v1beta1 or keelson.dev/v1alpha1"
    )]
    Version {
        /// What was asked for.
        found: String,
    },
}

impl ApiVersion {
    /// Reads `keelson.dev/v1` and its like.
    pub fn of(api_version: &str) -> Result<ApiVersion, ConversionError> {
        let version = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        let version = version.and_then(|version| version.parse().ok());
        version.ok_or_else(|| ConversionError::Version { found: api_version.to_owned() })
    }

    /// As it stands in an object.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{self}")
    }
}

/// Specs of other versions that an object carries along.
type Kept = Map<String, Value>;

/// The same object in another version.
pub fn convert(object: Value, to: ApiVersion) -> Result<Value, ConversionError> {
    let Value::Object(mut object) = object else { return Err(ConversionError::NotAnObject) };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind != "Database" {
        return Err(ConversionError::Kind { kind: kind.to_owned() });
    }
    let from = ApiVersion::of(object.get("apiVersion").and_then(Value::as_str).unwrap_or_default())?;
    if from == to {
        return Ok(Value::Object(object));
    }
    let mut kept = read_kept(&object);
    // The object itself says what it is in its own version. Something kept for that version can only
    // have come from a copy that somebody has edited since.
    kept.remove(from.as_str());
    // An object without a spec is still an object; an empty one would be an invention.
    if let Some(spec) = object.remove("spec") {
        let stored = to_stored(spec, from, &mut kept);
        object.insert("spec".to_owned(), from_stored(stored, to, &mut kept));
    }
    write_kept(&mut object, kept);
    object.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(Value::Object(object))
}

/// From any version to the one that says everything.
fn to_stored(spec: Value, from: ApiVersion, kept: &mut Kept) -> Value {
    if from == ApiVersion::V1 {
        return spec;
    }
    let plain = mapping::up(from, &spec);
    let stored = match kept.remove(ApiVersion::V1.as_str()) {
        Some(before) => carry_over(&mapping::up(from, &mapping::down(from, &before)), &plain, before),
        None => plain,
    };
    // Only what is of no known field or shape gets here.
    if mapping::down(from, &stored) != spec {
        kept.insert(from.to_string(), spec);
    }
    stored
}

/// From the version that says everything to any other.
fn from_stored(stored: Value, to: ApiVersion, kept: &mut Kept) -> Value {
    if to == ApiVersion::V1 {
        return stored;
    }
    let plain = mapping::down(to, &stored);
    let spec = match kept.remove(to.as_str()) {
        Some(before) => carry_over(&mapping::down(to, &mapping::up(to, &before)), &plain, before),
        None => plain,
    };
    if mapping::up(to, &spec) != stored {
        kept.insert(ApiVersion::V1.to_string(), stored);
    }
    spec
}

/// Reads the kept specs from the annotations. What can't be read was not written here, and is of no
/// use to anybody.
fn read_kept(object: &Map<String, Value>) -> Kept {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let text = annotations.and_then(|all| all.get(ANNOTATION));
    text.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Writes them back, and leaves no trace if there are none.
fn write_kept(object: &mut Map<String, Value>, kept: Kept) {
    if kept.is_empty() {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
            && annotations.remove(ANNOTATION).is_some()
            && annotations.is_empty()
        {
            metadata.remove("annotations");
        }
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    if let Value::Object(annotations) = annotations {
        annotations.insert(ANNOTATION.to_owned(), Value::Object(kept).to_string().into());
    }
}

#[cfg(test)]
mod tests;
