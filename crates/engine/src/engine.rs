//! What leadership needs of any database.

use std::net::IpAddr;
use std::time::Duration;

use crate::error::Result;
use crate::lsn::Lsn;

/// A database that can be led: started in a role, promoted, made to follow another, brought back after it
/// was left behind. Calls are idempotent where that is possible, and none decides anything.
pub trait Engine: Send + Sync {
    /// What its settings are.
    type Settings: Send + Sync;
    /// What it says of itself.
    type Status: Send;

    /// What is on the volume, when nothing is being made on it.
    fn data(&self) -> impl Future<Output = Result<Data>> + Send;
    /// Makes a new, empty database, and returns its system identifier. Refused where there is one.
    fn initialise(&self) -> impl Future<Output = Result<u64>> + Send;
    /// Makes this a copy of a running instance. Data that is there already is kept beside until
    /// [`Engine::discard_old`].
    fn clone_from(
        &self,
        upstream: &Upstream,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> impl Future<Output = Result<()>> + Send;
    /// Removes what a clone replaced. For when the clone is known to be good.
    fn discard_old(&self) -> impl Future<Output = Result<()>> + Send;
    /// Takes back what was written here after the upstream's history branched off. Needs a stopped
    /// database. If it fails after it has begun to change the data, or is dropped, the data is unusable
    /// ([`Data::Unusable`]) and must be cloned.
    fn rewind_from(&self, upstream: &Upstream) -> impl Future<Output = Result<()>> + Send;

    /// Starts the process in a role. Returns when it runs, not when it answers: recovery may take long.
    fn start(&self, role: &Role) -> impl Future<Output = Result<()>> + Send;
    /// Ends the process; what has not ended by the deadline is killed. When this returns, no process of
    /// the database can acknowledge anything any more.
    fn stop(&self, how: Stop, deadline: Duration) -> impl Future<Output = Result<Option<Exit>>> + Send;
    /// Whether the process runs, now and whenever that changes.
    fn process(&self) -> tokio::sync::watch::Receiver<Process>;

    /// Turns a replica into a primary that waits for these acknowledgements from its first commit on. The history that
    /// it begins has this number or a greater one.
    fn promote(
        &self,
        synchronous: &Synchronous,
        history: u64,
        deadline: Duration,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Makes a running replica follow another instance, or none. For none, nothing comes in any more when
    /// this returns.
    fn follow(&self, upstream: Option<&Upstream>) -> impl Future<Output = Result<()>> + Send;
    /// Changes whose acknowledgement a commit waits for. When this returns the server has taken it; a commit
    /// that was being acknowledged at that moment may still go by the old names, so whoever relies on the
    /// change lets a moment pass, or counts with both.
    fn set_synchronous(&self, synchronous: &Synchronous) -> impl Future<Output = Result<()>> + Send;
    /// Takes new settings; refused as a whole if the database would not take one of them. Returns the
    /// parameters that wait for a restart.
    fn apply(&self, settings: &Self::Settings) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// What a running database says of itself.
    fn status(&self, deadline: Duration) -> impl Future<Output = Result<Self::Status>> + Send;
    /// A write on a primary that has reached the disk when this returns, whatever its replicas do.
    fn heartbeat(&self, deadline: Duration) -> impl Future<Output = Result<()>> + Send;
}

/// What is on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// No database.
    Absent,
    /// A database.
    Present(Offline),
    /// What once was one: it must be cloned anew.
    Unusable {
        /// What happened to it.
        why: String,
    },
}

/// What can be known of a database without starting it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offline {
    /// The same for all copies of one database, and for no other.
    pub system: u64,
    /// The newest timeline of which it has log.
    pub timeline: u32,
    /// Its last checkpoint; a log that was not replayed yet may reach further.
    pub lsn: Lsn,
    /// How it ended, in the database's own words: `shut down`, `in production`.
    pub state: String,
    /// Whether it was a replica when it last ran.
    pub replica: bool,
    /// Whether it was shut down, rather than having crashed.
    pub clean: bool,
}

/// What an instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It repeats what another does; with none to follow, it waits.
    Replica(Option<Upstream>),
}

/// An instance to copy or to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in its certificate, and its address if none is given.
    pub host: String,
    /// Where it was last known to be: tried before the name is looked up.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The slot there that keeps the log for this instance.
    pub slot: Option<String>,
}

/// Whose acknowledgement a commit waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synchronous {
    /// How many of them must acknowledge. None: commits wait for nobody.
    pub count: usize,
    /// The names of the instances that count.
    pub names: Vec<String>,
}

/// How to end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// When the last client has gone.
    Smart,
    /// Now, with clients thrown out and everything written.
    Fast,
    /// Now, with nothing written: the next start recovers from the log.
    Immediate,
}

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// It has not been started.
    Idle,
    /// It runs, under this number.
    Running(u32),
    /// It has ended.
    Ended(Exit),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// How far a clone is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have come.
    pub done: u64,
    /// Bytes that are expected; it may turn out to be more.
    pub total: u64,
}
