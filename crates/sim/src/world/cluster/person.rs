//! A person who writes the Database, changes its spec, deletes it and makes it anew under its name.
//!
//! Left out: specs that are refused; a person who edits children.

use keelson_api::v1::{DatabaseSpec, DatabaseStatus, Storage};
use keelson_api::value::{Size, Written};
use serde_json::json;

use super::super::queue::Micros;
use super::super::{SECOND, World};
use super::ClusterEvent;
use super::objects::{DATABASE, DatabaseObject, What};
use super::reports::PARAMETER;
use crate::fault::Kind;

/// The person.
#[derive(Debug)]
pub struct Person {
    /// Whether volumes are to stay when the Database goes.
    pub retain: bool,
    /// What is asked for.
    pub spec: Option<DatabaseSpec>,
    generation: i64,
    /// Whether it is about to be made.
    creates: bool,
    /// How many instances were asked for, and since when.
    pub replicas: Vec<(Micros, u32)>,
    /// Pods take long to start until then.
    pub slow_starts: Micros,
}

impl Person {
    pub fn new(retain: bool) -> Person {
        Person { retain, spec: None, generation: 0, creates: false, replicas: Vec::new(), slow_starts: 0 }
    }

    /// The least instances that were asked for since then.
    pub fn least_since(&self, since: Micros) -> u32 {
        let before = self.replicas.iter().rev().find(|(at, _)| *at <= since).map(|(_, many)| *many);
        let after = self.replicas.iter().filter(|(at, _)| *at > since).map(|(_, many)| *many);
        after.chain(before).min().unwrap_or_default()
    }
}

impl World {
    /// The spec of this history.
    pub(in super::super) fn first_spec(&mut self) {
        let [ttl, look, margin] = self.scenario.times.map(|millis| format!("{millis}ms"));
        let scenario = &self.scenario;
        let spec = json!({
            "version": "17",
            "replicas": scenario.instances,
            "storage": "10Gi",
            "durability": if scenario.synchronous { "quorum" } else { "async" },
            "failover": {
                "ttl": ttl, "interval": look, "margin": margin,
                "standby": if scenario.required { "required" } else { "preferred" },
                "maxLag": scenario.max_lag.to_string(),
            },
            "deletionPolicy": if scenario.operator == Some(true) { "Retain" } else { "Delete" },
        });
        let replicas = scenario.instances as u32;
        let Some(cluster) = &mut self.cluster else { return };
        cluster.person.spec = serde_json::from_value(spec).ok();
        cluster.person.replicas = vec![(0, replicas)];
        self.create_database();
        self.put_in_cluster(SECOND, ClusterEvent::Begin { life: 0 });
    }

    pub(super) fn create_database(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.objects.get(DATABASE).is_some() {
            // The old one is still on its way out.
            self.put_in_cluster(SECOND, ClusterEvent::Create);
            return;
        }
        cluster.person.creates = false;
        let Some(spec) = cluster.person.spec.clone() else { return };
        cluster.person.generation += 1;
        let database = DatabaseObject {
            spec,
            generation: cluster.person.generation,
            adopt: false,
            status: DatabaseStatus::default(),
            finalizers: Vec::new(),
            notes: Default::default(),
        };
        self.say(|_| "the person creates the Database".to_owned());
        self.make(DATABASE, None, What::Database(Box::new(database)));
        self.put_in_cluster(5 * SECOND, ClusterEvent::Glance);
    }

    /// Lets the Database take the volumes that it waits for.
    pub(super) fn glance(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let Some(database) = cluster.objects.database() else { return };
        let ready = database.status.conditions.iter().find(|condition| condition.type_ == "Ready");
        if ready.is_some_and(|condition| condition.reason == "VolumesFound")
            && !database.adopt
            && cluster.person.retain
        {
            self.say(|_| "the person lets the Database take the volumes".to_owned());
            self.change(DATABASE, |stored| {
                if let What::Database(database) = &mut stored.what {
                    database.adopt = true;
                }
            });
        }
        let Some(cluster) = &self.cluster else { return };
        let ready = cluster.objects.database().and_then(|database| {
            database.status.conditions.iter().find(|condition| condition.type_ == "Ready")
        });
        if ready.is_some_and(|condition| condition.reason == "MoreVolumesFound") {
            let most = cluster.objects.of(super::objects::Kind::Claim).map(|(ordinal, _)| ordinal).max();
            self.say(|_| "the person asks for as many instances as there are volumes".to_owned());
            self.change_spec(Kind::Scale, most.unwrap_or_default() as usize);
        }
        self.put_in_cluster(5 * SECOND, ClusterEvent::Glance);
    }

    /// Asks for something else.
    pub(in super::super) fn change_spec(&mut self, kind: Kind, number: usize) {
        let now = self.now;
        let most = self.current.len();
        let Some(cluster) = &mut self.cluster else { return };
        let person = &mut cluster.person;
        let Some(spec) = &mut person.spec else { return };
        match kind {
            Kind::Scale => {
                let replicas = (number + 1).min(most) as u32;
                spec.replicas = i32::try_from(replicas).ok();
                person.replicas.push((now, replicas));
                self.settings.instances = replicas;
            }
            Kind::Parameter => {
                let value = if number.is_multiple_of(2) { "256MB" } else { "512MB" };
                spec.parameters.insert(PARAMETER.to_owned(), Written::new(value));
            }
            Kind::Version => {
                spec.version = Some(Written::new(if number.is_multiple_of(2) { "17" } else { "17.6" }));
            }
            _ => {
                let size =
                    spec.storage.as_ref().and_then(|storage| storage.volume()?.size.as_ref()?.parse().ok());
                let more = size.unwrap_or_else(|| Size::gibibytes(10)).bytes() + (10 << 30);
                spec.storage =
                    Some(Storage::Size(Written::new(Size::gibibytes((more >> 30) as u32).to_string())));
            }
        }
        let spec = spec.clone();
        person.generation += 1;
        let generation = person.generation;
        self.change(DATABASE, |stored| {
            if let What::Database(database) = &mut stored.what {
                (database.spec, database.generation) = (spec, generation);
            }
        });
    }

    /// Deletes the Database, and makes it anew after so long.
    pub(in super::super) fn delete_database(&mut self, back: Micros) {
        let Some(cluster) = &mut self.cluster else { return };
        let Some(stored) = cluster.objects.get(DATABASE) else { return };
        let begun = std::mem::replace(&mut cluster.person.creates, true);
        let protected = stored.database().is_some_and(|database| !database.finalizers.is_empty());
        if protected {
            self.change(DATABASE, |stored| stored.deleting = true);
        } else {
            self.erase(DATABASE);
            self.database_gone();
        }
        if !begun {
            self.put_in_cluster(back.max(SECOND), ClusterEvent::Create);
        }
    }
}
