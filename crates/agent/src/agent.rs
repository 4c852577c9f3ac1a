//! The loop: facts in, decisions out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{Names, Report, annotations, paths, ports, reasons};
use keelson_api::v1::Role;
use keelson_api::v1::{Durability, StandbyPolicy};
use keelson_engine::postgres::{self, Postgres};
use keelson_engine::{Layout, reap};
use keelson_ha::{Input, Instance, Machine, Quorum, Receiving, Request, Running, Settings, Standby, Target};
use keelson_kit::client::Deadlines;
use keelson_kit::health::Health;
use keelson_kit::serve::Handler;
use keelson_kit::telemetry::Metrics;
use keelson_kit::{admin, client, manager, serve};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::rustls::ServerConfig;

use crate::asking::Asking;
use crate::credentials;
use crate::driver::{Driver, Wanted};
use crate::environment::{Environment, EnvironmentError};
use crate::facts::{Facts, Leave, Order};
use crate::lease::{self, Leases};
use crate::metrics::Exporter;
use crate::peers::{self, Peers, PeersError};
use crate::report::{label, stepped, tell};
use crate::routing;
use crate::settings::{self, Known};

/// Why an agent can't run at all.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The pod is not one of Keelson's.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// No client can be made for the API server.
    #[error("no way to the API server is known: {0}")]
    Api(#[from] kube::Error),
    /// The volume or the image is not what it should be.
    #[error(transparent)]
    Engine(#[from] keelson_engine::Error),
    /// A port can't be had.
    #[error("listening on port {port}: {source}")]
    Port {
        /// Which.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The page for other agents can't be served.
    #[error(transparent)]
    Peers(#[from] PeersError),
}

/// A heartbeat older than this is none.
const FRESH: Duration = Duration::from_secs(5);
/// How often mounted Secrets are read.
const SECRETS: Duration = Duration::from_secs(5);

/// Runs until the process is told to stop, and then until the database has ended in good order and
/// leadership is with somebody else, or nobody.
pub async fn run() -> Result<(), AgentError> {
    let here = Environment::read(|name| std::env::var(name).ok())?;
    let metrics = Metrics::new("keelson_agent");
    metrics.build(env!("CARGO_PKG_VERSION"));
    let deadlines = Deadlines {
        connect: Duration::from_secs(1),
        request: Duration::from_secs(3),
        ..Deadlines::default()
    };
    let client = client::connect(deadlines, &metrics).await?;
    tokio::spawn(reap::reap_forever());
    let health = Health::new();
    let exporter = Exporter::new(&metrics);
    serve_pages(&metrics, &health, &exporter).await?;

    let known = settings::follow(client.clone(), &here).await;
    let credentials = mounted_secrets().await;
    let restart = restarts(client.clone(), &here).await;
    let wanted = gather(&here, known.clone(), credentials.clone(), restart).await;
    let settings = wanted.borrow().engine.clone();
    let engine = Arc::new(Postgres::open(Layout::default(), settings).await?);
    let (target, targets) = watch::channel(Order { number: 0, target: Target::Wait });
    let (nudge, leave) = (Arc::new(Notify::new()), Leave::default());
    let facts =
        Driver::start(here.clone(), engine.clone(), targets, wanted.clone(), nudge.clone(), leave.clone())
            .await?;
    let (report, reports) = watch::channel(Report::default());
    let (ask, questions) = mpsc::channel(16);
    exporter.begin(engine, facts.clone(), reports.clone());
    let listener = listen(ports::AGENT).await?;
    let page = peers::page(reports.clone(), ask);
    tokio::spawn(serve_peers(listener, peers::tls()?, page, credentials.clone()));
    tokio::spawn(tell_all(client.clone(), here.clone(), reports.clone(), known.clone()));
    let shown = reports.clone();
    health.ready("database", move || readiness(&shown.borrow()));

    Agent { here, client, metrics, known, credentials, facts, target, report, questions, nudge, leave }
        .lead()
        .await;
    Ok(())
}

async fn listen(port: u16) -> Result<TcpListener, AgentError> {
    serve::listen(port).await.map_err(|source| AgentError::Port { port, source })
}

/// Metrics and health on one port: a container of somebody else's has few to spare.
async fn serve_pages(metrics: &Metrics, health: &Health, exporter: &Exporter) -> Result<(), AgentError> {
    let listener = listen(ports::METRICS).await?;
    let pages = exporter.before(admin::pages(Some(metrics.clone()), Some(health.clone())));
    tokio::spawn(serve::serve(listener, None, pages, std::future::pending()));
    Ok(())
}

/// Serves other agents, with the certificate that is mounted at the time: it is renewed while this runs.
async fn serve_peers(
    mut listener: TcpListener,
    mut tls: Arc<ServerConfig>,
    page: Handler,
    mut credentials: watch::Receiver<Result<credentials::Credentials, String>>,
) {
    let mark = |found: &Result<credentials::Credentials, String>| found.as_ref().ok().map(|it| it.tls);
    loop {
        let served = mark(&credentials.borrow_and_update());
        let changed = async {
            let other = |found: &Result<_, _>| mark(found).is_some_and(|mark| Some(mark) != served);
            if credentials.wait_for(other).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        serve::serve(listener, Some(tls.clone()), page.clone(), changed).await;
        tracing::info!("the certificate has changed");
        listener = loop {
            match (serve::listen(ports::AGENT).await, peers::tls()) {
                (Ok(listener), Ok(found)) => {
                    tls = found;
                    break listener;
                }
                (listened, made) => {
                    let error = listened.err().map(|error| error.to_string());
                    let wrong = made.err().map(|error| error.to_string());
                    tracing::error!(?error, ?wrong, "other agents can't be answered");
                    tokio::time::sleep(SECRETS).await;
                }
            }
        };
    }
}

fn readiness(report: &Report) -> Result<(), String> {
    match report.role {
        Role::Primary if report.writable => Ok(()),
        Role::Replica | Role::Synchronous => Ok(()),
        _ => Err(report.problem.clone().unwrap_or_else(|| "it does not serve yet".to_owned())),
    }
}

/// The credentials, now and whenever they change. Damaged ones are told of and waited for.
async fn mounted_secrets() -> watch::Receiver<Result<credentials::Credentials, String>> {
    let (sender, receiver) = watch::channel(credentials::read());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SECRETS).await;
            let found = credentials::read();
            sender.send_if_modified(|current| {
                let changed = *current != found;
                *current = found;
                changed
            });
        }
    });
    receiver
}

