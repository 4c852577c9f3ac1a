//! What was restored is looked at, and marks are found in it.

use keelson_engine::postgres::Marks;
use keelson_engine::{Engine, Error, Role, Stop};
use testbed::{Look, until};

use crate::instance::{Instance, LONG};

pub async fn a_page_that_the_disk_has_changed_is_found() {
    let one = Instance::primary("one", 5432).await;
    one.sql("CREATE TABLE t AS SELECT generate_series(1, 10000) i");
    let file = one.sql("SELECT pg_relation_filepath('t')");
    let found = one.postgres.check_relations().await.unwrap().unwrap();
    assert!(
        found.databases == 2 && found.tables > 100 && found.indexes > 200 && found.passed_over == 0,
        "{found:?}"
    );
    assert!(one.postgres.check_pages().await.is_err(), "not while it runs");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    assert!(one.postgres.check_pages().await.unwrap().is_some_and(|pages| pages > 1000));

    let path = one.layout.data().join(&file);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3 * 8192 + 5000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = one.postgres.check_pages().await.unwrap_err();
    assert!(matches!(&error, Error::Inconsistent { .. }) && error.to_string().contains(&file), "{error}");
    one.start(&Role::Primary).await;
    let error = one.postgres.check_relations().await.unwrap_err();
    assert!(error.to_string().contains("the table public.t in the database postgres"), "{error}");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
}

pub async fn marks_are_numbered_and_the_last_of_them_kept_and_are_nobody_elses_writes() {
    let one = Instance::primary("one", 5432).await;
    assert_eq!(one.postgres.marks().await.unwrap(), None);
    let mut last = one.postgres.mark(LONG).await.unwrap().0;
    for number in 2..=130 {
        let next = one.postgres.mark(LONG).await.unwrap().0;
        assert!(next.number == number && next.micros >= last.micros);
        last = next;
    }
    let marks = one.postgres.marks().await.unwrap().unwrap();
    assert_eq!(marks, Marks { first: 3, last, count: 128 });
    assert!(marks.are_whole());

    // What was written for the mark itself is known, whenever the statistics come to tell of it.
    let seen = std::cell::Cell::new(None);
    let before = until("the statistics to tell of all that", LONG, || async {
        let now = one.postgres.rows_written(LONG).await.unwrap();
        let before = seen.replace(Some(now));
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        if before == Some(now) { Look::There(now) } else { Look::NotYet(format!("{before:?}, then {now}")) }
    })
    .await
    .unwrap();
    let (_, rows) = one.postgres.mark(LONG).await.unwrap();
    until("the statistics to tell of it", LONG, || async {
        match one.postgres.rows_written(LONG).await.unwrap() {
            now if now == before + rows => Look::There(()),
            now => Look::NotYet(format!("{now}, and {before} before {rows}")),
        }
    })
    .await
    .unwrap();
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
}
