//! The course of one measurement: a fresh start, a time of quiet, a restart.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde::Serialize;
use testbed::{Audited, ControlPlane};
use tokio::time::{Instant, sleep};

use super::greetings;
use crate::audit::{Log, Request, Tally, count, seconds, tally};
use crate::error::{Error, Result};
use crate::process::Process;

/// Who the contestants are to the API server.
const USER: &str = "contestant";
/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(50);
/// One that has asked nothing for so long, but for its Lease, rests.
const REST: Duration = Duration::from_secs(5);
/// From rest until memory is read.
const SETTLE: Duration = Duration::from_secs(10);
/// How long it is watched while nothing changes.
const QUIET: Duration = Duration::from_secs(30);
/// Nobody takes that long; a contestant that hangs must not hang the harness.
const DEADLINE: Duration = Duration::from_secs(1200);

/// One of those who are measured.
pub(super) struct Contestant {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// All that was measured of one contestant in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measures {
    /// From nothing: every ConfigMap is to be made and every status written.
    pub(super) fresh: Phase,
    /// Nothing changes.
    pub(super) quiet: Quiet,
    /// Started again when all is done but for ten Greetings that were edited meanwhile.
    pub(super) restart: Phase,
}

/// From the start of the process until it rests.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    /// Until all was as it should be.
    pub(super) seconds: f64,
    /// Until the last request that was not about its Lease.
    pub(super) seconds_to_rest: f64,
    /// Up to the time when memory was read.
    pub(super) cpu_seconds: f64,
    pub(super) peak_mib: f64,
    /// Ten seconds after it came to rest.
    pub(super) resident_mib: f64,
    pub(super) requests: u64,
    pub(super) writes: u64,
    /// Refused or failed; a read of what is not there yet is among them.
    pub(super) refused: u64,
    pub(super) by_verb: Tally,
}

/// A time when nothing changes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Quiet {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// At its end.
    pub(super) resident_mib: f64,
    /// But for the Lease.
    pub(super) writes: u64,
    pub(super) lease_requests: u64,
    pub(super) by_verb: Tally,
}

impl fmt::Display for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measures { fresh, quiet, restart } = self;
        write!(
            f,
            "all done after {:.1} s, {} requests, peak {:.0} MiB, ",
            fresh.seconds, fresh.requests, fresh.peak_mib
        )?;
        write!(
            f,
            "at rest {:.0} MiB, {:.1} s of CPU; quiet: {} writes; ",
            fresh.resident_mib, fresh.cpu_seconds, quiet.writes
        )?;
        write!(
            f,
            "restart: {:.1} s, {} requests, peak {:.0} MiB",
            restart.seconds, restart.requests, restart.peak_mib
        )
    }
}

/// Measures one contestant on a control plane that nobody has used before.
pub(super) async fn measure(
    contestant: &Contestant,
    definition: &CustomResourceDefinition,
    objects: usize,
) -> Result<Measures> {
    let (plane, audited) = ControlPlane::start_audited(USER).await?;
    let client = plane.client();
    greetings::prepare(&client, definition, USER, objects).await?;
    let mut arena = Arena { contestant, client, log: Log::new(audited.log.clone()), audited, objects };

    let (process, fresh) = arena.fresh().await?;
    let quiet = arena.quiet(&process).await?;
    process.stop().await?;
    let edited = greetings::edit_some(&arena.client, objects).await?;
    let (process, restart) = arena.restart(edited.into_iter().collect()).await?;
    process.stop().await?;
    Ok(Measures { fresh, quiet, restart })
}

/// A contestant and what it works on.
struct Arena<'a> {
    contestant: &'a Contestant,
    client: Client,
    log: Log,
    audited: Audited,
    objects: usize,
}

