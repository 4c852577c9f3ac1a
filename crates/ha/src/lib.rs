//! Who leads a database, as a state machine: no IO, no clock, no async, and no word of any one database
//! program.
//!
//! One [`Machine`] sits in each instance. It is told facts ([`Input`]) with the time at which they were
//! learned; it answers with what to ask of the Lease ([`Request`]), and says at any moment what its
//! database program should be doing ([`Machine::target`]). The agent is the shell that gathers the facts and
//! carries the rest out.
//!
//! # What must hold
//!
//! At no time can two instances take writes. For that
//! - everything is decided through one Lease, by compare-and-swap;
//! - the leader counts its term from the moment before it sent the renewal that was accepted, and closes
//!   its database a margin before the term is over; whoever else waits counts the whole term from
//!   the moment after they saw that renewal. Nobody's clock has to agree with anybody's;
//! - a leader that is told by the Lease that somebody else leads closes at once, whatever its clock says;
//! - where a database has been, none is made anew: an instance without data waits to be given a copy.
//!
//! # What is here so far
//!
//! The first leader, its renewal, its return after a restart, the planned handover, and following. An
//! instance does not yet take the Lease of another that has died: that is failover, and comes with the
//! rules about whose data may lead.

mod facts;
mod lease;
mod machine;

pub use facts::{Data, Instance, Running, Standby};
pub use lease::{Holder, Lease, Successor};
pub use machine::{Draft, Identity, Input, Machine, Request, Settings, Target};
