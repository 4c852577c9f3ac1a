//! The StatefulSet's controller, the collection of what has no owner any more, the protection of volumes in use, and the
//! kubelets as far as objects go: a pod whose container has ended for good is gone, and another of its name is made.
//!
//! Left out: what these controllers themselves know late (what they do is late here, but never wrong); nodes, scheduling
//! and images; volumes that can't be had or can't grow; the node controller, which says of a node that is gone that its
//! pods are not ready.

use keelson_operator::database::orders::Child;

use super::super::disk::Volume;
use super::super::queue::{Event, Micros, PodId};
use super::super::{MILLI, SECOND, World};
use super::ClusterEvent;
use super::objects::{CONFIG, ClaimObject, DATABASE, Key, Kind, PodObject, SET, What};

impl World {
    /// Something has changed that controllers and agents look at.
    pub(super) fn object_changed(&mut self, key: Key) {
        self.controllers_wake();
        match key.0 {
            Kind::Pod => self.judge_pod(key),
            _ if key == CONFIG => self.announce_settings(),
            _ => {}
        }
    }

    /// Controllers look soon.
    pub(in super::super) fn controllers_wake(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        if !cluster.controllers {
            cluster.controllers = true;
            let soon = self.chance.of(5 * MILLI..200 * MILLI);
            self.put_in_cluster(soon, ClusterEvent::Controllers);
        }
    }

    pub(super) fn controllers_look(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.controllers = false;
        self.collect();
        self.release_claims();
        self.sync_set();
    }

    /// What has an owner that is no more goes.
    fn collect(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let all = &cluster.objects.all;
        let lives = |uid: u64| all.values().any(|stored| stored.uid == uid);
        let lost = all.iter().filter(|(_, stored)| stored.owner.is_some_and(|owner| !lives(owner)));
        let lost: Vec<Key> = lost.map(|(key, _)| *key).collect();
        if self.api.owner.is_some_and(|owner| !lives(owner)) {
            self.remove_lease();
        }
        for key in lost {
            match key.0 {
                Kind::Pod => self.delete_pod_object(key.1),
                _ => self.erase(key),
            }
        }
    }

    /// A claim on its way out is gone once no pod uses it, and the volume with it.
    fn release_claims(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let objects = &cluster.objects;
        let free = objects
            .of(Kind::Claim)
            .filter(|(ordinal, claim)| claim.deleting && objects.get((Kind::Pod, *ordinal)).is_none());
        let free: Vec<u32> = free.map(|(ordinal, _)| ordinal).collect();
        for ordinal in free {
            let (pod, id) = (self.current[ordinal as usize], self.serial() as usize);
            let owner = self.cluster.as_ref().and_then(|cluster| {
                match &cluster.objects.get((Kind::Claim, ordinal))?.what {
                    What::Claim(claim) => Some(claim.database),
                    _ => None,
                }
            });
            self.say(|_| format!("the volume of orders-{ordinal} is gone"));
            self.pods[pod].volume = Volume::new(id);
            self.erase((Kind::Claim, ordinal));
            // What was written there until its pod had ended goes with a Database that is gone.
            let goes = self.cluster.as_ref().is_some_and(|cluster| {
                let database = cluster.objects.get(DATABASE).map(|database| database.uid);
                !cluster.person.retain && owner.is_some_and(|owner| Some(owner) != database)
            });
            if goes {
                self.forget_database();
            }
        }
    }

    /// As many pods as the StatefulSet wants, each with a claim.
    fn sync_set(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let Some(stored) = cluster.objects.get(SET).filter(|stored| !stored.deleting).cloned() else {
            return;
        };
        let Some(set) = stored.set() else { return };
        let pods: Vec<(u32, Option<u64>)> =
            cluster.objects.of(Kind::Pod).map(|(ordinal, pod)| (ordinal, pod.owner)).collect();
        for (ordinal, owner) in &pods {
            if owner.is_none() {
                self.change((Kind::Pod, *ordinal), |pod| pod.owner = Some(stored.uid));
            }
            if *ordinal >= set.pods {
                self.delete_pod_object(*ordinal);
            }
        }
        for ordinal in 0..set.pods.min(self.current.len() as u32) {
            if !pods.iter().any(|(known, _)| *known == ordinal) {
                self.make_pod(ordinal, stored.uid, set.clone());
            }
        }
    }

