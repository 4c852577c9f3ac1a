//! What is known of the database, as leadership and the rest of the agent see it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keelson_api::instance::Names;
use keelson_engine::postgres::Status;
use keelson_engine::{Data, Lsn};
use keelson_ha::{Instance, Position, Quorum, Receiving, Restore, Running, Standby, Target};

use crate::steps::Acting;

/// What the database is to do, and the how manieth order that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// One more for each that differs from the one before.
    pub number: u64,
    /// What to do.
    pub target: Target,
}

/// What is known of the database.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The order that was in force when it was looked at.
    pub order: u64,
    /// For leadership.
    pub instance: Instance,
    /// What the database last said of itself.
    pub status: Option<Status>,
    /// Whether it is being copied.
    pub joining: bool,
    /// Whether it has followed another since it was started: before that, its data is of the past.
    pub followed: bool,
    /// Whether it is a replica that lets clients in.
    pub admits: bool,
    /// Replica: what was last heard of the leader's log.
    pub heard: Option<Heard>,
    /// Whether it has more of something than was asked for, since its primary has.
    pub floored: bool,
    /// The settings that are in force.
    pub fingerprint: Option<String>,
    /// Primary: which credentials applications sign in with.
    pub credentials: Option<String>,
    /// The last restart that was asked for and done.
    pub restarted: Option<String>,
    /// For how long nobody was known to take writes before the first one that reached the disk here, since this
    /// instance was last made primary.
    pub gap: Option<Duration>,
    /// What is wrong.
    pub trouble: Option<Trouble>,
}

/// What is wrong: a word, and a sentence.
pub type Trouble = (String, String);

/// What is wrong with an instance, by where it was found. Each finding stands until the same place finds otherwise: what
/// is told must not come and go while nothing changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// With what the program should do.
    pub step: Option<Trouble>,
    /// With what belongs to it: settings, roles, slots, room.
    pub upkeep: Option<Trouble>,
}

impl Troubles {
    /// What to tell: rather the cause, which is more often in what belongs to it.
    pub fn told(&self) -> Option<Trouble> {
        self.upkeep.clone().or_else(|| self.step.clone())
    }
}

/// What a replica has heard of the log that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When something last came.
    pub at: Instant,
    /// The end of that log, as was said then.
    pub end: Option<Lsn>,
}

/// A leader that has nothing to say says so within this; and one that has fallen silent has a successor by then, which
/// readers must not hold up (see `readers`).
const QUIET: Duration = Duration::from_secs(5);

impl Facts {
    /// Replica: how much of the leader's log readers do not see here. What has come counts when it is replayed.
    pub fn behind(&self) -> Option<u64> {
        Some(self.heard?.end?.since(self.status.as_ref()?.replayed?))
    }

    /// The same, if readers are let in, and what was heard can still be believed.
    pub fn behind_now(&self, now: Instant, ttl: Duration) -> Option<u64> {
        self.heard.filter(|heard| self.admits && now < heard.at + ttl + QUIET).and_then(|_| self.behind())
    }
}

/// Until when commits may be acknowledged that wait for no other instance.
#[derive(Clone, Debug, Default)]
pub struct Leave(Arc<Mutex<Option<Instant>>>);

