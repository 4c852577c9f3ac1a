//! What is known of a database and of what belongs to it: all that a plan follows from.

use std::time::Duration;

use jiff::Timestamp;
use keelson_api::instance::{InstanceSettings, Names, Report};
use keelson_api::v1::{DatabaseSpec, DatabaseStatus, Role};
use keelson_api::value::Size;

use super::backups::BackupFact;
use super::drills::Throwaway;
use super::plan::Step;
use super::restore::Source;

/// What is known of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// When it was made.
    pub made: Timestamp,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// What a person asks for.
    pub spec: DatabaseSpec,
    /// The status, as it was last written.
    pub status: DatabaseStatus,
    /// Whether it may take volumes that an older one of its name has left.
    pub adopt: bool,
    /// The restore in place whose old data may go.
    pub discard: Option<String>,
    /// The text by which its owner asked for its instances to be made anew, if ever.
    pub restart: Option<String>,
    /// Stands for the Secrets that it should have, apart from the certificate's time. Empty where whoever looks can't
    /// know: then they are taken to be as they should.
    pub secrets_mark: String,
    /// What agents were told last.
    pub config: Option<InstanceSettings>,
    /// When the account of its agents was made. One that is made anew has the name of the old one, but the
    /// tokens of pods from before are of no use any more.
    pub account: Option<Timestamp>,
    /// The StatefulSet, if there is one.
    pub set: Option<Set>,
    /// Its pods, by ordinal.
    pub instances: Vec<Instance>,
    /// The claims of its volumes, by ordinal.
    pub claims: Vec<Claim>,
    /// Its Backups.
    pub backups: Vec<BackupFact>,
    /// What there is of a drill of its backups.
    pub drill: Throwaway,
    /// Where its first data comes from, where another object has to say that and was asked.
    pub source: Option<Source>,
    /// What this process has done lately and can't see in the cluster.
    pub lately: Lately,
    /// The image that holds the agent.
    pub agent_image: String,
}

/// The StatefulSet.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Its uid.
    pub uid: String,
    /// How many pods it is to have.
    pub pods: u32,
    /// The size of new volumes.
    pub storage: Option<Size>,
    /// Whether it is on its way out.
    pub deleting: bool,
}

/// An instance, from its pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// The pod's name.
    pub name: String,
    /// The number in it.
    pub ordinal: u32,
    /// The pod's uid.
    pub uid: String,
    /// The version of the pod that was seen.
    pub resource_version: String,
    /// When it was made.
    pub made: Timestamp,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Whether the kubelet says that it serves.
    pub ready: bool,
    /// Whether the leader knows better.
    pub missed: bool,
    /// Whether the kubelet says that its volumes or its network are not there yet.
    pub unmounted: bool,
    /// What it was made for; see [`super::children::stateful_set::asked`].
    pub asked: Option<String>,
    /// The restart that it was told of last.
    pub restart: Option<String>,
    /// What its agent says.
    pub report: Option<Report>,
    /// What keeps it from starting, as the cluster says.
    pub hindrance: Option<Hindrance>,
}

/// What keeps a pod from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// No node takes it.
    Unschedulable(String),
    /// Its image can't be had.
    Image(String),
    /// Its container ends again and again, or can't be made.
    Container(String),
}

/// The claim of a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// The ordinal of the instance that it is for.
    pub ordinal: u32,
    /// Its uid.
    pub uid: String,
    /// The version of the claim that was seen.
    pub resource_version: String,
    /// The Database for which it was made.
    pub database_uid: Option<String>,
    /// Whether an older Database of this name had left it.
    pub adopted: bool,
    /// When it was made.
    pub made: Timestamp,
    /// The size that was asked for.
    pub requested: Option<Size>,
    /// Whether there is a volume.
    pub bound: bool,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Why it can't grow.
    pub stuck: Option<String>,
}

