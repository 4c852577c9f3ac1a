//! What to do about the certificates, decided from what is stored, what the targets carry, and the time.
//!
//! Keys and certificates are of no interest here, so a pair is generic in what is signed: the generated
//! histories in the tests run this very code with pairs that are nothing but numbers.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The most authorities that are kept besides the two in use. Only somebody who deletes the Secret
/// again and again gets there.
const MOST_TRUSTED: usize = 8;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long, how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a certificate is valid.
    pub lifetime: Duration,
    /// How long before its end it is replaced. So long may the API server or the targets be out of
    /// reach without harm.
    pub renew_before: Duration,
    /// How long all targets must have carried an authority before a certificate of it is served: more
    /// than any API server takes to learn of a change.
    pub settle: Duration,
    /// How often to look at the Secret and the targets when nothing seems to have changed.
    pub look: Duration,
    /// How long before it was made a certificate is valid already, for clocks that differ.
    pub backdate: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lifetime: 90 * DAY,
            renew_before: 30 * DAY,
            settle: Duration::from_secs(60),
            look: Duration::from_secs(60),
            backdate: Duration::from_secs(60 * 60),
        }
    }
}

impl Settings {
    /// Never so long that a new certificate is due at once.
    fn renew_before(&self) -> Duration {
        self.renew_before.min(self.lifetime - self.lifetime / 8)
    }
}

/// Whose signature a target trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, as PEM.
    pub certificate: String,
    /// When it ends, and with it what it signed.
    pub until: Time,
}

/// A serving certificate and the authority that signed it and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair<S> {
    /// Who signed.
    pub authority: Authority,
    /// From when on both are valid.
    pub from: Time,
    /// The names and addresses that the certificate is for.
    pub names: Vec<String>,
    /// The certificate and its key.
    #[serde(flatten)]
    pub signed: S,
}

/// All that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State<S> {
    /// What every replica serves with.
    pub serving: Pair<S>,
    /// What is served next, once all targets carry its authority.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub next: Option<Pair<S>>,
    /// Authorities of before: some replica may still serve with what they signed.
    #[serde(default)]
    pub trusted: Vec<Authority>,
}

impl<S> State<S> {
    /// What all targets are to carry.
    pub fn bundle(&self) -> String {
        self.authorities().map(|authority| authority.certificate.as_str()).collect()
    }

    fn authorities(&self) -> impl Iterator<Item = &Authority> {
        let pairs = [Some(&self.serving), self.next.as_ref()].into_iter().flatten();
        pairs.map(|pair| &pair.authority).chain(&self.trusted)
    }
}

impl<S> Pair<S> {
    fn is_valid(&self, now: Timestamp) -> bool {
        self.from.0 <= now && now < self.authority.until.0
    }

    /// Whether it is for all of these names, and perhaps others.
    fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// When to make the one after it.
    fn due(&self, settings: &Settings) -> Timestamp {
        before(self.authority.until.0, settings.renew_before())
    }
}

/// What to do. Each step but the first is one write to the Secret, compared with what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Store a new pair and serve it at once: there is none that works.
    Begin,
    /// Nothing is stored, but it is known what was: store that again, and announce a next pair.
    Restore,
    /// Store a next pair.
    Announce,
    /// Serve the next pair.
    Switch,
}

/// How a look at a target came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It carries the bundle; with its generation, which changes with whatever somebody writes to it.
    Carries(i64),
    /// It carries something else.
    Lacks,
    /// It does not exist or calls no webhook: nobody is let down by what it does not carry.
    Idle,
    /// It could not be read.
    Unknown,
}

/// What one replica knows and wants. It is told what it reads, and says what to do.
#[derive(Debug)]
pub struct Replica<S> {
    names: Vec<String>,
    settings: Settings,
    /// The last state that could be read.
    known: Option<State<S>>,
    carried: Option<Carried>,
}

/// That all targets carry a bundle.
#[derive(Debug)]
struct Carried {
    bundle: String,
    sightings: Vec<Sighting>,
    since: Instant,
}

impl<S: Clone> Replica<S> {
    /// A replica that has read nothing yet.
    pub fn new(names: Vec<String>, settings: Settings) -> Self {
        Replica { names, settings, known: None, carried: None }
    }

    /// Takes in a look: what is stored, if it can be read, and what the targets, **read before it**,
    /// carry compared with its bundle. Says what to do, and when to look again.
    pub fn look(
        &mut self,
        stored: Option<&State<S>>,
        sightings: Vec<Sighting>,
        now: Timestamp,
        clock: Instant,
    ) -> (Step, Duration) {
        self.known = stored.cloned().or(self.known.take());
        let carried_for = match stored {
            Some(stored) => self.carried_for(stored.bundle(), sightings, clock),
            None => None,
        };
        let step = plan(stored, self.known.as_ref(), carried_for, &self.names, now, &self.settings);
        (step, self.again(stored, carried_for, now))
    }

