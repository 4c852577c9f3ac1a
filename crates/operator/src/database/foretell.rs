//! What would come of a database if nothing else happened: the real plan, again and again, on a world that is imagined
//! to do as it is told. For whoever wants to know before it is done. Nothing here is asked of anybody.

use jiff::Timestamp;
use keelson_api::instance::{InstanceSettings, Names, Report, fingerprint};
use keelson_api::v1::Role;
use keelson_kit::conditions;

use super::children::Wanted;
use super::children::stateful_set::asked;
use super::facts::{Claim, Instance, Observed, Set};
use super::plan::{Plan, Step, plan};

/// What would come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    /// The plan at this moment.
    pub first: Plan,
    /// What is done, in this order. Each turn follows from how things are after the one before.
    pub turns: Vec<Told>,
    /// The plan when nothing is left to be done, or when it waits for what nobody can foretell.
    pub last: Plan,
}

/// What is done in one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// From so many pods to so many.
    Scale {
        /// Before.
        from: u32,
        /// After.
        to: u32,
    },
    /// A step is taken.
    Take(Step),
}

/// No plan takes longer: ten instances, each with a few things to be done.
const MOST: usize = 200;

/// Parameters of PostgreSQL that take a restart to change (their context is `postmaster`), as far as people may set
/// them.
const NEED_RESTART: &[&str] = &[
    "autovacuum_freeze_max_age",
    "autovacuum_max_workers",
    "autovacuum_multixact_freeze_max_age",
    "bonjour",
    "bonjour_name",
    "commit_timestamp_buffers",
    "dynamic_shared_memory_type",
    "huge_page_size",
    "huge_pages",
    "io_combine_limit",
    "io_max_concurrency",
    "io_method",
    "jit_provider",
    "max_active_replication_origins",
    "max_connections",
    "max_files_per_process",
    "max_locks_per_transaction",
    "max_logical_replication_workers",
    "max_notify_queue_pages",
    "max_pred_locks_per_transaction",
    "max_prepared_transactions",
    "max_replication_slots",
    "max_wal_senders",
    "max_worker_processes",
    "min_dynamic_shared_memory",
    "multixact_member_buffers",
    "multixact_offset_buffers",
    "notify_buffers",
    "recovery_target_timeline",
    "reserved_connections",
    "serializable_buffers",
    "shared_buffers",
    "shared_memory_type",
    "shared_preload_libraries",
    "subtransaction_buffers",
    "superuser_reserved_connections",
    "track_activity_query_size",
    "track_commit_timestamp",
    "transaction_buffers",
    "wal_buffers",
    "wal_decode_buffer_size",
    "wal_level",
    "wal_log_hints",
];

/// Of these a replica may not have less than its primary.
const NOT_LESS: &[&str] = &[
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
];

/// What would come of it, from this moment on.
pub fn foretell(seen: &Observed, now: Timestamp) -> Story {
    let first = plan(seen, now);
    let mut world = World { running: seen.config.clone(), seen: seen.clone(), restarted: Vec::new(), now };
    let mut turns = Vec::new();
    let mut last = first.clone();
    for _ in 0..MOST {
        let before = world.clone();
        last = plan(&world.seen, now);
        turns.extend(world.act(&last));
        world.play(&last);
        if world == before {
            break;
        }
    }
    Story { first, turns, last }
}

/// What is imagined.
#[derive(Debug, Clone, PartialEq)]
struct World {
    seen: Observed,
    /// The settings that instances ran with at first.
    running: Option<InstanceSettings>,
    /// Pods that have begun anew since, and so run with what they are told.
    restarted: Vec<String>,
    now: Timestamp,
}

