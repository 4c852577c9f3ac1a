//! Events: what happened to an object, for whoever runs `kubectl describe`.
//!
//! What happens again and again is one event with a count, which is written less often the longer it
//! goes on; and an object whose events are all different has so many at once and then one a
//! minute. Nobody waits for an event, and one that can't be written fails nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as EventObject, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use crate::error::says;

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// It went as it should.
    Normal,
    /// It did not.
    Warning,
}

impl Severity {
    fn label(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The object.
    pub about: ObjectReference,
    /// Whether somebody should look.
    pub severity: Severity,
    /// One word that a person can search a runbook for.
    pub reason: String,
    /// A sentence for the person who reads it.
    pub note: String,
}

/// What the API server takes at most.
const LONGEST_NOTE: usize = 1024;
/// Events that wait to be written; more are dropped.
const WAITING: usize = 1024;

/// Where to say that something happened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<Event>,
}

impl Events {
    /// Events are written for as long as the returned future is polled.
    pub fn new(
        client: Client,
        controller: &str,
        instance: &str,
    ) -> (Events, impl Future<Output = ()> + use<>) {
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let reporter = Reporter { client, controller: controller.to_owned(), instance: instance.to_owned() };
        let write = async move {
            let mut ledger = Ledger::default();
            while let Some(event) = receiver.recv().await {
                reporter.write(&mut ledger, event).await;
            }
        };
        (Events { sender }, write)
    }

    /// Says so, and does not wait.
    pub fn tell(&self, event: Event) {
        if let Err(error) = self.sender.try_send(event) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

struct Reporter {
    client: Client,
    controller: String,
    instance: String,
}

impl Reporter {
    async fn write(&self, ledger: &mut Ledger, event: Event) {
        let verdict = ledger.judge(&event, Instant::now());
        let namespace = event.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<EventObject> = Api::namespaced(self.client.clone(), &namespace);
        let written = match verdict {
            Verdict::Quiet => return,
            Verdict::First => {
                let object = self.object(&event, &namespace);
                let written = api.create(&PostParams::default(), &object).await;
                written.map(|_| ledger.named(&event, object.metadata.name))
            }
            Verdict::Again { name, count } => {
                let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
                let patch = Patch::Merge(json!({ "series": series }));
                api.patch_metadata(&name, &PatchParams::default(), &patch).await.map(drop)
            }
        };
        if let Err(error) = written {
            tracing::debug!(reason = event.reason, error = says(&error), "an event could not be written");
        }
    }

    fn object(&self, event: &Event, namespace: &str) -> EventObject {
        let about = event.about.name.as_deref().unwrap_or(&self.controller);
        let name = format!("{about}.{:x}{:04x}", Timestamp::now().as_microsecond(), fastrand::u16(..));
        EventObject {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(cut(&event.note)),
            reason: Some(event.reason.clone()),
            regarding: Some(event.about.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(event.severity.label().to_owned()),
            ..EventObject::default()
        }
    }
}

fn cut(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = (0..=LONGEST_NOTE - '…'.len_utf8()).rev().find(|end| note.is_char_boundary(*end));
    format!("{}…", &note[..end.unwrap_or_default()])
}

/// What to do with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Write it.
    First,
    /// It is there under this name, and has now happened so often.
    Again { name: String, count: i32 },
    /// Write nothing.
    Quiet,
}

/// After the first repetition that is written, the next one is not before so long; then twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);
/// What has not happened for so long begins anew.
const MEMORY: Duration = Duration::from_secs(60 * 60);
/// Different events of one object at once, and how long until there may be another.
const AT_ONCE: u32 = 20;
const REFILL: Duration = Duration::from_secs(60);
/// So many events are remembered, over all objects.
const REMEMBERED: usize = 4096;

/// What has happened before. It decides and does no IO.
#[derive(Debug, Default)]
struct Ledger {
    events: HashMap<u64, Entry>,
    /// In the order in which they came up first.
    order: VecDeque<u64>,
    objects: HashMap<u64, Allowance>,
}

#[derive(Debug)]
struct Entry {
    name: Option<String>,
    count: i32,
    last: Instant,
    written: Instant,
    pause: Duration,
}

#[derive(Debug)]
struct Allowance {
    used: u32,
    since: Instant,
}

impl Ledger {
    fn judge(&mut self, event: &Event, now: Instant) -> Verdict {
        let id = id(event);
        if let Some(entry) = self.events.get_mut(&id)
            && now.saturating_duration_since(entry.last) < MEMORY
        {
            entry.count = entry.count.saturating_add(1);
            entry.last = now;
            let due = now.saturating_duration_since(entry.written) >= entry.pause;
            return match &entry.name {
                Some(name) if due => {
                    entry.written = now;
                    entry.pause = (entry.pause * 2).min(LONGEST_PAUSE);
                    Verdict::Again { name: name.clone(), count: entry.count }
                }
                // It could not be written when it came up first.
                None if due => Verdict::First,
                _ => Verdict::Quiet,
            };
        }
        if !self.allowed(event, now) {
            return Verdict::Quiet;
        }
        let entry = Entry { name: None, count: 1, last: now, written: now, pause: FIRST_PAUSE };
        if self.events.insert(id, entry).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > REMEMBERED {
            self.order.pop_front().map(|oldest| self.events.remove(&oldest));
        }
        Verdict::First
    }

    /// It was written, under this name.
    fn named(&mut self, event: &Event, name: Option<String>) {
        if let Some(entry) = self.events.get_mut(&id(event)) {
            entry.name = name;
        }
    }

    fn allowed(&mut self, event: &Event, now: Instant) -> bool {
        let refilled = |object: &Allowance| {
            let passed = now.saturating_duration_since(object.since).as_secs() / REFILL.as_secs();
            u32::try_from(passed).unwrap_or(u32::MAX)
        };
        if self.objects.len() > REMEMBERED {
            self.objects.retain(|_, object| object.used > refilled(object));
        }
        let object = self.objects.entry(hash(&event.about.uid)).or_insert(Allowance { used: 0, since: now });
        let back = refilled(object);
        object.used = object.used.saturating_sub(back);
        object.since += REFILL * back;
        let allowed = object.used < AT_ONCE;
        object.used += u32::from(allowed);
        allowed
    }
}

fn id(event: &Event) -> u64 {
    hash(&(&event.about.uid, event.severity, &event.reason, &event.note))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(uid: &str, note: &str) -> Event {
        Event {
            about: ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() },
            severity: Severity::Warning,
            reason: "Failed".into(),
            note: note.into(),
        }
    }

    #[test]
    fn what_repeats_is_counted_and_written_less_and_less_often() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        let same = event("1", "no room");
        assert_eq!(ledger.judge(&same, start), Verdict::First);
        ledger.named(&same, Some("x".into()));
        let written: Vec<(u64, i32)> = (1..4 * 3600)
            .filter_map(|second| match ledger.judge(&same, start + Duration::from_secs(second)) {
                Verdict::Again { count, .. } => Some((second, count)),
                _ => None,
            })
            .collect();
        assert_eq!(written[..3], [(60, 61), (180, 181), (420, 421)]);
        assert!(written.len() < 14, "some dozen writes in four hours: {}", written.len());
    }

