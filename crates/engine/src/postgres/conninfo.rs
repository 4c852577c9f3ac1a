//! How libpq is told where to connect to, and with what password.

use std::path::Path;

use super::settings::Settings;
use crate::engine::Upstream;
use crate::layout::Layout;
use crate::secret::Secret;

/// The name of the file with the password.
pub(crate) const PASSFILE: &str = "passfile";

/// The connection string of a replica. The password is not in it: `pg_stat_wal_receiver`, the process
/// list and the log may show this.
pub(crate) fn conninfo(
    layout: &Layout,
    settings: &Settings,
    upstream: &Upstream,
    more: &[(&str, &str)],
) -> String {
    let passfile = layout.config_file(PASSFILE);
    let port = upstream.port.to_string();
    let hosts = [upstream.host.as_str(), upstream.host.as_str()].join(",");
    let addresses = upstream.address.map(|address| format!("{address},"));
    // The address first, since to look a name up may take long and come to nothing; then the name, since the address
    // may be of the past.
    let mut words = match &addresses {
        Some(addresses) => vec![("host", hosts.as_str()), ("hostaddr", addresses)],
        None => vec![("host", upstream.host.as_str())],
    };
    words.extend([
        ("port", port.as_str()),
        ("user", settings.replication.role.as_str()),
        ("application_name", settings.name.as_str()),
        ("passfile", text(&passfile)),
        // A primary that has fallen silent must be noticed within seconds: 2 s is the least that libpq takes.
        ("connect_timeout", "3"),
        ("keepalives_idle", "2"),
        ("keepalives_interval", "1"),
        ("keepalives_count", "3"),
        ("tcp_user_timeout", "5000"),
        // No ticket is to be had here, and asking for one costs a round trip.
        ("gssencmode", "disable"),
    ]);
    match &settings.tls {
        // The authority signs Keelson's instances only, and a replica refuses a primary with another
        // system identifier; so the name may differ, as it does while addresses are used.
        Some(tls) => words.extend([("sslmode", "verify-ca"), ("sslrootcert", text(&tls.ca))]),
        None => words.push(("sslmode", "require")),
    }
    words.extend(more);
    words.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect::<Vec<_>>().join(" ")
}

/// The password file: one line, for whatever host.
pub(crate) fn passfile(settings: &Settings) -> Secret {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
    let role = escaped(&settings.replication.role);
    Secret::new(format!("*:*:*:{role}:{}\n", escaped(settings.replication.password.reveal())))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use proptest::prelude::*;
    use tokio_postgres::Config;

    use super::super::conf::tests::settings;
    use super::*;

    fn upstream(host: &str) -> Upstream {
        Upstream { host: host.into(), address: Some([10, 0, 0, 7].into()), port: 5432, slot: None }
    }

    #[test]
    fn a_connection_string_names_everything_but_the_password() {
        let text = conninfo(&Layout::default(), &settings(), &upstream("orders-0.orders"), &[]);
        assert!(text.starts_with(
            "host='orders-0.orders,orders-0.orders' hostaddr='10.0.0.7,' port='5432' user='keelson_replication'"
        ));
        let named = Upstream { address: None, ..upstream("orders-0.orders") };
        let named = conninfo(&Layout::default(), &settings(), &named, &[]);
        assert!(named.starts_with("host='orders-0.orders' port='5432'"), "{named}");
        assert!(text.contains("sslmode='verify-ca' sslrootcert='/etc/keelson/tls/ca.crt'"), "{text}");
        assert!(!text.contains(settings().replication.password.reveal()));
    }

    proptest! {
        #[test]
        fn any_value_comes_through(value in "[^\u{0}]{0,20}") {
            let parsed = Config::from_str(&format!("password={} user=x", quoted(&value))).unwrap();
            prop_assert_eq!(parsed.get_password(), Some(value.as_bytes()));
        }
    }

    #[test]
    fn a_password_with_colons_and_backslashes_stays_one_field() {
        let mut settings = settings();
        settings.replication.password = Secret::new(r"a:b\c");
        assert_eq!(passfile(&settings).reveal(), "*:*:*:keelson_replication:a\\:b\\\\c\n");
    }
}
