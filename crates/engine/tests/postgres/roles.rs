//! Who comes in.

use keelson_engine::{Engine, Role, Secret, Stop, Synchronous};

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

pub async fn a_replica_that_turns_clients_away_follows_and_lets_them_in_when_told_or_promoted() {
    let one = Instance::primary("one", 5432).await;
    one.postgres.set_password("postgres", &Secret::new("right")).await.unwrap();
    let two = Instance::replica("two", 5433, &one).await;
    two.streams_from(&one).await;
    let lets_in = |instance: &Instance| {
        let tried = instance.client("postgres", "postgres", "right", "verify-full", "SELECT 42");
        let said = String::from_utf8_lossy(&tried.stderr).into_owned();
        assert!(tried.status.success() || said.contains("pg_hba.conf rejects"), "{said}");
        tried.status.success()
    };
    assert!(lets_in(&two));
    two.postgres.let_clients_in(false).await.unwrap();
    assert!(!lets_in(&two));
    one.sql("CREATE TABLE t (i int)");
    two.streams_from(&one).await;
    assert_eq!(two.sql("SELECT count(*) FROM t"), "0", "it follows, and is asked over the socket");
    // Also from its start on.
    two.postgres.stop(Stop::Fast, LONG).await.unwrap();
    two.start(&Role::Replica(Some(one.upstream_of("two")))).await;
    two.streams_from(&one).await;
    assert!(!lets_in(&two));
    two.postgres.let_clients_in(true).await.unwrap();
    assert!(lets_in(&two));
    two.postgres.let_clients_in(false).await.unwrap();
    one.postgres.stop(Stop::Immediate, LONG).await.unwrap();
    two.postgres.promote(&Synchronous::default(), 0, LONG).await.unwrap();
    assert!(lets_in(&two), "a primary is for clients");
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
