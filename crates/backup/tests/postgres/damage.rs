//! What is wrong is said.

use std::path::{Path, PathBuf};

use keelson_backup::archive::Role;
use keelson_backup::base::Kind;
use keelson_backup::restore::{self, Target, verify};
use keelson_backup::{Class, Error};
use tokio::sync::watch;

use crate::server::{Server, chosen, restored};
use crate::store::folder;

/// Changes one bit in the middle of a file, and gives what is needed to change it back.
fn damage(path: &Path) -> Vec<u8> {
    let good = std::fs::read(path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(path, bad).unwrap();
    good
}

pub async fn a_flipped_byte_in_a_part_or_in_the_log_is_loud() {
    let mut server = Server::new("data", 5001);
    server.start(&[]);
    server.ready().await;
    let repository = folder("repository");
    let writer = repository.claim(&server.claim("shop/orders")).await.unwrap();
    let archiving = server.archive(&writer, Role::Leader);
    server.sql("CREATE TABLE t AS SELECT generate_series(1, 100000) id");
    let backup = server.back_up(&writer, Kind::Full).await;
    server.sql("INSERT INTO t SELECT generate_series(1, 100000)");
    server.flush_log(&archiving).await;

    let parts = PathBuf::from(format!("/mnt/repository/basebackups_005/{}/tar_partitions", backup.name));
    let notes = parts.parent().unwrap().to_owned();
    let damaged = [
        parts.join("part_001.tar.zst"),
        parts.join("pg_control.tar.zst"),
        notes.join("keelson_manifest.json"),
        notes.join("files_metadata.json"),
    ];
    let choice = chosen(&repository, &Target::Latest).await;
    for (number, path) in damaged.iter().enumerate() {
        let good = damage(path);
        let name = path.file_name().unwrap().to_str().unwrap();
        let error = verify(&repository, &backup, 2).await.unwrap_err();
        assert!(error.class() == Class::Corrupt && error.to_string().contains(name), "{error}");
        let to = PathBuf::from(format!("/mnt/broken-{number}"));
        let (options, progress) = (restore::Options::default(), watch::Sender::default());
        let error = restore::restore(&repository, &choice.chain, &to, &options, &progress).await.unwrap_err();
        assert!(error.class() == Class::Corrupt && error.to_string().contains(name), "{error}");
        std::fs::write(path, good).unwrap();
    }
    std::fs::rename(parts.join("part_001.tar.zst"), "/mnt/aside").unwrap();
    let error = verify(&repository, &backup, 2).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { reason, .. } if reason.contains("gone")), "{error}");
    std::fs::rename("/mnt/aside", parts.join("part_001.tar.zst")).unwrap();
    verify(&repository, &backup, 2).await.unwrap();

    // In the log: recovery must stop there, and not open the database as if that were its end.
    let segment = server.sql("SELECT pg_walfile_name(pg_current_wal_lsn() - 3 * 1024 * 1024)");
    damage(&PathBuf::from(format!("/mnt/repository/wal_005/{segment}.zst")));
    let (mut copy, _fetching) = restored(&repository, &Target::Latest, "copy", 5010).await;
    let status = copy.ends().await;
    assert!(!status.success(), "{}", copy.said());
    assert!(
        copy.said().contains(&segment)
            || copy.said().contains("restore_command")
            || copy.said().contains("could not restore file"),
        "{}",
        copy.said()
    );
    assert!(!copy.said().contains("database system is ready to accept connections"), "{}", copy.said());
    server.stop();
}

pub async fn two_databases_on_one_path_are_refused() {
    let (mut first, mut second) = (Server::new("first", 5001), Server::new("second", 5002));
    for server in [&mut first, &mut second] {
        server.start(&[]);
        server.ready().await;
    }
    let repository = folder("repository");
    let writer = repository.claim(&first.claim("shop/first")).await.unwrap();
    let _archiving = first.archive(&writer, Role::Leader);
    first.back_up(&writer, Kind::Full).await;
    let error = repository.claim(&second.claim("shop/second")).await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }) && error.to_string().contains("shop/first"), "{error}");
    // Nor does a connection to the wrong one do any harm.
    let error = second.try_back_up(&writer, Kind::Full, &watch::Sender::default()).await.unwrap_err();
    assert!(error.to_string().contains("system identifier"), "{error}");
    assert_eq!(repository.backups().await.unwrap().len(), 1);
    first.stop();
    second.stop();
}
