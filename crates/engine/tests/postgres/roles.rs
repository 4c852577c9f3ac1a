//! Who comes in.

use keelson_engine::{Engine, Secret, Stop};

use crate::instance::{Instance, LONG, PASSWORD, found_in};

pub async fn who_knows_the_password_comes_in_over_tls() {
    let one = Instance::primary("one", 5432).await;
    one.postgres.set_password("postgres", &Secret::new("right")).await.unwrap();
    let attempt = |password, sslmode| one.client("postgres", "postgres", password, sslmode, "SELECT 42");
    assert_eq!(attempt("right", "verify-full").stdout, b"42\n");
    assert!(!attempt("wrong", "verify-full").status.success());
    assert!(!attempt("", "verify-full").status.success());
    let plain = attempt("right", "disable");
    assert!(String::from_utf8_lossy(&plain.stderr).contains("pg_hba.conf rejects"), "{plain:?}");

    one.postgres.set_password("postgres", &Secret::new("another")).await.unwrap();
    assert!(!attempt("right", "verify-full").status.success());
    assert!(attempt("another", "verify-full").status.success());
    // The role for replicas sees the log and what pg_rewind needs, and no database of anybody's.
    let replica = |database| one.client("keelson_replication", database, PASSWORD, "verify-full", "SELECT 1");
    assert!(replica("postgres").status.success());
    assert!(!replica("template1").status.success());
}

pub async fn the_application_owns_its_database() {
    let one = Instance::primary("one", 5432).await;
    let password = Secret::new("for the app");
    one.postgres.ensure_app("app", "orders", &password).await.unwrap();
    let create = "CREATE TABLE t (i int); CREATE SCHEMA s; SELECT current_user";
    let made = one.client("app", "orders", "for the app", "verify-full", create);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(
        one.sql("SELECT rolsuper OR rolreplication OR rolcreaterole FROM pg_roles WHERE rolname = 'app'"),
        "f"
    );
    let touched = "SELECT max(xmin::text::bigint) FROM pg_authid";
    let before = one.sql(touched);
    one.postgres.ensure_app("app", "orders", &password).await.unwrap();
    one.postgres.ensure_replication().await.unwrap();
    assert_eq!(one.sql(touched), before, "nothing is written when nothing has changed");
}

pub async fn passwords_are_told_to_nobody() {
    let one = Instance::primary("one", 5432).await;
    one.postgres.ensure_app("app", "app", &Secret::new("zq8-never-seen")).await.unwrap();
    one.postgres.checkpoint(LONG).await.unwrap();
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    let stored = found_in(&one.layout.volume, "zq8-never-seen");
    assert!(stored.is_empty(), "the server only ever sees a verifier");
    let replication = found_in(&one.layout.volume, PASSWORD);
    assert_eq!(replication, [one.layout.config().join("passfile")]);
}
