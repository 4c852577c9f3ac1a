//! What can be made to go wrong, and right again.
//!
//! A [`Fault`] is a value that names all it needs: injecting it twice is injecting it once, and it
//! can be healed while the API server is away. The faults in force are kept in a file of the
//! cluster's folder.

mod act;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::init::Order;
use crate::network::{Break, Node};
use crate::pods::{Container, Which};

pub use act::heal_all;
pub(crate) use act::{heal, in_force, inject, lose_power, signal};

/// Something that is wrong with the cluster until it is healed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The node loses power: everything on it dies at once, what had not reached a disk is lost, and
    /// nobody hears from it again. Healing boots it.
    NodeCrash {
        /// Which node.
        node: Node,
    },
    /// The node stands still: no process runs, no packet is answered. Healing lets it go on as if
    /// nothing had been.
    NodeFreeze {
        /// Which node.
        node: Node,
    },
    /// The node runs, but nobody reaches it and it reaches nobody.
    NodeCutOff {
        /// Which node.
        node: Node,
    },
    /// Nothing from one node reaches the other; with `both`, nor the other way.
    LinkCut {
        /// Packets from this node …
        from: Node,
        /// … to this one are lost.
        to: Node,
        /// The other way, too.
        both: bool,
    },
    /// The node and the API server can't reach each other; nodes, names and objects still can.
    ApiCut {
        /// Which node.
        node: Node,
    },
    /// Some of the node's packets are lost, in and out.
    PacketLoss {
        /// Which node.
        node: Node,
        /// How many of a hundred.
        percent: u8,
    },
    /// A component of the control plane is gone.
    ComponentStop {
        /// Which.
        component: HubComponent,
    },
    /// A component of the control plane stands still: it accepts connections and says nothing.
    ComponentPause {
        /// Which.
        component: HubComponent,
    },
    /// A component of the control plane answers late.
    ComponentSlow {
        /// Which.
        component: HubComponent,
        /// The longest that an answer is held up.
        milliseconds: u64,
    },
    /// Processes in a pod stand still.
    ProcessPause {
        /// Where.
        container: Container,
        /// Which of them.
        which: Which,
    },
    /// A volume has no room left.
    VolumeFull {
        /// Which.
        volume: Volume,
    },
    /// Writes to a volume hang.
    VolumeFreeze {
        /// Which.
        volume: Volume,
    },
    /// A volume comes back read-only, as after an error of the disk. The containers that use it are
    /// killed, now and when it is healed, and start again on what they find.
    VolumeReadOnly {
        /// Which.
        volume: Volume,
    },
    /// The disk below a volume fails: reads that are not cached, and `fsync`, get EIO.
    VolumeIoError {
        /// Which.
        volume: Volume,
    },
}

/// What runs on the hub and can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HubComponent {
    /// The API server.
    #[value(name = "kube-apiserver", alias = "apiserver")]
    ApiServer,
    /// Its database.
    Etcd,
    /// The built-in controllers.
    #[value(name = "kube-controller-manager")]
    ControllerManager,
    /// The scheduler.
    #[value(name = "kube-scheduler")]
    Scheduler,
    /// The name service.
    Coredns,
    /// The object store.
    S3,
}

impl HubComponent {
    fn name(self) -> &'static str {
        match self {
            HubComponent::ApiServer => "kube-apiserver",
            HubComponent::Etcd => "etcd",
            HubComponent::ControllerManager => "kube-controller-manager",
            HubComponent::Scheduler => "kube-scheduler",
            HubComponent::Coredns => "coredns",
            HubComponent::S3 => "s3",
        }
    }
}

/// A volume on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The node that has it.
    pub node: Node,
    /// The PersistentVolume.
    pub name: String,
    /// `namespace/name` of its claim.
    pub claim: String,
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} on {})", self.claim, self.name, self.node)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NodeCrash { node } => write!(f, "{node} has crashed"),
            Fault::NodeFreeze { node } => write!(f, "{node} stands still"),
            Fault::NodeCutOff { node } => write!(f, "{node} is cut off"),
            Fault::LinkCut { from, to, both: true } => write!(f, "{from} and {to} can't reach each other"),
            Fault::LinkCut { from, to, both: false } => write!(f, "nothing from {from} reaches {to}"),
            Fault::ApiCut { node } => write!(f, "{node} and the API server can't reach each other"),
            Fault::PacketLoss { node, percent } => write!(f, "{node} loses {percent}% of its packets"),
            Fault::ComponentStop { component } => write!(f, "{} is stopped", component.name()),
            Fault::ComponentPause { component } => write!(f, "{} is paused", component.name()),
            Fault::ComponentSlow { component, milliseconds } => {
                write!(f, "{} is up to {milliseconds} ms late", component.name())
            }
            Fault::ProcessPause { container, which: Which::All } => write!(f, "{container} stands still"),
            Fault::ProcessPause { container, which: Which::Main } => {
                write!(f, "PID 1 of {container} stands still")
            }
            Fault::ProcessPause { container, which: Which::Named(name) } => {
                write!(f, "{name} in {container} stands still")
            }
            Fault::VolumeFull { volume } => write!(f, "volume {volume} is full"),
            Fault::VolumeFreeze { volume } => write!(f, "volume {volume} is frozen"),
            Fault::VolumeReadOnly { volume } => write!(f, "volume {volume} is read-only"),
            Fault::VolumeIoError { volume } => write!(f, "volume {volume} fails with EIO"),
        }
    }
}

