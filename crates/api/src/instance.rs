//! What the operator and the agent in each instance tell each other. They never talk directly: the
//! operator writes [`InstanceSettings`] into a ConfigMap, each agent writes a [`Report`] onto its own pod,
//! and both go by the names that are here.
//!
//! Either may be newer than the other: fields that one does not know are skipped, and those that it
//! misses have a value that claims nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::v1::{Durability, Engine, Leadership, Role, StandbyPolicy};
use crate::value::Version;

mod backup;
mod drill;
mod in_place;

pub use backup::{
    ArchiveReport, BackupOrder, BackupReport, BackupRule, RestorePoint, RestoreRule, Store, Use,
    backup_reasons,
};
pub use drill::{
    DRILL_VARIABLE, DrillChecks, DrillNote, DrillPhase, DrillReport, DrillRule, Mark, ask_for_drill,
    drill_reasons,
};

pub use in_place::{InPlaceReport, InPlaceRule, InPlaceStage, KeptReport};

/// The key in the ConfigMap under which [`InstanceSettings`] are found as JSON.
pub const SETTINGS_KEY: &str = "settings.json";

/// The key in the Secret for applications under which it is found which credentials these are. It tells nothing of them.
pub const BINDING_REVISION: &str = "revision";

/// Labels on what belongs to a database.
pub mod labels {
    /// The name of the Database, on its pods, its volumes and all that is made for it.
    pub const DATABASE: &str = "keelson.dev/database";
    /// The uid of the Database, on its volumes: one that is made anew under an old name must not take over
    /// the volumes of the old one unasked.
    pub const DATABASE_UID: &str = "keelson.dev/database-uid";
    /// What an instance does, on its pod, set by its own agent: one of [`super::roles`].
    pub const ROLE: &str = "keelson.dev/role";
    /// The name of the Database, on the pod of its drill, which is none of its instances and carries no other label
    /// by which those are found.
    pub const DRILL_OF: &str = "keelson.dev/drill-of";
}

/// The values of the label [`labels::ROLE`], which routing goes by.
pub mod roles {
    /// It takes writes.
    pub const PRIMARY: &str = "primary";
    /// Readers may ask it.
    pub const REPLICA: &str = "replica";
    /// Nobody should.
    pub const NONE: &str = "none";
}

/// Annotations, by who writes them.
pub mod annotations {
    /// On a pod, by its own agent: a [`Report`](super::Report) as JSON.
    pub const REPORT: &str = "keelson.dev/report";
    /// On a pod, by the operator: a token. The agent restarts its database, and not the container, when
    /// it is another than the one that it acted on last.
    pub const RESTART: &str = "keelson.dev/restart";

    /// On the pod of a drill, by itself: a [`DrillReport`](super::DrillReport) as JSON.
    pub const DRILL_REPORT: &str = "keelson.dev/drill-report";

    /// On the Lease, by the leader: grows by one with each change of holder.
    pub const EPOCH: &str = "keelson.dev/epoch";
    /// On the Lease, by the first leader: which database this is. Where it is set, none is ever made anew.
    pub const SYSTEM_ID: &str = "keelson.dev/system-id";
    /// On the Lease, by the leader: who must have a commit, and how many of them, as JSON.
    pub const SYNC: &str = "keelson.dev/sync";
    /// On the Lease, by the leader: how far its log was, as `timeline/offset`.
    pub const LOG_END: &str = "keelson.dev/log-end";
    /// On the Lease, by the leader: which version of it the leader has replaced with its last write.
    pub const RENEWAL: &str = "keelson.dev/renewal";
    /// On the Lease, by the leader: the newest timeline that anybody has begun, or was to begin.
    pub const HISTORY: &str = "keelson.dev/timeline";
    /// On the Lease, by the leader: the last leaderships as JSON, the newest first.
    pub const LEADERSHIPS: &str = "keelson.dev/leaderships";
    /// On the Lease, by the leader: what became of restores in place, as JSON.
    pub const RESTORES: &str = "keelson.dev/restores";
    /// On the Lease, by whoever asks for a handover: the name of a pod, or `any`. The leader removes it
    /// when it is done or refused.
    pub const HANDOVER_TO: &str = "keelson.dev/handover-to";

