use proptest::prelude::*;

use super::super::settings::{Archive, Credentials, Resources, Tls};
use super::*;

pub(crate) fn settings() -> Settings {
    Settings {
        name: "orders-1".into(),
        port: 5432,
        listen: "*".into(),
        resources: Resources { memory: 1 << 30, cpu_millis: 1000, volume: 50 << 30 },
        parameters: BTreeMap::new(),
        tls: Some(Tls {
            ca: "/etc/keelson/tls/ca.crt".into(),
            certificate: "/etc/keelson/tls/tls.crt".into(),
            key: "/etc/keelson/tls/tls.key".into(),
        }),
        plain: false,
        replication: Credentials {
            role: "keelson_replication".into(),
            password: Secret::new("only for replicas"),
        },
        archive: None,
    }
}

fn configured(settings: &Settings, major: u32, upstream: Option<&Upstream>, floor: Option<&Floor>) -> Files {
    let (layout, synchronous) = (Layout::default(), Synchronous::default());
    configure(&Inputs {
        layout: &layout,
        major,
        settings,
        upstream,
        synchronous: &synchronous,
        ending: false,
        shut: false,
        floor,
    })
}

fn plain(settings: &Settings) -> Files {
    configured(settings, 17, None, None)
}

/// The value that PostgreSQL would take: the last one.
fn value(conf: &str, name: &str) -> Option<String> {
    let prefix = format!("{name} = '");
    let line = conf.lines().rev().find_map(|line| line.strip_prefix(&prefix))?;
    line.split("'  # ").next().map(|value| value.trim_end_matches('\'').to_owned())
}

fn asking(parameters: &[(&str, &str)]) -> Settings {
    let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Settings { parameters, ..settings() }
}

#[test]
fn the_log_that_is_kept_for_replicas_grows_with_the_volume_and_by_no_wish() {
    let name = "max_slot_wal_keep_size";
    let mut settings = asking(&[(name, "-1")]);
    assert_eq!(value(&plain(&settings).conf, name).as_deref(), Some("10240MB"));
    settings.resources.volume *= 2;
    assert_eq!(value(&plain(&settings).conf, name).as_deref(), Some("20480MB"));
}

#[test]
fn the_log_is_kept_for_whoever_archives_it_only_where_somebody_does() {
    let before = plain(&asking(&[("archive_timeout", "7")])).conf;
    assert_eq!(value(&before, "archive_mode").as_deref(), Some("on"));
    assert_eq!(value(&before, "archive_command").as_deref(), Some("true"));
    assert_eq!(value(&before, "archive_timeout").as_deref(), Some("7"), "as asked for");
    let archive = Some(Archive { segment_seconds: 60 });
    let conf = plain(&Settings { archive, ..asking(&[("archive_timeout", "7")]) }).conf;
    assert_eq!(value(&conf, "archive_mode").as_deref(), Some("always"));
    assert_eq!(value(&conf, "archive_command").as_deref(), Some(""));
    assert_eq!(value(&conf, "archive_timeout").as_deref(), Some("60"), "by spec.backup.maxDataLoss");
    let never = Some(Archive { segment_seconds: u64::MAX });
    let conf = plain(&Settings { archive: never, ..settings() }).conf;
    assert_eq!(value(&conf, "archive_timeout").as_deref(), Some("1073741823"), "the most there is");
}

#[test]
fn who_names_a_parameter_gets_it() {
    let conf = plain(&asking(&[("work_mem", "64MB"), ("Shared_Buffers", "1GB")])).conf;
    assert_eq!(value(&conf, "work_mem").as_deref(), Some("64MB"));
    assert_eq!(value(&conf, "shared_buffers").as_deref(), Some("1GB"));
    assert_eq!(conf.matches("shared_buffers = ").count(), 1);
}

#[test]
fn what_replication_depends_on_can_not_be_asked_for() {
    let conf = plain(&asking(&[("fsync", "off"), ("PORT", "1"), ("primary_conninfo", "host=evil")])).conf;
    assert_eq!(value(&conf, "fsync").as_deref(), Some("on"));
    assert_eq!(value(&conf, "port").as_deref(), Some("5432"));
    assert!(!conf.contains("evil"));
}

