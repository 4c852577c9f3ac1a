//! Everything together: leadership, controllers, webhooks, metrics and health, from start to an
//! orderly end.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::admin;
use crate::certificates::Keeper;
use crate::client::guarded;
use crate::desired::Names;
use crate::election::Timing;
use crate::events::Events;
use crate::health::Health;
use crate::leader::{Leader, Term};
use crate::rbac;
use crate::reconcile::{Kind, Reconciler, World};
use crate::serve::{Handler, handler, serve};
use crate::telemetry::Metrics;
use crate::watch::Source;
use crate::webhook::Webhooks;

/// How long rounds under way may take to end, once the process is to stop.
const GRACE: Duration = Duration::from_secs(10);

/// How long reviews are answered after that: those who ask learn a moment later that it is no longer ready.
const FAREWELL: Duration = Duration::from_secs(3);

/// An operator: kinds that are looked after by whichever of its processes leads.
///
/// ```no_run
/// # async fn example<G: keelson_kit::Reconciler>(greeter: G) -> Result<(), Box<dyn std::error::Error>> {
/// use keelson_kit::{Kind, Manager, client, manager, serve, telemetry::Metrics};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let metrics = Metrics::new("greeter");
/// let client = client::connect(Default::default(), &metrics).await?;
/// Manager::new("greeter", "example.dev", client, metrics)
///     .look_after(Kind::new(greeter).owns::<ConfigMap>())
///     .show(serve::listen(8080).await?, serve::listen(8081).await?)
///     .run(manager::told_to_stop())
///     .await;
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    names: Names,
    client: Client,
    metrics: Metrics,
    health: Health,
    namespace: Option<String>,
    own_namespace: String,
    identity: String,
    timing: Timing,
    kinds: Vec<Arc<dyn Looked>>,
    pages: Option<(TcpListener, TcpListener)>,
    webhooks: Option<(TcpListener, Arc<ServerConfig>, Keeper, Webhooks)>,
}

