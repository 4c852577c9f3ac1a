//! A database's data goes into a repository and comes back.

use std::path::Path;

use keelson_backup::archive::Role;
use keelson_backup::base::{Kind, Phase, Progress};
use keelson_backup::prune::prune;
use keelson_backup::restore::{self, Target, choose, verify};
use keelson_backup::retention::Policy;
use keelson_backup::{Class, Error, SegmentSize};
use testbed::{Look, until};
use tokio::sync::watch;

use crate::server::{LONG, Server, chosen, restored, start_recovery};
use crate::store::{S3, folder};

const COUNT: &str = "SELECT count(*) FROM t";

fn insert(server: &Server, rows: u32) {
    server
        .sql(&format!("INSERT INTO t SELECT g, repeat(md5(g::text), 10) FROM generate_series(1, {rows}) g"));
}

pub async fn a_database_comes_back_from_a_folder_exactly_as_it_was_at_each_target() {
    let mut server = Server::new("data", 5001);
    server.start(&[]);
    server.ready().await;
    let repository = folder("repository");
    let writer = repository.claim(&server.claim("shop/orders")).await.unwrap();
    let archiving = server.archive(&writer, Role::Leader);
    server.sql("CREATE TABLE t (id int, text text)");
    server.sql("CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 1000) id");
    insert(&server, 5000);
    let progress = watch::Sender::default();
    let backup = server.try_back_up(&writer, Kind::Full, &progress).await.unwrap();
    let seen: Progress = *progress.borrow();
    assert!(seen.phase == Phase::Finished && seen.read == seen.total && seen.total > 20 << 20, "{seen:?}");
    assert!(backup.stored > 0 && backup.stored < backup.size / 2, "{backup:?}");

    insert(&server, 100);
    let lsn = server.sql("SELECT pg_create_restore_point('before-release')").parse().unwrap();
    writer.record_point("before-release", 1, lsn).await.unwrap();
    insert(&server, 10);
    let time = server
        .sql("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')");
    insert(&server, 1);
    server.flush_log(&archiving).await;

    let targets = [
        (Target::Immediate, "5000"),
        (Target::Name("before-release".into()), "5100"),
        (Target::Lsn(lsn), "5100"),
        (Target::Time(time.parse().unwrap()), "5110"),
        (Target::Latest, "5111"),
    ];
    for (number, (target, rows)) in targets.iter().enumerate() {
        let (mut copy, _fetching) =
            restored(&repository, target, &format!("copy-{number}"), 5010 + number as u16).await;
        copy.ready().await;
        assert_eq!(copy.sql(COUNT), *rows, "{target}");
        assert_eq!(copy.sql("SELECT count(*) FROM u"), "0", "what is not logged comes back empty");
        copy.stop();
    }
    let verified = verify(&repository, &backup, 2).await.unwrap();
    assert!(
        verified.against_manifest && verified.bytes == backup.stored && verified.files > 900,
        "{verified:?}"
    );

    // A second one; then the first and its log may go, and what is left is enough.
    let second = server.back_up(&writer, Kind::Full).await;
    server.flush_log(&archiving).await;
    let pruned = prune(&writer, Policy::Count(1), jiff::Timestamp::now(), &[]).await.unwrap();
    assert_eq!(pruned.backups, [backup.name]);
    assert!(pruned.log > 3, "{pruned:?}");
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy-pruned", 5020).await;
    copy.ready().await;
    assert_eq!(copy.sql(COUNT), "5111");
    copy.stop();
    let size = SegmentSize::new(1 << 20).unwrap();
    let catalogue = repository.catalogue(size).await.unwrap();
    let refusal = choose(&catalogue, size, &Target::Lsn(lsn), None).unwrap_err().to_string();
    assert!(
        refusal.contains("before the first backup") && refusal.contains(&second.finished.to_string()),
        "{refusal}"
    );
    server.stop();
}

