//! The kinds that people write.
pub mod value;
