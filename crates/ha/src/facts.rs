//! What an instance knows of its own database.

/// What is on its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing that is a database.
    None,
    /// A database.
    Present {
        /// Which one.
        system: String,
    },
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

/// Another instance that follows this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// Its name.
    pub name: String,
    /// Whether it has caught up and is sent what happens as it happens.
    pub streaming: bool,
    /// How many bytes of log it has not yet on disk.
    pub behind: u64,
}

/// All that is known of the own instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What is on its volume.
    pub data: Data,
    /// What its database program does.
    pub running: Running,
    /// Who follows it, while it is primary.
    pub standbys: Vec<Standby>,
}
