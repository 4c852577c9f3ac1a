//! The log's way to the repository, and what is told of it. Nothing here is on the way of a failover, and
//! whatever is wrong here is said and tried again: it ends no database and no leadership.
//!
//! - [`place`] opens a repository with what is mounted;
//! - [`standing`] says what is told, and when;
//! - [`base`] makes the base backups that are ordered;
//! - [`follow`] is the task: it connects, claims the repository, archives, and begins anew when anything changes.

pub(crate) mod base;
#[cfg(test)]
pub(crate) mod inside;
pub(crate) mod place;
mod standing;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use keelson_api::instance::{ArchiveReport, BackupRule, Report, backup_reasons};
use keelson_api::v1::Role;
use keelson_api::value::Retention;
use keelson_backup::archive::{Archiver, Options, Role as Duty};
use keelson_backup::prune::prune;
use keelson_backup::restore::{Target, choose};
use keelson_backup::retention::Policy;
use keelson_backup::{Claim, SegmentSize, Writer};
use keelson_engine::postgres::Postgres;
use keelson_ha::{Data, Running};
use tokio::sync::watch;

use self::place::Trouble;
use self::standing::{Look, Shelf, Standing};
use crate::environment::Environment;
use crate::facts::Facts;
use crate::room::Room;
use crate::settings::Known;

/// How often it is looked whether Secrets have changed, and how much waits while there is no repository.
const GLANCE: Duration = Duration::from_secs(10);
/// After how long a store is tried again that may come back by itself.
const SOON: Duration = Duration::from_secs(5);
/// After how long one that waits for a person.
const LATER: Duration = Duration::from_secs(30);
/// How often it is looked what is in the repository, without a reason to.
const SHELF: Duration = Duration::from_secs(6 * 3600);
/// And after that went wrong.
const SHELF_AGAIN: Duration = Duration::from_secs(300);
/// How long the database may take to say how large its segments are.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the rest of the agent hears of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// For the operator, while this instance leads and backups go anywhere.
    pub archive: Option<ArchiveReport>,
    /// Whether something waits that is about to be sent.
    pub sends: bool,
}

/// What archiving follows from.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub here: Environment,
    pub engine: Arc<Postgres>,
    pub known: watch::Receiver<Known>,
    pub facts: watch::Receiver<Facts>,
    pub reports: watch::Receiver<Report>,
    pub room: watch::Receiver<Room>,
}

/// Archives for as long as the process lives.
pub(crate) fn follow(inputs: Inputs, told: watch::Sender<Told>) {
    let archiving = Archiving { inputs, told, standing: Standing::default(), segment: SegmentSize::DEFAULT };
    tokio::spawn(archiving.run());
}

/// Waits until what is finished of the log was sent, or can't be, though no longer than that.
pub(crate) async fn drained(mut told: watch::Receiver<Told>, within: Duration) {
    let empty = told.wait_for(|told| !told.sends);
    let _ = tokio::time::timeout(within, empty).await;
}

struct Archiving {
    inputs: Inputs,
    told: watch::Sender<Told>,
    standing: Standing,
    segment: SegmentSize,
}

impl Archiving {
    async fn run(mut self) {
        loop {
            let Some(rule) = self.rule() else {
                self.told.send_if_modified(|told| std::mem::take(told) != Told::default());
                self.standing = Standing::default();
                let mut known = self.inputs.known.clone();
                if known.wait_for(|known| known.settings.backup.is_some()).await.is_err() {
                    return;
                }
                continue;
            };
            // Its log is final only while nobody remakes the folder.
            let mut facts = self.inputs.facts.clone();
            if facts.wait_for(|facts| facts.status.is_some()).await.is_err() {
                return;
            }
            match self.keep(&rule).await {
                Ok(()) => tracing::info!("archiving begins anew"),
                Err(trouble) => {
                    tracing::warn!(
                        reason = trouble.reason,
                        problem = trouble.problem,
                        "the log is not archived"
                    );
                    self.rest(&rule, trouble).await;
                }
            }
        }
    }

    fn rule(&self) -> Option<BackupRule> {
        rule_of(&self.inputs.known.borrow())
    }

    fn duty(&self) -> Duty {
        duty(&self.inputs.reports.borrow())
    }

