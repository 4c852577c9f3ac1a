//! PostgreSQL, in the stock image, as a child of the program that holds [`Postgres`].
//!
//! - [`configure`] turns what an instance is to be into its files: pure;
//! - `sizes` derives what follows from memory, cpu and volume;
//! - `check` asks PostgreSQL whether it would take them, before they are written over good ones;
//! - [`folders`] makes sure that what is half-made is never taken for a database;
//! - `make` makes data: new, cloned, rewound;
//! - `restore` replays the log in what was brought back from a backup;
//! - `process` starts the postmaster and ends it for certain;
//! - `damage` remembers that the disk has failed the data;
//! - `archive` is for those who archive the log and copy the files;
//! - `fence` acknowledges commits, where no other instance does, while this one leads;
//! - `inspect` looks at every page and row of a restored copy, and `marks` are rows to be found in it;
//! - `session`, `status`, `heartbeat`, `roles`, `slots` and `metrics` talk to it over the local socket.

mod archive;
mod aside;
mod check;
pub(crate) mod conf;
mod conninfo;
mod control;
mod damage;
mod engine;
mod fence;
pub mod folders;
mod hba;
mod heartbeat;
mod inspect;
mod make;
mod marks;
mod metrics;
mod process;
mod program;
mod restore;
mod roles;
mod scram;
mod session;
mod settings;
mod sizes;
mod slots;
mod status;
mod timelines;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

pub use aside::{PutAside, Restored};
pub use conf::{Files, Inputs, configure};
pub use control::{Floor, parse as parse_control};
pub use fence::FENCE;
pub use inspect::Inspected;
pub use marks::{Mark, Marks};
pub use metrics::{DatabaseMetrics, Metrics, StandbyMetrics};
pub use restore::Recovery;
pub use settings::{Archive, Credentials, Resources, Settings, Tls};
pub use slots::{PREFIX as SLOT_PREFIX, slot_name};
pub use status::{Receiver, Slot, Standby, Status};

use self::folders::write;
use self::hba::SUPERUSER;
use self::process::Processes;
use self::program::{LOCK, Programs};
use self::session::{Kept, Local, execute, value};
use crate::engine::{Process, Synchronous, Upstream};
use crate::error::{Error, Result, within};
use crate::layout::Layout;

/// What a server says that lets nobody in yet.
const STARTING: &str = "57P03";
/// How long a call that changes something waits for the server to say that it has taken it.
const TAKEN: Duration = Duration::from_secs(5);

/// One PostgreSQL instance on one volume, which stays locked for as long as this lives or any of its
/// processes runs. One program drives it, one call after another; only [`stop`](crate::Engine::stop), [`status`](crate::Engine::status),
/// [`heartbeat`](crate::Engine::heartbeat) and [`metrics`](Postgres::metrics) may be called while another call is under way.
#[derive(Debug)]
pub struct Postgres {
    programs: Programs,
    wanted: Mutex<Wanted>,
    process: watch::Sender<Process>,
    /// Held while the data folder is being made or changed.
    working: tokio::sync::Mutex<()>,
    kept: Kept,
    heart: heartbeat::Heart,
    /// Whether the disk has failed it, since the data was made.
    damage: damage::Damage,
}

/// What the configuration is made of.
#[derive(Clone, Debug)]
struct Wanted {
    settings: Settings,
    upstream: Option<Upstream>,
    synchronous: Synchronous,
    /// Whether the files have more than was asked for, on account of the primary.
    floored: bool,
    /// Whether it is about to end.
    ending: bool,
    /// Whether clients are turned away.
    shut: bool,
}

fn processes(layout: &Layout, major: u32) -> Processes {
    let real = |path: std::path::PathBuf| path.canonicalize().unwrap_or(path);
    Processes { program: real(layout.program(major, "postgres")), lock: real(layout.config_file(LOCK)) }
}

/// Kills all processes of the instance on this volume, without being the one who drives it. Returns how many they were.
pub fn kill_processes(layout: &Layout) -> Result<usize> {
    let major = layout.newest().ok_or_else(|| Error::NotInstalled { folder: layout.installed.clone() })?;
    let processes = processes(layout, major);
    let (start, found) = (std::time::Instant::now(), processes.kill_each());
    // One more may have been forked just then.
    while processes.kill_each() > 0 && start.elapsed() <= Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(found)
}

