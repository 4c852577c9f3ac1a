//! Carries out what leadership decides: one step at a time, and a look at the database in between. An order
//! to close is carried out at once, whatever else is under way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_api::instance::{InstanceSettings, Names, ports, reasons};
use keelson_engine::postgres::{Postgres, SLOT_PREFIX, Settings, Slot, Status, slot_name};
use keelson_engine::{Data, Engine, Error, Process, Role, Stop, Synchronous, Upstream};
use keelson_ha::{Instance, Quorum, Running, Target};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::credentials::Credentials;
use crate::environment::Environment;
use crate::facts::{self, Facts, Leave, Order, stopped};
use crate::steps::{Acting, Leader, Remedy, Step, WayBack, next, way_back};

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
/// How long it may take to end at once. It is killed after that.
const CLOSE: Duration = Duration::from_millis(500);
/// How long a promotion may take.
const PROMOTE: Duration = Duration::from_secs(30);
/// A replica to which nothing has come for this long is brought back by other means.
const LEFT_BEHIND: Duration = Duration::from_secs(15);
/// A step may fail for this long before that is said: others may not be ready for it yet, as a primary that is
/// just being made and is to be copied.
const TROUBLE: Duration = Duration::from_secs(10);

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

/// Drives one database.
pub struct Driver {
    here: Environment,
    engine: Arc<Postgres>,
    target: watch::Receiver<Order>,
    /// The order that is being carried out.
    order: u64,
    wanted: watch::Receiver<Wanted>,
    /// Somebody wants to know at once how the database is.
    nudge: Arc<Notify>,
    leave: Leave,
    /// What acknowledges commits that wait for no other instance.
    fence: Option<JoinHandle<()>>,
    facts: watch::Sender<Facts>,
    data: Data,
    acting: Acting,
    /// The settings and credentials that are in force.
    applied: Option<(String, Credentials)>,
    /// What was last made sure of on the primary.
    kept: Option<(Credentials, u32)>,
    /// When it was last looked whether the primary has less now.
    floor: Option<Instant>,
    /// When something last came to this replica, or it was last made to follow.
    heard: Instant,
    remedy: Remedy,
    /// How often in a row it could not be taken back.
    rewinds: u32,
    /// Since when steps fail.
    failing: Option<Instant>,
    /// Whether what a copy has replaced may still be there.
    old: bool,
    /// The last epoch in which the data took writes.
    led: Option<u64>,
}

impl Driver {
    /// Drives a database until the process ends.
    pub async fn start(
        here: Environment,
        engine: Arc<Postgres>,
        target: watch::Receiver<Order>,
        wanted: watch::Receiver<Wanted>,
        nudge: Arc<Notify>,
        leave: Leave,
    ) -> Result<watch::Receiver<Facts>, Error> {
        let data = engine.data().await?;
        let led = engine.led();
        let (facts, receiver) = watch::channel(Facts {
            order: 0,
            instance: stopped(&data, led),
            status: None,
            joining: false,
            followed: false,
            floored: false,
            fingerprint: None,
            restarted: wanted.borrow().restart.clone(),
            trouble: None,
        });
        let driver = Driver {
            here,
            engine,
            target,
            order: 0,
            wanted,
            nudge,
            leave,
            fence: None,
            facts,
            data,
            acting: Acting::Not,
            applied: None,
            kept: None,
            floor: None,
            heard: Instant::now(),
            remedy: Remedy::None,
            rewinds: 0,
            failing: None,
            old: true,
            led,
        };
        tokio::spawn(driver.drive());
        Ok(receiver)
    }