impl Leave {
    /// From now on until then; or not at all.
    pub fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether at this very moment.
    pub fn is_given(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// Whether the log of another comes in now.
pub fn streams(status: &Status) -> bool {
    status.receiver.as_ref().is_some_and(|receiver| receiver.status == "streaming")
}

/// The instance as leadership is to see it, from what its program does and says. When it last wrote, whether its
/// disk has failed it, and whether that has room, is for others to say.
pub fn observe(
    acting: &Acting,
    data: &Data,
    led: Option<u64>,
    status: Option<&Status>,
    names: Names<'_>,
) -> Instance {
    let (running, commits, receiving) = match acting {
        Acting::Not => return stopped(data, led),
        Acting::Primary(commits) => (Running::Primary, commits.clone(), Receiving::Cut),
        Acting::Replica(of) => {
            let running = if status.is_some() { Running::Replica } else { Running::Unsettled };
            // Before it has come to the end of its own log, it does not know how far it is.
            let cut = of.is_none() && status.is_some_and(|status| !status.receiving && status.at_end);
            let receiving = match status {
                Some(status) if streams(status) => Receiving::Streaming,
                _ if cut => Receiving::Cut,
                _ => Receiving::Waiting,
            };
            (running, Quorum::default(), receiving)
        }
    };
    let history = status.map_or(0, |status| u64::from(status.timeline));
    Instance {
        history: history.max(newest(data)),
        running,
        commits,
        receiving,
        position: status.map(position),
        standbys: status.map(|status| standbys(status, names)).unwrap_or_default(),
        ..stopped(data, led)
    }
}

/// Instances that follow. A copy in the making, the fence, and whatever else reads the log, are none.
fn standbys(status: &Status, names: Names<'_>) -> Vec<Standby> {
    let instances = status.standbys.iter().filter(|standby| names.ordinal(&standby.name).is_some());
    let standbys = instances.map(|standby| Standby {
        name: standby.name.clone(),
        // One that has more than it was ever sent has it from another history.
        streaming: standby.state == "streaming"
            && standby.sent.is_none_or(|sent| standby.flushed <= Some(sent)),
        offset: standby.flushed.unwrap_or_default().0,
    });
    standbys.collect()
}

/// An instance whose database does not run. Only one that ended in good order knows how far it is.
pub fn stopped(data: &Data, led: Option<u64>) -> Instance {
    let position = match data {
        Data::Present(offline) if offline.clean && !offline.replica => {
            Some(Position { history: offline.timeline.into(), offset: offline.lsn.0 })
        }
        _ => None,
    };
    Instance {
        data: known(data, led),
        running: Running::Stopped,
        position,
        receiving: Receiving::Waiting,
        standbys: Vec::new(),
        commits: Quorum::default(),
        written: None,
        damaged: false,
        full: false,
        history: newest(data),
        restore: Restore::None,
    }
}

fn newest(data: &Data) -> u64 {
    match data {
        Data::Present(offline) => offline.timeline.into(),
        Data::Absent | Data::Unusable { .. } => 0,
    }
}

fn known(data: &Data, led: Option<u64>) -> keelson_ha::Data {
    match data {
        Data::Present(offline) => keelson_ha::Data::Present { system: offline.system.to_string(), led },
        Data::Absent | Data::Unusable { .. } => keelson_ha::Data::None,
    }
}

fn position(status: &Status) -> Position {
    Position { history: status.timeline.into(), offset: status.position().0 }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(changes: &[(&str, Value)]) -> Status {
        let mut status = json!({
            "inRecovery": true, "version": "17.5", "system": "7", "timeline": 3, "written": null, "flushed": null,
            "received": null, "replayed": "0/4000000", "replayedAge": null, "paused": false, "pendingRestart": [],
            "lowering": false, "standbys": [], "receiver": null, "receiving": false, "atEnd": true, "slots": []
        });
        for (name, value) in changes {
            status[*name] = value.clone();
        }
        serde_json::from_value(status).unwrap()
    }

    fn replica(following: bool, changes: &[(&str, Value)]) -> Instance {
        let of = following.then(|| crate::steps::Leader { name: "orders-1".into(), epoch: 2 });
        let status = status(changes);
        observe(&Acting::Replica(of), &Data::Absent, None, Some(&status), Names("orders"))
    }

    #[test]
    fn nothing_comes_in_only_where_nobody_is_followed_and_the_end_of_the_log_is_known() {
        assert_eq!(replica(false, &[]).receiving, Receiving::Cut);
        assert_eq!(replica(false, &[]).position, Some(Position { history: 3, offset: 0x400_0000 }));
        assert_eq!(replica(true, &[]).receiving, Receiving::Waiting, "it may be answered at any moment");
        assert_eq!(replica(false, &[("atEnd", json!(false))]).receiving, Receiving::Waiting);
        assert_eq!(replica(false, &[("receiving", json!(true))]).receiving, Receiving::Waiting);
    }

    #[test]
    fn readers_see_what_was_replayed_and_for_a_while_only() {
        let (at, ttl) = (Instant::now(), Duration::from_secs(10));
        let mut facts = Facts {
            order: 0,
            instance: stopped(&Data::Absent, None),
            status: Some(status(&[("received", json!("0/5000000")), ("replayed", json!("0/1000000"))])),
            joining: false,
            followed: true,
            admits: true,
            heard: Some(Heard { at, end: Some(Lsn(0x500_0000)) }),
            floored: false,
            fingerprint: None,
            credentials: None,
            restarted: None,
            gap: None,
            trouble: None,
        };
        assert_eq!(facts.behind(), Some(0x400_0000), "what has only come is seen by nobody");
        let later = |seconds| at + Duration::from_secs(seconds);
        assert_eq!(facts.behind_now(later(14), ttl), Some(0x400_0000));
        assert_eq!(facts.behind_now(later(15), ttl), None, "much may have been written since");
        assert_eq!(
            facts.behind_now(later(4), Duration::ZERO),
            Some(0x400_0000),
            "a leader may have nothing to say"
        );
        facts.heard = None;
        assert_eq!(facts.behind_now(at, ttl), None, "it has never followed anybody");
    }

    #[test]
    fn only_instances_count_as_standbys() {
        let one = |name: &str| {
            json!({"name": name, "state": "streaming", "sync": "quorum", "sent": null, "written": null,
                   "flushed": "0/5", "replayed": null})
        };
        let all = json!([one("orders-1"), one("orders-2 (copy)"), one(keelson_ha::FENCE)]);
        let status = status(&[("standbys", all)]);
        let acting = Acting::Primary(Quorum::default());
        let seen = observe(&acting, &Data::Absent, None, Some(&status), Names("orders"));
        let names: Vec<&str> = seen.standbys.iter().map(|standby| standby.name.as_str()).collect();
        assert_eq!(names, ["orders-1"]);
    }

    #[test]
    fn one_that_has_more_than_it_was_ever_sent_follows_another_history() {
        let streaming = |sent: &str, flushed: &str| {
            let one = json!({"name": "orders-1", "state": "streaming", "sync": "quorum", "sent": sent, "written": null,
                             "flushed": flushed, "replayed": null});
            let status = status(&[("standbys", json!([one]))]);
            let acting = Acting::Primary(Quorum::default());
            observe(&acting, &Data::Absent, None, Some(&status), Names("orders")).standbys[0].streaming
        };
        assert!(streaming("0/5", "0/5") && streaming("0/5", "0/4"));
        assert!(!streaming("0/5", "0/6"), "before a restore it was further");
    }

    #[test]
    fn a_trouble_stands_until_it_is_over_where_it_was_found() {
        let full = || Some(("VolumeFull".to_owned(), "the volume is full".to_owned()));
        let stuck = || Some(("Stuck".to_owned(), "it does not start".to_owned()));
        let mut troubles = Troubles::default();
        assert_eq!(troubles.told(), None);
        troubles.upkeep = full();
        // The next step is done without trouble, and says so before it is looked again.
        troubles.step = None;
        assert_eq!(troubles.told(), full());
        troubles.step = stuck();
        assert_eq!(troubles.told(), full(), "the cause");
        troubles.upkeep = None;
        assert_eq!(troubles.told(), stuck());
    }

    #[test]
    fn leave_ends_by_itself() {
        let leave = Leave::default();
        assert!(!leave.is_given());
        leave.set(Some(Instant::now() + Duration::from_secs(60)));
        assert!(leave.is_given());
        leave.set(Some(Instant::now()));
        assert!(!leave.is_given());
    }
}
