//! What happens to the database, and what is asked of it.

use serde::{Deserialize, Serialize};

/// What happens, mostly to the instance that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// `kill -9` of the postmaster.
    PostgresKilled,
    /// `kill -9` of PID 1 of the container.
    ContainerKilled,
    /// `kubectl delete pod`.
    PodDeleted,
    /// `kubectl delete pod --force`.
    PodDeletedByForce,
    /// Power is lost.
    NodeCrashed,
    /// It runs, and nobody reaches it.
    NodeCutOff,
    /// SIGSTOP of all processes in the container.
    ProcessPaused,
    /// Writes hang.
    VolumeFrozen,
    /// Somebody asks another to lead.
    HandedOver,
    /// All three are replaced, one after another.
    RollingRestart,
}

impl Case {
    /// All, in the order of the report.
    pub(crate) const ALL: [Case; 10] = [
        Case::PostgresKilled,
        Case::ContainerKilled,
        Case::PodDeleted,
        Case::PodDeletedByForce,
        Case::NodeCrashed,
        Case::NodeCutOff,
        Case::ProcessPaused,
        Case::VolumeFrozen,
        Case::HandedOver,
        Case::RollingRestart,
    ];

    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Case::PostgresKilled => "Postgres killed",
            Case::ContainerKilled => "container killed",
            Case::PodDeleted => "pod deleted",
            Case::PodDeletedByForce => "pod deleted by force",
            Case::NodeCrashed => "node crashed",
            Case::NodeCutOff => "node cut off",
            Case::ProcessPaused => "processes paused",
            Case::VolumeFrozen => "volume frozen",
            Case::HandedOver => "planned handover",
            Case::RollingRestart => "rolling restart of all three",
        }
    }

    /// The worst time without writes must be under so many seconds.
    pub(crate) fn bound(self) -> f64 {
        match self {
            Case::PostgresKilled | Case::ContainerKilled | Case::PodDeleted | Case::PodDeletedByForce => 3.0,
            Case::NodeCrashed | Case::NodeCutOff | Case::ProcessPaused | Case::VolumeFrozen => 8.0,
            Case::HandedOver => 1.0,
            // Handed over before it is the leader's turn: no worse than a pod that is deleted.
            Case::RollingRestart => 3.0,
        }
    }
}
