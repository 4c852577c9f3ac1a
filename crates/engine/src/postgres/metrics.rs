//! Numbers for those who watch: the same fields for every version, whatever it calls them.

use std::time::Duration;

use serde::Deserialize;

use super::Postgres;
use super::hba::SUPERUSER;
use super::session::value;
use crate::error::{Error, Result, within};

/// The numbers of one instance. Totals count from the last start of their statistics.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Seconds since the postmaster was started.
    pub uptime_seconds: f64,
    /// Connections of clients by state: `active`, `idle`, `idle in transaction`, …
    pub connections: std::collections::BTreeMap<String, u64>,
    /// `max_connections`.
    pub max_connections: u64,
    /// Seconds that the oldest transaction of a client has been open.
    pub oldest_transaction_seconds: f64,
    /// Locks that are held or waited for, by mode.
    pub locks: std::collections::BTreeMap<String, u64>,
    /// Locks that somebody waits for.
    pub locks_waiting: u64,
    /// Bytes of log written (primary), or received and replayed (replica), since the beginning of time.
    pub wal_position: u64,
    /// Records written to the log.
    pub wal_records: u64,
    /// Bytes written to the log.
    pub wal_bytes: u64,
    /// Whole pages written to the log.
    pub wal_full_pages: u64,
    /// Bytes of log on the volume.
    pub wal_directory_bytes: u64,
    /// Checkpoints by time.
    pub checkpoints_timed: u64,
    /// Checkpoints because somebody asked, or the log was full.
    pub checkpoints_requested: u64,
    /// Milliseconds that checkpoints took to write.
    pub checkpoint_write_millis: f64,
    /// Milliseconds that checkpoints took to sync.
    pub checkpoint_sync_millis: f64,
    /// Buffers written by checkpoints.
    pub checkpoint_buffers: u64,
    /// Buffers written by the background writer.
    pub cleaned_buffers: u64,
    /// Segments archived.
    pub archived: u64,
    /// Segments that could not be archived.
    pub archive_failures: u64,
    /// Transactions until the counter must be wound round: the oldest database's age.
    pub transaction_age: u64,
    /// Replica: bytes received and not replayed.
    pub replay_lag_bytes: Option<u64>,
    /// Replica: seconds since the last transaction that was replayed; 0 when there is nothing to replay.
    pub replay_lag_seconds: Option<f64>,
    /// Bytes of log that the slot furthest behind keeps.
    pub slot_kept_bytes: u64,
    /// Those who follow.
    pub standbys: Vec<StandbyMetrics>,
    /// How many databases there are, templates aside.
    pub database_count: u64,
    /// Each database, the oldest first, up to as many as were asked for.
    pub databases: Vec<DatabaseMetrics>,
}

/// The numbers of one that follows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StandbyMetrics {
    /// Its name.
    pub name: String,
    /// Bytes not sent yet.
    pub send_lag_bytes: u64,
    /// Bytes not on disk there.
    pub flush_lag_bytes: u64,
    /// Bytes not replayed there.
    pub replay_lag_bytes: u64,
    /// Seconds until a recent write was replayed there.
    pub replay_lag_seconds: f64,
}

/// The numbers of one database.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseMetrics {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Connections to it.
    pub connections: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions rolled back.
    pub rollbacks: u64,
    /// Blocks read from outside of shared buffers.
    pub blocks_read: u64,
    /// Blocks found there.
    pub blocks_hit: u64,
    /// Rows inserted.
    pub inserted: u64,
    /// Rows updated.
    pub updated: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Queries called off on a replica because the primary had removed what they read.
    pub conflicts: u64,
    /// Deadlocks.
    pub deadlocks: u64,
    /// Bytes in temporary files.
    pub temporary_bytes: u64,
    /// Pages whose checksum was wrong.
    pub checksum_failures: u64,
}

/// Since version 17 the checkpointer has a view of its own.
const CHECKPOINTS_17: &str = "(SELECT num_timed AS timed, num_requested AS requested, write_time, sync_time, \
     buffers_written AS buffers FROM pg_stat_checkpointer)";
const CHECKPOINTS_14: &str = "(SELECT checkpoints_timed AS timed, checkpoints_req AS requested, \
     checkpoint_write_time AS write_time, checkpoint_sync_time AS sync_time, buffers_checkpoint AS buffers \
     FROM pg_stat_bgwriter)";

