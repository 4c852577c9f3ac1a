//! A database whose children, pods and agents do at once what they are told, for plans to be tried on.
//!
//! It leaves out all that takes time or fails: volumes are there and grow, pods start, agents hand over and
//! restart. Any parameter takes a restart. What can't be changed of a StatefulSet is refused, as by an API
//! server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::{Report, fingerprint};
use keelson_api::v1::{DatabaseSpec, DatabaseStatus, Role};
use keelson_kit::conditions::merge;
use keelson_operator::database::children::Wanted;
use keelson_operator::database::children::stateful_set::asked;
use keelson_operator::database::facts::{Claim, Instance, Lately, Observed, Set};
use keelson_operator::database::plan::{Step, plan};
use serde_json::Value;

/// So many turns are more than any change takes.
const MOST: usize = 60;

#[derive(Clone, PartialEq)]
pub struct Model {
    seen: Observed,
    /// What the children were last made from.
    applied: Option<Wanted>,
    /// The parameters that each instance runs with.
    running: BTreeMap<u32, BTreeMap<String, String>>,
    leader: String,
    epoch: u64,
    made: u32,
    quiet: bool,
}

/// Where it ended: what there is, and what is said.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// What the children follow from, and nothing else.
    pub wanted: Option<Wanted>,
    /// Whether nothing is done, since what is asked for can't be.
    pub held_up: bool,
    pub conditions: BTreeMap<String, (String, String, String)>,
    pub phase: String,
    pub claims: Vec<(String, String)>,
    pub pods: Vec<(String, Option<String>)>,
}

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

impl Model {
    /// A database that nobody has seen yet.
    pub fn new(spec: &Value) -> Model {
        let seen = Observed {
            name: "orders".to_owned(),
            namespace: "shop".to_owned(),
            uid: "1".to_owned(),
            made: now(),
            generation: Some(1),
            spec: serde_json::from_value(spec.clone()).unwrap(),
            status: DatabaseStatus::default(),
            discard: None,
            adopt: false,
            restart: None,
            secrets_mark: "mark".to_owned(),
            config: None,
            account: Some(now()),
            set: None,
            instances: Vec::new(),
            claims: Vec::new(),
            backups: Vec::new(),
            drill: Default::default(),
            source: None,
            lately: Lately::default(),
            agent_image: "keelson:test".to_owned(),
        };
        Model {
            seen,
            applied: None,
            running: BTreeMap::new(),
            leader: String::new(),
            epoch: 0,
            made: 0,
            quiet: false,
        }
    }

    /// Asks for something else, and goes on until nothing is left to be done.
    pub fn change(&mut self, spec: DatabaseSpec) -> Result<Rest, String> {
        self.seen.spec = spec;
        self.seen.generation = self.seen.generation.map(|generation| generation + 1);
        self.settle()
    }

    /// Goes on until nothing is left to be done.
    pub fn settle(&mut self) -> Result<Rest, String> {
        for _ in 0..MOST {
            let before = self.clone();
            self.quiet = true;
            self.act()?;
            self.play();
            if self.quiet && *self == before {
                return Ok(self.rest());
            }
        }
        Err(format!("no end after {MOST} turns: {:?}", plan(&self.seen, now()).steps))
    }