impl World {
    /// The operator's part.
    fn act(&mut self, made: &Plan) -> Vec<Told> {
        let mut told = Vec::new();
        if let Some(wanted) = &made.wanted {
            self.seen.config = Some(wanted.instance.clone());
            self.seen.account = self.seen.account.or(Some(self.seen.made));
            if made.apply_set {
                // One that is being made again takes over the pods that there are.
                let left = if self.seen.instances.is_empty() { 0 } else { wanted.pods };
                let from = self.seen.set.as_ref().map_or(left, |set| set.pods);
                if from != wanted.pods {
                    told.push(Told::Scale { from, to: wanted.pods });
                }
                let storage = Some(wanted.storage);
                self.seen.set = Some(Set { uid: String::new(), pods: wanted.pods, storage, deleting: false });
            }
        }
        for step in &made.steps {
            told.push(Told::Take(step.clone()));
            self.take(step);
        }
        self.seen.status = made.status.clone();
        self.seen.status.conditions = conditions::merge(
            &made.status.conditions,
            &made.findings,
            self.seen.generation,
            &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now),
        );
        told
    }

    fn take(&mut self, step: &Step) {
        let uid = self.seen.uid.clone();
        match step {
            Step::Adopt { claim, .. } => {
                for found in self.seen.claims.iter_mut().filter(|one| one.name == *claim) {
                    (found.database_uid, found.adopted) = (Some(uid.clone()), true);
                }
            }
            Step::Grow { claim, to } => {
                for found in self.seen.claims.iter_mut().filter(|one| one.name == *claim) {
                    found.requested = to.parse().ok();
                }
            }
            Step::RemoveClaim { claim, .. } => self.seen.claims.retain(|one| one.name != *claim),
            Step::Remake { .. } => self.seen.set = None,
            Step::HandOver { to, .. } => self.leads(to),
            Step::Restart { pod, token } => {
                self.restarted.push(pod.clone());
                for one in self.seen.instances.iter_mut().filter(|one| one.name == *pod) {
                    one.restart = Some(token.clone());
                    if let Some(report) = &mut one.report {
                        report.restarted = Some(token.clone());
                    }
                }
            }
            Step::Replace { pod, .. } => self.seen.instances.retain(|one| one.name != *pod),
        }
    }

    /// Another leads, and the rest follow it.
    fn leads(&mut self, leader: &str) {
        let epochs = self.seen.instances.iter().filter_map(|one| Some(one.report.as_ref()?.epoch));
        let epoch = epochs.max().unwrap_or_default() + 1;
        let follow = |one: &&Instance| one.name != leader && one.serves();
        let followers: Vec<String> =
            self.seen.instances.iter().filter(follow).map(|one| one.name.clone()).collect();
        for one in &mut self.seen.instances {
            let Some(report) = &mut one.report else { continue };
            (report.leader, report.epoch) = (leader.to_owned(), epoch);
            (report.writable, report.followers) = (false, None);
            if one.name == leader {
                (report.role, report.writable) = (Role::Primary, true);
                report.followers = Some(followers.clone());
            } else if report.role == Role::Primary {
                report.role = Role::Synchronous;
            }
        }
    }

    /// Everybody else's part.
    fn play(&mut self, made: &Plan) {
        let (Some(set), Some(wanted)) = (self.seen.set.clone(), &made.wanted) else { return };
        self.seen.instances.retain(|one| one.ordinal < set.pods);
        let name = self.seen.name.clone();
        for ordinal in 0..set.pods {
            if !self.seen.claims.iter().any(|claim| claim.ordinal == ordinal) {
                let claim = self.claim(ordinal, &set);
                self.seen.claims.push(claim);
            }
            if !self.seen.instances.iter().any(|one| one.ordinal == ordinal) {
                self.restarted.push(Names(&name).pod(ordinal));
                let pod = self.pod(ordinal, wanted);
                self.seen.instances.push(pod);
            }
        }
        self.seen.instances.sort_by_key(|one| one.ordinal);
        self.seen.claims.sort_by_key(|claim| claim.ordinal);
        let led =
            self.seen.leader().is_some_and(|leader| self.seen.instances.iter().any(|one| one.name == leader));
        let first = self.seen.instances.iter().find(|one| one.serves()).map(|one| one.name.clone());
        if let Some(first) = first.filter(|_| !led) {
            self.leads(&first);
        }
        self.agents_read(wanted);
    }

    /// Agents see what they are told, and which of it takes a restart.
    fn agents_read(&mut self, wanted: &Wanted) {
        let settings = wanted.instance.to_json().ok().map(|settings| fingerprint(&settings));
        let changed =
            self.running.as_ref().map(|before| changed(before, &wanted.instance)).unwrap_or_default();
        let lower = self.running.as_ref().is_some_and(|before| is_lower(before, &wanted.instance));
        let leader = self.seen.leader().map(str::to_owned);
        let leader_lags =
            |restarted: &[String]| leader.as_ref().is_some_and(|leader| !restarted.contains(leader));
        let waits_for_leader = lower && leader_lags(&self.restarted);
        let restarted = self.restarted.clone();
        for one in &mut self.seen.instances {
            let leads = leader.as_ref() == Some(&one.name);
            let has = restarted.contains(&one.name);
            let Some(report) = &mut one.report else { continue };
            report.settings.clone_from(&settings);
            if has {
                (report.pending_restart, report.lowering) = (false, false);
            } else if !changed.is_empty() {
                report.lowering = waits_for_leader;
                report.pending_restart = leads || !waits_for_leader;
            }
            // Nobody waits for the word of one that is to go.
            if one.ordinal >= wanted.instance.replicas && report.role == Role::Synchronous {
                report.role = Role::Replica;
            }
        }
    }

    fn claim(&self, ordinal: u32, set: &Set) -> Claim {
        Claim {
            name: Names(&self.seen.name).claim(ordinal),
            ordinal,
            uid: String::new(),
            resource_version: String::new(),
            database_uid: Some(self.seen.uid.clone()),
            adopted: false,
            made: self.now,
            requested: set.storage,
            bound: true,
            deleting: false,
            stuck: None,
        }
    }

    /// A pod that serves as soon as it is made.
    fn pod(&self, ordinal: u32, wanted: &Wanted) -> Instance {
        let name = Names(&self.seen.name).pod(ordinal);
        let leader = self.seen.leader().map(str::to_owned);
        let newest = self.seen.instances.iter().filter_map(|one| Some(one.report.as_ref()?.epoch)).max();
        let leads = leader.as_ref() == Some(&name);
        Instance {
            ordinal,
            uid: String::new(),
            resource_version: String::new(),
            made: self.now,
            deleting: false,
            ready: true,
            missed: false,
            unmounted: false,
            asked: Some(asked(wanted)),
            restart: None,
            report: Some(Report {
                role: if leads { Role::Primary } else { Role::Synchronous },
                writable: leads,
                lag_bytes: Some(0),
                version: self.seen.status.version.as_ref().map(ToString::to_string),
                system_id: Some(wanted.instance.system.clone().unwrap_or_else(|| "foretold".to_owned())),
                leader: leader.unwrap_or_default(),
                epoch: newest.unwrap_or_default(),
                ..Report::default()
            }),
            hindrance: None,
            name,
        }
    }
}

/// The parameters that differ and take a restart.
fn changed(before: &InstanceSettings, after: &InstanceSettings) -> Vec<&'static str> {
    let differs = |name: &&&str| before.parameters.get(**name) != after.parameters.get(**name);
    NEED_RESTART.iter().filter(differs).copied().collect()
}

/// Whether one of those is to be lower of which a replica may not have less than its primary.
fn is_lower(before: &InstanceSettings, after: &InstanceSettings) -> bool {
    let number = |settings: &InstanceSettings, name: &str| settings.parameters.get(name)?.parse::<i64>().ok();
    NOT_LESS.iter().any(|name| match (number(before, name), number(after, name)) {
        (Some(before), Some(after)) => after < before,
        // What is derived in its place may be less.
        (Some(_), None) => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests;