    /// On a Database, by a person: any text. Another one gives it other passwords and another key.
    pub const ROTATE_SECRETS: &str = "keelson.dev/rotate-secrets";
    /// On a Database, by a person: any text. Another one asks for a drill. On the pod of a drill, by the operator: the
    /// text that it was asked for with.
    pub const DRILL: &str = "keelson.dev/drill";
    /// On a Database, by a person: `yes` lets it take the volumes that an older one of its name has left.
    pub const ADOPT_VOLUMES: &str = "keelson.dev/adopt-volumes";
    /// On a Database, by a person: the name of a restore in place. The data that it put aside is removed.
    pub const DISCARD_OLD_DATA: &str = "keelson.dev/discard-old-data";
    /// On a Database, by a person: any text. Another one replaces its instances, one after another, the leader last
    /// and after a handover.
    pub const RESTART_INSTANCES: &str = "keelson.dev/restart-instances";
    /// On the claim of a volume, by the operator: the uid of the Database that had left it, and from which it was taken.
    pub const ADOPTED_FROM: &str = "keelson.dev/adopted-from";
}

/// Words for [`Report::reason`] that the operator acts on. Others are shown as they are.
pub mod reasons {
    /// A Secret is missing, empty, or does not hold what it should.
    pub const SECRETS_DAMAGED: &str = "SecretsDamaged";
    /// The database refuses a parameter of the spec.
    pub const PARAMETER_REFUSED: &str = "ParameterRefused";
    /// The volume has almost no room left.
    pub const VOLUME_FULL: &str = "VolumeFull";
}

/// Where things are in the database's container.
pub mod paths {
    /// The agent's own program, copied in before the container starts.
    pub const PROGRAM: &str = "/keelson-bin/keelson";
    /// The folder that it is copied to.
    pub const BIN: &str = "/keelson-bin";
    /// The volume: `data` is the database's, `agent` the agent's own.
    pub const VOLUME: &str = "/var/lib/keelson";
    /// The ConfigMap, for times when the API server is away.
    pub const CONFIG: &str = "/etc/keelson/config";
    /// `username` and `password` of the superuser.
    pub const SUPERUSER: &str = "/etc/keelson/superuser";
    /// `username` and `password` with which replicas follow.
    pub const REPLICATION: &str = "/etc/keelson/replication";
    /// `username`, `password` and more for applications.
    pub const APP: &str = "/etc/keelson/app";
    /// `ca.crt`, `tls.crt` and `tls.key`.
    pub const TLS: &str = "/etc/keelson/tls";
    /// Where the database's socket is.
    pub const RUN: &str = "/run/postgresql";
    /// What to sign in with where backups go.
    pub const BACKUP_CREDENTIALS: &str = "/etc/keelson/backup-credentials";
    /// The `key` that backups are encrypted with.
    pub const BACKUP_KEY: &str = "/etc/keelson/backup-key";
    /// The volume that backups go to, where it is one.
    pub const BACKUP_FOLDER: &str = "/var/lib/keelson-backup";
    /// What to sign in with where the first data comes from.
    pub const RESTORE_CREDENTIALS: &str = "/etc/keelson/restore-credentials";
    /// The `key` that it is encrypted with.
    pub const RESTORE_KEY: &str = "/etc/keelson/restore-key";
    /// The volume that it comes from, where it is one.
    pub const RESTORE_FOLDER: &str = "/var/lib/keelson-restore";
}

/// The ports of an instance.
pub mod ports {
    /// PostgreSQL.
    pub const POSTGRES: u16 = 5432;
    /// Between agents: HTTPS with certificates on both sides.
    pub const AGENT: u16 = 8443;
    /// Metrics and health, for anybody.
    pub const METRICS: u16 = 9187;
}

/// The names of what belongs to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names<'a>(pub &'a str);

impl Names<'_> {
    /// The ConfigMap with the settings.
    pub fn config(&self) -> String {
        format!("{}-config", self.0)
    }

    /// The Lease that decides who leads.
    pub fn lease(&self) -> String {
        format!("{}-leader", self.0)
    }

    /// The Service, and its EndpointSlice, that lead to the primary.
    pub fn writers(&self) -> String {
        format!("{}-rw", self.0)
    }

    /// The Service that leads to replicas.
    pub fn readers(&self) -> String {
        format!("{}-ro", self.0)
    }

    /// The Secret of the superuser.
    pub fn superuser(&self) -> String {
        format!("{}-superuser", self.0)
    }

    /// The Secret with which replicas follow.
    pub fn replication(&self) -> String {
        format!("{}-replication", self.0)
    }

    /// The Secret for applications.
    pub fn app(&self) -> String {
        format!("{}-app", self.0)
    }

    /// The Secret with certificate and key.
    pub fn tls(&self) -> String {
        format!("{}-tls", self.0)
    }

    /// The pod of a drill, its claim, its account and what that may do.
    pub fn drill(&self) -> String {
        format!("{}-drill", self.0)
    }

    /// The pod of an instance.
    pub fn pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.0)
    }

    /// The claim to an instance's volume.
    pub fn claim(&self, ordinal: u32) -> String {
        format!("data-{}-{ordinal}", self.0)
    }

    /// The ordinal in the name of a pod of this database.
    pub fn ordinal(&self, pod: &str) -> Option<u32> {
        let digits = pod.strip_prefix(self.0)?.strip_prefix('-')?;
        let number = digits.parse().ok()?;
        // `+1` and `01` are numbers too, but nobody's.
        (self.pod(number) == pod).then_some(number)
    }
}

