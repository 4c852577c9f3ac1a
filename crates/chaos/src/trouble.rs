//! What is done to databases: the kinds, and one of them at a time and a place.

use std::fmt;

use testbed::Node;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `kill -9` of the postmaster.
    PostgresKilled,
    /// `kill -9` of PID 1 of the container, the agent.
    AgentKilled,
    /// `kubectl delete pod`.
    PodDeleted,
    /// `kubectl delete pod --force`.
    PodDeletedByForce,
    /// SIGSTOP of all processes in the container.
    ProcessesPaused,
    /// SIGSTOP of the agent, while PostgreSQL runs on.
    AgentPaused,
    /// SIGSTOP of PostgreSQL, while the agent runs on.
    PostgresPaused,
    /// Writes to the volume hang.
    VolumeFrozen,
    /// Not a block is free.
    VolumeFull,
    /// The volume comes back read-only.
    VolumeReadOnly,
    /// The disk fails with EIO.
    VolumeFails,
    /// The claim is gone with its pod, and the next one begins with an empty volume.
    VolumeLost,
    /// Power is lost.
    NodeCrashed,
    /// No process runs on the node.
    NodeFrozen,
    /// It runs, and nobody reaches it.
    NodeCutOff,
    /// It and the API server do not reach each other.
    NodeCutFromApi,
    /// A share of its packets is lost.
    PacketsLost,
    /// Two nodes do not reach each other.
    LinkCut,
    /// Nothing of one node reaches the other; the other way is open.
    LinkCutOneWay,
    /// The API server is gone.
    ApiStopped,
    /// The API server accepts connections and says nothing.
    ApiPaused,
    /// The API server answers late.
    ApiSlow,
    /// All operators are killed.
    OperatorsKilled,
    /// There is no operator.
    OperatorsAway,
    /// Somebody asks for a handover.
    HandedOver,
    /// There is one instance more for a while.
    Scaled,
    /// A parameter changes that is reloaded.
    ParameterReloaded,
    /// A parameter changes that needs every instance to be started again.
    ParameterRestarted,
}

use Kind::*;

/// All kinds.
pub(crate) const ALL: [Kind; 28] = [
    PostgresKilled,
    AgentKilled,
    PodDeleted,
    PodDeletedByForce,
    ProcessesPaused,
    AgentPaused,
    PostgresPaused,
    VolumeFrozen,
    VolumeFull,
    VolumeReadOnly,
    VolumeFails,
    VolumeLost,
    NodeCrashed,
    NodeFrozen,
    NodeCutOff,
    NodeCutFromApi,
    PacketsLost,
    LinkCut,
    LinkCutOneWay,
    ApiStopped,
    ApiPaused,
    ApiSlow,
    OperatorsKilled,
    OperatorsAway,
    HandedOver,
    Scaled,
    ParameterReloaded,
    ParameterRestarted,
];

/// What a kind is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Instance,
    Database,
    Node,
    Link,
    Cluster,
}

