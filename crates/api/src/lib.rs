//! The kinds that people write: [`Database`](v1::Database), [`Backup`](v1::Backup) and
//! [`App`](v1::App), in every version that is served. Nothing here does IO or reads a clock.
//!
//! - [`v1`] is how objects are stored, [`v1beta1`] and [`v1alpha1`] are older ways to write a `Database`;
//! - [`value`] has what the texts in a spec mean: sizes, spans, schedules, versions;
//! - [`v1::DatabaseSpec::settings`] turns what somebody wrote into what it means;
//! - [`convert`] turns each version into each other and loses nothing;
//! - [`admission`] says at once what no rule can: that there is no minute 61;
//! - [`mod@crds`] and [`policy`] are what a cluster needs to know these kinds, rules included;
//! - [`injection`] is how poolers come beside other people's programs;
//! - [`instance`] is what operator and agent tell each other;
//! - [`parameters`] lists those that nobody else may set;
//! - [`mod@reference`] writes the field reference from them.
//!
//! # How bad input is met
//! First by the schema and its rules, when it is written. What passes them all the same (an object
//! from before a rule, a text that no pattern can judge) is read without error and refused, field by
//! field, only when its meaning is asked for: see [`value::Written`].
//!
//! ```
//! use keelson_api::v1::DatabaseSpec;
//!
//! let spec: DatabaseSpec = serde_json::from_str(r#"{"size": "large", "storage": "50Gi"}"#)?;
//! let settings = spec.settings().map_err(|errors| format!("{errors:?}"))?;
//! assert_eq!((settings.replicas, settings.memory.to_string().as_str()), (3, "2Gi"));
//!
//! let spec: DatabaseSpec = serde_json::from_str(r#"{"backup": {"schedule": "61 * * * *"}}"#)?;
//! let errors = spec.settings().unwrap_err();
//! assert_eq!(
//!     errors[0].to_string(),
//!     "spec.backup.schedule: 61 in the minute field of `61 * * * *` is out of range: it goes from 0 to 59"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod admission;
pub mod convert;
pub mod crds;
pub mod injection;
pub mod instance;
pub mod parameters;
pub mod policy;
pub mod reference;
mod schema;
pub mod v1;
pub mod v1alpha1;
pub mod v1beta1;
pub mod value;

/// The API group of all kinds.
pub const GROUP: &str = "keelson.dev";

pub use schema::Rule;
