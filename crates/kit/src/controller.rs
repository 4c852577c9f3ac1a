//! The loop of a controller: the shell around [`crate::queue`].
//!
//! What changes comes in as a stream of [`Change`]s; for each object that needs it a round of work is
//! started. A round that panics, hangs or fails for ever is its object's affair: it is counted and
//! tried again as its class says, and all other objects go on.
//!
//! Each round is a trace of its own ([`round_span`]). How a round failed is logged in it, so that the line
//! names the object.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{Instrument, Span};

use crate::queue::{Limits, Next, Outcome, Queue};
use crate::retry::{Class, Classify};
use crate::telemetry::logs::{panic_text, reasons};
use crate::telemetry::round_span;
use crate::telemetry::traces::mark_failed;

/// An object, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for an object of the whole cluster.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Something that happened to an object, or to one that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It needs a look.
    Touched(Key),
    /// It is gone, and nothing of it needs a look any more.
    Gone(Key),
}

/// What became of a round, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All is as it should be.
    Well,
    /// It failed, and will be tried again as its class says.
    Failed(Class),
    /// It took longer than it may, and was dropped.
    TooLong,
    /// It panicked.
    Panicked,
}

impl Ended {
    /// The name under which it is counted.
    pub fn label(self) -> &'static str {
        match self {
            Ended::Well => "success",
            Ended::Failed(class) => class.label(),
            Ended::TooLong => "timeout",
            Ended::Panicked => "panic",
        }
    }
}

/// Whoever wants to know how the rounds go: metrics, logs.
pub trait Observer: Send {
    /// A round has ended.
    fn round(&mut self, key: &Key, ended: Ended, took: Duration);
    /// So many objects wait for a round, so many have one.
    fn load(&mut self, waiting: usize, running: usize);
}

/// Nobody wants to know.
impl Observer for () {
    fn round(&mut self, _: &Key, _: Ended, _: Duration) {}
    fn load(&mut self, _: usize, _: usize) {}
}

/// How a controller works.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// What it is called in logs and traces.
    pub name: &'static str,
    /// How much at once, how often.
    pub limits: Limits,
    /// The longest that a round may take.
    pub deadline: Duration,
}

impl Default for Controller {
    fn default() -> Self {
        Controller { name: "controller", limits: Limits::default(), deadline: Duration::from_secs(60) }
    }
}

impl Controller {
    /// Works until the stream of changes ends, and then until the rounds under way have ended. The
    /// result of a round says after how long to look again without a change, if at all.
    pub async fn run<F, E>(
        self,
        changes: impl Stream<Item = Change>,
        reconcile: impl Fn(Key) -> F,
        mut observer: impl Observer,
    ) where
        F: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
        E: Classify + std::error::Error + Send + 'static,
    {
        let mut changes = pin!(changes);
        let mut open = true;
        let mut queue = Queue::<Key>::new(self.limits, now());
        let mut rounds = Rounds::default();
        while open || !rounds.tasks.is_empty() {
            let wake = loop {
                match queue.next(now()) {
                    Next::Start(key) if open => rounds.start(self, key, &reconcile),
                    Next::Start(_) | Next::Idle => break None,
                    Next::At(moment) => break Some(moment),
                }
            };
            observer.load(queue.depth(), queue.running());
            tokio::select! {
                change = changes.next(), if open => match change {
                    Some(Change::Touched(key)) => queue.changed(key, now()),
                    Some(Change::Gone(key)) => queue.forget(&key),
                    None => open = false,
                },
                Some((key, outcome, ended, took)) = rounds.ended() => {
                    observer.round(&key, ended, took);
                    queue.ended(&key, outcome, now(), fastrand::f64());
                }
                () = sleep_until(wake), if wake.is_some() => {}
            }
        }
    }
}

/// The time as the runtime sees it, which a test can stop and move.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn sleep_until(moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment.into()).await;
    }
}

/// The rounds under way. Each is a task of its own, so that a panic ends nothing but itself.
struct Rounds<E> {
    tasks: JoinSet<Result<Result<Option<Duration>, E>, tokio::time::error::Elapsed>>,
    begun: HashMap<Id, Begun>,
}

struct Begun {
    key: Key,
    start: Instant,
    span: Span,
}

impl<E> Default for Rounds<E> {
    fn default() -> Self {
        Rounds { tasks: JoinSet::new(), begun: HashMap::new() }
    }
}

impl<E: Classify + std::error::Error + Send + 'static> Rounds<E> {
    fn start<F>(&mut self, controller: Controller, key: Key, reconcile: impl Fn(Key) -> F)
    where
        F: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    {
        let span = round_span(controller.name, &key);
        let round = span.in_scope(|| reconcile(key.clone()));
        let round = tokio::time::timeout(controller.deadline, round).instrument(span.clone());
        let id = self.tasks.spawn(round).id();
        self.begun.insert(id, Begun { key, start: now(), span });
    }

    /// The next round that ends.
    async fn ended(&mut self) -> Option<(Key, Outcome, Ended, Duration)> {
        let joined = self.tasks.join_next_with_id().await?;
        let id = match &joined {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Begun { key, start, span } = self.begun.remove(&id)?;
        let took = now().saturating_duration_since(start);
        let (outcome, ended, why) = judge(joined.map(|(_, result)| result));
        log(&span, ended, &why, took);
        Some((key, outcome, ended, took))
    }
}

