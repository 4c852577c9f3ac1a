//! The loop that sends what is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::archive::push::{Pushed, object, push};
use crate::archive::queue::{self, Pace};
use crate::error::{Class, Error, Result, of_file};
use crate::repository::Writer;
use crate::wal::WalFile;

/// How it is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many files are on their way at once. Each takes up to the size of a segment in memory.
    pub parallel: usize,
    /// How often it is looked for new ones.
    pub look: Duration,
    /// After how long a file that is wrong in itself is tried again.
    pub aside: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { parallel: 3, look: Duration::from_millis(200), aside: Duration::from_secs(60) }
    }
}

/// What an instance does about its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends it.
    Leader,
    /// It keeps it until the repository has it from the leader, and sends nothing: so what a leader had not sent
    /// when it died is sent by its successor. For `archive_mode = always`.
    Follower,
}

/// How it stands.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// How many files wait, those on their way included.
    pub waiting: usize,
    /// Since when the oldest of them waits.
    pub oldest: Option<Timestamp>,
    /// How many files were archived.
    pub archived: u64,
    /// How many bytes of log that was.
    pub bytes: u64,
    /// How many bytes they are in the store.
    pub stored: u64,
    /// The last that was archived, and when.
    pub last: Option<(String, Timestamp)>,
    /// What is wrong, until something was archived again.
    pub trouble: Option<Trouble>,
}

/// What is wrong.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Of which kind.
    pub class: Class,
    /// For people.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
}

type Done = (WalFile, Result<Option<Pushed>>);

/// Sends what is ready. It ends when it is dropped, at any moment, and loses nothing by it.
#[derive(Debug)]
pub struct Archiver {
    writer: Writer,
    pg_wal: PathBuf,
    options: Options,
    state: watch::Sender<State>,
    ready: BTreeSet<WalFile>,
    on_the_way: BTreeSet<WalFile>,
    aside: BTreeMap<WalFile, Instant>,
    tasks: JoinSet<Done>,
    pace: Pace,
    paused_until: Option<Instant>,
    looked: Option<Instant>,
}

impl Archiver {
    /// Of the database whose log is in that folder.
    pub fn new(writer: Writer, pg_wal: impl Into<PathBuf>, options: Options) -> Archiver {
        Archiver {
            writer,
            pg_wal: pg_wal.into(),
            options,
            state: watch::Sender::default(),
            ready: BTreeSet::new(),
            on_the_way: BTreeSet::new(),
            aside: BTreeMap::new(),
            tasks: JoinSet::new(),
            pace: Pace::default(),
            paused_until: None,
            looked: None,
        }
    }

    /// How it stands, now and when it changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Sends for ever. The role may change at any time.
    pub async fn run(mut self, role: watch::Receiver<Role>) -> Result<()> {
        loop {
            let now = *role.borrow();
            self.turn(now).await?;
        }
    }

    /// Sends until nothing is waiting, or until something is wrong: before a handover, and in tests.
    pub async fn drain(&mut self, role: Role) -> Result<()> {
        loop {
            self.turn(role).await?;
            let state = self.state.borrow();
            if let Some(trouble) = &state.trouble {
                return Err(Error::Refused(format!("the log can't be archived: {}", trouble.text)));
            }
            if state.waiting == 0 && self.on_the_way.is_empty() {
                return Ok(());
            }
        }
    }

