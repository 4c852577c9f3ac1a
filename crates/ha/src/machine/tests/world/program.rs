//! A database program, in the hands of one that takes a step after the other, as its machine would have it.

use super::*;

/// A write, or the beginning of a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) history: u64,
    pub(super) write: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Volume {
    pub(super) log: Vec<Entry>,
    led: Option<u64>,
    replica: bool,
    clean: bool,
}

impl Volume {
    fn position(&self) -> Position {
        let history = self.log.last().map_or(0, |entry| entry.history);
        Position { history, offset: self.log.len() as u64 }
    }

    /// Whether it is how that log began, as far as a program can tell: by the numbers of histories.
    fn begins(&self, other: &Volume) -> bool {
        let there = || other.log.get(self.log.len() - 1).map(|entry| entry.history);
        self.log.last().is_none_or(|last| there() == Some(last.history))
    }

    /// Whether it really is. Every write is told from every other.
    fn is_beginning_of(&self, other: &Volume) -> bool {
        self.log.last().is_none_or(|last| other.log.get(self.log.len() - 1) == Some(last))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Acting {
    #[default]
    Not,
    Primary {
        epoch: u64,
        ready: bool,
    },
    Replica(Option<(usize, u64)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Create,
    StartPrimary(u64, Quorum),
    Promote(u64, u64, Quorum),
    Commits(Quorum),
    /// Start it as a replica, or let it follow another, or nobody.
    Follow(Option<(usize, u64)>),
    Rewind(usize),
    Clone(usize),
    Finish,
    Close,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    acting: Acting,
    /// What is being done, and when it is.
    step: Option<(Step, u64)>,
    /// Told from each other by how often it was started.
    starts: u64,
    pub(super) commits: Quorum,
    /// For whom commits waited before; some processes have not heard of the change until then.
    before: Option<(Quorum, u64)>,
    /// How far each standby is, as it said, and when it was last heard of.
    standbys: BTreeMap<usize, (usize, u64)>,
    /// How much of the log was acknowledged, or can't be any more.
    acknowledged: usize,
    finishing: bool,
    /// Since when its log does not fit the one of whom it follows.
    apart: Option<u64>,
    streams: bool,
}

/// A standby says how far it is.
#[derive(Clone, Debug)]
pub(super) struct Received {
    due: u64,
    primary: (usize, u64),
    standby: usize,
    offset: usize,
}

impl Program {
    pub(super) fn takes_writes(&self) -> bool {
        matches!(self.acting, Acting::Primary { ready: true, .. }) && !self.finishing
    }
}

impl Node {
    /// It ends, in good order or not.
    pub(super) fn end_program(&mut self, clean: bool) {
        let ended = matches!(self.program.acting, Acting::Primary { .. });
        if let Some(volume) = self.volume.as_mut().filter(|_| ended) {
            volume.clean = clean;
        }
        self.program = Program { starts: self.program.starts + 1, ..Program::default() };
    }
}

impl World {
    pub(super) fn run_program(&mut self, number: usize) {
        self.learn_of_standbys(number);
        self.take_writes(number);
        self.acknowledge(number);
        self.receive(number);
        self.work(number);
    }

    fn learn_of_standbys(&mut self, number: usize) {
        let starts = self.nodes[number].program.starts;
        let mine = |one: &mut Received| one.primary.0 == number && one.due <= self.tick;
        let due: Vec<Received> = self.received.extract_if(.., mine).collect();
        for Received { primary, standby, offset, .. } in due {
            if primary.1 == starts {
                let known = self.nodes[number].program.standbys.entry(standby).or_default();
                *known = (known.0.max(offset), self.tick);
            }
        }
    }

    fn take_writes(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.program.takes_writes() && self.tick >= node.hung && self.chance.one_in(2) {
            self.append(number);
        }
    }

    fn append(&mut self, number: usize) {
        self.writes += 1;
        let write = self.writes;
        let volume = self.nodes[number].volume.as_mut().unwrap();
        let history = volume.log.last().map_or(0, |entry| entry.history);
        volume.log.push(Entry { history, write });
    }

    /// Clients are told of what is on disk here and with enough of those that commits wait for.
    fn acknowledge(&mut self, number: usize) {
        let node = &self.nodes[number];
        let Acting::Primary { epoch, ready: true } = node.program.acting else { return };
        let (Some(volume), program) = (&node.volume, &node.program) else { return };
        if self.tick < node.hung {
            return;
        }
        let before =
            program.before.as_ref().filter(|(_, until)| self.tick < *until).map(|(before, _)| before);
        let now = self.now();
        let leave = node.machine.leave(now).is_some_and(|until| now < until);
        let far = |quorum: &Quorum| {
            let has = |(standby, (offset, _)): (&usize, &(usize, u64))| {
                quorum.names.contains(&name((*standby).try_into().unwrap())).then_some(*offset)
            };
            let mut offsets: Vec<usize> = program.standbys.iter().filter_map(has).collect();
            offsets.sort_unstable_by(|one, other| other.cmp(one));
            match quorum.count {
                _ if quorum.is_fenced() && leave => volume.log.len(),
                _ if quorum.is_fenced() => 0,
                0 => volume.log.len(),
                count => offsets.get(count - 1).copied().unwrap_or_default(),
            }
        };
        let end = before.map(far).unwrap_or_default().max(far(&program.commits)).min(volume.log.len());
        if end <= program.acknowledged {
            return;
        }
        // What a standby had said before it turned away may come late: the write is known to who leads now.
        let news = &volume.log[program.acknowledged..end];
        let known = self.beginning.get(program.acknowledged..end) == Some(news);
        if epoch < self.epoch && !known {
            self.fail(&format!("{number} acknowledges in epoch {epoch}, after {}", self.epoch));
        }
        let new = (program.acknowledged..end).map(|at| (at, volume.log[at].write));
        self.acknowledged.extend(new);
        self.nodes[number].program.acknowledged = end;
    }

    /// A replica receives, if whom it follows is there, and theirs are the same logs.
    fn receive(&mut self, number: usize) {
        self.nodes[number].program.streams = false;
        let Acting::Replica(Some((of, _))) = self.nodes[number].program.acting else { return };
        let there = self.is_awake(of) && self.linked(number, of) && self.tick >= self.nodes[number].hung;
        let ready = matches!(self.nodes[of].program.acting, Acting::Primary { ready: true, .. });
        let (Some(theirs), Some(mine)) = (&self.nodes[of].volume, &self.nodes[number].volume) else { return };
        if !there || !ready {
            return;
        }
        if !mine.begins(theirs) {
            self.nodes[number].program.apart.get_or_insert(self.tick);
            return;
        }
        if !mine.is_beginning_of(theirs) {
            self.fail(&format!("{number} and {of} have two histories of one number"));
        }
        let more = usize::try_from(self.chance.from(0..4)).unwrap();
        let new: Vec<Entry> = theirs.log.iter().skip(mine.log.len()).take(more).copied().collect();
        let primary = (of, self.nodes[of].program.starts);
        let node = &mut self.nodes[number];
        (node.program.streams, node.program.apart) = (true, None);
        let volume = node.volume.as_mut().unwrap();
        volume.log.extend(new);
        let due = self.tick + self.chance.from(0..3);
        self.received.push(Received { due, primary, standby: number, offset: volume.log.len() });
    }

    /// Goes on with the step that is being taken, or takes the next.
    fn work(&mut self, number: usize) {
        let target = self.nodes[number].machine.target(self.now());
        let node = &mut self.nodes[number];
        let leads = matches!(node.program.acting, Acting::Primary { .. });
        let closing = matches!(node.program.step, Some((Step::Close, _)));
        if target == Target::Close && leads && !closing {
            node.program.step = None;
        }
        match node.program.step.clone() {
            Some((step, due)) if self.tick >= due && (step == Step::Close || self.tick >= node.hung) => {
                node.program.step = None;
                self.done(number, step);
                let soon = self.tick + self.chance.from(0..3);
                self.nodes[number].next_look = soon;
            }
            Some(_) => {}
            None => {
                if let Some(step) = next(&target, node) {
                    self.begin(number, step);
                } else if self.tick >= node.next_look {
                    node.next_look = self.tick + self.chance.from(1..5);
                    self.look(number);
                }
            }
        }
    }

    fn begin(&mut self, number: usize, step: Step) {
        let long = match &step {
            Step::Create | Step::Clone(_) | Step::Rewind(_) => 4..10,
            Step::StartPrimary(..) | Step::Promote(..) | Step::Commits(_) => 1..8,
            Step::Finish => 2..8,
            Step::Follow(_) | Step::Close => 1..4,
        };
        let due = self.tick + self.chance.from(long);
        self.say(format!("{number} begins {step:?}"));
        let node = &mut self.nodes[number];
        match &step {
            Step::StartPrimary(epoch, commits) | Step::Promote(epoch, _, commits) => {
                node.volume.as_mut().unwrap().led = Some(*epoch);
                let starts = node.program.starts + 1;
                let acting = Acting::Primary { epoch: *epoch, ready: false };
                node.program = Program { acting, starts, commits: commits.clone(), ..Program::default() };
            }
            Step::Finish => node.program.finishing = true,
            _ => {}
        }
        node.program.step = Some((step, due));
    }

    fn done(&mut self, number: usize, step: Step) {
        match step {
            Step::Create => self.nodes[number].volume = Some(Volume { clean: true, ..Volume::default() }),
            Step::StartPrimary(epoch, _) => self.take_over(number, epoch),
            Step::Promote(epoch, history, _) => {
                self.writes += 1;
                let volume = self.nodes[number].volume.as_mut().unwrap();
                // It knows of no other than its own.
                let history = history.max(volume.position().history + 1);
                let beginning = Entry { history, write: self.writes };
                volume.replica = false;
                volume.log.push(beginning);
                self.take_over(number, epoch);
            }
            Step::Commits(commits) => {
                let until = self.tick + 3;
                let program = &mut self.nodes[number].program;
                let before = std::mem::replace(&mut program.commits, commits);
                program.before = Some((before, until));
            }
            Step::Follow(of) => {
                let node = &mut self.nodes[number];
                let volume = node.volume.as_mut().unwrap();
                volume.replica = true;
                volume.led = volume.led.filter(|_| of.is_none());
                node.program.acting = Acting::Replica(of);
                node.program.apart = None;
            }
            Step::Rewind(of) => self.rewind(number, of),
            Step::Clone(of) => {
                let there = self.nodes[of].volume.clone().filter(|_| self.can_copy(number, of));
                self.nodes[number].volume = there.map(|volume| Volume { led: None, replica: true, ..volume });
            }
            Step::Finish => {
                // It waits for those who follow, as long as they come along.
                let Some(end) = self.nodes[number].volume.as_ref().map(|volume| volume.log.len()) else {
                    return;
                };
                let tick = self.tick;
                let waits = |(offset, last): &(usize, u64)| *offset < end && tick < *last + 5;
                let program = &mut self.nodes[number].program;
                match program.standbys.values().any(waits) {
                    true => program.step = Some((Step::Finish, tick + 1)),
                    false => self.nodes[number].end_program(true),
                }
            }
            Step::Close => {
                self.nodes[number].end_program(false);
                self.look(number);
            }
        }
    }

    fn can_copy(&self, number: usize, of: usize) -> bool {
        self.is_awake(of) && self.linked(number, of) && self.nodes[of].program.takes_writes()
    }

    /// Takes back what the other does not have.
    fn rewind(&mut self, number: usize, of: usize) {
        if !self.can_copy(number, of) {
            return;
        }
        let theirs = self.nodes[of].volume.clone().unwrap_or_default();
        let node = &mut self.nodes[number];
        let volume = node.volume.as_mut().unwrap();
        let same = volume.log.iter().zip(&theirs.log).take_while(|(one, other)| one == other).count();
        volume.log.truncate(same);
        (volume.clean, volume.replica, volume.led) = (true, true, None);
        (node.program.acting, node.program.apart) = (Acting::Not, None);
    }

    /// From now on this one takes writes.
    fn take_over(&mut self, number: usize, epoch: u64) {
        self.say(format!("{number} takes writes in epoch {epoch}"));
        if epoch > self.epoch && !self.has_all(number) {
            self.fail(&format!("{number} leads and lacks what was acknowledged"));
        }
        let node = &mut self.nodes[number];
        if epoch > self.epoch {
            self.epoch = epoch;
            self.beginning = node.volume.as_ref().map(|volume| volume.log.clone()).unwrap_or_default();
        }
        node.program.acting = Acting::Primary { epoch, ready: true };
        node.program.acknowledged = node.volume.as_ref().map_or(0, |volume| volume.log.len());
    }

    /// What the agent finds out of it.
    pub(super) fn look(&mut self, number: usize) {
        let (now, tick) = (self.now(), self.tick);
        let node = &mut self.nodes[number];
        let last = node.facts.written;
        node.told = false;
        node.facts = match &node.volume {
            None => empty(),
            Some(volume) => having(volume, &node.program, tick),
        };
        let writes = node.facts.running == Running::Primary;
        node.facts.written = if writes && tick >= node.hung { Some(now) } else { last.filter(|_| writes) };
    }
}

fn having(volume: &Volume, program: &Program, tick: u64) -> Instance {
    let data = Data::Present { system: "7".into(), led: volume.led };
    let position = Some(volume.position());
    match program.acting {
        Acting::Not => {
            let position = position.filter(|_| volume.clean && !volume.replica);
            Instance { position, ..instance(data, Running::Stopped) }
        }
        Acting::Primary { .. } => {
            let recent = program.standbys.iter().filter(|(_, (_, last))| tick < *last + 5);
            let standbys =
                recent.map(|(number, (offset, _))| standby((*number).try_into().unwrap(), *offset as u64));
            Instance {
                position,
                receiving: Receiving::Cut,
                standbys: standbys.collect(),
                commits: program.commits.clone(),
                ..instance(data, Running::Primary)
            }
        }
        Acting::Replica(of) => {
            let receiving = match of {
                None => Receiving::Cut,
                Some(_) if program.streams => Receiving::Streaming,
                Some(_) => Receiving::Waiting,
            };
            Instance { position, receiving, ..instance(data, Running::Replica) }
        }
    }
}

/// The next step, as the agent would take it.
fn next(target: &Target, node: &Node) -> Option<Step> {
    let acting = node.program.acting;
    let number = |name: &str| name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap();
    let leads = matches!(acting, Acting::Primary { .. });
    match (target, &node.volume) {
        (Target::Wait, _) => None,
        (Target::Close | Target::Finish, _) if acting == Acting::Not => None,
        (Target::Close, _) => Some(Step::Close),
        (Target::Finish, _) => Some(Step::Finish),
        // Nobody asks for a restore here.
        (Target::Restore { .. } | Target::Place | Target::Copy { .. }, _) => None,
        (Target::Create, None) => Some(Step::Create),
        (Target::Create, _) => None,
        (Target::Primary { commits, .. }, _) if leads => {
            (node.program.commits != *commits).then(|| Step::Commits(commits.clone()))
        }
        (Target::Primary { epoch, history, commits }, Some(volume)) => match acting {
            Acting::Replica(_) => Some(Step::Promote(*epoch, *history, commits.clone())),
            _ if volume.replica => Some(Step::Follow(None)),
            _ => Some(Step::StartPrimary(*epoch, commits.clone())),
        },
        (Target::Primary { .. }, None) => None,
        (Target::Replica { .. } | Target::Hold, _) if leads => Some(Step::Close),
        (Target::Hold, Some(volume)) => {
            let may = acting != Acting::Replica(None) && (acting != Acting::Not || volume.replica);
            may.then_some(Step::Follow(None))
        }
        (Target::Hold, None) => None,
        (Target::Replica { of, .. }, None) => Some(Step::Clone(number(of))),
        (Target::Replica { of, epoch, .. }, Some(volume)) => {
            let (leader, crashed) = ((number(of), *epoch), !volume.replica && !volume.clean);
            // It has waited long enough, and ends before it is rewound.
            let apart = node.program.apart.is_some();
            match acting {
                Acting::Not if crashed => Some(Step::Rewind(leader.0)),
                Acting::Replica(Some(current)) if current == leader && apart => Some(Step::Rewind(leader.0)),
                Acting::Replica(Some(current)) if current == leader => None,
                _ => Some(Step::Follow(Some(leader))),
            }
        }
    }
}
