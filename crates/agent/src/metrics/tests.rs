//! What a look shows, whatever the database does meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use keelson_api::instance::{ArchiveReport, BackupReport, DrillNote};
use keelson_engine::postgres::{DatabaseMetrics, StandbyMetrics};
use keelson_kit::admin;
use tokio::sync::watch;

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

fn numbers() -> Numbers {
    let standby = |name: &str, behind| StandbyMetrics {
        name: name.to_owned(),
        send_lag_bytes: 0,
        flush_lag_bytes: behind,
        replay_lag_bytes: behind,
        replay_lag_seconds: 0.5,
    };
    let database = DatabaseMetrics {
        name: "an \"odd\"\n\\one".to_owned(),
        bytes: 8_000_000,
        connections: 3,
        commits: 40,
        rollbacks: 2,
        blocks_read: 1,
        blocks_hit: 9,
        inserted: 5,
        updated: 6,
        deleted: 7,
        conflicts: 0,
        deadlocks: 0,
        temporary_bytes: 0,
        checksum_failures: 0,
    };
    Numbers {
        uptime_seconds: 12.5,
        connections: [("active".to_owned(), 2), ("idle in transaction".to_owned(), 1)].into(),
        max_connections: 100,
        oldest_transaction_seconds: 0.25,
        locks: [("AccessShareLock".to_owned(), 4)].into(),
        locks_waiting: 0,
        wal_position: 50_331_648,
        wal_records: 100,
        wal_bytes: 10_000,
        wal_full_pages: 10,
        wal_directory_bytes: 33_554_432,
        checkpoints_timed: 3,
        checkpoints_requested: 1,
        checkpoint_write_millis: 1500.0,
        checkpoint_sync_millis: 20.0,
        checkpoint_buffers: 77,
        cleaned_buffers: 5,
        archived: 0,
        archive_failures: 0,
        transaction_age: 700,
        replay_lag_bytes: Some(64),
        replay_lag_seconds: Some(0.0),
        slot_kept_bytes: 0,
        standbys: vec![standby("orders-1", 10), standby("orders-2", 10), standby("orders-2", 2000)],
        database_count: 1,
        databases: vec![database],
    }
}

fn failed_backup() -> BackupReport {
    let report = serde_json::json!({"uid": "u-1", "phase": "Failed", "finished": "1970-01-01T00:00:09Z"});
    serde_json::from_value(report).unwrap()
}

fn settings() -> Settings {
    let settings = serde_json::json!({
        "engine": "postgres", "version": "17", "replicas": 3,
        "durability": {"mode": "quorum", "whenAlone": "preferred"},
        "failover": {"ttlMillis": 5000, "lookMillis": 1000, "marginMillis": 1000, "maxLagBytes": 1},
        "app": {"database": "app", "role": "app"},
        "certificate": {"notAfter": "1970-01-01T01:00:00Z"}
    });
    Settings { settings: serde_json::from_value(settings).unwrap(), fingerprint: String::new() }
}

/// An agent whose database answers as a function says.
struct Bed {
    metrics: Metrics,
    exporter: Exporter,
    asked: Arc<AtomicUsize>,
    _report: watch::Sender<Report>,
}

