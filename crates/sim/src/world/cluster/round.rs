//! One round of the operator: what it knows becomes facts, the real plan follows from them, and its orders are sent one
//! after the other, each when the one before was answered. In the place of `keelson_operator`'s `observe` and `act` and
//! of the kit's reconciler, which are async; what is decided is in the real `plan`, `orders` and `finalizer`.
//!
//! Left out: the time that it takes to ask the API server itself, before something weighty is done, and that it may fail.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use keelson_api::instance::Names;
use keelson_api::v1::{DatabaseStatus, Phase};
use keelson_api::value::Written;
use keelson_kit::conditions;
use keelson_kit::finalizer::{self, Stage};
use keelson_kit::queue::Outcome;
use keelson_kit::retry::Class;
use keelson_operator::database::children::stateful_set::asked;
use keelson_operator::database::facts::{Claim, Instance, Observed, Set, doubt};
use keelson_operator::database::orders::{self, CLEANUP, Child, Order, Parting, parting};
use keelson_operator::database::plan::{Plan, Step, plan};

use super::super::queue::Micros;
use super::super::{SECOND, World};
use super::ClusterEvent;
use super::objects::{CONFIG, DATABASE, Key, Kind, SET, SetObject, Stored, What};
use super::operator::Operator;
use super::writes::{Came, Request, Write};

/// The finalizer.
const FINALIZER: &str = "keelson.dev/database";
/// The kit's deadline for a request.
const DEADLINE: Micros = 10 * SECOND;

/// A round.
#[derive(Debug)]
pub struct Round {
    /// The request that is under way.
    serial: u64,
    /// What of the Database the round is about.
    uid: u64,
    version: u64,
    /// The moment of which the operator knew all.
    knew: Micros,
    todo: VecDeque<Write>,
    /// What the request under way is to do to a pod or a volume.
    step: Option<Step>,
    stage: Stage,
    plan: Option<Box<Plan>>,
    look_again: bool,
    /// When to look again without a change.
    again: Option<Duration>,
    failed: Option<Class>,
}

/// Objects as somebody knows them.
type Known = BTreeMap<Key, Rc<Stored>>;

/// What the operator has heard, but for what it asks the API server itself for.
fn ask(cache: &Known, there: &Known) -> Known {
    let asks = |key: &Key| matches!(key.0, Kind::Pod | Kind::Claim) || [DATABASE, CONFIG, SET].contains(key);
    let heard = cache.iter().filter(|(key, _)| !asks(key));
    let found = there.iter().filter(|(key, _)| asks(key));
    heard.chain(found).map(|(key, stored)| (*key, stored.clone())).collect()
}

/// The facts, from what is known.
fn observe(cache: &Known, operator: &Operator, stored: &Stored, now: std::time::Instant) -> Option<Observed> {
    let database = stored.database()?;
    let names = Names("orders");
    let own = |key: Key| cache.get(&key).filter(|child| child.owner == Some(stored.uid));
    let mut instances: Vec<Instance> = Vec::new();
    let mut claims: Vec<Claim> = Vec::new();
    for ((kind, ordinal), other) in cache {
        let made = World::time_of_day(other.made);
        match &other.what {
            What::Pod(pod) => instances.push(Instance {
                name: names.pod(*ordinal),
                ordinal: *ordinal,
                uid: other.uid.to_string(),
                resource_version: other.version.to_string(),
                made,
                deleting: other.deleting,
                ready: pod.ready,
                missed: false,
                unmounted: !pod.mounted,
                asked: Some(pod.asked.clone()),
                restart: pod.restart.clone(),
                report: pod.report.as_ref().map(|report| (**report).clone()),
                hindrance: None,
            }),
            What::Claim(claim) if *kind == Kind::Claim => claims.push(Claim {
                name: names.claim(*ordinal),
                ordinal: *ordinal,
                uid: other.uid.to_string(),
                resource_version: other.version.to_string(),
                database_uid: Some(claim.database.to_string()),
                adopted: claim.adopted,
                made,
                requested: Some(claim.requested),
                bound: claim.bound,
                deleting: other.deleting,
                stuck: None,
            }),
            _ => {}
        }
    }
    doubt(&mut instances);
    let config = own(CONFIG).and_then(|config| match &config.what {
        What::Config(settings) => Some((**settings).clone()),
        _ => None,
    });
    let set = own(SET).and_then(|set| {
        let SetObject { pods, storage, .. } = set.set()?;
        Some(Set { uid: set.uid.to_string(), pods: *pods, storage: Some(*storage), deleting: set.deleting })
    });
    Some(Observed {
        name: "orders".to_owned(),
        namespace: "shop".to_owned(),
        uid: stored.uid.to_string(),
        made: World::time_of_day(stored.made),
        generation: Some(database.generation),
        spec: database.spec.clone(),
        status: database.status.clone(),
        discard: None,
        adopt: database.adopt,
        restart: None,
        secrets_mark: format!("mark {}", stored.uid),
        config,
        account: own((Kind::Child(Child::Account), 0)).map(|account| World::time_of_day(account.made)),
        set,
        instances,
        claims,
        backups: Vec::new(),
        drill: Default::default(),
        source: None,
        lately: operator.marks.lately(now),
        agent_image: "keelson".to_owned(),
    })
}

