//! A volume: what is on it, and what becomes of writes to it.
//!
//! Left out: disks that say they have flushed and have not; blocks that rot; volumes that grow. A folder that is
//! being made is never taken for a database (that is proven by the engine's own tests), so it is not here.

use keelson_engine::{Data, Lsn, Offline};

use super::queue::Micros;
use crate::wal::{Place, Wal};

/// What a person would find in the data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    None,
    /// A database.
    Database(Database),
    /// What once was one.
    Unusable,
}

/// A database on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Which one.
    pub system: u64,
    /// The end of its log, as the operating system has it.
    pub written: Place,
    /// As much of it as survives a loss of power.
    pub flushed: u64,
    /// Whether it was a replica when it last ran.
    pub replica: bool,
    /// Whether it was shut down in good order.
    pub clean: bool,
    /// The newest timeline that it has heard of.
    pub newest: u32,
    /// From where on its log is still there.
    pub kept: u64,
}

impl Database {
    /// How far the log is on disk.
    pub fn end(&self) -> Place {
        Place { branch: self.written.branch, offset: self.flushed }
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Told from every other.
    pub id: usize,
    /// What is on it.
    pub content: Content,
    /// The note of the last epoch in which it took writes.
    pub led: Option<u64>,
    /// The note that the disk has failed what is on it.
    pub damaged: bool,
    /// Nothing reaches the disk until then.
    pub hung: Micros,
    /// There is no room until then.
    pub full: Micros,
}

impl Volume {
    /// An empty one.
    pub fn new(id: usize) -> Volume {
        Volume { id, content: Content::None, led: None, damaged: false, hung: 0, full: 0 }
    }

    /// The database on it.
    pub fn database(&self) -> Option<&Database> {
        match &self.content {
            Content::Database(database) => Some(database),
            Content::None | Content::Unusable => None,
        }
    }

    /// The database on it, to be changed.
    pub fn database_mut(&mut self) -> Option<&mut Database> {
        match &mut self.content {
            Content::Database(database) => Some(database),
            Content::None | Content::Unusable => None,
        }
    }

    /// What was not flushed is gone.
    pub fn lose_power(&mut self) {
        if let Some(database) = self.database_mut() {
            database.written.offset = database.flushed;
        }
    }

    /// What the engine finds on it while nothing runs.
    pub fn data(&self, wal: &Wal) -> Data {
        match &self.content {
            Content::None => Data::Absent,
            Content::Unusable => Data::Unusable { why: "a rewind was broken off".to_owned() },
            Content::Database(database) => Data::Present(Offline {
                system: database.system,
                timeline: wal.timeline(database.written),
                lsn: Lsn(database.written.offset),
                state: String::new(),
                replica: database.replica,
                clean: database.clean,
            }),
        }
    }
}
