//! A database from a backup: its files are brought into `data.new` by somebody else, and PostgreSQL replays the log
//! in there, on its own and reached by nobody, until it is where it is wanted. Only then it becomes the database: a
//! restore that breaks off anywhere leaves none.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::conf::line;
use super::folders::{self, Found, write};
use super::hba::SUPERUSER;
use super::session::value;
use super::{Floor, Postgres, timelines};
use crate::engine::{Data, Offline};
use crate::error::{Error, Result};
use crate::layout::Layout;

const DOING: &str = "restoring";
/// The configuration of the replay.
const CONF: &str = "recovery.conf";
/// How often it is looked whether the replay has come to its end.
const LOOK: Duration = Duration::from_millis(200);

/// Where replay ends, and where the log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// `recovery_target_…` and its like.
    pub settings: Vec<(&'static str, String)>,
    /// The command that fetches a file of the log. It must end with more than 125 when it could not find out whether
    /// there is one.
    pub restore_command: String,
}

impl Postgres {
    /// An empty folder to bring the files of a backup into. There must be no database yet.
    pub async fn begin_restore(&self) -> Result<PathBuf> {
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        self.processes().none(DOING).await?;
        match folders::look(&self.programs.layout, self.programs.major)? {
            Found::Nothing => self.blocking(folders::begin).await,
            _ => Err(Error::Data { doing: DOING, why: "there is data already".into() }),
        }
    }

    /// Replays the log in what was brought back, and makes it the database, on a timeline of its own. Returns its system
    /// identifier.
    pub async fn finish_restore(&self, recovery: &Recovery) -> Result<u64> {
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        let offline = self.replay(recovery).await?;
        self.blocking(folders::finish).await?;
        self.damage.forget();
        Ok(offline.system)
    }

    /// An empty folder to bring the files of a backup into, beside a database that stays as it is.
    pub async fn begin_restore_beside(&self) -> Result<PathBuf> {
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        self.processes().none(DOING).await?;
        self.blocking(folders::begin).await
    }

    /// Replays the log in what was brought back beside the database, for [`place_restored`](Self::place_restored) to put
    /// in its place. Its timeline has this number or a greater one, which is returned.
    pub async fn finish_restore_beside(&self, recovery: &Recovery, name: &str, timeline: u32) -> Result<u32> {
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        let parent = recovery.settings.iter().find(|(name, _)| *name == "recovery_target_timeline");
        let parent: Option<u32> = parent.and_then(|(_, value)| value.parse().ok());
        let why = || "the timeline to replay must be named, so that a later one can be begun".to_owned();
        let parent = parent.ok_or_else(|| Error::Data { doing: DOING, why: why() })?;
        self.blocking(move |layout| {
            timelines::reserve(&layout.beside("new").join("pg_wal"), parent, timeline)
        })
        .await?;
        let offline = self.replay(recovery).await?;
        if offline.timeline < timeline {
            let why = format!("it is on timeline {}, and should be on {timeline}", offline.timeline);
            return Err(Error::Data { doing: DOING, why });
        }
        let system = match self.read_data().await? {
            Data::Present(own) => own.system,
            Data::Absent | Data::Unusable { .. } => offline.system,
        };
        if system != offline.system {
            let why = format!("what was restored is another database (system identifier {})", offline.system);
            return Err(Error::Data { doing: DOING, why });
        }
        self.keep_restored(name, offline.timeline).await?;
        Ok(offline.timeline)
    }

    async fn replay(&self, recovery: &Recovery) -> Result<Offline> {
        let layout = &self.programs.layout;
        let new = layout.beside("new");
        is_of_version(&new, self.programs.major)?;
        let (_, floor) = self.read_control(new.clone()).await?;
        self.write_files(Some(&floor)).await?;
        let (folder, conf) = (new.clone(), self.recovery_conf(recovery, &floor));
        self.blocking(move |layout| prepare(layout, &folder, &conf)).await?;
        let arguments = [
            "-D".into(),
            new.clone().into_os_string(),
            format!("--config-file={}", layout.config_file(CONF).display()).into(),
        ];
        let said = |line: &str| tracing::info!(target: "postgres", "{line}");
        let mut replay = std::pin::pin!(self.programs.run("postgres", arguments, said));
        tokio::select! {
            ended = &mut replay => {
                ended.map_err(explained)?;
                let why = "PostgreSQL ended before the replay had".to_owned();
                return Err(Error::Data { doing: DOING, why });
            }
            () = self.end_replay(&new) => {}
        }
        replay.await?;
        let (offline, _) = self.read_control(new).await?;
        Ok(offline)
    }