impl Arena<'_> {
    fn start(&self) -> Result<Process> {
        let Contestant { title, program, arguments, .. } = self.contestant;
        Process::start(
            title,
            program,
            arguments,
            &self.audited.kubeconfig,
            self.audited.log.with_file_name("contestant.log"),
        )
    }

    /// Until each Greeting has its ConfigMap and its status.
    async fn fresh(&mut self) -> Result<(Process, Phase)> {
        self.log.read()?;
        let from = self.log.len();
        let mut process = self.start()?;
        let objects = self.objects;
        let mut maps = Firsts::new(|request| request.resource == "configmaps");
        let mut statuses = Firsts::new(|request| request.resource == "greetings/status");
        let seen = self
            .follow(&mut process, from, |requests| {
                maps.take(requests);
                statuses.take(requests);
                (maps.keys.len() >= objects && statuses.keys.len() >= objects)
                    .then(|| maps.last.max(statuses.last))
            })
            .await?;
        let done = self.confirm(&mut process, seen).await?;
        self.finish(process, from, done).await
    }

    /// Until the ConfigMaps of these Greetings, which were edited while nobody was there, have followed.
    async fn restart(&mut self, edited: HashSet<(String, String)>) -> Result<(Process, Phase)> {
        self.log.read()?;
        let from = self.log.len();
        let mut process = self.start()?;
        let mut maps = Firsts::new(|request| request.resource == "configmaps");
        let seen = self
            .follow(&mut process, from, |requests| {
                maps.take(requests);
                edited.is_subset(&maps.keys).then_some(maps.last)
            })
            .await?;
        let done = self.confirm(&mut process, seen).await?;
        self.finish(process, from, done).await
    }

    /// Reads the log until `done` says so.
    async fn follow(
        &mut self,
        process: &mut Process,
        mut from: usize,
        mut done: impl FnMut(&[Request]) -> Option<Timestamp>,
    ) -> Result<Timestamp> {
        let start = Instant::now();
        loop {
            process.alive()?;
            self.log.read()?;
            let found = done(self.log.since(from));
            from = self.log.len();
            match found {
                Some(at) => return Ok(at),
                None if start.elapsed() > DEADLINE => return Err(self.too_long()),
                None => sleep(LOOK).await,
            }
        }
    }

    /// That all was written once does not mean that it was written right: somebody has to look. Only when
    /// the look finds something missing does the time of a later look count.
    async fn confirm(&self, process: &mut Process, seen: Timestamp) -> Result<Timestamp> {
        let start = Instant::now();
        let mut done = seen;
        while greetings::unfinished(&self.client, self.objects).await? > 0 {
            process.alive()?;
            if start.elapsed() > DEADLINE {
                return Err(self.too_long());
            }
            sleep(LOOK).await;
            done = Timestamp::now();
        }
        Ok(done)
    }

    fn too_long(&self) -> Error {
        let seen = tally(self.log.since(0));
        Error::Unreadable {
            what: format!("how long {} takes", self.contestant.title),
            why: format!("more than {DEADLINE:?}; requests so far: {seen:?}"),
        }
    }

    /// Waits until it rests and has settled, then reads everything.
    async fn finish(
        &mut self,
        mut process: Process,
        from: usize,
        done: Timestamp,
    ) -> Result<(Process, Phase)> {
        let last = loop {
            process.alive()?;
            self.log.read()?;
            let last = self.log.last_since(from).unwrap_or(done).max(done);
            if seconds(last, Timestamp::now()) > REST.as_secs_f64() {
                break last;
            }
            sleep(LOOK).await;
        };
        sleep(SETTLE).await;
        self.log.read()?;
        let requests = self.log.since(from);
        let memory = process.memory()?;
        let phase = Phase {
            seconds: seconds(process.started, done),
            seconds_to_rest: seconds(process.started, last),
            cpu_seconds: process.cpu()?,
            peak_mib: memory.peak_mib,
            resident_mib: memory.resident_mib,
            requests: requests.len() as u64,
            writes: count(requests, Request::is_write),
            refused: count(requests, |request| !request.succeeded()),
            by_verb: tally(requests),
        };
        Ok((process, phase))
    }

    async fn quiet(&mut self, process: &Process) -> Result<Quiet> {
        self.log.read()?;
        let (from, cpu) = (self.log.len(), process.cpu()?);
        sleep(QUIET).await;
        self.log.read()?;
        let requests = self.log.since(from);
        Ok(Quiet {
            seconds: QUIET.as_secs_f64(),
            cpu_seconds: process.cpu()? - cpu,
            resident_mib: process.memory()?.resident_mib,
            writes: count(requests, |request| request.is_write() && !request.is_lease()),
            lease_requests: count(requests, Request::is_lease),
            by_verb: tally(requests),
        })
    }
}

/// The first successful write to each object of a kind, and when the last of those firsts was.
struct Firsts {
    wanted: fn(&Request) -> bool,
    keys: HashSet<(String, String)>,
    last: Timestamp,
}

impl Firsts {
    fn new(wanted: fn(&Request) -> bool) -> Self {
        Firsts { wanted, keys: HashSet::new(), last: Timestamp::UNIX_EPOCH }
    }

    fn take(&mut self, requests: &[Request]) {
        for request in requests.iter().filter(|request| request.is_write() && request.succeeded()) {
            let key = (request.namespace.clone(), request.name.clone());
            if (self.wanted)(request) && self.keys.insert(key) {
                self.last = self.last.max(request.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, name: &str, code: u16, second: i64) -> Request {
        Request {
            verb: verb.into(),
            resource: "configmaps".into(),
            namespace: "a".into(),
            name: name.into(),
            code,
            at: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn what_counts_is_the_first_write_of_each_that_succeeded() {
        let mut firsts = Firsts::new(|request| request.resource == "configmaps");
        firsts.take(&[request("get", "one", 404, 1), request("create", "one", 409, 2)]);
        assert_eq!(firsts.keys.len(), 0);
        firsts.take(&[request("create", "one", 201, 3), request("patch", "two", 200, 4)]);
        firsts.take(&[request("patch", "one", 200, 9)]);
        assert_eq!((firsts.keys.len(), firsts.last.as_second()), (2, 4));
    }
}
