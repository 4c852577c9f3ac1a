//! Carries out what leadership decides: one step at a time, and a look at the database in between. An order
//! to close is carried out at once, whatever else is under way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_api::instance::{InstanceSettings, KeptReport, Names, RestoreRule, paths, ports, reasons};
use keelson_engine::postgres::{
    Postgres, Resources, Restored, SLOT_PREFIX, Settings, Slot, Status, slot_name,
};
use keelson_engine::{Data, Engine, Error, Lsn, Process, Role, Stop, Synchronous, Upstream};
use keelson_ha::{Instance, Quorum, Running, Target};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::archiving::{self, Told};
use crate::catching_up;
use crate::credentials::Credentials;
use crate::doors::Doors;
use crate::environment::Environment;
use crate::facts::{self, Facts, Heard, Leave, Order, Trouble, Troubles, stopped};
use crate::in_place::{self, Survey};
use crate::peers::{KeptLog, Peers};
use crate::restoring;
use crate::room::Room;
use crate::silence::Silence;
use crate::slots;
use crate::steps::{Acting, Leader, Remedy, Step, Volume, WayBack};
use crate::steps::{after_start_in_vain, next, paced, remedy, trouble, way_back};

/// How often the database is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often, while something is about to change.
const QUICK: Duration = Duration::from_millis(50);
/// How often it is looked whether the primary has less now than what a replica needed.
const FLOOR: Duration = Duration::from_secs(5);
/// How long a look, or a heartbeat, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to bring roles, passwords, slots and settings up to date.
const UPKEEP: Duration = Duration::from_secs(3);
/// How long a database may take to end in good order.
const FINISH: Duration = Duration::from_secs(30);
/// How long it may write out what it has in memory before that, while it still serves.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// How long, meanwhile, finished log may take to be sent.
const DRAIN: Duration = Duration::from_secs(1);
/// How long it may take to end at once. It is killed after that.
const CLOSE: Duration = Duration::from_millis(500);
/// How long a promotion may take.
const PROMOTE: Duration = Duration::from_secs(30);
/// So long one that led waits for a new leader to begin a timeline of its own.
const UNBEGUN: Duration = Duration::from_secs(15);
/// A step may fail for this long before that is said: others may not be ready for it yet, as a primary that is
/// just being made and is to be copied.
const TROUBLE: Duration = Duration::from_secs(10);

/// A database that has answered and runs for this long was started well.
const SETTLED: Duration = Duration::from_secs(10);

/// After how long a restore is tried again that a store or a disk has failed.
const RESTORE_SOON: Duration = Duration::from_secs(10);
/// After how long one that waits for a person.
const RESTORE_LATER: Duration = Duration::from_secs(30);

/// So often it is tried to take back what the leader does not have before the leader is copied.
const REWINDS: u32 = 3;

/// What is wanted of the database besides its role.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What the engine is to be configured with.
    pub engine: Settings,
    /// What the operator says.
    pub instance: InstanceSettings,
    /// Which settings these are.
    pub fingerprint: String,
    /// Passwords.
    pub credentials: Credentials,
    /// Asks for a restart when it changes.
    pub restart: Option<String>,
}

/// What the rest of the agent tells the driver.
pub struct Shell {
    /// Where the others are.
    pub peers: Peers,
    /// What the database is to do.
    pub target: watch::Receiver<Order>,
    /// What is wanted of it besides.
    pub wanted: watch::Receiver<Wanted>,
    /// What the leader keeps of the log.
    pub kept: watch::Receiver<Option<KeptLog>>,
    /// How much room its volume has.
    pub room: watch::Receiver<Room>,
    /// How it stands with the archive of its log.
    pub archived: watch::Receiver<Told>,
    /// Somebody wants to know at once how the database is.
    pub nudge: Arc<Notify>,
    /// Until when commits may be acknowledged.
    pub leave: Leave,
    /// Whether the restore in place that is asked for can be.
    pub survey: watch::Receiver<Survey>,
    /// The restore in place that was begun and failed, and why.
    pub failed: watch::Sender<Option<(String, Trouble)>>,
    /// What a restore in place has put aside.
    pub put_aside: watch::Receiver<Option<KeptReport>>,
}

