//! Very many Databases on fake nodes: how long it takes the operator, what it asks, and what it holds.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::crds;
use keelson_api::instance::Names;
use keelson_api::v1::{Database, Phase};
use keelson_rig::install::HOME;
use keelson_rig::objects::create;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::json;
use testbed::{Audited, ControlPlane, Look, until};
use tokio::time::{Instant, sleep};

use super::fakes::Fakes;
use super::limit::Limit;
use crate::audit::{Log, Request, Tally, count, seconds, tally};
use crate::error::{Asking, Error, Result};
use crate::process::Process;

/// Who the operator is to the API server.
const USER: &str = "operator";
/// As a real cluster has them: in several namespaces.
const NAMESPACES: usize = 10;
/// How many requests the harness has under way when it makes objects.
const AT_ONCE: usize = 32;
/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks at all Databases.
const LOOK_AT_ALL: Duration = Duration::from_secs(2);
/// An operator that has asked nothing for so long, but for its Lease, rests.
const REST: Duration = Duration::from_secs(10);
/// How long it is watched while nothing changes.
const QUIET: Duration = Duration::from_secs(60);
/// Nobody takes that long; an operator that hangs must not hang the harness.
const DEADLINE: Duration = Duration::from_secs(1800);

/// How many of what.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Size {
    pub(super) objects: usize,
    pub(super) instances: u32,
}

/// All that was measured of the operator in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measures {
    /// What it had of a processor, in thousandths; without it, as much as it liked.
    pub(super) limit: Option<u32>,
    /// Until every Database had all its children.
    pub(super) children: Stage,
    /// Until every Database said that it runs, and the operator rested.
    pub(super) running: Stage,
    pub(super) cpu_seconds: f64,
    pub(super) peak_mib: f64,
    /// When it rested.
    pub(super) resident_mib: f64,
    pub(super) quiet: Quiet,
}

/// From the start of the operator until something has come about.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stage {
    pub(super) seconds: f64,
    /// But for the Lease.
    pub(super) requests: u64,
    pub(super) by_verb: Tally,
    /// For one Database, on average, until that one had come as far: what others need later is not its.
    pub(super) own: f64,
}

/// A time when nothing changes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Quiet {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// But for the Lease.
    pub(super) writes: u64,
    pub(super) by_verb: Tally,
}

impl fmt::Display for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measures { children, running, peak_mib, cpu_seconds, quiet, .. } = self;
        write!(f, "all children after {:.1} s with {} requests, ", children.seconds, children.requests)?;
        write!(f, "all running after {:.1} s with {}, ", running.seconds, running.requests)?;
        write!(f, "peak {peak_mib:.1} MiB, {cpu_seconds:.1} s of CPU; quiet: {} writes", quiet.writes)
    }
}

/// Measures an operator on a control plane that nobody has used before.
pub(super) async fn measure(program: &Path, size: Size, limit: Option<Limit>) -> Result<Measures> {
    let share = limit.as_ref().map(Limit::share);
    eprintln!("{} Databases of {}, limit {share:?}", size.objects, size.instances);
    let (mut plane, audited) = ControlPlane::start_audited(USER).await?;
    let fakes = Fakes::start(&mut plane).await?;
    prepare(&plane.client(), size).await?;
    let process = start(program, &audited)?;
    if let Some(limit) = &limit {
        limit.hold(process.id())?;
    }
    let log = Log::new(audited.log.clone());
    let mut arena = Arena { client: plane.client(), log, process, fakes, size };
    let children = arena.children().await?;
    eprintln!("  all children after {:.1} s", children.seconds);
    let running = arena.running().await?;
    let (memory, cpu_seconds) = (arena.process.memory()?, arena.process.cpu()?);
    let quiet = arena.quiet().await?;
    let peak_mib = arena.process.memory()?.peak_mib;
    arena.process.stop().await?;
    let measures = Measures {
        limit: share,
        children,
        running,
        cpu_seconds,
        peak_mib,
        resident_mib: memory.resident_mib,
        quiet,
    };
    eprintln!("  {measures}");
    Ok(measures)
}

