//! Whatever happens to one instance, node or link: another leads, nothing that was acknowledged is lost,
//! and nobody is needed for it. The operator is away all the time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use testbed::{Container, Fault, HubComponent, Look, Which, until};

use crate::bed::{AWAY, Bed, LONG};
use crate::writer::Writer;

/// What happens to the instance that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misfortune {
    PostgresKilled,
    ContainerKilled,
    PodDeleted,
    PodDeletedByForce,
    NodeCrashed,
    NodeCutOff,
    NodeFrozen,
    ProcessesPaused,
    VolumeFrozen,
    VolumeFails,
    HandedOver,
    SwitchedOver,
}

/// Who leads, and in which epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leader {
    name: String,
    epoch: u64,
}

impl Bed {
    async fn lease(&self) -> Result<(Option<Leader>, usize), String> {
        let leases: Api<Lease> = self.api();
        let lease = leases.get("orders-leader").await.map_err(|error| error.to_string())?;
        let notes = lease.metadata.annotations.unwrap_or_default();
        let note = |name: &str| notes.get(&format!("keelson.dev/{name}")).cloned().unwrap_or_default();
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let name = holder.split('/').next().filter(|name| !name.is_empty());
        let leader = name.map(|name| Leader { name: name.to_owned(), epoch: note("epoch").parse().unwrap() });
        Ok((leader, note("sync").matches("orders-").count()))
    }

