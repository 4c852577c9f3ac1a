//! Backups of a replica, and what becomes of the log when it is promoted.

use keelson_backup::archive::Role;
use keelson_backup::base::{Kind, Phase, Progress};
use keelson_backup::restore::Target;
use testbed::{Look, until};
use tokio::sync::watch;

use crate::server::{LONG, Server, restored};
use crate::store::S3;

pub async fn a_replica_is_backed_up_and_the_log_of_two_timelines_leads_on() {
    let _s3 = S3::start().await;
    let mut primary = Server::new("primary", 5001);
    primary.start(&[]);
    primary.ready().await;
    let repository = S3::repository("production/orders");
    let writer = repository.claim(&primary.claim("production/orders")).await.unwrap();
    let leading = primary.archive(&writer, Role::Leader);
    primary.sql("CREATE TABLE t AS SELECT generate_series(1, 1000) id");
    let mut replica = primary.clone_to("replica", 5002);
    replica.start(&[]);
    replica.replicates().await;
    let following = replica.archive(&writer, Role::Follower);
    primary.sql("INSERT INTO t SELECT generate_series(1, 100)");
    primary.sql("CHECKPOINT");

    // The replica copies; the primary sends the log that is needed, once it is told to end a segment.
    let progress = watch::Sender::<Progress>::default();
    let mut watching = progress.subscribe();
    let backing_up = replica.try_back_up(&writer, Kind::Full, &progress);
    let flushing = async {
        watching.wait_for(|progress| progress.phase == Phase::Log).await.unwrap();
        primary.flush_log(&leading).await;
    };
    let (full, ()) = tokio::join!(backing_up, flushing);
    let full = full.unwrap();
    let caught_up = |wanted: String| {
        let replica = &replica;
        async move {
            until("the replica to catch up", LONG, || async {
                let replayed = replica.sql(&format!("SELECT pg_last_wal_replay_lsn() >= '{wanted}'"));
                if replayed == "t" { Look::There(()) } else { Look::NotYet(replayed) }
            })
            .await
            .unwrap();
        }
    };

    // The primary dies with log that it had not sent. The replica has kept it.
    drop(leading);
    primary.sql("INSERT INTO t SELECT generate_series(1, 10)");
    primary.sql("SELECT pg_switch_wal()");
    caught_up(
        primary
            .sql("INSERT INTO t SELECT 1 RETURNING pg_current_wal_insert_lsn()")
            .lines()
            .next()
            .unwrap()
            .into(),
    )
    .await;
    caught_up(primary.sql("SELECT pg_current_wal_flush_lsn()")).await;
    drop(primary);
    replica.sql("SELECT pg_promote()");
    replica.ready().await;
    following.role.send_replace(Role::Leader);
    replica.sql("INSERT INTO t SELECT generate_series(1, 5)");
    replica.flush_log(&following).await;
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy", 5010).await;
    copy.ready().await;
    assert_eq!(copy.sql("SELECT count(*) FROM t"), "1116", "over both timelines");
    copy.stop();

    // On the new timeline, built upon what was taken on the old one.
    let incremental = replica.back_up(&writer, Kind::IncrementalTo(full)).await;
    assert_eq!((incremental.timeline, incremental.depth), (2, 1));
    replica.sql("INSERT INTO t SELECT generate_series(1, 2)");
    replica.flush_log(&following).await;
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy-2", 5011).await;
    copy.ready().await;
    assert_eq!(copy.sql("SELECT count(*) FROM t"), "1118");
    copy.stop();
    replica.stop();
}
