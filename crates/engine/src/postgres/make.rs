//! Making a data folder: a new one, a copy of another instance's, or one that goes back to where the
//! other's history branched off.

use std::ffi::OsString;
use std::path::PathBuf;

use super::conninfo::conninfo;
use super::folders::{self, Found};
use super::hba::SUPERUSER;
use super::{Postgres, control};
use crate::engine::{Data, Offline, Process, Progress, Upstream};
use crate::error::{Error, Result};

impl Postgres {
    pub(crate) async fn read_data(&self) -> Result<Data> {
        Ok(match folders::look(&self.programs.layout, self.programs.major)? {
            Found::Nothing => Data::Absent,
            Found::Unusable(why) => Data::Unusable { why },
            Found::Database => {
                let layout = &self.programs.layout;
                let (offline, _) = self.read_control(layout.data()).await?;
                let newest = folders::newest_timeline(layout).unwrap_or_default();
                Data::Present(Offline { timeline: offline.timeline.max(newest), ..offline })
            }
        })
    }

    pub(crate) async fn read_control(&self, folder: PathBuf) -> Result<(Offline, control::Floor)> {
        let printed = self.programs.run("pg_controldata", [folder], |_| ()).await?;
        control::parse(&printed).map_err(|why| Error::Data { doing: "reading the control file", why })
    }

    /// A new database. Its superuser has no password, so that nobody gets in but over the local socket.
    pub(crate) async fn make_new(&self) -> Result<u64> {
        const DOING: &str = "initialising";
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        match folders::look(&self.programs.layout, self.programs.major)? {
            Found::Nothing => {}
            _ => return Err(Error::Data { doing: DOING, why: "there is data already".into() }),
        }
        let new = self.blocking(folders::begin).await?;
        self.programs.run("initdb", initdb(self.programs.major, &new), |_| ()).await?;
        let (offline, _) = self.read_control(new).await?;
        self.blocking(folders::finish).await?;
        Ok(offline.system)
    }

