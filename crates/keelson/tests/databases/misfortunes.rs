//! What happens to a database, what is to become of it, and how long that may take.

use std::time::Duration;

use testbed::{Fault, HubComponent, Look, Which, until};

use crate::bed::{Bed, LONG};
use crate::leading::{Leader, followers};
use crate::writer::Writer;

/// What happens, most of it to the instance that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfortune {
    PostgresKilled,
    /// It accepts connections and says nothing.
    PostgresPaused,
    ContainerKilled,
    PodDeleted,
    PodDeletedByForce,
    /// Its node is told to shut down, and then has no power.
    NodeShutDown,
    NodeDrained,
    NodeCrashed,
    NodeCutOff,
    NodeFrozen,
    ProcessesPaused,
    VolumeFrozen,
    VolumeFails,
    HandedOver,
    SwitchedOver,
    /// To an instance that a person has chosen.
    SwitchedOverTo,
    /// Its volume is gone with its pod.
    VolumeLost,
    VolumeReadOnly,
    VolumeFull,
    /// All instances at once.
    AllKilled,
    /// Its node crashes while nobody can ask for names.
    CrashedWithoutNames,
    /// Its pod is deleted while there are neither controllers nor a scheduler.
    DeletedWithoutControllers,
    /// Its node can't reach the API server, and nobody else is concerned.
    ApiCut,
    /// It and one that follows it can't reach each other.
    LinkCut,
    /// The same, for longer than a replica waits to hear of its leader.
    LinkCutForLong,
    /// Nothing from it reaches one that follows it.
    LinkCutOneWay,
    /// Its node loses packets.
    PacketsLost,
    /// The API server answers late.
    ApiSlow,
    /// The API server answers that it can't.
    EtcdStopped,
    /// The API server has nothing to say for a while, and then that it can't.
    EtcdPaused,
    ReplicaKilled,
    ReplicaPaused,
    ReplicaCrashed,
    ReplicaVolumeFails,
}

/// Who leads after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Another,
    Either,
    /// Nothing that would be a reason: it leads in the same epoch.
    Same,
}

/// What a machine of two cores that runs everything, without optimisation, may add to any bound; in it is the time
/// that the writer itself needs to try again.
const SLACK: Duration = Duration::from_secs(7);
/// How long something lasts that is no reason to change the leader: twice its term.
const NUISANCE: Duration = Duration::from_secs(10);
/// Longer than a replica waits before it takes silence for another history.
const LONG_NUISANCE: Duration = Duration::from_secs(20);

impl Misfortune {
    pub fn outcome(self) -> Outcome {
        match self {
            // One that comes back as soon as another could have taken over may go on leading.
            Misfortune::PostgresKilled | Misfortune::ContainerKilled | Misfortune::AllKilled => {
                Outcome::Either
            }
            Misfortune::ApiCut
            | Misfortune::LinkCut
            | Misfortune::LinkCutForLong
            | Misfortune::LinkCutOneWay
            | Misfortune::PacketsLost
            | Misfortune::ApiSlow
            | Misfortune::EtcdStopped
            | Misfortune::EtcdPaused
            | Misfortune::ReplicaKilled
            | Misfortune::ReplicaPaused
            | Misfortune::ReplicaCrashed
            | Misfortune::ReplicaVolumeFails => Outcome::Same,
            _ => Outcome::Another,
        }
    }

    /// For how long no write may be acknowledged, on a machine that has nothing else to do.
    fn bound(self) -> Duration {
        let seconds = match self {
            Misfortune::HandedOver
            | Misfortune::SwitchedOver
            | Misfortune::SwitchedOverTo
            | Misfortune::NodeDrained
            | Misfortune::NodeShutDown => 2,
            Misfortune::PostgresKilled
            | Misfortune::ContainerKilled
            | Misfortune::PodDeleted
            | Misfortune::PodDeletedByForce
            | Misfortune::DeletedWithoutControllers
            | Misfortune::VolumeLost => 3,
            // Silence counts after a term of 5 s. A disk has some seconds for a write.
            Misfortune::NodeCrashed
            | Misfortune::CrashedWithoutNames
            | Misfortune::NodeCutOff
            | Misfortune::NodeFrozen
            | Misfortune::ProcessesPaused
            | Misfortune::PostgresPaused
            | Misfortune::VolumeFrozen => 8,
            // Containers are started again, and databases recover.
            Misfortune::VolumeFails
            | Misfortune::VolumeReadOnly
            | Misfortune::VolumeFull
            | Misfortune::AllKilled => 20,
            _ => 1,
        };
        Duration::from_secs(seconds)
    }

    /// No write was acknowledged for so long.
    fn took(self, gap: Duration) {
        let bound = self.bound();
        assert!(gap <= bound + SLACK, "{self:?}: no write for {gap:?}, which may take {bound:?}");
    }