impl Kind {
    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            PostgresKilled => "postgres killed",
            AgentKilled => "agent killed",
            PodDeleted => "pod deleted",
            PodDeletedByForce => "pod deleted by force",
            ProcessesPaused => "all processes paused",
            AgentPaused => "agent paused",
            PostgresPaused => "postgres paused",
            VolumeFrozen => "volume frozen",
            VolumeFull => "volume full",
            VolumeReadOnly => "volume read-only",
            VolumeFails => "volume fails with EIO",
            VolumeLost => "volume lost",
            NodeCrashed => "node crashed",
            NodeFrozen => "node frozen",
            NodeCutOff => "node cut off",
            NodeCutFromApi => "node cut off from the API server",
            PacketsLost => "packets lost",
            LinkCut => "link cut",
            LinkCutOneWay => "link cut one way",
            ApiStopped => "API server away",
            ApiPaused => "API server paused",
            ApiSlow => "API server slow",
            OperatorsKilled => "operators killed",
            OperatorsAway => "operators scaled to 0",
            HandedOver => "handover",
            Scaled => "scaled up and down",
            ParameterReloaded => "parameter reloaded",
            ParameterRestarted => "parameter with restarts",
        }
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            PostgresKilled | AgentKilled | PodDeleted | PodDeletedByForce | ProcessesPaused | AgentPaused
            | PostgresPaused | VolumeFrozen | VolumeFull | VolumeReadOnly | VolumeFails | VolumeLost => {
                Scope::Instance
            }
            NodeCrashed | NodeFrozen | NodeCutOff | NodeCutFromApi | PacketsLost => Scope::Node,
            LinkCut | LinkCutOneWay => Scope::Link,
            ApiStopped | ApiPaused | ApiSlow | OperatorsKilled | OperatorsAway => Scope::Cluster,
            HandedOver | Scaled | ParameterReloaded | ParameterRestarted => Scope::Database,
        }
    }

    /// Whether it lasts, and for how many milliseconds at most.
    pub(crate) fn lasts(self) -> Option<u64> {
        match self {
            PostgresKilled | AgentKilled | PodDeleted | PodDeletedByForce | VolumeLost | OperatorsKilled
            | HandedOver | ParameterReloaded | ParameterRestarted => None,
            ApiStopped | ApiPaused | Scaled | OperatorsAway => Some(30_000),
            _ => Some(20_000),
        }
    }

    /// Whether it is done through the API server.
    pub(crate) fn needs_api(self) -> bool {
        matches!(
            self,
            PodDeleted
                | PodDeletedByForce
                | VolumeLost
                | OperatorsKilled
                | OperatorsAway
                | HandedOver
                | Scaled
                | ParameterReloaded
                | ParameterRestarted
        )
    }

    /// Whether it takes the API server away from everybody.
    pub(crate) fn takes_api(self) -> bool {
        matches!(self, ApiStopped | ApiPaused)
    }

    /// Whether a copy of the data is lost by it, and not only out of reach.
    pub(crate) fn loses_a_copy(self) -> bool {
        matches!(self, VolumeFails | VolumeLost)
    }

    /// Whether it stops, ends or takes apart what runs on a volume, so that two at once on one instance would be
    /// in each other's way on the testbed.
    pub(crate) fn needs_volume_alone(self) -> bool {
        matches!(self, VolumeFrozen | VolumeReadOnly)
    }
}

/// Which instance of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Whoever leads when it happens.
    Primary,
    /// One that does not.
    Replica,
    /// The one with this number.
    Ordinal(usize),
}

/// What it is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Instance { database: &'static str, role: Role },
    Database(&'static str),
    Node(Node),
    Link(Node, Node),
    Cluster,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Instance { database, role: Role::Primary } => write!(f, "{database}/primary"),
            Target::Instance { database, role: Role::Replica } => write!(f, "{database}/replica"),
            Target::Instance { database, role: Role::Ordinal(number) } => write!(f, "{database}-{number}"),
            Target::Database(database) => write!(f, "{database}"),
            Target::Node(node) => write!(f, "{node}"),
            Target::Link(from, to) => write!(f, "{from} to {to}"),
            Target::Cluster => write!(f, "cluster"),
        }
    }
}

/// A kind of trouble at a time and a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Milliseconds after the burst has begun.
    pub(crate) at: u64,
    /// How many milliseconds it lasts; 0 for what is over at once.
    pub(crate) long: u64,
    pub(crate) kind: Kind,
    pub(crate) target: Target,
}

impl Trouble {
    /// The database that it is meant for, if one.
    pub(crate) fn database(&self) -> Option<&'static str> {
        match self.target {
            Target::Instance { database, .. } | Target::Database(database) => Some(database),
            Target::Node(_) | Target::Link(..) | Target::Cluster => None,
        }
    }

    /// Whether an instance of a database may be struck by it: whatever is meant for all may.
    pub(crate) fn may_strike(&self, database: &str) -> bool {
        self.database().is_none_or(|name| name == database)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { at, long, kind, target } = self;
        write!(f, "{:>5.1} s  {target}: {}", *at as f64 / 1000.0, kind.title())?;
        if *long > 0 { write!(f, " for {:.1} s", *long as f64 / 1000.0) } else { Ok(()) }
    }
}
