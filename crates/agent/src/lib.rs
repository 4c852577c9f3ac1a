//! The first process in each database's container. It runs the database, takes part in leadership, leads
//! writers to the primary, and tells what it knows.
//!
//! The same program runs drills of a database's backups, in pods of their own (`drill`).
//!
//! It holds no decision worth testing on a cluster: who leads is decided by [`keelson_ha`], what the
//! database program has to do next by [`steps`], both without IO.

mod agent;
mod archiving;
mod asking;
mod catching_up;
mod credentials;
pub mod doors;
mod drill;
mod driver;
mod environment;
pub mod facts;
mod families;
mod guard;
mod in_place;
mod lease;
mod marks;
mod metrics;
mod peers;
mod readers;
pub mod report;
mod restoring;
mod room;
mod routing;
pub mod settings;
pub mod silence;
mod slots;
pub mod steps;
mod story;
mod trust;
pub mod way;

pub use agent::{AgentError, run};
pub use drill::{DrillError, run as run_drill};
pub use environment::{Environment, EnvironmentError};
pub use guard::guard;
/// Whether bugs could be planted in this build, as only the simulator's may be.
pub use keelson_ha::planted::PLANTED;
pub use restoring::fetch_log;

/// Under this name the agent writes to the API server.
const FIELD_MANAGER: &str = "keelson-agent";