/// Drives one database.
pub struct Driver {
    here: Environment,
    engine: Arc<Postgres>,
    shell: Shell,
    /// The order that is being carried out.
    order: u64,
    /// What acknowledges commits that wait for no other instance.
    fence: Option<JoinHandle<()>>,
    facts: watch::Sender<Facts>,
    data: Data,
    acting: Acting,
    /// The settings, credentials and sizes that are in force.
    applied: Option<(String, Credentials, Resources)>,
    /// What was last made sure of on the primary.
    kept: Option<(Credentials, u32)>,
    /// When it was last looked whether the primary has less now.
    floor: Option<Instant>,
    /// For how long nothing has come to this replica.
    silence: Silence,
    /// How far this replica had replayed the log when it was last looked at.
    replayed: Option<Lsn>,
    /// When somebody last took writes, as far as is known here: this instance, or one whose log came in.
    alive: Option<Instant>,
    remedy: Remedy,
    troubles: Troubles,
    starts: Starts,
    /// Whether it was started once more, since nothing came, and nothing has come since.
    restarted: bool,
    /// How often in a row it could not be taken back.
    rewinds: u32,
    /// Since when steps fail.
    failing: Option<Instant>,
    /// Whether what a copy has replaced may still be there.
    old: bool,
    /// The last epoch in which the data took writes.
    led: Option<u64>,
    /// Why it could not be made from a repository, and when that is tried again.
    unrestored: Option<(Instant, Trouble)>,
    /// What a restore in place has made beside the data.
    whole: Option<Restored>,
    /// The restore in place that was begun last, and how often that failed.
    begun: (String, u32),
    /// Whether clients are let in where this is a replica.
    doors: Doors,
}

impl Driver {
    /// Drives a database until the process ends.
    pub async fn start(
        here: Environment,
        engine: Arc<Postgres>,
        shell: Shell,
    ) -> Result<watch::Receiver<Facts>, Error> {
        let data = engine.data().await?;
        let (led, whole) = (engine.led(), engine.restored());
        let (facts, receiver) = watch::channel(Facts {
            order: 0,
            instance: stopped(&data, led),
            status: None,
            joining: false,
            followed: false,
            admits: false,
            heard: None,
            floored: false,
            fingerprint: None,
            credentials: None,
            restarted: shell.wanted.borrow().restart.clone(),
            gap: None,
            trouble: None,
        });
        let driver = Driver {
            here,
            engine,
            shell,
            order: 0,
            fence: None,
            facts,
            data,
            acting: Acting::Not,
            applied: None,
            kept: None,
            floor: None,
            silence: Silence::broken(Instant::now()),
            replayed: None,
            alive: None,
            remedy: Remedy::None,
            troubles: Troubles::default(),
            starts: Starts::default(),
            restarted: false,
            rewinds: 0,
            failing: None,
            old: true,
            led,
            unrestored: None,
            whole,
            begun: (String::new(), 0),
            doors: Doors::new(led.is_some()),
        };
        tokio::spawn(driver.drive());
        Ok(receiver)
    }