    async fn drive(mut self) {
        let mut process = self.engine.process();
        loop {
            let mut closing = self.target.clone();
            let to_lead = matches!(self.target.borrow().target, Target::Primary { .. } | Target::Create);
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
                changed = self.target.changed() => if changed.is_err() { return },
                _ = process.changed() => {}
                () = self.nudge.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One step, and a look. Says whether another one may follow at once.
    async fn round(&mut self, process: &mut watch::Receiver<Process>) -> bool {
        let Order { number, target } = self.target.borrow_and_update().clone();
        self.order = number;
        let process_is = *process.borrow_and_update();
        self.notice_end(process_is).await;
        let step = next(&target, &self.data, &self.acting, self.led.is_some(), self.remedy);
        let done = self.take(&step).await;
        self.failing = done.is_err().then(|| self.failing.unwrap_or_else(Instant::now));
        let for_long = self.failing.is_some_and(|since| since.elapsed() >= TROUBLE);
        self.say(match (&done, &step) {
            (Err(error), _) => for_long.then(|| (reason(error), error.to_string())),
            (Ok(()), Step::Trouble(why)) => Some(("Stuck".to_owned(), why.clone())),
            (Ok(()), _) => None,
        });
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
            self.ended().await;
        }
    }

    async fn take(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Nothing | Step::Trouble(_) => return Ok(()),
            Step::Initialise => {
                tracing::info!("making a new database");
                self.engine.initialise().await?;
            }
            Step::Clone(of) => self.copy(of).await?,
            Step::Rewind(of) => self.rewind(of).await?,
            Step::StartPrimary(epoch, commits) => {
                tracing::info!(epoch, "starting as primary");
                self.set_led(Some(*epoch)).await?;
                self.engine.set_synchronous(&synchronous(commits)).await?;
                // Said before it is so: what may take writes counts as taking them.
                self.acting = Acting::Primary(commits.clone());
                self.engine.start(&Role::Primary).await?;
                self.keep_fence(commits);
            }
            Step::StartReplica(of) => {
                tracing::info!(?of, "starting as a replica");
                if of.is_some() {
                    self.set_led(None).await?;
                }
                let upstream = of.as_ref().map(|of| self.upstream(&of.name));
                // A server for which commits wait for nobody at first comes to wait only some time after it
                // was told to.
                self.engine.set_synchronous(&synchronous(&Quorum::fence())).await?;
                self.engine.start(&Role::Replica(upstream)).await?;
                self.acting = Acting::Replica(of.clone());
                self.heard = Instant::now();
            }
            Step::Promote(epoch, commits) => {
                tracing::info!(epoch, "becoming primary");
                self.set_led(Some(*epoch)).await?;
                self.acting = Acting::Primary(commits.clone());
                self.keep_fence(commits);
                self.engine.promote(&synchronous(commits), PROMOTE).await?;
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
                    // Most of the work of ending is done while it still serves.
                    let _ = self.engine.checkpoint(CHECKPOINT).await;
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
            facts.instance = Instance { data: facts.instance.data.clone(), ..instance };
            facts.status = None;
        });
        self.ended().await;
    }