impl Bed {
    fn new(
        answer: impl Fn(usize) -> BoxFuture<'static, Option<Numbers>> + Send + Sync + 'static,
        answers: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Bed {
        let metrics = Metrics::new("keelson_agent");
        metrics.build("1.2.3");
        metrics.request("get", 200, Duration::from_millis(5));
        let exporter = Exporter::new(&metrics);
        let asked: Arc<AtomicUsize> = Arc::default();
        let count = asked.clone();
        let ask = move || answer(count.fetch_add(1, Ordering::SeqCst));
        let (report, reports) = watch::channel(Report {
            epoch: 7,
            writable: true,
            archive: Some(ArchiveReport {
                full_in_seconds: Some(60),
                first_recoverable: Some(Timestamp::UNIX_EPOCH),
                last_recoverable: Timestamp::from_second(5).ok(),
                last_backup: Timestamp::from_second(4).ok(),
                ..ArchiveReport::default()
            }),
            followers: Some(vec!["orders-1".to_owned()]),
            backup: Some(failed_backup()),
            ..Report::default()
        });
        let led_at = Some(std::time::Instant::now());
        let drill = Some(DrillNote { last_success: Timestamp::from_second(9).ok(), failing: true });
        let (_, standing) = watch::channel(Standing { failsafe: true, led_at, drill });
        let (_, settings) = watch::channel(settings());
        let (_, room) = watch::channel(Room { size: 1 << 30, free: 1 << 29 });
        let (ask, answers) = (Box::new(ask), Box::new(answers));
        exporter.set(Source { ask, answers, reports, standing, settings, room });
        Bed { metrics, exporter, asked, _report: report }
    }

    /// The page, as somebody who collects gets it.
    async fn look(&self) -> String {
        let pages = self.exporter.before(admin::pages(Some(self.metrics.clone()), None));
        let request = Request::builder().uri("/metrics").body(Bytes::new()).unwrap();
        String::from_utf8(pages(request).await.into_body().to_vec()).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn at_once(answer: Option<Numbers>) -> BoxFuture<'static, Option<Numbers>> {
    Box::pin(async move { answer })
}

fn assert_line(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_database_that_answers_are_shown_in_their_units() {
    let bed = Bed::new(|_| at_once(Some(numbers())), || true);
    let page = bed.look().await;
    for line in [
        "keelson_postgres_up 1.0",
        "keelson_agent_epoch 7.0",
        "keelson_agent_writable 1.0",
        "keelson_agent_archive_failing 0.0",
        "keelson_agent_archive_volume_left_seconds 60.0",
        "keelson_agent_recoverable_last_timestamp_seconds 5.0",
        "keelson_agent_backup_last_timestamp_seconds 4.0",
        "keelson_agent_backup_failed_timestamp_seconds 9.0",
        "keelson_agent_followers 1.0",
        "keelson_agent_instances_wanted 3.0",
        "keelson_agent_certificate_end_timestamp_seconds 3600.0",
        "keelson_agent_volume_free_bytes 536870912.0",
        "keelson_agent_drill_failing 1.0",
        "keelson_agent_drill_last_success_timestamp_seconds 9.0",
        "keelson_postgres_connections{state=\"idle in transaction\"} 1.0",
        "keelson_postgres_checkpoint_write_seconds_total 1.5",
        "keelson_postgres_transactions_total{database=\"an \\\"odd\\\"\\n\\\\one\",result=\"commit\"} 40.0",
        "# TYPE keelson_postgres_transactions_total counter",
        "# TYPE keelson_postgres_database_size_bytes gauge",
    ] {
        assert_line(&page, line);
    }
}

#[tokio::test(start_paused = true)]
async fn standbys_of_one_name_are_one_series_and_there_are_only_so_many() {
    let many = || {
        let mut numbers = numbers();
        let one = numbers.standbys[0].clone();
        let named = (0..100).map(|number| StandbyMetrics { name: format!("x-{number}"), ..one.clone() });
        numbers.standbys.extend(named);
        numbers
    };
    let page = Bed::new(move |_| at_once(Some(many())), || true).look().await;
    assert_line(
        &page,
        "keelson_postgres_replication_lag_bytes{standby=\"orders-2\",stage=\"replay\"} 2000.0",
    );
    let series: Vec<&str> =
        page.lines().filter(|line| line.starts_with("keelson_postgres_replication_lag_seconds{")).collect();
    let distinct: BTreeSet<&str> = series.iter().copied().collect();
    assert_eq!((series.len(), distinct.len()), (32, 32));
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_when_somebody_looks_though_not_each_time() {
    let bed = Bed::new(|_| at_once(Some(numbers())), || true);
    assert_eq!(bed.asked(), 0);
    for _ in 0..5 {
        bed.look().await;
    }
    assert_eq!(bed.asked(), 1);
    tokio::time::advance(FRESH).await;
    bed.look().await;
    assert_eq!(bed.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_hangs_holds_nobody_up_and_is_asked_once() {
    let hangs = || Box::pin(std::future::pending()) as BoxFuture<'static, Option<Numbers>>;
    let bed = Bed::new(move |_| hangs(), || false);
    for _ in 0..20 {
        let begun = Instant::now();
        let page = bed.look().await;
        assert_eq!(begun.elapsed(), PATIENCE);
        assert_line(&page, "keelson_postgres_up 0.0");
        assert_line(&page, "keelson_agent_epoch 7.0");
        tokio::time::advance(FRESH).await;
    }
    assert_eq!(bed.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_known_before_it_hung_is_shown_for_a_while() {
    let answer = |asked| match asked {
        0 => at_once(Some(numbers())),
        _ => Box::pin(std::future::pending()),
    };
    let bed = Bed::new(answer, || false);
    bed.look().await;
    tokio::time::advance(FRESH).await;
    let page = bed.look().await;
    assert_line(&page, "keelson_postgres_up 0.0");
    assert_line(&page, "keelson_postgres_max_connections 100.0");
    tokio::time::advance(KEPT).await;
    assert!(!bed.look().await.contains("max_connections"), "by then it is no longer true");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_not_a_hang() {
    let slow = || async {
        tokio::time::sleep(2 * PATIENCE).await;
        Some(numbers())
    };
    let bed = Bed::new(move |_| Box::pin(slow()), || true);
    assert_line(&bed.look().await, "keelson_postgres_up 0.0");
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_line(&bed.look().await, "keelson_postgres_up 1.0");
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_that_was_stopped_has_no_numbers() {
    let bed = Bed::new(|asked| at_once((asked == 0).then(numbers)), || true);
    assert_line(&bed.look().await, "keelson_postgres_up 1.0");
    tokio::time::advance(FRESH).await;
    let page = bed.look().await;
    assert_line(&page, "keelson_postgres_up 0.0");
    assert!(!page.contains("max_connections"), "{page}");
}

#[test]
fn before_there_is_a_database_it_is_not_up() {
    let metrics = Metrics::new("keelson_agent");
    let _exporter = Exporter::new(&metrics);
    assert_line(&metrics.render_plain(), "keelson_postgres_up 0.0");
}

/// The names in the document's tables that begin in some way.
fn documented(prefixes: &[&str]) -> BTreeSet<String> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let names = rows.map(|(name, _)| name.split('{').next().unwrap_or_default());
    let names = names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    names.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn the_document_lists_every_metric_and_no_other() {
    let page = Bed::new(|_| at_once(Some(numbers())), || true).look().await;
    let shown = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let shown: BTreeSet<String> = shown.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(documented(&["keelson_agent_", "keelson_postgres_", "process_"]), shown);
}
