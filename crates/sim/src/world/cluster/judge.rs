//! What must always be true of what the operator does. What it could not know yet is not held against it: each request
//! says of which moment it knew all, and what is judged is what was so at that moment and is still.
//!
//! - no volume goes that the spec keeps, that is another's, or that is in use;
//! - volumes of another are taken only if the person lets it;
//! - an instance that serves is disturbed only while all others serve, and the leader not at all: it hands over first;
//! - the StatefulSet does not lose the pod of the leader.

use keelson_operator::database::plan::Step;

use super::super::queue::Micros;
use super::super::{SECOND, World};
use super::objects::{DATABASE, Key, Kind, Stored, What};
use super::writes::{Request, Write};

/// What is remembered to judge by.
#[derive(Debug, Default)]
pub struct Judge {
    /// Who leads, as agents say, and since when.
    leader: Option<(u32, Micros)>,
    /// Since when each instance does not serve.
    away: Vec<Option<Micros>>,
    /// The instance that the operator has disturbed and that has not served since: the uid of its pod, and the restart.
    disturbed: Option<(u32, u64, Option<String>)>,
    /// How often the Database was deleted together with its volumes.
    pub farewells: u32,
}

impl World {
    /// An agent has told something: who leads?
    pub(super) fn judge_leader(&mut self) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let reports = cluster.objects.of(Kind::Pod).filter_map(|(_, pod)| pod.pod()?.report.clone());
        let newest = reports.max_by_key(|report| (report.epoch, !report.leader.is_empty()));
        let leader = newest.and_then(|report| keelson_api::instance::Names("orders").ordinal(&report.leader));
        if cluster.judge.leader.map(|(ordinal, _)| ordinal) != leader {
            cluster.judge.leader = leader.map(|ordinal| (ordinal, now));
        }
    }

    /// A pod has changed: does it serve?
    pub(super) fn judge_pod(&mut self, key: Key) {
        let (now, many) = (self.now, self.current.len());
        let Some(cluster) = &mut self.cluster else { return };
        let found = cluster.objects.get(key);
        let serves =
            found.is_some_and(|stored| !stored.deleting && stored.pod().is_some_and(|pod| pod.ready));
        cluster.judge.away.resize(many, Some(0));
        let Some(away) = cluster.judge.away.get_mut(key.1 as usize) else { return };
        *away = if serves { None } else { away.or(Some(now)) };
        if let (Some((ordinal, uid, restart)), Some(found)) = (&cluster.judge.disturbed, found)
            && *ordinal == key.1
            && serves
        {
            let restarted = |told: &String| {
                let report = found.pod().and_then(|pod| pod.report.clone());
                report.is_some_and(|report| report.restarted.as_ref() == Some(told))
            };
            let back = found.uid != *uid || restart.as_ref().is_some_and(restarted);
            if back {
                cluster.judge.disturbed = None;
            }
        }
    }

    fn accuse(&mut self, kind: &'static str, what: &str) {
        let pod = self.current[0];
        self.violate(pod, kind, what);
    }

    /// Whether this instance leads, and has for long enough that the operator knew.
    fn is_known_to_lead(&self, ordinal: u32, knew: Micros) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let told = cluster.judge.leader.is_some_and(|(leader, since)| leader == ordinal && since < knew);
        let holder = self.api.lease().and_then(|lease| lease.holder.clone());
        told && holder.is_some_and(|holder| holder.name == self.names[ordinal as usize])
    }

    pub(super) fn judge_apply(&mut self, request: &Request, what: &What) {
        let What::Set(set) = what else { return };
        let Some(cluster) = &self.cluster else { return };
        let before = cluster.objects.set().map_or(0, |set| set.pods);
        let lost = (set.pods..before).find(|ordinal| self.is_known_to_lead(*ordinal, request.knew));
        if let Some(ordinal) = lost {
            self.accuse("LeaderScaledDown", &format!("orders-{ordinal} leads, and is taken away"));
        }
    }

    pub(super) fn judge_adopting(&mut self, request: &Request) {
        let Some(cluster) = &self.cluster else { return };
        let stored = cluster.objects.get(DATABASE).filter(|stored| stored.uid == request.uid);
        if stored.and_then(|stored| stored.database()).is_some_and(|database| !database.adopt) {
            self.accuse("TakenUnasked", "volumes of another Database are taken");
        }
    }

    pub(super) fn judge_removing(&mut self, ordinal: u32, found: &Stored, request: &Request) {
        let Some(cluster) = &self.cluster else { return };
        let Some(claim) = found.claim() else { return };
        let stored = cluster.objects.get(DATABASE).filter(|stored| stored.uid == request.uid);
        let goes = stored.is_none_or(|stored| stored.deleting);
        let pod = cluster.objects.get((Kind::Pod, ordinal));
        let used = pod.is_some_and(|pod| !pod.deleting && pod.made < request.knew);
        let kept = ordinal < cluster.person.least_since(request.knew);
        let retained = (claim.bound || !goes) && cluster.person.retain;
        if claim.database != request.uid {
            self.accuse(
                "VolumeRemoved",
                &format!("the volume of orders-{ordinal} is another Database's, and goes"),
            );
        } else if retained || kept && !goes {
            self.accuse(
                "VolumeRemoved",
                &format!("the volume of orders-{ordinal} goes, and the spec keeps it"),
            );
        } else if used && !goes {
            self.accuse("VolumeRemoved", &format!("the volume of orders-{ordinal} goes while it is in use"));
        }
    }

    pub(super) fn judge_disturbing(&mut self, ordinal: u32, request: &Request) {
        let Some(cluster) = &self.cluster else { return };
        let least = cluster.person.least_since(request.knew);
        let Some(stored) = cluster.objects.get((Kind::Pod, ordinal)).cloned() else { return };
        // All pods of a Database that goes may go with it.
        if cluster.objects.get(DATABASE).is_none_or(|database| database.deleting) {
            return;
        }
        if least <= 1 || !stored.pod().is_some_and(|pod| pod.ready) {
            return;
        }
        let judge = &cluster.judge;
        let other = judge.disturbed.as_ref().map(|(other, ..)| *other).filter(|other| *other != ordinal);
        let gone = |other: &u32| {
            let since = judge.away.get(*other as usize).copied().flatten();
            since.is_some_and(|since| since + SECOND < request.knew)
        };
        let away = (0..least).filter(|other| *other != ordinal).find(gone);
        if self.is_known_to_lead(ordinal, request.knew) {
            self.accuse("LeaderDisturbed", &format!("orders-{ordinal} leads, and is replaced or restarted"));
        } else if let Some(other) = other.filter(|other| *other < least) {
            self.accuse("TwoAtOnce", &format!("orders-{ordinal} is disturbed before orders-{other} is back"));
        } else if let Some(other) = away {
            self.accuse("TwoAtOnce", &format!("orders-{ordinal} is disturbed while orders-{other} is away"));
        }
        let restart = match &*request.write {
            Write::Take(Step::Restart { token, .. }) => Some(token.clone()),
            _ => None,
        };
        if let Some(cluster) = &mut self.cluster {
            cluster.judge.disturbed = Some((ordinal, stored.uid, restart));
        }
    }

    /// The Database is gone. Where its volumes go with it, all that was on them is to be forgotten.
    pub(super) fn database_gone(&mut self) {
        self.say(|_| "the Database is gone".to_owned());
        let Some(cluster) = &mut self.cluster else { return };
        cluster.judge.disturbed = None;
        if !cluster.person.retain {
            cluster.judge.farewells += 1;
            self.forget_database();
        }
    }

    /// Whether the volume of a pod is on its way out: what is done with it counts no more.
    pub(in super::super) fn is_doomed(&self, pod: super::super::PodId) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let claim = cluster.objects.get((Kind::Claim, self.pods[pod].ordinal as u32));
        claim.is_none_or(|claim| claim.deleting)
    }
}