    /// The operator's part.
    fn act(&mut self) -> Result<(), String> {
        let made = plan(&self.seen, now());
        if let Some(wanted) = &made.wanted {
            self.seen.config = Some(wanted.instance.clone());
            if made.apply_set {
                let size = self.seen.set.as_ref().and_then(|set| set.storage);
                if size.is_some_and(|size| size != wanted.storage) {
                    return Err("the template of volumes can't be changed".to_owned());
                }
                let uid =
                    self.seen.set.as_ref().map_or_else(|| format!("s{}", self.made), |set| set.uid.clone());
                let storage = Some(wanted.storage);
                self.seen.set = Some(Set { uid, pods: wanted.pods, storage, deleting: false });
            }
            self.applied = Some(wanted.clone());
        }
        for step in &made.steps {
            self.quiet = false;
            self.take(step);
        }
        self.seen.status = made.status.clone();
        let conditions = &made.status.conditions;
        self.seen.status.conditions = merge(conditions, &made.findings, self.seen.generation, &Time(now()));
        Ok(())
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Adopt { .. } => {}
            Step::Grow { claim, to } => {
                let found = self.seen.claims.iter_mut().find(|one| one.name == *claim).unwrap();
                found.requested = Some(to.parse().unwrap());
            }
            Step::RemoveClaim { claim, .. } => self.seen.claims.retain(|one| one.name != *claim),
            Step::Remake { .. } => self.seen.set = None,
            Step::HandOver { to, .. } => {
                self.leader.clone_from(to);
                self.epoch += 1;
            }
            Step::Restart { pod, token } => {
                let found = self.seen.instances.iter_mut().find(|one| one.name == *pod).unwrap();
                found.restart = Some(token.clone());
                self.running.remove(&found.ordinal);
            }
            Step::Replace { pod, uid, .. } => {
                self.seen.instances.retain(|one| one.name != *pod || one.uid != *uid);
            }
        }
    }

    /// Everybody else's part.
    fn play(&mut self) {
        let (Some(set), Some(applied)) = (self.seen.set.clone(), self.applied.clone()) else { return };
        self.seen.instances.retain(|one| one.ordinal < set.pods);
        for ordinal in 0..set.pods {
            if !self.seen.claims.iter().any(|claim| claim.ordinal == ordinal) {
                self.seen.claims.push(claim(ordinal, &set));
            }
            if !self.seen.instances.iter().any(|one| one.ordinal == ordinal) {
                self.made += 1;
                self.seen.instances.push(pod(ordinal, self.made, asked(&applied)));
                self.running.remove(&ordinal);
            }
        }
        self.seen.instances.sort_by_key(|one| one.ordinal);
        self.seen.claims.sort_by_key(|claim| claim.ordinal);
        if !self.seen.instances.iter().any(|one| one.name == self.leader) {
            self.leader = self.seen.instances.first().map(|one| one.name.clone()).unwrap_or_default();
            self.epoch += 1;
        }
        let Some(config) = self.seen.config.clone() else { return };
        let settings = fingerprint(&config.to_json().unwrap());
        for instance in &mut self.seen.instances {
            let runs = self.running.entry(instance.ordinal).or_insert_with(|| config.parameters.clone());
            let leads = instance.name == self.leader;
            instance.report = Some(Report {
                role: if leads { Role::Primary } else { Role::Replica },
                writable: leads,
                lag_bytes: Some(0),
                version: Some("17.5".to_owned()),
                system_id: Some("7".to_owned()),
                settings: Some(settings.clone()),
                pending_restart: *runs != config.parameters,
                restarted: instance.restart.clone(),
                leader: self.leader.clone(),
                epoch: self.epoch,
                ..Report::default()
            });
        }
    }

    fn rest(&self) -> Rest {
        let conditions = self.seen.status.conditions.iter().map(|one| {
            // Who leads is of the way and not of the end.
            let message = one.message.replace(&self.leader, "the leader");
            (one.type_.clone(), (one.status.clone(), one.reason.clone(), message))
        });
        let sizes = self.seen.claims.iter().map(|claim| {
            (claim.name.clone(), claim.requested.map(|size| size.to_string()).unwrap_or_default())
        });
        Rest {
            wanted: self.applied.clone(),
            held_up: plan(&self.seen, now()).wanted.is_none(),
            conditions: conditions.collect(),
            phase: self.seen.status.phase.as_ref().map(ToString::to_string).unwrap_or_default(),
            claims: sizes.collect(),
            pods: self.seen.instances.iter().map(|one| (one.name.clone(), one.asked.clone())).collect(),
        }
    }
}

fn claim(ordinal: u32, set: &Set) -> Claim {
    Claim {
        name: format!("data-orders-{ordinal}"),
        ordinal,
        uid: format!("c{ordinal}"),
        resource_version: String::new(),
        database_uid: Some("1".to_owned()),
        adopted: false,
        made: now(),
        requested: set.storage,
        bound: true,
        deleting: false,
        stuck: None,
    }
}

fn pod(ordinal: u32, number: u32, asked: String) -> Instance {
    Instance {
        name: format!("orders-{ordinal}"),
        ordinal,
        uid: format!("p{number}"),
        resource_version: "5".to_owned(),
        made: now(),
        deleting: false,
        ready: true,
        missed: false,
        unmounted: false,
        asked: Some(asked),
        restart: None,
        report: None,
        hindrance: None,
    }
}
