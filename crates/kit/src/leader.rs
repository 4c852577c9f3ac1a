//! Working only while leading: the shell around [`crate::election`].
//!
//! ```text
//! Leader::new(client, "keelson-system", "keelson-operator", identity)
//!     .run(shutdown, |term| controllers(term))
//!     .await?;
//! ```
//!
//! The work is a future. It is dropped the moment leadership is lost. A future that is dropped may have a
//! request under way, and a process that was paused for a minute goes on exactly where it stood; so
//! the work is also given a [`Term`], and asks it before each write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::election::{Action, Election, Event, Lease, Timing};

/// A candidate for the leadership that one Lease stands for.
pub struct Leader {
    leases: Api<LeaseObject>,
    name: String,
    identity: String,
    timing: Timing,
    looks: Looks,
}

/// How a candidacy goes, for whoever wants to know. The same for all clones.
#[derive(Clone, Debug)]
pub struct Looks {
    start: Instant,
    timing: Timing,
    /// Microseconds since `start`.
    turned: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl Looks {
    fn new(timing: Timing) -> Self {
        Looks { start: Instant::now(), timing, turned: Arc::default(), answered: Arc::default() }
    }

    fn note(&self, what: &AtomicU64) {
        what.store(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    fn since(&self, what: &AtomicU64) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_micros(what.load(Ordering::SeqCst)))
    }

    /// Whether the API server answers about the Lease.
    pub fn answered(&self) -> Result<(), String> {
        match self.since(&self.answered) {
            quiet if quiet < self.timing.term.max(3 * self.timing.look) => Ok(()),
            quiet => {
                Err(format!("the API server has not answered about the Lease for {} s", quiet.as_secs()))
            }
        }
    }

    /// Whether the loop of leadership turns at all.
    pub fn turning(&self) -> Result<(), String> {
        match self.since(&self.turned) {
            still if still < 2 * self.timing.term + Duration::from_secs(30) => Ok(()),
            still => Err(format!("the loop of leadership has stood still for {} s", still.as_secs())),
        }
    }
}

/// The term of a leader: until when it may work. It is the same for all clones, and grows with each
/// renewal.
#[derive(Clone, Debug)]
pub struct Term {
    start: Instant,
    /// Microseconds since `start`; zero once it is over for good.
    until: Arc<AtomicU64>,
}

impl Term {
    fn new() -> Self {
        Term { start: Instant::now(), until: Arc::new(AtomicU64::new(0)) }
    }

    fn set(&self, until: Instant) {
        let micros = until.saturating_duration_since(self.start).as_micros();
        self.until.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
    }

    /// Whether a write may be sent now.
    pub fn holds(&self) -> bool {
        self.start.elapsed() < Duration::from_micros(self.until.load(Ordering::SeqCst))
    }
}

impl Leader {
    /// A candidate. The identity must be this process's alone: a pod's name and something that changes
    /// when it is started again.
    pub fn new(client: Client, namespace: &str, name: &str, identity: impl Into<String>) -> Self {
        Leader {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.into(),
            timing: Timing::default(),
            looks: Looks::new(Timing::default()),
        }
    }

    /// With other times than the default ones.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self.looks = Looks::new(timing);
        self
    }

    /// How it goes, while it runs.
    pub fn looks(&self) -> Looks {
        self.looks.clone()
    }

