//! The steps of a driver, each as long as it takes. What a step that was broken off leaves behind is the same as
//! on a real volume: a copy that is not whole is no database, a rewind that had begun makes the data unusable.
//!
//! Left out: steps that fail for reasons other than a disk, a network or the other instance.

use std::collections::BTreeSet;

use keelson_agent::facts;
use keelson_agent::silence::Silence;
use keelson_agent::steps::{Acting, Remedy, Step, WayBack, way_back};
use keelson_engine::Data;
use keelson_ha::{Instance, Quorum};

use super::disk::{Content, Database};
use super::driver::{Busy, Doing, UNBEGUN};
use super::postgres::Program;
use super::queue::{Event, Micros, PodId, Turn};
use super::{MILLI, SECOND, World};
use crate::wal::{BEGIN, Place};

/// As in `keelson_agent::driver`.
const PROMOTE: Micros = 30 * SECOND;
const REWINDS: u32 = 3;
/// When even a program that was killed must be gone.
const FINISH: Micros = 36 * SECOND;

/// What came of a turn of a step.
enum Came {
    /// It is done.
    Done,
    /// It has failed, and is tried again.
    Failed,
    /// It goes on after so long.
    After(Micros),
}

impl World {
    /// A turn of what the driver does.
    pub(super) fn work(&mut self, pod: PodId) {
        let Some(busy) = self.driver(pod).and_then(|driver| driver.busy.take()) else { return };
        let Busy { serial, since, leads, doing } = busy;
        let (step, begun, part) = match doing {
            Doing::Look { status, alive, again } => {
                self.looked(pod, status.as_deref(), alive, again);
                return;
            }
            Doing::Step { step, begun, part } => (step, begun, part),
        };
        let waits = self.is_hung(pod) && needs_disk(&step);
        let came = match begun {
            _ if waits => Came::After(self.pods[pod].volume.hung - self.now + MILLI),
            false => {
                self.tell(pod, |_| format!("begins: {step:?}"));
                self.begin_step(pod, &step)
            }
            true => self.go_on(pod, &step, since, part),
        };
        match came {
            Came::After(after) => {
                let begun = begun || !waits;
                let part = if waits { part } else { part.saturating_add(1) };
                let doing = Doing::Step { step, begun, part };
                if let Some(driver) = self.driver(pod) {
                    driver.busy = Some(Busy { serial, since, leads, doing });
                    self.done_after(pod, after);
                }
            }
            Came::Done | Came::Failed => {
                let again = matches!(came, Came::Done);
                let data = self.pods[pod].volume.data(&self.wal);
                let now = self.now;
                if let Some(driver) = self.driver(pod) {
                    driver.failing = if again { None } else { driver.failing.or(Some(now)) };
                    if driver.acting == Acting::Not {
                        driver.data = data;
                    }
                }
                if self.driver(pod).is_some_and(|driver| driver.busy.is_none()) {
                    self.begin_look(pod, again);
                }
            }
        }
    }

    fn program_turn(&mut self, pod: PodId, after: Micros, turn: Turn) {
        if let Some(start) = self.pods[pod].program.as_ref().map(|program| program.start) {
            self.put(after, Event::Program { pod, start, turn });
        }
    }

    fn set_led(&mut self, pod: PodId, led: Option<u64>) {
        self.pods[pod].volume.led = led;
        if let Some(driver) = self.driver(pod) {
            driver.led = led;
        }
    }

    fn act(&mut self, pod: PodId, acting: Acting) {
        let now = self.clock(pod);
        if let Some(driver) = self.driver(pod) {
            if matches!(acting, Acting::Replica(_)) {
                driver.silence = Silence::broken(now);
            }
            driver.acting = acting;
        }
    }

    fn keep_fence(&mut self, pod: PodId, commits: &Quorum) {
        if let Some(program) = self.pods[pod].program.as_mut().filter(|_| commits.is_fenced()) {
            program.fence = true;
        }
    }