impl Postgres {
    /// Takes hold of a volume, and finishes or undoes what a crash left half-way on it.
    pub async fn open(layout: Layout, settings: Settings) -> Result<Postgres> {
        let programs = Programs::open(layout)?;
        let damage = damage::Damage::read(&programs.layout);
        let postgres = Postgres {
            programs,
            wanted: Mutex::new(Wanted {
                settings,
                upstream: None,
                synchronous: Synchronous::default(),
                floored: false,
                ending: false,
                shut: false,
            }),
            process: watch::Sender::new(Process::Idle),
            working: tokio::sync::Mutex::default(),
            kept: Kept::default(),
            heart: heartbeat::Heart::default(),
            damage,
        };
        postgres.blocking(folders::settle).await?;
        Ok(postgres)
    }

    /// The major version that is installed.
    pub fn major(&self) -> u32 {
        self.programs.major
    }

    /// Waits until it answers: recovery from a crash may take a while. An error as soon as it has ended.
    pub async fn ready(&self, deadline: Duration) -> Result<()> {
        const DOING: &str = "waiting until the database answers";
        let mut process = self.process.subscribe();
        let answers = async {
            loop {
                self.running(DOING)?;
                match within(Duration::from_secs(1), DOING, self.local().connect(SUPERUSER)).await {
                    Ok(_) => return Ok(()),
                    Err(_) => {
                        // Not at once again; but its end is noticed at once.
                        let pause = Duration::from_millis(20);
                        let ended = process.wait_for(|process| !matches!(process, Process::Running(_)));
                        let _ = tokio::time::timeout(pause, ended).await;
                    }
                }
            }
        };
        within(deadline, DOING, answers).await
    }

    /// Writes everything to disk that is not there yet, so that a start after this has little to recover,
    /// and `pg_rewind` against a primary that was promoted just now sees its new timeline.
    pub async fn checkpoint(&self, deadline: Duration) -> Result<()> {
        const DOING: &str = "writing a checkpoint";
        within(deadline, DOING, async {
            let client = self.local().connect(SUPERUSER).await?;
            execute(&client, DOING, "CHECKPOINT").await
        })
        .await
    }

    /// Does most of the work of ending while it still serves: what is in memory is written, and the segment of the
    /// log that it ends with will not have to be filled with zeroes first.
    pub async fn wind_down(&self, deadline: Duration) -> Result<()> {
        let files = async {
            self.wanted_mut().ending = true;
            self.rewrite().await
        };
        within(deadline, "preparing for the end", files).await?;
        self.checkpoint(deadline).await
    }

    /// Has a checkpoint written, and does not wait for it.
    pub fn checkpoint_soon(&self) {
        let local = self.local();
        tokio::spawn(async move {
            let written = async {
                let client = local.connect(SUPERUSER).await?;
                execute(&client, "writing a checkpoint", "CHECKPOINT").await
            };
            if let Err(error) = written.await {
                tracing::warn!(%error, "no checkpoint was written");
            }
        });
    }

    /// Lets clients in, or turns them away: all but those who follow this instance, and whoever comes over the local
    /// socket. Sessions that are there stay. A primary lets them in from its start, or its promotion, on.
    pub async fn let_clients_in(&self, open: bool) -> Result<()> {
        let before = std::mem::replace(&mut self.wanted_mut().shut, !open);
        // Where it does not run, the next start takes it.
        if before != open || self.stopped("").is_ok() {
            return Ok(());
        }
        let rewritten = self.rewrite().await;
        if rewritten.is_err() {
            self.wanted_mut().shut = before;
        }
        rewritten
    }

    /// Whether a running replica has more of something than was asked for, since its primary had as much.
    pub fn is_floored(&self) -> bool {
        self.wanted().floored
    }

    /// Writes the files anew, for what they follow from besides settings: the role, and what the primary
    /// has.
    pub async fn refresh(&self) -> Result<()> {
        self.rewrite().await
    }