/// What a round comes to, and what went wrong in it.
fn judge<E: Classify + std::error::Error>(
    joined: Result<Result<Result<Option<Duration>, E>, tokio::time::error::Elapsed>, JoinError>,
) -> (Outcome, Ended, String) {
    let transient = Outcome::Failed(Class::Transient);
    match joined {
        Ok(Ok(Ok(again))) => (Outcome::Done { again }, Ended::Well, String::new()),
        Ok(Ok(Err(error))) => {
            let class = error.class();
            (Outcome::Failed(class), Ended::Failed(class), reasons(&error))
        }
        Ok(Err(_)) => (transient, Ended::TooLong, "it took longer than it may".to_owned()),
        Err(error) => {
            let why = match error.try_into_panic() {
                Ok(panic) => panic_text(panic.as_ref()).to_owned(),
                Err(error) => error.to_string(),
            };
            (transient, Ended::Panicked, why)
        }
    }
}

fn log(span: &Span, ended: Ended, why: &str, took: Duration) {
    let seconds = took.as_secs_f64();
    if ended != Ended::Well {
        mark_failed(span);
    }
    span.in_scope(|| match ended {
        Ended::Well => tracing::debug!(seconds, "a round ended well"),
        Ended::Failed(class) => {
            tracing::warn!(class = class.label(), error = why, seconds, "a round failed");
        }
        Ended::TooLong => {
            tracing::warn!(class = Class::Transient.label(), error = why, seconds, "a round was dropped");
        }
        Ended::Panicked => tracing::error!(panic = why, seconds, "a round panicked"),
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed on purpose")]
    struct Failure(Class);

    impl Classify for Failure {
        fn class(&self) -> Class {
            self.0
        }
    }

    fn key(name: &str) -> Key {
        Key { namespace: "default".into(), name: name.into() }
    }

    type Rows = Arc<Mutex<Vec<(String, Ended)>>>;

    struct Rememberer(Rows);

    impl Observer for Rememberer {
        fn round(&mut self, key: &Key, ended: Ended, _: Duration) {
            self.0.lock().unwrap().push((key.name.clone(), ended));
        }
        fn load(&mut self, _: usize, running: usize) {
            assert!(running <= Limits::default().at_once);
        }
    }

    /// Runs a controller over the given changes and so many seconds of time that is not real.
    async fn seconds<F>(
        changes: Vec<Change>,
        length: u64,
        reconcile: impl Fn(Key) -> F,
    ) -> Vec<(String, Ended)>
    where
        F: Future<Output = Result<Option<Duration>, Failure>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        changes.into_iter().for_each(|change| sender.send(change).unwrap());
        let rows = Rows::default();
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|change| (change, receiver))
        });
        let run = Controller::default().run(stream, reconcile, Rememberer(rows.clone()));
        let _ = tokio::time::timeout(Duration::from_secs(length), run).await;
        drop(sender);
        let rows = rows.lock().unwrap();
        rows.clone()
    }

    fn of(rows: &[(String, Ended)], name: &str) -> Vec<Ended> {
        rows.iter().filter(|(row, _)| row == name).map(|(_, ended)| *ended).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_panics_hangs_or_fails_disturbs_no_other() {
        let changes = ["panics", "hangs", "fails", "wrong", "well"].map(|name| Change::Touched(key(name)));
        let rows = seconds(changes.into(), 200, |key| async move {
            match key.name.as_str() {
                "panics" => panic!("on purpose"),
                "hangs" => std::future::pending().await,
                "fails" => Err(Failure(Class::Transient)),
                "wrong" => Err(Failure(Class::Permanent)),
                _ => Ok(Some(Duration::from_secs(10))),
            }
        })
        .await;
        assert!(of(&rows, "panics").len() >= 4 && of(&rows, "panics").iter().all(|e| *e == Ended::Panicked));
        assert!(of(&rows, "hangs").len() >= 2 && of(&rows, "hangs").iter().all(|e| *e == Ended::TooLong));
        assert!(
            (4..=9).contains(&of(&rows, "fails").len()),
            "5 s, 10 s, 20 s, …: {}",
            of(&rows, "fails").len()
        );
        assert_eq!(of(&rows, "wrong"), [Ended::Failed(Class::Permanent)], "it waits for a change");
        assert!(of(&rows, "well").len() >= 19, "every ten seconds, whatever the others do");
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_edits_costs_few_rounds() {
        let storm = vec![Change::Touched(key("hot")); 10_000];
        let rows = seconds(storm, 10, |_| async { Ok(None) }).await;
        assert!((1..=2).contains(&rows.len()), "{}", rows.len());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_done_for_what_is_gone() {
        let rows =
            seconds(vec![Change::Touched(key("a")), Change::Gone(key("a"))], 10, |_| async { Ok(None) })
                .await;
        assert_eq!(rows, []);
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_changes_end_the_rounds_under_way_are_awaited() {
        let changes =
            futures::stream::iter([Change::Touched(key("a"))]).chain(futures::stream::once(async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Change::Touched(key("b"))
            }));
        let rows = Rows::default();
        let reconcile = |_| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, Failure>(None)
        };
        Controller::default().run(changes, reconcile, Rememberer(rows.clone())).await;
        assert_eq!(*rows.lock().unwrap(), [("a".to_owned(), Ended::Well)]);
    }
}
