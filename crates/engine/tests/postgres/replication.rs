//! Several instances on one machine, over TLS.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use keelson_engine::postgres::{FENCE, slot_name};
use keelson_engine::{Data, Engine, Error, Role, Stop, Synchronous, Upstream};

use testbed::{Look, until_blocking};

use crate::instance::{Instance, LONG};

pub async fn a_clone_streams_and_is_counted() {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t (i int)");
    one.sql("INSERT INTO t SELECT generate_series(1, 1000)");
    let two = Instance::empty("two", 5433).await;
    one.postgres.ensure_slots(&[slot_name("two")].into()).await.unwrap();
    let seen = AtomicU64::new(0);
    let upstream = one.upstream_of("two");
    two.postgres
        .clone_from(&upstream, &|progress| {
            seen.fetch_max(progress.done, Ordering::SeqCst);
            assert!(progress.total > 0);
        })
        .await
        .unwrap();
    assert!(seen.load(Ordering::SeqCst) > 1 << 20, "progress is seen");
    two.start(&Role::Replica(Some(upstream))).await;
    two.streams_from(&one).await;
    assert_eq!(two.sql("SELECT count(*) FROM t"), "1000");

    one.postgres.set_synchronous(&Synchronous { count: 1, names: vec!["two".into()] }).await.unwrap();
    one.sql("INSERT INTO t VALUES (1001)");
    let status = one.status().await;
    let [standby] = &status.standbys[..] else { panic!("{status:?}") };
    assert_eq!(
        (standby.name.as_str(), standby.state.as_str(), standby.sync.as_str()),
        ("two", "streaming", "quorum")
    );
    assert!(status.slots.iter().any(|slot| slot.name == "keelson_two" && slot.active && slot.physical));
    let replica = two.status().await;
    assert!(
        replica.in_recovery && replica.system == status.system && replica.timeline == 1 && !replica.paused
    );
    assert!(
        one.postgres.metrics(LONG, 64).await.unwrap().standbys.iter().any(|standby| standby.name == "two")
    );
    assert!(two.postgres.metrics(LONG, 64).await.unwrap().replay_lag_bytes.is_some());
    let error = two.postgres.heartbeat(LONG).await.unwrap_err();
    assert!(matches!(error, Error::Sql { .. }), "a replica can't write: {error}");
}

pub async fn a_replica_follows_another_primary_without_a_restart() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::replica("two", 5433, &one).await;
    one.postgres.ensure_slots(&[slot_name("two"), slot_name("three")].into()).await.unwrap();
    let three = Instance::replica("three", 5434, &one).await;
    one.sql("CREATE TABLE t (i int)");
    two.streams_from(&one).await;
    three.streams_from(&one).await;
    let pid = three.pid();

    one.postgres.stop(Stop::Immediate, LONG).await.unwrap();
    // The slot must be there before the log that the other needs can go.
    two.postgres.ensure_slots(&[slot_name("three")].into()).await.unwrap();
    let waits = Synchronous { count: 1, names: vec!["three".into()] };
    two.postgres.promote(&waits, 0, LONG).await.unwrap();
    assert!(!two.status().await.in_recovery);
    assert_eq!(two.status().await.timeline, 2);
    three.postgres.follow(Some(&two.upstream_of("three"))).await.unwrap();
    // Waits for the acknowledgement of the one that has just come over.
    two.sql("INSERT INTO t VALUES (1)");
    three.streams_from(&two).await;
    assert_eq!((three.pid(), three.status().await.timeline), (pid, 2));
    assert_eq!(three.sql("SELECT count(*) FROM t"), "1");

    three.postgres.follow(None).await.unwrap();
    testbed::until("the replica to let go", LONG, || async {
        match three.status().await.receiver {
            None => testbed::Look::There(()),
            Some(receiver) => testbed::Look::NotYet(format!("{receiver:?}")),
        }
    })
    .await
    .unwrap();
    // Promoted twice is promoted once.
    two.postgres.promote(&Synchronous::default(), 0, LONG).await.unwrap();
    assert_eq!(two.status().await.timeline, 2);
}

pub async fn a_primary_is_found_by_its_address_or_by_its_name() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::replica("two", 5433, &one).await;
    two.postgres.follow(None).await.unwrap();
    // No name can be looked up, but where it was is known.
    let known = Upstream { host: "one.invalid".into(), ..one.upstream_of("two") };
    two.postgres.follow(Some(&known)).await.unwrap();
    one.sql("CREATE TABLE t (i int)");
    two.streams_from(&one).await;
    assert_eq!(two.postgres.timeline_of(&known).await.unwrap(), 1);
    // Nobody is there any more.
    two.postgres.follow(None).await.unwrap();
    let elsewhere = Upstream { address: Some([127, 0, 0, 9].into()), ..one.upstream_of("two") };
    two.postgres.follow(Some(&elsewhere)).await.unwrap();
    one.sql("INSERT INTO t VALUES (1)");
    two.streams_from(&one).await;
    assert_eq!(two.sql("SELECT count(*) FROM t"), "1");
}

