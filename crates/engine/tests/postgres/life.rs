//! Made, started, stopped, crashed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keelson_engine::postgres::Postgres;
use keelson_engine::{Data, Engine, Error, Exit, Process, Role, Stop, Synchronous, reap};
use nix::sys::signal::{Signal, kill};
use testbed::{Look, until, until_blocking};
use tokio::runtime::Handle;

use crate::instance::{Instance, LONG, nobody_left, processes};
use testbed::inside::version;

pub async fn a_database_is_made_started_and_stopped() {
    let one = Instance::empty("one", 5432).await;
    assert_eq!(one.postgres.data().await.unwrap(), Data::Absent);
    assert!(one.postgres.start(&Role::Primary).await.is_err());
    let system = one.postgres.initialise().await.unwrap();
    assert!(one.postgres.initialise().await.is_err(), "never over what is there");

    one.start(&Role::Primary).await;
    let status = one.status().await;
    assert_eq!((status.in_recovery, status.timeline, status.system), (false, 1, system));
    assert!(status.version.starts_with(&version().to_string()), "{}", status.version);
    assert!(status.flushed.is_some() && status.standbys.is_empty() && status.receiver.is_none());
    let before = status.position();
    one.postgres.heartbeat(LONG).await.unwrap();
    assert!(one.status().await.position() > before, "a heartbeat is a write");
    assert_eq!(one.sql("SHOW data_checksums"), "on");
    assert_eq!(one.sql("SHOW server_encoding"), "UTF8");
    let metrics = one.postgres.metrics(LONG, 64).await.unwrap();
    assert!(metrics.wal_position >= before.0 && metrics.max_connections == 100, "{metrics:?}");
    assert!(metrics.databases.iter().any(|database| database.name == "postgres" && database.bytes > 0));
    one.sql("CREATE DATABASE a_later_one");
    one.sql("CREATE DATABASE a_last_one");
    let metrics = one.postgres.metrics(LONG, 2).await.unwrap();
    let named: Vec<&str> = metrics.databases.iter().map(|database| database.name.as_str()).collect();
    assert_eq!((named, metrics.database_count), (vec!["postgres", "a_later_one"], 3));
    one.postgres.checkpoint(LONG).await.unwrap();

    assert_eq!(one.postgres.stop(Stop::Fast, LONG).await.unwrap(), Some(Exit::Code(0)));
    let Data::Present(offline) = one.postgres.data().await.unwrap() else { panic!() };
    assert!(offline.clean && !offline.replica && offline.system == system && offline.timeline == 1);
    assert!(matches!(one.postgres.heartbeat(LONG).await, Err(Error::Running { running: false, .. })));
}

pub async fn a_crash_is_seen_at_once_and_leaves_nobody_behind() {
    let one = Instance::empty("one", 5432).await;
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    // As the first process of a container does.
    tokio::spawn(reap::reap_forever());
    let mut process = one.postgres.process();
    kill(one.pid(), Signal::SIGKILL).unwrap();
    let ended = process.wait_for(|process| matches!(process, Process::Ended(_)));
    let ended = *tokio::time::timeout(LONG, ended).await.unwrap().unwrap();
    assert_eq!(ended, Process::Ended(Exit::Signal(9)));
    assert_eq!(one.postgres.stop(Stop::Immediate, LONG).await.unwrap(), Some(Exit::Signal(9)));
    none("postgres").await;
    let Data::Present(offline) = one.postgres.data().await.unwrap() else { panic!() };
    assert!(!offline.clean);
    one.start(&Role::Primary).await;
    one.postgres.stop(Stop::Immediate, LONG).await.unwrap();
}

pub async fn a_stale_pid_file_does_not_keep_it_from_starting() {
    let one = Instance::empty("one", 5432).await;
    one.postgres.initialise().await.unwrap();
    // Another process, very much alive, has the number that the last postmaster had.
    let mut other = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
    let stale = format!("{}\n/mnt/one/data\n1700000000\n5432\n", other.id());
    fs::write(one.layout.data().join("postmaster.pid"), stale).unwrap();
    one.start(&Role::Primary).await;
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
}

