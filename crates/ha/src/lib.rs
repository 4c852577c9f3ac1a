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
//! Nothing that was acknowledged is lost, where commits wait for standbys. For that
//! - the Lease says who may be elected ([`Quorum`]), and changes with what commits wait for in an order in
//!   which the two always fit together;
//! - before one is elected, so many of them *hold still*, that is, receive nothing more from who led, that
//!   those who are left can't acknowledge a commit any more, and that one of those who hold has each commit
//!   that was acknowledged; the one that has most leads. It takes the Lease in the very version in which
//!   they hold, so a renewal that comes in between wins;
//! - one that has just started may have promised that before, and does not know: it follows and confirms
//!   nobody until it sees the Lease change;
//! - a write of the Lease that was not answered may still come. Until it can't any more, the leader changes
//!   nothing about the quorum, and reckons with both;
//! - so a leader that was paused, and wakes when another leads, can acknowledge nothing, whatever its clock
//!   and its processes do. And so evidence that a leader is gone may be acted on before its term is over.
//!
//! A leader that can't reach the Lease goes on for as long as so many of those who could be elected confirm
//! it that the others can elect nobody.

mod facts;
mod lease;
mod machine;
mod peers;
pub mod planted;
mod quorum;
mod reign;
mod restore;

pub use facts::{Data, Instance, Position, Receiving, Running, Standby};
pub use lease::{Holder, Lease, Successor};
pub use machine::{Draft, Identity, Input, Machine, Request, Settings, Target};
pub use peers::{Answer, Evidence, Question};
pub use quorum::{Change, FENCE, Quorum};
pub use reign::{Cause, Reign};
pub use restore::{Restore, Restores};
