//! Text in a stored object, which may or may not mean something.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What somebody wrote where a `T` is meant.
///
/// Reading an object never fails because of such a field: a list or a watch that meets one bad
/// schedule would otherwise stop for every object behind it. The schema is that of `T`, so the API
/// server refuses most nonsense when it is written; what passes (an older schema, a rule that a
/// pattern can't state) is found by [`Written::parse`], for that object alone.
///
/// That a number is a number and a list a list is left to the schema: the API server stores nothing
/// else, and a schema never changes the type of a field within a version.
pub struct Written<T> {
    text: String,
    of: PhantomData<fn() -> T>,
}

impl<T> Written<T> {
    /// Takes text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Written { text: text.into(), of: PhantomData }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T: FromStr> Written<T> {
    /// What the text means, or why it means nothing.
    pub fn parse(&self) -> Result<T, T::Err> {
        self.text.parse()
    }
}

impl<T: fmt::Display> Written<T> {
    /// The text of a value.
    pub fn of(value: &T) -> Self {
        Written::new(value.to_string())
    }
}

impl<T> From<&str> for Written<T> {
    fn from(text: &str) -> Self {
        Written::new(text)
    }
}

impl<T> Clone for Written<T> {
    fn clone(&self) -> Self {
        Written::new(self.text.clone())
    }
}

impl<T> PartialEq for Written<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> Eq for Written<T> {}

impl<T> fmt::Debug for Written<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl<T> fmt::Display for Written<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Written::new(match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        }))
    }
}

impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::value::Span;

    #[test]
    fn nonsense_is_read_kept_and_refused_only_when_it_is_used() {
        let written: Written<Span> = serde_json::from_value(json!("soon")).unwrap();
        assert_eq!(serde_json::to_value(&written).unwrap(), json!("soon"));
        assert!(written.parse().is_err());
    }

    #[test]
    fn what_is_not_even_text_is_read_too() {
        for odd in [json!(17), json!(null), json!({"a": 1}), json!([true])] {
            let written: Written<Span> = serde_json::from_value(odd).unwrap();
            assert!(written.parse().is_err(), "{written:?}");
        }
    }
}