/// A kind, whichever it is.
trait Looked: Send + Sync {
    fn sources(&self, names: &Names) -> Vec<Arc<Source>>;
    fn rules(&self) -> Vec<PolicyRule>;
    fn run(self: Arc<Self>, world: World, stop: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

impl<R: Reconciler> Looked for Kind<R> {
    fn sources(&self, names: &Names) -> Vec<Arc<Source>> {
        Kind::sources(self, names)
    }

    fn rules(&self) -> Vec<PolicyRule> {
        rbac::of_kind(self)
    }

    fn run(self: Arc<Self>, world: World, stop: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(Kind::run(self, world, stop))
    }
}

impl Manager {
    /// An operator. The name is that of its field manager, its Lease and its children's label; the domain
    /// is that of its annotations and finalizers.
    pub fn new(name: &str, domain: &str, client: Client, metrics: Metrics) -> Manager {
        let own_namespace = client.default_namespace().to_owned();
        // A process that is started again under the same name is another candidate.
        let host = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
        let identity =
            format!("{}_{:08x}", host.unwrap_or_else(|_| name.to_owned()), fastrand::Rng::new().u32(..));
        Manager {
            names: Names { manager: name.to_owned(), domain: domain.to_owned() },
            client,
            metrics,
            health: Health::new(),
            namespace: None,
            own_namespace,
            identity,
            timing: Timing::default(),
            kinds: Vec::new(),
            pages: None,
            webhooks: None,
        }
    }

    /// Shows metrics on one port (8080 by custom) and health on another (8081); see [`admin`].
    pub fn show(mut self, metrics: TcpListener, health: TcpListener) -> Self {
        self.pages = Some((metrics, health));
        self
    }

    /// Answers reviews, with certificates that are kept meanwhile; leading or not, since a webhook that
    /// waits for a leader is a webhook that is away. Without a valid certificate it is not ready.
    pub fn answer(
        mut self,
        listener: TcpListener,
        keeper: Keeper,
        webhooks: Webhooks,
    ) -> Result<Self, rustls::Error> {
        let certificates = keeper.certificates();
        let tls = certificates.tls()?;
        let shown = certificates.clone();
        self.metrics.certificate(move || shown.until());
        self.health.ready("certificates", move || certificates.valid());
        let metrics = self.metrics.clone();
        let webhooks = webhooks.observe(move |path, outcome, took| metrics.review(path, outcome, took));
        self.webhooks = Some((listener, tls, keeper, webhooks));
        Ok(self)
    }

    /// Looks after a kind.
    pub fn look_after<R: Reconciler>(mut self, kind: Kind<R>) -> Self {
        self.kinds.push(Arc::new(kind));
        self
    }

    /// Only in this namespace, instead of all.
    pub fn only_in(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Where the operator itself lives and its Lease is; without this, the client's own namespace.
    pub fn lives_in(mut self, namespace: &str) -> Self {
        self.own_namespace = namespace.to_owned();
        self
    }

    /// How soon another process takes over.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// What is true of this process, shown by [`Manager::show`], to be added to.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// The rights that it needs in each namespace that it looks at, and in its own.
    pub fn rules(&self) -> (Vec<PolicyRule>, Vec<PolicyRule>) {
        (self.kinds.iter().flat_map(|kind| kind.rules()).collect(), rbac::of_leadership())
    }

    /// Works whenever this process leads, until `stop` is over. Then rounds under way are let end, and
    /// the Lease is let go, so that another process can take over at once.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let (drain, draining) = signal::channel(false);
        // Shown until the end.
        let mut pages = JoinSet::new();
        if let Some((metrics, health)) = self.pages.take() {
            let shown = (self.metrics.clone(), self.health.clone());
            pages.spawn(admin::serve(metrics, health, shown.0, shown.1, std::future::pending()));
        }
        let mut answers = JoinSet::new();
        if let Some((listener, tls, keeper, webhooks)) = self.webhooks.take() {
            answers.spawn(keeper.run(raised(draining.clone())));
            let (draining, leaving) = (draining.clone(), draining.clone());
            let stop = async move {
                raised(draining).await;
                tokio::time::sleep(FAREWELL).await;
            };
            let handler = parting(webhooks.handler(), leaving);
            answers.spawn(serve(listener, Some(tls), handler, stop));
        }
        let (done, mut idle) = signal::channel(true);
        let leaving = draining.clone();
        self.health.ready("staying", move || match *leaving.borrow() {
            true => Err("it is about to stop".to_owned()),
            false => Ok(()),
        });
        let watches: Watches = Arc::default();
        let shown = watches.clone();
        self.health.ready("watches", move || alive(&shown));
        let leader =
            Leader::new(self.client.clone(), &self.own_namespace, &self.names.manager, self.identity.clone())
                .timing(self.timing);
        let seen = leader.looks();
        self.health.ready("leadership", move || seen.answered());
        let turns = leader.looks();
        self.health.live("leadership loop", move || turns.turning());

        let stopped = async move {
            stop.await;
            let _ = drain.send(true);
            let _ = tokio::time::timeout(GRACE, idle.wait_for(|idle| *idle)).await;
        };
        let work = |term: Term| {
            let shift = Shift::begin(&done, &watches, &self.metrics);
            self.work(shift, term, &draining)
        };
        leader.run(stopped, work).await;
        while answers.join_next().await.is_some() {}
    }

    /// All controllers, for one term.
    fn work(
        &self,
        shift: Shift,
        term: Term,
        draining: &signal::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let client = guarded(self.client.clone(), term);
        let (events, write_events) = Events::new(client.clone(), &self.names.manager, &self.identity);
        let controllers = self.kinds.iter().map(|kind| {
            let sources = kind.sources(&self.names);
            shift.watches(&sources);
            let world = World {
                client: client.clone(),
                names: self.names.clone(),
                sources,
                namespace: self.namespace.clone(),
                events: events.clone(),
                metrics: self.metrics.clone(),
            };
            kind.clone().run(world, Box::pin(raised(draining.clone())))
        });
        let controllers = join_all(controllers.collect::<Vec<_>>());
        drop(events);
        async move {
            tokio::join!(controllers, write_events);
            // All is drained. The Lease is let go when that has been noticed.
            drop(shift);
            std::future::pending().await
        }
    }
}

/// Over when the flag is raised.
async fn raised(mut flag: signal::Receiver<bool>) {
    let _ = flag.wait_for(|raised| *raised).await;
}

type Watches = Arc<Mutex<Vec<Arc<Source>>>>;

fn alive(watches: &Watches) -> Result<(), String> {
    let watches = watches.lock().unwrap_or_else(PoisonError::into_inner);
    let wrong: Vec<String> = watches.iter().filter_map(|source| source.alive().err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// One term's work. What is said of it elsewhere is put right when it ends, however that comes.
struct Shift {
    idle: signal::Sender<bool>,
    watches: Watches,
    metrics: Metrics,
}

impl Shift {
    fn begin(idle: &signal::Sender<bool>, watches: &Watches, metrics: &Metrics) -> Shift {
        let _ = idle.send(false);
        metrics.leading(true);
        Shift { idle: idle.clone(), watches: watches.clone(), metrics: metrics.clone() }
    }

    fn watches(&self, sources: &[Arc<Source>]) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.extend_from_slice(sources);
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.metrics.leading(false);
        let _ = self.idle.send(true);
    }
}

/// Tells who asks, once this process is about to end, not to ask over the same connection again: a question that
/// is sent over one at the very moment when it is closed would be lost.
fn parting(inner: Handler, leaving: signal::Receiver<bool>) -> Handler {
    handler(move |request| {
        let (answer, leaving) = (inner(request), leaving.clone());
        async move {
            let mut answer = answer.await;
            if *leaving.borrow() {
                let close = http::HeaderValue::from_static("close");
                answer.headers_mut().insert(http::header::CONNECTION, close);
            }
            answer
        }
    })
}

/// Over when the process is told to stop: by SIGTERM, or SIGINT from a terminal.
pub async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        tracing::error!("signals can't be received: it can only be killed");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, StatusCode};

    use super::*;
    use crate::serve::text;

    #[tokio::test]
    async fn who_asks_one_that_is_leaving_is_told_to_come_back_over_another_connection() {
        let (leave, leaving) = signal::channel(false);
        let page = parting(handler(|_| async { text(StatusCode::OK, "yes") }), leaving);
        let closes = async || {
            let answer = page(Request::new(Bytes::new())).await;
            answer.headers().get(http::header::CONNECTION).is_some_and(|word| word == "close")
        };
        assert!(!closes().await);
        leave.send(true).unwrap();
        assert!(closes().await);
    }
}