    /// Looks, begins what there is room for, and waits until something happens.
    async fn turn(&mut self, role: Role) -> Result<()> {
        let now = Instant::now();
        self.aside.retain(|_, until| *until > now);
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        let idle =
            self.ready.iter().all(|file| self.on_the_way.contains(file) || self.aside.contains_key(file));
        let due = self.looked.is_none_or(|looked| now.duration_since(looked) >= self.options.look);
        if due || (idle && self.tasks.is_empty()) {
            self.look().await?;
        }
        if self.paused_until.is_none() {
            let limit = self.pace.at_once(self.options.parallel);
            for file in queue::next(&self.ready, &self.on_the_way, &self.aside, limit) {
                self.begin(file, role);
            }
        }
        let pause = self.paused_until.map(|until| until.duration_since(now));
        let wait = pause.unwrap_or(self.options.look).min(self.options.look).max(Duration::from_millis(10));
        tokio::select! {
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                let (file, result) = done.map_err(|error| Error::lost("archiving", error))?;
                self.ended(file, result).await?;
            }
            () = tokio::time::sleep(wait) => (),
        }
        Ok(())
    }

    fn begin(&mut self, file: WalFile, role: Role) {
        self.on_the_way.insert(file.clone());
        let (writer, pg_wal) = (self.writer.clone(), self.pg_wal.clone());
        self.tasks.spawn(async move {
            let result = match role {
                Role::Leader => push(&writer, &pg_wal, &file).await.map(Some),
                Role::Follower => {
                    let there = writer.repository().head(&object(&file)).await;
                    there.map(|found| found.map(|_| Pushed { size: 0, stored: 0 }))
                }
            };
            (file, result)
        });
    }

    async fn ended(&mut self, file: WalFile, result: Result<Option<Pushed>>) -> Result<()> {
        self.on_the_way.remove(&file);
        let later = Instant::now() + self.options.aside;
        match result {
            Ok(Some(pushed)) => {
                self.mark_done(&file).await?;
                self.pace.succeeded();
                self.ready.remove(&file);
                let waiting = self.ready.len();
                self.state.send_modify(|state| {
                    state.archived += 1;
                    state.bytes += pushed.size;
                    state.stored += pushed.stored;
                    state.last = Some((file.to_string(), Timestamp::now()));
                    state.waiting = waiting;
                    // One bad file is in trouble until it is not, however many others go by.
                    if self.aside.is_empty() {
                        state.trouble = None;
                    }
                });
            }
            // The leader has not sent it yet.
            Ok(None) => {
                let soon = Instant::now() + self.options.look.max(Duration::from_secs(1));
                self.aside.insert(file, soon);
            }
            Err(error) if self.is_gone(&file, &error) => self.forget(&file).await?,
            Err(error) => {
                tracing::warn!(file = %file, class = error.class().label(), %error, "the log was not archived");
                if queue::is_about_the_file(&error) {
                    self.aside.insert(file, later);
                } else {
                    self.pace.failed();
                    self.paused_until = Some(Instant::now() + self.pace.wait());
                }
                self.state.send_modify(|state| {
                    let since = state.trouble.as_ref().map_or_else(Timestamp::now, |trouble| trouble.since);
                    state.trouble = Some(Trouble { class: error.class(), text: error.to_string(), since });
                });
            }
        }
        Ok(())
    }

    /// PostgreSQL may leave a note about a file that is no longer there.
    fn is_gone(&self, file: &WalFile, error: &Error) -> bool {
        let path = self.pg_wal.join(file.to_string());
        matches!(error, Error::Local { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
            && !path.exists()
    }

    async fn forget(&mut self, file: &WalFile) -> Result<()> {
        self.ready.remove(file);
        let note = self.status(file, "ready");
        match tokio::fs::remove_file(&note).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(of_file("removing", &note, error))
            }
            _ => Ok(()),
        }
    }

    async fn mark_done(&self, file: &WalFile) -> Result<()> {
        let (ready, done) = (self.status(file, "ready"), self.status(file, "done"));
        match tokio::fs::rename(&ready, &done).await {
            // Already renamed, or removed with the segment.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(of_file("renaming", &ready, error))
            }
            _ => Ok(()),
        }
    }

    fn status(&self, file: &WalFile, suffix: &str) -> PathBuf {
        self.pg_wal.join("archive_status").join(format!("{file}.{suffix}"))
    }

    async fn look(&mut self) -> Result<()> {
        let folder = self.pg_wal.join("archive_status");
        let looking = tokio::task::spawn_blocking(move || look(&folder));
        let (ready, oldest) = looking.await.map_err(|error| Error::lost("looking for the log", error))??;
        self.looked = Some(Instant::now());
        self.ready = ready;
        self.state.send_if_modified(|state| {
            let changed = state.waiting != self.ready.len() || state.oldest != oldest;
            (state.waiting, state.oldest) = (self.ready.len(), oldest);
            changed
        });
        Ok(())
    }
}

