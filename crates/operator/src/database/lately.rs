//! What this process has done that can't be seen in the cluster, and when. The time is handed in.

use std::collections::BTreeMap;
use std::time::Instant;

use super::facts::Lately;
use super::plan::Step;

/// What was done, and when.
#[derive(Debug, Default, Clone)]
pub struct Marks {
    handover: Option<(String, Instant)>,
    doubtful: Option<(String, Instant)>,
    secrets: Option<Instant>,
    growth_refused: Option<(String, Instant)>,
    absent: BTreeMap<String, Instant>,
}

impl Marks {
    /// The Secrets were written because somebody misses them.
    pub fn repaired(&mut self, now: Instant) {
        self.secrets = Some(now);
    }

    /// A step was taken.
    pub fn took(&mut self, step: &Step, now: Instant) {
        match step {
            Step::HandOver { from, .. } => self.handover = Some((from.clone(), now)),
            Step::Grow { .. } => self.growth_refused = None,
            _ => {}
        }
        if self.doubtful.as_ref().is_some_and(|(pod, _)| Some(pod.as_str()) == step.disturbs()) {
            self.doubtful = None;
        }
    }

    /// A step may have been taken, or may still be: nobody has said.
    pub fn tried(&mut self, step: &Step, now: Instant) {
        if let Some(pod) = step.disturbs() {
            self.doubtful = Some((pod.to_owned(), now));
        }
    }

    /// The cluster does not let a volume grow.
    pub fn refused(&mut self, why: String, now: Instant) {
        self.growth_refused = Some((why, now));
    }

    /// These pods are not there, and no others.
    pub fn miss(&mut self, pods: Vec<String>, now: Instant) {
        let since = |pod: String| {
            let since = self.absent.get(&pod).copied().unwrap_or(now);
            (pod, since)
        };
        self.absent = pods.into_iter().map(since).collect();
    }

    /// How long ago all of it was.
    pub fn lately(&self, now: Instant) -> Lately {
        let ago = |since: Instant| now.saturating_duration_since(since);
        Lately {
            handover: self.handover.clone().map(|(leader, since)| (leader, ago(since))),
            doubtful: self.doubtful.clone().map(|(pod, since)| (pod, ago(since))),
            secrets: self.secrets.map(ago),
            refused: None,
            growth_refused: self.growth_refused.clone().map(|(why, since)| (why, ago(since))),
            absent: self.absent.iter().map(|(pod, since)| (pod.clone(), ago(*since))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn how_long_a_pod_is_missed_is_counted_from_when_it_was_last_there() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut marks = Marks::default();
        let pods = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        marks.miss(pods(&["orders-1"]), start);
        marks.miss(pods(&["orders-0", "orders-1"]), start + second);
        let both = marks.lately(start + 3 * second).absent;
        assert_eq!(both, [("orders-0".to_owned(), 2 * second), ("orders-1".to_owned(), 3 * second)]);
        marks.miss(pods(&["orders-0"]), start + 4 * second);
        marks.miss(pods(&["orders-1"]), start + 5 * second);
        assert_eq!(marks.lately(start + 6 * second).absent, [("orders-1".to_owned(), second)]);
    }
}