    #[test]
    fn one_object_cannot_flood_and_does_not_silence_another() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        let mut firsts = |uid: &str, from: u64, now: Instant| {
            (from..from + 1000)
                .filter(|number| ledger.judge(&event(uid, &number.to_string()), now) == Verdict::First)
                .count()
        };
        assert_eq!(firsts("1", 0, start), 20);
        assert_eq!(firsts("1", 1000, start + Duration::from_secs(120)), 2, "one a minute after that");
        assert_eq!(firsts("2", 0, start), 20);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        for number in 0..20_000_u64 {
            let now = start + Duration::from_secs(number);
            ledger.judge(&event(&number.to_string(), "once"), now);
        }
        assert!(ledger.events.len() <= REMEMBERED && ledger.objects.len() <= REMEMBERED + 1);
    }

    #[test]
    fn one_that_could_not_be_written_is_tried_again() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        assert_eq!(ledger.judge(&event("1", "x"), start), Verdict::First);
        assert_eq!(ledger.judge(&event("1", "x"), start + Duration::from_secs(1)), Verdict::Quiet);
        assert_eq!(ledger.judge(&event("1", "x"), start + FIRST_PAUSE), Verdict::First);
    }

    #[test]
    fn a_long_note_is_cut_between_letters() {
        let long = cut(&"ü".repeat(2000));
        assert!(long.len() <= LONGEST_NOTE && long.ends_with("ü…"));
        assert_eq!(cut("short"), "short");
    }
}
