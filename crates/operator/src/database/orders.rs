//! In which order a plan is carried out, and in which a database that goes is cleaned up: as values, so that what
//! runs on a cluster and what runs in the simulator do the same.

use jiff::Timestamp;
use keelson_api::v1::DeletionPolicy;
use keelson_ha::planted::{self, Bug};

use super::facts::{Claim, Observed};
use super::plan::{Plan, Step};

/// A child of a database, but for the Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Child {
    /// What agents are told.
    Config,
    /// Who agents are.
    Account,
    /// What they may do.
    Role,
    /// That they may do it.
    Binding,
    /// The instances.
    Set,
    /// A name for each instance.
    Instances,
    /// The way to the primary.
    Writers,
    /// The way to replicas.
    Readers,
    /// How many may be taken away at once.
    Disruption,
}

impl Child {
    /// All, in an order in which nothing is made before what it needs.
    pub const ALL: [Child; 9] = [
        Child::Config,
        Child::Account,
        Child::Role,
        Child::Binding,
        Child::Set,
        Child::Instances,
        Child::Writers,
        Child::Readers,
        Child::Disruption,
    ];

    /// Whether plans follow from it. Then there is another plan once it is written: what a process has written
    /// itself is no news to it, and nobody else would tell. Pods from before the account was made, for one, have
    /// tokens that are good for nothing.
    pub fn is_planned_from(self) -> bool {
        matches!(self, Child::Config | Child::Account | Child::Set)
    }
}

/// One thing to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Write the Secrets.
    Secrets {
        /// Until when the certificate is to be valid.
        until: Timestamp,
    },
    /// Make a child what it should be.
    Apply(Child),
    /// Take a step.
    Take(Step),
}

impl Plan {
    /// What is to be done, in this order.
    pub fn orders(&self) -> Vec<Order> {
        let secrets = self.secrets.filter(|_| self.wanted.is_some());
        let children = Child::ALL.into_iter().filter(|_| self.wanted.is_some());
        let children = children.filter(|child| self.apply_set || *child != Child::Set);
        let steps = self.steps.iter().cloned().map(Order::Take);
        let secrets = secrets.map(|until| Order::Secrets { until });
        secrets.into_iter().chain(children.map(Order::Apply)).chain(steps).collect()
    }
}

const RIGHTS: &str = "rights";
const LEADERSHIP: &str = "leadership";
const VOLUMES: &str = "volumes";

/// The steps of the clean-up. Agents first lose the right to write, or they would make anew what is removed.
pub const CLEANUP: &[&str] = &[RIGHTS, LEADERSHIP, VOLUMES];

/// One thing to be done about a database that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parting {
    /// Say that it goes.
    Say,
    /// Take from agents what they may do.
    RemoveBinding,
    /// Remove the Lease, unless it is somebody else's.
    RemoveLease,
    /// Remove the way to the primary, unless it is somebody else's.
    RemoveWriters,
    /// Remove the instances.
    RemoveSet,
    /// Remove a volume, or a pod.
    Take(Step),
}

/// Whether a step of the clean-up takes away what can't be had back: it follows from what there is now, and not from
/// what was told of it.
pub fn is_weighty(step: &str) -> bool {
    step == VOLUMES
}

/// What a step of the clean-up consists of, in this order.
pub fn parting(step: &str, seen: &Observed) -> Vec<Parting> {
    match step {
        RIGHTS => vec![Parting::Say, Parting::RemoveBinding],
        LEADERSHIP => vec![Parting::RemoveLease, Parting::RemoveWriters],
        // Or its controller would make anew what is removed.
        _ => {
            let (go, _) = volumes(seen);
            let go = go.into_iter().map(|claim| Parting::Take(claim.removal()));
            // Pods belong to nobody while the StatefulSet is being made again for larger volumes.
            let orphans = seen.instances.iter().filter(|pod| seen.set.is_none() && !pod.deleting);
            let orphans = orphans.map(|pod| Parting::Take(pod.removal()));
            std::iter::once(Parting::RemoveSet).chain(orphans).chain(go).collect()
        }
    }
}

/// The volumes that go with a database, and those that stay.
pub fn volumes(seen: &Observed) -> (Vec<&Claim>, Vec<&Claim>) {
    // A policy that can't be read removes nothing. A claim that has no volume holds nothing.
    let policy = seen.spec.deletion_policy.as_ref().and_then(|policy| policy.parse().ok());
    let own = seen.claims.iter().filter(|claim| claim.database_uid.as_deref() == Some(&seen.uid));
    let delete = policy == Some(DeletionPolicy::Delete) && !planted::is(Bug::KeepDeleted);
    own.partition(|claim| delete || !claim.bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_lose_the_right_to_write_before_what_they_would_make_anew_is_removed() {
        assert_eq!(CLEANUP, ["rights", "leadership", "volumes"]);
        let position = |child| Child::ALL.iter().position(|one| *one == child);
        assert!(position(Child::Config) < position(Child::Set), "pods do not start without it");
        assert!(position(Child::Binding) < position(Child::Set), "agents could do nothing");
    }
}
