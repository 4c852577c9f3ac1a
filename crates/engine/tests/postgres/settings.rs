//! Parameters: taken, waiting for a restart, refused.

use std::fs;

use keelson_engine::postgres::Settings;
use keelson_engine::{Engine, Error, Role, Stop};

use crate::instance::{Instance, LONG};
use testbed::inside::version;

async fn running() -> Instance {
    let one = Instance::empty("one", 5432).await;
    one.postgres.initialise().await.unwrap();
    one.start(&Role::Primary).await;
    one
}

fn with(one: &Instance, parameters: &[(&str, &str)]) -> Settings {
    let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Settings { parameters, ..one.settings.clone() }
}

pub async fn what_can_be_reloaded_is_in_force_at_once() {
    let one = running().await;
    assert_eq!(one.sql("SHOW shared_buffers"), "64MB", "a quarter of memory");
    for value in ["7MB", "9MB", "7MB"] {
        assert!(one.postgres.apply(&with(&one, &[("work_mem", value)])).await.unwrap().is_empty());
        assert_eq!(one.sql("SHOW work_mem"), value);
    }
    let odd = [("search_path", r#""$user", "it's", 'a\b'"#), ("application_name", "ä\\n'")];
    assert!(one.postgres.apply(&with(&one, &odd[..1])).await.unwrap().is_empty());
    assert!(one.sql("SHOW search_path").contains("it's"));
    one.postgres.apply(&one.settings).await.unwrap();
    assert_eq!(one.sql("SHOW work_mem"), "2MB", "back to what is derived");
}

pub async fn what_needs_a_restart_is_named_and_waits_for_it() {
    let one = running().await;
    let wanted = with(
        &one,
        &[("max_connections", "77"), ("work_mem", "7MB"), ("shared_preload_libraries", "pg_stat_statements")],
    );
    let waiting = one.postgres.apply(&wanted).await.unwrap();
    assert_eq!(waiting, ["max_connections", "shared_preload_libraries"]);
    assert_eq!(one.status().await.pending_restart, waiting);
    assert_eq!((one.sql("SHOW max_connections").as_str(), one.sql("SHOW work_mem").as_str()), ("100", "7MB"));
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SHOW max_connections"), "77");
    assert!(one.status().await.pending_restart.is_empty());
}

pub async fn what_postgresql_refuses_changes_nothing() {
    let one = running().await;
    one.postgres.apply(&with(&one, &[("work_mem", "7MB")])).await.unwrap();
    let file = one.layout.config().join("postgresql.conf");
    let before = fs::read_to_string(&file).unwrap();
    for (name, value, reason) in [
        ("work_mem", "abc", "invalid value for parameter"),
        ("work_mem", "3 parsecs", "Valid units"),
        ("work_mem", "1", "outside the valid range"),
        ("no_such_thing", "1", "unrecognized configuration parameter"),
        ("shared_preload_libraries", "nope", "could not access file"),
        ("shared_buffers", "200GB", "shared memory"),
        ("timezone", "Mars/Phobos", "invalid value"),
        ("max_connections", "3", "must be less than"),
        ("a\nfsync", "off", "no name of a parameter"),
    ] {
        let error = one.postgres.apply(&with(&one, &[(name, value)])).await.unwrap_err();
        let Error::Parameter { parameter, said } = &error else { panic!("{name}: {error}") };
        assert!(parameter.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(name)), "{name}: {error}");
        assert!(said.contains(reason), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(one.sql("SHOW work_mem"), "7MB");
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SHOW work_mem"), "7MB");
}

pub async fn alter_system_is_refused() {
    let one = running().await;
    let refused = one.try_sql("ALTER SYSTEM SET synchronous_standby_names = 'gone'");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = if version() >= 17 { "ALTER SYSTEM is not allowed" } else { "Is a directory" };
    assert!(!refused.status.success() && said.contains(expected), "{said}");
    // What somebody put there by other means is gone with the next start.
    one.postgres.stop(Stop::Fast, LONG).await.unwrap();
    fs::write(one.layout.data().join("postgresql.auto.conf"), "work_mem = '99MB'\n").unwrap();
    one.start(&Role::Primary).await;
    assert_eq!(one.sql("SHOW work_mem"), "2MB");
}