/// What an agent is to make of its instance: the content of [`SETTINGS_KEY`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSettings {
    /// The database program.
    pub engine: Engine,
    /// Its version, as asked for.
    pub version: Version,
    /// How many instances there are to be.
    pub replicas: u32,
    /// What a commit waits for.
    pub durability: DurabilityRule,
    /// How another instance takes over.
    pub failover: FailoverTimes,
    /// Settings of the program by name, as the spec has them.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// What applications find.
    pub app: AppAccess,
    /// Which database this is, once an instance has reported it. Where it is set, none is made anew,
    /// whatever became of the Lease and the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Whether there is a database on volumes that were adopted, though nobody knows yet which: none is made anew
    /// on a volume that is empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Changes whenever one of the Secrets does.
    #[serde(default)]
    pub secrets: String,
    /// The certificate in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateNote>,
    /// Where log and backups go, if anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupRule>,
    /// Where the first data comes from. Of no meaning once there is a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreRule>,
    /// The restore in place that is to be carried out now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceRule>,
    /// Restores in place that have come to their end, or were named when the database was made, the last one last: none of
    /// them is carried out any more, whatever the spec says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled_restores: Vec<String>,
    /// The restore in place whose old data may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<String>,
}

impl InstanceSettings {
    /// As text, in the one way in which it is written.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DurabilityRule {
    /// For a quorum of standbys, or for nobody.
    pub mode: Durability,
    /// What happens when no standby is left.
    pub when_alone: StandbyPolicy,
}

/// How another instance takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailoverTimes {
    /// How long leadership lasts without renewal.
    pub ttl_millis: u64,
    /// How often it is looked at.
    pub look_millis: u64,
    /// How long before its end writes stop.
    pub margin_millis: u64,
    /// How many bytes of log a candidate may lack where commits wait for nobody.
    pub max_lag_bytes: u64,
    /// How many bytes of log a replica may lack and still serve readers.
    #[serde(default = "default_reader_lag")]
    pub max_reader_lag_bytes: u64,
}

const fn default_reader_lag() -> u64 {
    64 << 20
}

/// What applications find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppAccess {
    /// The database that is made for them.
    pub database: String,
    /// The role that owns it.
    pub role: String,
}

/// The certificate in the Secret, as far as it is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateNote {
    /// Until when it is valid. It is renewed well before.
    pub not_after: Timestamp,
}

/// What an agent says of its instance, on its pod, whenever it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// What it does. A word that is not known yet reads as unknown.
    #[serde(deserialize_with = "role_or_unknown")]
    pub role: Role,
    /// The timeline that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// How many bytes of log it lacks, in steps of powers of two, so that it is not written all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<i64>,
    /// Whether it takes writes: its last one reached the disk, and its leadership holds.
    pub writable: bool,
    /// On the primary: the pods that follow it and have caught up, in the order of their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub followers: Option<Vec<String>>,
    /// The version that runs, such as `17.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which database this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// Whether settings wait for a restart of the database.
    pub pending_restart: bool,
    /// Whether one of them is to be lower, and may on no replica be lower than on the primary. On the
    /// primary: it must be restarted where it is. On a replica: it waits for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lowering: bool,
    /// The [`fingerprint`] of the settings that it runs with, as far as they need no restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// On the primary: the [`BINDING_REVISION`] of the credentials for applications that it goes by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// The last token in [`annotations::RESTART`] that it acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted: Option<String>,
    /// What is wrong, in a sentence that says what to do. Nothing secret is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The same in a word in CamelCase; see [`reasons`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The pod that it sees leading; empty if none.
    pub leader: String,
    /// The epoch of that leadership.
    pub epoch: u64,
    /// On the primary: the last leaderships, the newest first, its own among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaderships: Vec<Leadership>,
    /// On the primary: how it stands with the log, where backups go anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveReport>,
    /// The base backup that it was last told to make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupReport>,
    /// On the leader: how it stands with the restore in place that was asked for last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceReport>,
    /// Data that a restore in place has put aside on its volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptReport>,
}

