//! Who may come in, and how.

use super::settings::Settings;

/// The superuser that `initdb` makes.
pub(crate) const SUPERUSER: &str = "postgres";

/// `pg_hba.conf`. The first line that fits decides.
pub(crate) fn hba(settings: &Settings, shut: bool) -> String {
    let replication = quoted(&settings.replication.role);
    let mut lines = vec![
        // The socket itself can be opened by nobody but the account that PostgreSQL runs as
        // (unix_socket_permissions), so there is nothing left to ask. `peer` would say the same, but looks the
        // account up in /etc/passwd, and an image may run under a number that has no name there.
        format!("local   all          {SUPERUSER}  trust"),
        format!("local   replication  {SUPERUSER}  trust"),
        "local   all          all  scram-sha-256".to_owned(),
        // Replicas: the log, and for pg_rewind the files of the database `postgres`.
        format!("hostssl replication  {replication}  all  scram-sha-256"),
        format!("hostssl postgres     {replication}  all  scram-sha-256"),
        format!("host    all          {replication}  all  reject"),
        // Whoever reads the log reads everything.
        "host    replication  all  all  reject".to_owned(),
    ];
    if shut {
        lines.push("# It led until a moment ago, and writers may still be led here.".to_owned());
        lines.push("host    all          all  all  reject".to_owned());
    }
    lines.extend(["hostssl all          all  all  scram-sha-256".to_owned()]);
    let plain = if settings.plain { "scram-sha-256" } else { "reject" };
    lines.push(format!("hostnossl all        all  all  {plain}"));
    format!("# Written by Keelson; changes are overwritten.\n{}\n", lines.join("\n"))
}

/// A quoted name loses the special meaning that words such as `all` have.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace(['"', '\n'], ""))
}

#[cfg(test)]
mod tests {
    use super::super::conf::tests::settings;
    use super::*;

    #[test]
    fn without_tls_nobody_comes_in_unless_that_is_asked_for() {
        assert!(hba(&settings(), false).ends_with("hostnossl all        all  all  reject\n"));
        let plain = Settings { plain: true, ..settings() };
        assert!(hba(&plain, false).ends_with("hostnossl all        all  all  scram-sha-256\n"));
    }

    #[test]
    fn replication_is_for_one_role_and_over_tls_only() {
        let text = hba(&Settings { plain: true, ..settings() }, false);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("keelson_replication")).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("hostssl replication") && lines[1].starts_with("hostssl postgres"));
        assert!(lines[2].starts_with("host ") && lines[2].ends_with("reject"));
    }

    #[test]
    fn over_the_network_nobody_is_trusted() {
        let text = hba(&Settings { plain: true, ..settings() }, false);
        assert!(text.lines().filter(|line| line.starts_with("host")).all(|line| !line.ends_with("trust")));
    }

    #[test]
    fn shut_lets_in_nobody_but_who_follows_and_who_is_inside() {
        let text = hba(&settings(), true);
        let first = text.lines().position(|line| line == "host    all          all  all  reject").unwrap();
        let before: Vec<&str> = text.lines().take(first).filter(|line| !line.starts_with('#')).collect();
        assert!(before.iter().all(|line| {
            line.starts_with("local ") || line.contains("keelson_replication") || line.ends_with("reject")
        }));
        assert!(before.iter().any(|line| line.starts_with("hostssl replication")));
        assert!(!hba(&settings(), false).contains("host    all          all  all  reject"));
    }
}
