//! The first data of a database, from a repository: the best backup is brought back, and PostgreSQL replays the log
//! from there to where it is wanted, asking for it file by file over a socket of this process.

use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keelson_api::instance::{RestorePoint, RestoreRule, backup_reasons, paths};
use keelson_backup::archive::{Fetched, Fetcher};
use keelson_backup::restore::{Choice, Options, Target, choose, recovery_settings, restore as bring_back};
use keelson_backup::{Catalogue, Repository, SegmentSize};
use keelson_engine::postgres::{Postgres, Recovery};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::archiving::place::{self, Trouble};

/// How many files of the log are fetched before they are asked for.
const AHEAD: usize = 4;
/// What `restore_command` ends with when nobody answers: anything less would be taken for the end of the log.
const NOBODY: u8 = 200;
/// How long a file of the log may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Makes the database from what a repository has. Nothing is made where the target can't be reached; where it can be, that
/// is told before it begins, with the name of the backup. `program` is what PostgreSQL calls to ask for the log.
pub(crate) async fn restore(
    engine: &Postgres,
    rule: &RestoreRule,
    program: &str,
    begins: impl Fn(&str),
) -> Result<(), Trouble> {
    let repository = place::open(&rule.from)?;
    let choice = chosen(&repository, rule).await.map_err(|trouble| {
        let problem = format!("{}. Correct spec.restore in a new Database", trouble.problem);
        if trouble.passes { trouble } else { Trouble { problem, ..trouble } }
    })?;
    let newest = choice.chain.last().map(|backup| (backup.name.clone(), backup.version / 10_000));
    let (name, major) = newest.unwrap_or_default();
    if major != engine.major() {
        return Err(refused(format!(
            "the backup {name} is of PostgreSQL {major}, and this is {}: set spec.version to {major} in a new Database",
            engine.major()
        )));
    }
    tracing::info!(from = repository.location(), backup = name, target = %choice.target, "a database is restored");
    begins(&name);
    let failed = |error: keelson_engine::Error| {
        let problem = format!("the restore from {} failed: {error}", repository.location());
        match error {
            // When a part of the log was archived is known; when its last commit was made is seen in it.
            keelson_engine::Error::OutOfLog { .. } => {
                refused(format!("{problem}. Ask for an earlier moment, or for the latest, in a new Database"))
            }
            _ => Trouble { reason: "RestoreFailed", problem, passes: true },
        }
    };
    let folder = engine.begin_restore().await.map_err(failed)?;
    let (serving, recovery) = Serving::bring_back(&repository, &choice, &folder, program).await?;
    let finished = engine.finish_restore(&recovery).await;
    // PostgreSQL only says that it was not given the file.
    let finished = finished.map_err(|error| serving.trouble().unwrap_or_else(|| failed(error)));
    serving.end(&folder).await;
    let system = finished?;
    tracing::info!(system, "a database was restored");
    Ok(())
}

/// What is to be brought back, or why nothing can be.
pub(crate) async fn chosen(repository: &Repository, rule: &RestoreRule) -> Result<Choice, Trouble> {
    let trouble = |error| Trouble::from(&error);
    let mark = repository.mark().await.map_err(trouble)?;
    let size = mark.and_then(|mark| mark.segment_size()).unwrap_or(SegmentSize::DEFAULT);
    let mut catalogue = repository.catalogue(size).await.map_err(trouble)?;
    if let Some(name) = &rule.backup {
        keep_only(&mut catalogue, name);
    }
    let target = target(&rule.to).map_err(refused)?;
    let choice = choose(&catalogue, size, &target, rule.timeline);
    choice
        .map_err(|refusal| refused(format!("nothing was restored from {}: {refusal}", repository.location())))
}

pub(crate) fn refused(problem: String) -> Trouble {
    Trouble { reason: backup_reasons::TARGET_REFUSED, problem, passes: false }
}

