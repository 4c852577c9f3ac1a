//! What a spec means: every text parsed, every default filled in.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use thiserror::Error;

use super::{
    Autopilot, BackupPolicy, DatabaseSpec, DeletionPolicy, Durability, Failover, Repository, RestoreSource,
    RestoreTarget, StandbyPolicy, Storage, SwitchOver, Tier, UpgradeMethod,
};
use crate::value::{Engine, Retention, Schedule, Size, Span, Version, Written};

/// A field that means nothing, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("spec.{field}: {problem}")]
pub struct FieldError {
    /// Where it is, such as `backup.schedule`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// What a [`DatabaseSpec`] means.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The database program.
    pub engine: Engine,
    /// Its version. Where the spec names none this is what a new database gets; one that runs keeps the
    /// version that it has, which the status knows.
    pub version: Version,
    /// How many instances.
    pub replicas: u32,
    /// How much of a processor each gets.
    pub cpu: Size,
    /// How much memory each gets.
    pub memory: Size,
    /// The volume of each.
    pub storage: StorageSettings,
    /// Backups, if there are to be any.
    pub backup: Option<BackupSettings>,
    /// Where the first data comes from, if not from nowhere.
    pub restore: Option<RestoreSettings>,
    /// What a commit waits for.
    pub durability: Durability,
    /// How another instance takes over.
    pub failover: FailoverSettings,
    /// Settings of the program, by name.
    pub parameters: BTreeMap<String, String>,
    /// How a new major version comes.
    pub upgrade_method: UpgradeMethod,
    /// Who says when it takes over.
    pub switch_over: SwitchOver,
    /// How long the old one is kept.
    pub keep_old_for: Span,
    /// What Keelson may do to settings.
    pub autopilot: Autopilot,
    /// What becomes of the volumes in the end.
    pub deletion_policy: DeletionPolicy,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageSettings {
    /// Its size.
    pub size: Size,
    /// Its class, if one was named.
    pub class: Option<String>,
    /// How far it may grow by itself, if at all.
    pub autogrow_limit: Option<Size>,
}

/// Data that exists, up to a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreSettings {
    /// What is restored.
    pub from: Option<RestoreSource>,
    /// Up to where.
    pub to: Moment,
    /// On which timeline; without it, the newest.
    pub timeline: Option<u32>,
    /// Which restore of the database that is there, if it is one.
    pub in_place: Option<String>,
}

/// A moment in the past of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// The latest there is.
    Latest,
    /// A time.
    Time(Timestamp),
    /// A place in the log.
    Lsn(String),
    /// A point with a name.
    Name(String),
}

/// Backups.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupSettings {
    /// When.
    pub schedule: Schedule,
    /// For how long.
    pub retention: Retention,
    /// Where to, if anybody said so.
    pub to: Option<Repository>,
    /// The oldest that log may become before it is sent.
    pub max_data_loss: Span,
    /// How many incremental backups follow a full one.
    pub incrementals: u32,
    /// The bytes a second that may be read, if there is a limit.
    pub bandwidth: Option<Size>,
    /// Rehearsals, if there are to be any.
    pub drill: Option<DrillSettings>,
}

/// Rehearsals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrillSettings {
    /// When.
    pub schedule: Schedule,
    /// How long one may take.
    pub deadline: Span,
}

/// How another instance takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailoverSettings {
    /// How long leadership lasts without renewal.
    pub ttl: Span,
    /// How often it is looked at.
    pub interval: Span,
    /// How long before its end writes stop.
    pub margin: Span,
    /// What happens when no standby is left.
    pub standby: StandbyPolicy,
    /// How far behind a candidate may be under async.
    pub max_lag: Size,
    /// How far behind a reader may be.
    pub max_reader_lag: Size,
}

/// What a volume has when nobody says.
pub const DEFAULT_STORAGE: Size = Size::gibibytes(10);

impl DatabaseSpec {
    /// What this spec means, or all that is wrong with it.
    pub fn settings(&self) -> Result<Settings, Vec<FieldError>> {
        let mut read = Reader::default();
        let settings = self.read(&mut read);
        if read.errors.is_empty() { Ok(settings) } else { Err(read.errors) }
    }

