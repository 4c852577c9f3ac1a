//! The way back: which backup, with which log, and onto the disk.
//!
//! - [`choose`] decides, from what a repository has and what a person wants, or says why it can't be.
//! - [`restore`] brings the files back, and looks at every byte of them on the way.
//! - [`verify`] looks at every byte and brings nothing back.

mod run;
mod target;
mod unpack;

pub use run::{Options, Progress, Verified, restore, verify};
pub use target::{Choice, Refusal, Target, Window, choose, recovery_settings};