pub async fn a_diverged_primary_is_rewound() {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t (i int)");
    let two = Instance::replica("two", 5433, &one).await;
    // The control file that it is promoted with says nothing of the new timeline for minutes, unless somebody asks for it:
    // the checkpoint at the end of recovery is spread out.
    two.postgres.promote(&Synchronous::default(), 0, LONG).await.unwrap();
    two.postgres.ensure_slots(&[slot_name("one")].into()).await.unwrap();
    two.sql("INSERT INTO t VALUES (2)");
    // What the old primary wrote after that is nobody's history.
    one.sql("INSERT INTO t SELECT generate_series(100, 5000)");
    let running = one.postgres.rewind_from(&two.upstream_of("one")).await;
    assert!(matches!(running, Err(Error::Running { running: true, .. })));
    one.postgres.stop(Stop::Immediate, LONG).await.unwrap();

    one.postgres.rewind_from(&two.upstream_of("one")).await.unwrap();
    let Data::Present(_) = one.postgres.data().await.unwrap() else { panic!() };
    one.start(&Role::Replica(Some(two.upstream_of("one")))).await;
    one.streams_from(&two).await;
    assert_eq!(one.sql("SELECT string_agg(i::text, ',') FROM t"), "2");
    assert_eq!(one.status().await.timeline, 2);
    assert_eq!(one.sql("SHOW port"), "5432", "its configuration is its own");
}

pub async fn slots_are_kept_for_those_who_are_wanted() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::replica("two", 5433, &one).await;
    one.sql("SELECT pg_create_physical_replication_slot('somebodys')");
    let names = |names: &[&str]| names.iter().map(|name| slot_name(name)).collect::<BTreeSet<String>>();
    one.postgres.ensure_slots(&names(&["two", "three"])).await.unwrap();
    let slots = "SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots";
    assert_eq!(one.sql(slots), "keelson_three,keelson_two,somebodys");
    // In use, so it stays although it is not wanted.
    one.postgres.ensure_slots(&names(&["four"])).await.unwrap();
    assert_eq!(one.sql(slots), "keelson_four,keelson_two,somebodys");
    // A replica keeps log for others, and lets it go as they move on.
    two.postgres.ensure_slots(&names(&["three"])).await.unwrap();
    one.sql("CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 1000)");
    two.streams_from(&one).await;
    let kept = two.status().await.slots[0].restart;
    let reached = two.status().await.replayed.unwrap();
    two.postgres.advance_slot(&slot_name("three"), reached).await.unwrap();
    assert!(two.status().await.slots[0].restart > kept);
}

pub async fn a_replica_that_is_away_for_too_long_is_copied_anew() {
    let one = Instance::primary("one", 5432).await;
    let mut settings = one.settings.clone();
    // The least that is kept is 256 MiB. Segments need not be filled with zeroes for this.
    settings.resources.volume = 1 << 30;
    let sparse = [("wal_init_zero", "off"), ("wal_recycle", "off"), ("wal_keep_size", "0")];
    settings.parameters.extend(sparse.map(|(name, value)| (name.to_owned(), value.to_owned())));
    one.postgres.apply(&settings).await.unwrap();
    assert_eq!(one.sql("SHOW max_slot_wal_keep_size"), "256MB");
    let two = Instance::replica("two", 5433, &one).await;
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.sql("CREATE TABLE t (i int)");

    let slot =
        async || one.status().await.slots.into_iter().find(|slot| slot.name == slot_name("two")).unwrap();
    let fill = |segments: u32| {
        for number in 0..segments {
            one.sql(&format!("INSERT INTO t VALUES ({number})"));
            one.sql("SELECT pg_switch_wal()");
        }
    };
    fill(8);
    one.postgres.checkpoint(LONG).await.unwrap();
    assert_ne!(slot().await.wal.as_deref(), Some("lost"), "it may be away for as long as there is room");
    // Where the volume grows, so does what is kept.
    settings.resources.volume = 2 << 30;
    one.postgres.apply(&settings).await.unwrap();
    fill(12);
    one.postgres.checkpoint(LONG).await.unwrap();
    assert_ne!(slot().await.wal.as_deref(), Some("lost"), "{:?}", slot().await);
    fill(10);
    one.postgres.checkpoint(LONG).await.unwrap();
    assert_eq!(slot().await.wal.as_deref(), Some("lost"), "the primary's volume is not to be filled");

    // A slot of that name is there again, but not what it kept: it is followed in vain, and copied.
    one.postgres.ensure_slots(&[slot_name("two")].into()).await.unwrap();
    assert_ne!(slot().await.wal.as_deref(), Some("lost"));
    let upstream = one.upstream_of("two");
    two.start(&Role::Replica(Some(upstream.clone()))).await;
    assert_eq!(two.try_sql("SELECT 1 FROM t").status.code(), Some(1), "it has not even the table");
    assert_eq!(two.postgres.timeline_of(&upstream).await.unwrap(), 1);
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    two.postgres.clone_from(&upstream, &|_| ()).await.unwrap();
    two.start(&Role::Replica(Some(upstream))).await;
    two.streams_from(&one).await;
    assert_eq!(two.sql("SELECT count(*) FROM t"), "30");
}

