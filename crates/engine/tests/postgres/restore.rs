//! The log is kept for those who archive it, and what was brought back is replayed.

use std::path::Path;
use std::process::Command;

use keelson_engine::postgres::{Archive, Postgres, Recovery, Settings, slot_name};
use keelson_engine::{Data, Engine, Error, Role, Stop};

use crate::instance::{Instance, LONG, layout, settings};

/// A running primary whose log is kept until it is marked as archived.
async fn archiving() -> Instance {
    let layout = layout("one");
    let settings = Settings { archive: Some(Archive { segment_seconds: 60 }), ..settings("one", 5432) };
    let postgres = Postgres::open(layout.clone(), settings.clone()).await.unwrap();
    let one = Instance { postgres, layout, settings };
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    one.postgres.ensure_replication().await.unwrap();
    one
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Copies what is ready to a folder, and marks it as done: what an archiver does.
fn archive(one: &Instance) -> usize {
    let log = one.postgres.log_folder();
    std::fs::create_dir_all("/mnt/archive").unwrap();
    let notes = std::fs::read_dir(log.join("archive_status")).unwrap().flatten();
    let ready: Vec<_> =
        notes.filter(|note| note.path().extension().is_some_and(|it| it == "ready")).collect();
    for note in &ready {
        let name = note.path().file_stem().unwrap().to_owned();
        std::fs::copy(log.join(&name), Path::new("/mnt/archive").join(&name)).unwrap();
        std::fs::rename(note.path(), note.path().with_extension("done")).unwrap();
    }
    ready.len()
}

/// The files of a primary in the folder where another restores.
async fn bring_back(from: &Instance, to: &Instance) {
    let copy = Instance::empty("copy", 5439).await;
    from.postgres.ensure_slots(&[slot_name("copy")].into()).await.unwrap();
    copy.postgres.clone_from(&from.upstream_of("copy"), &|_| ()).await.unwrap();
    let folder = to.postgres.begin_restore().await.unwrap();
    let files = format!("{}/.", copy.layout.data().display());
    run("/usr/bin/cp", &["-a", &files, &folder.display().to_string()]);
}

fn recovery(target: &str) -> Recovery {
    Recovery {
        settings: vec![
            ("recovery_target_timeline", "latest".into()),
            ("recovery_target_name", target.into()),
            ("recovery_target_action", "promote".into()),
        ],
        restore_command: "cp /mnt/archive/%f \"%p\"".into(),
    }
}

pub async fn what_was_brought_back_is_replayed_to_where_it_is_wanted() {
    let one = archiving().await;
    assert_eq!(one.sql("SHOW archive_mode"), "always");
    one.sql("CREATE TABLE t (i int)");
    one.sql("INSERT INTO t SELECT generate_series(1, 1000)");
    let two = Instance::empty("two", 5433).await;
    bring_back(&one, &two).await;
    one.sql("INSERT INTO t VALUES (1001)");
    one.sql("SELECT pg_create_restore_point('here')");
    one.sql("DELETE FROM t");
    one.sql("SELECT pg_switch_wal()");
    one.sql("CHECKPOINT");
    assert!(archive(&one) > 0, "what is finished waits for whoever archives it");

    let system = two.postgres.finish_restore(&recovery("here")).await.unwrap();
    assert_eq!(system, one.status().await.system);
    let Data::Present(offline) = two.postgres.data().await.unwrap() else { panic!("there is no database") };
    assert!(offline.clean && !offline.replica && offline.timeline == 2, "{offline:?}");
    two.start(&Role::Primary).await;
    assert_eq!(two.sql("SELECT count(*), max(i) FROM t"), "1001|1001");
    two.sql("INSERT INTO t VALUES (1002)");
    assert_eq!(one.sql("SELECT count(*) FROM t"), "0", "the other goes on as it was");
    assert!(two.postgres.begin_restore().await.is_err(), "nothing is restored over a database");
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
}

pub async fn archiving_is_switched_on_with_a_restart_and_off_at_once() {
    let one = Instance::primary("one", 5432).await;
    let on = Settings { archive: Some(Archive { segment_seconds: 30 }), ..one.settings.clone() };
    let pending = one.postgres.apply(&on).await.unwrap();
    assert_eq!(pending, ["archive_mode"], "it is said what waits for a restart");
    assert_eq!(
        (one.sql("SHOW archive_command"), one.sql("SHOW archive_timeout")),
        (String::new(), "30s".to_owned())
    );
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SHOW archive_mode"), "always");
    assert!(one.status().await.pending_restart.is_empty());
    // What nobody takes any more is let go, before any restart.
    one.postgres.apply(&one.settings).await.unwrap();
    assert_eq!(one.sql("SHOW archive_command"), "true");
}

pub async fn a_restore_that_does_not_get_there_leaves_no_database() {
    let one = archiving().await;
    let two = Instance::empty("two", 5433).await;
    bring_back(&one, &two).await;
    let error = two.postgres.finish_restore(&recovery("nowhere")).await.unwrap_err();
    assert!(matches!(error, Error::OutOfLog { .. }), "{error}");
    assert!(matches!(two.postgres.data().await.unwrap(), Data::Absent));
    // It can be tried again from the beginning, or given up for a new database.
    let folder = two.postgres.begin_restore().await.unwrap();
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    two.postgres.initialise().await.unwrap();
    two.start(&Role::Primary).await;
}

/// The files of a primary beside those of another, which has ended.
async fn bring_back_beside(from: &Instance, to: &Instance) {
    let files = format!("{}/.", from.layout.data().display());
    let folder = to.postgres.begin_restore_beside().await.unwrap();
    run("/usr/bin/cp", &["-a", &files, &folder.display().to_string()]);
}

pub async fn data_that_is_restored_in_place_begins_the_timeline_that_is_wanted_and_the_old_data_is_kept() {
    let one = archiving().await;
    one.sql("CREATE TABLE t (i int)");
    one.sql("INSERT INTO t VALUES (1)");
    let copy = Instance::empty("copy", 5439).await;
    one.postgres.ensure_slots(&[slot_name("copy")].into()).await.unwrap();
    copy.postgres.clone_from(&one.upstream_of("copy"), &|_| ()).await.unwrap();
    one.sql("INSERT INTO t VALUES (2)");
    one.sql("SELECT pg_create_restore_point('here')");
    one.sql("DELETE FROM t");
    assert!(one.postgres.begin_restore_beside().await.is_err(), "not while it runs");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    assert!(archive(&one) > 0, "one that ends in good order has nothing that could not be archived");
    let named = |timeline: &str| {
        let mut recovery = recovery("here");
        recovery.settings[0].1 = timeline.into();
        recovery
    };

    // It comes to nothing, and the old data is as it was.
    bring_back_beside(&copy, &one).await;
    let mut nowhere = named("1");
    nowhere.settings[1].1 = "nowhere".into();
    let error = one.postgres.finish_restore_beside(&nowhere, "first try", 5).await.unwrap_err();
    assert!(matches!(error, Error::OutOfLog { .. }), "{error}");
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SELECT count(*) FROM t"), "0");
    one.sql("INSERT INTO t VALUES (3)");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();

    bring_back_beside(&copy, &one).await;
    assert_eq!(one.postgres.finish_restore_beside(&named("1"), "undo it", 5).await.unwrap(), 5);
    let made = one.postgres.restored().unwrap();
    assert_eq!((made.name.as_str(), made.timeline, made.placed), ("undo it", 5, false));
    let Data::Present(old) = one.postgres.data().await.unwrap() else { panic!("the old data is gone") };
    assert_eq!((old.timeline, old.clean), (1, true), "nothing has touched it");

    one.postgres.place_restored().await.unwrap();
    one.postgres.place_restored().await.unwrap();
    let Data::Present(offline) = one.postgres.data().await.unwrap() else { panic!("there is no database") };
    assert!(offline.clean && !offline.replica && offline.timeline == 5, "{offline:?}");
    let kept = one.postgres.kept().unwrap();
    assert_eq!((kept.name.as_str(), kept.timeline), ("undo it", 1));
    assert!(one.postgres.kept_size().await.unwrap() > 1 << 20);
    one.postgres.discard_restored().await.unwrap();
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SELECT count(*), max(i) FROM t"), "2|2");
    assert_eq!(one.status().await.timeline, 5);

    // The old data is a database still, and stays until it is let go by its name.
    let before = one.layout.volume.join("data.before");
    assert!(before.join("PG_VERSION").exists());
    assert!(!one.postgres.discard_kept("something else").await.unwrap());
    assert!(one.postgres.discard_kept("undo it").await.unwrap());
    assert!(!before.exists() && one.postgres.kept().is_none());
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
}