    fn lasts(self) -> Duration {
        if self == Misfortune::LinkCutForLong { LONG_NUISANCE } else { NUISANCE }
    }

    /// Whether replicas are to be as they were too: there is nothing that they would have to be started anew for.
    fn leaves_replicas_alone(self) -> bool {
        matches!(
            self,
            Misfortune::ApiCut
                | Misfortune::LinkCut
                | Misfortune::LinkCutForLong
                | Misfortune::LinkCutOneWay
                | Misfortune::PacketsLost
                | Misfortune::ApiSlow
                | Misfortune::EtcdStopped
                | Misfortune::EtcdPaused
        )
    }
}

impl Bed {
    /// Lets it happen. Returns what is to be healed.
    pub async fn strike(&self, misfortune: Misfortune, leader: &str) -> Vec<Fault> {
        let faults = self.faults_of(misfortune, leader).await;
        for fault in &faults {
            self.cluster.inject(fault).unwrap();
        }
        if misfortune == Misfortune::DeletedWithoutControllers {
            self.kubectl(&["delete", "pod", leader, "--wait=false"]);
        }
        if faults.is_empty() {
            self.act(misfortune, leader).await;
        }
        faults
    }

    async fn faults_of(&self, misfortune: Misfortune, leader: &str) -> Vec<Fault> {
        let container = self.container_of(leader).await;
        let node = container.node;
        // The client is beside the first.
        let replica = self.container_of(followers(leader)[1]).await;
        let volume =
            async |pod: &str| self.cluster.volume(&self.namespace, &format!("data-{pod}")).await.unwrap();
        let stop = |component| Fault::ComponentStop { component };
        let one = match misfortune {
            Misfortune::CrashedWithoutNames => {
                return vec![stop(HubComponent::Coredns), Fault::NodeCrash { node }];
            }
            Misfortune::DeletedWithoutControllers => {
                return vec![stop(HubComponent::ControllerManager), stop(HubComponent::Scheduler)];
            }
            Misfortune::VolumeReadOnly => Fault::VolumeReadOnly { volume: volume(leader).await },
            Misfortune::VolumeFull => Fault::VolumeFull { volume: volume(leader).await },
            Misfortune::VolumeFrozen => Fault::VolumeFreeze { volume: volume(leader).await },
            Misfortune::VolumeFails => Fault::VolumeIoError { volume: volume(leader).await },
            Misfortune::ReplicaVolumeFails => {
                Fault::VolumeIoError { volume: volume(followers(leader)[1]).await }
            }
            Misfortune::ApiCut => Fault::ApiCut { node },
            Misfortune::LinkCut | Misfortune::LinkCutForLong => {
                Fault::LinkCut { from: node, to: replica.node, both: true }
            }
            Misfortune::LinkCutOneWay => Fault::LinkCut { from: node, to: replica.node, both: false },
            Misfortune::PacketsLost => Fault::PacketLoss { node, percent: 5 },
            Misfortune::ApiSlow => {
                Fault::ComponentSlow { component: HubComponent::ApiServer, milliseconds: 1500 }
            }
            Misfortune::EtcdStopped => stop(HubComponent::Etcd),
            Misfortune::EtcdPaused => Fault::ComponentPause { component: HubComponent::Etcd },
            Misfortune::NodeCrashed => Fault::NodeCrash { node },
            Misfortune::NodeCutOff => Fault::NodeCutOff { node },
            Misfortune::NodeFrozen => Fault::NodeFreeze { node },
            Misfortune::ReplicaCrashed => Fault::NodeCrash { node: replica.node },
            Misfortune::ReplicaPaused => Fault::ProcessPause { container: replica, which: Which::All },
            Misfortune::ProcessesPaused => Fault::ProcessPause { container, which: Which::All },
            Misfortune::PostgresPaused => {
                Fault::ProcessPause { container, which: Which::Named("postgres".to_owned()) }
            }
            _ => return Vec::new(),
        };
        vec![one]
    }

