//! The log's way to the repository and back.
//!
//! PostgreSQL says in `pg_wal/archive_status` what is to be archived (`NAME.ready`) and keeps it until it is told
//! that it was (`NAME.done`). With `archive_mode = on` and an empty `archive_command` it does nothing more by
//! itself, and the [`Archiver`] does the rest, in the agent's own process and several at a time. So no state
//! needs to be kept anywhere else: after a crash of anybody, what is `ready` is sent, and what was sent already is
//! compared. While the store is away, `ready` piles up, and the volume fills; nothing is ever dropped.
//!
//! - `queue` decides what is sent next.
//! - [`Archiver`] sends it.
//! - [`Fetcher`] is the way back, for `restore_command` and for replicas.

mod archiver;
mod fetch;
mod push;
mod queue;

pub use archiver::{Archiver, Options, Role, State, Trouble};
pub use fetch::{Fetched, Fetcher};