impl Report {
    /// Whether it says that it takes writes.
    pub fn claims_writes(&self) -> bool {
        self.role == Role::Primary && self.writable
    }

    /// Whether it says that it follows somebody.
    pub fn follows(&self) -> bool {
        matches!(self.role, Role::Synchronous | Role::Replica)
    }
}

impl Default for Report {
    fn default() -> Self {
        Report {
            role: Role::Unknown,
            timeline: None,
            lag_bytes: None,
            writable: false,
            followers: None,
            version: None,
            system_id: None,
            pending_restart: false,
            lowering: false,
            settings: None,
            credentials: None,
            restarted: None,
            problem: None,
            reason: None,
            leader: String::new(),
            epoch: 0,
            leaderships: Vec::new(),
            archive: None,
            backup: None,
            in_place: None,
            kept: None,
        }
    }
}

fn role_or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
    Ok(String::deserialize(deserializer)?.parse().unwrap_or(Role::Unknown))
}

/// A short name for a text, the same in every program and for ever (FNV-1a of 64 bits). It tells texts
/// apart that honest people write; it keeps no secret.
pub fn fingerprint(text: &str) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> serde_json::Value {
        json!({
            "engine": "postgres", "version": "17", "replicas": 3,
            "durability": {"mode": "quorum", "whenAlone": "preferred"},
            "failover": {
                "ttlMillis": 5000, "lookMillis": 1000, "marginMillis": 1000, "maxLagBytes": 16777216,
                "maxReaderLagBytes": 67108864
            },
            "parameters": {"work_mem": "64MB"},
            "app": {"database": "app", "role": "app"},
            "secrets": "5f", "certificate": {"notAfter": "2027-11-16T12:00:00Z"}
        })
    }

    #[test]
    fn settings_are_read_and_written_as_they_are() {
        let read: InstanceSettings = serde_json::from_value(settings()).unwrap();
        assert_eq!(read.durability.when_alone, StandbyPolicy::Preferred);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&read.to_json().unwrap()).unwrap(), settings());
    }

    #[test]
    fn settings_of_a_newer_operator_are_read_too() {
        let mut newer = settings();
        newer["colour"] = "blue".into();
        newer["failover"]["grace"] = 5.into();
        let read: InstanceSettings = serde_json::from_value(newer).unwrap();
        assert_eq!(read, serde_json::from_value(settings()).unwrap());
    }

    #[test]
    fn a_report_is_read_and_written_as_it_is() {
        let report = json!({
            "role": "primary", "timeline": 1, "lagBytes": 0, "writable": true, "version": "17.5",
            "systemId": "7312", "pendingRestart": false, "settings": "ab", "restarted": "t-1",
            "problem": "the Secret orders-app is empty", "reason": "SecretsDamaged",
            "leader": "orders-0", "epoch": 3
        });
        let read: Report = serde_json::from_value(report.clone()).unwrap();
        assert_eq!((read.role, read.epoch), (Role::Primary, 3));
        assert_eq!(serde_json::to_value(read).unwrap(), report);
    }

    #[test]
    fn a_report_that_says_nothing_claims_nothing() {
        let read: Report = serde_json::from_value(json!({})).unwrap();
        assert_eq!(read, Report::default());
        assert!(!read.writable && read.role == Role::Unknown);
        let newer: Report = serde_json::from_value(json!({"role": "witness", "colour": "blue"})).unwrap();
        assert_eq!(newer, Report::default());
    }

    #[test]
    fn a_pods_ordinal_is_told_from_names_that_only_look_alike() {
        let names = Names("orders");
        assert_eq!(names.ordinal("orders-2"), Some(2));
        assert_eq!(names.ordinal(&names.pod(10)), Some(10));
        for other in ["orders", "orders-", "orders-x", "orders-02", "orders-+2", "orders-rw-0", "order-2"] {
            assert_eq!(names.ordinal(other), None, "{other}");
        }
    }

    #[test]
    fn fingerprints_are_those_of_the_published_algorithm() {
        assert_eq!(fingerprint(""), "cbf29ce484222325");
        assert_eq!(fingerprint("foobar"), "85944171f73967e8");
    }
}
