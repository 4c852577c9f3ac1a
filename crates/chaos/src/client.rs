//! The program in a client's pod, one on each node: writes to every database all the time, through the Service for
//! writers and to the own address of each instance, reads what is there, and writes down what it was told.
//!
//! A session is kept for as long as it answers: one that hung to a primary of the past would still be there when
//! that goes on.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keelson_rig::clock::Clock;
use keelson_rig::history::Acknowledged;
use keelson_rig::session::{Door, Session, reason, variable};
use tokio::time::{sleep, timeout};
use tokio_postgres::SimpleQueryMessage;

use crate::error::{During, Error, Result};
use crate::record::{APART, CLIENTS, Read, Record, WRITERS, Write, line};

/// What a client is told, in variables of its environment.
pub(crate) const CLIENT: &str = "CLIENT";
pub(crate) const HISTORY: &str = "HISTORY";
/// `name instances address-of-the-Service`, one after another.
pub(crate) const DATABASES: &str = "DATABASES";
/// Followed by a database's name: where it is, as the app's Secret has it.
pub(crate) const URI: &str = "URI_";

/// How long one statement, with its connection, may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// From one write to the next through the Service, for the first client and for others.
const PACE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// From one write to the next on an instance's own address.
const PACE_DIRECT: Duration = Duration::from_secs(1);
/// From one read to the next.
const PACE_READ: Duration = Duration::from_millis(400);
/// The longest wait after something failed. A session that waits in vain stays in PostgreSQL, where there is only
/// room for so many; the first client is the one by which time without writes is measured.
const WAIT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];

/// Works until it is killed.
pub(crate) async fn run() -> Result<()> {
    let number: usize = variable(CLIENT)?;
    let folder: PathBuf = variable(HISTORY)?;
    let path = folder.join(format!("client-{number}.log"));
    let file = OpenOptions::new().create(true).append(true).open(&path).during("opening", &path)?;
    let clock = Clock::start();
    let next = AtomicU64::new(number as u64 * APART + clock.now());
    let book = Arc::new(Book { number, clock, next, file: Mutex::new(file) });
    let databases: String = variable(DATABASES)?;
    let words: Vec<&str> = databases.split(' ').collect();
    for words in words.chunks(3) {
        let [name, instances, address] = words else { return Err(unreadable(DATABASES)) };
        let door = Door::of_variable(&format!("{URI}{name}"))?;
        let address: IpAddr = address.parse().map_err(|_| unreadable(DATABASES))?;
        let instances: usize = instances.parse().map_err(|_| unreadable(DATABASES))?;
        begin(&book, name, &door, address, instances);
    }
    std::future::pending().await
}

fn unreadable(what: &str) -> Error {
    Error::Unreadable { what: what.to_owned(), why: "it is not what it should be".to_owned() }
}

/// All that goes on with one database.
fn begin(book: &Arc<Book>, name: &str, door: &Door, address: IpAddr, instances: usize) {
    let first = usize::from(book.number != 0);
    let through = Where::Address(door.at(address).to_write());
    let path = |way: &str, place: Where| Path {
        book: book.clone(),
        database: name.to_owned(),
        way: way.to_owned(),
        place,
        session: None,
    };
    tokio::spawn(path(WRITERS, through.clone()).write_on(PACE[first], WAIT[first]));
    tokio::spawn(path(WRITERS, through).read_on());
    for ordinal in 0..instances {
        let instance = format!("{name}-{ordinal}");
        let place = Where::Name(door.clone(), format!("{instance}.{name}"));
        tokio::spawn(path(&instance, place).write_on(PACE_DIRECT, WAIT[1]));
    }
}

/// What is written down.
struct Book {
    number: usize,
    clock: Clock,
    next: AtomicU64,
    file: Mutex<File>,
}

impl Book {
    fn put(&self, text: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(text.as_bytes()) {
            // What was told and not written down would be taken for nothing: rather end, and be started again.
            eprintln!("writing down what was told: {error}");
            std::process::exit(1);
        }
    }
}

/// Where a session goes.
#[derive(Clone)]
enum Where {
    /// To the Service.
    Address(Door),
    /// To the instance of this name, wherever that is when it is asked.
    Name(Door, String),
}

/// One session at a time with one database, over one way.
struct Path {
    book: Arc<Book>,
    database: String,
    way: String,
    place: Where,
    session: Option<Session>,
}

