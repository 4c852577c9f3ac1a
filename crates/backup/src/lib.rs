//! Where a database's log and copies of it are kept, and how they come back.
//!
//! A [`Repository`] is one database's path in a store: S3, Google Cloud Storage, Azure Blob Storage or a folder. What
//! is in there has WAL-G's layout, so that a person can restore with WAL-G or walrus alone when Keelson is gone;
//! `docs/backup-format.md` says how, and what Keelson adds. Nothing here knows of Kubernetes.
//!
//! Decisions are apart from IO: which file of the log is next (`archive`), which backup leads to a target
//! ([`restore::choose`]), what may go ([`retention::clear`]), what lies on the way ([`History`], [`Coverage`]).
//!
//! # How the agent drives it
//!
//! - **At the start of a primary**, once the database's system identifier is known:
//!   [`Repository::open`] and [`Repository::claim`]. The claim is refused if the path is another database's; the
//!   agent reports that and goes on without backups. It holds on to the [`Writer`].
//! - **The log**: the engine sets `archive_mode = always` and an empty `archive_command`, so that PostgreSQL keeps what
//!   is not archived and starts no process. The agent runs one [`archive::Archiver`] as a task for as long as
//!   PostgreSQL runs, and tells it through a channel whether it leads: a leader sends, a replica waits until the
//!   repository has a segment and only then lets PostgreSQL forget it. [`archive::State`] has what the status, the
//!   metrics and the alerts need: how much waits, since when, and what is wrong, by [`Class`]. With the rate at which
//!   the log grows and the room on the volume, the agent says how much time is left. Before a handover it
//!   waits a moment until nothing waits. `backup.maxDataLoss` is `archive_timeout`.
//! - **A base backup**: on the replica that the operator names, or on the primary, the agent opens a connection of its
//!   own and calls [`base::back_up`]. To stop it, it drops the future. Progress is a watch channel; the result is a
//!   [`Backup`], which is what a `Backup` object's status is made from.
//! - **A restore**: the operator or the agent of the first instance calls [`Repository::catalogue`] and
//!   [`restore::choose`]; a [`restore::Refusal`] names the possible window and is shown to the person at once. Then
//!   [`restore::restore`] into `data.new`, `recovery.signal`, the settings of [`restore::recovery_settings`], and a
//!   `restore_command` that asks the agent over its socket. The agent answers with an [`archive::Fetcher`], and the
//!   command ends with [`archive::Fetched::exit_code`]. A new replica is seeded in the same way, with `standby.signal`.
//! - **A drill** is a restore into a throw-away instance; [`restore::verify`] is the cheaper look at every byte of a
//!   backup without one.
//! - **Retention** runs on the leader after each backup, and when the operator asks: [`prune::prune`].
//!   [`prune::remove_all`] is for a Database that is deleted together with its repository.
//!
//! # Memory
//!
//! Nothing is held whole. A part of a base backup that is being written takes up to four chunks of 6 MiB and what zstd
//! needs; a segment takes its own size; a listing of the log is kept as runs of numbers.

pub mod archive;
pub mod base;
mod catalogue;
mod coverage;
mod error;
mod history;
mod location;
mod lsn;
pub mod prune;
mod repository;
pub mod restore;
pub mod retention;
mod seal;
mod secret;
mod sentinel;
#[cfg(test)]
mod shaky;
mod transfer;
mod wal;

pub use catalogue::{Backup, Catalogue, Point};
pub use coverage::{Coverage, Reach};
pub use error::{Class, Error, Result};
pub use history::{History, HistoryError, Stretch};
pub use location::{AzureCredentials, GcsCredentials, Location, S3Credentials};
pub use lsn::{Lsn, LsnError};
pub use repository::{Claim, Format, Mark, Object, Repository, Writer};
pub use seal::Key;
pub use secret::Secret;
pub use wal::{NotTheSegment, Segment, SegmentSize, WalFile, check_segment};