pub async fn a_replicas_data_is_not_started_as_a_primary() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::replica("two", 5433, &one).await;
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    let error = two.postgres.start(&Role::Primary).await.unwrap_err();
    assert!(error.to_string().contains("start it as a replica and promote it"), "{error}");
    // Nor with fewer connections than its primary has: it would stop replaying.
    let mut fewer = two.settings.clone();
    fewer.parameters.insert("max_connections".into(), "50".into());
    two.postgres.apply(&fewer).await.unwrap();
    two.start(&Role::Replica(Some(one.upstream_of("two")))).await;
    assert_eq!(two.sql("SHOW max_connections"), "100");
    two.streams_from(&one).await;
}

pub async fn what_is_lowered_goes_down_on_the_primary_first() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::replica("two", 5433, &one).await;
    two.streams_from(&one).await;
    let fewer = |instance: &Instance| {
        let mut settings = instance.settings.clone();
        settings.parameters.insert("max_connections".into(), "50".into());
        settings
    };
    two.postgres.apply(&fewer(&two)).await.unwrap();
    assert!(two.postgres.is_floored() && two.status().await.pending_restart.is_empty());
    one.postgres.apply(&fewer(&one)).await.unwrap();
    let status = one.status().await;
    assert!(status.lowering && !one.postgres.is_floored(), "{status:?}");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.start(&Role::Primary).await;
    assert_eq!((one.sql("SHOW max_connections").as_str(), one.status().await.lowering), ("50", false));
    two.streams_from(&one).await;
    two.postgres.checkpoint(LONG).await.unwrap();
    two.postgres.refresh().await.unwrap();
    let status = two.status().await;
    assert!(!two.postgres.is_floored() && status.pending_restart == ["max_connections"], "{status:?}");
}

pub async fn commits_wait_for_the_fence_and_for_nothing_else() {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t (i int)");
    let only = Synchronous { count: 1, names: vec![FENCE.to_owned()] };
    one.postgres.set_synchronous(&only).await.unwrap();
    let allowed = Arc::new(AtomicBool::new(true));
    let may = allowed.clone();
    let fence = one.postgres.fence(move || may.load(Ordering::Relaxed));
    for number in 0..20 {
        one.sql(&format!("INSERT INTO t VALUES ({number})"));
    }
    one.sql("INSERT INTO t SELECT generate_series(1, 200000)");
    allowed.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let insert = scope.spawn(|| one.sql("INSERT INTO t VALUES (-1)"));
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until_blocking("the commit to wait", LONG, || match one.sql(waiting).as_str() {
            "1" => Look::There(()),
            other => Look::NotYet(other.to_owned()),
        })
        .unwrap();
        assert!(!insert.is_finished());
        allowed.store(true, Ordering::Relaxed);
        insert.join().unwrap();
    });
    one.sql("INSERT INTO t VALUES (-2)");
    // It comes back after the server was away.
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.start(&Role::Primary).await;
    one.sql("INSERT INTO t VALUES (-3)");
    fence.abort();
}

pub async fn two_that_never_heard_of_each_other_begin_timelines_of_different_numbers() {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t (i int)");
    let two = Instance::replica("two", 5433, &one).await;
    let three = Instance::replica("three", 5434, &one).await;
    two.streams_from(&one).await;
    three.streams_from(&one).await;
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    // The first is promoted where nobody sees it: they would come back to it as soon as it runs.
    two.postgres.follow(None).await.unwrap();
    three.postgres.follow(None).await.unwrap();
    one.start(&Role::Replica(None)).await;
    one.postgres.promote(&Synchronous::default(), 2, LONG).await.unwrap();
    one.sql("INSERT INTO t SELECT generate_series(100, 5000)");
    assert_eq!(one.status().await.timeline, 2);
    one.postgres.stop(Stop::Immediate, LONG).await.unwrap();

    two.postgres.ensure_slots(&[slot_name("one"), slot_name("three")].into()).await.unwrap();
    two.postgres.promote(&Synchronous::default(), 4, LONG).await.unwrap();
    two.postgres.checkpoint(LONG).await.unwrap();
    two.sql("INSERT INTO t VALUES (4)");
    assert_eq!(two.status().await.timeline, 4);
    three.postgres.follow(Some(&two.upstream_of("three"))).await.unwrap();
    three.streams_from(&two).await;
    assert_eq!(
        (three.sql("SELECT string_agg(i::text, ',') FROM t"), three.status().await.timeline),
        ("4".into(), 4)
    );
    // So what the first has alone can be told, and taken back.
    one.postgres.rewind_from(&two.upstream_of("one")).await.unwrap();
    one.start(&Role::Replica(Some(two.upstream_of("one")))).await;
    one.streams_from(&two).await;
    assert_eq!(one.sql("SELECT string_agg(i::text, ',') FROM t"), "4");
    // One that is promoted after that, without a wish, takes the next.
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    three.postgres.promote(&Synchronous::default(), 0, LONG).await.unwrap();
    assert_eq!(three.status().await.timeline, 5);
}
