//! Changes of a spec that are generated from the schema of Databases: every field, at its bounds, set, changed
//! and taken back, alone and in pairs. A field that is new in the schema is covered without a word here.
//!
//! Each is refused with words that help, or comes to an end; and when it is taken back all is as if it had
//! never been.

#[cfg(feature = "long-tests")]
mod alone;
mod model;
mod pairs;
mod schema;
#[cfg(feature = "long-tests")]
mod tryout;