impl Fault {
    /// Whether a person who names one means the other: a container may have been started again, and
    /// a claim may have got another volume, since the fault was injected.
    pub fn means(&self, other: &Fault) -> bool {
        match (self, other) {
            (
                Fault::ProcessPause { container: a, which: b },
                Fault::ProcessPause { container: c, which: d },
            ) => a.pod == c.pod && b == d,
            _ => self.volume().map_or(self == other, |volume| {
                std::mem::discriminant(self) == std::mem::discriminant(other)
                    && other.volume().is_some_and(|also| volume.claim == also.claim)
            }),
        }
    }

    fn volume(&self) -> Option<&Volume> {
        match self {
            Fault::VolumeFull { volume }
            | Fault::VolumeFreeze { volume }
            | Fault::VolumeReadOnly { volume }
            | Fault::VolumeIoError { volume } => Some(volume),
            _ => None,
        }
    }

    /// Whether it is still in force after a node has crashed. What stood still there is dead now, and
    /// its disks are mounted anew when it boots.
    fn survives_crash_of(&self, crashed: Node) -> bool {
        match self {
            Fault::NodeFreeze { node } => *node != crashed,
            Fault::ProcessPause { container, .. } => container.node != crashed,
            Fault::VolumeFreeze { volume }
            | Fault::VolumeReadOnly { volume }
            | Fault::VolumeIoError { volume } => volume.node != crashed,
            // A file on the disk, and what is outside of the node.
            _ => true,
        }
    }

    /// What it wants of a component of the control plane.
    pub(crate) fn order(&self) -> Option<(HubComponent, Order)> {
        match *self {
            Fault::ComponentStop { component } => Some((component, Order::Stop)),
            Fault::ComponentPause { component } => Some((component, Order::Pause)),
            Fault::ComponentSlow { component, milliseconds } => {
                Some((component, Order::Stutter { milliseconds }))
            }
            _ => None,
        }
    }

    /// What it means for the network.
    fn breaks(&self) -> Vec<Break> {
        match *self {
            Fault::NodeCrash { node } | Fault::NodeFreeze { node } | Fault::NodeCutOff { node } => {
                vec![Break::Isolated(node)]
            }
            Fault::LinkCut { from, to, both } => {
                let back = both.then_some(Break::OneWay { from: to, to: from });
                [Some(Break::OneWay { from, to }), back].into_iter().flatten().collect()
            }
            Fault::ApiCut { node } => vec![Break::FromApi(node)],
            Fault::PacketLoss { node, percent } => vec![Break::Loss { node, percent }],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> Node {
        Node::new(number).unwrap()
    }

    #[test]
    fn a_crash_ends_what_was_wrong_inside_the_node_only() {
        let volume = |node: Node| Volume { node, name: "pvc".into(), claim: "a/b".into() };
        let frozen = Fault::VolumeFreeze { volume: volume(node(1)) };
        assert!(!frozen.survives_crash_of(node(1)) && frozen.survives_crash_of(node(2)));
        assert!(Fault::VolumeFull { volume: volume(node(1)) }.survives_crash_of(node(1)));
        assert!(Fault::NodeCutOff { node: node(1) }.survives_crash_of(node(1)));
    }

    #[test]
    fn a_fault_that_was_written_down_is_read_back_the_same() {
        let container = Container { node: node(3), pod: "a/b".into(), id: "c".into() };
        for fault in [
            Fault::LinkCut { from: node(1), to: node(2), both: false },
            Fault::ComponentSlow { component: HubComponent::Etcd, milliseconds: 7 },
            Fault::ProcessPause { container, which: Which::Named("postgres".into()) },
        ] {
            let text = serde_json::to_string(&fault).unwrap();
            assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault, "{text}");
        }
    }
}
