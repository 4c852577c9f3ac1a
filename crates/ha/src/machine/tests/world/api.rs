//! The Lease, behind a way on which requests and answers are late or lost. What nobody waits for any more may
//! still be carried out.

use super::*;

/// How long an agent waits for an answer.
const PATIENCE: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) lease: Option<Lease>,
    version: u64,
    serial: u64,
    requests: Vec<Parcel<(Request, Instant)>>,
    answers: Vec<Parcel<Input>>,
}

#[derive(Clone, Debug)]
struct Parcel<T> {
    due: u64,
    /// Whose.
    node: usize,
    serial: u64,
    what: T,
}

impl Api {
    /// Somebody asks for a handover.
    pub(super) fn wish(&mut self, to: Option<usize>) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| lease.holder.is_some()) {
            self.version += 1;
            lease.version = self.version.to_string();
            let named = |number: usize| Successor::Named(name(number.try_into().unwrap()));
            lease.successor = Some(to.map_or(Successor::Any, named));
        }
    }

    fn carry_out(&mut self, request: Request, sent: Instant) -> Input {
        let Request::Write { draft, replaces } = request else { return Input::Read(self.lease.clone()) };
        if self.lease.as_ref().map(|lease| &lease.version) != replaces.as_ref() {
            return Input::Conflict;
        }
        self.version += 1;
        let Draft { holder, epoch, system, successor, quorum, history, restores, end, ttl } = *draft;
        let version = self.version.to_string();
        // Which database it is, is never taken away.
        let system = system.or_else(|| self.lease.take().and_then(|lease| lease.system));
        self.lease = Some(Lease {
            version: version.clone(),
            renewal: version.clone(),
            holder,
            ttl,
            epoch,
            system,
            successor,
            quorum,
            history,
            restores,
            end,
        });
        Input::Written { version, sent }
    }
}

impl World {
    pub(super) fn send(&mut self, node: usize, request: Request) {
        self.api.serial += 1;
        let serial = self.api.serial;
        self.nodes[node].request = Some((serial, self.tick + PATIENCE));
        let due = self.tick + self.delay();
        // Lost on the way.
        if self.tick >= self.nodes[node].silent || self.chance.one_in(4) {
            let what = (request, self.now());
            self.api.requests.push(Parcel { due, node, serial, what });
        }
    }

    /// Mostly soon.
    fn delay(&mut self) -> u64 {
        if self.chance.one_in(12) { self.chance.from(4..25) } else { self.chance.from(0..3) }
    }

    /// The API server works on what has arrived.
    pub(super) fn serve(&mut self) {
        let due: Vec<_> = self.api.requests.extract_if(.., |parcel| parcel.due <= self.tick).collect();
        for Parcel { node, serial, what: (request, sent), .. } in due {
            let answer = self.api.carry_out(request, sent);
            if let (Input::Written { version, .. }, Some(lease)) = (&answer, self.api.lease.clone()) {
                let holder = lease.holder.map(|holder| holder.to_string());
                let Lease { epoch, successor, quorum, .. } = lease;
                self.say(format!(
                    "{node} has written {version}: {holder:?} in {epoch}, {successor:?}, {quorum:?}"
                ));
            }
            if self.tick >= self.nodes[node].silent {
                let due = self.tick + self.delay();
                self.api.answers.push(Parcel { due, node, serial, what: answer });
            }
        }
    }

    /// Answers, and news of the Lease.
    pub(super) fn hear_from_api(&mut self, number: usize) {
        let mine = |parcel: &mut Parcel<Input>| parcel.node == number && parcel.due <= self.tick;
        let due: Vec<_> = self.api.answers.extract_if(.., mine).collect();
        for answer in due {
            // What an earlier process asked, or what was given up, nobody waits for.
            if self.nodes[number].request.is_some_and(|(serial, _)| serial == answer.serial) {
                self.nodes[number].request = None;
                self.note(number, &answer.what);
                self.step(number, answer.what);
            }
        }
        if self.nodes[number].request.is_some_and(|(_, until)| self.tick >= until) {
            self.nodes[number].request = None;
            self.step(number, Input::Failed);
        }
        let hears = self.tick >= self.nodes[number].silent && self.chance.one_in(2);
        let news = self.api.lease.clone().filter(|_| hears);
        if let Some(lease) = news.filter(|_| self.api.version > self.nodes[number].newest) {
            let seen = Input::Seen(lease);
            self.note(number, &seen);
            self.step(number, seen);
        }
    }

    fn note(&mut self, number: usize, input: &Input) {
        let version = match input {
            Input::Read(Some(lease)) | Input::Seen(lease) => lease.version.parse().unwrap(),
            Input::Written { version, .. } => version.parse().unwrap(),
            _ => 0,
        };
        self.nodes[number].newest = self.nodes[number].newest.max(version);
    }
}