/// What is ready, and since when the first of it is.
fn look(folder: &Path) -> Result<(BTreeSet<WalFile>, Option<Timestamp>)> {
    let unreadable = |error| of_file("listing", folder, error);
    let mut ready = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let file = name.to_str().and_then(|name| name.strip_suffix(".ready")).and_then(WalFile::parse);
        ready.extend(file);
    }
    let first = ready.first().and_then(|file| {
        let note = folder.join(format!("{file}.ready"));
        Timestamp::try_from(note.metadata().ok()?.modified().ok()?).ok()
    });
    Ok((ready, first))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::repository::{Claim, Format, Repository};
    use crate::shaky::Shaky;
    use crate::wal::tests::beginning;
    use crate::wal::{Segment, SegmentSize};

    /// A folder like `pg_wal`, with segments of 1 MiB, gone when it is dropped.
    struct Log {
        folder: PathBuf,
        size: SegmentSize,
    }

    impl Log {
        fn new(name: &str) -> Log {
            let folder = std::env::temp_dir().join(format!("keelson-archiver-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(folder.join("archive_status")).unwrap();
            Log { folder, size: SegmentSize::new(1 << 20).unwrap() }
        }

        fn write(&self, number: u64) -> String {
            let segment = Segment { timeline: 1, number };
            let mut bytes = beginning(segment, self.size, 7);
            bytes.resize(1 << 20, number as u8);
            self.write_file(&segment.name(self.size), &bytes)
        }

        fn write_file(&self, name: &str, bytes: &[u8]) -> String {
            std::fs::write(self.folder.join(name), bytes).unwrap();
            std::fs::write(self.folder.join("archive_status").join(format!("{name}.ready")), "").unwrap();
            name.to_owned()
        }

        fn is_done(&self, name: &str) -> bool {
            let status =
                |suffix: &str| self.folder.join("archive_status").join(format!("{name}.{suffix}")).exists();
            assert!(!(status("ready") && status("done")));
            status("done")
        }

        async fn archiver(&self, shaky: &Shaky) -> Archiver {
            let repository = Repository::on(Arc::new(shaky.clone()), Format::default());
            let claim = Claim { system_identifier: 7, segment_size: self.size, owner: "shop/orders".into() };
            let writer = repository.claim(&claim).await.unwrap();
            let options = Options { look: Duration::from_millis(20), ..Options::default() };
            Archiver::new(writer, &self.folder, options)
        }
    }

    impl Drop for Log {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    async fn is_stored(archiver: &Archiver, name: &str) -> bool {
        let file = WalFile::parse(name).unwrap();
        archiver.writer.repository().head(&object(&file)).await.unwrap().is_some()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everything_that_is_ready_is_sent_and_only_then_done() {
        let (log, shaky) = (Log::new("everything"), Shaky::new());
        let mut names: Vec<String> = (1..=20).map(|number| log.write(number)).collect();
        names.push(log.write_file("00000001.history", b""));
        let mut archiver = log.archiver(&shaky).await;
        archiver.drain(Role::Leader).await.unwrap();
        for name in &names {
            assert!(log.is_done(name) && is_stored(&archiver, name).await, "{name}");
        }
        let state = archiver.state.borrow().clone();
        assert_eq!((state.archived, state.waiting, state.bytes), (21, 0, 20 << 20));
        assert!(state.stored < state.bytes / 10 && state.trouble.is_none(), "{state:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wherever_the_store_goes_away_nothing_is_lost_or_reported_early() {
        for changes in 0..8 {
            let (log, shaky) = (Log::new(&format!("away-{changes}")), Shaky::new());
            let names: Vec<String> = (1..=5).map(|number| log.write(number)).collect();
            let mut archiver = log.archiver(&shaky).await;
            shaky.fail_after(changes);
            let first = archiver.drain(Role::Leader).await;
            assert_eq!(first.is_err(), changes < 5 || shaky.refused() > 0, "{first:?}");
            shaky.come_back();
            for name in &names {
                assert!(!log.is_done(name) || is_stored(&archiver, name).await, "{name} was reported early");
            }
            // As after a crash: another one, which knows nothing.
            drop(archiver);
            let mut again = log.archiver(&shaky).await;
            again.drain(Role::Leader).await.unwrap();
            for name in &names {
                assert!(log.is_done(name) && is_stored(&again, name).await, "{name}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_sent_but_not_noted_is_compared_and_something_else_is_kept() {
        let (log, shaky) = (Log::new("compared"), Shaky::new());
        let (same, other, third) = (log.write(1), log.write(2), log.write(3));
        log.archiver(&shaky).await.drain(Role::Leader).await.unwrap();
        // The notes are lost, and one segment is another now.
        for name in [&same, &other] {
            log.write_file(name, &std::fs::read(log.folder.join(name)).unwrap());
            std::fs::remove_file(log.folder.join("archive_status").join(format!("{name}.done"))).unwrap();
        }
        let mut bytes = std::fs::read(log.folder.join(&other)).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(log.folder.join(&other), bytes).unwrap();
        let mut archiver = log.archiver(&shaky).await;
        let error = archiver.drain(Role::Leader).await.unwrap_err().to_string();
        assert!(error.contains("other content") && error.contains(&other), "{error}");
        while !log.is_done(&same) {
            archiver.turn(Role::Leader).await.unwrap();
        }
        assert!(!log.is_done(&other) && log.is_done(&third));
        let later = log.write(4);
        while !log.is_done(&later) {
            archiver.turn(Role::Leader).await.unwrap();
        }
        assert_eq!(
            archiver.state.borrow().trouble.as_ref().unwrap().class,
            Class::Foreign,
            "it is still said"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_segment_of_another_database_is_not_taken() {
        let (log, shaky) = (Log::new("another"), Shaky::new());
        let segment = Segment { timeline: 1, number: 1 };
        let mut bytes = beginning(segment, log.size, 8);
        bytes.resize(1 << 20, 0);
        let name = log.write_file(&segment.name(log.size), &bytes);
        let mut archiver = log.archiver(&shaky).await;
        let error = archiver.drain(Role::Leader).await.unwrap_err().to_string();
        assert!(error.contains("written by the database 8"), "{error}");
        assert!(!log.is_done(&name) && !is_stored(&archiver, &name).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_replica_keeps_the_log_until_the_leader_has_sent_it_and_sends_it_when_it_leads() {
        let (log, leaders, shaky) = (Log::new("replica"), Log::new("leader"), Shaky::new());
        let (first, second) = (log.write(1), log.write(2));
        leaders.write(1);
        leaders.archiver(&shaky).await.drain(Role::Leader).await.unwrap();
        let mut replica = log.archiver(&shaky).await;
        while !log.is_done(&first) {
            replica.turn(Role::Follower).await.unwrap();
        }
        for _ in 0..10 {
            replica.turn(Role::Follower).await.unwrap();
        }
        assert!(!log.is_done(&second) && !is_stored(&replica, &second).await, "the leader had not sent it");
        replica.drain(Role::Leader).await.unwrap();
        assert!(log.is_done(&second) && is_stored(&replica, &second).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_note_about_a_file_that_is_gone_is_removed() {
        let (log, shaky) = (Log::new("gone"), Shaky::new());
        let name = log.write(1);
        std::fs::remove_file(log.folder.join(&name)).unwrap();
        let mut archiver = log.archiver(&shaky).await;
        archiver.drain(Role::Leader).await.unwrap();
        assert!(!log.folder.join("archive_status").join(format!("{name}.ready")).exists());
    }
}