impl World {
    /// A round begins with the Database as it was last seen; after a conflict, as it is.
    pub(super) fn begin_round(&mut self) {
        let (moment, now) = (self.moment(), self.now);
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if operator.conflicted && operator.cache.contains_key(&DATABASE) {
            match cluster.objects.get(DATABASE) {
                Some(found) => operator.cache.insert(DATABASE, found.clone()),
                None => operator.cache.remove(&DATABASE),
            };
        }
        let heard = operator.cache.get(&DATABASE).cloned();
        let first = heard.as_ref().and_then(|stored| {
            let stage = finalizer::stage(&stored.meta(), FINALIZER, CLEANUP);
            let seen = observe(&operator.cache, operator, stored, moment)?;
            let weighty = match stage {
                Stage::Work => plan(&seen, World::time_of_day(now)).is_weighty(&seen),
                Stage::Clean(step) => orders::is_weighty(step),
                Stage::Protect | Stage::Release | Stage::Leave => false,
            };
            Some((stage, seen, weighty))
        });
        let (asked, found) = match (heard, first) {
            (Some(_), Some((.., true))) => {
                let known = ask(&operator.cache, &cluster.objects.all);
                let stored = known.get(&DATABASE).cloned();
                let again = stored.and_then(|stored| {
                    let stage = finalizer::stage(&stored.meta(), FINALIZER, CLEANUP);
                    let seen = observe(&known, operator, &stored, moment)?;
                    Some((stored, stage, seen))
                });
                (true, again)
            }
            (Some(stored), Some((stage, seen, false))) => (false, Some((stored, stage, seen))),
            _ => (false, None),
        };
        let Some((stored, stage, seen)) = found else {
            self.round_ended(Outcome::Done { again: None });
            return;
        };
        let mut made = None;
        let todo = match stage {
            Stage::Work => {
                let planned = plan(&seen, World::time_of_day(now));
                let todo = planned.orders().into_iter().map(|order| write_of(order, &planned)).collect();
                made = Some(Box::new(planned));
                todo
            }
            Stage::Protect => VecDeque::from([Write::Protect]),
            Stage::Clean(step) => {
                let parts = parting(step, &seen).into_iter().map(|part| farewell(part, &seen));
                parts.chain([Write::Cleaned(step)]).collect()
            }
            Stage::Release => VecDeque::from([Write::Release]),
            Stage::Leave => VecDeque::new(),
        };
        let knew = if asked { now } else { operator.knows_until(now) };
        operator.round = Some(Round {
            serial: 0,
            uid: stored.uid,
            version: stored.version,
            knew,
            todo,
            step: None,
            stage,
            plan: made,
            look_again: false,
            again: None,
            failed: None,
        });
        self.go_on_with_round();
    }

    /// Sends the next order that there is something to do about.
    fn go_on_with_round(&mut self) {
        let serial = self.serial();
        loop {
            let Some(cluster) = &mut self.cluster else { return };
            let Operator { round, cache, life, .. } = &mut cluster.operator;
            let Some(round) = round else { return };
            let Some(write) = round.todo.pop_front() else {
                self.finish_round();
                return;
            };
            if !is_needed(&write, cache, round.uid) {
                continue;
            }
            round.serial = serial;
            round.step = match &write {
                Write::Take(step) => Some(step.clone()),
                _ => None,
            };
            let request =
                Request { uid: round.uid, version: round.version, knew: round.knew, write: Box::new(write) };
            let life = *life;
            self.say(|_| format!("the operator sends: {}", request.told()));
            self.put_in_cluster(DEADLINE, ClusterEvent::Deadline { life, serial });
            if self.operator_reaches_api() {
                let way = self.api_way();
                self.put_in_cluster(way, ClusterEvent::Arrive { life, serial, request: Box::new(request) });
            }
            return;
        }
    }

    fn operator_reaches_api(&mut self) -> bool {
        let lost = self.now < self.network.lossy && self.chance.per_mille(250);
        let Some(cluster) = &self.cluster else { return false };
        self.now >= cluster.operator.links.mute.max(self.api.outage) && !lost
    }

