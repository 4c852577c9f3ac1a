//! What the operator counts besides what any does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use keelson_kit::controller::Key;
use keelson_kit::telemetry::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    namespace: String,
    phase: String,
}

/// How many Databases there are, by namespace and phase, as whoever leads knows them: others show none, so
/// that a sum over all operators counts each once. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    gauge: Family<Of, Gauge>,
    known: Arc<Mutex<HashMap<Key, String>>>,
    drills: Family<Ended, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

impl Databases {
    /// Adds them to an operator's metrics.
    pub fn new(metrics: &Metrics) -> Databases {
        let databases = Databases::default();
        let (gauge, drills) = (databases.gauge.clone(), databases.drills.clone());
        metrics.registry(|own| {
            own.register("databases_total", "Databases by namespace and phase", gauge);
            own.register("drills", "Drills of backups that have ended, by how", drills);
        });
        databases
    }

    /// A Database is in this phase.
    pub fn is(&self, key: &Key, phase: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(key) {
            Some(before) if before == phase => return,
            Some(before) => {
                self.add(key, before, -1);
                *before = phase.to_owned();
            }
            None => drop(known.insert(key.clone(), phase.to_owned())),
        }
        self.add(key, phase, 1);
    }

    /// A drill has ended, if one has.
    pub fn drilled(&self, passed: Option<bool>) {
        if let Some(passed) = passed {
            let result = if passed { "succeeded" } else { "failed" };
            self.drills.get_or_create(&Ended { result }).inc();
        }
    }

    /// There is no such Database any more.
    pub fn gone(&self, key: &Key) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.remove(key) {
            self.add(key, &before, -1);
        }
    }

    /// Nothing is known of any.
    pub fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.gauge.clear();
    }

    fn add(&self, key: &Key, phase: &str, number: i64) {
        let of = Of { namespace: key.namespace.clone(), phase: phase.to_owned() };
        let left = self.gauge.get_or_create(&of).inc_by(number) + number;
        if left == 0 {
            self.gauge.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use keelson_kit::controller::Ended;
    use keelson_kit::retry::Class;
    use keelson_kit::webhook::Outcome;

    use super::*;

    #[test]
    fn each_database_counts_once_in_the_phase_it_is_in() {
        let metrics = Metrics::new("keelson");
        let databases = Databases::new(&metrics);
        let key = |name: &str| Key { namespace: "shop".into(), name: name.into() };
        databases.is(&key("a"), "Creating");
        databases.is(&key("a"), "Running");
        databases.is(&key("a"), "Running");
        databases.is(&key("b"), "Running");
        let text = metrics.render();
        assert!(text.contains("keelson_databases_total{namespace=\"shop\",phase=\"Running\"} 2"), "{text}");
        assert!(!text.contains("Creating"), "{text}");
        databases.gone(&key("a"));
        databases.gone(&key("a"));
        assert!(metrics.render().contains("phase=\"Running\"} 1"));
        databases.forget();
        assert!(!metrics.render().contains("phase"));
        databases.is(&key("b"), "Running");
        assert!(metrics.render().contains("phase=\"Running\"} 1"));
    }

    /// The names in the document's tables, but for those of agents.
    fn documented() -> BTreeSet<String> {
        let document = include_str!("../../../docs/metrics.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let names = rows.map(|(name, _)| name.split('{').next().unwrap_or_default());
        let agents =
            |name: &&str| ["keelson_agent_", "keelson_postgres_"].iter().any(|of| name.starts_with(of));
        names.filter(|name| !agents(name)).map(str::to_owned).collect()
    }

    #[test]
    fn the_document_lists_every_metric_and_no_other() {
        let metrics = Metrics::new(crate::NAME);
        let second = Duration::from_secs(1);
        metrics.build("1.2.3");
        metrics.certificate(|| Some(jiff::Timestamp::UNIX_EPOCH));
        metrics.round("Database", Ended::Panicked, second);
        metrics.load("Database", 1, 1);
        metrics.retry("Database", Class::Transient);
        metrics.request("get", 200, second);
        metrics.watch_restarted("Database");
        metrics.review("/convert", Outcome::Done, second);
        let databases = Databases::new(&metrics);
        databases.is(&Key { namespace: "shop".into(), name: "a".into() }, "Running");
        databases.drilled(Some(true));
        let page = metrics.render_plain();
        let shown = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let shown: BTreeSet<String> = shown.map(|(name, _)| name.to_owned()).collect();
        assert_eq!(documented(), shown);
    }
}