    /// What leaves nothing to be healed.
    async fn act(&self, misfortune: Misfortune, leader: &str) {
        let container = self.container_of(leader).await;
        match misfortune {
            Misfortune::PostgresKilled => {
                let kill = "kill -9 $(head -1 /var/lib/keelson/data/postmaster.pid)";
                self.cluster.run_in(&container, &["sh", "-c", kill]).unwrap();
            }
            Misfortune::ContainerKilled => self.cluster.kill(&container, &Which::Main).unwrap(),
            Misfortune::ReplicaKilled => {
                let replica = self.container_of(followers(leader)[1]).await;
                self.cluster.kill(&replica, &Which::All).unwrap();
            }
            Misfortune::PodDeleted => drop(self.kubectl(&["delete", "pod", leader, "--wait=false"])),
            Misfortune::PodDeletedByForce => {
                self.kubectl(&["delete", "pod", leader, "--force", "--grace-period=0"]);
            }
            Misfortune::NodeDrained => self.drain(leader).await,
            Misfortune::NodeShutDown => self.shut_down(leader).await,
            Misfortune::HandedOver => {
                self.kubectl(&["annotate", "lease", "orders-leader", "keelson.dev/handover-to=any"]);
            }
            Misfortune::SwitchedOver => self.switch_over(leader, None),
            Misfortune::SwitchedOverTo => self.switch_over(leader, Some(followers(leader)[1])),
            Misfortune::VolumeLost => {
                self.kubectl(&["delete", "pvc", &format!("data-{leader}"), "--wait=false"]);
                self.kubectl(&["delete", "pod", leader, "--wait=false"]);
            }
            Misfortune::AllKilled => {
                for number in 0..3 {
                    let one = self.container_of(&format!("orders-{number}")).await;
                    self.cluster.kill(&one, &Which::Main).unwrap();
                }
            }
            other => panic!("{other:?} is a fault"),
        }
    }

    /// As a person does who wants to work on the node, and lets it come back.
    async fn drain(&self, leader: &str) {
        let node = self.node_of(leader).await;
        let words = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"];
        self.kubectl(&[&words[..], &["--pod-selector=keelson.dev/database=orders"]].concat());
        self.kubectl(&["uncordon", &node]);
    }

    /// Everything on the node is asked to end, has time for it, and then the power is gone; it boots at once.
    async fn shut_down(&self, leader: &str) {
        let container = self.container_of(leader).await;
        self.cluster.run_in(&container, &["kill", "-TERM", "1"]).unwrap();
        self.another_than(leader).await;
        let crash = Fault::NodeCrash { node: container.node };
        self.cluster.inject(&crash).unwrap();
        self.cluster.heal(&crash).unwrap();
    }

    fn switch_over(&self, leader: &str, to: Option<&str>) {
        let named: Vec<&str> = to.iter().flat_map(|to| ["--to", to]).collect();
        let printed = self.keelson(&[&["switchover", "orders"], &named[..]].concat());
        assert!(printed.contains("leads, ") && !printed.starts_with(leader), "{printed}");
        assert!(to.is_none_or(|to| printed.starts_with(to)), "{to:?} was to lead: {printed}");
    }

    /// One misfortune, with a program that writes all the while.
    pub async fn survives(&self, misfortune: Misfortune) {
        let before = self.whole().await;
        self.client_away_from(&before.name).await;
        let writer = match misfortune {
            Misfortune::CrashedWithoutNames => Writer::start_by_address(self).await,
            _ => Writer::start(self).await,
        };
        let faults = self.strike(misfortune, &before.name).await;
        let after = match misfortune.outcome() {
            Outcome::Another => self.another_than(&before.name).await,
            _ => self.somebody().await,
        };
        writer.acknowledges().await;
        for fault in faults.iter().rev() {
            self.cluster.heal(fault).unwrap();
        }
        self.whole().await;
        let gap = writer.longest_gap();
        let written = writer.finish().await;
        println!("{misfortune:?}: {before:?} -> {after:?}, longest gap {gap:.1?}, {written} writes");
        misfortune.took(gap);
    }

    /// Those that are no reason to change anything, one after the other, with one program that writes all the while.
    pub async fn is_not_moved_by(&self, misfortunes: &[Misfortune]) {
        let before = self.whole().await;
        self.client_away_from(&before.name).await;
        let writer = Writer::start(self).await;
        for misfortune in misfortunes {
            let started = self.started().await;
            writer.forget_times();
            let faults = self.strike(*misfortune, &before.name).await;
            // Long enough for anybody who would take it for a reason.
            tokio::time::sleep(misfortune.lasts()).await;
            writer.acknowledges().await;
            for fault in faults.iter().rev() {
                self.cluster.heal(fault).unwrap();
            }
            assert_eq!(self.whole().await, before, "{misfortune:?} is no reason to change");
            let now = self.started().await;
            let name = &before.name;
            assert_eq!(now[name], started[name], "{misfortune:?} is no reason to start the leader anew");
            if misfortune.leaves_replicas_alone() {
                assert_eq!(now, started, "{misfortune:?} is no reason to start anything anew");
            }
            let gap = writer.longest_gap();
            println!("{misfortune:?}: longest gap {gap:.1?}");
            misfortune.took(gap);
        }
        println!("{} writes, none lost", writer.finish().await);
    }

    async fn somebody(&self) -> Leader {
        let led = until("somebody to lead", LONG, || async {
            match self.lease().await {
                Ok((Some(leader), _)) => Look::There(leader),
                other => Look::NotYet(format!("{other:?}")),
            }
        });
        led.await.unwrap_or_else(|error| panic!("{error}\n{}", self.evidence()))
    }
}