    async fn drive(mut self) {
        let mut process = self.engine.process();
        loop {
            let mut closing = self.shell.target.clone();
            let to_lead =
                matches!(self.shell.target.borrow().target, Target::Primary { .. } | Target::Create);
            let leads = to_lead || matches!(self.acting, Acting::Primary(_));
            let told_to_close =
                async { closing.wait_for(|order| order.target == Target::Close).await.is_ok() };
            let again = tokio::select! {
                biased;
                true = told_to_close, if leads => None,
                again = self.round(&mut process) => Some(again),
            };
            match again {
                Some(false) => {}
                Some(true) => continue,
                None => {
                    self.close().await;
                    self.look().await;
                    continue;
                }
            }
            let pause = match self.acting {
                Acting::Replica(None) => QUICK,
                _ => LOOK,
            };
            tokio::select! {
                changed = self.shell.target.changed() => if changed.is_err() { return },
                _ = process.changed() => {}
                () = self.shell.nudge.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One step, and a look. Says whether another one may follow at once.
    async fn round(&mut self, process: &mut watch::Receiver<Process>) -> bool {
        let Order { number, target } = self.shell.target.borrow_and_update().clone();
        self.order = number;
        let process_is = *process.borrow_and_update();
        self.notice_end(process_is).await;
        let whole = self
            .whole
            .as_ref()
            .filter(|whole| matches!(&target, Target::Restore { name, .. } if *name == whole.name));
        let whole = whole.map(|whole| whole.timeline.into());
        let volume = Volume { led: self.led.is_some(), damaged: self.engine.is_damaged(), whole };
        let step = next(&target, &self.data, &self.acting, volume, self.remedy);
        let step =
            paced(step, self.starts.in_vain, self.starts.ended.map_or(Duration::MAX, |at| at.elapsed()));
        let done = self.take(&step).await;
        self.failing = done.is_err().then(|| self.failing.unwrap_or_else(Instant::now));
        let for_long = self.failing.is_some_and(|since| since.elapsed() >= TROUBLE);
        self.troubles.step = match &done {
            Err(_) if self.unrestored.is_some() => self.unrestored.clone().map(|(_, trouble)| trouble),
            Err(error) => for_long.then(|| (reason(error), error.to_string())),
            Ok(()) => trouble(&step, self.starts.in_vain).map(|why| ("Stuck".to_owned(), why)),
        };
        self.say();
        if let Err(error) = &done {
            tracing::warn!(?step, %error, "a step failed, and is tried again");
        }
        self.look().await;
        // After a step the next one may follow at once; a failed one waits, as does one that is done.
        done.is_ok() && !matches!(step, Step::Nothing | Step::Trouble(_))
    }

    /// A database that has ended by itself is no longer acting.
    async fn notice_end(&mut self, process: Process) {
        if !matches!(process, Process::Running(_)) && self.acting != Acting::Not {
            tracing::warn!(?process, "the database has ended by itself, or was not started");
            self.count_start();
            self.ended().await;
        }
    }

    /// A start that came to nothing counts until one does not.
    fn count_start(&mut self) {
        if !self.starts.well {
            self.starts.in_vain += 1;
            self.starts.ended = Some(Instant::now());
            let in_vain = self.starts.in_vain;
            self.remedy = after_start_in_vain(self.remedy, &self.shell.target.borrow().target, in_vain);
            tracing::warn!(in_vain, remedy = ?self.remedy, "a start has come to nothing");
        }
    }

    async fn take(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Nothing | Step::Trouble(_) => return Ok(()),
            Step::Initialise => {
                let from = self.shell.wanted.borrow().instance.restore.clone();
                match from {
                    Some(rule) => self.restore(&rule).await?,
                    None => {
                        tracing::info!("making a new database");
                        self.engine.initialise().await?;
                    }
                }
            }
            Step::Clone(of) => self.copy(of).await?,
            Step::Restore(history) => self.restore_in_place(*history).await?,
            Step::Place => {
                tracing::warn!("the data that was restored takes the place of the old, which is kept");
                self.engine.place_restored().await?;
                self.led = self.engine.led();
                self.whole = self.engine.restored();
            }
            Step::Rewind(of) => self.rewind(of).await?,
            Step::StartPrimary(epoch, commits) => {
                tracing::info!(epoch, "starting as primary");
                self.forget_restored().await?;
                self.set_led(Some(*epoch)).await?;
                self.engine.set_synchronous(&synchronous(commits)).await?;
                // Said before it is so: what may take writes counts as taking them.
                self.acting = Acting::Primary(commits.clone());
                self.doors.lead();
                self.starts.begin();
                self.engine.start(&Role::Primary).await?;
                self.keep_fence(commits);
            }
            Step::StartReplica(of) => {
                tracing::info!(?of, "starting as a replica");
                self.forget_restored().await?;
                if of.is_some() {
                    self.set_led(None).await?;
                }
                let upstream = self.upstream_of(of.as_ref()).await;
                // A server for which commits wait for nobody at first comes to wait only some time after it
                // was told to.
                self.engine.set_synchronous(&synchronous(&Quorum::fence())).await?;
                self.engine.let_clients_in(self.doors.are_open()).await?;
                self.starts.begin();
                self.engine.start(&Role::Replica(upstream)).await?;
                self.acting = Acting::Replica(of.clone());
                self.silence = Silence::broken(Instant::now());
            }
            Step::Promote { epoch, history, commits } => {
                tracing::info!(epoch, history, "becoming primary");
                self.set_led(Some(*epoch)).await?;
                self.acting = Acting::Primary(commits.clone());
                self.doors.lead();
                self.keep_fence(commits);
                self.engine.promote(&synchronous(commits), *history, PROMOTE).await?;
                // Those that have to be rewound find the new history in it.
                self.engine.checkpoint_soon();
            }
            Step::Commits(commits) => {
                tracing::info!(?commits, "commits wait for others");
                self.keep_fence(commits);
                // Until it is known that it is done, it may be either.
                self.acting = Acting::Primary(Quorum { names: BTreeSet::new(), count: usize::MAX });
                self.engine.set_synchronous(&synchronous(commits)).await?;
                self.acting = Acting::Primary(commits.clone());
            }
            Step::Follow(of) => self.follow(of.as_ref()).await?,
            Step::Finish => {
                tracing::info!("ending in good order");
                if matches!(self.acting, Acting::Primary(_)) {
                    // What is finished of the log is sent while it still serves. What is not is sent by the next.
                    let drained = archiving::drained(self.shell.archived.clone(), DRAIN);
                    tokio::join!(self.wind_down(), drained);
                }
                self.engine.stop(Stop::Fast, FINISH).await?;
                self.ended().await;
            }
            Step::Close => self.close().await,
        }
        if self.acting == Acting::Not {
            self.data = self.engine.data().await?;
        }
        Ok(())
    }

    async fn close(&mut self) {
        tracing::warn!("ending at once: this instance does not lead");
        if let Err(error) = self.engine.stop(Stop::Immediate, CLOSE).await {
            tracing::error!(%error, "the database could not be ended");
        }
        self.acting = Acting::Not;
        self.kept = None;
        // Known at once; what is on a disk that hangs may take a while to be read.
        let instance = stopped(&Data::Absent, None);
        self.facts.send_modify(|facts| {
            let Instance { data, history, restore, .. } = facts.instance.clone();
            facts.instance = Instance { data, history, restore, ..instance };
            facts.status = None;
        });
        self.ended().await;
    }

    /// Puts the fence up before commits wait for it, and leaves it there while it may be waited for.
    fn keep_fence(&mut self, commits: &Quorum) {
        if commits.is_fenced() && self.fence.is_none() {
            let leave = self.shell.leave.clone();
            self.fence = Some(self.engine.fence(move || leave.is_given()));
        }
    }

    async fn set_led(&mut self, epoch: Option<u64>) -> Result<(), Error> {
        self.engine.set_led(epoch).await?;
        self.led = epoch;
        Ok(())
    }

    async fn ended(&mut self) {
        self.acting = Acting::Not;
        self.kept = None;
        if let Some(fence) = self.fence.take() {
            fence.abort();
        }
        match self.engine.data().await {
            Ok(data) => self.data = data,
            Err(error) => tracing::error!(%error, "the data folder can't be read"),
        }
    }

    /// Follows another, or nobody.
    async fn follow(&mut self, of: Option<&Leader>) -> Result<(), Error> {
        tracing::info!(?of, "following another, or nobody");
        let upstream = self.upstream_of(of).await;
        if of.is_some() {
            self.set_led(None).await?;
        }
        self.engine.follow(upstream.as_ref()).await?;
        self.acting = Acting::Replica(of.cloned());
        self.silence = Silence::broken(Instant::now());
        Ok(())
    }

    /// Waits until the database is to do something else than now.
    fn something_else(&self) -> impl Future<Output = ()> + use<> {
        let mut target = self.shell.target.clone();
        let wanted = target.borrow_and_update().clone();
        async move { while target.changed().await.is_ok() && *target.borrow() == wanted {} }
    }

    /// Makes the database from a repository, unless meanwhile something else is wanted. What went wrong is said at once,
    /// and a store is not asked all the time.
    async fn restore(&mut self, rule: &RestoreRule) -> Result<(), Error> {
        let failed = |why: &str| Error::Data { doing: "restoring", why: why.to_owned() };
        if let Some((again, (_, problem))) = &self.unrestored
            && Instant::now() < *again
        {
            return Err(failed(problem));
        }
        let (engine, other) = (self.engine.clone(), self.something_else());
        let begins = |_: &str| self.facts.send_modify(|facts| facts.joining = true);
        let restored = tokio::select! {
            restored = restoring::restore(&engine, rule, paths::PROGRAM, begins) => restored,
            () = other => return Ok(()),
        };
        self.unrestored = match restored {
            Ok(()) => None,
            Err(trouble) => {
                let pause = if trouble.passes { RESTORE_SOON } else { RESTORE_LATER };
                Some((Instant::now() + pause, (trouble.reason.to_owned(), trouble.problem)))
            }
        };
        self.unrestored.as_ref().map_or(Ok(()), |(_, (_, problem))| Err(failed(problem)))
    }

    /// Makes data of an earlier moment beside that which is there, unless meanwhile something else is wanted. What may
    /// pass is tried a few times; then the old data serves again.
    async fn restore_in_place(&mut self, history: u64) -> Result<(), Error> {
        let failed = |why: &str| Error::Data { doing: "restoring in place", why: why.to_owned() };
        if let Some((again, (_, problem))) = &self.unrestored
            && Instant::now() < *again
        {
            return Err(failed(problem));
        }
        let Some(rule) = self.shell.wanted.borrow().instance.in_place.clone() else { return Ok(()) };
        if self.begun.0 != rule.name {
            self.begun = (rule.name.clone(), 0);
        }
        let owner = format!("{}/{}", self.here.namespace, self.here.database);
        let (engine, other) = (self.engine.clone(), self.something_else());
        self.facts.send_modify(|facts| facts.joining = true);
        let restored = tokio::select! {
            restored = in_place::restore(&engine, &rule, &owner, history, paths::PROGRAM) => restored,
            () = other => return Ok(()),
        };
        self.whole = self.engine.restored();
        let Err(trouble) = restored else {
            self.unrestored = None;
            return Ok(());
        };
        self.begun.1 += 1;
        let told = (trouble.reason.to_owned(), trouble.problem.clone());
        let over = !trouble.passes || self.begun.1 >= in_place::TRIES;
        self.shell.failed.send_replace(Some((rule.name, told.clone())));
        self.unrestored = (!over).then(|| (Instant::now() + RESTORE_SOON, told));
        if over {
            self.begun.1 = in_place::TRIES;
            tracing::error!(
                problem = trouble.problem,
                "the restore in place is given up, and the old data serves again"
            );
        }
        Err(failed(&trouble.problem))
    }

    /// The restore in place that is not begun again.
    fn given_up(&self) -> Option<&str> {
        (self.begun.1 >= in_place::TRIES).then_some(self.begun.0.as_str())
    }

    /// What was restored beside the data has taken its place by now, or never will.
    async fn forget_restored(&mut self) -> Result<(), Error> {
        self.engine.discard_restored().await?;
        self.whole = None;
        self.unrestored = None;
        Ok(())
    }

    /// Copies another instance, unless meanwhile something else is wanted.
    async fn copy(&mut self, of: &str) -> Result<(), Error> {
        tracing::info!(of, "copying another instance");
        self.facts.send_modify(|facts| facts.joining = true);
        let upstream = self.upstream(of).await;
        let other = self.something_else();
        tokio::select! {
            copied = Engine::clone_from(self.engine.as_ref(), &upstream, &|_| {}) => copied?,
            () = other => return Ok(()),
        }
        self.remedy = Remedy::None;
        self.old = true;
        (self.led, self.whole) = (self.engine.led(), None);
        Ok(())
    }

    /// Takes back what another does not have. Where that can't be done, it is copied instead.
    async fn rewind(&mut self, of: &str) -> Result<(), Error> {
        let upstream = self.upstream(of).await;
        let theirs = self.engine.timeline_of(&upstream).await?;
        let waited = self.failing.is_some_and(|since| since.elapsed() > UNBEGUN);
        match way_back(&self.data, theirs, self.remedy, waited, self.restarted || self.starts.in_vain > 0) {
            WayBack::Rewind => tracing::warn!(of, "taking back what the leader does not have"),
            WayBack::Wait => {
                let why = format!("{of} has not begun a timeline of its own yet");
                return Err(Error::Data { doing: "taking back what the leader does not have", why });
            }
            WayBack::Restart => {
                tracing::warn!(of, "nothing comes from the leader, so this replica is started once more");
                let more = self.bring_log().await;
                (self.remedy, self.restarted) = (Remedy::None, !more);
                return Ok(());
            }
            WayBack::Clone => {
                tracing::warn!(of, "this replica can't follow, so the leader is copied");
                self.remedy = Remedy::Clone;
                return Ok(());
            }
        }
        let rewound = self.engine.rewind_from(&upstream).await;
        self.remedy = match &rewound {
            Ok(()) => Remedy::None,
            // What was not touched yet can be tried again: the leader may have gone.
            Err(_) if self.rewinds < REWINDS => self.remedy,
            Err(error) => {
                tracing::warn!(%error, "it can't be taken back, so the leader is copied");
                Remedy::Clone
            }
        };
        self.rewinds = if rewound.is_ok() { 0 } else { self.rewinds + 1 };
        if rewound.is_ok() {
            self.set_led(None).await?;
        }
        rewound
    }

    /// Log that the leader may no longer have, from the repository, unless meanwhile something else is wanted. Says
    /// whether there is more of it to be replayed than was brought.
    async fn bring_log(&self) -> bool {
        let store = self.shell.wanted.borrow().instance.backup.as_ref().map(|rule| rule.to.clone());
        let (Some(store), Data::Present(replica)) = (store, &self.data) else { return false };
        let most = catching_up::at_once(*self.shell.room.borrow());
        tokio::select! {
            brought = catching_up::bring_log(&self.engine, &store, replica, most) => {
                brought.unwrap_or_else(|trouble| {
                    tracing::warn!(reason = trouble.reason, problem = trouble.problem, "no log was brought");
                    false
                })
            }
            () = self.something_else() => true,
        }
    }

    async fn upstream_of(&self, of: Option<&Leader>) -> Option<Upstream> {
        match of {
            Some(of) => Some(self.upstream(&of.name).await),
            None => None,
        }
    }

    async fn upstream(&self, of: &str) -> Upstream {
        Upstream {
            host: self.here.host(of),
            address: self.shell.peers.find(of).await,
            port: ports::POSTGRES,
            slot: Some(slot_name(&self.here.pod)),
        }
    }

    fn say(&self) {
        self.facts.send_modify(|facts| {
            facts.joining = false;
            facts.trouble = self.troubles.told();
        });
    }

    /// Looks at the database, and keeps what belongs to it as it should be.
    async fn look(&mut self) {
        let status = match self.acting {
            Acting::Not => None,
            _ => self.engine.status(PATIENCE).await.ok(),
        };
        let leads = matches!(self.acting, Acting::Primary(_));
        let primary = leads && status.as_ref().is_some_and(|status| !status.in_recovery);
        let known = self.facts.borrow().status.as_ref().is_some_and(|status| !status.in_recovery);
        if primary && !known {
            // Writers are led here while the first write is still under way.
            self.tell(status.clone(), None);
        }
        let alive = primary && self.engine.heartbeat(PATIENCE).await.is_ok();
        self.starts.seen(alive || status.as_ref().is_some_and(facts::streams), status.is_some());
        self.tell(status.clone(), alive.then(Instant::now));
        self.consider_remedy(status.as_ref()).await;
        if status.as_ref().is_some_and(|status| status.slots.iter().any(is_lost)) {
            self.kept = None;
        }
        // None of it is as urgent as a new order.
        let ordered = self.ordered_otherwise();
        let upkeep = async {
            if status.is_some() {
                self.settle().await?;
            }
            if !leads {
                self.admit(status.as_ref()).await?;
            }
            match &status {
                Some(_) if primary => self.keep().await?,
                Some(status) if !leads => self.keep_for_others(status).await,
                _ => {}
            }
            Ok(())
        };
        let done = async {
            tokio::select! {
                biased;
                () = ordered => Ok(()),
                done = upkeep => done,
            }
        };
        let trouble = match tokio::time::timeout(UPKEEP, done).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((reason(&error), error.to_string())),
            Err(_) => Some(("DatabaseFailed".to_owned(), "the database does not answer in time".to_owned())),
        };
        let full = || Some(*self.shell.room.borrow()).filter(|room| room.is_full());
        let kept = self.shell.put_aside.borrow().clone();
        let told = |room| in_place::told_of_room(room, kept.as_ref());
        let trouble = trouble.or_else(|| Some((reasons::VOLUME_FULL.to_owned(), told(full()?))));
        self.troubles.upkeep = trouble;
        self.say();
        if status.is_some() {
            self.restart_if_asked().await;
        }
    }

    /// What leadership is to know.
    fn tell(&mut self, status: Option<Status>, written: Option<Instant>) {
        let streams = status.as_ref().is_some_and(facts::streams);
        let replayed = status.as_ref().and_then(|status| status.replayed);
        // One that still has log of its own to replay asks for no more before it has.
        if replayed > self.replayed {
            self.silence = Silence::broken(Instant::now());
        }
        self.replayed = replayed;
        if streams {
            let now = Instant::now();
            self.silence = Silence::broken(now);
            self.restarted = false;
            let silent = status.as_ref().and_then(|status| status.receiver.as_ref()?.silent);
            let silent = silent.and_then(|silent| Duration::try_from_secs_f64(silent).ok());
            self.alive = silent.map_or(Some(now), |silent| now.checked_sub(silent));
        }
        let end = status.as_ref().and_then(|status| status.receiver.as_ref()?.latest_end);
        let heard = self.alive.filter(|_| streams).map(|at| Heard { at, end });
        let names = Names(&self.here.database);
        let mut instance = facts::observe(&self.acting, &self.data, self.led, status.as_ref(), names);
        let last = self.facts.borrow().instance.written.filter(|_| instance.running == Running::Primary);
        instance.written = written.or(last);
        let first = written.filter(|_| last.is_none());
        let gap = first.zip(self.alive).map(|(first, alive)| first.saturating_duration_since(alive));
        self.alive = written.or(self.alive);
        instance.damaged = self.engine.is_damaged();
        instance.full = self.shell.room.borrow().is_full();
        let asked = self.shell.wanted.borrow().instance.in_place.as_ref().map(|rule| rule.name.clone());
        let (whole, survey) = (self.whole.as_ref(), self.shell.survey.borrow().clone());
        instance.restore = in_place::standing(whole, self.given_up(), &survey, asked.as_deref(), self.led);
        self.facts.send_modify(|facts| {
            facts.order = self.order;
            facts.instance = instance;
            facts.followed = matches!(self.acting, Acting::Replica(_)) && (facts.followed || streams);
            facts.heard = heard.or(facts.heard).filter(|_| matches!(self.acting, Acting::Replica(_)));
            facts.floored = self.engine.is_floored();
            if first.is_some() {
                facts.gap = gap;
            }
            facts.status = status;
        });
    }

    /// A replica to which nothing comes although it follows somebody has lost its way.
    async fn consider_remedy(&mut self, status: Option<&Status>) {
        let followed = self.facts.borrow().followed;
        if self.old && followed {
            match self.engine.discard_old().await {
                Ok(()) => self.old = false,
                Err(error) => tracing::warn!(%error, "what a copy has replaced could not be removed"),
            }
        }
        if let Acting::Replica(Some(of)) = &self.acting
            && status.is_some()
            && self.silence.is_to_ask(Instant::now())
        {
            let answered = self.is_answered_by(&of.name).await;
            self.silence.asked(answered, Instant::now());
        }
        let silent = status.is_some() && self.silence.is_own_fault(Instant::now());
        let damaged = self.engine.is_damaged();
        let next = remedy(self.remedy, &self.shell.target.borrow().target, &self.acting, silent, damaged);
        if next != self.remedy {
            tracing::warn!(silent, damaged, remedy = ?next, "this replica has to be brought back");
            self.remedy = next;
        }
    }

    /// Whether another lets this instance in as one that follows it. Not waited for once there is another order.
    async fn is_answered_by(&self, of: &str) -> bool {
        let asked = async { self.engine.timeline_of(&self.upstream(of).await).await };
        tokio::select! {
            biased;
            () = self.ordered_otherwise() => false,
            asked = tokio::time::timeout(UPKEEP, asked) => {
                matches!(asked, Ok(Ok(_)))
            }
        }
    }

    /// Waits until something else is ordered than what is being carried out.
    fn ordered_otherwise(&self) -> impl Future<Output = ()> + use<> {
        let (mut order, number) = (self.shell.target.clone(), self.order);
        async move {
            if order.wait_for(|order| order.number != number).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Roles, passwords and slots on the primary; they reach the replicas with all else.
    async fn keep(&mut self) -> Result<(), Error> {
        let wanted = self.shell.wanted.borrow().clone();
        let keep = (wanted.credentials.clone(), wanted.instance.replicas);
        if self.kept.as_ref() == Some(&keep) {
            return Ok(());
        }
        self.goes_by(None);
        let Credentials { superuser, app, revision, .. } = &wanted.credentials;
        self.engine.ensure_replication().await?;
        let slots = slots::wanted(Names(&self.here.database), &self.here.pod, wanted.instance.replicas);
        self.engine.ensure_slots(&slots.collect()).await?;
        self.engine.set_password(&superuser.name, &superuser.password).await?;
        self.engine.ensure_app(&app.name, &wanted.instance.app.database, &app.password).await?;
        self.goes_by(revision.clone());
        self.kept = Some(keep);
        Ok(())
    }

    /// Notes which credentials applications sign in with, as far as that is known here.
    fn goes_by(&self, revision: Option<String>) {
        self.facts.send_if_modified(|facts| {
            let changed = facts.credentials != revision;
            facts.credentials = revision;
            changed
        });
    }

    /// On a replica, slots for when it is promoted. It can do without.
    async fn keep_for_others(&mut self, status: &Status) {
        // They may change while another leads.
        if self.kept.take().is_some() {
            self.goes_by(None);
        }
        let instances = self.shell.wanted.borrow().instance.replicas;
        let wanted = || slots::wanted(Names(&self.here.database), &self.here.pod, instances);
        let kept = self.shell.kept.has_changed().is_ok_and(|changed| changed);
        let Some(kept) = self.shell.kept.borrow_and_update().clone().filter(|_| kept) else { return };
        let keep = async {
            self.engine.ensure_slots(&wanted().collect()).await?;
            for (slot, from) in slots::to_keep(wanted(), &kept, status.position()) {
                self.engine.advance_slot(&slot, from).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = keep.await {
            tracing::warn!(%error, "the log is not kept here for the others");
        }
    }

    /// Lets clients in again where this instance led, once another has led for a while.
    async fn admit(&mut self, status: Option<&Status>) -> Result<(), Error> {
        let shut = !self.doors.are_open();
        self.doors.follow(status.is_some_and(facts::streams), Instant::now());
        if shut && self.doors.are_open() {
            tracing::info!("another has led for a while, so clients are let in again");
        }
        // Asked each time: it costs nothing where it is so already.
        self.engine.let_clients_in(self.doors.are_open()).await?;
        let admits = self.doors.are_open() && status.is_some();
        self.facts.send_if_modified(|facts| std::mem::replace(&mut facts.admits, admits) != admits);
        Ok(())
    }

    /// Settings that have changed.
    async fn settle(&mut self) -> Result<(), Error> {
        let wanted = self.shell.wanted.borrow().clone();
        // Settings come through the API server, passwords and certificates by way of the kubelet, a while later.
        // A volume grows when nobody asks.
        let wants = (wanted.fingerprint.clone(), wanted.credentials.clone(), wanted.engine.resources);
        if self.applied.as_ref() != Some(&wants) {
            self.engine.apply(&wanted.engine).await?;
            self.applied = Some(wants);
            self.facts.send_modify(|facts| facts.fingerprint = Some(wanted.fingerprint.clone()));
        }
        if self.engine.is_floored() && self.floor.is_none_or(|last| last.elapsed() > FLOOR) {
            self.floor = Some(Instant::now());
            self.engine.refresh().await?;
        }
        Ok(())
    }

    /// Most of the work of ending is done while it still serves.
    async fn wind_down(&self) {
        if let Err(error) = self.engine.wind_down(CHECKPOINT).await {
            tracing::debug!(%error, "it ends without having been prepared for it");
        }
    }

    async fn restart_if_asked(&mut self) {
        let asked = self.shell.wanted.borrow().restart.clone();
        if self.facts.borrow().restarted == asked {
            return;
        }
        tracing::info!("restarting the database, as asked");
        self.wind_down().await;
        self.facts.send_modify(|facts| facts.restarted = asked);
        if let Err(error) = self.engine.stop(Stop::Fast, FINISH).await {
            tracing::error!(%error, "the database could not be ended");
        }
        self.ended().await;
    }
}

/// How starts of the database went.
#[derive(Debug, Default)]
struct Starts {
    /// How many in a row came to nothing.
    in_vain: u32,
    /// When the last of these ended.
    ended: Option<Instant>,
    /// When it was last started.
    begun: Option<Instant>,
    /// Whether that came to something.
    well: bool,
}

impl Starts {
    fn begin(&mut self) {
        (self.begun, self.well) = (Some(Instant::now()), false);
    }

    /// It is of use: it writes, or follows. Or at least it answers, and goes on to.
    fn seen(&mut self, of_use: bool, answers: bool) {
        let settled = answers && self.begun.is_some_and(|begun| begun.elapsed() > SETTLED);
        if of_use || settled {
            (self.well, self.in_vain) = (true, 0);
        }
    }
}

/// Whether a slot of Keelson's own has lost what it kept.
fn is_lost(slot: &Slot) -> bool {
    slot.physical && !slot.active && slot.name.starts_with(SLOT_PREFIX) && slot.wal.as_deref() == Some("lost")
}

fn reason(error: &Error) -> String {
    match error {
        Error::Parameter { .. } => reasons::PARAMETER_REFUSED.to_owned(),
        _ => "DatabaseFailed".to_owned(),
    }
}

fn synchronous(quorum: &Quorum) -> Synchronous {
    Synchronous { count: quorum.count, names: quorum.names.iter().cloned().collect() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn leadership_and_engine_call_the_fence_the_same() {
        assert_eq!(keelson_ha::FENCE, keelson_engine::postgres::FENCE);
    }
}
