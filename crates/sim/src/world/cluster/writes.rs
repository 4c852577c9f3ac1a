//! What the API server makes of the operator's requests: preconditions by uid and by version, finalizers, deletion of a
//! StatefulSet with and without its pods. Requests are late, lost and refused as those of agents are; what nobody waits
//! for any more may still be carried out.
//!
//! Left out: admission; conflicts of field managers.

use std::rc::Rc;

use keelson_api::instance::Names;
use keelson_api::v1::DatabaseStatus;
use keelson_ha::Successor;
use keelson_operator::database::orders::Child;
use keelson_operator::database::plan::Step;

use super::super::queue::Micros;
use super::super::{MILLI, World};
use super::ClusterEvent;
use super::objects::{DATABASE, Key, Kind, SET, Stored, What};

/// A request of the operator.
#[derive(Clone, Debug)]
pub struct Request {
    /// The Database that it is about, and the version of it that was seen.
    pub uid: u64,
    pub version: u64,
    /// The moment of which the operator knew all when it planned this.
    pub knew: Micros,
    pub write: Box<Write>,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub enum Write {
    /// The finalizer is put on.
    Protect,
    /// A step of the clean-up is done.
    Cleaned(&'static str),
    /// The finalizer is taken off.
    Release,
    Status(Box<DatabaseStatus>),
    Secrets,
    Apply(Child, What),
    Remove(Child),
    RemoveLease,
    RemoveWriters,
    Take(Step),
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Came {
    /// It is done, and this is what is there now.
    Done { write: Box<Write>, learned: Option<(Key, Rc<Stored>)> },
    /// Something else was written meanwhile.
    Conflict,
    /// It was refused, or not answered.
    Failed,
}

impl What {
    /// Whether what is to be applied is what is there.
    pub fn is(&self, other: &What) -> bool {
        match (self, other) {
            (What::Config(one), What::Config(other)) => one == other,
            (What::Set(one), What::Set(other)) => one == other,
            (What::Other, What::Other) => true,
            _ => false,
        }
    }
}

impl Request {
    /// In a few words.
    pub fn told(&self) -> String {
        match &*self.write {
            Write::Status(status) => format!(
                "status {:?}, primary {:?}, ready {:?}",
                status.phase, status.primary, status.ready_replicas
            ),
            Write::Apply(child, What::Set(set)) => {
                format!("{child:?} with {} pods of {}", set.pods, set.storage)
            }
            Write::Apply(child, _) => format!("{child:?}"),
            write => format!("{write:?}"),
        }
    }
}

impl World {
    pub(super) fn write_arrives(&mut self, life: u32, serial: u64, request: &Request) {
        if self.now < self.api.outage {
            return;
        }
        let refused = self.api_refuses();
        // A gateway that gives up after the request was passed on.
        let done_anyway = refused && self.chance.per_mille(400);
        let came = if refused && !done_anyway { Came::Failed } else { self.carry_out(request) };
        let came = if done_anyway { Came::Failed } else { came };
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if operator.life == life
            && let Some(left) = operator.ends_after
        {
            operator.ends_after = left.checked_sub(1);
            if left == 0 {
                let back = self.chance.magnitude(100 * MILLI..20_000 * MILLI);
                self.end_operator(back);
                return;
            }
        }
        let lost = self.now < self.network.lossy && self.chance.per_mille(250);
        let Some(cluster) = &self.cluster else { return };
        if self.now >= cluster.operator.links.deaf && !lost {
            let way = self.api_way();
            self.put_in_cluster(way, ClusterEvent::Answer { life, serial, came: Box::new(came) });
        }
    }

    fn found(&self, key: Key) -> Option<Rc<Stored>> {
        self.cluster.as_ref()?.objects.get(key).cloned()
    }

    fn carry_out(&mut self, request: &Request) -> Came {
        let done = |learned| Came::Done { write: request.write.clone(), learned };
        match &*request.write {
            Write::Protect | Write::Cleaned(_) | Write::Release | Write::Status(_) => {
                self.write_database(request)
            }
            Write::Secrets => self.apply((Kind::Secrets, 0), request, &What::Other, true),
            Write::Apply(child, what) => self.apply((Kind::Child(*child), 0), request, what, false),
            Write::Remove(child) => {
                let key = (Kind::Child(*child), 0);
                if self.found(key).is_some_and(|stored| stored.owner == Some(request.uid)) {
                    self.erase(key);
                }
                done(None)
            }
            Write::RemoveLease => {
                self.remove_lease();
                done(None)
            }
            Write::RemoveWriters => {
                self.api.writers = None;
                done(None)
            }
            Write::Take(step) => match self.take_step(step, request) {
                true => done(None),
                false => Came::Conflict,
            },
        }
    }

    /// The Database itself is written only in the version that was seen.
    fn write_database(&mut self, request: &Request) -> Came {
        let found = self.found(DATABASE).filter(|stored| stored.uid == request.uid);
        let Some(found) = found.filter(|stored| stored.version == request.version) else {
            return Came::Conflict;
        };
        let mut released = false;
        self.change(DATABASE, |stored| {
            let What::Database(database) = &mut stored.what else { return };
            match &*request.write {
                Write::Protect => database.finalizers.push("keelson.dev/database".to_owned()),
                Write::Cleaned(step) => {
                    let noted = database.notes.entry("keelson.dev/database.done".to_owned()).or_default();
                    *noted = format!("{noted},{step}");
                }
                Write::Status(status) => database.status = (**status).clone(),
                _ => {
                    database.finalizers.clear();
                    released = found.deleting;
                }
            }
        });
        let learned = self.found(DATABASE).map(|stored| (DATABASE, stored));
        if released {
            self.erase(DATABASE);
            self.database_gone();
        }
        Came::Done { write: request.write.clone(), learned }
    }

    /// Server-side apply: made if it is missing. Something of that name that is another's is not touched.
    fn apply(&mut self, key: Key, request: &Request, what: &What, unread: bool) -> Came {
        match self.found(key) {
            Some(stored) if stored.owner != Some(request.uid) => return Came::Failed,
            Some(stored) if stored.what.is(what) && !unread => {}
            Some(_) => {
                self.judge_apply(request, what);
                // The template of volumes can't be changed.
                let template = self.found(SET).and_then(|set| Some(set.set()?.storage));
                if let (What::Set(set), Some(template)) = (what, template)
                    && set.storage != template
                {
                    return Came::Failed;
                }
                self.change(key, |stored| stored.what = what.clone());
            }
            // An owner that is no more is no owner: it is collected at once.
            None => drop(self.make(key, Some(request.uid), what.clone())),
        }
        let learned = self.found(key).filter(|_| !unread).map(|stored| (key, stored));
        Came::Done { write: request.write.clone(), learned }
    }

    /// Says whether it could be done. What is gone already is done.
    fn take_step(&mut self, step: &Step, request: &Request) -> bool {
        let names = Names("orders");
        let claim = |name: &str| {
            let ordinal = name.strip_prefix("data-").and_then(|pod| names.ordinal(pod));
            (Kind::Claim, ordinal.unwrap_or(u32::MAX))
        };
        let pod = |name: &str| (Kind::Pod, names.ordinal(name).unwrap_or(u32::MAX));
        match step {
            Step::Adopt { claim: name, from: _ } => {
                self.judge_adopting(request);
                self.change(claim(name), |stored| {
                    if let What::Claim(claim) = &mut stored.what {
                        (claim.database, claim.adopted) = (request.uid, true);
                    }
                });
            }
            Step::Grow { claim: name, to } => {
                self.change(claim(name), |stored| {
                    if let (What::Claim(claim), Ok(to)) = (&mut stored.what, to.parse()) {
                        claim.requested = to;
                    }
                });
            }
            Step::RemoveClaim { claim: name, uid, resource_version } => {
                let key = claim(name);
                let Some(found) = self.found(key) else { return true };
                if found.uid.to_string() != *uid || found.version.to_string() != *resource_version {
                    return false;
                }
                self.judge_removing(key.1, &found, request);
                self.change(key, |stored| stored.deleting = true);
            }
            Step::Remake { uid } => {
                let Some(found) = self.found(SET) else { return true };
                if found.uid.to_string() != *uid {
                    return false;
                }
                let pods: Vec<u32> = match &self.cluster {
                    Some(cluster) => cluster.objects.of(Kind::Pod).map(|(ordinal, _)| ordinal).collect(),
                    None => Vec::new(),
                };
                for ordinal in pods {
                    self.change((Kind::Pod, ordinal), |stored| stored.owner = None);
                }
                self.erase(SET);
            }
            Step::HandOver { to, .. } => self.wish(Successor::Named(to.clone())),
            Step::Restart { pod: name, token } => {
                let key = pod(name);
                self.judge_disturbing(key.1, request);
                self.change(key, |stored| {
                    if let What::Pod(pod) = &mut stored.what {
                        pod.restart = Some(token.clone());
                    }
                });
                self.ask_for_restart(key.1.min(self.current.len() as u32 - 1));
            }
            Step::Replace { pod: name, uid, resource_version } => {
                let key = pod(name);
                let Some(found) = self.found(key) else { return true };
                if found.uid.to_string() != *uid || found.version.to_string() != *resource_version {
                    return false;
                }
                if !found.deleting {
                    self.judge_disturbing(key.1, request);
                }
                self.delete_pod_object(key.1);
            }
        }
        true
    }
}
