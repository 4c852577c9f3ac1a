//! The parameters that Keelson itself sets. One list: the rule in the schema refuses them while the
//! operator is away, and whoever writes a configuration leaves them out.

macro_rules! kept {
    ($first:literal, $($name:literal),+ $(,)?) => {
        /// Parameters on which replication, failover, backups or the safety of commits depend, so that
        /// nobody else may set them. In lower case; PostgreSQL does not tell cases apart.
        pub const KEPT: &[&str] = &[$first, $($name),+];

        /// The same as a rule in CEL, on a map of parameters.
        pub(crate) const RULE: &str = concat!(
            "self.all(name, !(name.lowerAscii() in ['", $first, "'", $(", '", $name, "'",)+ "]))"
        );
    };
}

kept![
    // Where it is and who may come.
    "listen_addresses",
    "port",
    "data_directory",
    "config_file",
    "hba_file",
    "ident_file",
    "external_pid_file",
    "include",
    "include_dir",
    "include_if_exists",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
    "password_encryption",
    "ssl",
    "ssl_cert_file",
    "ssl_key_file",
    "ssl_ca_file",
    "cluster_name",
    "allow_alter_system",
    // Replication.
    "primary_conninfo",
    "primary_slot_name",
    "hot_standby",
    "wal_level",
    "wal_log_hints",
    "promote_trigger_file",
    "recovery_min_apply_delay",
    "recovery_target",
    "recovery_target_action",
    "recovery_target_inclusive",
    "recovery_target_lsn",
    "recovery_target_name",
    "recovery_target_time",
    "recovery_target_timeline",
    "recovery_target_xid",
    "synchronous_standby_names",
    "max_slot_wal_keep_size",
    // Backups.
    "restore_command",
    "archive_cleanup_command",
    "recovery_end_command",
    "archive_mode",
    "archive_command",
    "archive_library",
    // That a commit is safe, and a failure is seen.
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "data_sync_retry",
    "restart_after_crash",
    "log_destination",
    "logging_collector",
    // MySQL.
    "server_id",
    "gtid_mode",
    "enforce_gtid_consistency",
    "log_bin",
    "read_only",
    "super_read_only",
    "datadir",
    "socket",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_lower_case_and_listed_once() {
        let mut names = KEPT.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEPT.len());
        assert!(KEPT.iter().all(|name| *name == name.to_ascii_lowercase()));
        assert!(RULE.contains("'fsync'"));
    }
}