/// Why nothing came of it.
type Failure = String;

impl Path {
    async fn write_on(mut self, pace: Duration, longest: Duration) {
        self.make_table().await;
        let mut wait = pace;
        loop {
            let id = self.book.next.fetch_add(1, Ordering::Relaxed);
            let sent = self.book.clock.now();
            let said = timeout(PATIENCE, self.write(id)).await;
            let answered = self.book.clock.now();
            wait = match said.unwrap_or_else(|_| Err("no answer".to_owned())) {
                Ok((timeline, place)) => {
                    let row = Acknowledged { id, sent, answered };
                    let write = Write { row, way: self.way.clone(), timeline, place };
                    self.book.put(&line(&self.database, &Record::Write(write)));
                    pace
                }
                // A replica, which may be promoted: the session stays.
                Err(failure) if failure.contains("read-only") && self.way != WRITERS => pace,
                Err(failure) => {
                    self.failed(sent, answered, &failure);
                    (wait * 2).min(longest)
                }
            };
            sleep(wait).await;
        }
    }

    fn failed(&mut self, sent: u64, answered: u64, failure: &str) {
        self.session = None;
        let Path { database, way, .. } = self;
        self.book.put(&format!("failed {database} {way} {sent} {answered} {failure}\n"));
    }

    async fn read_on(mut self) {
        loop {
            sleep(PACE_READ).await;
            let sent = self.book.clock.now();
            let said = timeout(PATIENCE, self.read()).await;
            let answered = self.book.clock.now();
            match said.unwrap_or_else(|_| Err("no answer".to_owned())) {
                Ok(last) => {
                    let read = Read { client: self.book.number, sent, answered, last };
                    self.book.put(&line(&self.database, &Record::Read(read)));
                }
                Err(_) => self.session = None,
            }
        }
    }

    async fn session(&mut self) -> Result<&Session, Failure> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            let door = match &self.place {
                Where::Address(door) => door.clone(),
                Where::Name(door, name) => {
                    let mut found = tokio::net::lookup_host((name.as_str(), 0))
                        .await
                        .map_err(|error| error.to_string())?;
                    door.at(found.next().ok_or("nowhere")?.ip())
                }
            };
            self.session = Some(door.open().await.map_err(|error| reason(&error))?);
        }
        self.session.as_ref().ok_or_else(|| "no session".to_owned())
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<Vec<u64>>, Failure> {
        let said = self.session().await?.client.simple_query(sql).await.map_err(|error| reason(&error))?;
        let rows = said.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(rows.map(|row| (0..row.len()).map(|at| number(row.get(at))).collect()).collect())
    }

    /// One row, once, whatever comes of it. Returns the timeline and the place in the log.
    async fn write(&mut self, id: u64) -> Result<(u64, u64), Failure> {
        let sql = format!(
            "insert into written values ({id}) returning \
             ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint, \
             pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        );
        let rows = self.ask(&sql).await?;
        match rows.first().map(Vec::as_slice) {
            Some(&[timeline, place]) => Ok((timeline, place)),
            other => Err(format!("an answer of another form: {other:?}")),
        }
    }

    async fn read(&mut self) -> Result<[u64; CLIENTS], Failure> {
        let last = |client: usize| {
            let from = client as u64 * APART;
            format!("(select max(id) from written where id between {from} and {})", from + APART - 1)
        };
        let all: Vec<String> = (0..CLIENTS).map(last).collect();
        let rows = self.ask(&format!("select {}", all.join(", "))).await?;
        rows.first().and_then(|row| row.as_slice().try_into().ok()).ok_or_else(|| "nothing".to_owned())
    }

    /// Without a key, so that a row that is there twice can be seen.
    async fn make_table(&mut self) {
        let sql = "create table if not exists written (id bigint); \
                   create index if not exists written_id on written (id)";
        while self.way == WRITERS && self.book.number == 0 {
            match timeout(10 * PATIENCE, self.ask(sql)).await {
                Ok(Ok(_)) => return,
                Ok(Err(failure)) => println!("{}: no table yet: {failure}", self.database),
                Err(_) => println!("{}: no table yet: no answer", self.database),
            }
            self.session = None;
            sleep(PATIENCE).await;
        }
    }
}