    fn begin_step(&mut self, pod: PodId, step: &Step) -> Came {
        let start = self.serial();
        Came::After(match step {
            // Nobody asks for a restore here.
            Step::Nothing | Step::Trouble(_) | Step::Restore(_) | Step::Place => return Came::Done,
            Step::Initialise => self.chance.of(300 * MILLI..3 * SECOND),
            Step::StartPrimary(epoch, commits) => {
                self.set_led(pod, Some(*epoch));
                let mut program = Program::new(start, true, *epoch, commits.clone());
                program.parameter = self.parameter(pod);
                self.pods[pod].program = Some(program);
                self.act(pod, Acting::Primary(commits.clone()));
                self.keep_fence(pod, commits);
                let time = self.chance.magnitude(50 * MILLI..4 * SECOND);
                self.program_turn(pod, time, Turn::Ready);
                20 * MILLI
            }
            Step::StartReplica(of) => {
                if of.is_some() {
                    self.set_led(pod, None);
                }
                let mut program = Program::new(start, false, 0, Quorum::fence());
                program.upstream = of.clone();
                program.parameter = self.parameter(pod);
                self.pods[pod].program = Some(program);
                if let Some(database) = self.pods[pod].volume.database_mut() {
                    database.replica = true;
                }
                let time = self.chance.magnitude(50 * MILLI..3 * SECOND);
                self.program_turn(pod, time, Turn::Ready);
                20 * MILLI
            }
            Step::Promote { epoch, history, commits } => {
                self.set_led(pod, Some(*epoch));
                self.act(pod, Acting::Primary(commits.clone()));
                self.keep_fence(pod, commits);
                if let Some(program) = &mut self.pods[pod].program {
                    (program.commits, program.epoch) = (commits.clone(), *epoch);
                }
                self.program_turn(pod, 10 * MILLI, Turn::Follow(None));
                let time = self.chance.magnitude(20 * MILLI..SECOND);
                let timeline = u32::try_from(*history).unwrap_or(u32::MAX);
                self.program_turn(pod, time, Turn::Promoted { timeline });
                time + 5 * MILLI
            }
            Step::Commits(commits) => {
                self.keep_fence(pod, commits);
                self.act(pod, Acting::Primary(Quorum { names: BTreeSet::new(), count: usize::MAX }));
                let time = self.chance.of(5 * MILLI..60 * MILLI);
                self.program_turn(pod, time, Turn::Commits(commits.clone()));
                time + 5 * MILLI
            }
            Step::Follow(of) => {
                if of.is_some() {
                    self.set_led(pod, None);
                }
                let time = self.chance.of(10 * MILLI..90 * MILLI);
                self.program_turn(pod, time, Turn::Follow(of.clone()));
                if of.is_none() { time + 60 * MILLI } else { time }
            }
            Step::Rewind(_) => self.chance.of(20 * MILLI..100 * MILLI),
            Step::Clone(of) => {
                if self.source(pod, of).is_none() {
                    return Came::Failed;
                }
                self.chance.magnitude(500 * MILLI..8 * SECOND)
            }
            Step::Finish => {
                let primary = self.pods[pod].program.as_ref().is_some_and(|program| program.primary);
                let time = if primary { self.chance.of(20 * MILLI..800 * MILLI) } else { 5 * MILLI };
                self.program_turn(pod, time, Turn::Ending);
                time + 5 * MILLI
            }
            Step::Close => {
                let time = self.chance.of(5 * MILLI..500 * MILLI);
                self.program_turn(pod, time, Turn::Killed);
                time + 5 * MILLI
            }
        })
    }

    fn go_on(&mut self, pod: PodId, step: &Step, since: Micros, part: u8) -> Came {
        let runs = self.pods[pod].program.is_some();
        match step {
            Step::Nothing | Step::Trouble(_) | Step::Restore(_) | Step::Place | Step::StartPrimary(..) => {
                Came::Done
            }
            Step::Initialise => {
                self.initialise(pod);
                Came::Done
            }
            Step::StartReplica(of) => {
                self.act(pod, Acting::Replica(of.clone()));
                Came::Done
            }
            Step::Promote { .. } if !runs => Came::Failed,
            Step::Promote { .. } => {
                match self.pods[pod].program.as_ref().is_some_and(|program| program.primary) {
                    true => Came::Done,
                    false if self.now > since + PROMOTE => Came::Failed,
                    false => Came::After(20 * MILLI),
                }
            }
            Step::Commits(_) | Step::Follow(_) if !runs => Came::Failed,
            // It is done when the server has taken it.
            Step::Commits(commits) => match self.pods[pod].program.as_ref().map(|program| &program.commits) {
                Some(taken) if taken != commits => Came::After(5 * MILLI),
                _ => {
                    self.act(pod, Acting::Primary(commits.clone()));
                    Came::Done
                }
            },
            Step::Follow(of) => match self.pods[pod].program.as_ref().map(|program| &program.upstream) {
                Some(taken) if taken != of => Came::After(5 * MILLI),
                _ => {
                    self.act(pod, Acting::Replica(of.clone()));
                    Came::Done
                }
            },
            Step::Rewind(of) => self.rewind(pod, of, part),
            Step::Clone(of) => self.copy(pod, of),
            Step::Finish | Step::Close if runs && self.now < since + FINISH => Came::After(30 * MILLI),
            Step::Finish => {
                self.end_program(pod);
                self.act(pod, Acting::Not);
                Came::Done
            }
            Step::Close => {
                self.closed(pod);
                Came::Done
            }
        }
    }

    /// Known at once; what is on a disk that hangs may take a while to be read.
    fn closed(&mut self, pod: PodId) {
        self.end_program(pod);
        self.act(pod, Acting::Not);
        let Some(driver) = self.driver(pod) else { return };
        let stopped = facts::stopped(&Data::Absent, None);
        driver.facts = Instance { data: driver.facts.data.clone(), ..stopped };
        driver.serves = false;
        let (order, seen) = (driver.order, driver.facts.clone());
        self.learn(pod, order, seen);
    }