    /// Puts the fence up before commits wait for it, and leaves it there while it may be waited for.
    fn keep_fence(&mut self, commits: &Quorum) {
        if commits.is_fenced() && self.fence.is_none() {
            let leave = self.leave.clone();
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
        let upstream = of.map(|of| self.upstream(&of.name));
        if of.is_some() {
            self.set_led(None).await?;
        }
        self.engine.follow(upstream.as_ref()).await?;
        self.acting = Acting::Replica(of.cloned());
        self.heard = Instant::now();
        Ok(())
    }

    /// Copies another instance, unless meanwhile something else is wanted.
    async fn copy(&mut self, of: &str) -> Result<(), Error> {
        tracing::info!(of, "copying another instance");
        self.facts.send_modify(|facts| facts.joining = true);
        let upstream = self.upstream(of);
        let mut target = self.target.clone();
        let wanted = target.borrow_and_update().clone();
        let other = async { while target.changed().await.is_ok() && *target.borrow() == wanted {} };
        tokio::select! {
            copied = Engine::clone_from(self.engine.as_ref(), &upstream, &|_| {}) => copied?,
            () = other => return Ok(()),
        }
        self.remedy = Remedy::None;
        self.old = true;
        self.led = self.engine.led();
        Ok(())
    }

    /// Takes back what another does not have. Where that can't be done, it is copied instead.
    async fn rewind(&mut self, of: &str) -> Result<(), Error> {
        let upstream = self.upstream(of);
        let theirs = self.engine.timeline_of(&upstream).await?;
        match way_back(&self.data, theirs, self.remedy) {
            WayBack::Rewind => tracing::warn!(of, "taking back what the leader does not have"),
            WayBack::Wait => {
                let why = format!("{of} has not begun a timeline of its own yet");
                return Err(Error::Data { doing: "taking back what the leader does not have", why });
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

    fn upstream(&self, of: &str) -> Upstream {
        Upstream {
            host: self.here.host(of),
            address: None,
            port: ports::POSTGRES,
            slot: Some(slot_name(&self.here.pod)),
        }
    }

    fn say(&self, trouble: Option<(String, String)>) {
        self.facts.send_modify(|facts| {
            facts.joining = false;
            facts.trouble = trouble;
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
        self.tell(status.clone(), alive.then(Instant::now));
        self.consider_remedy(status.as_ref()).await;
        if status.as_ref().is_some_and(|status| status.slots.iter().any(is_lost)) {
            self.kept = None;
        }
        let upkeep = async {
            if status.is_some() {
                self.settle().await?;
            }
            if primary { self.keep().await } else { Ok(()) }
        };
        let trouble = match tokio::time::timeout(UPKEEP, upkeep).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((reason(&error), error.to_string())),
            Err(_) => Some(("DatabaseFailed".to_owned(), "the database does not answer in time".to_owned())),
        };
        if trouble.is_some() {
            self.facts.send_modify(|facts| facts.trouble = trouble);
        }
        if status.is_some() {
            self.restart_if_asked().await;
        }
    }

    /// What leadership is to know.
    fn tell(&mut self, status: Option<Status>, written: Option<Instant>) {
        let streams = status.as_ref().is_some_and(facts::streams);
        if streams {
            self.heard = Instant::now();
        }
        let names = Names(&self.here.database);
        let mut instance = facts::observe(&self.acting, &self.data, self.led, status.as_ref(), names);
        let last = self.facts.borrow().instance.written.filter(|_| instance.running == Running::Primary);
        instance.written = written.or(last);
        instance.damaged = self.engine.is_damaged();
        self.facts.send_modify(|facts| {
            facts.order = self.order;
            facts.instance = instance;
            facts.followed = matches!(self.acting, Acting::Replica(_)) && (facts.followed || streams);
            facts.floored = self.engine.is_floored();
            facts.status = status;
        });
    }

    /// A replica to which nothing comes although it follows somebody has lost its way: its log and the
    /// leader's have parted, or what it needs is no longer there.
    async fn consider_remedy(&mut self, status: Option<&Status>) {
        let followed = self.facts.borrow().followed;
        if self.old && followed {
            match self.engine.discard_old().await {
                Ok(()) => self.old = false,
                Err(error) => tracing::warn!(%error, "what a copy has replaced could not be removed"),
            }
        }
        let behind = matches!(self.acting, Acting::Replica(Some(_)))
            && status.is_some()
            && self.heard.elapsed() > LEFT_BEHIND;
        if behind && matches!(self.target.borrow().target, Target::Replica { .. }) {
            tracing::warn!("nothing comes from the leader");
            self.remedy = Remedy::Rewind;
        }
    }

    /// Roles, passwords and slots on the primary; they reach the replicas with all else.
    async fn keep(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.borrow().clone();
        let keep = (wanted.credentials.clone(), wanted.instance.replicas);
        if self.kept.as_ref() == Some(&keep) {
            return Ok(());
        }
        let Credentials { superuser, app, .. } = &wanted.credentials;
        self.engine.ensure_replication().await?;
        let others = (0..wanted.instance.replicas).map(|ordinal| format!("{}-{ordinal}", self.here.database));
        let slots: BTreeSet<String> =
            others.filter(|name| *name != self.here.pod).map(|name| slot_name(&name)).collect();
        self.engine.ensure_slots(&slots).await?;
        self.engine.set_password(&superuser.name, &superuser.password).await?;
        self.engine.ensure_app(&app.name, &wanted.instance.app.database, &app.password).await?;
        self.kept = Some(keep);
        Ok(())
    }

    /// Settings that have changed.
    async fn settle(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.borrow().clone();
        // Settings come through the API server, passwords and certificates by way of the kubelet, a while later.
        let wants = (wanted.fingerprint.clone(), wanted.credentials.clone());
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

    async fn restart_if_asked(&mut self) {
        let asked = self.wanted.borrow().restart.clone();
        if self.facts.borrow().restarted == asked {
            return;
        }
        tracing::info!("restarting the database, as asked");
        // Most of the work of ending is done while it still serves.
        let _ = self.engine.checkpoint(CHECKPOINT).await;
        self.facts.send_modify(|facts| facts.restarted = asked);
        if let Err(error) = self.engine.stop(Stop::Fast, FINISH).await {
            tracing::error!(%error, "the database could not be ended");
        }
        self.ended().await;
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
