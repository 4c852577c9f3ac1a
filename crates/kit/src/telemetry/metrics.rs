//! Metrics in few series, whatever happens.
//!
//! A label can take only so many values: verbs and codes are clamped to those that exist, names of
//! controllers and kinds to the first [`MOST_NAMES`]; the rest is counted as `other`. So no object's
//! name, no odd answer and no mistake of a caller can make the output grow without end.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::process::Process;
use crate::controller::{Ended, Key, Observer};
use crate::retry::Class;
use crate::webhook::Outcome;

/// So many names of controllers, and so many of kinds, have series of their own.
pub const MOST_NAMES: usize = 64;
/// A longer name is not one.
const LONGEST_NAME: usize = 128;
/// What is not counted under its own name.
const OTHER: &str = "other";

const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"];

const ROUND_BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const REQUEST_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Round {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Retry {
    controller: String,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVerb {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    path: String,
    result: &'static str,
}

/// A histogram with given buckets, made for each set of labels.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of an operator. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Those with the operator's prefix.
    own: Mutex<Registry>,
    /// Those whose names are the same for every program.
    common: Mutex<Registry>,
    controllers: Names,
    kinds: Names,
    described: AtomicBool,
    rounds: Histograms<Round>,
    panics: Family<OfController, Counter>,
    waiting: Family<OfController, Gauge>,
    running: Family<OfController, Gauge>,
    retries: Family<Retry, Counter>,
    requests: Family<Request, Counter>,
    request_durations: Histograms<OfVerb>,
    leader: Gauge,
    watch_restarts: Family<OfKind, Counter>,
    paths: Names,
    reviews: Histograms<Review>,
}

impl Metrics {
    /// Metrics whose names begin with the prefix and `_`, and those of the process.
    pub fn new(prefix: &str) -> Self {
        let mut common = Registry::default();
        common.register_collector(Box::new(Process));
        let inner = Inner {
            own: Mutex::new(Registry::with_prefix(prefix)),
            common: Mutex::new(common),
            controllers: Names::default(),
            kinds: Names::default(),
            described: AtomicBool::new(false),
            rounds: Histograms::new_with_constructor(|| Histogram::new(ROUND_BUCKETS)),
            panics: Family::default(),
            waiting: Family::default(),
            running: Family::default(),
            retries: Family::default(),
            requests: Family::default(),
            request_durations: Histograms::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            leader: Gauge::default(),
            watch_restarts: Family::default(),
            paths: Names::default(),
            reviews: Histograms::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
        };
        let metrics = Metrics(Arc::new(inner));
        metrics.registry(|own| metrics.0.register(own));
        metrics
    }

    /// Adds the version of the program, as `<prefix>_build_info`. Only the first call counts.
    pub fn build(&self, version: &str) {
        if self.0.described.swap(true, Ordering::Relaxed) {
            return;
        }
        let info = Family::<Vec<(String, String)>, Gauge>::default();
        info.get_or_create(&vec![("version".to_owned(), version.to_owned())]).set(1);
        self.registry(|own| own.register("build_info", "The version that runs", info));
    }

    /// A round of a controller has ended.
    pub fn round(&self, controller: &str, ended: Ended, took: Duration) {
        let controller = self.0.controllers.bounded(controller);
        if ended == Ended::Panicked {
            self.0.panics.get_or_create(&OfController { controller: controller.clone() }).inc();
        }
        let labels = Round { controller, result: ended.label() };
        self.0.rounds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// So many objects of a controller wait for a round, so many have one.
    pub fn load(&self, controller: &str, waiting: usize, running: usize) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let labels = OfController { controller: self.0.controllers.bounded(controller) };
        self.0.waiting.get_or_create(&labels).set(number(waiting));
        self.0.running.get_or_create(&labels).set(number(running));
    }

    /// A round failed, and will be tried again.
    pub fn retry(&self, controller: &str, class: Class) {
        let labels = Retry { controller: self.0.controllers.bounded(controller), class: class.label() };
        self.0.retries.get_or_create(&labels).inc();
    }

    /// The API server was asked. The code is 0 where no answer came.
    pub fn request(&self, verb: &str, code: u16, took: Duration) {
        let verb = known_verb(verb);
        self.0.requests.get_or_create(&Request { verb, code: known_code(code) }).inc();
        self.0.request_durations.get_or_create(&OfVerb { verb }).observe(took.as_secs_f64());
    }

    /// Whether this process leads from now on.
    pub fn leading(&self, leads: bool) {
        self.0.leader.set(leads.into());
    }

    /// A watch had to be started again.
    pub fn watch_restarted(&self, kind: &str) {
        self.0.watch_restarts.get_or_create(&OfKind { kind: self.0.kinds.bounded(kind) }).inc();
    }

    /// A webhook was asked for a review.
    pub fn review(&self, path: &str, outcome: Outcome, took: Duration) {
        let labels = Review { path: self.0.paths.bounded(path), result: outcome.label() };
        self.0.reviews.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The certificate that webhooks are served with ends at that moment, which is asked for when somebody looks.
    pub fn certificate(&self, until: impl Fn() -> Option<Timestamp> + Send + Sync + 'static) {
        self.registry(|own| own.register_collector(Box::new(Certificate(Box::new(until)))));
    }

    /// Adds metrics of one's own. Their names get the prefix; that their labels are bounded is up to
    /// whoever adds them.
    pub fn registry<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.own.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds metrics whose names are the same whatever program shows them, without the prefix. The same
    /// care is asked for as with [`Metrics::registry`], and names must not begin with the prefix.
    pub fn common<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.common.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An observer that counts the rounds of a controller here.
    pub fn observer(&self, controller: impl Into<String>) -> MetricsObserver {
        MetricsObserver { metrics: self.clone(), controller: controller.into() }
    }

    /// All of them, in the OpenMetrics text format 1.0.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let written = {
            let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
            encode_registry(&mut text, &own)
        };
        // Writing to a string does not fail; a metric of somebody else's may.
        let written = written
            .and_then(|()| self.common(|common| encode_registry(&mut text, common)))
            .and_then(|()| encode_eof(&mut text));
        if let Err(error) = written {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }

    /// All of them, in the older text format of Prometheus (0.0.4), which everything can read.
    pub fn render_plain(&self) -> String {
        plain(&self.render())
    }
}

/// When a certificate ends, if there is one.
struct Certificate(Box<dyn Fn() -> Option<Timestamp> + Send + Sync>);

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Certificate").finish_non_exhaustive()
    }
}