    /// Ends what receives, until none comes back: one that replays much does not look at its settings for
    /// a while, and what receives would go on meanwhile.
    async fn cut(&self) -> Result<()> {
        const DOING: &str = "following nobody";
        const END: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'walreceiver'";
        let client = self.local().connect(SUPERUSER).await?;
        let mut quiet = 0;
        while quiet < 3 {
            quiet = if value(&client, DOING, END).await? == "0" { quiet + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The last epoch in which this data took writes, if it has not been replaced since.
    pub fn led(&self) -> Option<u64> {
        folders::led(&self.programs.layout)
    }

    /// Writes down that this data takes writes in an epoch; or, for none, that it follows another.
    pub async fn set_led(&self, epoch: Option<u64>) -> Result<()> {
        self.blocking(move |layout| folders::set_led(layout, epoch)).await
    }

    /// Whether PostgreSQL has ever ended on this data because its disk had failed it. Such data is not made primary
    /// again; a copy in its place may be.
    pub fn is_damaged(&self) -> bool {
        self.damage.is_there()
    }

    fn undamaged(&self, doing: &'static str) -> Result<()> {
        match self.is_damaged() {
            true => Err(Error::Damaged { doing, note: folders::damage_mark(&self.programs.layout) }),
            false => Ok(()),
        }
    }

    /// Makes the server read its files again, certificates included, and waits until it has.
    pub async fn reload(&self) -> Result<()> {
        const DOING: &str = "reloading the configuration";
        let pid = self.running(DOING)?;
        let before = within(TAKEN, DOING, self.loaded()).await;
        let _ = kill(pid, Signal::SIGHUP);
        let before = match before {
            Ok(before) => before,
            // One that lets nobody in yet (it recovers) has nobody who could see the old values.
            Err(Error::Sql { code: Some(code), .. }) if code == STARTING => return Ok(()),
            Err(error) => return Err(error),
        };
        within(TAKEN, DOING, async {
            // A new connection is forked from the postmaster, and so has what that has read.
            while self.loaded().await? == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
        .await
    }

    async fn loaded(&self) -> Result<String> {
        let client = self.local().connect(SUPERUSER).await?;
        value(&client, "reloading the configuration", "SELECT extract(epoch FROM pg_conf_load_time())").await
    }

    fn wanted(&self) -> Wanted {
        self.wanted_mut().clone()
    }

    fn wanted_mut(&self) -> MutexGuard<'_, Wanted> {
        // Every change of it is one assignment.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn local(&self) -> Local {
        Local { sockets: self.programs.layout.sockets.clone(), port: self.wanted().settings.port }
    }

    fn processes(&self) -> Processes {
        processes(&self.programs.layout, self.programs.major)
    }

    fn running(&self, doing: &'static str) -> Result<Pid> {
        match *self.process.borrow() {
            Process::Running(pid) => Ok(Pid::from_raw(i32::try_from(pid).unwrap_or_default())),
            Process::Idle | Process::Ended(_) => Err(Error::Running { doing, running: false }),
        }
    }

    /// The files as they should be now.
    fn files(&self, wanted: &Wanted, floor: Option<&Floor>) -> Files {
        configure(&Inputs {
            layout: &self.programs.layout,
            major: self.programs.major,
            settings: &wanted.settings,
            upstream: wanted.upstream.as_ref(),
            synchronous: &wanted.synchronous,
            ending: wanted.ending,
            shut: wanted.shut,
            floor,
        })
    }

    async fn write_files(&self, floor: Option<&Floor>) -> Result<()> {
        let files = self.files(&self.wanted(), floor);
        self.wanted_mut().floored = files.floored;
        self.blocking(move |layout| {
            let at = |name| layout.config_file(name);
            write(&at(conninfo::PASSFILE), files.passfile.reveal())?;
            write(&at("pg_hba.conf"), &files.hba)?;
            write(&at("pg_ident.conf"), &files.ident)?;
            write(&at("postgresql.conf"), &files.conf)
        })
        .await
    }

    fn write_passfile(&self) -> Result<()> {
        let files = self.files(&self.wanted(), None);
        write(&self.programs.layout.config_file(conninfo::PASSFILE), files.passfile.reveal())
    }

    /// What a replica must have at least. A primary sets its own.
    async fn floor(&self, replica: bool) -> Result<Option<Floor>> {
        if !replica {
            return Ok(None);
        }
        Ok(Some(self.read_control(self.programs.layout.data()).await?.1))
    }

    /// The files follow from what is wanted now, and the running server takes them.
    async fn rewrite(&self) -> Result<()> {
        let replica = self.programs.layout.data().join("standby.signal").exists();
        self.write_files(self.floor(replica).await?.as_ref()).await?;
        self.reload().await
    }

    /// Work on files that may take a while: for ever, where a disk hangs. Whoever waits for it can stop waiting.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Layout) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let layout = self.programs.layout.clone();
        let done = tokio::task::spawn_blocking(move || work(&layout)).await;
        done.unwrap_or_else(|error| Err(Error::Data { doing: "changing folders", why: error.to_string() }))
    }
}