    /// How many instances there are: what is said, else what the tier has, else one. A tier that can't
    /// be read counts as none.
    pub fn effective_replicas(&self) -> u32 {
        let tier = self.size.as_ref().and_then(|size| size.parse().ok()).unwrap_or(Tier::Small);
        self.replicas.and_then(|replicas| u32::try_from(replicas).ok()).unwrap_or_else(|| tier.replicas())
    }

    fn read(&self, read: &mut Reader) -> Settings {
        let engine = read.or("engine", &self.engine, Engine::Postgres);
        let tier = read.or("size", &self.size, Tier::Small);
        let replicas = self.effective_replicas();
        if !(1..=10).contains(&replicas) {
            read.refuse("replicas", format!("{replicas} is out of range: use 1 to 10"));
        }
        let resources = self.resources.clone().unwrap_or_default();
        let version = read.or("version", &self.version, engine.default_version());
        if !engine.plausible(&version) {
            read.refuse(
                "version",
                format!("there is no {engine} {version}: use {}", engine.version_examples()),
            );
        }
        let upgrade = self.upgrade.clone().unwrap_or_default();
        Settings {
            engine,
            version,
            replicas,
            cpu: read.or("resources.cpu", &resources.cpu, tier.cpu()),
            memory: read.or("resources.memory", &resources.memory, tier.memory()),
            storage: storage(read, self.storage.as_ref()),
            backup: self.backup.as_ref().and_then(|policy| backup(read, policy)),
            restore: self.restore.as_ref().map(|restore| RestoreSettings {
                from: restore.from.clone(),
                to: moment(read, restore.to.as_ref()),
                timeline: timeline(read, restore.to.as_ref()),
                in_place: restore.in_place.clone(),
            }),
            durability: read.or("durability", &self.durability, default_durability(replicas)),
            failover: failover(read, &self.failover.clone().unwrap_or_default(), replicas),
            parameters: self
                .parameters
                .iter()
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect(),
            upgrade_method: read.or("upgrade.method", &upgrade.method, UpgradeMethod::SideBySide),
            switch_over: read.or("upgrade.switchOver", &upgrade.switch_over, SwitchOver::Automatic),
            keep_old_for: read.or("upgrade.keepOldFor", &upgrade.keep_old_for, Span::days(1)),
            autopilot: read.or("autopilot", &self.autopilot, Autopilot::None),
            deletion_policy: read.or("deletionPolicy", &self.deletion_policy, DeletionPolicy::Retain),
        }
    }
}

/// With somebody to confirm a commit, it waits for that.
const fn default_durability(replicas: u32) -> Durability {
    if replicas >= 2 { Durability::Quorum } else { Durability::Async }
}

/// With two instances, losing either must not stop writes; with three there is another to confirm.
const fn default_standby(replicas: u32) -> StandbyPolicy {
    if replicas >= 3 { StandbyPolicy::Required } else { StandbyPolicy::Preferred }
}

fn storage(read: &mut Reader, storage: Option<&Storage>) -> StorageSettings {
    let volume = storage.map(Storage::volume);
    if let Some(None) = volume {
        read.refuse(
            "storage",
            "write a size such as 50Gi, or an object with size, class and autogrow".to_owned(),
        );
    }
    let volume = volume.flatten().unwrap_or_default();
    let size = read.or("storage.size", &volume.size, DEFAULT_STORAGE);
    let limit = volume.autogrow.as_ref().and_then(|autogrow| autogrow.limit.as_ref());
    let autogrow_limit = read.maybe("storage.autogrow.limit", limit);
    if size.is_zero() {
        read.refuse("storage.size", "nothing fits into a volume of no size: use 1Gi or more".to_owned());
    }
    if let Some(limit) = autogrow_limit.filter(|limit| *limit < size) {
        read.refuse("storage.autogrow.limit", format!("{limit} is less than the size, {size}: raise it"));
    }
    StorageSettings { size, class: volume.class.clone(), autogrow_limit }
}

fn timeline(read: &mut Reader, target: Option<&RestoreTarget>) -> Option<u32> {
    let number = target?.timeline?;
    let timeline = u32::try_from(number).ok().filter(|number| *number > 0);
    if timeline.is_none() {
        read.refuse("restore.to.timeline", format!("{number} is no timeline: use 1 or more"));
    }
    timeline
}

