//! The configuration as a whole: pure text, from what the instance is to be.
//!
//! The files are Keelson's own and lie outside of the data folder: a base backup and `pg_rewind` bring
//! along whatever configuration lies in the data folder of another instance. What `ALTER SYSTEM` would
//! write lies inside, wins over everything, and could break replication on the next start of the one
//! instance where somebody typed it; so it is switched off, on versions that have no switch for it by a
//! folder where its temporary file would be (see [`super::folders`]).

use std::collections::BTreeMap;
use std::fmt::Write;

use keelson_api::parameters::KEPT;

use super::conninfo::{conninfo, passfile};
use super::control::Floor;
use super::hba::hba;
use super::settings::Settings;
use super::sizes::sizes;
use crate::engine::{Synchronous, Upstream};
use crate::layout::Layout;
use crate::secret::Secret;

/// All that the configuration follows from.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Where things are.
    pub layout: &'a Layout,
    /// The version.
    pub major: u32,
    /// What the instance is to be.
    pub settings: &'a Settings,
    /// Whom it follows, if it is a replica.
    pub upstream: Option<&'a Upstream>,
    /// Whose acknowledgement commits wait for. Also on a replica: one that is promoted must wait from
    /// its first commit on, and the checkpointer learns of the first name only a moment after a reload.
    pub synchronous: &'a Synchronous,
    /// Whether it is about to end.
    pub ending: bool,
    /// Whether clients are turned away.
    pub shut: bool,
    /// What a replica must have at least, as its primary has it.
    pub floor: Option<&'a Floor>,
}

/// The files of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `postgresql.conf`.
    pub conf: String,
    /// `pg_hba.conf`.
    pub hba: String,
    /// `pg_ident.conf`: none of our lines uses it.
    pub ident: String,
    /// The password file for replication.
    pub passfile: Secret,
    /// Whether something is higher than asked for, since a replica may not have less than its primary.
    pub floored: bool,
}

/// The files for an instance.
pub fn configure(inputs: &Inputs<'_>) -> Files {
    let mut values = suggested(inputs);
    for (name, value) in &inputs.settings.parameters {
        let name = name.to_ascii_lowercase();
        if !KEPT.contains(&name.as_str()) {
            values.insert(name, (value.clone(), "asked for"));
        }
    }
    raise(&mut values, "max_wal_senders", 20, "room for every instance, its clone and backups");
    raise(&mut values, "max_replication_slots", 20, "room for every instance, and for logical replication");
    raise(&mut values, "superuser_reserved_connections", 5, "Keelson itself must always get in");
    if let Some(archive) = &inputs.settings.archive {
        let seconds = archive.segment_seconds.clamp(1, MOST_SECONDS).to_string();
        values.insert("archive_timeout".to_owned(), (seconds, "spec.backup.maxDataLoss"));
    }
    let mut floored = false;
    for (name, least) in inputs.floor.iter().flat_map(|floor| floor.parameters()) {
        let asked = values.get(name).map_or(Some(Floor::usual(name)), |(value, _)| value.trim().parse().ok());
        floored |= asked.is_some_and(|asked| asked < least);
        raise(&mut values, name, least, "not less than the primary had when it last said so");
    }
    let mut conf = "# Written by Keelson; changes are overwritten. Set spec.parameters instead.\n".to_owned();
    for (name, (value, why)) in &values {
        line(&mut conf, name, value, why);
    }
    conf.push_str("\n# What replication, failover and safe commits depend on.\n");
    for (name, value, why) in kept(inputs) {
        line(&mut conf, name, &value, why);
    }
    let (hba, passfile) = (hba(inputs.settings, inputs.shut), passfile(inputs.settings));
    Files { conf, hba, ident: String::new(), passfile, floored }
}

/// The most that `archive_timeout` can be.
const MOST_SECONDS: u64 = i32::MAX as u64 / 2;

type Values = BTreeMap<String, (String, &'static str)>;

pub(crate) fn line(conf: &mut String, name: &str, value: &str, why: &str) {
    let why = if why.is_empty() { String::new() } else { format!("  # {why}") };
    // Writing to a text can't fail.
    let _ = writeln!(conf, "{name} = {}{why}", quoted(value));
}

/// A value as the file wants it. Backslashes are escapes there, and a line ends a value.
fn quoted(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n").replace('\r', "\\r");
    format!("'{value}'")
}

/// Whether a name can stand in the file at all: it must not end the line, or begin another.
pub(crate) fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
    };
    name.split('.').count() <= 2 && name.split('.').all(part)
}

/// Raises a number that is too small. What is no number is left for PostgreSQL to refuse.
fn raise(values: &mut Values, name: &str, least: u64, why: &'static str) {
    let enough = match values.get(name) {
        Some((value, _)) => value.trim().parse::<u64>().map_or(true, |value| value >= least),
        None => false,
    };
    if !enough {
        values.insert(name.to_owned(), (least.to_string(), why));
    }
}

