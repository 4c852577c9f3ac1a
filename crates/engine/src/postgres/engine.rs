//! [`Postgres`] as an [`Engine`].

use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::check::check;
use super::hba::SUPERUSER;
use super::session::{execute, value};
use super::settings::Settings;
use super::status::{self, Status};
use super::{Postgres, folders, process};
use crate::engine::{Data, Engine, Exit, Process, Progress, Role, Stop, Synchronous, Upstream};
use crate::error::{Error, Result, within};

impl Engine for Postgres {
    type Settings = Settings;
    type Status = Status;

    async fn data(&self) -> Result<Data> {
        self.read_data().await
    }

    async fn initialise(&self) -> Result<u64> {
        self.make_new().await
    }

    async fn clone_from(
        &self,
        upstream: &Upstream,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<()> {
        self.make_clone(upstream, progress).await
    }

    async fn discard_old(&self) -> Result<()> {
        let _working = self.working.lock().await;
        self.blocking(folders::discard_old).await
    }

    async fn rewind_from(&self, upstream: &Upstream) -> Result<()> {
        self.rewind(upstream).await
    }

    /// Refuses to start a replica's data as a primary: without a promotion there would be two histories of
    /// one timeline, which nothing can tell apart afterwards. Refuses data likewise that its disk has failed.
    async fn start(&self, role: &Role) -> Result<()> {
        const DOING: &str = "starting";
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        self.processes().none(DOING).await?;
        let offline = match self.read_data().await? {
            Data::Present(offline) => offline,
            Data::Absent => return Err(Error::Data { doing: DOING, why: "there is no database yet".into() }),
            Data::Unusable { why } => return Err(Error::Data { doing: DOING, why }),
        };
        let upstream = match role {
            Role::Primary if offline.replica => {
                let why = "this is a replica's data: start it as a replica and promote it".into();
                return Err(Error::Data { doing: DOING, why });
            }
            Role::Primary => {
                self.undamaged(DOING)?;
                None
            }
            Role::Replica(upstream) => upstream.clone(),
        };
        let replica = matches!(role, Role::Replica(_));
        {
            let mut wanted = self.wanted_mut();
            wanted.upstream = upstream;
            wanted.ending = false;
            wanted.shut &= replica;
        }
        self.write_files(self.floor(replica).await?.as_ref()).await?;
        folders::prepare(&self.programs.layout, self.programs.major, replica)?;
        let layout = &self.programs.layout;
        let mut command = self.programs.command("postgres")?;
        command.arg("-D").arg(layout.data());
        command.arg(format!("--config-file={}", layout.config_file("postgresql.conf").display()));
        process::launch(&mut command, &self.process, &self.damage)
    }

    async fn stop(&self, how: Stop, deadline: Duration) -> Result<Option<Exit>> {
        let exit = process::stop(&self.processes(), &self.process, how, deadline).await;
        self.kept.close().await;
        self.heart.forget();
        exit
    }

    fn process(&self) -> watch::Receiver<Process> {
        self.process.subscribe()
    }

    async fn promote(&self, synchronous: &Synchronous, history: u64, deadline: Duration) -> Result<()> {
        const DOING: &str = "promoting";
        self.undamaged(DOING)?;
        let start = Instant::now();
        // What its old primary still sends must not come in any more, and the first commit must wait.
        {
            let mut wanted = self.wanted_mut();
            wanted.upstream = None;
            wanted.shut = false;
            wanted.synchronous = synchronous.clone();
        }
        // What a replica must have at least is of no concern any more.
        let taken = async {
            self.write_files(None).await?;
            self.reload().await
        };
        within(deadline, DOING, taken).await?;
        let promoted = async {
            let client = self.local().connect(SUPERUSER).await?;
            let recovering = async || value(&client, DOING, "SELECT pg_is_in_recovery()").await;
            if recovering().await? == "t" {
                self.pass_over_timelines(history).await?;
                execute(&client, DOING, "SELECT pg_promote(false)").await?;
            }
            while recovering().await? == "t" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        within(deadline.saturating_sub(start.elapsed()), DOING, promoted).await
    }

    async fn follow(&self, upstream: Option<&Upstream>) -> Result<()> {
        self.wanted_mut().upstream = upstream.cloned();
        self.rewrite().await?;
        match upstream {
            Some(_) => Ok(()),
            None => within(super::TAKEN, "following nobody", self.cut()).await,
        }
    }

    async fn set_synchronous(&self, synchronous: &Synchronous) -> Result<()> {
        self.wanted_mut().synchronous = synchronous.clone();
        match *self.process.borrow() {
            Process::Running(_) => {}
            // The next start takes it.
            Process::Idle | Process::Ended(_) => return Ok(()),
        }
        self.rewrite().await
    }

    async fn apply(&self, settings: &Settings) -> Result<Vec<String>> {
        let mut wanted = self.wanted();
        wanted.settings = settings.clone();
        check(&self.programs, settings, &self.files(&wanted, None).conf).await?;
        self.wanted_mut().settings = settings.clone();
        if self.stopped("").is_ok() {
            return Ok(Vec::new());
        }
        self.rewrite().await?;
        Ok(self.status(super::TAKEN).await?.pending_restart)
    }

    async fn status(&self, deadline: Duration) -> Result<Status> {
        const DOING: &str = "asking for the status";
        self.running(DOING)?;
        let local = self.local();
        let answer = within(deadline, DOING, self.kept.text(&local, DOING, status::QUERY)).await;
        if matches!(answer, Err(Error::Late { .. })) {
            // Whatever hangs there, the next question is not to wait behind this one.
            self.kept.close().await;
        }
        let unreadable =
            |error: serde_json::Error| Error::Sql { doing: DOING, said: error.to_string(), code: None };
        serde_json::from_str(&answer?).map_err(unreadable)
    }

    async fn heartbeat(&self, deadline: Duration) -> Result<()> {
        self.running("writing the heartbeat")?;
        self.heart.beat(&self.local(), deadline).await
    }
}