fn moment(read: &mut Reader, target: Option<&RestoreTarget>) -> Moment {
    let Some(RestoreTarget { time, lsn, name, timeline: _ }) = target else { return Moment::Latest };
    let said = [
        read.maybe("restore.to.time", time.as_ref()).map(Moment::Time),
        lsn.clone().map(Moment::Lsn),
        name.clone().map(Moment::Name),
    ];
    let mut said = said.into_iter().flatten();
    let moment = said.next().unwrap_or(Moment::Latest);
    if said.next().is_some() {
        read.refuse("restore.to", "name at most one moment: time, lsn or name".to_owned());
    }
    moment
}

impl BackupPolicy {
    /// Whether there are backups: as it says, else yes if it says anything at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(*self != BackupPolicy::default())
    }
}

fn backup(read: &mut Reader, policy: &BackupPolicy) -> Option<BackupSettings> {
    if !policy.is_enabled() {
        return None;
    }
    let zone = policy.time_zone.as_deref();
    let drill = policy.drill.as_ref().filter(|drill| drill.enabled.unwrap_or(true)).and_then(|drill| {
        let deadline = read.or("backup.drill.deadline", &drill.deadline, Span::seconds(6 * 60 * 60));
        let schedule = read.schedule("backup.drill.schedule", &drill.schedule, "0 4 * * 0", zone)?;
        Some(DrillSettings { schedule, deadline })
    });
    // All fields are read before the first that is missing ends this, so that none goes unsaid.
    let schedule = read.schedule("backup.schedule", &policy.schedule, "0 2 * * *", zone);
    let retention = read.or("backup.retention", &policy.retention, Retention::DEFAULT);
    let max_data_loss = read.or("backup.maxDataLoss", &policy.max_data_loss, Span::seconds(60));
    let bandwidth = read.maybe("backup.bandwidth", policy.bandwidth.as_ref());
    Some(BackupSettings {
        schedule: schedule?,
        retention,
        to: policy.to.clone(),
        max_data_loss,
        incrementals: policy.incrementals.and_then(|count| u32::try_from(count).ok()).unwrap_or(6),
        bandwidth,
        drill,
    })
}

fn failover(read: &mut Reader, failover: &Failover, replicas: u32) -> FailoverSettings {
    let settings = FailoverSettings {
        ttl: read.or("failover.ttl", &failover.ttl, Span::seconds(5)),
        interval: read.or("failover.interval", &failover.interval, Span::seconds(1)),
        margin: read.or("failover.margin", &failover.margin, Span::millis(500)),
        standby: read.or("failover.standby", &failover.standby, default_standby(replicas)),
        max_lag: read.or("failover.maxLag", &failover.max_lag, Size::mebibytes(16)),
        max_reader_lag: read.or("failover.maxReaderLag", &failover.max_reader_lag, Size::mebibytes(64)),
    };
    let least = settings.margin.duration() + 2 * settings.interval.duration();
    if settings.ttl.duration() < least {
        read.refuse(
            "failover.ttl",
            format!("{} is less than margin plus twice the interval, {least:?}", settings.ttl),
        );
    }
    settings
}

/// Collects what is wrong, so that a person hears of all of it at once.
#[derive(Default)]
struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn refuse(&mut self, field: &str, problem: String) {
        self.errors.push(FieldError { field: field.to_owned(), problem });
    }

    fn maybe<T>(&mut self, field: &str, written: Option<&Written<T>>) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        let parsed = written?.parse();
        parsed.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    fn or<T>(&mut self, field: &str, written: &Option<Written<T>>, default: T) -> T
    where
        T: FromStr,
        T::Err: Display,
    {
        self.maybe(field, written.as_ref()).unwrap_or(default)
    }

    fn schedule(
        &mut self,
        field: &str,
        written: &Option<Written<Schedule>>,
        default: &str,
        zone: Option<&str>,
    ) -> Option<Schedule> {
        let text = written.as_ref().map_or(default, |written| written.as_str());
        Schedule::in_zone(text, zone).map_err(|error| self.refuse(field, error.to_string())).ok()
    }
}

#[cfg(test)]
mod tests;