    fn initialise(&mut self, pod: PodId) {
        self.check_initialising(pod);
        let volume = &mut self.pods[pod].volume;
        let branch = self.wal.fork(None, 1, volume.id);
        volume.content = Content::Database(Database {
            system: 7000 + volume.id as u64,
            written: Place { branch, offset: BEGIN },
            flushed: BEGIN,
            replica: false,
            clean: true,
            newest: 1,
            kept: BEGIN,
        });
    }

    /// The instance of that name, if it answers.
    pub(super) fn source(&mut self, pod: PodId, of: &str) -> Option<PodId> {
        let of = self.current[self.names.iter().position(|name| name == of)?];
        let there = of != pod && self.reaches(pod, of) && self.reaches(of, pod);
        let runs = self.pods[of].program.as_ref().is_some_and(|program| program.ready && !program.ending);
        (there && runs && self.pods[of].paused.is_none() && !self.is_hung(of)).then_some(of)
    }

    fn copy(&mut self, pod: PodId, of: &str) -> Came {
        let found = self.source(pod, of).and_then(|of| self.pods[of].volume.database().cloned());
        let Some(source) = found.filter(|_| self.now >= self.pods[pod].volume.full) else {
            return Came::Failed;
        };
        let written = source.end();
        self.pods[pod].volume.content =
            Content::Database(Database { written, replica: false, clean: false, ..source });
        (self.pods[pod].volume.led, self.pods[pod].volume.damaged) = (None, false);
        if let Some(driver) = self.driver(pod) {
            (driver.remedy, driver.led) = (Remedy::None, None);
        }
        Came::Done
    }

    fn rewind(&mut self, pod: PodId, of: &str, part: u8) -> Came {
        let Some(source) = self.source(pod, of).and_then(|of| self.pods[of].volume.database().cloned())
        else {
            // Broken off when it had begun to change the data, or not.
            if part > 1 && self.chance.per_mille(500) {
                self.pods[pod].volume.content = Content::Unusable;
            }
            let rewinds = u32::from(part > 1);
            if let Some(driver) = self.driver(pod) {
                driver.remedy = if driver.rewinds < REWINDS { driver.remedy } else { Remedy::Clone };
                driver.rewinds += rewinds;
            }
            return Came::Failed;
        };
        let theirs = self.wal.timeline(source.end());
        if part <= 1 {
            let now = self.now;
            let Some(driver) = self.driver(pod) else { return Came::Failed };
            let waited = driver.failing.is_some_and(|since| now > since + UNBEGUN);
            return match way_back(&driver.data, theirs, driver.remedy, waited, driver.restarted) {
                WayBack::Rewind => Came::After(self.chance.magnitude(200 * MILLI..4 * SECOND)),
                WayBack::Wait => Came::Failed,
                WayBack::Restart => {
                    (driver.remedy, driver.restarted) = (Remedy::None, true);
                    Came::Done
                }
                WayBack::Clone => {
                    driver.remedy = Remedy::Clone;
                    Came::Done
                }
            };
        }
        self.take_back(pod, &source);
        self.set_led(pod, None);
        if let Some(driver) = self.driver(pod) {
            (driver.remedy, driver.rewinds) = (Remedy::None, 0);
        }
        Came::Done
    }

    /// What `pg_rewind` does: recovers from a crash, and goes back to where the two logs parted, by the numbers
    /// of their timelines.
    fn take_back(&mut self, pod: PodId, source: &Database) {
        let owner = self.pods[pod].volume.id;
        let Content::Database(mut database) = self.pods[pod].volume.content.clone() else { return };
        if !database.clean {
            let branch = &self.wal.branches[database.written.branch];
            if branch.owner != owner {
                database.written.branch = self.wal.fork(Some(database.written), branch.timeline, owner);
            }
            database.written.offset += 120;
            database.flushed = database.written.offset;
        }
        let (mine, theirs) = (database.written, source.end());
        (database.replica, database.clean) = (true, true);
        if self.wal.timeline(mine) != self.wal.timeline(theirs) {
            let shared = self.wal.shared_by_numbers(mine, theirs);
            let parted = Place { branch: theirs.branch, offset: shared };
            if !self.wal.contains(mine, parted) {
                self.violate(
                    pod,
                    "Diverged",
                    "it goes back to where it believes to have parted, and has not",
                );
            }
            (database.written, database.flushed) = (theirs, theirs.offset);
            (database.newest, database.kept) = (database.newest.max(source.newest), source.kept);
        }
        self.pods[pod].volume.content = Content::Database(database);
    }

    /// What the driver does is broken off.
    pub(super) fn break_off(&mut self, pod: PodId) {
        let Some(busy) = self.driver(pod).and_then(|driver| driver.busy.take()) else { return };
        let rewinds = matches!(busy.doing, Doing::Step { step: Step::Rewind(_), part: 2.., .. });
        if rewinds && self.chance.per_mille(500) {
            self.pods[pod].volume.content = Content::Unusable;
        }
    }
}

fn needs_disk(step: &Step) -> bool {
    !matches!(step, Step::Close | Step::Follow(None) | Step::Commits(_) | Step::Finish | Step::Nothing)
}
