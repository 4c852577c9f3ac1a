//! Words from a short list, as enums.

use thiserror::Error;

/// A word that is not on the list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{found}` is no {what}: use one of {choices}")]
pub struct WordError {
    /// What the word should have been.
    pub what: &'static str,
    /// What was written.
    pub found: String,
    /// What could have been written.
    pub choices: String,
}

/// An enum whose variants are words in the API. Each variant's text stands beside it.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// All there are, in the order of the list.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word that stands for it in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::value::WordError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    $crate::value::WordError {
                        what: $what,
                        found: text.to_owned(),
                        choices: [$($word),+].join(", "),
                    }
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
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
                schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }
    };
}
pub(crate) use words;