pub async fn a_database_comes_back_from_s3_sealed_and_incremental() {
    let _s3 = S3::start().await;
    let mut server = Server::new("data", 5001);
    server.start(&[]);
    server.ready().await;
    let repository = S3::sealed("production/orders");
    let writer = repository.claim(&server.claim("production/orders")).await.unwrap();
    let archiving = server.archive(&writer, Role::Leader);
    server.sql("CREATE TABLE t (id int, text text)");
    server.sql("CREATE TABLE gone AS SELECT generate_series(1, 10000) id");
    server.sql("CREATE TABLE same AS SELECT g id, md5(g::text) text FROM generate_series(1, 100000) g");
    insert(&server, 5000);
    // With checksums, the first who looks at a row may change its page: let that be before.
    server.sql("VACUUM same");
    let full = server.back_up(&writer, Kind::Full).await;
    insert(&server, 50);
    server.sql("DROP TABLE gone");
    server.sql("UPDATE same SET text = 'changed' WHERE id % 5000 = 0");
    let first = server.back_up(&writer, Kind::IncrementalTo(full.clone())).await;
    assert!(first.stored < full.stored / 2, "{} of {}", first.stored, full.stored);
    server.sql("CREATE TABLE fresh AS SELECT 42 answer");
    insert(&server, 5);
    server.sql("DELETE FROM same WHERE id > 50000");
    server.sql("VACUUM same");
    let second = server.back_up(&writer, Kind::IncrementalTo(first.clone())).await;
    assert_eq!((second.parent.as_ref(), second.depth), (Some(&first.name), 2));
    insert(&server, 1);
    server.flush_log(&archiving).await;

    let same = "SELECT count(*), count(*) FILTER (WHERE text = 'changed'), sum(hashtext(text)) FROM same";
    let choice = chosen(&repository, &Target::Latest).await;
    assert_eq!(choice.chain.len(), 3);
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy", 5010).await;
    copy.ready().await;
    assert_eq!(copy.sql(COUNT), "5056");
    assert_eq!(copy.sql(same), server.sql(same));
    assert_eq!(copy.sql("SELECT answer FROM fresh"), "42");
    assert_eq!(copy.sql("SELECT to_regclass('gone') IS NULL"), "t");
    // Every page of it, by the database's own checksums.
    copy.stop();
    let checksums = std::process::Command::new(format!(
        "/usr/lib/postgresql/{}/bin/pg_checksums",
        testbed::inside::version()
    ))
    .args(["--check", "-D"])
    .arg(&copy.data)
    .output()
    .unwrap();
    assert!(checksums.status.success(), "{}", String::from_utf8_lossy(&checksums.stderr));

    // The newest needs both that it builds on.
    let pruned = prune(&writer, Policy::Count(1), jiff::Timestamp::now(), &[]).await.unwrap();
    assert!(pruned.backups.is_empty(), "{pruned:?}");
    let error = S3::repository("production/orders").catalogue(SegmentSize::new(1 << 20).unwrap()).await;
    assert!(error.is_ok(), "notes are readable without the key, as WAL-G has it");
    let unsealed = restore::restore(
        &S3::repository("production/orders"),
        &choice.chain,
        Path::new("/mnt/nothing"),
        &restore::Options::default(),
        &watch::Sender::default(),
    )
    .await;
    assert!(matches!(unsealed, Err(Error::Corrupt { .. })), "{unsealed:?}");
    server.stop();
}

pub async fn a_store_that_is_away_stops_nothing_and_catches_up() {
    let mut s3 = S3::start().await;
    let mut server = Server::new("data", 5001);
    server.start(&[]);
    server.ready().await;
    let repository = S3::repository("production/orders");
    let writer = repository.claim(&server.claim("production/orders")).await.unwrap();
    let archiving = server.archive(&writer, Role::Leader);
    server.sql("CREATE TABLE t (id int, text text)");
    let backup = server.back_up(&writer, Kind::Full).await;
    s3.stop();
    for _ in 0..5 {
        insert(&server, 1000);
        server.sql("SELECT pg_switch_wal()");
    }
    until("the trouble to be said", LONG, || async {
        let state = archiving.state.borrow().clone();
        match &state.trouble {
            Some(trouble) if trouble.class == Class::Unreachable && state.waiting >= 5 => Look::There(()),
            _ => Look::NotYet(format!("{state:?}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(server.sql(COUNT), "5000", "the database goes on");
    s3.start_again().await;
    server.flush_log(&archiving).await;
    assert!(archiving.state.borrow().trouble.is_none());
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy", 5010).await;
    copy.ready().await;
    assert_eq!(copy.sql(COUNT), "5000");
    copy.stop();

    let denied = keelson_backup::Repository::open(
        &S3::location("production/orders", "wrong"),
        keelson_backup::Format::default(),
    );
    let error = denied.unwrap().backups().await.unwrap_err();
    assert_eq!(error.class(), Class::Denied, "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    assert_eq!(repository.backups().await.unwrap(), [backup]);
    server.stop();
}

pub async fn tablespaces_go_where_they_are_told_to() {
    std::fs::create_dir("/mnt/space").unwrap();
    let mut server = Server::new("data", 5001);
    server.start(&[]);
    server.ready().await;
    let repository = folder("repository");
    let writer = repository.claim(&server.claim("shop/orders")).await.unwrap();
    let archiving = server.archive(&writer, Role::Leader);
    server.sql("CREATE TABLESPACE elsewhere LOCATION '/mnt/space'");
    server.sql("CREATE TABLE t (id int, text text) TABLESPACE elsewhere");
    insert(&server, 500);
    let name = server.sql("SELECT oid FROM pg_tablespace WHERE spcname = 'elsewhere'");
    server.back_up(&writer, Kind::Full).await;
    insert(&server, 5);
    server.flush_log(&archiving).await;
    let choice = chosen(&repository, &Target::Latest).await;
    let progress = watch::Sender::default();
    let nowhere = restore::restore(
        &repository,
        &choice.chain,
        Path::new("/mnt/a"),
        &restore::Options::default(),
        &progress,
    )
    .await;
    assert!(nowhere.unwrap_err().to_string().contains("/mnt/space"));
    let options =
        restore::Options { tablespaces: [(name, "/mnt/moved".into())].into(), ..restore::Options::default() };
    restore::restore(&repository, &choice.chain, Path::new("/mnt/b"), &options, &progress).await.unwrap();
    // The old place is not touched, even while the old database is gone.
    server.stop();
    let (mut copy, _fetching) = start_recovery(&repository, &choice, "/mnt/b".into(), 5010).await;
    copy.ready().await;
    assert_eq!(copy.sql(COUNT), "505");
    assert_eq!(
        copy.sql("SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 'elsewhere'"),
        "/mnt/moved"
    );
    copy.stop();
}