    /// Archives until anything changes that it follows from.
    async fn keep(&mut self, rule: &BackupRule) -> Result<(), Trouble> {
        let writer = claim(&self.inputs, rule).await?;
        self.segment = writer.claim().segment_size;
        tracing::info!(to = writer.repository().location(), "the log is archived");
        let (duties, mut reports) = (watch::Sender::new(self.duty()), self.inputs.reports.clone());
        let archiver = Archiver::new(writer.clone(), self.inputs.engine.log_folder(), Options::default());
        let (state, shelf) = (archiver.state(), watch::Sender::new(None));
        let pass_on = async {
            while reports.changed().await.is_ok() {
                let now = duty(&reports.borrow_and_update());
                duties.send_if_modified(|duty| std::mem::replace(duty, now) != now);
            }
        };
        let (changed, roles) = (self.change(rule), duties.subscribe());
        let tend = tend(&writer, self.inputs.known.clone(), duties.subscribe(), &shelf);
        let shown = shelf.subscribe();
        let telling = async {
            let (mut state, mut shown) = (state, shown);
            loop {
                let look = Look::of(&state.borrow_and_update(), shown.borrow_and_update().clone());
                self.tell(&look, true);
                tokio::select! {
                    changed = state.changed() => if changed.is_err() { return },
                    changed = shown.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(GLANCE) => {}
                }
            }
        };
        tokio::select! {
            ended = archiver.run(roles) => ended.map_err(|error| Trouble::from(&error)),
            () = changed => Ok(()),
            () = pass_on => Ok(()),
            () = tend => Ok(()),
            () = telling => Ok(()),
        }
    }

    /// Waits until what archiving follows from is another.
    fn change(&self, rule: &BackupRule) -> impl Future<Output = ()> + use<> {
        let (mut known, mut facts) = (self.inputs.known.clone(), self.inputs.facts.clone());
        let (rule, mark) = (rule.clone(), place::mark(&rule.to));
        async move {
            let stopped = |facts: &Facts| facts.instance.running == Running::Stopped;
            let rotated = async {
                while place::mark(&rule.to) == mark {
                    tokio::time::sleep(GLANCE).await;
                }
            };
            tokio::select! {
                _ = known.wait_for(|known| rule_of(known).as_ref() != Some(&rule)) => {}
                _ = facts.wait_for(stopped) => {}
                () = rotated => {}
            }
        }
    }

    /// Says what is wrong, and waits until it may be tried again.
    async fn rest(&mut self, rule: &BackupRule, trouble: Trouble) {
        let until = Instant::now() + if trouble.passes { SOON } else { LATER };
        let mut changed = std::pin::pin!(self.change(rule));
        loop {
            let waiting = waiting(&self.inputs.engine.log_folder()).await;
            let look = Look { waiting, trouble: Some(trouble.clone()), ..Look::default() };
            self.tell(&look, false);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = &mut changed => return,
                () = tokio::time::sleep(left.min(GLANCE)) => {}
            }
        }
    }

    fn tell(&mut self, look: &Look, connected: bool) {
        let room = *self.inputs.room.borrow();
        let report = self.standing.tell(look, self.segment.bytes(), room, Instant::now());
        let leads = self.duty() == Duty::Leader;
        let sends = leads && connected && look.waiting > 0 && look.trouble.is_none();
        let told = Told { archive: leads.then_some(report), sends };
        self.told.send_if_modified(|current| {
            let changed = *current != told;
            *current = told;
            changed
        });
    }
}

/// Where and how to archive. An order is nothing to begin anew for, nor what is said of drills.
fn rule_of(known: &Known) -> Option<BackupRule> {
    known.settings.backup.clone().map(|rule| BackupRule { order: None, marks: false, drill: None, ..rule })
}

/// Makes sure that the repository is this database's own, so that it may be written to.
async fn claim(inputs: &Inputs, rule: &BackupRule) -> Result<Writer, Trouble> {
    let size = inputs.engine.segment_size(PATIENCE).await;
    let size = size.map_err(|error| failed(error.to_string()))?;
    let segment_size =
        SegmentSize::new(size).ok_or_else(|| failed(format!("segments of {size} bytes can't be")))?;
    let system = match &inputs.facts.borrow().instance.data {
        Data::Present { system, .. } => system.parse().ok(),
        Data::None => None,
    };
    let system_identifier =
        system.ok_or_else(|| failed("it is not known yet which database this is".into()))?;
    let owner = format!("{}/{}", inputs.here.namespace, inputs.here.database);
    let claim = Claim { system_identifier, segment_size, owner };
    let repository = place::open(&rule.to)?;
    let trouble = |error| Trouble::from(&error);
    let mark = repository.mark().await.map_err(trouble)?;
    // A copy has the system identifier of what it was copied from.
    if let Some(owner) = mark.map(|mark| mark.owner).filter(|owner| *owner != claim.owner) {
        let problem = format!(
            "the repository at {} belongs to the database {owner}. Nothing was written: give this one a path of its own \
             in spec.backup.to",
            repository.location()
        );
        return Err(Trouble { reason: backup_reasons::FOREIGN, problem, passes: false });
    }
    repository.claim(&claim).await.map_err(trouble)
}