/// What is set unless somebody asks for something else.
fn suggested(inputs: &Inputs<'_>) -> Values {
    let fixed = [
        ("checkpoint_timeout", "5min", "bounds the time that a start after a crash takes"),
        ("wal_compression", "on", "whole pages after a checkpoint are most of the log"),
        // A line that goes when a replica is promoted would ask for a restart, also where it changes nothing.
        (
            "max_prepared_transactions",
            "0",
            "PostgreSQL's own default, named because replicas must have as many",
        ),
        ("max_locks_per_transaction", "64", "the same"),
        ("random_page_cost", "1.1", "volumes of a cluster have no arm to move"),
        ("wal_receiver_timeout", "5s", "a primary that has fallen silent is given up within a lease's term"),
        ("wal_receiver_status_interval", "1s", "lag is known to the second"),
        ("wal_retrieve_retry_interval", "500ms", "a replica finds its new primary at once"),
        ("wal_sender_timeout", "5s", "a replica that has fallen silent stops counting"),
        ("tcp_keepalives_idle", "30", "clients that are gone give their connections back"),
        ("tcp_keepalives_interval", "10", ""),
        ("tcp_keepalives_count", "3", ""),
        ("log_line_prefix", "%m [%p] %q%u@%d/%a ", "when, which process, who"),
        ("log_checkpoints", "on", ""),
        ("log_lock_waits", "on", ""),
        ("log_autovacuum_min_duration", "10s", ""),
        ("log_timezone", "UTC", "as all of Keelson's logs"),
        ("timezone", "UTC", "the same on every image"),
        ("default_text_search_config", "pg_catalog.english", "what initdb writes into most people's files"),
    ];
    // A handover takes a new segment twice: with the end of the old primary, and with the new timeline.
    let at_once = inputs.upstream.is_some() || inputs.ending;
    let filled = (
        "wal_init_zero",
        if at_once { "off" } else { "on" },
        "segments are filled before they are used, but where others wait for it: on replicas, and at the end",
    );
    let derived = sizes(&inputs.settings.resources).into_iter();
    let fixed = fixed.into_iter().chain([filled]).map(|(name, value, why)| (name, value.to_owned(), why));
    fixed.chain(derived).map(|(name, value, why)| (name.to_owned(), (value, why))).collect()
}

/// What nobody else may set.
fn kept(inputs: &Inputs<'_>) -> Vec<(&'static str, String, &'static str)> {
    let Inputs { layout, major, settings, .. } = inputs;
    let path = |path: std::path::PathBuf| path.display().to_string();
    let mut kept = vec![
        ("hba_file", path(layout.config_file("pg_hba.conf")), ""),
        ("ident_file", path(layout.config_file("pg_ident.conf")), ""),
        ("listen_addresses", settings.listen.clone(), ""),
        ("port", settings.port.to_string(), ""),
        ("unix_socket_directories", path(layout.sockets.clone()), ""),
        ("unix_socket_permissions", "0700".into(), "nobody but our own account: see pg_hba.conf"),
        ("cluster_name", settings.name.clone(), ""),
        ("password_encryption", "scram-sha-256".into(), ""),
        (
            "wal_level",
            "logical".into(),
            "costs little, and can't be raised without a restart when an upgrade needs it",
        ),
        ("hot_standby", "on".into(), "a replica answers queries, also Keelson's"),
        ("wal_log_hints", "on".into(), "for pg_rewind, also where somebody switched checksums off"),
        ("fsync", "on".into(), ""),
        ("full_page_writes", "on".into(), ""),
        ("data_sync_retry", "off".into(), "the kernel forgets what it could not write"),
        (
            "restart_after_crash",
            "off".into(),
            "whether a crashed instance may go on is for leadership to say",
        ),
        (
            "archive_mode",
            // A replica keeps what the leader has not sent yet.
            if settings.archive.is_some() { "always" } else { "on" }.into(),
            "can't be switched on without a restart; what archives can be changed at any time",
        ),
        // Without one, PostgreSQL says what is ready and keeps it until it is marked as done.
        ("archive_command", if settings.archive.is_some() { "" } else { "true" }.into(), ""),
        ("recovery_target_timeline", "latest".into(), "a replica goes along when its primary is replaced"),
        (
            "log_destination",
            "stderr".into(),
            "the container's log; anything else needs a collector and files",
        ),
        ("logging_collector", "off".into(), ""),
        ("synchronous_commit", "on".into(), ""),
        ("synchronous_standby_names", synchronous(inputs.synchronous), ""),
        ("primary_slot_name", inputs.upstream.and_then(|up| up.slot.clone()).unwrap_or_default(), ""),
        (
            "primary_conninfo",
            inputs.upstream.map_or_else(String::new, |up| conninfo(layout, settings, up, &[])),
            "",
        ),
    ];
    if *major >= 17 {
        kept.push(("allow_alter_system", "off".into(), "one instance's secret; set spec.parameters instead"));
    }
    match &settings.tls {
        Some(tls) => kept.extend([
            ("ssl", "on".into(), ""),
            ("ssl_ca_file", path(tls.ca.clone()), ""),
            ("ssl_cert_file", path(tls.certificate.clone()), ""),
            ("ssl_key_file", path(tls.key.clone()), ""),
        ]),
        None => kept.push(("ssl", "off".into(), "")),
    }
    kept
}

/// `synchronous_standby_names`: any of them counts the same.
pub(crate) fn synchronous(synchronous: &Synchronous) -> String {
    if synchronous.count == 0 || synchronous.names.is_empty() {
        return String::new();
    }
    let names: Vec<String> =
        synchronous.names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
    format!("ANY {} ({})", synchronous.count, names.join(", "))
}

#[cfg(test)]
pub(crate) mod tests;
