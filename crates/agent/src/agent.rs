//! The loop: facts in, decisions out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use keelson_api::instance::{BackupReport, KeptReport, Names, Report, annotations, paths, ports};
use keelson_api::v1::Role;
use keelson_engine::postgres::{self, Postgres};
use keelson_engine::{Layout, reap};
use keelson_ha::{Input, Instance, Machine, Receiving, Request, Restores, Target};
use keelson_kit::client::Deadlines;
use keelson_kit::health::Health;
use keelson_kit::telemetry::Metrics;
use keelson_kit::{admin, client, manager, serve};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::rustls::ServerConfig;

use crate::archiving::{self, Told};
use crate::asking::Asking;
use crate::credentials;
use crate::driver::{Driver, Shell, Wanted};
use crate::environment::{Environment, EnvironmentError};
use crate::facts::{Facts, Leave, Order, Trouble};
use crate::guard::Guard;
use crate::in_place::{self, Survey};
use crate::lease::{self, Leases};
use crate::marks;
use crate::metrics::{Exporter, Standing};
use crate::peers::{self, Peers};
use crate::readers::Readers;
use crate::report::{compose, readiness, tell};
use crate::room::Room;
use crate::routing;
use crate::settings::{self, Known, times};
use crate::slots;
use crate::story::Story;
use crate::trust::{self, TrustError};
use crate::way::Way;

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
    Peers(#[from] TrustError),
}

/// How often it is looked where the others are.
const PLACES: Duration = Duration::from_secs(10);
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
    let room = Room::follow();
    let wanted = gather(&here, known.clone(), credentials.clone(), restart, room.clone()).await;
    let (told, archived) = watch::channel(Told::default());
    let settings = wanted.borrow().engine.clone();
    let engine = Arc::new(Postgres::open(Layout::default(), settings).await?);
    let (target, targets) = watch::channel(Order { number: 0, target: Target::Wait });
    let (nudge, leave) = (Arc::new(Notify::new()), Leave::default());
    let (report, reports) = watch::channel(Report::default());
    let peers = Peers::new(here.clone(), reports.clone());
    let kept = slots::of_the_leader(peers.clone(), reports.clone());
    tokio::spawn(remember_all(here.clone(), peers.clone(), known.clone()));
    let (survey, surveys) = watch::channel(Survey::default());
    let (failed, failures) = watch::channel(None);
    let (put_aside, kept_aside) = watch::channel(None);
    let (restores, settled) = watch::channel(Restores::default());
    let shell = Shell {
        peers: peers.clone(),
        target: targets,
        wanted: wanted.clone(),
        kept,
        room: room.clone(),
        archived: archived.clone(),
        nudge: nudge.clone(),
        leave: leave.clone(),
        survey: surveys.clone(),
        failed,
        put_aside: kept_aside.clone(),
    };
    let facts = Driver::start(here.clone(), engine.clone(), shell).await?;
    let inputs = archiving::Inputs {
        here: here.clone(),
        engine: engine.clone(),
        known: known.clone(),
        facts: facts.clone(),
        reports: reports.clone(),
        room: room.clone(),
    };
    tokio::spawn(in_place::survey(inputs.clone(), settled, survey));
    let shown = known.clone();
    let settings = move || shown.borrow().settings.clone();
    tokio::spawn(in_place::look_after_kept(engine.clone(), settings, put_aside));
    let (backup, backups) = watch::channel(None);
    tokio::spawn(archiving::base::follow(inputs.clone(), backup));
    archiving::follow(inputs, told);
    tokio::spawn(marks::follow(engine.clone(), known.clone(), reports.clone()));
    let (ask, questions) = mpsc::channel(16);
    let (standing, standings) = watch::channel(Standing::default());
    exporter.begin(engine, facts.clone(), reports.clone(), standings, known.clone(), room);
    let listener = listen(ports::AGENT).await?;
    let host = here.host(&here.pod);
    let page = peers::page(&here.pod, reports.clone(), facts.clone(), ask);
    let tls = trust::server(&host)?;
    let tls = served_with(host, tls, credentials.clone());
    tokio::spawn(serve::serve_current(listener, tls, page, std::future::pending()));
    tokio::spawn(tell_all(client.clone(), here.clone(), reports.clone(), facts.clone(), known.clone()));
    let shown = reports.clone();
    health.ready("database", move || readiness(&shown.borrow()));

    let agent = Agent {
        here,
        client,
        metrics,
        peers,
        known,
        credentials,
        facts,
        archived,
        backups,
        surveys,
        failures,
        kept_aside,
        restores,
        target,
        report,
        standing,
        questions,
        nudge,
        leave,
        guard: Guard::start(),
    };
    agent.lead().await;
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

