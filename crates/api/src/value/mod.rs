//! What the strings in a spec mean: sizes, spans of time, schedules, versions, and words from a list.
//! Each is parsed once, at the edge, into a type that can't hold nonsense; each error says what is
//! wrong with the text and what would be right.

mod engine;
mod retention;
mod schedule;
mod size;
mod span;
mod version;
mod word;
mod written;

pub use engine::{Engine, Series};
pub use retention::{Retention, RetentionError};
pub use schedule::{Schedule, ScheduleError};
pub use size::{Size, SizeError};
pub(crate) use span::SHORT_PATTERN as SHORT_SPAN;
pub use span::{Span, SpanError};
pub use version::{Version, VersionError};
pub use word::WordError;
pub(crate) use word::words;
pub use written::Written;

/// Serialises a value as the text that it was parsed from, and gives it a schema: a string with a
/// pattern, so that the API server refuses what a pattern can refuse.
macro_rules! text_value {
    ($name:ident, pattern = $pattern:expr, max = $max:expr, example = $example:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "pattern": $pattern, "maxLength": $max, "example": $example
                })
            }
        }
    };
}
pub(crate) use text_value;