    /// How long all targets have carried the bundle, as far as can be known from here.
    fn carried_for(&mut self, bundle: String, seen: Vec<Sighting>, clock: Instant) -> Option<Duration> {
        if seen.iter().any(|sighting| matches!(sighting, Sighting::Lacks | Sighting::Unknown)) {
            self.carried = None;
            return None;
        }
        let since = match &self.carried {
            Some(carried) if carried.bundle == bundle && carried.sightings == seen => carried.since,
            _ => clock,
        };
        self.carried = Some(Carried { bundle, sightings: seen, since });
        Some(clock.saturating_duration_since(since))
    }

    fn again(&self, stored: Option<&State<S>>, carried: Option<Duration>, now: Timestamp) -> Duration {
        let Some(stored) = stored else { return self.settings.look };
        let wait = match (&stored.next, carried) {
            (Some(_), Some(carried)) => self.settings.settle.saturating_sub(carried),
            (Some(_), None) => self.settings.look,
            (None, _) => Duration::try_from(stored.serving.due(&self.settings).duration_since(now))
                .unwrap_or(self.settings.look),
        };
        // Not in circles either: a moment can be just ahead.
        wait.clamp(Duration::from_millis(50), self.settings.look.max(Duration::from_millis(50)))
    }

    /// The names that a new pair is for: our own, and those of a pair that is replaced for want
    /// of ours. It belongs to a replica that wants others, and would be put back by it.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.names.clone();
        let known = self.known.iter().flat_map(|known| [Some(&known.serving), known.next.as_ref()]);
        for pair in known.flatten().filter(|pair| !pair.is_for(&self.names)) {
            names.extend(pair.names.iter().cloned());
        }
        names.sort();
        names.dedup();
        names
    }

    /// What is to be stored after a step, from what was known. A pair is made if the step needs one.
    pub fn after<E>(
        &self,
        step: Step,
        now: Timestamp,
        make: impl FnOnce(&[String]) -> Result<Pair<S>, E>,
    ) -> Result<Option<State<S>>, E> {
        let (serving, next) = match (step, &self.known) {
            (Step::Keep, _) | (Step::Restore | Step::Announce | Step::Switch, None) => return Ok(None),
            (Step::Begin, _) => (make(&self.names())?, None),
            (Step::Restore | Step::Announce, Some(known)) => {
                (known.serving.clone(), Some(make(&self.names())?))
            }
            (Step::Switch, Some(known)) => match &known.next {
                Some(next) => (next.clone(), None),
                None => return Ok(None),
            },
        };
        let mut state = State { serving, next, trusted: Vec::new() };
        state.trusted = self.still_trusted(&state, now);
        Ok(Some(state))
    }

    /// All authorities that were in the bundle stay in it until they have expired, by any clock.
    fn still_trusted(&self, state: &State<S>, now: Timestamp) -> Vec<Authority> {
        let ended = before(now, self.settings.backdate.min(self.settings.lifetime));
        let known = self.known.iter().flat_map(State::authorities);
        known
            .filter(|authority| authority.until.0 > ended)
            .filter(|authority| state.authorities().all(|kept| kept.certificate != authority.certificate))
            .take(MOST_TRUSTED)
            .cloned()
            .collect()
    }
}

/// The decision itself.
fn plan<S>(
    stored: Option<&State<S>>,
    known: Option<&State<S>>,
    carried_for: Option<Duration>,
    names: &[String],
    now: Timestamp,
    settings: &Settings,
) -> Step {
    let Some(state) = stored else {
        return match known {
            Some(known) if known.serving.is_valid(now) => Step::Restore,
            _ => Step::Begin,
        };
    };
    let next = state.next.as_ref().filter(|next| {
        // One that is from the future was made by somebody whose clock is wrong.
        next.is_valid(now) && next.is_for(names) && now < next.due(settings)
    });
    let over = now >= state.serving.authority.until.0;
    match next {
        // It can't get worse.
        Some(_) if over => Step::Switch,
        None if over => Step::Begin,
        Some(_) if carried_for.is_some_and(|carried| carried >= settings.settle) => Step::Switch,
        Some(_) => Step::Keep,
        None if state.next.is_some() => Step::Announce,
        None if now >= state.serving.due(settings) || !state.serving.is_for(names) => Step::Announce,
        None => Step::Keep,
    }
}

/// A moment before another; the earliest there is, if there is none.
fn before(moment: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    moment.checked_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
