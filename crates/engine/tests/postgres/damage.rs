//! Disks that fail. No disk here can be made to, so the last words of a PostgreSQL whose disk has failed are said by a
//! program in its place.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use keelson_engine::postgres::Postgres;
use keelson_engine::{Engine, Error, Layout, Process, Role, Stop, Synchronous};
use testbed::{Look, until};

use crate::instance::{Instance, LONG, layout, settings};
use testbed::inside::version;

/// Where the programs are that fail when they are told to, and how they are told.
const INSTALLED: &str = "/mnt/installed";
const FAILS: &str = "/mnt/fails";

/// The installed version, with another `postgres` in front of the real one.
fn failing(name: &str) -> Layout {
    let real = PathBuf::from(format!("/usr/lib/postgresql/{}/bin", version()));
    let folder = Path::new(INSTALLED).join(version().to_string()).join("bin");
    fs::create_dir_all(&folder).unwrap();
    for program in fs::read_dir(&real).unwrap().flatten().filter(|program| program.file_name() != "postgres")
    {
        symlink(program.path(), folder.join(program.file_name())).unwrap();
    }
    let panic = r#"PANIC:  could not fsync file "pg_wal/000000010000000000000001": Input/output error"#;
    let script = format!(
        "#!/bin/sh\nif [ -e {FAILS} ]; then echo '2026-01-01 00:00:00.000 UTC [1] {panic}' >&2; exit 1; fi\nexec {}/postgres \"$@\"\n",
        real.display()
    );
    fs::write(folder.join("postgres"), script).unwrap();
    fs::set_permissions(folder.join("postgres"), fs::Permissions::from_mode(0o755)).unwrap();
    Layout { installed: INSTALLED.into(), ..layout(name) }
}

fn is_refused<T: std::fmt::Debug>(made: Result<T, Error>) {
    let error = made.unwrap_err();
    assert!(matches!(&error, Error::Damaged { .. }) && error.to_string().contains("EIO"), "{error}");
}

pub async fn what_its_disk_has_failed_is_not_made_primary_again() {
    let other = Instance::primary("other", 5432).await;
    let (layout, settings) = (failing("one"), settings("one", 5433));
    let one = Postgres::open(layout.clone(), settings.clone()).await.unwrap();
    let mut process = one.process();
    one.initialise().await.unwrap();
    assert!(!one.is_damaged());

    fs::write(FAILS, "").unwrap();
    one.start(&Role::Primary).await.unwrap();
    let ended = process.wait_for(|process| matches!(process, Process::Ended(_)));
    tokio::time::timeout(LONG, ended).await.unwrap().unwrap();
    // Known when its end is: whoever starts it again does so at once.
    assert!(one.is_damaged());
    is_refused(one.start(&Role::Primary).await);
    fs::remove_file(FAILS).unwrap();
    is_refused(one.start(&Role::Primary).await);

    // Nor by another process, on the same volume.
    let note = layout.config().join("damaged");
    until("the volume to say so", LONG, || async {
        if note.exists() { Look::There(()) } else { Look::NotYet("no note".into()) }
    })
    .await
    .unwrap();
    drop(one);
    let one = Postgres::open(layout.clone(), settings.clone()).await.unwrap();
    is_refused(one.start(&Role::Primary).await);
    one.start(&Role::Replica(None)).await.unwrap();
    one.ready(LONG).await.unwrap();
    is_refused(one.promote(&Synchronous::default(), 0, LONG).await);
    one.stop(Stop::Immediate, LONG).await.unwrap();

    // A person takes the note away, and with it the risk.
    fs::remove_file(&note).unwrap();
    assert!(!one.is_damaged());
    fs::write(
        &note,
        fs::metadata(layout.data())
            .map(|data| std::os::unix::fs::MetadataExt::ino(&data))
            .unwrap()
            .to_string(),
    )
    .unwrap();
    drop(one);
    let one = Postgres::open(layout.clone(), settings.clone()).await.unwrap();
    assert!(one.is_damaged());
    // Or a copy takes the place of the data.
    let upstream = keelson_engine::Upstream { slot: None, ..other.upstream_of("one") };
    one.clone_from(&upstream, &|_| ()).await.unwrap();
    assert!(!one.is_damaged());
    drop(one);
    let one = Postgres::open(layout, settings).await.unwrap();
    assert!(!one.is_damaged());
    one.start(&Role::Replica(None)).await.unwrap();
    one.ready(LONG).await.unwrap();
    one.promote(&Synchronous::default(), 0, LONG).await.unwrap();
    one.stop(Stop::Fast, LONG).await.unwrap();
}