/// What other agents are served with: the certificate that is mounted at the time, which is renewed while this runs. One
/// that can't be used changes nothing, and is tried again.
fn served_with(
    host: String,
    tls: Arc<ServerConfig>,
    mut credentials: watch::Receiver<Result<credentials::Credentials, String>>,
) -> watch::Receiver<Arc<ServerConfig>> {
    let mark = |found: &Result<credentials::Credentials, String>| found.as_ref().ok().map(|it| it.tls);
    let (sender, receiver) = watch::channel(tls);
    let mut served = mark(&credentials.borrow_and_update());
    tokio::spawn(async move {
        loop {
            let other = |found: &Result<_, _>| mark(found).is_some_and(|mark| Some(mark) != served);
            let found = match credentials.wait_for(other).await {
                Ok(found) => mark(&found),
                Err(_) => return,
            };
            match trust::server(&host) {
                Ok(tls) => {
                    tracing::info!("the certificate has changed");
                    served = found;
                    sender.send_replace(tls);
                }
                Err(error) => {
                    tracing::error!(%error, "other agents are answered with the certificate of before");
                    tokio::time::sleep(SECRETS).await;
                }
            }
        }
    });
    receiver
}

/// Looks again and again where the others are, so that they are found also when names can't be looked up any more:
/// whoever leads next may never have been asked for anything.
async fn remember_all(here: Environment, peers: Peers, known: watch::Receiver<Known>) {
    loop {
        let instances = known.borrow().settings.replicas;
        let names = (0..instances).map(|ordinal| Names(&here.database).pod(ordinal));
        for name in names.filter(|name| *name != here.pod) {
            peers.find(&name).await;
        }
        tokio::time::sleep(PLACES).await;
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
    mut room: watch::Receiver<Room>,
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
    let mut volume = room.borrow_and_update().size;
    let first = wanted(&here, &known.borrow_and_update(), whole, restart.borrow_and_update().clone(), volume);
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = known.changed() => if changed.is_err() { return },
                changed = credentials.changed() => if changed.is_err() { return },
                changed = restart.changed() => if changed.is_err() { return },
                // A volume that has grown holds more log. One that can't be asked just now has not shrunk.
                grown = room.wait_for(|room| room.size > 0 && room.size != volume) => match grown {
                    Ok(room) => volume = room.size,
                    Err(_) => return,
                },
            }
            // Damaged Secrets change nothing: what was known stays in force.
            let Ok(whole) = credentials.borrow_and_update().clone() else { continue };
            let restart = restart.borrow_and_update().clone();
            let next = wanted(&here, &known.borrow_and_update(), whole, restart, volume);
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
    volume: u64,
) -> Wanted {
    let file = |name: &str| std::path::Path::new(paths::TLS).join(name);
    let engine = postgres::Settings {
        name: here.pod.clone(),
        port: ports::POSTGRES,
        listen: "*".to_owned(),
        resources: postgres::Resources { memory: here.memory, cpu_millis: here.cpu_millis, volume },
        parameters: known.settings.parameters.clone(),
        tls: Some(postgres::Tls { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") }),
        plain: false,
        replication: postgres::Credentials {
            role: credentials.replication.name.clone(),
            password: credentials.replication.password.clone(),
        },
        archive: known
            .settings
            .backup
            .as_ref()
            .map(|rule| postgres::Archive { segment_seconds: rule.max_data_loss_seconds }),
    };
    Wanted {
        engine,
        instance: known.settings.clone(),
        fingerprint: known.fingerprint.clone(),
        credentials,
        restart,
    }
}

/// Tells what there is to tell, whenever it changes, until it has been heard. Whether readers are sent here follows from
/// the facts themselves: what is reported of them is rounded.
async fn tell_all(
    client: Client,
    here: Environment,
    mut reports: watch::Receiver<Report>,
    mut facts: watch::Receiver<Facts>,
    mut known: watch::Receiver<Known>,
) {
    let mut told: Option<(Report, &'static str)> = None;
    let mut readers = Readers::new();
    loop {
        let report = reports.borrow_and_update().clone();
        let failover = known.borrow_and_update().settings.failover;
        let ttl = Duration::from_millis(failover.ttl_millis);
        let now = Instant::now();
        let behind = facts.borrow_and_update().behind_now(now, ttl);
        let label = readers.label(&report, behind, failover.max_reader_lag_bytes, now);
        let next = (report.clone(), label);
        if told.as_ref() != Some(&next) {
            match tell(&client, &here, &report, next.1).await {
                Ok(()) => told = Some(next),
                Err(error) => {
                    // It may have been heard all the same: what was told before is not what is known there.
                    told = None;
                    tracing::debug!(%error, "the report could not be written");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            }
        }
        let changed = tokio::select! {
            changed = reports.changed() => changed,
            changed = facts.changed() => changed,
            changed = known.changed() => changed,
            () = calm(readers.wake(now)) => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Waits for a moment, if there is one.
async fn calm(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

struct Agent {
    here: Environment,
    client: Client,
    metrics: Metrics,
    peers: Peers,
    known: watch::Receiver<Known>,
    credentials: watch::Receiver<Result<credentials::Credentials, String>>,
    facts: watch::Receiver<Facts>,
    archived: watch::Receiver<Told>,
    backups: watch::Receiver<Option<BackupReport>>,
    surveys: watch::Receiver<Survey>,
    failures: watch::Receiver<Option<(String, Trouble)>>,
    kept_aside: watch::Receiver<Option<KeptReport>>,
    restores: watch::Sender<Restores>,
    target: watch::Sender<Order>,
    report: watch::Sender<Report>,
    standing: watch::Sender<Standing>,
    questions: mpsc::Receiver<peers::Asked>,
    nudge: Arc<Notify>,
    leave: Leave,
    guard: Guard,
}

impl Agent {
    async fn lead(mut self) {
        let name = Names(&self.here.database).lease();
        let api: Api<LeaseObject> = Api::namespaced(self.client.clone(), &self.here.namespace);
        let leases = Leases::new(api.clone(), name.clone(), self.here.clone());
        let (answers, mut answered) = mpsc::channel(16);
        let mut asking = Asking::new(self.peers.clone(), answers.clone());
        let mut seen = watcher(api, watcher::Config::default().fields(&format!("metadata.name={name}")))
            .default_backoff()
            .applied_objects()
            .boxed();
        let mut machine = Machine::new(self.here.identity(), times(&self.known.borrow_and_update().settings));
        let mut stop = std::pin::pin!(manager::told_to_stop());
        let mut stopping = false;
        // The newest version that was read or written: a watch may be behind.
        let mut newest = 0;
        let mut way = Way::default();
        let mut strays = routing::strays(&self.client, &self.here);
        let mut story = Story::default();
        let mut input = Input::Instance(self.learned());
        loop {
            let now = Instant::now();
            match &input {
                Input::Written { version, .. } => newest = newest.max(version.parse().unwrap_or_default()),
                Input::Read(Some(lease)) => newest = newest.max(lease::version(lease)),
                _ => {}
            }
            let request = machine.step(input, now);
            self.give_leave(&machine, now);
            if let Some(request) = request {
                self.carry_out(&leases, request, story.news().filter(|_| machine.leads(now)), &answers);
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
            let drill = self.known.borrow().settings.backup.as_ref().and_then(|rule| rule.drill);
            self.standing.send_replace(Standing {
                failsafe: machine.is_failsafe(now),
                led_at: machine.led_at(),
                drill,
            });
            let settled = machine.restores();
            self.restores.send_if_modified(|known| std::mem::replace(known, settled.clone()) != settled);
            self.go_on_with(&mut story, &machine, now);
            let report = self.compose(&machine, &story, now);
            self.route(&mut way, &machine, &report, now);
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
                Some(found) = seen.next() => match found.ok().inspect(|found| story.read(found)).map(lease::read) {
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
                Ok(()) = self.archived.changed() => Input::Tick,
                Ok(()) = self.backups.changed() => Input::Tick,
                Ok(()) = self.kept_aside.changed() => Input::Tick,
                Ok(()) = self.surveys.changed() => {
                    self.nudge.notify_one();
                    Input::Tick
                }
                Ok(()) = self.known.changed() => Input::Settings(times(&self.known.borrow_and_update().settings)),
                Some((question, answer)) = self.questions.recv() => {
                    // It is answered with what it changes.
                    let now = Instant::now();
                    let request = machine.step(Input::Asked(question), now);
                    self.give_leave(&machine, now);
                    let _ = answer.send(machine.answer());
                    if let Some(request) = request {
                        self.carry_out(&leases, request, None, &answers);
                    }
                    Input::Tick
                }
                Some(()) = strays.next() => {
                    way.strayed(Instant::now());
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

    /// Says until when this instance may lead: to the fence at once, and to whoever watches over this process, who leaves it
    /// the first half of the margin to end the database by itself.
    fn give_leave(&self, machine: &Machine, now: Instant) {
        let until = machine.leave(now);
        self.leave.set(until);
        let margin = Duration::from_millis(self.known.borrow().settings.failover.margin_millis);
        self.guard.tell(until.map(|until| until + margin / 2));
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
    fn carry_out(
        &self,
        leases: &Leases,
        request: Request,
        story: Option<String>,
        answers: &mpsc::Sender<Input>,
    ) {
        let times = times(&self.known.borrow().settings);
        let (leases, answers) = (leases.clone(), answers.clone());
        tokio::spawn(async move {
            let deadline = times.ttl.saturating_sub(times.margin) / 2;
            let _ = answers.send(leases.carry_out(request, story, deadline).await).await;
        });
    }

    /// Leads writers here as soon as this instance takes writes.
    fn route(&self, way: &mut Way, machine: &Machine, report: &Report, now: Instant) {
        if report.role != Role::Primary || !way.is_to_be_led(machine, now) {
            return;
        }
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

    /// A leadership is worth telling of once a write has reached the disk in it.
    fn go_on_with(&self, story: &mut Story, machine: &Machine, now: Instant) {
        let facts = self.facts.borrow();
        if let (Some(reign), Some(written)) = (machine.reign(), facts.instance.written) {
            let ago = SignedDuration::try_from(now.saturating_duration_since(written)).unwrap_or_default();
            let since = Timestamp::now().saturating_sub(ago).unwrap_or_else(|_| Timestamp::now());
            story.begin(&self.here.pod, &reign, since, facts.gap);
        }
    }

    fn compose(&mut self, machine: &Machine, story: &Story, now: Instant) -> Report {
        let damage = self.credentials.borrow().as_ref().err().cloned();
        let report = compose(&self.here.pod, machine, &self.facts.borrow(), story.told(), damage, now);
        let archive = self.archived.borrow_and_update().archive.clone();
        let backup = self.backups.borrow_and_update().clone();
        let wanted = self.known.borrow().settings.in_place.as_ref().map(|rule| rule.name.clone());
        let (settled, stopped) = (machine.restores(), machine.is_restoring());
        let (survey, failed) = (self.surveys.borrow_and_update().clone(), self.failures.borrow().clone());
        let in_place = in_place::told(wanted.as_deref(), &settled, stopped, &survey, failed.as_ref());
        Report {
            archive: archive.filter(|_| report.role == Role::Primary),
            backup,
            in_place: in_place.filter(|_| machine.leads(now)),
            kept: self.kept_aside.borrow_and_update().clone(),
            ..report
        }
    }
}
