//! What a running instance says of itself, in one question.

use serde::Deserialize;

use crate::lsn::Lsn;

/// An instance as it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether it is a replica, or has not ended its recovery yet.
    pub in_recovery: bool,
    /// `17.5`.
    pub version: String,
    /// The same for all copies of one database, and for no other.
    #[serde(deserialize_with = "number")]
    pub system: u64,
    /// Its timeline; a replica's is that of the log it receives, or has received last.
    pub timeline: u32,
    /// Primary: the end of its log.
    pub written: Option<Lsn>,
    /// Primary: how far its log is on disk.
    pub flushed: Option<Lsn>,
    /// Replica: how far the log that came is on disk, since it was started.
    pub received: Option<Lsn>,
    /// Replica: how far the log is replayed.
    pub replayed: Option<Lsn>,
    /// Replica: seconds since the last transaction that it replayed was committed.
    pub replayed_age: Option<f64>,
    /// Replica: whether somebody stopped its replay, or it had to stop by itself.
    pub paused: bool,
    /// Parameters that wait for a restart.
    pub pending_restart: Vec<String>,
    /// Whether one of them is to be lower than it is, and may on no replica be lower than on its primary.
    pub lowering: bool,
    /// Those who follow it.
    pub standbys: Vec<Standby>,
    /// Whom it follows.
    pub receiver: Option<Receiver>,
    /// Whether a process is there that receives, or is about to.
    pub receiving: bool,
    /// Replica: whether it has come to the end of the log on its own disk. Before that, how far it has replayed
    /// says nothing of how much it has.
    pub at_end: bool,
    /// Its slots.
    pub slots: Vec<Slot>,
}

impl Status {
    /// How far it has come: what it holds for certain.
    pub fn position(&self) -> Lsn {
        [self.flushed, self.received, self.replayed].into_iter().flatten().max().unwrap_or_default()
    }
}

/// One that follows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standby {
    /// Its name.
    pub name: String,
    /// `streaming`, `catchup`, `startup`, `backup`.
    pub state: String,
    /// `async`, `quorum`, `sync`, `potential`.
    pub sync: String,
    /// How far it was sent.
    pub sent: Option<Lsn>,
    /// How far it was written there.
    pub written: Option<Lsn>,
    /// How far it is on disk there.
    pub flushed: Option<Lsn>,
    /// How far it is replayed there.
    pub replayed: Option<Lsn>,
}

/// The receiving end of a replica.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receiver {
    /// `streaming`, `starting`, `waiting`.
    pub status: String,
    /// Whom it receives from.
    pub host: Option<String>,
    /// The port there.
    pub port: Option<i32>,
    /// The slot there.
    pub slot: Option<String>,
    /// The timeline of what was received last.
    pub timeline: Option<u32>,
    /// The end of the sender's log when it last said so.
    pub latest_end: Option<Lsn>,
    /// Seconds since anything came.
    pub silent: Option<f64>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Whether it is for a replica, and not for logical replication.
    pub physical: bool,
    /// Whether somebody uses it now.
    pub active: bool,
    /// From where on it keeps the log.
    pub restart: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved`, or `lost`: who needs it must clone anew.
    pub wal: Option<String>,
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// Works from version 14 on. A `CASE` is there where a function is refused in the other role.
pub(crate) const QUERY: &str = "SELECT json_build_object(
    'inRecovery', r.recovering,
    'version', split_part(current_setting('server_version'), ' ', 1),
    'system', (SELECT system_identifier::text FROM pg_control_system()),
    'timeline', CASE WHEN r.recovering
        THEN coalesce((SELECT received_tli FROM pg_stat_wal_receiver), greatest((SELECT timeline_id FROM pg_control_checkpoint()),
            (SELECT max(('x' || substr(name, 1, 8))::bit(32)::int) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$')))
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END,
    'written', CASE WHEN NOT r.recovering THEN pg_current_wal_lsn() END,
    'flushed', CASE WHEN NOT r.recovering THEN pg_current_wal_flush_lsn() END,
    'received', CASE WHEN r.recovering THEN pg_last_wal_receive_lsn() END,
    'replayed', CASE WHEN r.recovering THEN pg_last_wal_replay_lsn() END,
    'replayedAge', CASE WHEN r.recovering THEN extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END,
    'paused', CASE WHEN r.recovering THEN pg_get_wal_replay_pause_state() <> 'not paused' ELSE false END,
    'pendingRestart', (SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM pg_settings WHERE pending_restart),
    'lowering', EXISTS (SELECT FROM pg_settings s WHERE s.pending_restart
        AND s.name IN ('max_connections', 'max_worker_processes', 'max_wal_senders', 'max_prepared_transactions', 'max_locks_per_transaction')
        AND (SELECT f.setting::bigint < s.setting::bigint FROM pg_file_settings f WHERE f.name = s.name ORDER BY f.seqno DESC LIMIT 1)),
    'standbys', (SELECT coalesce(json_agg(json_build_object(
        'name', application_name, 'state', coalesce(state, 'startup'), 'sync', coalesce(sync_state, 'async'), 'sent', sent_lsn,
        'written', write_lsn, 'flushed', flush_lsn, 'replayed', replay_lsn)), '[]') FROM pg_stat_replication),
    'receiver', (SELECT json_build_object(
        'status', status, 'host', sender_host, 'port', sender_port, 'slot', slot_name, 'timeline', received_tli,
        'latestEnd', latest_end_lsn, 'silent', extract(epoch FROM clock_timestamp() - last_msg_receipt_time))
        FROM pg_stat_wal_receiver),
    'receiving', EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walreceiver'),
    'atEnd', r.recovering AND (pg_last_wal_receive_lsn() IS NOT NULL OR EXISTS (SELECT FROM pg_stat_activity
        WHERE backend_type = 'startup' AND wait_event IN ('RecoveryRetrieveRetryInterval', 'RecoveryWalStream'))),
    'slots', (SELECT coalesce(json_agg(json_build_object(
        'name', slot_name, 'physical', slot_type = 'physical', 'active', active, 'restart', restart_lsn, 'wal', wal_status)
        ORDER BY slot_name), '[]') FROM pg_replication_slots WHERE NOT temporary)
) FROM (SELECT pg_is_in_recovery() AS recovering) r";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_a_replica_is_understood() {
        let status: Status = serde_json::from_str(
            r#"{"inRecovery":true,"version":"17.5","system":"7708743195076456464","timeline":3,"written":null,
            "flushed":null,"received":"0/5000000","replayed":"0/4FFFFF0","replayedAge":1.25,"paused":false,
            "pendingRestart":["max_connections"],"lowering":false,"standbys":[],"receiver":{"status":"streaming","host":"orders-0",
            "port":5432,"slot":"keelson_orders_1","timeline":3,"latestEnd":"0/5000000","silent":0.1},"receiving":true,"atEnd":true,"slots":[]}"#,
        )
        .unwrap();
        assert_eq!(status.position(), "0/5000000".parse().unwrap());
        assert_eq!(status.system, 7708743195076456464);
        assert_eq!(status.receiver.unwrap().status, "streaming");
    }
}