    /// Does the work whenever this process leads, until `stop` is over; then ends the work and lets the
    /// Lease go, so that another can take it at once. Work that ends by itself is started again
    /// at the next look.
    pub async fn run<F, W>(self, stop: impl Future<Output = ()>, mut work: W)
    where
        F: Future<Output = ()> + Send + 'static,
        W: FnMut(Term) -> F,
    {
        let mut election = Election::new(self.identity.clone(), self.timing);
        let (answers, mut answered) = mpsc::channel(4);
        let mut stop = std::pin::pin!(stop);
        let mut stopping = false;
        let mut term = Term::new();
        // Dropped with this, however that comes.
        let mut working = JoinSet::new();
        let mut again = None;
        loop {
            let now = Instant::now();
            self.looks.note(&self.looks.turned);
            let wake = tokio::time::Instant::from_std(election.wake(now));
            let event = tokio::select! {
                Some(event) = answered.recv() => event,
                // Whether it returned or panicked, it is over.
                Some(_) = working.join_next() => {
                    if !stopping {
                        tracing::error!("the work has ended by itself, and is begun again");
                        again = Some(tokio::time::Instant::now() + self.timing.look);
                    }
                    continue;
                }
                () = until(again) => {
                    again = None;
                    if election.leads(Instant::now()) && !stopping {
                        working.spawn(work(term.clone()));
                    }
                    continue;
                }
                () = &mut stop, if !stopping => {
                    stopping = true;
                    Event::Stop
                }
                () = tokio::time::sleep_until(wake) => Event::Tick,
            };
            if matches!(event, Event::Read(_) | Event::Written { .. }) {
                self.looks.note(&self.looks.answered);
            }
            for action in election.step(event, Instant::now()) {
                match action {
                    Action::Work => {
                        term = Term::new();
                        election.leading_until().into_iter().for_each(|until| term.set(until));
                        working.spawn(work(term.clone()));
                    }
                    Action::Halt => {
                        term.end();
                        again = None;
                        let (mut ending, answers) = (std::mem::take(&mut working), answers.clone());
                        tokio::spawn(async move {
                            ending.shutdown().await;
                            let _ = answers.send(Event::WorkEnded).await;
                        });
                    }
                    Action::End => return,
                    Action::Read => self.ask(&answers, Self::read(self.leases.clone(), self.name.clone())),
                    Action::Write { holder, replaces } => self.ask(&answers, self.write(holder, replaces)),
                }
            }
            if let Some(until) = election.leading_until() {
                term.set(until);
            }
        }
    }

    /// Asks the API server in the background, for no longer than a look takes.
    fn ask(
        &self,
        answers: &mpsc::Sender<Event>,
        request: impl Future<Output = Option<Event>> + Send + 'static,
    ) {
        let (answers, deadline) = (answers.clone(), self.timing.look);
        tokio::spawn(async move {
            let event = tokio::time::timeout(deadline, request).await.ok().flatten().unwrap_or(Event::Failed);
            let _ = answers.send(event).await;
        });
    }

    async fn read(leases: Api<LeaseObject>, name: String) -> Option<Event> {
        let found = leases.get_opt(&name).await.ok()?;
        Some(Event::Read(found.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            Lease {
                version: lease.metadata.resource_version.unwrap_or_default(),
                holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
                term: Duration::from_secs(
                    spec.lease_duration_seconds.unwrap_or(15).max(1).unsigned_abs().into(),
                ),
            }
        })))
    }

    fn write(
        &self,
        holder: Option<String>,
        replaces: Option<String>,
    ) -> impl Future<Output = Option<Event>> + Send + 'static {
        let (leases, name) = (self.leases.clone(), self.name.clone());
        // Times of day are for people who read the Lease; nothing is decided by them.
        let now = Some(MicroTime(Timestamp::now()));
        let lease = LeaseObject {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                resource_version: replaces.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.unwrap_or_default()),
                lease_duration_seconds: i32::try_from(self.timing.term.as_secs()).ok(),
                acquire_time: now.clone(),
                renew_time: now,
                ..LeaseSpec::default()
            }),
        };
        async move {
            let sent = Instant::now();
            let params = PostParams::default();
            let written = match replaces {
                Some(_) => leases.replace(&name, &params, &lease).await,
                None => leases.create(&params, &lease).await,
            };
            let version = written.ok()?.metadata.resource_version?;
            Some(Event::Written { version, sent })
        }
    }
}

async fn until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