impl Claim {
    /// Its removal, as it was seen.
    pub(super) fn removal(&self) -> Step {
        Step::RemoveClaim {
            claim: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}

/// What this process has done lately. It is forgotten with the process, and all of it may be done twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lately {
    /// A handover was asked of this leader, so long ago.
    pub handover: Option<(String, Duration)>,
    /// This pod may have been told to end or to restart: that was not answered, so long ago, and may still come.
    pub doubtful: Option<(String, Duration)>,
    /// The Secrets were written because somebody missed them, so long ago.
    pub secrets: Option<Duration>,
    /// The cluster would not have a child as it should be, with this reason.
    pub refused: Option<String>,
    /// A volume was refused to grow, with this reason, so long ago.
    pub growth_refused: Option<(String, Duration)>,
    /// Pods that were not there, and for how long that has been so.
    pub absent: Vec<(String, Duration)>,
}

impl Observed {
    /// Who leads, as far as agents say: the newest epoch that any of them knows.
    pub fn leader(&self) -> Option<&str> {
        let reports = self.instances.iter().filter_map(|instance| instance.report.as_ref());
        let newest = reports.max_by_key(|report| (report.epoch, !report.leader.is_empty()))?;
        Some(newest.leader.as_str()).filter(|leader| !leader.is_empty())
    }

    /// The instance that takes writes: it says so, the kubelet agrees, and nobody knows of a newer leader.
    pub fn primary(&self) -> Option<&Instance> {
        let claims = |instance: &&Instance| {
            instance.ready
                && !instance.deleting
                && instance.report.as_ref().is_some_and(Report::claims_writes)
        };
        let primary = self.instances.iter().filter(claims).max_by_key(|instance| instance.epoch())?;
        let newer = |other: &Instance| {
            other
                .report
                .as_ref()
                .is_some_and(|report| report.epoch > primary.epoch() && report.leader != primary.name)
        };
        (!self.instances.iter().any(newer)).then_some(primary)
    }

    /// Pods that the StatefulSet is to have and that are not there. It says nowhere but in events why it makes none.
    pub fn absent(&self) -> Vec<String> {
        let pods = self.set.as_ref().filter(|set| !set.deleting).map_or(0, |set| set.pods);
        let absent = (0..pods).filter(|ordinal| !self.instances.iter().any(|one| one.ordinal == *ordinal));
        absent.map(|ordinal| Names(&self.name).pod(ordinal)).collect()
    }

    /// Whether there is data: some agent has seen the database.
    pub fn exists(&self) -> bool {
        let known = |instance: &Instance| instance.report.as_ref().is_some_and(|it| it.system_id.is_some());
        self.instances.iter().any(known) || self.status.version.is_some()
    }
}

/// A kubelet that is gone says nothing, for a minute or so, and what agents have said stays. But the leader
/// knows who follows it, and everybody who leads.
pub fn doubt(instances: &mut [Instance]) {
    let leading = |one: &&Instance| one.report.as_ref().is_some_and(|it| it.role == Role::Primary);
    let Some(leader) = instances.iter().filter(leading).max_by_key(|one| one.epoch()) else { return };
    let (name, epoch) = (leader.name.clone(), leader.epoch());
    let followers = leader.report.as_ref().and_then(|report| report.followers.clone());
    for other in instances.iter_mut().filter(|other| other.name != name) {
        let Some(report) = &mut other.report else { continue };
        let missed = followers.as_ref().is_some_and(|followers| !followers.contains(&other.name));
        if report.role == Role::Primary && report.epoch < epoch {
            (report.role, report.writable) = (Role::Unknown, false);
            other.missed = true;
        } else if report.follows() && missed {
            other.missed = true;
        }
    }
}

impl Instance {
    /// The removal of its pod, as it was seen.
    pub(super) fn removal(&self) -> Step {
        Step::Replace {
            pod: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// Whether it serves, by all that is known: a kubelet asks every other second, and its agent knows sooner.
    pub fn serves(&self) -> bool {
        let says = self.report.as_ref().is_none_or(|it| it.claims_writes() || it.follows());
        self.ready && !self.deleting && !self.missed && says
    }

    fn epoch(&self) -> u64 {
        self.report.as_ref().map_or(0, |report| report.epoch)
    }
}