    pub(crate) async fn make_clone(
        &self,
        upstream: &Upstream,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<()> {
        self.stopped("cloning")?;
        let _working = self.working.lock().await;
        let new = self.blocking(folders::begin).await?;
        self.write_passfile()?;
        // The short timeouts of replication are not for a disk that is busy taking everything at once.
        // And under its own name it would count as a replica that has what it is sent.
        let name = format!("{} (copy)", self.wanted().settings.name);
        let connect = self.conninfo(
            upstream,
            &[("options", "-c wal_sender_timeout=60s"), ("application_name", name.as_str())],
        );
        let mut arguments: Vec<OsString> = vec![
            "--pgdata".into(),
            new.clone().into(),
            "--dbname".into(),
            connect.into(),
            "--no-password".into(),
            "--wal-method=stream".into(),
            "--checkpoint=fast".into(),
            "--progress".into(),
        ];
        if let Some(slot) = &upstream.slot {
            arguments.extend(["--slot".into(), slot.into()]);
        }
        let report = |line: &str| {
            if let Some(reached) = reached(line) {
                progress(reached);
            }
        };
        self.programs.run("pg_basebackup", arguments, report).await?;
        // Whatever of the other's own came along.
        for name in ["standby.signal", "recovery.signal", "postmaster.pid"] {
            let _ = std::fs::remove_file(new.join(name));
        }
        self.blocking(folders::finish).await?;
        self.damage.forget();
        Ok(())
    }

    pub(crate) async fn rewind(&self, upstream: &Upstream) -> Result<()> {
        const DOING: &str = "rewinding";
        self.stopped(DOING)?;
        let _working = self.working.lock().await;
        self.processes().none(DOING).await?;
        let layout = &self.programs.layout;
        if folders::look(layout, self.programs.major)? != Found::Database {
            return Err(Error::Data { doing: DOING, why: "there is no database to rewind".into() });
        }
        let (_, floor) = self.read_control(layout.data()).await?;
        self.write_files(Some(&floor)).await?;
        self.checkpoint_at(upstream).await?;
        // pg_rewind starts the server for itself to recover from a crash, which is no standby's business.
        folders::prepare(layout, self.programs.major, false)?;
        folders::set_mark(layout)?;
        let mut arguments: Vec<OsString> = vec![
            "--target-pgdata".into(),
            layout.data().into(),
            "--source-server".into(),
            self.conninfo(upstream, &[("dbname", SUPERUSER)]).into(),
            "--progress".into(),
        ];
        if self.programs.major >= 15 {
            arguments
                .push(format!("--config-file={}", layout.config_file("postgresql.conf").display()).into());
        }
        let mut touched = false;
        let said = |line: &str| {
            // Said right before it changes anything.
            touched |= line.contains("need to copy");
            tracing::info!(target: "pg_rewind", "{line}");
        };
        let rewound = self.programs.run("pg_rewind", arguments, said).await;
        if rewound.is_err() && !touched {
            folders::unmark(layout)?;
        }
        rewound?;
        // It can only go on as a replica: the log that makes it whole is the other's.
        folders::prepare(layout, self.programs.major, true)?;
        folders::unmark(layout)
    }

    /// Has another write a checkpoint. On a primary that was promoted just now, the control file is of before, and up to
    /// version 15 `pg_rewind` goes by that: it would find that nothing has parted, and do nothing.
    async fn checkpoint_at(&self, upstream: &Upstream) -> Result<()> {
        self.ask(upstream, ("dbname", SUPERUSER), "CHECKPOINT").await.map(drop)
    }

    async fn ask(&self, upstream: &Upstream, to: (&str, &str), what: &str) -> Result<String> {
        self.write_passfile()?;
        let arguments = [
            "--no-psqlrc".to_owned(),
            "--no-password".into(),
            "--tuples-only".into(),
            "--no-align".into(),
            "--dbname".into(),
            self.conninfo(upstream, &[to]),
            "--command".into(),
            what.to_owned(),
        ];
        self.programs.run("psql", arguments, |_| ()).await
    }

    /// The timeline that another instance is on now.
    pub async fn timeline_of(&self, upstream: &Upstream) -> Result<u32> {
        let printed = self.ask(upstream, ("replication", "true"), "IDENTIFY_SYSTEM").await?;
        let timeline = printed.trim().split('|').nth(1).and_then(|timeline| timeline.parse().ok());
        let why = || format!("IDENTIFY_SYSTEM said {}", printed.trim());
        timeline.ok_or_else(|| Error::Data { doing: "asking for a timeline", why: why() })
    }

    fn conninfo(&self, upstream: &Upstream, more: &[(&str, &str)]) -> String {
        conninfo(&self.programs.layout, &self.wanted().settings, upstream, more)
    }

    pub(crate) fn stopped(&self, doing: &'static str) -> Result<()> {
        match *self.process.borrow() {
            Process::Running(_) => Err(Error::Running { doing, running: true }),
            Process::Idle | Process::Ended(_) => Ok(()),
        }
    }
}

/// The order of letters is that of their numbers, everywhere and for ever: an index that was built under one
/// C library is broken under another whose order differs, and replicas may run on another image than their
/// primary. From version 17 on PostgreSQL has that order built in.
fn initdb(major: u32, folder: &std::path::Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--pgdata".into(), folder.into()];
    let username = format!("--username={SUPERUSER}");
    let fixed = [
        username.as_str(),
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--data-checksums",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--no-instructions",
    ];
    arguments.extend(fixed.map(OsString::from));
    if major >= 17 {
        arguments.extend(["--locale-provider=builtin", "--builtin-locale=C.UTF-8"].map(OsString::from));
    }
    arguments
}

/// Reads `  23/4567 kB (0%), 0/1 tablespace`.
fn reached(line: &str) -> Option<Progress> {
    let (numbers, _) = line.split_once(" kB ")?;
    let (done, total) = numbers.trim().split_once('/')?;
    let bytes = |text: &str| text.parse::<u64>().ok()?.checked_mul(1024);
    Some(Progress { done: bytes(done)?, total: bytes(total)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_pg_basebackup_prints() {
        let line = "  23120/45678 kB (50%), 0/1 tablespace (...d/keelson/data.new/base/1)";
        assert_eq!(reached(line), Some(Progress { done: 23120 * 1024, total: 45678 * 1024 }));
        assert_eq!(reached("waiting for checkpoint"), None);
    }

    #[test]
    fn nothing_secret_and_no_locale_of_the_image_is_in_the_arguments_of_initdb() {
        let arguments = initdb(17, std::path::Path::new("/x"));
        assert!(arguments.contains(&"--builtin-locale=C.UTF-8".into()));
        assert!(!initdb(15, std::path::Path::new("/x")).contains(&"--locale-provider=builtin".into()));
        assert!(arguments.iter().all(|argument| !argument.to_string_lossy().contains("pw")));
    }
}
