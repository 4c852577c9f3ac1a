//! A whole cluster in one thread, with virtual time and everything random from one seed.
//!
//! It drives the real [`keelson_ha::Machine`] of every instance, and what is pure of the agent (`steps`, `facts`),
//! through faults that are drawn at random, and looks all the while whether what must be true is true. A
//! [`Scenario`] is a history to be lived through, [`World::live`] lives through it, [`hunt::hunt`] through many, and
//! [`shrink::shrink`] finds the shortest that still goes wrong.

pub mod chance;
pub mod fault;
pub mod hunt;
pub mod regressions;
pub mod scenario;
pub mod shrink;
pub mod wal;
mod world;

pub use scenario::Scenario;
pub use world::{Micros, Outcome, Violation, World};