/// Leaves of the backups the named one and those that it builds on.
fn keep_only(catalogue: &mut Catalogue, name: &str) {
    let mut wanted = Some(name.to_owned());
    let mut kept = Vec::new();
    while let Some(name) = wanted.take() {
        if let Some(at) = catalogue.backups.iter().position(|backup| backup.name == name) {
            let backup = catalogue.backups.remove(at);
            wanted.clone_from(&backup.parent);
            kept.push(backup);
        }
    }
    kept.reverse();
    catalogue.backups = kept;
}

fn target(point: &RestorePoint) -> Result<Target, String> {
    Ok(match point {
        RestorePoint::Latest => Target::Latest,
        RestorePoint::Time(time) => Target::Time(*time),
        RestorePoint::Lsn(lsn) => {
            Target::Lsn(lsn.parse().map_err(|error| format!("spec.restore.to.lsn: {error}"))?)
        }
        RestorePoint::Name(name) => Target::Name(name.clone()),
    })
}

/// Answers those who ask for the log, until it is dropped.
pub(crate) struct Serving {
    task: tokio::task::JoinHandle<()>,
    socket: PathBuf,
    /// What was last wrong with a file that was asked for.
    trouble: watch::Receiver<Option<Trouble>>,
}

impl Serving {
    /// Brings the files of the backups into a folder, and then answers whoever replays the log in there, as this says.
    pub(crate) async fn bring_back(
        repository: &Repository,
        choice: &Choice,
        folder: &Path,
        program: &str,
    ) -> Result<(Serving, Recovery), Trouble> {
        let progress = watch::Sender::default();
        bring_back(repository, &choice.chain, folder, &Options::default(), &progress)
            .await
            .map_err(|error| Trouble::from(&error))?;
        tracing::info!(
            bytes = progress.borrow().written,
            "the backup is brought back, and the log is replayed"
        );
        let fetcher = Fetcher::new(repository.clone(), &folder.with_extension("ahead"), AHEAD).await;
        let fetcher = fetcher.map_err(|error| Trouble::from(&error))?;
        let socket = Path::new(paths::RUN).join("keelson-log.sock");
        let serving =
            Serving::begin(&socket, Arc::new(fetcher), folder.to_owned()).map_err(|error| Trouble {
                reason: backup_reasons::FAILED,
                problem: format!("nobody can be asked for the log at {}: {error}", socket.display()),
                passes: true,
            })?;
        let recovery = Recovery {
            settings: recovery_settings(choice),
            restore_command: format!("{program} fetch-log {} %f \"%p\"", socket.display()),
        };
        Ok((serving, recovery))
    }

    /// The replay has ended.
    pub(crate) async fn end(self, folder: &Path) {
        drop(self);
        let _ = tokio::fs::remove_dir_all(folder.with_extension("ahead")).await;
    }

    fn begin(socket: &Path, fetcher: Arc<Fetcher>, within: PathBuf) -> std::io::Result<Serving> {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let (troubles, trouble) = watch::channel(None);
        let troubles = Arc::new(troubles);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (fetcher, within, troubles) = (fetcher.clone(), within.clone(), troubles.clone());
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut wish = String::new();
                    if stream.read_line(&mut wish).await.is_ok() {
                        let code = answer(&fetcher, &within, wish.trim_end_matches('\n'), &troubles).await;
                        let _ = stream.get_mut().write_all(format!("{code}\n").as_bytes()).await;
                    }
                });
            }
        });
        Ok(Serving { task, socket: socket.to_owned(), trouble })
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.borrow().clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn answer(
    fetcher: &Fetcher,
    within: &Path,
    wish: &str,
    troubles: &watch::Sender<Option<Trouble>>,
) -> u8 {
    let Some((name, to)) = wish.split_once(' ') else { return NOBODY };
    let to = Path::new(to);
    // Only what is being restored is written to.
    if !to.starts_with(within) || to.components().any(|part| part.as_os_str() == "..") {
        return NOBODY;
    }
    let fetched = fetcher.fetch(name, to).await;
    if let Err(error) = &fetched {
        tracing::error!(name, %error, "a file of the log could not be fetched");
        troubles.send_replace(Some(Trouble::from(error)));
    }
    Fetched::exit_code(&fetched)
}

