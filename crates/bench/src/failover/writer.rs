//! The program in the client's pod: writes all the time, and says on its output what was acknowledged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keelson_rig::clock::Clock;
use keelson_rig::history::{self, Acknowledged};
use keelson_rig::session::{Door, Session, reason, variable};

use crate::error::Result;

/// From one write to the next while all is well.
const PACE: Duration = Duration::from_millis(50);
/// The same while a write waits for its answer. Slower, because what waits may be a session that PostgreSQL
/// keeps after the client has gone, and there is only room for so many.
const PACE_IN_TROUBLE: Duration = Duration::from_millis(200);
/// How long one write, with its connection, may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The variables that say where to write: an address as the app's Secret has it, and the Service's number, so that
/// no name has to be looked up.
pub(super) const URI: &str = "URI";
pub(super) const ADDRESS: &str = "ADDRESS";

/// Writes until it is killed.
pub(crate) async fn run() -> Result<()> {
    let door = Door::of_variable(URI)?.at(variable(ADDRESS)?);
    let pool = Arc::new(Pool { door, idle: Mutex::default(), busy: AtomicUsize::new(0) });
    pool.make_table().await;
    let clock = Clock::start();
    // Another client, also one that is about to end, has other numbers: it has not had as many writes as
    // milliseconds.
    for id in clock.now().. {
        let begun = Instant::now();
        tokio::spawn(one_write(pool.clone(), clock, id));
        tokio::time::sleep(PACE).await;
        while pool.busy.load(Ordering::SeqCst) > 0 && begun.elapsed() < PACE_IN_TROUBLE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

/// Sends one row, once, whatever comes of it.
async fn one_write(pool: Arc<Pool>, clock: Clock, id: u64) {
    pool.busy.fetch_add(1, Ordering::SeqCst);
    let sent = clock.now();
    let said = tokio::time::timeout(PATIENCE, pool.write(id)).await;
    let answered = clock.now();
    match said {
        Ok(Ok(())) => println!("{}", history::line(&Acknowledged { id, sent, answered })),
        Ok(Err(error)) => println!("failed {id} {sent} {answered} {}", reason(&error)),
        Err(_) => println!("failed {id} {sent} {answered} no answer"),
    }
    pool.busy.fetch_sub(1, Ordering::SeqCst);
}

/// Sessions: those that have answered are used again.
struct Pool {
    door: Door,
    idle: Mutex<Vec<Session>>,
    /// How many writes wait for their answer.
    busy: AtomicUsize,
}

impl Pool {
    async fn write(&self, id: u64) -> Result<(), tokio_postgres::Error> {
        let session = match self.take() {
            Some(session) => session,
            None => self.door.open().await?,
        };
        session.client.batch_execute(&format!("insert into written values ({id})")).await?;
        self.idle().push(session);
        Ok(())
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that answered last, unless it has ended since.
    fn take(&self) -> Option<Session> {
        let mut idle = self.idle();
        idle.retain(|session| !session.client.is_closed());
        idle.pop()
    }

    /// Without a key, so that a row that is there twice can be seen.
    async fn make_table(&self) {
        loop {
            let made = async {
                let session = self.door.open().await?;
                let sql = "drop table if exists written; create table written (id bigint)";
                session.client.batch_execute(sql).await
            };
            match tokio::time::timeout(10 * PATIENCE, made).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => println!("no table yet: {}", reason(&error)),
                Err(_) => println!("no table yet: no answer"),
            }
            tokio::time::sleep(PACE).await;
        }
    }
}