fn start(program: &Path, audited: &Audited) -> Result<Process> {
    // Any free ports: the defaults may be taken on a machine where other things run.
    let words = ["operator", "--image=keelson:bench", "--no-webhooks", "--metrics-port=0", "--health-port=0"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.push(format!("--namespace={HOME}"));
    let log = audited.log.with_file_name("operator.log");
    Process::start("the operator", program, &words, &audited.kubeconfig, log)
}

fn namespace(index: usize) -> String {
    format!("shop-{}", index % NAMESPACES)
}

fn name(index: usize) -> String {
    format!("orders-{index:04}")
}

/// What the operator makes for a Database, as the API server names it.
fn children(index: usize) -> Vec<Thing> {
    let (namespace, name) = (namespace(index), name(index));
    let names = Names(&name);
    let things = [
        ("configmaps", names.config()),
        ("secrets", names.superuser()),
        ("secrets", names.replication()),
        ("secrets", names.app()),
        ("secrets", names.tls()),
        ("serviceaccounts", name.clone()),
        ("roles", name.clone()),
        ("rolebindings", name.clone()),
        ("statefulsets", name.clone()),
        ("services", name.clone()),
        ("services", names.writers()),
        ("services", names.readers()),
        ("poddisruptionbudgets", name.clone()),
    ];
    things.map(|(resource, name)| (resource.to_owned(), namespace.clone(), name)).into()
}

/// Everything that is there before the operator starts: the kind, its rights, and the Databases.
async fn prepare(client: &Client, size: Size) -> Result<()> {
    let all = crds::crds().map_err(|error| Error::Unreadable {
        what: "the definitions of the kinds".into(),
        why: error.to_string(),
    })?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut definition in all {
        // Nobody asks for another version here.
        definition.spec.conversion = None;
        definitions.create(&PostParams::default(), &definition).await.asking("preparing")?;
    }
    // By a role and not as one of `system:masters`, whom the API server's priority and fairness lets pass.
    let binding = json!({
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
    });
    create::<ClusterRoleBinding>(&Api::all(client.clone()), binding).await?;
    for name in (0..NAMESPACES).map(namespace).chain([HOME.to_owned()]) {
        create::<Namespace>(&Api::all(client.clone()), json!({ "metadata": { "name": name } })).await?;
    }
    let all: Api<Database> = Api::all(client.clone());
    until("Databases to be served", Duration::from_secs(60), || async {
        match all.list(&ListParams::default()).await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await?;
    let make = |index: usize| {
        let object = json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": { "name": name(index) },
            "spec": { "replicas": size.instances },
        });
        let api: Api<Database> = Api::namespaced(client.clone(), &namespace(index));
        async move { create(&api, object).await }
    };
    Ok(stream::iter(0..size.objects).map(Ok).try_for_each_concurrent(AT_ONCE, make).await?)
}

/// The operator and what it works on.
struct Arena {
    client: Client,
    log: Log,
    process: Process,
    fakes: Fakes,
    size: Size,
}

impl Arena {
    fn look(&mut self) -> Result<()> {
        self.process.alive()?;
        self.fakes.alive()?;
        self.log.read()
    }

    /// Until each Database has all its children.
    async fn children(&mut self) -> Result<Stage> {
        let mut missing = Missing::new((0..self.size.objects).flat_map(children));
        let (start, mut from) = (Instant::now(), 0);
        loop {
            self.look()?;
            missing.take(self.log.since(from));
            from = self.log.len();
            if missing.things.is_empty() {
                let own = own(self.log.since(0), self.size.objects);
                return Ok(Stage { own, ..self.stage(missing.last) });
            }
            if start.elapsed() > DEADLINE {
                let some: Vec<&Thing> = missing.things.iter().take(5).collect();
                return Err(too_long(format!("{} children are missing, as {some:?}", missing.things.len())));
            }
            sleep(LOOK).await;
        }
    }

    /// Until each Database says that it runs with all instances, and the operator rests.
    async fn running(&mut self) -> Result<Stage> {
        let start = Instant::now();
        let all: Api<Database> = Api::all(self.client.clone());
        loop {
            self.look()?;
            let left = unfinished(&all, self.size).await?;
            let last = self.log.last_since(0).unwrap_or(self.process.started);
            match left.first() {
                None if seconds(last, Timestamp::now()) > REST.as_secs_f64() => return Ok(self.stage(last)),
                Some(one) if start.elapsed() > DEADLINE => {
                    return Err(too_long(format!("{} Databases do not run, as {one}", left.len())));
                }
                None if start.elapsed() > DEADLINE => {
                    return Err(too_long(format!("all run, and it asks on: {:?}", tally(self.log.since(0)))));
                }
                _ => sleep(LOOK_AT_ALL).await,
            }
        }
    }

    async fn quiet(&mut self) -> Result<Quiet> {
        self.look()?;
        let (from, cpu) = (self.log.len(), self.process.cpu()?);
        sleep(QUIET).await;
        self.look()?;
        let requests = self.log.since(from);
        Ok(Quiet {
            seconds: QUIET.as_secs_f64(),
            cpu_seconds: self.process.cpu()? - cpu,
            writes: count(requests, |request| request.is_write() && !request.is_lease()),
            by_verb: tally(requests),
        })
    }

    /// What was asked until then.
    fn stage(&self, until: Timestamp) -> Stage {
        let asked = self.log.since(0).iter().filter(|request| request.at <= until && !request.is_lease());
        let asked: Vec<Request> = asked.cloned().collect();
        Stage {
            seconds: seconds(self.process.started, until),
            requests: asked.len() as u64,
            by_verb: tally(&asked),
            own: asked.len() as f64 / self.size.objects as f64,
        }
    }
}

/// How many requests a Database needs on average until the last of its own children is there.
fn own(requests: &[Request], objects: usize) -> f64 {
    let mut by_database: HashMap<(&str, &str), Vec<&Request>> = HashMap::new();
    for request in requests {
        // What belongs to a Database is named after it.
        let name = request.name.get(..name(0).len()).unwrap_or_default();
        by_database.entry((&request.namespace, name)).or_default().push(request);
    }
    let needed = (0..objects).map(|index| {
        let (namespace, name) = (namespace(index), name(index));
        let asked = by_database.get(&(namespace.as_str(), name.as_str())).cloned().unwrap_or_default();
        let mut missing = Missing::new(children(index).into_iter());
        asked.iter().for_each(|request| missing.take(std::slice::from_ref(*request)));
        asked.iter().filter(|request| request.at <= missing.last).count()
    });
    needed.sum::<usize>() as f64 / objects as f64
}

fn too_long(seen: String) -> Error {
    Error::Unreadable {
        what: "how long the operator takes".into(),
        why: format!("more than {DEADLINE:?}: {seen}"),
    }
}

/// Databases that are not as they should be, with what they say.
async fn unfinished(all: &Api<Database>, size: Size) -> Result<Vec<String>> {
    // From the API server's memory: asking should cost it as little as it can.
    let found = all.list(&ListParams::default().match_any()).await.asking("looking at all Databases")?;
    let wanted = i32::try_from(size.instances).ok();
    let runs = |database: &&Database| {
        let status = database.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref()?.parse().ok());
        phase == Some(Phase::Running) && status.and_then(|status| status.ready_replicas) == wanted
    };
    let left = found.items.iter().filter(|database| !runs(database));
    Ok(left.map(|database| format!("{} {:?}", database.name_any(), database.status)).collect())
}