/// Asks the agent for a file of the log: what `restore_command` is to end with.
pub fn fetch_log(socket: &Path, name: &str, to: &Path) -> u8 {
    let asked = || -> std::io::Result<u8> {
        let to = std::path::absolute(to)?;
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{name} {}", to.display())?;
        let mut code = String::new();
        std::io::BufReader::new(stream).read_line(&mut code)?;
        code.trim().parse().map_err(std::io::Error::other)
    };
    asked().unwrap_or_else(|error| {
        eprintln!("keelson: asking the agent for {name} at {}: {error}", socket.display());
        NOBODY
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use keelson_backup::{Backup, Lsn};

    use super::*;

    fn backup(name: &str, parent: Option<&str>) -> Backup {
        Backup {
            name: name.to_owned(),
            timeline: 1,
            start: Lsn(1),
            finish: Lsn(2),
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
            parent: parent.map(str::to_owned),
            depth: 0,
            version: 170_005,
            size: 1,
            stored: 1,
            permanent: false,
            manifest: None,
        }
    }

    #[test]
    fn who_names_a_backup_gets_it_with_what_it_builds_on_and_no_other() {
        let backups =
            vec![backup("a", None), backup("b", Some("a")), backup("c", Some("b")), backup("d", None)];
        let mut catalogue = Catalogue { backups, ..Catalogue::default() };
        keep_only(&mut catalogue, "c");
        let names: Vec<&str> = catalogue.backups.iter().map(|backup| backup.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        keep_only(&mut catalogue, "gone");
        assert!(catalogue.backups.is_empty());
    }

    #[test]
    fn every_moment_of_the_spec_is_a_target() {
        let at: Timestamp = "2026-11-16T09:30:00Z".parse().unwrap();
        assert_eq!(target(&RestorePoint::Latest), Ok(Target::Latest));
        assert_eq!(target(&RestorePoint::Time(at)), Ok(Target::Time(at)));
        assert_eq!(target(&RestorePoint::Lsn("0/3000060".into())), Ok(Target::Lsn(Lsn(0x300_0060))));
        assert!(target(&RestorePoint::Lsn("nowhere".into())).unwrap_err().contains("spec.restore.to.lsn"));
    }

    #[test]
    fn a_question_that_nobody_answers_is_not_the_end_of_the_log() {
        let code = fetch_log(Path::new("/nowhere/at/all.sock"), "00000001.history", Path::new("x"));
        assert!(code > 125);
    }

    #[tokio::test]
    async fn only_what_is_being_restored_is_written_to() {
        let folder = std::env::temp_dir().join(format!("keelson-restoring-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let location = keelson_backup::Location::Folder { path: folder.join("repository") };
        let repository = Repository::open(&location, keelson_backup::Format::default()).unwrap();
        let fetcher = Arc::new(Fetcher::new(repository, folder.join("ahead"), 0).await.unwrap());
        let (socket, data) = (folder.join("log.sock"), folder.join("data.new"));
        let serving = Serving::begin(&socket, fetcher, data.clone()).unwrap();
        let ask = |name: &'static str, to: PathBuf| {
            let socket = socket.clone();
            tokio::task::spawn_blocking(move || fetch_log(&socket, name, &to))
        };
        assert_eq!(ask("00000002.history", data.join("pg_wal/x")).await.unwrap(), 1, "there is none");
        assert!(ask("00000002.history", folder.join("elsewhere")).await.unwrap() > 125);
        assert!(ask("nonsense", data.join("pg_wal/x")).await.unwrap() > 125);
        drop(serving);
        assert!(!socket.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