    /// The answer to a request; what was written is known from it.
    pub(super) fn write_answered(&mut self, life: u32, serial: u64, came: Came) {
        let moment = self.moment();
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        if operator.life != life || operator.round.as_ref().is_none_or(|round| round.serial != serial) {
            return;
        }
        let Some(round) = &mut operator.round else { return };
        round.serial = 0;
        match came {
            Came::Done { write, learned } => {
                match &*write {
                    Write::Apply(child, _) => round.look_again |= child.is_planned_from(),
                    Write::Take(step) => operator.marks.took(step, moment),
                    Write::Secrets if round.plan.as_ref().is_some_and(|plan| plan.repair) => {
                        operator.marks.repaired(moment);
                    }
                    _ => {}
                }
                if let Some((key, stored)) = learned {
                    if key == DATABASE {
                        round.version = stored.version;
                    }
                    let newer = operator
                        .cache
                        .get(&key)
                        .is_none_or(|known| known.uid != stored.uid || known.version <= stored.version);
                    if newer {
                        operator.cache.insert(key, stored);
                    }
                }
            }
            Came::Conflict => fail(round, Class::Conflict),
            Came::Failed => {
                if let Some(step) = &round.step {
                    operator.marks.tried(step, moment);
                }
                fail(round, Class::Transient);
            }
        }
        self.go_on_with_round();
    }

    /// All is sent. What is known is said last, also when something could not be done.
    fn finish_round(&mut self) {
        let time = Time(World::time_of_day(self.now));
        let Some(cluster) = &mut self.cluster else { return };
        let operator = &mut cluster.operator;
        let Some(round) = &mut operator.round else { return };
        if let Some(plan) = round.plan.take() {
            let known = operator.cache.get(&DATABASE).filter(|stored| stored.uid == round.uid);
            let known = known.and_then(|stored| stored.database());
            let generation = known.map(|database| database.generation);
            let mut status = plan.status.clone();
            status.conditions = conditions::merge(&status.conditions, &plan.findings, generation, &time);
            round.again = if round.look_again { Some(Duration::ZERO) } else { plan.again };
            if known.is_some_and(|database| database.status != status) {
                round.todo.push_back(Write::Status(Box::new(status)));
                self.go_on_with_round();
                return;
            }
        }
        let outcome = match (round.failed, round.stage) {
            (Some(class), _) => Outcome::Failed(class),
            // The kit goes on at once with what is next.
            (None, Stage::Protect | Stage::Clean(_)) => Outcome::Done { again: Some(Duration::ZERO) },
            (None, _) => Outcome::Done { again: round.again },
        };
        self.round_ended(outcome);
    }
}

/// What follows is not done; what is known is still said.
fn fail(round: &mut Round, class: Class) {
    round.todo.clear();
    round.failed = round.failed.or(Some(class));
}

/// An order, as a request.
fn write_of(order: Order, plan: &Plan) -> Write {
    match (order, &plan.wanted) {
        (Order::Take(step), _) => Write::Take(step),
        (Order::Secrets { .. }, _) => Write::Secrets,
        (Order::Apply(Child::Config), Some(wanted)) => {
            Write::Apply(Child::Config, What::Config(Box::new(wanted.instance.clone())))
        }
        (Order::Apply(Child::Set), Some(wanted)) => {
            let set = SetObject {
                pods: wanted.pods,
                storage: wanted.storage,
                database: wanted.uid.parse().unwrap_or_default(),
                asked: asked(wanted),
                version: wanted.instance.version.to_string(),
            };
            Write::Apply(Child::Set, What::Set(set))
        }
        (Order::Apply(child), _) => Write::Apply(child, What::Other),
    }
}

/// A part of the clean-up, as a request.
fn farewell(part: Parting, seen: &Observed) -> Write {
    match part {
        Parting::Say => {
            let phase = Some(Written::of(&Phase::Deleting));
            Write::Status(Box::new(DatabaseStatus { phase, ..seen.status.clone() }))
        }
        Parting::RemoveBinding => Write::Remove(Child::Binding),
        Parting::RemoveSet => Write::Remove(Child::Set),
        Parting::RemoveLease => Write::RemoveLease,
        Parting::RemoveWriters => Write::RemoveWriters,
        Parting::Take(step) => Write::Take(step),
    }
}

/// A child that is as it should be is left alone, without a request.
fn is_needed(write: &Write, cache: &std::collections::BTreeMap<Key, Rc<Stored>>, uid: u64) -> bool {
    let own = |child: &Child| cache.get(&(Kind::Child(*child), 0)).filter(|held| held.owner == Some(uid));
    match write {
        Write::Apply(child, what) => own(child).is_none_or(|held| !held.what.is(what)),
        Write::Remove(child) => own(child).is_some(),
        Write::Status(status) => {
            let known = cache.get(&DATABASE).and_then(|stored| stored.database());
            known.is_some_and(|database| database.status != **status)
        }
        _ => true,
    }
}