pub(crate) fn failed(problem: String) -> Trouble {
    Trouble { reason: backup_reasons::FAILED, problem, passes: true }
}

fn duty(report: &Report) -> Duty {
    if report.role == Role::Primary { Duty::Leader } else { Duty::Follower }
}

/// Looks after what is in the repository, while this instance leads: once a while, and when a backup has ended.
async fn tend(
    writer: &Writer,
    mut known: watch::Receiver<Known>,
    mut duties: watch::Receiver<Duty>,
    shelf: &watch::Sender<Option<Shelf>>,
) {
    let order = |known: &Known| known.settings.backup.as_ref().and_then(|rule| rule.order.clone());
    loop {
        if duties.wait_for(|duty| *duty == Duty::Leader).await.is_err() {
            return;
        }
        let rule = known.borrow_and_update().settings.backup.clone();
        let before = rule.as_ref().and_then(|rule| rule.order.clone());
        // What is being made has no note yet that would protect it.
        let policy =
            rule.filter(|rule| rule.order.is_none()).and_then(|rule| policy(rule.retention.as_deref()?));
        let tended = async {
            if let Some(policy) = policy {
                let pruned = prune(writer, policy, Timestamp::now(), &[]).await?;
                if !pruned.backups.is_empty() || pruned.log > 0 {
                    tracing::info!(?pruned, "what is older than the retention was removed");
                }
            }
            look_at(writer).await
        };
        let pause = match tended.await {
            Ok(found) => {
                shelf.send_replace(Some(found));
                SHELF
            }
            Err(error) => {
                tracing::warn!(%error, "the repository could not be looked after");
                SHELF_AGAIN
            }
        };
        let ended = known.wait_for(|known| order(known) != before);
        let _ = tokio::time::timeout(pause, ended).await;
    }
}

/// What is kept. What can't be read removes nothing.
fn policy(retention: &str) -> Option<Policy> {
    match retention.parse().ok()? {
        Retention::For(span) => SignedDuration::try_from(span.duration()).ok().map(Policy::For),
        Retention::Count(count) => Some(Policy::Count(count)),
    }
}

async fn look_at(writer: &Writer) -> keelson_backup::Result<Shelf> {
    let (size, looked) = (writer.claim().segment_size, Timestamp::now());
    let catalogue = writer.repository().catalogue(size).await?;
    let window = choose(&catalogue, size, &Target::Immediate, None).ok().map(|choice| choice.window);
    let finished = catalogue.backups.iter().map(|backup| backup.finished).max();
    let backups = catalogue.backups.into_iter().map(|backup| backup.name).collect();
    Ok(Shelf { first: window.map(|window| window.first), finished, backups, looked: Some(looked) })
}

/// How many files of the log wait, by PostgreSQL's own notes.
pub(crate) async fn waiting(log: &Path) -> usize {
    let folder = log.join("archive_status");
    let counted = tokio::task::spawn_blocking(move || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|what| what == "ready")).count()
    });
    counted.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_as_the_spec_says_and_nonsense_removes_nothing() {
        assert_eq!(policy("30d"), Some(Policy::For(SignedDuration::from_hours(30 * 24))));
        assert_eq!(policy("10 backups"), Some(Policy::Count(10)));
        assert_eq!(policy("a while"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handover_waits_for_what_is_being_sent_and_not_for_ever() {
        let (sender, told) = watch::channel(Told::default());
        let start = tokio::time::Instant::now();
        drained(told.clone(), Duration::from_secs(1)).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing waits");
        sender.send_replace(Told { sends: true, ..Told::default() });
        drained(told.clone(), Duration::from_secs(1)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1), "a store that is slow holds nobody up for long");
    }

    #[tokio::test]
    async fn what_waits_is_counted_by_the_notes_of_postgresql() {
        let log = std::env::temp_dir().join(format!("keelson-waiting-{}", std::process::id()));
        assert_eq!(waiting(&log).await, 0);
        std::fs::create_dir_all(log.join("archive_status")).unwrap();
        for name in
            ["000000010000000000000001.done", "000000010000000000000002.ready", "00000002.history.ready"]
        {
            std::fs::write(log.join("archive_status").join(name), "").unwrap();
        }
        assert_eq!(waiting(&log).await, 2);
        std::fs::remove_dir_all(log).unwrap();
    }
}
