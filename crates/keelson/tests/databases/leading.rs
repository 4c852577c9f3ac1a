//! Who leads, and a database that is left to itself: the operator is away, and nobody is needed.

use std::sync::atomic::Ordering;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use testbed::{Container, Look, until};

use crate::bed::{AWAY, Bed, LONG};

/// Who leads, and in which epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub name: String,
    pub epoch: u64,
}

impl Bed {
    /// Who leads, and how many count for commits.
    pub async fn lease(&self) -> Result<(Option<Leader>, usize), String> {
        let leases: Api<Lease> = self.api();
        let lease = leases.get("orders-leader").await.map_err(|error| error.to_string())?;
        let notes = lease.metadata.annotations.unwrap_or_default();
        let note = |name: &str| notes.get(&format!("keelson.dev/{name}")).cloned().unwrap_or_default();
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let name = holder.split('/').next().filter(|name| !name.is_empty());
        let epoch = note("epoch").parse().map_err(|error| format!("the epoch on the Lease: {error}"))?;
        let leader = name.map(|name| Leader { name: name.to_owned(), epoch });
        Ok((leader, note("sync").matches("orders-").count()))
    }

    /// Waits until one of three leads and all others follow and count for commits.
    pub async fn whole(&self) -> Leader {
        self.whole_of(3).await
    }

    /// Waits until one of so many leads and all others follow and count for commits.
    pub async fn whole_of(&self, instances: usize) -> Leader {
        let found = until("all to follow one that leads", LONG, || async {
            match self.lease().await {
                Ok((Some(leader), count)) if count == instances - 1 => Look::There(leader),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        match found.await {
            Ok(leader) => leader,
            Err(error) => panic!("{error}\n{}", self.evidence()),
        }
    }

    /// Waits until another leads.
    pub async fn another_than(&self, before: &str) -> Leader {
        let what = format!("another than {before} to lead");
        let led = until(&what, LONG, || async {
            match self.lease().await {
                Ok((Some(leader), _)) if leader.name != before => Look::There(leader),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        led.await.unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()))
    }

    pub async fn container_of(&self, pod: &str) -> Container {
        let who = format!("pod/{pod}").parse().unwrap();
        self.cluster.container(&self.namespace, &who, Some("database")).await.unwrap()
    }

    pub async fn node_of(&self, pod: &str) -> String {
        let pods: Api<Pod> = self.api();
        pods.get(pod).await.unwrap().spec.unwrap().node_name.unwrap()
    }

    pub async fn address_of(&self, pod: &str) -> String {
        let pods: Api<Pod> = self.api();
        pods.get(pod).await.unwrap().status.unwrap().pod_ip.unwrap()
    }

    /// A client beside the first instance that does not lead.
    pub async fn client_away_from(&self, leader: &str) {
        self.kubectl(&["delete", "pod", "client", "--ignore-not-found", "--wait"]);
        let node = self.node_of(followers(leader)[0]).await;
        self.client_on(Some(&node)).await;
    }

    /// A database of three that nobody looks after.
    pub async fn left_to_itself(version: &str) -> Bed {
        Bed::left_to_itself_with(version, "quorum").await
    }

    pub async fn left_to_itself_with(version: &str, durability: &str) -> Bed {
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

    /// So many operators, and none of them on these nodes.
    pub fn operators_away_from(&self, nodes: &[String], count: u32) {
        let on_nodes = |word: &str| {
            let nodes = nodes.iter().map(String::as_str);
            self.kubectl(&[word].into_iter().chain(nodes).collect::<Vec<_>>());
        };
        self.operators(0);
        on_nodes("cordon");
        self.operators(count);
        on_nodes("uncordon");
    }

    /// The operator comes back, finds all as it should be, and tells what has happened meanwhile.
    pub async fn looked_after_again(self) {
        let known = self.told().await;
        self.operators(2);
        let leader = self.whole().await;
        let epoch = i64::try_from(leader.epoch).unwrap();
        let database = self
            .until("the last leadership to be told", LONG, |database| {
                let told = database.status.as_ref().and_then(|status| status.leaderships.first());
                told.is_some_and(|one| one.who == leader.name && one.epoch == Some(epoch))
            })
            .await;
        self.ready(3).await;
        let told = &database.status.as_ref().unwrap().leaderships;
        println!("what is told of it: {}", serde_json::to_string(told).unwrap());
        assert!(
            told.is_sorted_by(|one, before| one.epoch > before.epoch && one.since >= before.since),
            "{told:?}"
        );
        let quorum = database.spec.durability.as_ref().is_some_and(|mode| mode.to_string() == "quorum");
        for one in told {
            assert!(one.why.is_some(), "each has a reason: {one:?}");
            // One whose agent was started just before has not known the last one that led.
            assert!(one.gap_millis.is_none_or(|gap| (0..300_000).contains(&gap)), "{one:?}");
            assert!(!quorum || one.lost_bytes.unwrap_or_default() == 0, "nothing was lost: {one:?}");
        }
        for one in told.iter().filter(|one| one.epoch > known) {
            self.is_an_event(&one.who, one.gap_millis).await;
        }
        self.close().await;
    }

    /// The newest epoch that the status tells of.
    async fn told(&self) -> Option<i64> {
        let status = self.databases().get("orders").await.unwrap().status.unwrap_or_default();
        status.leaderships.first().and_then(|one| one.epoch)
    }

    /// Waits for the event that tells who leads, and how long nobody took writes before.
    async fn is_an_event(&self, who: &str, gap: Option<i64>) {
        let words = gap.map(|gap| format!("nobody took writes for {}.{:03} s", gap / 1000, gap % 1000));
        let words = words.unwrap_or_default();
        until(&format!("an event: {who}, {words}"), LONG, || async {
            let events = ["get", "events", "--field-selector=involvedObject.name=orders", "--no-headers"];
            let said = self.kubectl(&events);
            let is = |line: &str| {
                (line.contains("FailedOver") || line.contains("HandedOver"))
                    && line.contains(who)
                    && line.contains(&words)
            };
            if said.lines().any(is) { Look::There(()) } else { Look::NotYet(said) }
        })
        .await
        .unwrap();
    }
}

/// The other two of three.
pub fn followers(leader: &str) -> [&'static str; 2] {
    match leader {
        "orders-0" => ["orders-1", "orders-2"],
        "orders-1" => ["orders-0", "orders-2"],
        _ => ["orders-0", "orders-1"],
    }
}
