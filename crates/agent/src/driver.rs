//! Carries out what leadership decides: one step at a time, and a look at the database in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_api::instance::{InstanceSettings, ports, reasons};
use keelson_engine::postgres::{Postgres, Settings, Status, slot_name};
use keelson_engine::{Data, Engine, Error, Process, Role, Stop, Synchronous, Upstream};
use keelson_ha::{Instance, Running, Standby, Target};
use tokio::sync::watch;

use crate::credentials::Credentials;
use crate::environment::Environment;
use crate::steps::{Acting, Step, next};

/// How often the database is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long a look, or a heartbeat, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a database may take to end in good order.
const FINISH: Duration = Duration::from_secs(30);
/// How long it may take to end at once. It is killed after that.
const CLOSE: Duration = Duration::from_millis(500);
/// How long a promotion may take.
const PROMOTE: Duration = Duration::from_secs(30);

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

/// What is known of the database.
#[derive(Clone, Debug)]
pub struct Facts {
    /// For leadership.
    pub instance: Instance,
    /// What the database last said of itself.
    pub status: Option<Status>,
    /// When a write last reached the disk.
    pub heartbeat: Option<Instant>,
    /// Whether it is being copied.
    pub joining: bool,
    /// The settings that are in force.
    pub fingerprint: Option<String>,
    /// The last restart that was asked for and done.
    pub restarted: Option<String>,
    /// What is wrong: a word, and a sentence.
    pub trouble: Option<(String, String)>,
}

/// Drives one database.
pub struct Driver {
    here: Environment,
    engine: Arc<Postgres>,
    target: watch::Receiver<Target>,
    wanted: watch::Receiver<Wanted>,
    facts: watch::Sender<Facts>,
    data: Data,
    acting: Acting,
    /// What was last made sure of on the primary.
    kept: Option<(Credentials, u32)>,
}

impl Driver {
    /// Drives a database until the process ends.
    pub async fn start(
        here: Environment,
        engine: Arc<Postgres>,
        target: watch::Receiver<Target>,
        wanted: watch::Receiver<Wanted>,
    ) -> Result<watch::Receiver<Facts>, Error> {
        let data = engine.data().await?;
        let instance = Instance { data: known(&data), running: Running::Stopped, standbys: Vec::new() };
        let (facts, receiver) = watch::channel(Facts {
            instance,
            status: None,
            heartbeat: None,
            joining: false,
            fingerprint: None,
            restarted: wanted.borrow().restart.clone(),
            trouble: None,
        });
        let acting = Acting::Not;
        let driver = Driver { here, engine, target, wanted, facts, data, acting, kept: None };
        tokio::spawn(driver.drive());
        Ok(receiver)
    }

