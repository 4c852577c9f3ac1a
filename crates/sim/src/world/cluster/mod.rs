//! What a cluster has besides leadership, in histories with an operator: the objects of the API server, the
//! StatefulSet's controller and the kubelets as far as objects go, what agents tell on their pods, a person who
//! changes the spec, and the operator itself. Each file is one model, and opens with what it leaves out.

mod check;
mod judge;
mod objects;
mod operator;
mod person;
mod reports;
mod round;
mod workload;
mod writes;

use std::rc::Rc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use keelson_api::instance::Report;

use super::World;
use super::queue::{Event, Micros, PodId};
use judge::Judge;
use objects::{Key, Objects, Stored};
use operator::Operator;
use person::Person;
pub use reports::Telling;
use writes::{Came, Request};

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    pub objects: Objects,
    pub operator: Operator,
    pub person: Person,
    pub judge: Judge,
    /// Whether the controllers are to look at what there is.
    controllers: bool,
}

/// Something that happens in it.
#[derive(Debug, Clone)]
pub enum ClusterEvent {
    /// An operator begins to lead.
    Begin { life: u32 },
    /// A watch tells the operator of an object; of one that is gone, its uid.
    News { life: u32, key: Key, news: Result<Rc<Stored>, u64>, written: Micros },
    /// The watches of the operator begin anew.
    Relist { life: u32 },
    /// The operator looks what to do next.
    Wake { life: u32, serial: u64 },
    /// A request of the operator arrives.
    Arrive { life: u32, serial: u64, request: Box<Request> },
    /// It is answered.
    Answer { life: u32, serial: u64, came: Box<Came> },
    /// It was not answered in time.
    Deadline { life: u32, serial: u64 },
    /// The controllers look at what there is.
    Controllers,
    /// A claim gets its volume.
    Bind { claim: u32, uid: u64 },
    /// All of a pod has ended: its object goes.
    Vanish { ordinal: u32, uid: u64 },
    /// The kubelet asks the agent whether it serves.
    Probe { pod: PodId, life: u32 },
    /// The agent tells, on its pod.
    Tell { pod: PodId, life: u32 },
    /// That arrives: it is for the pod of this incarnation alone.
    Told { pod: PodId, life: u32, incarnation: u32, report: Rc<Report> },
    /// That is answered, or not.
    Heard { pod: PodId, life: u32, report: Option<Rc<Report>> },
    /// The agent hears that a restart is asked for.
    Restart { pod: PodId, life: u32 },
    /// The person makes the Database anew.
    Create,
    /// The person looks at the status.
    Glance,
}

impl ClusterEvent {
    /// The pod that it happens in.
    pub fn pod(&self) -> Option<PodId> {
        match self {
            ClusterEvent::Probe { pod, .. }
            | ClusterEvent::Tell { pod, .. }
            | ClusterEvent::Heard { pod, .. }
            | ClusterEvent::Restart { pod, .. } => Some(*pod),
            _ => None,
        }
    }
}

impl Cluster {
    pub fn new(origin: Instant, retain: bool) -> Cluster {
        Cluster {
            objects: Objects::default(),
            operator: Operator::new(origin),
            person: Person::new(retain),
            judge: Judge::default(),
            controllers: false,
        }
    }
}

impl World {
    /// Something in the cluster is to happen after so long.
    fn put_in_cluster(&mut self, after: Micros, event: ClusterEvent) {
        self.put(after, Event::Cluster(Box::new(event)));
    }

    /// What a clock that is right shows.
    fn moment(&self) -> Instant {
        self.origin + Duration::from_micros(self.now)
    }

    /// The time of day, in whole seconds as objects have it.
    fn time_of_day(at: Micros) -> Timestamp {
        let since = SignedDuration::from_secs((at / super::SECOND) as i64);
        Timestamp::UNIX_EPOCH
            .saturating_add(SignedDuration::from_hours(496_000) + since)
            .unwrap_or(Timestamp::MAX)
    }

    pub(super) fn happen_in_cluster(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Begin { life } => self.operator_begins(life),
            ClusterEvent::News { life, key, news, written } => self.operator_hears(life, key, news, written),
            ClusterEvent::Relist { life } => self.operator_lists(life),
            ClusterEvent::Wake { life, serial } => self.operator_wakes(life, serial),
            ClusterEvent::Arrive { life, serial, request } => self.write_arrives(life, serial, &request),
            ClusterEvent::Answer { life, serial, came } => self.write_answered(life, serial, *came),
            ClusterEvent::Deadline { life, serial } => self.write_answered(life, serial, Came::Failed),
            ClusterEvent::Controllers => self.controllers_look(),
            ClusterEvent::Bind { claim, uid } => self.bind(claim, uid),
            ClusterEvent::Vanish { ordinal, uid } => self.vanish(ordinal, uid),
            ClusterEvent::Probe { pod, life } => self.probe(pod, life),
            ClusterEvent::Tell { pod, life } => self.tell_report(pod, life),
            ClusterEvent::Told { pod, life, incarnation, report } => {
                self.report_arrives(pod, life, incarnation, report);
            }
            ClusterEvent::Heard { pod, life, report } => self.report_heard(pod, life, report),
            ClusterEvent::Restart { pod, life } => self.hear_restart(pod, life),
            ClusterEvent::Create => self.create_database(),
            ClusterEvent::Glance => self.glance(),
        }
    }
}
