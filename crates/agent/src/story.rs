//! The last leaderships: kept on the Lease, so that each leader can go on with the list of the one before, and told
//! on the pod, where the operator finds them. Times of day are for people; nothing is decided by them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use keelson_api::instance::annotations;
use keelson_api::v1::{Cause, Leadership};
use keelson_api::value::Written;
use keelson_ha::Reign;

/// So many are kept.
const MOST: usize = 8;

/// The last leaderships, the newest first, as far as this instance knows.
#[derive(Debug, Default)]
pub struct Story {
    told: Vec<Leadership>,
    /// What is on the Lease.
    on_lease: Vec<Leadership>,
}

impl Story {
    /// Learns what is on the Lease.
    pub fn read(&mut self, lease: &LeaseObject) {
        let notes = lease.metadata.annotations.as_ref();
        let text = notes.and_then(|notes| notes.get(annotations::LEADERSHIPS));
        self.on_lease = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        for one in self.on_lease.clone() {
            self.add(one);
        }
    }

    /// An instance has come to take writes, in a leadership that is not known yet.
    pub fn begin(&mut self, who: &str, reign: &Reign, since: Timestamp, gap: Option<Duration>) {
        if self.told.first().and_then(|one| one.epoch) == Some(number(reign.epoch)) {
            return;
        }
        let cause = cause(reign.cause);
        let before = cause != Cause::First;
        self.add(Leadership {
            who: who.to_owned(),
            epoch: Some(number(reign.epoch)),
            since: Time(since),
            why: Some(Written::of(&cause)),
            gap_millis: gap.filter(|_| before).map(|gap| i64::try_from(gap.as_millis()).unwrap_or(i64::MAX)),
            lost_bytes: reign.lacks.filter(|_| before).map(number),
        });
    }

    /// All that are known.
    pub fn told(&self) -> &[Leadership] {
        &self.told
    }

    /// What is to be written on the Lease, if it is not there.
    pub fn news(&self) -> Option<String> {
        (self.told != self.on_lease).then(|| serde_json::to_string(&self.told).ok()).flatten()
    }

    fn add(&mut self, one: Leadership) {
        self.told.retain(|known| known.epoch != one.epoch);
        self.told.push(one);
        self.told.sort_by_key(|one| std::cmp::Reverse(one.epoch));
        self.told.truncate(MOST);
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn cause(cause: keelson_ha::Cause) -> Cause {
    match cause {
        keelson_ha::Cause::First => Cause::First,
        keelson_ha::Cause::Again => Cause::Again,
        keelson_ha::Cause::HandedOver => Cause::HandedOver,
        keelson_ha::Cause::GaveUp => Cause::GaveUp,
        keelson_ha::Cause::Left => Cause::Left,
        keelson_ha::Cause::Died => Cause::Died,
        keelson_ha::Cause::Silent => Cause::Silent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reign(epoch: u64) -> Reign {
        Reign { epoch, cause: keelson_ha::Cause::Silent, lacks: Some(16) }
    }

    fn lease(story: &str) -> LeaseObject {
        let notes = json!({ annotations::LEADERSHIPS: story });
        serde_json::from_value(json!({ "metadata": { "annotations": notes } })).unwrap()
    }

    #[test]
    fn a_leader_goes_on_with_the_story_of_the_one_before() {
        let (mut one, mut two) = (Story::default(), Story::default());
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        one.begin("orders-0", &Reign { cause: keelson_ha::Cause::First, ..reign(1) }, since, None);
        let news = one.news().unwrap();
        two.read(&lease(&news));
        assert_eq!(two.news(), None, "it is there");
        two.begin("orders-1", &reign(2), since, Some(Duration::from_millis(5200)));
        two.begin("orders-1", &reign(2), since, Some(Duration::from_secs(60)));
        let told: serde_json::Value = serde_json::from_str(&two.news().unwrap()).unwrap();
        let first = json!({"who": "orders-0", "epoch": 1, "since": "2027-01-15T08:00:00Z", "why": "First"});
        let second = json!({
            "who": "orders-1", "epoch": 2, "since": "2027-01-15T08:00:00Z", "why": "PreviousSilent",
            "gapMillis": 5200, "lostBytes": 16
        });
        assert_eq!(told, json!([second, first]));
    }

    #[test]
    fn only_the_last_are_kept_and_what_makes_no_sense_is_forgotten() {
        let mut story = Story::default();
        for epoch in 1..20 {
            story.begin("orders-0", &reign(epoch), Timestamp::now(), None);
        }
        story.read(&lease("nonsense"));
        let epochs: Vec<Option<i64>> = story.told().iter().map(|one| one.epoch).collect();
        assert_eq!(epochs, (12..20).rev().map(Some).collect::<Vec<_>>());
    }
}
