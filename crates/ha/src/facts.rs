//! What an instance knows of its own database.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::{Quorum, Restore};

/// What is on its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing that is a database.
    None,
    /// A database.
    Present {
        /// Which one.
        system: String,
        /// The last epoch in which it took writes, if nothing else has been put in its place since. What was
        /// acknowledged in that epoch is on this volume.
        led: Option<u64>,
    },
}

impl Data {
    /// The last epoch in which it took writes, if it did.
    pub fn led(&self) -> Option<u64> {
        match self {
            Data::None => None,
            Data::Present { led, .. } => *led,
        }
    }
}

/// What its database program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Running {
    /// It does not run.
    Stopped,
    /// It starts, stops or recovers; no session can be had. It may take writes at any moment.
    Unsettled,
    /// It takes writes, or would if asked to.
    Primary,
    /// It follows another.
    Replica,
}

/// How far a log is. Histories branch when somebody is promoted; the newer one is ahead, whatever the
/// offsets, as it began with all that had been acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Which history.
    pub history: u64,
    /// How far.
    pub offset: u64,
}

/// Whether the log of another comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// Nothing can come in: it follows nobody, and what it received last is known.
    Cut,
    /// It would, if somebody answered.
    Waiting,
    /// It comes in now.
    Streaming,
}

/// Another instance that follows this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// Its name.
    pub name: String,
    /// Whether it has caught up and is sent what happens as it happens.
    pub streaming: bool,
    /// How far the log is on disk there.
    pub offset: u64,
}

/// All that is known of the own instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What is on its volume.
    pub data: Data,
    /// What its database program does.
    pub running: Running,
    /// How far its log is on disk.
    pub position: Option<Position>,
    /// Whether it receives, while it is a replica.
    pub receiving: Receiving,
    /// Who follows it, while it is primary.
    pub standbys: Vec<Standby>,
    /// Whom its commits wait for.
    pub commits: Quorum,
    /// When a write last reached its disk, since it was started as primary.
    pub written: Option<Instant>,
    /// Whether its disk has lost something that was written to it: what it holds can't be trusted.
    pub damaged: bool,
    /// Whether its volume has almost no room left.
    pub full: bool,
    /// The newest history of which it has log; 0 if that is not known.
    pub history: u64,
    /// How it stands with a restore in place.
    pub restore: Restore,
}
