//! Which metrics there are and what they are called: numbers in, families of series out. `docs/metrics.md`
//! lists them, and a test compares.

use std::collections::BTreeMap;
use std::fmt;

use keelson_api::instance::{InstanceSettings, Report};
use keelson_api::v1::BackupPhase;
use keelson_engine::postgres::{DatabaseMetrics, Metrics as Numbers, StandbyMetrics};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::metrics::Standing;
use crate::room::Room;

/// So many standbys have series of their own: whoever follows chooses its name.
const MOST_STANDBYS: usize = 32;

/// A page of metrics under way.
pub struct Page<'a>(DescriptorEncoder<'a>);

/// One series of a family: its labels and its value.
type Series<'a> = (Vec<(&'a str, &'a str)>, f64);

impl<'a> Page<'a> {
    /// An empty page.
    pub fn new(encoder: DescriptorEncoder<'a>) -> Page<'a> {
        Page(encoder)
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Into<f64>) -> fmt::Result {
        self.gauges(name, help, [(Vec::new(), value.into())])
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Into<f64>) -> fmt::Result {
        self.counters(name, help, [(Vec::new(), value.into())])
    }

    fn gauges<'s>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'s>>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, series, |value| Box::new(ConstGauge::new(value)))
    }

    fn counters<'s>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'s>>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, series, |value| Box::new(ConstCounter::new(value)))
    }

    fn family<'s>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl IntoIterator<Item = Series<'s>>,
        metric: fn(f64) -> Box<dyn EncodeMetric>,
    ) -> fmt::Result {
        let series: Vec<Series<'s>> = series.into_iter().collect();
        if series.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        if let [(labels, value)] = &series[..]
            && labels.is_empty()
        {
            return metric(*value).encode(family);
        }
        for (labels, value) in series {
            metric(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// What the agent knows of leadership, besides whether it leads.
pub fn agent(page: &mut Page<'_>, report: &Report, standing: Standing) -> fmt::Result {
    let help = "The epoch of the leadership that this instance knows of";
    page.gauge("keelson_agent_epoch", help, number(report.epoch))?;
    let help = "1 while this instance takes writes: its last one reached the disk, and its leadership holds";
    page.gauge("keelson_agent_writable", help, u8::from(report.writable))?;
    let help = "1 while this instance leads without a Lease that says so, since the others confirm it";
    page.gauge("keelson_agent_failsafe", help, u8::from(standing.failsafe))?;
    archive(page, report)?;
    if let Some(followers) = &report.followers {
        let help = "Instances that follow this one, the primary, and have caught up";
        page.gauge("keelson_agent_followers", help, number(followers.len() as u64))?;
    }
    drill(page, report, standing)?;
    let Some(led_at) = standing.led_at else { return Ok(()) };
    let help = "Time since somebody was last known to lead, this instance or another";
    page.gauge("keelson_agent_leader_age_seconds", help, led_at.elapsed().as_secs_f64())
}

/// How drills went, on the primary of a database that has had one.
fn drill(page: &mut Page<'_>, report: &Report, standing: Standing) -> fmt::Result {
    let Some(drill) = standing.drill.filter(|_| report.archive.is_some()) else { return Ok(()) };
    let help = "1 while the last drill of its backups has failed";
    page.gauge("keelson_agent_drill_failing", help, u8::from(drill.failing))?;
    let Some(last) = drill.last_success else { return Ok(()) };
    let help = "When a drill last succeeded, as a Unix time";
    page.gauge("keelson_agent_drill_last_success_timestamp_seconds", help, last.as_second() as f64)
}

/// How it stands with the archive of the log, on the primary of a database whose log goes anywhere.
fn archive(page: &mut Page<'_>, report: &Report) -> fmt::Result {
    let Some(archive) = &report.archive else { return Ok(()) };
    let help = "1 while the log can't be archived";
    page.gauge("keelson_agent_archive_failing", help, u8::from(archive.reason.is_some()))?;
    let help = "Log that waits to be archived";
    page.gauge("keelson_agent_archive_waiting_bytes", help, number(archive.waiting_bytes))?;
    if let Some(left) = archive.full_in_seconds {
        let help = "Time until the volume is full with log that can't be archived, at the present rate";
        page.gauge("keelson_agent_archive_volume_left_seconds", help, number(left))?;
    }
    if let Some(finished) = archive.last_backup {
        let help = "When the last base backup in the repository was complete, as a Unix time";
        page.gauge("keelson_agent_backup_last_timestamp_seconds", help, seconds(finished))?;
    }
    if let Some(first) = archive.first_recoverable {
        let help = "The first moment that can be restored, as a Unix time";
        page.gauge("keelson_agent_recoverable_first_timestamp_seconds", help, seconds(first))?;
    }
    let Some(last) = archive.last_recoverable else { return Ok(()) };
    let help = "The last moment that certainly can be restored, as a Unix time";
    page.gauge("keelson_agent_recoverable_last_timestamp_seconds", help, seconds(last))
}

/// Whether the last base backup that this instance was to make has failed.
pub fn backup(page: &mut Page<'_>, report: &Report) -> fmt::Result {
    let Some(last) = &report.backup else { return Ok(()) };
    let failed = last.phase.parse() == Ok(BackupPhase::Failed);
    let Some(finished) = last.finished.filter(|_| failed) else { return Ok(()) };
    let help = "When the base backup failed that this instance was to make last, as a Unix time";
    page.gauge("keelson_agent_backup_failed_timestamp_seconds", help, seconds(finished))
}

/// What was asked for, so that whoever watches can tell what is missing.
pub fn asked(page: &mut Page<'_>, settings: &InstanceSettings) -> fmt::Result {
    let help = "How many instances the database is to have";
    page.gauge("keelson_agent_instances_wanted", help, settings.replicas)?;
    let Some(certificate) = &settings.certificate else { return Ok(()) };
    let help = "When the certificate of the database's instances ends, as a Unix time";
    page.gauge("keelson_agent_certificate_end_timestamp_seconds", help, seconds(certificate.not_after))
}

/// The volume with the data, where anything is known of it.
pub fn volume(page: &mut Page<'_>, room: Room) -> fmt::Result {
    if room.size == 0 {
        return Ok(());
    }
    page.gauge("keelson_agent_volume_size_bytes", "The size of the volume", number(room.size))?;
    page.gauge("keelson_agent_volume_free_bytes", "What is free on the volume", number(room.free))
}

/// The numbers of the database, as far as they are known.
pub fn postgres(page: &mut Page<'_>, up: bool, numbers: Option<&Numbers>) -> fmt::Result {
    page.gauge("keelson_postgres_up", "1 while the database answers", u8::from(up))?;
    let Some(numbers) = numbers else { return Ok(()) };
    activity(page, numbers)?;
    log(page, numbers)?;
    checkpoints(page, numbers)?;
    replication(page, numbers)?;
    databases(page, numbers)
}

fn activity(page: &mut Page<'_>, numbers: &Numbers) -> fmt::Result {
    page.gauge(
        "keelson_postgres_uptime_seconds",
        "Time since the database was started",
        numbers.uptime_seconds,
    )?;
    let help = "Connections of clients by what they do";
    page.gauges("keelson_postgres_connections", help, labelled("state", &numbers.connections))?;
    let help = "The most connections that it takes";
    page.gauge("keelson_postgres_max_connections", help, number(numbers.max_connections))?;
    let help = "How long the oldest transaction of a client has been open";
    page.gauge("keelson_postgres_oldest_transaction_seconds", help, numbers.oldest_transaction_seconds)?;
    let help = "Locks held or waited for, by mode";
    page.gauges("keelson_postgres_locks", help, labelled("mode", &numbers.locks))?;
    let help = "Locks that somebody waits for";
    page.gauge("keelson_postgres_locks_waiting", help, number(numbers.locks_waiting))?;
    let help = "Transactions since the oldest row was frozen; trouble comes at two thousand million";
    page.gauge("keelson_postgres_transaction_id_age", help, number(numbers.transaction_age))
}

fn log(page: &mut Page<'_>, numbers: &Numbers) -> fmt::Result {
    let help = "Where the log is, in bytes since the beginning of the database";
    page.gauge("keelson_postgres_wal_position_bytes", help, number(numbers.wal_position))?;
    let help = "Records written to the log";
    page.counter("keelson_postgres_wal_records", help, number(numbers.wal_records))?;
    let help = "Bytes written to the log";
    page.counter("keelson_postgres_wal_bytes", help, number(numbers.wal_bytes))?;
    let help = "Whole pages written to the log";
    page.counter("keelson_postgres_wal_full_pages", help, number(numbers.wal_full_pages))?;
    let help = "Bytes of log on the volume";
    page.gauge("keelson_postgres_wal_directory_bytes", help, number(numbers.wal_directory_bytes))?;
    let help = "Segments of the log that were archived";
    page.counter("keelson_postgres_archived_segments", help, number(numbers.archived))?;
    let help = "Segments of the log that could not be archived";
    page.counter("keelson_postgres_archive_failures", help, number(numbers.archive_failures))
}

fn checkpoints(page: &mut Page<'_>, numbers: &Numbers) -> fmt::Result {
    let made = [("timed", numbers.checkpoints_timed), ("requested", numbers.checkpoints_requested)];
    let made = made.map(|(why, count)| (vec![("reason", why)], number(count)));
    page.counters("keelson_postgres_checkpoints", "Checkpoints, by why they were made", made)?;
    let seconds = |millis: f64| millis / 1000.0;
    let help = "Time that checkpoints took to write";
    page.counter(
        "keelson_postgres_checkpoint_write_seconds",
        help,
        seconds(numbers.checkpoint_write_millis),
    )?;
    let help = "Time that checkpoints took to sync";
    page.counter("keelson_postgres_checkpoint_sync_seconds", help, seconds(numbers.checkpoint_sync_millis))?;
    let written = [("checkpoint", numbers.checkpoint_buffers), ("background", numbers.cleaned_buffers)];
    let written = written.map(|(by, count)| (vec![("by", by)], number(count)));
    page.counters("keelson_postgres_buffers_written", "Buffers written, by whom", written)
}

fn replication(page: &mut Page<'_>, numbers: &Numbers) -> fmt::Result {
    if let Some(bytes) = numbers.replay_lag_bytes {
        let help = "Replica: bytes of log received and not replayed";
        page.gauge("keelson_postgres_replay_lag_bytes", help, number(bytes))?;
    }
    if let Some(seconds) = numbers.replay_lag_seconds {
        let help =
            "Replica: time since the last transaction that was replayed; 0 when there is nothing to replay";
        page.gauge("keelson_postgres_replay_lag_seconds", help, seconds)?;
    }
    let help = "Bytes of log that are kept for the slot furthest behind";
    page.gauge("keelson_postgres_slot_kept_bytes", help, number(numbers.slot_kept_bytes))?;
    let standbys = standbys(&numbers.standbys);
    let lags = standbys.iter().flat_map(|standby| {
        let stages = [
            ("send", standby.send_lag_bytes),
            ("flush", standby.flush_lag_bytes),
            ("replay", standby.replay_lag_bytes),
        ];
        stages
            .map(|(stage, bytes)| (vec![("standby", standby.name.as_str()), ("stage", stage)], number(bytes)))
    });
    let help = "Bytes of log that a standby has not been sent, has not on disk, has not replayed";
    page.gauges("keelson_postgres_replication_lag_bytes", help, lags)?;
    let help = "Time until a recent write was replayed by a standby";
    let seconds = standbys.iter().map(|one| (vec![("standby", one.name.as_str())], one.replay_lag_seconds));
    page.gauges("keelson_postgres_replication_lag_seconds", help, seconds)
}

/// The first of them by name, each name once: of several that call themselves the same, the one furthest behind.
fn standbys(all: &[StandbyMetrics]) -> Vec<&StandbyMetrics> {
    let mut found: BTreeMap<&str, &StandbyMetrics> = BTreeMap::new();
    for standby in all {
        let kept = found.entry(&standby.name).or_insert(standby);
        if standby.replay_lag_bytes > kept.replay_lag_bytes {
            *kept = standby;
        }
    }
    found.into_values().take(MOST_STANDBYS).collect()
}

fn databases(page: &mut Page<'_>, numbers: &Numbers) -> fmt::Result {
    let help = "How many databases there are, templates aside";
    page.gauge("keelson_postgres_databases", help, number(numbers.database_count))?;
    let all = &numbers.databases;
    let each = |of: fn(&DatabaseMetrics) -> u64| {
        all.iter().map(move |one| (vec![("database", one.name.as_str())], number(of(one))))
    };
    page.gauges("keelson_postgres_database_size_bytes", "Size of a database", each(|one| one.bytes))?;
    let help = "Connections to a database, Keelson's own among them";
    page.gauges("keelson_postgres_database_connections", help, each(|one| one.connections))?;
    let split = |label: &'static str, parts: fn(&DatabaseMetrics) -> Vec<(&'static str, u64)>| {
        all.iter().flat_map(move |one| {
            let parts = parts(one).into_iter();
            parts.map(move |(part, count)| {
                (vec![("database", one.name.as_str()), (label, part)], number(count))
            })
        })
    };
    let ends = split("result", |one| vec![("commit", one.commits), ("rollback", one.rollbacks)]);
    page.counters("keelson_postgres_transactions", "Transactions, by how they ended", ends)?;
    let found = split("source", |one| vec![("memory", one.blocks_hit), ("outside", one.blocks_read)]);
    let help =
        "Blocks that were asked for, by whether they were in shared buffers or had to be read from outside";
    page.counters("keelson_postgres_blocks", help, found)?;
    let rows = split("operation", |one| {
        vec![("insert", one.inserted), ("update", one.updated), ("delete", one.deleted)]
    });
    page.counters("keelson_postgres_rows", "Rows written, by how", rows)?;
    let help = "Queries called off on a replica because the primary had removed what they read";
    page.counters("keelson_postgres_conflicts", help, each(|one| one.conflicts))?;
    page.counters("keelson_postgres_deadlocks", "Deadlocks", each(|one| one.deadlocks))?;
    let help = "Bytes written to temporary files";
    page.counters("keelson_postgres_temporary_bytes", help, each(|one| one.temporary_bytes))?;
    let help = "Pages whose checksum was wrong";
    page.counters("keelson_postgres_checksum_failures", help, each(|one| one.checksum_failures))
}

fn labelled<'a>(label: &'static str, counts: &'a BTreeMap<String, u64>) -> impl Iterator<Item = Series<'a>> {
    counts.iter().map(move |(of, count)| (vec![(label, of.as_str())], number(*count)))
}

/// A moment, as those who collect know it.
fn seconds(time: jiff::Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

/// Who collects knows no other numbers.
fn number(count: u64) -> f64 {
    count as f64
}
