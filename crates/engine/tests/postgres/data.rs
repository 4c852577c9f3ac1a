//! What breaks off half-way.

use std::fs;
use std::time::Duration;

use keelson_engine::postgres::Postgres;
use keelson_engine::{Data, Engine, Role, Stop, Upstream};
use testbed::{Look, until};

use crate::instance::{Instance, LONG, nobody_left, processes};

pub async fn an_initialisation_that_breaks_off_leaves_no_database() {
    let one = Instance::empty("one", 5432).await;
    // Dropped as soon as there is something to see.
    let half = one.layout.volume.join("data.new/PG_VERSION");
    tokio::select! {
        made = one.postgres.initialise() => panic!("too fast: {made:?}"),
        seen = until("a half-made folder", LONG, || async {
            if half.exists() { Look::There(()) } else { Look::NotYet("nothing".into()) }
        }) => seen.unwrap(),
    }
    nobody_left("initdb").await;
    assert_eq!(one.postgres.data().await.unwrap(), Data::Absent);
    assert!(one.postgres.start(&Role::Primary).await.is_err());
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
}

/// A clone that is dropped when it has come to the tables.
async fn broken_off(instance: &Instance, upstream: &Upstream) {
    let begun = instance.layout.volume.join("data.new/base");
    tokio::select! {
        cloned = instance.postgres.clone_from(upstream, &|_| ()) => panic!("too fast: {cloned:?}"),
        seen = until("the clone to begin", LONG, || async {
            if begun.exists() { Look::There(()) } else { Look::NotYet("nothing".into()) }
        }) => seen.unwrap(),
    }
    nobody_left("pg_basebackup").await;
}

/// Enough data that a clone can be caught at it.
async fn large() -> Instance {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t AS SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 300000) i");
    one
}

pub async fn a_clone_that_breaks_off_leaves_the_old_data() {
    let one = large().await;
    let two = Instance::empty("two", 5433).await;
    let upstream = Upstream { slot: None, ..one.upstream_of("two") };
    broken_off(&two, &upstream).await;
    assert_eq!(two.postgres.data().await.unwrap(), Data::Absent);

    let system = two.postgres.initialise().await.unwrap();
    broken_off(&two, &upstream).await;
    let Data::Present(offline) = two.postgres.data().await.unwrap() else { panic!() };
    assert_eq!(offline.system, system);
    // A new process on the same volume finds the same, and clears up.
    let Instance { postgres, layout, settings } = two;
    drop(postgres);
    let two = Postgres::open(layout.clone(), settings).await.unwrap();
    assert!(!layout.volume.join("data.new").exists());
    let Data::Present(offline) = two.data().await.unwrap() else { panic!() };
    assert_eq!(offline.system, system);
}

pub async fn a_clone_keeps_the_old_data_until_it_is_discarded() {
    let one = Instance::primary("one", 5432).await;
    let two = Instance::empty("two", 5433).await;
    let foreign = two.postgres.initialise().await.unwrap();
    let upstream = Upstream { slot: None, ..one.upstream_of("two") };
    two.postgres.clone_from(&upstream, &|_| ()).await.unwrap();
    let Data::Present(offline) = two.postgres.data().await.unwrap() else { panic!() };
    assert_ne!(offline.system, foreign);
    assert!(two.layout.volume.join("data.old").exists());
    two.start(&Role::Replica(Some(upstream))).await;
    two.streams_from(&one).await;
    two.postgres.discard_old().await.unwrap();
    assert!(!two.layout.volume.join("data.old").exists());
    // One that can't be reached, or whose password is wrong, is an error and no change.
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    let nobody = Upstream { port: 1, ..one.upstream_of("two") };
    let error = two.postgres.clone_from(&nobody, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("pg_basebackup"), "{error}");
    assert!(matches!(two.postgres.data().await.unwrap(), Data::Present(_)));
}

pub async fn a_rewind_that_breaks_off_leaves_data_that_nobody_starts() {
    let one = large().await;
    // A rewind needs the log back to where the histories branched off.
    let mut more = one.settings.clone();
    more.parameters.insert("wal_keep_size".into(), "4GB".into());
    one.postgres.apply(&more).await.unwrap();
    let two = Instance::replica("two", 5433, &one).await;
    two.postgres.promote(&Default::default(), 0, LONG).await.unwrap();
    two.postgres.checkpoint(LONG).await.unwrap();
    one.sql("UPDATE t SET i = i + 1");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    let upstream = Upstream { slot: None, ..two.upstream_of("one") };
    // One that can't even begin does no harm.
    let nobody = Upstream { port: 1, ..upstream.clone() };
    assert!(one.postgres.rewind_from(&nobody).await.is_err());
    assert!(matches!(one.postgres.data().await.unwrap(), Data::Present(_)));
    let mark = one.layout.config().join("rewinding");
    tokio::select! {
        rewound = one.postgres.rewind_from(&upstream) => panic!("too fast: {rewound:?}"),
        seen = until("the rewind to begin", LONG, || async {
            if mark.exists() && !processes("pg_rewind").is_empty() { Look::There(()) } else { Look::NotYet("nothing".into()) }
        }) => seen.unwrap(),
    }
    nobody_left("pg_rewind").await;
    assert!(fs::exists(&mark).unwrap());
    let found = one.postgres.data().await.unwrap();
    assert!(matches!(&found, Data::Unusable { why } if why.contains("rewind")), "{found:?}");
    assert!(one.postgres.start(&Role::Replica(None)).await.is_err());
    one.postgres.clone_from(&upstream, &|_| ()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), one.start(&Role::Replica(Some(upstream)))).await.unwrap();
    one.streams_from(&two).await;
}