    fn make_pod(&mut self, ordinal: u32, owner: u64, set: super::objects::SetObject) {
        let Some(cluster) = &self.cluster else { return };
        match cluster.objects.get((Kind::Claim, ordinal)) {
            // It takes no volume that is on its way out.
            Some(claim) if claim.deleting => return,
            Some(_) => {}
            None => {
                let claim = ClaimObject {
                    database: set.database,
                    adopted: false,
                    requested: set.storage,
                    bound: false,
                };
                let uid = self.make((Kind::Claim, ordinal), None, What::Claim(claim));
                let soon = self.chance.magnitude(50 * MILLI..4 * SECOND);
                self.put_in_cluster(soon, ClusterEvent::Bind { claim: ordinal, uid });
            }
        }
        let pod = self.current[ordinal as usize];
        self.pods[pod].incarnation += 1;
        self.pods[pod].database = Some(set.database);
        let what = PodObject {
            incarnation: self.pods[pod].incarnation,
            ready: false,
            mounted: false,
            asked: set.asked,
            version: set.version,
            restart: None,
            report: None,
        };
        self.say(|_| format!("orders-{ordinal} is made"));
        self.make((Kind::Pod, ordinal), Some(owner), What::Pod(Box::new(what)));
        let slow = self.cluster.as_ref().is_some_and(|cluster| self.now < cluster.person.slow_starts);
        let soon = match slow {
            true => self.chance.magnitude(SECOND..60 * SECOND),
            false => self.chance.magnitude(200 * MILLI..8 * SECOND),
        };
        let life = self.pods[pod].life;
        self.put(soon, Event::Boot { pod, life });
    }

    pub(super) fn bind(&mut self, claim: u32, uid: u64) {
        let key = (Kind::Claim, claim);
        let Some(cluster) = &self.cluster else { return };
        if cluster.objects.get(key).is_some_and(|stored| stored.uid == uid) {
            self.change(key, |stored| {
                if let What::Claim(claim) = &mut stored.what {
                    claim.bound = true;
                }
            });
        }
    }

    /// Whether a container may be started: its pod is there, and what it mounts.
    pub(in super::super) fn may_boot(&mut self, pod: PodId) -> bool {
        let (ordinal, incarnation, life) =
            (self.pods[pod].ordinal as u32, self.pods[pod].incarnation, self.pods[pod].life);
        let Some(cluster) = &self.cluster else {
            return (ordinal as usize) < self.settings.instances as usize;
        };
        let Some(stored) = cluster.objects.get((Kind::Pod, ordinal)) else { return false };
        let Some(object) = stored.pod().filter(|object| object.incarnation == incarnation) else {
            return false;
        };
        if stored.deleting {
            let uid = stored.uid;
            self.put_in_cluster(100 * MILLI, ClusterEvent::Vanish { ordinal, uid });
            return false;
        }
        let bound =
            cluster.objects.get((Kind::Claim, ordinal)).and_then(|it| it.claim()).is_some_and(|it| it.bound);
        let mounts = [Kind::Secrets, Kind::Child(Child::Config)];
        if !bound || !mounts.iter().all(|kind| cluster.objects.get((*kind, 0)).is_some()) {
            self.put(2 * SECOND, Event::Boot { pod, life });
            return false;
        }
        self.pods[pod].version = object.version.clone();
        true
    }

    /// A container has been started.
    pub(in super::super) fn booted(&mut self, pod: PodId) {
        let ordinal = self.pods[pod].ordinal as u32;
        self.change((Kind::Pod, ordinal), |stored| {
            if let What::Pod(object) = &mut stored.what {
                (object.mounted, object.ready) = (true, false);
            }
        });
    }

    /// A pod is to go: it is told to end.
    pub(in super::super) fn delete_pod_object(&mut self, ordinal: u32) {
        let key = (Kind::Pod, ordinal);
        let Some(cluster) = &self.cluster else { return };
        let Some(stored) = cluster.objects.get(key).filter(|stored| !stored.deleting) else { return };
        let uid = stored.uid;
        self.change(key, |stored| stored.deleting = true);
        let pod = self.current[ordinal as usize];
        if self.pods[pod].agent.is_some() {
            self.end_pod(pod);
        } else if self.pods[pod].powered {
            let soon = self.chance.of(50 * MILLI..2 * SECOND);
            self.put_in_cluster(soon, ClusterEvent::Vanish { ordinal, uid });
        }
    }

    /// The container of a pod has ended for good.
    pub(in super::super) fn pod_ended(&mut self, pod: PodId, after: Micros) {
        let (ordinal, incarnation) = (self.pods[pod].ordinal as u32, self.pods[pod].incarnation);
        let Some(cluster) = &self.cluster else { return };
        let Some(stored) = cluster.objects.get((Kind::Pod, ordinal)) else { return };
        if stored.pod().is_some_and(|object| object.incarnation == incarnation) {
            let uid = stored.uid;
            self.put_in_cluster(after, ClusterEvent::Vanish { ordinal, uid });
        }
    }

    pub(super) fn vanish(&mut self, ordinal: u32, uid: u64) {
        let key = (Kind::Pod, ordinal);
        let Some(cluster) = &self.cluster else { return };
        let pod = self.current[ordinal as usize];
        let runs = self.pods[pod].agent.is_some();
        if cluster.objects.get(key).is_some_and(|stored| stored.uid == uid) && !runs {
            self.say(|_| format!("orders-{ordinal} is gone"));
            self.erase(key);
        }
    }
}