#[test]
fn everything_that_is_kept_is_on_the_list_of_what_the_api_refuses() {
    let settings = settings();
    for major in [15, 18] {
        let (layout, synchronous) = (Layout::default(), Synchronous::default());
        let inputs = Inputs {
            layout: &layout,
            major,
            settings: &settings,
            upstream: None,
            synchronous: &synchronous,
            ending: false,
            shut: false,
            floor: None,
        };
        for (name, ..) in kept(&inputs) {
            assert!(KEPT.contains(&name), "{name}");
        }
    }
}

#[test]
fn there_is_always_room_for_replicas_and_for_keelson_itself() {
    let few = asking(&[
        ("max_wal_senders", "1"),
        ("max_replication_slots", "3"),
        ("superuser_reserved_connections", "0"),
    ]);
    let conf = plain(&few).conf;
    assert_eq!(value(&conf, "max_wal_senders").as_deref(), Some("20"));
    assert_eq!(value(&conf, "max_replication_slots").as_deref(), Some("20"));
    assert_eq!(value(&conf, "superuser_reserved_connections").as_deref(), Some("5"));
    let many = plain(&asking(&[("max_wal_senders", "50")])).conf;
    assert_eq!(value(&many, "max_wal_senders").as_deref(), Some("50"));
}

#[test]
fn a_replica_has_no_less_than_its_primary() {
    let floor = Floor { connections: 300, workers: 9, senders: 20, prepared: 7, locks: 64 };
    let conf = configured(&asking(&[("max_connections", "50")]), 17, None, Some(&floor)).conf;
    assert_eq!(value(&conf, "max_connections").as_deref(), Some("300"));
    assert_eq!(value(&conf, "max_prepared_transactions").as_deref(), Some("7"));
}

#[test]
fn a_promotion_takes_no_line_away_that_only_a_restart_could() {
    let floor = Floor { connections: 100, workers: 8, senders: 10, prepared: 0, locks: 64 };
    let (before, after) = (configured(&settings(), 17, None, Some(&floor)), plain(&settings()));
    for (name, _) in floor.parameters() {
        assert_eq!(value(&after.conf, name), value(&before.conf, name), "{name}");
    }
}

#[test]
fn a_replica_names_its_primary_and_itself() {
    let upstream = Upstream {
        host: "orders-0.orders".into(),
        address: None,
        port: 5432,
        slot: Some("keelson_orders_1".into()),
    };
    let conf = configured(&settings(), 17, Some(&upstream), None).conf;
    assert_eq!(value(&conf, "primary_slot_name").as_deref(), Some("keelson_orders_1"));
    let line = conf.lines().find(|line| line.starts_with("primary_conninfo")).unwrap();
    assert!(
        line.contains("host=''orders-0.orders''") && line.contains("application_name=''orders-1''"),
        "{line}"
    );
}

#[test]
fn alter_system_is_off_where_there_is_a_switch() {
    assert!(plain(&settings()).conf.contains("allow_alter_system = 'off'"));
    assert!(!configured(&settings(), 16, None, None).conf.contains("allow_alter_system"));
}

#[test]
fn any_of_the_names_counts() {
    let names = |count, names: &[&str]| {
        synchronous(&Synchronous { count, names: names.iter().map(|&name| name.into()).collect() })
    };
    assert_eq!(names(1, &["orders-0", "orders-2"]), r#"ANY 1 ("orders-0", "orders-2")"#);
    assert_eq!(names(0, &["orders-0"]), "");
    assert_eq!(names(1, &[]), "");
}

#[test]
fn the_password_is_in_one_file_only() {
    let files = plain(&settings());
    assert!(files.passfile.reveal().contains("only for replicas"));
    assert!(!format!("{files:?}").contains("only for replicas"));
}

#[test]
fn a_name_that_would_begin_another_line_is_no_name() {
    for good in ["work_mem", "pg_stat_statements.max", "DateStyle"] {
        assert!(is_name(good), "{good}");
    }
    for bad in ["", "a b", "a\nfsync", "a=b", "1a", "a.b.c", "a.", "include 'x'", "ä"] {
        assert!(!is_name(bad), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_value_reaches_beyond_its_line(text in any::<String>()) {
        let conf = plain(&asking(&[("search_path", &text)])).conf;
        let other = plain(&asking(&[("search_path", "x")])).conf;
        prop_assert_eq!(conf.lines().count(), other.lines().count());
        prop_assert_eq!(value(&conf, "fsync").unwrap(), "on");
    }
}