    /// Waits until somebody leads and all others follow and count for commits.
    async fn whole(&self) -> Leader {
        let found = until("all to follow one that leads", LONG, || async {
            match self.lease().await {
                Ok((Some(leader), 2)) => Look::There(leader),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        match found.await {
            Ok(leader) => leader,
            Err(error) => panic!("{error}\n{}", self.evidence()),
        }
    }

    async fn container_of(&self, pod: &str) -> Container {
        let who = format!("pod/{pod}").parse().unwrap();
        self.cluster.container(&self.namespace, &who, Some("database")).await.unwrap()
    }

    async fn node_of(&self, pod: &str) -> String {
        let pods: Api<Pod> = self.api();
        pods.get(pod).await.unwrap().spec.unwrap().node_name.unwrap()
    }

    /// A client beside an instance that does not lead.
    async fn client_away_from(&self, leader: &str) {
        self.kubectl(&["delete", "pod", "client", "--ignore-not-found", "--wait"]);
        let other = if leader == "orders-0" { "orders-1" } else { "orders-0" };
        let node = self.node_of(other).await;
        self.client_on(Some(&node)).await;
    }

    /// Lets it happen. Returns the fault that is to be healed.
    async fn strike(&self, misfortune: Misfortune, leader: &str) -> Option<Fault> {
        let container = self.container_of(leader).await;
        let node = container.node;
        let volume = async || {
            let claim = format!("data-{leader}");
            self.cluster.volume(&self.namespace, &claim).await.unwrap()
        };
        let fault = match misfortune {
            Misfortune::PostgresKilled => {
                let kill = "kill -9 $(head -1 /var/lib/keelson/data/postmaster.pid)";
                self.cluster.run_in(&container, &["sh", "-c", kill]).unwrap();
                return None;
            }
            Misfortune::ContainerKilled => {
                self.cluster.kill(&container, &Which::Main).unwrap();
                return None;
            }
            Misfortune::PodDeleted => {
                self.kubectl(&["delete", "pod", leader, "--wait=false"]);
                return None;
            }
            Misfortune::PodDeletedByForce => {
                self.kubectl(&["delete", "pod", leader, "--force", "--grace-period=0"]);
                return None;
            }
            Misfortune::HandedOver => {
                self.kubectl(&["annotate", "lease", "orders-leader", "keelson.dev/handover-to=any"]);
                return None;
            }
            Misfortune::SwitchedOver => {
                let kubeconfig = self.cluster.testbed().unwrap().root().join("kubeconfig");
                let said = std::process::Command::new(env!("CARGO_BIN_EXE_keelson"))
                    .args(["switchover", "orders", "--namespace", &self.namespace])
                    .env("KUBECONFIG", kubeconfig)
                    .output()
                    .unwrap();
                let printed = String::from_utf8_lossy(&said.stdout).into_owned();
                assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
                assert!(printed.contains("leads, ") && !printed.starts_with(leader), "{printed}");
                return None;
            }
            Misfortune::NodeCrashed => Fault::NodeCrash { node },
            Misfortune::NodeCutOff => Fault::NodeCutOff { node },
            Misfortune::NodeFrozen => Fault::NodeFreeze { node },
            Misfortune::ProcessesPaused => Fault::ProcessPause { container, which: Which::All },
            Misfortune::VolumeFrozen => Fault::VolumeFreeze { volume: volume().await },
            Misfortune::VolumeFails => Fault::VolumeIoError { volume: volume().await },
        };
        self.cluster.inject(&fault).unwrap();
        Some(fault)
    }

    /// One misfortune, with a program that writes all the while.
    async fn survives(&self, misfortune: Misfortune) {
        let before = self.whole().await;
        self.client_away_from(&before.name).await;
        let writer = Writer::start(self).await;
        let fault = self.strike(misfortune, &before.name).await;
        // One that comes back as soon as another could have taken over may go on leading.
        let may_stay = matches!(misfortune, Misfortune::PostgresKilled | Misfortune::ContainerKilled);
        let led = until("another to lead", LONG, || async {
            match self.lease().await {
                Ok((Some(leader), _)) if leader.name != before.name => Look::There(leader),
                Ok((Some(leader), _)) if may_stay => Look::There(leader),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        let after = led.await.unwrap_or_else(|error| panic!("{misfortune:?}: {error}\n{}", self.evidence()));
        writer.acknowledges().await;
        if let Some(fault) = fault {
            self.cluster.heal(&fault).unwrap();
        }
        self.whole().await;
        let gap = writer.longest_gap();
        let written = writer.finish().await;
        println!("{misfortune:?}: {before:?} -> {after:?}, longest gap {gap} ms, {written} writes");
    }

    /// A database of three that nobody looks after.
    async fn left_to_itself(version: &str) -> Bed {
        Bed::left_to_itself_with(version, "quorum").await
    }

    async fn left_to_itself_with(version: &str, durability: &str) -> Bed {
        let bed = Bed::open_alone(&format!("failover{version}{durability}")).await;
        let spec = json!({"version": version, "replicas": 3, "storage": "1Gi", "durability": durability});
        bed.create(spec).await;
        bed.ready(3).await;
        bed.operators(0);
        bed
    }

    /// So many operators.
    pub fn operators(&self, count: u32) {
        AWAY.store(count == 0, Ordering::Relaxed);
        let count = format!("--replicas={count}");
        let scale = ["-n", "keelson-system", "scale", "deployment", "keelson", &count];
        self.cluster.kubectl(&scale).unwrap();
        let wait = ["-n", "keelson-system", "rollout", "status", "deployment/keelson", "--timeout=120s"];
        self.cluster.kubectl(&wait).unwrap();
    }

    /// The operator comes back, and finds all as it should be.
    async fn looked_after_again(self) {
        self.operators(2);
        self.ready(3).await;
        self.close().await;
    }
}

#[tokio::test]
async fn whatever_happens_to_the_leader_of_postgresql_17() {
    let bed = Bed::left_to_itself("17").await;
    for misfortune in [
        Misfortune::PostgresKilled,
        Misfortune::ContainerKilled,
        Misfortune::PodDeleted,
        Misfortune::PodDeletedByForce,
        Misfortune::NodeCrashed,
        Misfortune::NodeCutOff,
        Misfortune::NodeFrozen,
        Misfortune::VolumeFrozen,
        Misfortune::VolumeFails,
        Misfortune::HandedOver,
        Misfortune::SwitchedOver,
    ] {
        bed.survives(misfortune).await;
    }
    bed.looked_after_again().await;
}

#[tokio::test]
async fn the_main_things_that_happen_to_the_leader_of_postgresql_15() {
    main_things("15").await;
}

#[tokio::test]
async fn the_main_things_that_happen_to_the_leader_of_postgresql_18() {
    main_things("18").await;
}

async fn main_things(version: &str) {
    let bed = Bed::left_to_itself(version).await;
    for misfortune in [
        Misfortune::PostgresKilled,
        Misfortune::ContainerKilled,
        Misfortune::NodeCrashed,
        Misfortune::ProcessesPaused,
        Misfortune::HandedOver,
    ] {
        bed.survives(misfortune).await;
    }
    bed.looked_after_again().await;
}

/// A session that stays on the leader's own address, whoever leads.
const STAY: &str = r#"
rm -f /tmp/direct; address=$(echo "$URI" | sed "s/@[^:/]*/@$1/")
(i=0; while [ ! -e /tmp/enough-direct ]; do
    i=$((i + 1)); echo "insert into direct values ('$2-$i') returning id;"; sleep 0.02
done) | psql "$address" -XAtq > /tmp/direct 2>/tmp/direct-errors
"#;

#[tokio::test]
async fn a_leader_that_was_paused_beyond_its_lease_acknowledges_nothing() {
    paused_and_resumed("quorum").await;
}

#[tokio::test]
async fn nor_does_one_whose_commits_wait_for_nobody_else() {
    paused_and_resumed("async").await;
}

async fn paused_and_resumed(durability: &str) {
    let bed = Bed::left_to_itself_with("17", durability).await;
    for round in 0..3 {
        let before = bed.whole().await;
        bed.client_away_from(&before.name).await;
        bed.sql("create table if not exists direct (id text primary key)").await;
        let pods: Api<Pod> = bed.api();
        let address = pods.get(&before.name).await.unwrap().status.unwrap().pod_ip.unwrap();
        let stay =
            format!("nohup sh -c '{}' - {address} {round} >/dev/null 2>&1 &", STAY.replace('\'', r"'\''"));
        bed.kubectl(&["exec", "client", "--", "sh", "-c", &stay]);
        let inside = |command: &str| {
            bed.kubectl(&["exec", "client", "--", "sh", "-c", command]).trim().parse::<u32>().unwrap()
        };
        let acknowledged = || inside("wc -l < /tmp/direct");
        until("the session to write", LONG, || async {
            match acknowledged() {
                0 => Look::NotYet("nothing yet".to_owned()),
                _ => Look::There(()),
            }
        })
        .await
        .unwrap();
        let fault = bed.strike(Misfortune::ProcessesPaused, &before.name).await.unwrap();
        until("another to lead", LONG, || async {
            match bed.lease().await {
                Ok((Some(leader), _)) if leader.name != before.name => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        bed.sql("insert into direct values ('the new one, ' || now())").await;
        let then = acknowledged();
        bed.cluster.heal(&fault).unwrap();
        bed.whole().await;
        bed.kubectl(&["exec", "client", "--", "touch", "/tmp/enough-direct"]);
        let after = acknowledged() - then;
        let lost = bed.missing("direct", "text", "/tmp/direct").await;
        println!("{durability}, round {round}: {then} acknowledged before, {after} after, {lost} lost");
        // One commit may have been let through before the pause, and be told of when it is over.
        assert!(after <= 1, "acknowledged by a leader that was none any more: {after}");
        assert!(durability == "async" || lost == 0, "{lost} lost");
    }
    bed.looked_after_again().await;
}

/// How long the API server is away.
const OUTAGE: Duration = Duration::from_secs(60);
/// What healthy parts may be silent for.
const HICCUP: Duration = Duration::from_secs(3);

#[tokio::test]
async fn without_the_api_server_the_leader_goes_on_and_a_short_silence_changes_nothing() {
    let bed = Bed::left_to_itself("17").await;
    let before = bed.whole().await;
    bed.client_away_from(&before.name).await;
    let writer = Writer::start(&bed).await;
    let inside = bed.cluster.container(&bed.namespace, &"pod/client".parse().unwrap(), None).await.unwrap();
    let count = || {
        let said = bed.cluster.run_in(&inside, &["sh", "-c", "wc -l < /tmp/acknowledged"]).unwrap();
        said.trim().parse::<u32>().unwrap()
    };
    for fault in [
        Fault::ComponentStop { component: HubComponent::ApiServer },
        Fault::ComponentPause { component: HubComponent::ApiServer },
    ] {
        bed.cluster.inject(&fault).unwrap();
        let start = count();
        tokio::time::sleep(OUTAGE / 2).await;
        let half = count();
        tokio::time::sleep(OUTAGE / 2).await;
        let end = count();
        bed.cluster.heal(&fault).unwrap();
        assert!(start < half && half < end, "writes went on: {start}, {half}, {end} ({fault})");
        println!("{fault}: {} writes meanwhile, longest gap {} ms", end - start, {
            bed.whole().await;
            writer.longest_gap()
        });
        assert_eq!(bed.whole().await, before, "nobody else leads ({fault})");
    }
    let node = bed.container_of(&before.name).await.node;
    let hiccup = Fault::NodeFreeze { node };
    bed.cluster.inject(&hiccup).unwrap();
    tokio::time::sleep(HICCUP).await;
    bed.cluster.heal(&hiccup).unwrap();
    writer.acknowledges().await;
    assert_eq!(bed.whole().await, before, "it was only a moment");
    writer.finish().await;
    bed.looked_after_again().await;
}
