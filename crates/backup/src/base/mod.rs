//! Base backups: the files of a running database, copied while it runs.
//!
//! The database is told that a backup begins (`pg_backup_start`) and ends (`pg_backup_stop`); what changes in
//! between is made good by the log. The files are read where they are, by several threads, each of which writes one
//! tar after the other straight into the store. This works on a primary and on a replica alike.
//!
//! - `files` says what belongs into a backup.
//! - `parts` says which file goes into which part.
//! - `pages` finds the pages that changed, for incremental backups.
//! - `tarball` writes a part.
//! - `server` is what PostgreSQL is asked.
//! - [`back_up`] does it all.

mod files;
mod pages;
mod parts;
mod run;
mod server;
mod tarball;
mod throttle;

pub(crate) use pages::apply;
pub use run::{Kind, Options, Phase, Progress, back_up};