/// The token that asks for a restart, now and whenever it changes. One that was there before this process
/// has had its restart by that.
async fn restarts(client: Client, here: &Environment) -> watch::Receiver<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(client, &here.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", here.pod));
    let token = |pod: Pod| pod.metadata.annotations.and_then(|mut all| all.remove(annotations::RESTART));
    let mut seen = watcher(pods, config).default_backoff().applied_objects().boxed();
    let first = async {
        loop {
            if let Some(Ok(pod)) = seen.next().await {
                return token(pod);
            }
        }
    };
    let first = tokio::time::timeout(Duration::from_secs(5), first).await.unwrap_or_default();
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        while let Some(pod) = seen.next().await {
            let Ok(pod) = pod else { continue };
            let token = token(pod);
            sender.send_if_modified(|current| {
                let changed = *current != token;
                *current = token;
                changed
            });
        }
    });
    receiver
}

/// All that is wanted of the database, now and whenever it changes. Begins when the Secrets are whole.
async fn gather(
    here: &Environment,
    mut known: watch::Receiver<Known>,
    mut credentials: watch::Receiver<Result<credentials::Credentials, String>>,
    mut restart: watch::Receiver<Option<String>>,
) -> watch::Receiver<Wanted> {
    let whole = loop {
        match &*credentials.borrow_and_update() {
            Ok(whole) => break whole.clone(),
            Err(damage) => tracing::error!(damage, "the database can't be started without its Secrets"),
        }
        if credentials.changed().await.is_err() {
            return std::future::pending().await;
        }
    };
    let here = here.clone();
    let first = wanted(&here, &known.borrow_and_update(), whole, restart.borrow_and_update().clone());
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = known.changed() => if changed.is_err() { return },
                changed = credentials.changed() => if changed.is_err() { return },
                changed = restart.changed() => if changed.is_err() { return },
            }
            // Damaged Secrets change nothing: what was known stays in force.
            let Ok(whole) = credentials.borrow_and_update().clone() else { continue };
            let next = wanted(&here, &known.borrow_and_update(), whole, restart.borrow_and_update().clone());
            let _ = sender.send(next);
        }
    });
    receiver
}

