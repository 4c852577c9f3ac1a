//! What runs a database: its files, its process and its replication. Nothing here knows of Kubernetes,
//! and nothing here decides who leads: whoever holds an [`Engine`] does.
//!
//! - [`Engine`] is what leadership needs of any database, in the field's own words;
//! - [`postgres::Postgres`] is PostgreSQL, and has what only PostgreSQL has (slots, roles, metrics);
//! - [`mod@reap`] is for a program that is the first in its container and so inherits orphans.
//!
//! ```text
//! let postgres = Postgres::open(layout, settings).await?;   // holds the volume's lock from here on
//! if postgres.data().await? == Data::Absent {
//!     postgres.initialise().await?;                      // or clone_from(&upstream, &progress)
//! }
//! postgres.start(&Role::Primary).await?;                 // or Role::Replica(Some(upstream))
//! postgres.ready(Duration::from_secs(60)).await?;
//! postgres.heartbeat(Duration::from_secs(1)).await?;     // a write that reached the disk
//! postgres.stop(Stop::Fast, Duration::from_secs(20)).await?;
//! ```
//!
//! Every call that waits for the database has a deadline. A call that is dropped half-way leaves nothing
//! that could be taken for a database: see [`postgres::folders`].

mod engine;
mod error;
mod layout;
mod lsn;
pub mod postgres;
pub mod reap;
mod secret;

pub use engine::{Data, Engine, Exit, Offline, Process, Progress, Role, Stop, Synchronous, Upstream};
pub use error::{Error, Result};
pub use layout::Layout;
pub use lsn::Lsn;
pub use secret::Secret;
