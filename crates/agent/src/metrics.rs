//! The database's numbers, for those who watch over it: asked for when somebody looks, though not more often
//! than is cheap, and shown beside the agent's own.
//!
//! Nobody waits long for a database that does not answer: what is known is shown, with `keelson_postgres_up` 0.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use keelson_api::instance::{DrillNote, Report};
use keelson_engine::postgres::{Metrics as Numbers, Postgres};
use keelson_kit::serve::{Handler, handler};
use keelson_kit::telemetry::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::facts::Facts;
use crate::families::{Page, agent, asked, backup, postgres, volume};
use crate::room::Room;
use crate::settings::Known as Settings;

/// So many databases have series of their own, the oldest. All are in the number of databases.
pub const MOST_DATABASES: usize = 64;
/// An answer is good for so long: sizes of databases are summed up file by file.
const FRESH: Duration = Duration::from_secs(10);
/// An older answer is shown for so long while the next one is waited for.
const KEPT: Duration = Duration::from_secs(60);
/// So long a look waits for the answer. Who collects gives up after 10 s by custom.
const PATIENCE: Duration = Duration::from_secs(2);
/// So long a question may go unanswered before it is given up. Until then no other is put: each would hold a
/// connection for as long as the database hangs.
const ANSWER: Duration = Duration::from_secs(600);

/// Asks the database for its numbers. Nothing is why not.
type Ask = Box<dyn Fn() -> BoxFuture<'static, Option<Numbers>> + Send + Sync>;

/// How leadership stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// Whether this instance leads without a Lease that says so, since others confirm it.
    pub failsafe: bool,
    /// When somebody was last known to lead.
    pub led_at: Option<std::time::Instant>,
    /// How drills of its backups went, where there are any.
    pub drill: Option<DrillNote>,
}

/// Where numbers come from.
struct Source {
    ask: Ask,
    /// Whether the database answered when it was last looked at.
    answers: Box<dyn Fn() -> bool + Send + Sync>,
    reports: watch::Receiver<Report>,
    standing: watch::Receiver<Standing>,
    settings: watch::Receiver<Settings>,
    room: watch::Receiver<Room>,
}

/// What is known of the database's numbers.
#[derive(Default)]
struct Known {
    /// Whether the question under way, or the last one, has its answer.
    answered: Option<watch::Receiver<bool>>,
    asked: Option<Instant>,
    answer: Option<(Instant, Numbers)>,
}

/// The numbers of the database. Clones are the same.
#[derive(Clone, Default)]
pub struct Exporter(Arc<Inner>);

#[derive(Default)]
struct Inner {
    source: OnceLock<Source>,
    known: Arc<Mutex<Known>>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    /// Shown with the agent's metrics. There are none as yet: see [`Exporter::begin`].
    pub fn new(metrics: &Metrics) -> Exporter {
        let exporter = Exporter::default();
        metrics.common(|registry| registry.register_collector(Box::new(exporter.clone())));
        exporter
    }

    /// From now on there is a database to ask.
    pub(crate) fn begin(
        &self,
        engine: Arc<Postgres>,
        facts: watch::Receiver<Facts>,
        reports: watch::Receiver<Report>,
        standing: watch::Receiver<Standing>,
        settings: watch::Receiver<Settings>,
        room: watch::Receiver<Room>,
    ) {
        let ask = move || {
            let engine = engine.clone();
            let numbers = async move { engine.metrics(ANSWER, MOST_DATABASES).await };
            let told =
                async move { numbers.await.inspect_err(|error| tracing::debug!(%error, "no numbers")) };
            Box::pin(async move { told.await.ok() }) as BoxFuture<'static, Option<Numbers>>
        };
        let answers = move || facts.borrow().status.is_some();
        let (ask, answers) = (Box::new(ask), Box::new(answers));
        self.set(Source { ask, answers, reports, standing, settings, room });
    }

    fn set(&self, source: Source) {
        // There is one database in the life of an agent.
        let _ = self.0.source.set(source);
    }

    /// Pages before which the numbers are asked for, if metrics are what somebody wants to see.
    pub fn before(&self, pages: Handler) -> Handler {
        let exporter = self.clone();
        handler(move |request: Request<Bytes>| {
            let (exporter, pages) = (exporter.clone(), pages.clone());
            async move {
                if request.uri().path() == "/metrics" {
                    exporter.refresh().await;
                }
                pages(request).await
            }
        })
    }

    /// Asks, if what is known is no longer new, and waits for the answer, but not for long.
    async fn refresh(&self) {
        if let Some(mut answered) = self.ask() {
            let _ = tokio::time::timeout(PATIENCE, answered.wait_for(|answered| *answered)).await;
        }
    }

    /// The question under way, which is put if it is time.
    fn ask(&self) -> Option<watch::Receiver<bool>> {
        let source = self.0.source.get()?;
        let mut known = self.known();
        // A question whose task is gone has no answer to come.
        let open = |answered: &&watch::Receiver<bool>| !*answered.borrow() && answered.has_changed().is_ok();
        if let Some(answered) = known.answered.as_ref().filter(open) {
            return Some(answered.clone());
        }
        if known.asked.is_some_and(|asked| asked.elapsed() < FRESH) {
            return None;
        }
        let (done, answered) = watch::channel(false);
        known.answered = Some(answered.clone());
        known.asked = Some(Instant::now());
        let (numbers, shared) = ((source.ask)(), self.0.known.clone());
        tokio::spawn(async move {
            let numbers = numbers.await;
            lock(&shared).answer = numbers.map(|numbers| (Instant::now(), numbers));
            let _ = done.send(true);
        });
        Some(answered)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0.known)
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // Every change of it is one assignment.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collector for Exporter {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut page = Page::new(encoder);
        let Some(source) = self.0.source.get() else { return postgres(&mut page, false, None) };
        agent(&mut page, &source.reports.borrow(), *source.standing.borrow())?;
        backup(&mut page, &source.reports.borrow())?;
        asked(&mut page, &source.settings.borrow().settings)?;
        volume(&mut page, *source.room.borrow())?;
        let known = self.known();
        let recent = known.answer.as_ref().filter(|(at, _)| at.elapsed() < KEPT);
        let numbers = recent.map(|(_, numbers)| numbers);
        postgres(&mut page, numbers.is_some() && (source.answers)(), numbers)
    }
}

#[cfg(test)]
mod tests;
