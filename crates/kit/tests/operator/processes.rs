//! Two processes that want to lead, through pauses, kills and outages: never two at work.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_kit::client::{guarded, with_config};
use keelson_kit::leader::{Leader, Term};
use keelson_kit::telemetry::Metrics;
use kube::Api;
use kube::api::{ListParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use testbed::{ControlPlane, Look, until};
use tokio::process::{Child, Command};

use crate::world::{DEADLINE, DEADLINES, SECOND, TIMING, World, config};

const NAME: &str = "KIT_TEST_CANDIDATE";
const KUBECONFIG: &str = "KIT_TEST_KUBECONFIG";

/// What a candidate process runs: this program, asked for this test alone.
#[tokio::test]
async fn a_candidate_works_whenever_it_leads() {
    let (Ok(name), Ok(kubeconfig)) = (std::env::var(NAME), std::env::var(KUBECONFIG)) else { return };
    let config = config(&kubeconfig.into()).await;
    let client = with_config(config, DEADLINES, &Metrics::new("test")).unwrap();
    let work = |term: Term| {
        let client = guarded(client.clone(), term);
        write_all_the_time(client, name.clone(), format!("{name}-{}", now()))
    };
    Leader::new(client.clone(), "race", "operator", name.clone())
        .timing(TIMING)
        .run(std::future::pending(), work)
        .await;
}

fn now() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()
}

/// Leaves a trace of each moment of its work in the API server.
async fn write_all_the_time(client: kube::Client, who: String, term: String) {
    let traces: Api<ConfigMap> = Api::namespaced(client, "race");
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    loop {
        tick.tick().await;
        let trace = json!({
            "metadata": {"generateName": "trace-"},
            "data": {"who": who, "term": term, "sent": now().to_string()}
        });
        let _ = traces.create(&PostParams::default(), &serde_json::from_value(trace).unwrap()).await;
    }
}

struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    fn start(name: &'static str, kubeconfig: &Path) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::a_candidate_works_whenever_it_leads"])
            .env(NAME, format!("{name}-{}", now()))
            .env(KUBECONFIG, kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Process { name, child }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
    }

    fn leads(&self, holder: &str) -> bool {
        holder.starts_with(self.name)
    }
}

async fn holder(world: &World) -> String {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "race");
    until("somebody to hold the Lease", DEADLINE, || async {
        let lease = leases.get_opt("operator").await.ok().flatten();
        match lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()) {
            Some(holder) => Look::There(holder),
            None => Look::NotYet("nobody".into()),
        }
    })
    .await
    .unwrap()
}

/// Every trace that was left: whose term, and when it was sent.
async fn traces(world: &World) -> Vec<(String, u128)> {
    let found = world.config_maps().list(&ListParams::default()).await.unwrap();
    let traces = found.items.into_iter().filter_map(|trace| {
        let data = trace.data?;
        Some((data.get("term")?.clone(), data.get("sent")?.parse().ok()?))
    });
    traces.collect()
}

async fn somebody_works(world: &World) {
    let since = now();
    until("somebody to be at work", DEADLINE, || async {
        match traces(world).await.iter().map(|(_, sent)| *sent).max() {
            Some(last) if last > since => Look::There(()),
            other => Look::NotYet(format!("{other:?}, now {}", now())),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_never_work_at_the_same_time() {
    let mut plane = ControlPlane::start().await.unwrap();
    let world = World::on(plane.kubeconfig(), "race").await;
    let mut processes = ["left", "right"].map(|name| Process::start(name, &world.kubeconfig));
    for trouble in ["paused", "silent api", "killed", "gone api", "paused", "killed"] {
        somebody_works(&world).await;
        let holder = holder(&world).await;
        let leader = processes.iter_mut().find(|process| process.leads(&holder)).unwrap();
        match trouble {
            "paused" => {
                leader.signal(Signal::SIGSTOP);
                tokio::time::sleep(TIMING.term + SECOND).await;
                somebody_works(&world).await;
                leader.signal(Signal::SIGCONT);
            }
            "killed" => {
                leader.child.kill().await.unwrap();
                somebody_works(&world).await;
                *leader = Process::start(leader.name, &world.kubeconfig);
            }
            "silent api" => {
                plane.pause();
                tokio::time::sleep(TIMING.term + SECOND).await;
                plane.resume();
            }
            _ => {
                plane.stop().unwrap();
                tokio::time::sleep(TIMING.term + SECOND).await;
                plane.start_again().await.unwrap();
            }
        }
    }
    somebody_works(&world).await;
    drop(processes);
    let mut terms = std::collections::BTreeMap::<String, (u128, u128)>::new();
    for (term, sent) in traces(&world).await {
        let span = terms.entry(term).or_insert((sent, sent));
        *span = (span.0.min(sent), span.1.max(sent));
    }
    let mut spans: Vec<_> = terms.into_iter().map(|(term, (first, last))| (first, last, term)).collect();
    spans.sort();
    assert!(spans.len() >= 6, "leadership changed with each trouble: {spans:?}");
    for pair in spans.windows(2) {
        assert!(pair[1].0 > pair[0].1, "{} began before {} had ended", pair[1].2, pair[0].2);
    }
}