/// A resource, a namespace and a name.
type Thing = (String, String, String);

/// What has not been written yet, and when the last of the others was.
struct Missing {
    things: HashSet<Thing>,
    last: Timestamp,
}

impl Missing {
    fn new(things: impl Iterator<Item = Thing>) -> Self {
        Missing { things: things.collect(), last: Timestamp::UNIX_EPOCH }
    }

    fn take(&mut self, requests: &[Request]) {
        for request in requests.iter().filter(|request| request.is_write() && request.succeeded()) {
            let thing = (request.resource.clone(), request.namespace.clone(), request.name.clone());
            if self.things.remove(&thing) {
                self.last = self.last.max(request.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(resource: &str, name: &str, code: u16, second: i64) -> Request {
        Request {
            verb: "patch".into(),
            resource: resource.into(),
            namespace: namespace(0),
            name: name.into(),
            code,
            at: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn what_counts_is_the_first_write_of_each_child_that_succeeded() {
        let mut missing =
            Missing::new(children(0).into_iter().filter(|(resource, ..)| resource == "services"));
        assert_eq!(missing.things.len(), 3);
        missing.take(&[request("services", "orders-0000", 503, 1), request("pods", "orders-0000", 200, 2)]);
        missing.take(&[request("services", "orders-0000/status", 200, 3)]);
        assert_eq!(missing.things.len(), 3);
        missing.take(&[
            request("services", "orders-0000", 201, 4),
            request("services", "orders-0000-rw", 201, 5),
        ]);
        missing.take(&[
            request("services", "orders-0000-ro", 201, 6),
            request("services", "orders-0000", 200, 9),
        ]);
        assert_eq!((missing.things.len(), missing.last.as_second()), (0, 6));
    }

    #[test]
    fn a_database_is_counted_until_its_own_last_child_is_there() {
        let mut asked: Vec<Request> =
            children(0).into_iter().map(|(resource, _, name)| request(&resource, &name, 201, 5)).collect();
        asked.insert(0, request("databases", "orders-0000", 200, 1));
        asked.push(request("databases/status", "orders-0000", 200, 6));
        asked.push(request("leases", "keelson", 200, 2));
        assert_eq!(own(&asked, 1), 14.0);
    }

    #[test]
    fn no_two_databases_share_a_child() {
        let all: HashSet<Thing> = (0..1000).flat_map(children).collect();
        assert_eq!(all.len(), 13_000);
    }
}
