//! PostgreSQL for the scenarios, and what serves its `restore_command`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keelson_backup::archive::{Archiver, Fetched, Fetcher, Options, Role, State};
use keelson_backup::base::{self, Kind, Progress, back_up};
use keelson_backup::restore::{self, Choice, Target, choose, recovery_settings};
use keelson_backup::{Backup, Claim, Repository, Result, Segment, SegmentSize, Writer};
use testbed::inside::version;
use testbed::{Look, until};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const LONG: Duration = Duration::from_secs(60);

fn program(name: &str) -> Command {
    let mut command = Command::new(format!("/usr/lib/postgresql/{}/bin/{name}", version()));
    command.env("HOME", "/tmp").env("LC_ALL", "C").env("TZ", "UTC");
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// One PostgreSQL.
pub struct Server {
    pub data: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// A new database with segments of 1 MiB, so that there are many of them.
    pub fn new(name: &str, port: u16) -> Server {
        let data = Path::new("/mnt").join(name);
        run(program("initdb")
            .args(["--no-sync", "--data-checksums", "--wal-segsize=1", "--username=postgres", "--auth=trust"])
            .arg("--pgdata")
            .arg(&data));
        Server { data, port, process: None }
    }

    /// What was restored to a folder.
    pub fn at(data: impl Into<PathBuf>, port: u16) -> Server {
        Server { data: data.into(), port, process: None }
    }

    pub fn start(&mut self, settings: &[(&str, &str)]) {
        let mut command = program("postgres");
        let port = self.port.to_string();
        let fixed = [
            ("port", &*port),
            ("listen_addresses", ""),
            ("unix_socket_directories", "/run"),
            ("archive_mode", "always"),
            ("archive_command", ""),
            ("shared_buffers", "16MB"),
            ("max_wal_size", "32MB"),
            ("min_wal_size", "8MB"),
            ("fsync", "off"),
        ];
        command.arg("-D").arg(&self.data);
        for (name, value) in fixed.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    fn log(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/{}.log", self.port))
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Until it takes writes.
    pub async fn ready(&self) {
        self.becomes("f").await;
    }

    pub async fn replicates(&self) {
        self.becomes("t").await;
    }

    async fn becomes(&self, in_recovery: &str) {
        until("PostgreSQL to be ready", LONG, || async {
            match self.try_sql("SELECT pg_is_in_recovery()") {
                Ok(answer) if answer == in_recovery => Look::There(()),
                other => Look::NotYet(format!("{other:?}\n{}", self.said())),
            }
        })
        .await
        .unwrap();
    }

    /// Whether it ended by itself, and how.
    pub async fn ends(&mut self) -> std::process::ExitStatus {
        let mut process = self.process.take().unwrap();
        let waiting = tokio::task::spawn_blocking(move || process.wait().unwrap());
        tokio::time::timeout(LONG, waiting)
            .await
            .unwrap_or_else(|_| panic!("it runs: {}", self.said()))
            .unwrap()
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            run(program("pg_ctl").args(["stop", "-m", "fast", "-D"]).arg(&self.data));
            process.wait().unwrap();
        }
    }

    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        let connect = format!("host=/run port={} user=postgres", self.port);
        let output = program("psql").args(["-X", "-At", "-d", &connect, "-c", statement]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|error| panic!("{statement}: {error}\n{}", self.said()))
    }

    /// Copies it as a replica that streams from it.
    pub fn clone_to(&self, name: &str, port: u16) -> Server {
        let data = Path::new("/mnt").join(name);
        let source = format!("host=/run port={} user=postgres", self.port);
        run(program("pg_basebackup")
            .args(["--checkpoint=fast", "--write-recovery-conf", "-d", &source, "-D"])
            .arg(&data));
        Server { data, port, process: None }
    }

    pub async fn connect(&self) -> tokio_postgres::Client {
        let config = format!("host=/run port={} user=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub fn claim(&self, owner: &str) -> Claim {
        let identifier = self.sql("SELECT system_identifier FROM pg_control_system()");
        Claim {
            system_identifier: identifier.parse::<i64>().unwrap().cast_unsigned(),
            segment_size: SegmentSize::new(1 << 20).unwrap(),
            owner: owner.into(),
        }
    }

    /// Archives its log until that is dropped.
    pub fn archive(&self, writer: &Writer, role: Role) -> Archiving {
        let options = Options { look: Duration::from_millis(20), ..Options::default() };
        let archiver = Archiver::new(writer.clone(), self.data.join("pg_wal"), options);
        let state = archiver.state();
        let (tell, told) = watch::channel(role);
        Archiving { writer: writer.clone(), role: tell, state, task: tokio::spawn(archiver.run(told)) }
    }

    pub async fn back_up(&self, writer: &Writer, kind: Kind) -> Backup {
        self.try_back_up(writer, kind, &watch::Sender::default()).await.unwrap()
    }

    pub async fn try_back_up(
        &self,
        writer: &Writer,
        kind: Kind,
        progress: &watch::Sender<Progress>,
    ) -> Result<Backup> {
        let options =
            base::Options { kind, log_within: LONG, hostname: "test".into(), ..base::Options::default() };
        back_up(writer, self.connect().await, &self.data, &options, progress).await
    }

    /// Ends the segment that is being written, and waits until the repository has it.
    pub async fn flush_log(&self, archiving: &Archiving) {
        // Where nothing was written since the last one, there is nothing to end.
        self.sql("SELECT pg_logical_emit_message(true, 'test', 'flush')");
        let name = self.sql("SELECT pg_walfile_name(pg_switch_wal())");
        let (repository, size) = (archiving.writer.repository(), archiving.writer.claim().segment_size);
        let segment = Segment::parse(&name, size).unwrap();
        until("the log to be archived", LONG, || async {
            let stored = repository.catalogue(size).await.map(|catalogue| catalogue.log.has(segment));
            let state = archiving.state.borrow().clone();
            match stored {
                Ok(true) if state.waiting == 0 => Look::There(()),
                other => Look::NotYet(format!("{name}: {other:?}, {state:?}")),
            }
        })
        .await
        .unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// An archiver at work.
pub struct Archiving {
    writer: Writer,
    pub role: watch::Sender<Role>,
    pub state: watch::Receiver<State>,
    task: JoinHandle<Result<()>>,
}

impl Drop for Archiving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What answers `restore_command`, as the agent will.
pub struct Fetching {
    port: u16,
    task: JoinHandle<()>,
}

impl Fetching {
    pub async fn new(repository: &Repository, folder: &Path) -> Fetching {
        let fetcher = Arc::new(Fetcher::new(repository.clone(), folder, 4).await.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let mut socket = BufReader::new(socket);
                let mut line = String::new();
                socket.read_line(&mut line).await.unwrap();
                let (name, to) = line.trim().split_once(' ').unwrap();
                let result = fetcher.fetch(name, Path::new(to)).await;
                if let Err(error) = &result {
                    eprintln!("{name}: {error}");
                }
                let code = format!("{}\n", Fetched::exit_code(&result));
                let _ = socket.get_mut().write_all(code.as_bytes()).await;
            }
        });
        Fetching { port, task }
    }

    pub fn command(&self, data: &Path) -> String {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; echo \"%f {}/%p\" >&3; read code <&3; exit $code",
            self.port,
            data.display()
        )
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is to be restored.
pub async fn chosen(repository: &Repository, target: &Target) -> Choice {
    let mark = repository.marked().await.unwrap();
    let size = mark.segment_size().unwrap();
    let catalogue = repository.catalogue(size).await.unwrap();
    choose(&catalogue, size, target, None).unwrap_or_else(|refusal| panic!("{target}: {refusal}"))
}

/// Restores and starts; not yet ready.
pub async fn restored(repository: &Repository, target: &Target, name: &str, port: u16) -> (Server, Fetching) {
    let choice = chosen(repository, target).await;
    let data = Path::new("/mnt").join(name);
    let progress = watch::Sender::default();
    restore::restore(repository, &choice.chain, &data, &restore::Options::default(), &progress)
        .await
        .unwrap();
    let seen = *progress.borrow();
    assert!(seen.parts == seen.of && seen.written > 0, "{seen:?}");
    start_recovery(repository, &choice, data, port).await
}

pub async fn start_recovery(
    repository: &Repository,
    choice: &Choice,
    data: PathBuf,
    port: u16,
) -> (Server, Fetching) {
    std::fs::write(data.join("recovery.signal"), "").unwrap();
    let fetching = Fetching::new(repository, &data.with_extension("ahead")).await;
    // The command is for bash, and PostgreSQL calls sh.
    let script = data.with_extension("sh");
    std::fs::write(&script, fetching.command(&data).replace("%f", "$1").replace("%p", "$2")).unwrap();
    let command = format!("bash {} %f %p", script.display());
    let mut settings = recovery_settings(choice);
    settings.push(("restore_command", command));
    let mut server = Server::at(data, port);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    server.start(&settings);
    (server, fetching)
}