impl Collector for Certificate {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(until) = (self.0)() else { return Ok(()) };
        let help = "When the certificate of the webhooks ends, as a Unix time";
        let name = "webhook_certificate_end_timestamp_seconds";
        let gauge = ConstGauge::new(until.as_second());
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }
}

impl Inner {
    fn register(&self, own: &mut Registry) {
        let help = "How long rounds took, by how they ended";
        own.register("reconciliation_duration_seconds", help, self.rounds.clone());
        own.register("reconciliation_panics", "Rounds that panicked", self.panics.clone());
        own.register("queue_depth", "Objects that wait for a round", self.waiting.clone());
        own.register("reconciliations_running", "Rounds under way", self.running.clone());
        let help = "Failed rounds that are tried again, by the class of the failure";
        own.register("reconciliation_retries", help, self.retries.clone());
        let help = "Requests to the API server, by the answer's code (none: there was no answer)";
        own.register("api_requests", help, self.requests.clone());
        let help = "How long the API server took to answer";
        own.register("api_request_duration_seconds", help, self.request_durations.clone());
        own.register("leader", "1 while this process leads", self.leader.clone());
        let help = "How long webhooks took for a review, by path and how it came out";
        own.register("webhook_duration_seconds", help, self.reviews.clone());
        own.register("watch_restarts", "Watches that had to be started again", self.watch_restarts.clone());
    }
}

/// The names that have series of their own: the first ones that came.
#[derive(Debug, Default)]
struct Names(RwLock<BTreeSet<String>>);

impl Names {
    fn bounded(&self, name: &str) -> String {
        let known = |names: &BTreeSet<String>| names.contains(name);
        if known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return name.to_owned();
        }
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known(&names) && (names.len() >= MOST_NAMES || name.len() > LONGEST_NAME) {
            return OTHER.to_owned();
        }
        names.insert(name.to_owned());
        name.to_owned()
    }
}

fn known_verb(verb: &str) -> &'static str {
    VERBS.into_iter().find(|known| *known == verb).unwrap_or(OTHER)
}

fn known_code(code: u16) -> String {
    let known = |code| http::StatusCode::from_u16(code).is_ok_and(|code| code.canonical_reason().is_some());
    match code {
        0 => "none".to_owned(),
        code if known(code) => code.to_string(),
        _ => OTHER.to_owned(),
    }
}

/// The older format from the newer one: there a counter is called as its samples are, and units,
/// the type `info` and the mark at the end are not known.
fn plain(open_metrics: &str) -> String {
    let kinds: HashMap<&str, &str> =
        open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let suffix = |family: &str| match kinds.get(family) {
        Some(&"counter") => "_total",
        Some(&"info") => "_info",
        _ => "",
    };
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        text += &match words[..] {
            ["#", "EOF" | "UNIT", ..] => continue,
            ["#", "HELP", family, help] => format!("# HELP {family}{} {help}", suffix(family)),
            ["#", "TYPE", family, "info"] => format!("# TYPE {family}_info gauge"),
            ["#", "TYPE", family, "unknown"] => format!("# TYPE {family} untyped"),
            ["#", "TYPE", family, kind] => format!("# TYPE {family}{} {kind}", suffix(family)),
            _ => line.to_owned(),
        };
        text.push('\n');
    }
    text
}

/// Counts the rounds of one controller. Made by [`Metrics::observer`].
#[derive(Clone, Debug)]
pub struct MetricsObserver {
    metrics: Metrics,
    controller: String,
}

impl Observer for MetricsObserver {
    fn round(&mut self, _: &Key, ended: Ended, took: Duration) {
        self.metrics.round(&self.controller, ended, took);
        if let Some(class) = retried_as(ended) {
            self.metrics.retry(&self.controller, class);
        }
    }

    fn load(&mut self, waiting: usize, running: usize) {
        self.metrics.load(&self.controller, waiting, running);
    }
}

/// The class under which a round is tried again, if it is: as [`crate::controller`] does it.
fn retried_as(ended: Ended) -> Option<Class> {
    match ended {
        Ended::Well | Ended::Failed(Class::Permanent) => None,
        Ended::Failed(class) => Some(class),
        Ended::TooLong | Ended::Panicked => Some(Class::Transient),
    }
}

#[cfg(test)]
mod tests;
