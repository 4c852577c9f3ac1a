//! Whole drills on real PostgreSQL, in the file systems of its images: good ones, and ones of repositories and databases
//! that somebody has damaged.

use std::path::{Path, PathBuf};

use keelson_engine::Stop;

use super::*;
use crate::archiving::base;
use crate::archiving::inside::{
    PROGRAM, Shop, archived, archives, backed_up, layout, prepare_program, primary, send, sql, store,
};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_drill_restores_looks_at_everything_and_finds_the_marks_and_any_damage() {
    let name = "drill::inside::a_drill_restores_looks_at_everything_and_finds_the_marks_and_any_damage";
    testbed::inside::each_version(name, &[], drills);
}

/// What a drill on a volume of its own says in the end.
async fn drilled(name: &str) -> DrillReport {
    let resources = postgres::Resources { memory: 256 << 20, cpu_millis: 1000, volume: 2 << 30 };
    let rule = DrillRule { from: store(), parameters: BTreeMap::new(), marks: true };
    let (reports, told) = watch::channel(DrillReport::begun(Timestamp::now()));
    rehearse(layout(name), settings(name, resources, BTreeMap::new()), &rule, PROGRAM, &reports).await;
    // The volume is thrown away, and so is what is on it.
    std::fs::remove_dir_all(Path::new("/mnt").join(name)).unwrap();
    told.borrow().clone()
}

fn failed(report: &DrillReport, reason: &str, words: &[&str]) {
    assert_eq!((report.phase.as_str(), report.reason.as_deref()), ("Failed", Some(reason)), "{report:?}");
    let problem = report.problem.clone().unwrap();
    assert!(words.iter().all(|word| problem.contains(word)), "{words:?}: {problem}");
}

/// Changes one bit in the middle of a file.
fn damage(path: &Path) -> Vec<u8> {
    let good = std::fs::read(path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(path, bad).unwrap();
    good
}

/// The first below a folder whose name ends so, by name.
fn first(folder: &Path, end: &str) -> PathBuf {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_str().unwrap().ends_with(end));
    found.sort();
    found.into_iter().next().unwrap()
}

async fn drills() {
    prepare_program();
    let one = primary().await;
    let Shop { known, inputs, tolds, .. } = &archives(one.clone()).await;
    let (backup, backups) = watch::channel(None);
    tokio::spawn(base::follow(inputs.clone(), backup));
    archived(tolds, "the repository to be empty", |archive| archive.backups == Some(vec![])).await;
    sql(&one, "CREATE TABLE public.t (i int PRIMARY KEY, said text)").await;
    sql(&one, "INSERT INTO public.t SELECT i, md5(i::text) FROM generate_series(1, 20000) i").await;
    sql(&one, "CREATE INDEX ON public.t USING hash (said)").await;
    sql(&one, "CREATE DATABASE other").await;
    for number in 1..=3 {
        assert_eq!(one.mark(LONG).await.unwrap().0.number, number);
    }
    backed_up(known, &backups, "first").await;
    let mark = one.mark(LONG).await.unwrap().0;
    send(&one).await;

    let report = drilled("good").await;
    assert_eq!((report.phase.as_str(), &report.problem), ("Succeeded", &None), "{report:?}");
    assert!(report.backup.as_ref().unwrap().starts_with("base_"), "{report:?}");
    assert_eq!((report.timeline, report.mark.unwrap().number), (Some(1), mark.number), "{report:?}");
    assert!(
        report.end_of_log.is_some() && report.answered_seconds.is_some() && report.lost_seconds.is_some()
    );
    let checks = report.checks;
    assert_eq!((checks.databases, checks.passed_over, checks.marks), (3, 1, 4), "{checks:?}");
    assert!(checks.tables > 150 && checks.indexes > 300, "{checks:?}");
    // From 18 on they are the default of initdb itself; before, of ours.
    assert!(checks.pages.is_some_and(|pages| pages > 2000), "{checks:?}");

    the_store(&store()).await;
    the_database(&one, known, &backups).await;
    one.stop(Stop::Fast, LONG).await.unwrap();
}

/// One byte in the base backup, and one in the log.
async fn the_store(store: &keelson_api::instance::Store) {
    let repository = Path::new(store.folder.as_deref().unwrap()).join("shop/orders");
    let backup = first(&repository.join("basebackups_005"), "_backup_stop_sentinel.json");
    let name = backup.file_name().unwrap().to_str().unwrap().replace("_backup_stop_sentinel.json", "");
    let part =
        first(&repository.join("basebackups_005").join(&name).join("tar_partitions"), "part_001.tar.zst");
    let good = damage(&part);
    let report = drilled("base").await;
    failed(&report, backup_reasons::CORRUPT, &["part_001.tar.zst"]);
    assert_eq!(report.backup.as_deref(), Some(&*name), "it is known which backup is no good");
    std::fs::write(&part, good).unwrap();

    let begins = name.strip_prefix("base_").unwrap();
    let segment = first(&repository.join("wal_005"), &format!("{begins}.zst"));
    let good = damage(&segment);
    failed(&drilled("log").await, backup_reasons::CORRUPT, &[begins]);
    std::fs::write(&segment, good).unwrap();
}

/// What is wrong with the database itself is copied faithfully, and found.
async fn the_database(
    one: &Postgres,
    known: &watch::Sender<crate::settings::Known>,
    backups: &watch::Receiver<Option<keelson_api::instance::BackupReport>>,
) {
    // An index that lacks a row: nobody who reads or backs it up would notice.
    sql(
        one,
        "SET allow_system_table_mods = on; UPDATE pg_index SET indisready = false, indisvalid = false \
              WHERE indexrelid = 'public.t_pkey'::regclass",
    )
    .await;
    sql(one, "INSERT INTO public.t VALUES (20001, 'in no index')").await;
    sql(one, "UPDATE pg_index SET indisready = true, indisvalid = true WHERE indexrelid = 'public.t_pkey'::regclass")
        .await;
    send(one).await;
    failed(
        &drilled("index").await,
        drill_reasons::DAMAGED,
        &["the index public.t_pkey in the database postgres"],
    );
    sql(one, "REINDEX INDEX public.t_pkey").await;

    sql(one, "DELETE FROM keelson.mark WHERE number = 2").await;
    backed_up(known, backups, "second").await;
    send(one).await;
    failed(&drilled("marks").await, drill_reasons::MARKS_MISSING, &["only 3"]);
    sql(one, "DELETE FROM keelson.mark WHERE number = 1").await;
    send(one).await;
    assert_eq!(drilled("again").await.phase.as_str(), "Succeeded");
}
