//! What `pg_controldata` says of a data folder that nobody runs.

use std::collections::BTreeMap;

use crate::engine::Offline;
use crate::lsn::Lsn;

/// What a replica must have at least: with less than its primary had when it wrote the log, it would stop
/// replaying. The primary's values travel in the log, into the control file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// `max_connections`.
    pub connections: u64,
    /// `max_worker_processes`.
    pub workers: u64,
    /// `max_wal_senders`.
    pub senders: u64,
    /// `max_prepared_transactions`.
    pub prepared: u64,
    /// `max_locks_per_transaction`.
    pub locks: u64,
}

impl Floor {
    /// By the names of their parameters.
    pub(crate) fn parameters(&self) -> [(&'static str, u64); 5] {
        [
            ("max_connections", self.connections),
            ("max_worker_processes", self.workers),
            ("max_wal_senders", self.senders),
            ("max_prepared_transactions", self.prepared),
            ("max_locks_per_transaction", self.locks),
        ]
    }

    /// What PostgreSQL takes where nothing is set.
    pub(crate) fn usual(name: &str) -> u64 {
        match name {
            "max_connections" => 100,
            "max_worker_processes" => 8,
            "max_wal_senders" => 10,
            "max_locks_per_transaction" => 64,
            _ => 0,
        }
    }
}

/// Reads what `pg_controldata` prints (in English: it is run so). What is wrong is told.
pub fn parse(printed: &str) -> Result<(Offline, Floor), String> {
    let fields: BTreeMap<&str, &str> = printed
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let text =
        |key: &str| fields.get(key).copied().ok_or_else(|| format!("pg_controldata does not say `{key}`"));
    let number = |key: &str| text(key)?.parse::<u64>().map_err(|_| format!("`{key}` is no number"));
    let state = text("Database cluster state")?;
    let position = |key: &str| text(key)?.parse::<Lsn>().map_err(|error| format!("{key}: {error}"));
    // A replica has replayed at least to here before it wrote its pages.
    let lsn = position("Latest checkpoint location")?.max(position("Minimum recovery ending location")?);
    let timeline =
        number("Latest checkpoint's TimeLineID")?.max(number("Min recovery ending loc's timeline")?);
    let offline = Offline {
        system: number("Database system identifier")?,
        timeline: u32::try_from(timeline).map_err(|_| "the timeline is out of range".to_owned())?,
        lsn,
        state: state.to_owned(),
        replica: matches!(state, "in archive recovery" | "shut down in recovery"),
        clean: matches!(state, "shut down" | "shut down in recovery"),
    };
    let floor = Floor {
        connections: number("max_connections setting")?,
        workers: number("max_worker_processes setting")?,
        senders: number("max_wal_senders setting")?,
        prepared: number("max_prepared_xacts setting")?,
        locks: number("max_locks_per_xact setting")?,
    };
    Ok((offline, floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURES: [(&str, u64, &str); 3] = [
        (include_str!("fixtures/pg_controldata-15.txt"), 7708743174797336592, "0/17417F8"),
        (include_str!("fixtures/pg_controldata-17.txt"), 7708743195076456464, "0/1737BE8"),
        (include_str!("fixtures/pg_controldata-18.txt"), 7708743201895768080, "0/17660D0"),
    ];

    #[test]
    fn every_version_is_understood() {
        for (printed, system, lsn) in FIXTURES {
            let (offline, floor) = parse(printed).unwrap();
            assert_eq!(
                (offline.system, offline.timeline, offline.lsn.to_string().as_str()),
                (system, 1, lsn)
            );
            assert!(offline.clean && !offline.replica);
            assert_eq!(floor, Floor { connections: 100, workers: 8, senders: 10, prepared: 0, locks: 64 });
        }
    }

    #[test]
    fn a_replica_is_as_far_as_it_had_to_replay() {
        let printed = FIXTURES[1]
            .0
            .replace(
                "Minimum recovery ending location:     0/0",
                "Minimum recovery ending location:     3/A0",
            )
            .replace("ending loc's timeline:   0", "ending loc's timeline:   4")
            .replace("shut down", "in archive recovery");
        let (offline, _) = parse(&printed).unwrap();
        assert_eq!((offline.lsn.to_string().as_str(), offline.timeline), ("3/A0", 4));
        assert!(offline.replica && !offline.clean);
    }

    #[test]
    fn a_crashed_primary_is_told_from_one_that_was_shut_down() {
        let (offline, _) = parse(&FIXTURES[2].0.replace("shut down", "in production")).unwrap();
        assert!(!offline.clean && !offline.replica);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(parse("nonsense"), Err("pg_controldata does not say `Database cluster state`".into()));
    }
}