pub async fn a_postmaster_that_hangs_is_noticed_and_can_be_ended() {
    let one = Instance::empty("one", 5432).await;
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    // What a status is asked over stays open; a heartbeat must not be fooled by that.
    one.status().await;
    kill(one.pid(), Signal::SIGSTOP).unwrap();
    let deadline = Duration::from_millis(300);
    for _ in 0..10 {
        let start = Instant::now();
        let error = one.postgres.heartbeat(deadline).await.unwrap_err();
        assert!(matches!(error, Error::Late { .. }), "{error}");
        assert!(start.elapsed() < deadline * 5, "{:?}", start.elapsed());
    }
    kill(one.pid(), Signal::SIGCONT).unwrap();
    one.postgres.heartbeat(LONG).await.unwrap();
    let waiting = one.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'keelson'");
    assert!(waiting.parse::<u32>().unwrap() <= 3, "beats do not pile up: {waiting}");

    kill(one.pid(), Signal::SIGSTOP).unwrap();
    let start = Instant::now();
    let exit = one.postgres.stop(Stop::Immediate, deadline).await.unwrap();
    assert_eq!(exit, Some(Exit::Signal(9)));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    nobody_left("postgres").await;
    one.start(&Role::Primary).await;
}

pub async fn a_heartbeat_waits_for_no_replica() {
    let one = Instance::empty("one", 5432).await;
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    let nobody = Synchronous::default();
    let absent = Synchronous { count: 1, names: vec!["not-there".into()] };
    one.postgres.set_synchronous(&absent).await.unwrap();
    assert_eq!(one.sql("SHOW synchronous_standby_names"), r#"ANY 1 ("not-there")"#);
    one.postgres.heartbeat(LONG).await.unwrap();
    // Anybody else's commit waits, until nobody has to be waited for.
    std::thread::scope(|threads| {
        let commit = threads.spawn(|| one.sql("CREATE TABLE t ()"));
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let seen = until_blocking("a commit to wait", LONG, || match one.sql(waiting).as_str() {
            "1" => Look::There(()),
            other => Look::NotYet(other.to_owned()),
        });
        seen.unwrap();
        let free = one.postgres.set_synchronous(&nobody);
        tokio::task::block_in_place(|| Handle::current().block_on(free)).unwrap();
        commit.join().unwrap();
    });
}

/// Who waits for a child gets its status, however busily orphans are reaped.
pub async fn a_child_that_is_waited_for_is_not_taken_for_an_orphan() {
    let busy = Arc::new(AtomicBool::new(true));
    let reaping = tokio::task::spawn_blocking({
        let busy = busy.clone();
        move || {
            while busy.load(Ordering::SeqCst) {
                reap::reap();
            }
        }
    });
    for _ in 0..100 {
        let mut shell = tokio::process::Command::new("/bin/sh");
        // Leaves an orphan behind, too.
        shell.args(["-c", "(sleep 0.01 &); exit 7"]);
        let status = reap::Child::spawn(&mut shell).unwrap().wait().await.unwrap();
        assert_eq!(status.code(), Some(7));
    }
    busy.store(false, Ordering::SeqCst);
    reaping.await.unwrap();
    tokio::spawn(reap::reap_forever());
    none("sleep").await;
}

/// Not even as a zombie.
async fn none(name: &str) {
    until("the orphans to be reaped", LONG, || async {
        match processes(name) {
            left if left.is_empty() => Look::There(()),
            left => Look::NotYet(format!("{left:?}")),
        }
    })
    .await
    .unwrap();
}

pub async fn a_volume_has_one_master() {
    let one = Instance::empty("one", 5432).await;
    let second = Postgres::open(one.layout.clone(), one.settings.clone()).await;
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    let Instance { postgres, layout, settings } = one;
    // Even when whoever started it is gone, its processes hold the volume.
    drop(postgres);
    let second = Postgres::open(layout.clone(), settings.clone()).await;
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
    for (pid, _) in processes("postgres") {
        let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
    }
    until("the volume to be free", LONG, || async {
        match Postgres::open(layout.clone(), settings.clone()).await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
}