fn query(major: u32, most_databases: usize) -> String {
    let checkpoints = if major >= 17 { CHECKPOINTS_17 } else { CHECKPOINTS_14 };
    format!(
        "WITH here AS (SELECT pg_is_in_recovery() AS recovering),
        place AS (SELECT CASE WHEN recovering THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
            ELSE pg_current_wal_lsn() END AS lsn FROM here),
        clients AS (SELECT * FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'keelson')
        SELECT json_build_object(
        'uptimeSeconds', extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()),
        'connections', (SELECT coalesce(json_object_agg(state, n), '{{}}')
            FROM (SELECT coalesce(state, 'starting') AS state, count(*) AS n FROM clients GROUP BY 1) s),
        'maxConnections', current_setting('max_connections')::int,
        'oldestTransactionSeconds', (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) FROM clients),
        'locks', (SELECT coalesce(json_object_agg(mode, n), '{{}}') FROM (SELECT mode, count(*) AS n FROM pg_locks GROUP BY 1) l),
        'locksWaiting', (SELECT count(*) FROM pg_locks WHERE NOT granted),
        'walPosition', (SELECT coalesce(lsn - '0/0', 0) FROM place),
        'walRecords', wal.wal_records, 'walBytes', wal.wal_bytes, 'walFullPages', wal.wal_fpi,
        'walDirectoryBytes', (SELECT coalesce(sum(size), 0) FROM pg_ls_waldir()),
        'checkpointsTimed', checkpoints.timed, 'checkpointsRequested', checkpoints.requested,
        'checkpointWriteMillis', checkpoints.write_time, 'checkpointSyncMillis', checkpoints.sync_time,
        'checkpointBuffers', checkpoints.buffers, 'cleanedBuffers', (SELECT buffers_clean FROM pg_stat_bgwriter),
        'archived', archiver.archived_count, 'archiveFailures', archiver.failed_count,
        'transactionAge', (SELECT max(age(datfrozenxid)) FROM pg_database),
        'replayLagBytes', CASE WHEN here.recovering THEN greatest(place.lsn - pg_last_wal_replay_lsn(), 0) END,
        'replayLagSeconds', CASE WHEN NOT here.recovering THEN NULL WHEN place.lsn = pg_last_wal_replay_lsn() THEN 0
            ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END,
        'slotKeptBytes', (SELECT coalesce(max(greatest(place.lsn - restart_lsn, 0)), 0) FROM pg_replication_slots),
        'standbys', (SELECT coalesce(json_agg(json_build_object('name', application_name,
            'sendLagBytes', greatest(coalesce(place.lsn - sent_lsn, 0), 0),
            'flushLagBytes', greatest(coalesce(place.lsn - flush_lsn, 0), 0),
            'replayLagBytes', greatest(coalesce(place.lsn - replay_lsn, 0), 0),
            'replayLagSeconds', coalesce(extract(epoch FROM replay_lag), 0)) ORDER BY application_name), '[]')
            FROM pg_stat_replication WHERE state <> 'backup'),
        'databaseCount', (SELECT count(*) FROM pg_database WHERE datallowconn AND NOT datistemplate),
        'databases', (SELECT coalesce(json_agg(json_build_object('name', d.datname, 'bytes', pg_database_size(d.oid),
            'connections', s.numbackends, 'commits', s.xact_commit, 'rollbacks', s.xact_rollback,
            'blocksRead', s.blks_read, 'blocksHit', s.blks_hit, 'inserted', s.tup_inserted, 'updated', s.tup_updated,
            'deleted', s.tup_deleted, 'conflicts', s.conflicts, 'deadlocks', s.deadlocks,
            'temporaryBytes', s.temp_bytes, 'checksumFailures', coalesce(s.checksum_failures, 0)) ORDER BY d.oid), '[]')
            FROM (SELECT * FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY oid LIMIT {most_databases}) d
            JOIN pg_stat_database s ON s.datid = d.oid))
        FROM here, place, pg_stat_wal wal, pg_stat_archiver archiver, {checkpoints} checkpoints"
    )
}

impl Postgres {
    /// The numbers of this instance, and of so many of its databases, the oldest first: a new one takes
    /// nobody's place. Sizes of databases are summed up file by file: ask every half a minute, not every second.
    pub async fn metrics(&self, deadline: Duration, most_databases: usize) -> Result<Metrics> {
        const DOING: &str = "asking for metrics";
        self.running(DOING)?;
        let answer = within(deadline, DOING, async {
            let client = self.local().connect(SUPERUSER).await?;
            value(&client, DOING, &query(self.major(), most_databases)).await
        });
        let unreadable =
            |error: serde_json::Error| Error::Sql { doing: DOING, said: error.to_string(), code: None };
        serde_json::from_str(&answer.await?).map_err(unreadable)
    }
}