fn wanted(
    here: &Environment,
    known: &Known,
    credentials: credentials::Credentials,
    restart: Option<String>,
) -> Wanted {
    let file = |name: &str| std::path::Path::new(paths::TLS).join(name);
    let engine = postgres::Settings {
        name: here.pod.clone(),
        port: ports::POSTGRES,
        listen: "*".to_owned(),
        resources: postgres::Resources {
            memory: here.memory,
            cpu_millis: here.cpu_millis,
            volume: volume_size(),
        },
        parameters: known.settings.parameters.clone(),
        tls: Some(postgres::Tls { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") }),
        plain: false,
        replication: postgres::Credentials {
            role: credentials.replication.name.clone(),
            password: credentials.replication.password.clone(),
        },
        archive_command: None,
    };
    Wanted {
        engine,
        instance: known.settings.clone(),
        fingerprint: known.fingerprint.clone(),
        credentials,
        restart,
    }
}

/// The size of the volume, as it is now.
fn volume_size() -> u64 {
    let found = nix::sys::statvfs::statvfs(paths::VOLUME);
    found.map(|found| found.blocks() * found.fragment_size()).unwrap_or_default()
}

/// Tells what there is to tell, whenever it changes, until it has been heard.
async fn tell_all(
    client: Client,
    here: Environment,
    mut reports: watch::Receiver<Report>,
    known: watch::Receiver<Known>,
) {
    let mut told: Option<(Report, &'static str)> = None;
    loop {
        let report = reports.borrow_and_update().clone();
        let readers = known.borrow().settings.failover.max_reader_lag_bytes;
        let next = (report.clone(), label(&report, readers));
        if told.as_ref() != Some(&next) {
            match tell(&client, &here, &report, next.1).await {
                Ok(()) => told = Some(next),
                Err(error) => {
                    tracing::debug!(%error, "the report could not be written");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            }
        }
        if reports.changed().await.is_err() {
            return;
        }
    }
}

struct Agent {
    here: Environment,
    client: Client,
    metrics: Metrics,
    known: watch::Receiver<Known>,
    credentials: watch::Receiver<Result<credentials::Credentials, String>>,
    facts: watch::Receiver<Facts>,
    target: watch::Sender<Order>,
    report: watch::Sender<Report>,
    questions: mpsc::Receiver<peers::Asked>,
    nudge: Arc<Notify>,
    leave: Leave,
}

impl Agent {
    async fn lead(mut self) {
        let name = Names(&self.here.database).lease();
        let api: Api<LeaseObject> = Api::namespaced(self.client.clone(), &self.here.namespace);
        let leases = Leases::new(api.clone(), name.clone(), self.here.clone());
        let (answers, mut answered) = mpsc::channel(16);
        let mut asking = Asking::new(Peers::new(self.here.clone()), answers.clone());
        let mut seen = watcher(api, watcher::Config::default().fields(&format!("metadata.name={name}")))
            .default_backoff()
            .applied_objects()
            .boxed();
        let mut machine = Machine::new(self.here.identity(), times(&self.known.borrow_and_update()));
        let mut stop = std::pin::pin!(manager::told_to_stop());
        let mut stopping = false;
        // The newest version that was read or written: a watch may be behind.
        let mut newest = 0;
        let mut routed = None;
        let mut strays = routing::strays(&self.client, &self.here);
        let mut input = Input::Instance(self.learned());
        loop {
            let now = Instant::now();
            match &input {
                Input::Written { version, .. } => newest = newest.max(version.parse().unwrap_or_default()),
                Input::Read(Some(lease)) => newest = newest.max(lease::version(lease)),
                _ => {}
            }
            let request = machine.step(input, now);
            self.leave.set(machine.leave(now));
            if let Some(request) = request {
                self.carry_out(&leases, request, &answers);
            }
            self.target.send_if_modified(|current| {
                let target = machine.target(now);
                let changed = current.target != target;
                if changed {
                    *current = Order { number: current.number + 1, target };
                }
                changed
            });
            asking.go_on(&machine, now);
            self.metrics.leading(machine.leads(now));
            let report = self.compose(&machine, now);
            self.route(&mut routed, &machine, &report, now);
            self.report.send_if_modified(|current| {
                let changed = *current != report;
                *current = report;
                changed
            });
            if machine.may_end(now) {
                return;
            }
            let wake = machine.wake(now).min(asking.wake(&machine, now));
            let wake = tokio::time::Instant::from_std(wake);
            input = tokio::select! {
                Some(answer) = answered.recv() => answer,
                Some(found) = seen.next() => match found.ok().map(lease::read) {
                    Some(lease) if lease::version(&lease) > newest => {
                        newest = lease::version(&lease);
                        if lease.holder.is_none() {
                            // Whose it is to take may follow from how far the log is by now.
                            self.nudge.notify_one();
                        }
                        Input::Seen(lease)
                    }
                    _ => Input::Tick,
                },
                Ok(()) = self.facts.changed() => Input::Instance(self.learned()),
                Ok(()) = self.known.changed() => Input::Settings(times(&self.known.borrow_and_update())),
                Some((question, answer)) = self.questions.recv() => {
                    // It is answered with what it changes.
                    let now = Instant::now();
                    let request = machine.step(Input::Asked(question), now);
                    self.leave.set(machine.leave(now));
                    let _ = answer.send(machine.answer());
                    if let Some(request) = request {
                        self.carry_out(&leases, request, &answers);
                    }
                    Input::Tick
                }
                // Somebody has changed it: as the leader, it is led here once more.
                Some(()) = strays.next() => {
                    routed = None;
                    Input::Tick
                }
                () = &mut stop, if !stopping => {
                    stopping = true;
                    Input::Stop
                }
                () = tokio::time::sleep_until(wake) => Input::Tick,
            };
        }
    }

    /// What is known of the database. That nothing comes in any more counts only for the order that is in
    /// force: under an earlier one it may have been cut off, and under the one between it may follow again.
    fn learned(&mut self) -> Instance {
        let facts = self.facts.borrow_and_update();
        let mut instance = facts.instance.clone();
        if facts.order != self.target.borrow().number && instance.receiving == Receiving::Cut {
            instance.receiving = Receiving::Waiting;
        }
        instance
    }

    /// Asks the API server, and hands the answer to the loop.
    fn carry_out(&self, leases: &Leases, request: Request, answers: &mpsc::Sender<Input>) {
        let times = times(&self.known.borrow());
        let (leases, answers) = (leases.clone(), answers.clone());
        tokio::spawn(async move {
            let deadline = times.ttl.saturating_sub(times.margin) / 2;
            let _ = answers.send(leases.carry_out(request, deadline).await).await;
        });
    }

    /// Leads writers here as soon as this instance takes writes: once an epoch, unless somebody undoes it.
    fn route(&self, routed: &mut Option<u64>, machine: &Machine, report: &Report, now: Instant) {
        let epoch = machine.leader().map(|(_, epoch)| epoch).filter(|_| machine.leads(now));
        if epoch.is_none() || report.role != Role::Primary || *routed == epoch {
            return;
        }
        *routed = epoch;
        let (client, here, leave) = (self.client.clone(), self.here.clone(), self.leave.clone());
        tokio::spawn(async move {
            // As often as it takes, and while this instance leads. What comes too late all the same is undone by
            // who leads then.
            while leave.is_given() {
                let Err(error) = routing::lead_here(&client, &here).await else { return };
                tracing::warn!(%error, "writers could not be led here yet");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }

    fn compose(&self, machine: &Machine, now: Instant) -> Report {
        let facts = self.facts.borrow();
        let leads = machine.leads(now);
        let status = facts.status.as_ref();
        let primary =
            facts.instance.running == Running::Primary && status.is_some_and(|status| !status.in_recovery);
        let named = |quorum: &Quorum| quorum.count > 0 && quorum.names.contains(&self.here.pod);
        let role = match facts.instance.running {
            _ if facts.joining => Role::Joining,
            Running::Primary if leads && primary => Role::Primary,
            Running::Replica if facts.followed && machine.quorum().is_some_and(named) => Role::Synchronous,
            Running::Replica if facts.followed => Role::Replica,
            Running::Replica => Role::Joining,
            _ => Role::Unknown,
        };
        let behind =
            status.and_then(|status| Some(status.receiver.as_ref()?.latest_end?.since(status.position())));
        let (leader, epoch) = machine.leader().unwrap_or_default();
        let damage = self.credentials.borrow().as_ref().err().cloned();
        let damage = damage.map(|damage| (reasons::SECRETS_DAMAGED.to_owned(), damage));
        let (reason, problem) = damage.or_else(|| facts.trouble.clone()).unzip();
        let mut followers: Vec<String> =
            facts.instance.standbys.iter().filter(|one| one.streaming).map(|one| one.name.clone()).collect();
        followers.sort();
        Report {
            followers: (role == Role::Primary).then_some(followers),
            role,
            timeline: status.map(|status| status.timeline.into()),
            lag_bytes: behind.map(stepped),
            writable: role == Role::Primary
                && is_confirmed(&facts.instance)
                && facts.instance.written.is_some_and(|last| now < last + FRESH),
            version: status.map(|status| status.version.clone()),
            system_id: match &facts.instance.data {
                keelson_ha::Data::Present { system, .. } => Some(system.clone()),
                keelson_ha::Data::None => None,
            },
            pending_restart: status.is_some_and(|status| !status.pending_restart.is_empty()),
            lowering: facts.floored || status.is_some_and(|status| status.lowering),
            settings: facts.fingerprint.clone(),
            restarted: facts.restarted.clone(),
            problem,
            reason,
            leader: leader.to_owned(),
            epoch,
        }
    }
}

/// Whether commits get the acknowledgements that they wait for.
fn is_confirmed(instance: &Instance) -> bool {
    let counts = |one: &&Standby| one.streaming && instance.commits.names.contains(&one.name);
    instance.commits.is_fenced() || instance.standbys.iter().filter(counts).count() >= instance.commits.count
}

fn times(known: &Known) -> Settings {
    let times = known.settings.failover;
    Settings {
        ttl: Duration::from_millis(times.ttl_millis),
        look: Duration::from_millis(times.look_millis),
        margin: Duration::from_millis(times.margin_millis),
        instances: known.settings.replicas,
        system: known.settings.system.clone(),
        synchronous: known.settings.durability.mode == Durability::Quorum,
        required: known.settings.durability.when_alone == StandbyPolicy::Required,
        max_lag: times.max_lag_bytes,
    }
}
