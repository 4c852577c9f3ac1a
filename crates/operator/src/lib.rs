//! The operator: makes the cluster what Databases and Apps say.
//!
//! It takes part in no failover: instances elect their own leader. It makes what a database consists of,
//! decides in which order instances are replaced, and says how things stand. A round is three stages,
//! each a file in [`database`]: facts are gathered, a plan follows from them alone, and its steps are
//! carried out.

pub mod app;
pub mod backup;
pub mod database;
pub mod metrics;
pub mod rights;
pub mod root;
pub mod run;
mod trim;

pub use run::Options;

/// The operator's name: its field manager, its Lease and the label of its children.
pub const NAME: &str = "keelson";

/// Annotations that only the operator itself reads.
pub mod annotations {
    /// On a pod: what it was made for.
    pub const ASKED: &str = "keelson.dev/asked";
}
