//! The first process in each database's container. It runs the database, takes part in leadership, leads
//! writers to the primary, and tells what it knows.
//!
//! It holds no decision worth testing on a cluster: who leads is decided by [`keelson_ha`], what the
//! database program has to do next by [`steps`], both without IO.

mod agent;
mod asking;
mod credentials;
mod driver;
mod environment;
mod facts;
mod families;
mod lease;
mod metrics;
mod peers;
mod report;
mod routing;
mod settings;
pub mod steps;

pub use agent::{AgentError, run};
pub use environment::{Environment, EnvironmentError};

/// Under this name the agent writes to the API server.
const FIELD_MANAGER: &str = "keelson-agent";