    async fn drive(mut self) {
        let mut process = self.engine.process();
        loop {
            let target = self.target.borrow_and_update().clone();
            let process_is = *process.borrow_and_update();
            self.notice_end(process_is).await;
            let step = next(&target, &self.data, &self.acting);
            let done = self.take(&step).await;
            self.say(match (&done, &step) {
                (Err(error), _) => Some((reason(error), error.to_string())),
                (Ok(()), Step::Trouble(why)) => Some(("Stuck".to_owned(), why.clone())),
                (Ok(()), _) => None,
            });
            if let Err(error) = &done {
                tracing::warn!(?step, %error, "a step failed, and is tried again");
            }
            self.look().await;
            // After a step the next one may follow at once; a failed one waits, as does one that is done.
            if done.is_ok() && !matches!(step, Step::Nothing | Step::Trouble(_)) {
                continue;
            }
            tokio::select! {
                changed = self.target.changed() => if changed.is_err() { return },
                _ = process.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// A database that has ended by itself is no longer acting.
    async fn notice_end(&mut self, process: Process) {
        if let Process::Ended(exit) = process
            && self.acting != Acting::Not
        {
            tracing::warn!(?exit, "the database has ended by itself");
            self.ended();
            match self.engine.data().await {
                Ok(data) => self.data = data,
                Err(error) => tracing::error!(%error, "the data folder can't be read"),
            }
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
            Step::StartPrimary => {
                tracing::info!("starting as primary");
                // Said before it is so: what may take writes counts as taking them.
                self.acting = Acting::Primary;
                self.engine.start(&Role::Primary).await?;
            }
            Step::StartReplica(of) => {
                tracing::info!(of, "starting as a replica");
                let upstream = of.as_deref().map(|of| self.upstream(of));
                self.engine.start(&Role::Replica(upstream)).await?;
                self.acting = Acting::Replica(of.clone());
            }
            Step::Promote => {
                tracing::info!("becoming primary");
                self.acting = Acting::Primary;
                self.engine.promote(&Synchronous::default(), PROMOTE).await?;
            }
            Step::Follow(of) => {
                tracing::info!(of, "following another");
                let upstream = self.upstream(of);
                self.engine.follow(Some(&upstream)).await?;
                self.acting = Acting::Replica(Some(of.clone()));
            }
            Step::Finish => {
                tracing::info!("ending in good order");
                self.engine.stop(Stop::Fast, FINISH).await?;
                self.ended();
            }
            Step::Close => {
                tracing::warn!("ending at once: this instance does not lead");
                self.engine.stop(Stop::Immediate, CLOSE).await?;
                self.ended();
            }
        }
        if self.acting == Acting::Not {
            self.data = self.engine.data().await?;
        }
        Ok(())
    }

    fn ended(&mut self) {
        self.acting = Acting::Not;
        self.kept = None;
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
            copied = Engine::clone_from(self.engine.as_ref(), &upstream, &|_| {}) => copied,
            () = other => Ok(()),
        }
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
        let primary =
            self.acting == Acting::Primary && status.as_ref().is_some_and(|status| !status.in_recovery);
        let alive = primary && self.engine.heartbeat(PATIENCE).await.is_ok();
        if primary && let Err(error) = self.keep().await {
            self.facts.send_modify(|facts| facts.trouble = Some((reason(&error), error.to_string())));
        }
        if status.is_some()
            && let Err(error) = self.settle().await
        {
            self.facts.send_modify(|facts| facts.trouble = Some((reason(&error), error.to_string())));
        }
        let instance = Instance {
            data: known(&self.data),
            running: match &self.acting {
                Acting::Not => Running::Stopped,
                Acting::Primary => Running::Primary,
                Acting::Replica(_) if status.is_some() => Running::Replica,
                Acting::Replica(_) => Running::Unsettled,
            },
            standbys: status.as_ref().map(standbys).unwrap_or_default(),
        };
        self.facts.send_modify(|facts| {
            facts.instance = instance;
            facts.status = status;
            facts.heartbeat = if alive { Some(Instant::now()) } else { facts.heartbeat.filter(|_| primary) };
        });
    }

    /// Roles, passwords and slots on the primary; they reach the replicas with all else.
    async fn keep(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.borrow().clone();
        let keep = (wanted.credentials.clone(), wanted.instance.replicas);
        if self.kept.as_ref() == Some(&keep) {
            return Ok(());
        }
        let Credentials { superuser, replication: _, app } = &wanted.credentials;
        self.engine.ensure_replication().await?;
        self.engine.set_password(&superuser.name, &superuser.password).await?;
        self.engine.ensure_app(&app.name, &wanted.instance.app.database, &app.password).await?;
        let others = (0..wanted.instance.replicas).map(|ordinal| format!("{}-{ordinal}", self.here.database));
        let slots: BTreeSet<String> =
            others.filter(|name| *name != self.here.pod).map(|name| slot_name(&name)).collect();
        self.engine.ensure_slots(&slots).await?;
        self.kept = Some(keep);
        Ok(())
    }

    /// Settings that have changed, and a restart that was asked for.
    async fn settle(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.borrow().clone();
        let (in_force, restarted) = {
            let facts = self.facts.borrow();
            (facts.fingerprint.clone(), facts.restarted.clone())
        };
        if in_force.as_deref() != Some(&wanted.fingerprint) {
            self.engine.apply(&wanted.engine).await?;
            self.facts.send_modify(|facts| facts.fingerprint = Some(wanted.fingerprint.clone()));
        }
        if restarted != wanted.restart {
            tracing::info!("restarting the database, as asked");
            self.engine.stop(Stop::Fast, FINISH).await?;
            self.ended();
            self.facts.send_modify(|facts| facts.restarted = wanted.restart.clone());
        }
        Ok(())
    }
}

fn reason(error: &Error) -> String {
    match error {
        Error::Parameter { .. } => reasons::PARAMETER_REFUSED.to_owned(),
        _ => "DatabaseFailed".to_owned(),
    }
}

fn known(data: &Data) -> keelson_ha::Data {
    match data {
        Data::Present(offline) => keelson_ha::Data::Present { system: offline.system.to_string() },
        Data::Absent | Data::Unusable { .. } => keelson_ha::Data::None,
    }
}

fn standbys(status: &Status) -> Vec<Standby> {
    let end = status.flushed.unwrap_or_default();
    let standbys = status.standbys.iter().map(|standby| Standby {
        name: standby.name.clone(),
        streaming: standby.state == "streaming",
        behind: end.since(standby.flushed.unwrap_or_default()),
    });
    standbys.collect()
}