    /// Waits until the replay has come to its end, and tells the server to end in good order.
    async fn end_replay(&self, new: &Path) {
        let local = self.local();
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(pid) = postmaster(new) else { continue };
            // It lets nobody in before.
            let Ok(client) = local.connect(SUPERUSER).await else { continue };
            let recovers = value(&client, DOING, "SELECT pg_is_in_recovery()").await;
            if recovers.is_ok_and(|recovers| recovers == "f") {
                let _ = kill(pid, Signal::SIGINT);
                return;
            }
        }
    }

    /// What it replays with: as the database will be, but that nobody reaches it and it waits for nobody.
    fn recovery_conf(&self, recovery: &Recovery, floor: &Floor) -> String {
        let mut conf = self.files(&self.wanted(), Some(floor)).conf;
        // Writing to a text can't fail.
        let _ = writeln!(conf, "\n# For the replay of the log alone.");
        let fixed = [
            ("listen_addresses", String::new()),
            ("hot_standby", "off".into()),
            ("synchronous_standby_names", String::new()),
            ("primary_conninfo", String::new()),
            ("primary_slot_name", String::new()),
            // What is made here is sent once it is the database.
            ("archive_mode", "on".into()),
            ("archive_command", String::new()),
            ("restore_command", recovery.restore_command.clone()),
        ];
        for (name, value) in fixed.iter().chain(&recovery.settings) {
            line(&mut conf, name, value, "");
        }
        conf
    }
}

/// What it means that the server ended with an error.
fn explained(error: Error) -> Error {
    const LAST: &str = "last completed transaction was at log time ";
    match error {
        Error::Program { said, .. } if said.contains("before configured recovery target was reached") => {
            let last = said.lines().find_map(|line| line.split_once(LAST));
            Error::OutOfLog { last: last.map(|(_, moment)| moment.trim().to_owned()) }
        }
        other => other,
    }
}

fn is_of_version(folder: &Path, major: u32) -> Result<()> {
    let version = fs::read_to_string(folder.join("PG_VERSION")).unwrap_or_default();
    match version.trim() {
        same if same == major.to_string() => Ok(()),
        other => Err(Error::Data {
            doing: DOING,
            why: format!(
                "the backup is of PostgreSQL {other}, the image has {major}: set spec.version to {other}"
            ),
        }),
    }
}

fn prepare(layout: &Layout, folder: &Path, conf: &str) -> Result<()> {
    for name in ["postmaster.pid", "standby.signal"] {
        let _ = fs::remove_file(folder.join(name));
    }
    // Whatever of another's configuration came along has no say.
    write(&folder.join("postgresql.auto.conf"), "")?;
    write(&folder.join("recovery.signal"), "")?;
    write(&layout.config_file(CONF), conf)
}

/// The server that works in a folder, by its own note.
fn postmaster(folder: &Path) -> Option<Pid> {
    let note = fs::read_to_string(folder.join("postmaster.pid")).ok()?;
    let pid: i32 = note.lines().next()?.trim().parse().ok()?;
    (pid > 0).then(|| Pid::from_raw(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_of_another_version_is_refused_with_what_to_do() {
        let folder = std::env::temp_dir().join(format!("keelson-restore-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("PG_VERSION"), "16\n").unwrap();
        assert!(is_of_version(&folder, 16).is_ok());
        let error = is_of_version(&folder, 17).unwrap_err().to_string();
        assert!(error.contains("set spec.version to 16"), "{error}");
        assert_eq!(postmaster(&folder), None);
        fs::write(folder.join("postmaster.pid"), "4711\n/data\n").unwrap();
        assert_eq!(postmaster(&folder), Some(Pid::from_raw(4711)));
        fs::remove_dir_all(folder).unwrap();
    }
}
