//! The volume of each instance, written short or long.
//!
//! A field that takes a string or an object has no type that the API server's CEL could see, so the
//! rules about it (no shrinking, no change of class) are in an admission policy instead: see
//! [`crate::policy`].

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::schema::NAME;
use crate::value::{Size, Written};

/// `50Gi`, or a [`Volume`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Storage {
    /// Just a size.
    Size(Written<Size>),
    /// A size and more.
    Volume(Volume),
    /// Something else, which is kept as it is and refused when it is used.
    Other(Value),
}

/// A volume and what may become of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// How large it is, such as `50Gi`. It can grow and can't shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Written<Size>>,
    /// The storage class; without it, the cluster's default. It can't be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub class: Option<String>,
    /// Lets the volume grow by itself before it is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autogrow: Option<Autogrow>,
}

/// Growth before the volume is full.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autogrow {
    /// How large it may become, such as `500Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Written<Size>>,
}

impl Storage {
    /// The long form.
    pub fn volume(&self) -> Option<Cow<'_, Volume>> {
        match self {
            Storage::Size(size) => Some(Cow::Owned(Volume { size: Some(size.clone()), ..Volume::default() })),
            Storage::Volume(volume) => Some(Cow::Borrowed(volume)),
            Storage::Other(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Storage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(size) => Storage::Size(Written::new(size)),
            value => match Volume::deserialize(&value) {
                Ok(volume) => Storage::Volume(volume),
                Err(_) => Storage::Other(value),
            },
        })
    }
}

impl JsonSchema for Storage {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Storage".into()
    }

    /// No `type`, since there are two. In JSON schema a pattern is about strings only, and properties
    /// are about objects only, so each form has its own rules all the same.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let size = Size::json_schema(generator);
        let volume = Volume::json_schema(generator);
        let mut schema = json_schema!({ "x-kubernetes-preserve-unknown-fields": true });
        for (from, key) in [(&size, "pattern"), (&size, "maxLength"), (&volume, "properties")] {
            if let Some(value) = from.get(key) {
                schema.insert(key.to_owned(), value.clone());
            }
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_read_and_come_back_as_they_were() {
        for value in [
            json!("50Gi"),
            json!({"size": "50Gi", "class": "fast", "autogrow": {"limit": "1Ti"}}),
            json!(50),
            json!({"size": "50Gi", "autogrow": true}),
        ] {
            let storage: Storage = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&storage).unwrap(), value);
        }
    }
}
