//! From what is known to what is to be done. Nothing here asks anybody anything, and the time is handed in.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keelson_api::instance::{
    AppAccess, BackupRule, CertificateNote, DurabilityRule, FailoverTimes, InstanceSettings, Names, Store,
    Use, fingerprint, reasons,
};
use keelson_api::v1::{DatabaseStatus, DeletionPolicy, Engine, Role, Settings};
use keelson_api::value::{Size, Version};
use keelson_ha::planted::{self, Bug};
use keelson_kit::conditions::Finding;

use super::backups::{self, BackupStep};
use super::children::Wanted;
use super::drills::{self, DrillStep};
use super::facts::{Claim, Instance, Observed};
use super::in_place;
use super::restore;
use super::status::{self, News};
use super::trouble::{self, Trouble};
use super::turns::{self, Turn};

/// How long a certificate is valid.
pub const CERTIFICATE_LASTS: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long before its end it is replaced.
pub const CERTIFICATE_RENEWED: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Secrets that somebody misses are written again at most this often: it takes a kubelet a minute to bring
/// them to a pod.
pub const SECRETS_PACE: Duration = Duration::from_secs(120);
/// A pod may take this long until its volumes are there; then it may be a Secret that is missing.
pub const MOUNTS_TAKE: Duration = Duration::from_secs(20);
/// A handover is asked for again after this long.
pub const HANDOVER_PACE: Duration = Duration::from_secs(30);

/// What the cluster would not have is tried again after this long.
pub const REFUSED_PACE: Duration = Duration::from_secs(300);

/// A volume that was refused to grow is tried again after this long.
pub const GROWTH_PACE: Duration = Duration::from_secs(300);

/// What a database is to be restored from is looked for again after this long.
const SOURCE_PACE: Duration = Duration::from_secs(30);
/// That there is nothing yet to restore from.
const SOURCE_MISSING: &str = "RestoreSourceMissing";

/// What is to be done, and what is to be said.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the children follow from; without it, they are left as they are.
    pub wanted: Option<Wanted>,
    /// Whether the Secrets are to be written first, and until when the certificate is to be valid.
    pub secrets: Option<Timestamp>,
    /// Whether that is because somebody misses them, which is not done all the time.
    pub repair: bool,
    /// Whether the StatefulSet is to be applied with the others.
    pub apply_set: bool,
    /// What else is to be done, in this order.
    pub steps: Vec<Step>,
    /// The status, but for the conditions.
    pub status: DatabaseStatus,
    /// What holds.
    pub findings: Vec<Finding>,
    /// What is worth an event.
    pub news: Vec<News>,
    /// What is to be done to Backups, after all else.
    pub backups: Vec<BackupStep>,
    /// What is to be done about a drill, after that.
    pub drills: Vec<DrillStep>,
    /// Whether a drill has ended, and how.
    pub drilled: Option<bool>,
    /// When to look again without a change.
    pub again: Option<Duration>,
}

impl Plan {
    /// Whether it does what must not be done for what is long past: to take something away, to move it, to
    /// restart it; to tell agents something else; to begin anew what has begun. What watches have told is then
    /// not enough to go by.
    pub fn is_weighty(&self, seen: &Observed) -> bool {
        let drills = self.drills.iter().any(|step| !matches!(step, DrillStep::Verify { .. }));
        let Some(wanted) = &self.wanted else { return !self.steps.is_empty() };
        let told = seen.config.as_ref().is_some_and(|config| *config != wanted.instance);
        let fewer = seen.set.as_ref().is_some_and(|set| self.apply_set && wanted.pods < set.pods);
        let lacks = seen.config.is_none() || seen.set.is_none();
        // Of a new one there is nothing yet that could be forgotten.
        let begun = seen.status.phase.is_some();
        !self.steps.is_empty() || drills || told || fewer || begun && lacks
    }
}

/// Something that is done to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// This volume is this Database's from now on.
    Adopt {
        /// The claim.
        claim: String,
        /// The uid of the Database that has left it.
        from: String,
    },
    /// Let a volume grow.
    Grow {
        /// The claim.
        claim: String,
        /// To this size.
        to: String,
    },
    /// Remove the volume of an instance that is no more.
    RemoveClaim {
        /// The claim.
        claim: String,
        /// Only this one.
        uid: String,
        /// Only as it was seen: one that had no volume then may have one now, with data on it.
        resource_version: String,
    },
    /// Remove the StatefulSet and leave its pods, so that it can be made again with what can't be changed.
    Remake {
        /// Only this one.
        uid: String,
    },
    /// Ask the leader to hand over.
    HandOver {
        /// The leader that is asked.
        from: String,
        /// The pod that is to lead.
        to: String,
    },
    /// Tell the agent of a pod to restart its database.
    Restart {
        /// The pod.
        pod: String,
        /// What tells this restart from others.
        token: String,
    },
    /// Delete a pod, to have it made anew.
    Replace {
        /// The pod.
        pod: String,
        /// Only this one.
        uid: String,
        /// Only as it was seen.
        resource_version: String,
    },
}

impl Step {
    /// The pod that ends or restarts with it.
    pub fn disturbs(&self) -> Option<&str> {
        match self {
            Step::Restart { pod, .. } | Step::Replace { pod, .. } => Some(pod),
            _ => None,
        }
    }
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldUp {
    /// In a word.
    pub reason: &'static str,
    /// In a sentence that says what to do.
    pub message: String,
    /// Whether it waits for a word from a person and nothing is wrong.
    pub waits: bool,
}

/// What is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What kind of thing.
    pub kind: Kind,
    /// In a sentence.
    pub message: String,
}

/// What kind of thing is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Instances come or go.
    Scaling,
    /// Instances are replaced or restarted.
    RollingOut,
    /// Volumes grow.
    Growing,
}

/// What was decided, before it is put into words.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub wanted: Option<Wanted>,
    pub secrets: Option<Timestamp>,
    pub repair: bool,
    pub apply_set: bool,
    pub steps: Vec<Step>,
    pub held_up: Option<HeldUp>,
    pub progress: Option<Progress>,
    pub troubles: Vec<Trouble>,
    /// Where it is known what is asked for.
    pub backups: Option<backups::Decided>,
    /// The same.
    pub in_place: Option<in_place::Decided>,
    pub drills: Option<drills::Decided>,
    pub again: Option<Duration>,
}

/// What to do about a database at this moment.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let decided = decide(seen, now).unwrap_or_else(|held_up| Decided {
        troubles: trouble::found(seen, now).troubles,
        // Nobody tells when something comes that is not this database's own.
        again: (held_up.reason == SOURCE_MISSING).then_some(SOURCE_PACE),
        held_up: Some(held_up),
        ..Decided::default()
    });
    let said = status::say(seen, &decided);
    let Decided { wanted, secrets, repair, apply_set, steps, backups, drills, again, .. } = decided;
    let drills = drills.unwrap_or_default();
    Plan {
        wanted,
        secrets,
        repair,
        apply_set,
        steps,
        status: said.status,
        findings: said.findings,
        news: said.news,
        backups: backups.map(|backups| backups.steps).unwrap_or_default(),
        drills: drills.steps,
        drilled: drills.drilled,
        again,
    }
}

fn decide(seen: &Observed, now: Timestamp) -> Result<Decided, HeldUp> {
    let settings = settings(seen)?;
    let version = version(seen, &settings)?;
    let adopted = volumes_of_another(seen, settings.replicas)?;
    pods_of_another(seen)?;

    let until = certificate_until(seen, now);
    let scaling = scale(seen, settings.replicas);
    let template = seen.set.as_ref().and_then(|set| set.storage);
    let storage = template.unwrap_or_default().max(settings.storage.size);
    let growth = Growth::of(seen, storage);
    // The template follows when the volumes have grown.
    let new_volumes = if growth.small.is_empty() { storage } else { template.unwrap_or(storage) };
    let backups = backups::decide(seen, settings.backup.as_ref(), now);
    let in_place = in_place::decide(seen, &settings);
    let drills = drills::decide(seen, &settings, now);
    let mut wanted = want(seen, &settings, version, &scaling, new_volumes, until);
    wanted.instance.in_place.clone_from(&in_place.rule);
    wanted.instance.settled_restores.clone_from(&in_place.settled);
    if let Some(rule) = &mut wanted.instance.backup {
        rule.order.clone_from(&backups.order);
    }
    let found = trouble::found(seen, now);
    let mut troubles = found.troubles;
    if storage > settings.storage.size {
        troubles.push(trouble::shrink(settings.storage.size, storage));
    }

    let mut steps: Vec<Step> = adopted;
    let remake =
        seen.set.as_ref().filter(|set| !set.deleting && set.storage.is_some_and(|size| size < new_volumes));
    troubles.extend(growth.refused.as_deref().map(trouble::refused));
    troubles.extend(seen.lately.refused.as_deref().map(trouble::child_refused));
    let growing = !growth.small.is_empty() && growth.pause.is_none();
    if growing {
        steps.extend(growth.small);
    }
    steps.extend(remake.map(|set| Step::Remake { uid: set.uid.clone() }));
    steps.extend(removed_volumes(seen, &settings));
    let turn = turns::next(seen, &wanted);
    let (rollout, turn_steps) = match turn {
        Turn::Nothing => (None, None),
        Turn::Wait(message) => (Some(message), None),
        Turn::Take(step, message) => (Some(message), Some(step)),
        Turn::Stuck(trouble) => {
            troubles.push(trouble);
            (None, None)
        }
    };
    steps.extend(scaling.step.clone().or(turn_steps));
    if in_place.under_way {
        // Whoever restores would have to begin anew.
        steps.retain(|step| {
            step.disturbs().is_none() && !matches!(step, Step::HandOver { .. } | Step::Remake { .. })
        });
    }
    let (steps, pause) = paced(seen, steps);

    let progress = scaling
        .message
        .map(|message| Progress { kind: Kind::Scaling, message })
        .or(rollout.map(|message| Progress { kind: Kind::RollingOut, message }))
        .or(growing.then(|| Progress { kind: Kind::Growing, message: format!("volumes grow to {storage}") }));
    let renewal = until.duration_since(now) - CERTIFICATE_RENEWED;
    let other_secrets = seen.config.as_ref().is_none_or(|config| config.secrets != wanted.instance.secrets);
    let missed = secrets_missed(seen, now);
    let repair = !other_secrets && missed.is_some_and(|wait| wait.is_zero());
    let missed = missed.filter(|wait| !wait.is_zero());
    let again = [
        found.again,
        pause,
        growth.pause,
        missed,
        backups.again,
        drills.again,
        Duration::try_from(renewal).ok(),
    ];
    let again = again.into_iter().flatten().min();
    Ok(Decided {
        // The ConfigMap is written after the Secrets and says which they were.
        secrets: (other_secrets || repair).then_some(until),
        repair,
        apply_set: remake.is_none() && seen.set.as_ref().is_none_or(|set| !set.deleting),
        wanted: Some(wanted),
        steps,
        held_up: None,
        progress,
        troubles,
        backups: Some(backups),
        in_place: Some(in_place),
        drills: Some(drills),
        again,
    })
}

/// What the spec means, as far as it can be done.
fn settings(seen: &Observed) -> Result<Settings, HeldUp> {
    let held_up = |reason, message| Err(HeldUp { reason, message, waits: false });
    let settings = match seen.spec.settings() {
        Ok(settings) => settings,
        Err(errors) => {
            let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return held_up(
                "InvalidSpec",
                format!("{}. Correct it; nothing is done until then", said.join("; ")),
            );
        }
    };
    if settings.engine != Engine::Postgres {
        let message =
            format!("{} is not supported yet: use engine postgres in a new Database", settings.engine);
        return held_up("EngineNotSupported", message);
    }
    if let Err(message) = restore::rule(seen, &settings) {
        return Err(HeldUp { reason: SOURCE_MISSING, message, waits: true });
    }
    Ok(settings)
}

/// The version to run. Where the spec names none, that is what has run so far. Where nothing has, there are
/// no files yet, and any may be asked for.
fn version(seen: &Observed, settings: &Settings) -> Result<Version, HeldUp> {
    let so_far = version_so_far(seen, settings.engine);
    let running = so_far.filter(|_| seen.exists() || which_database(seen).is_some());
    let asked = seen.spec.version.as_ref().map(|_| settings.version);
    let (Some(running), Some(asked)) = (running, asked) else {
        return Ok(asked.or(so_far).unwrap_or(settings.version));
    };
    let engine = settings.engine;
    if engine.series(&running) == engine.series(&asked) {
        return Ok(asked);
    }
    // The files of one are of no use to the other.
    Err(HeldUp {
        reason: "MajorUpgradeNotSupported",
        message: format!(
            "{engine} {running} keeps running: the way to {asked} is not supported yet. Set spec.version back to \
             {running}; nothing else is done until then"
        ),
        waits: false,
    })
}

/// As agents were told; where that is lost, as the status has it, without the number that nobody asked for.
fn version_so_far(seen: &Observed, engine: Engine) -> Option<Version> {
    let told = seen.config.as_ref().map(|config| config.version);
    told.or_else(|| {
        let ran: Version = seen.status.version.as_ref()?.parse().ok()?;
        let minor = ran.minor.filter(|_| engine == Engine::Mysql);
        Some(Version { minor, patch: None, ..ran })
    })
}

/// Volumes that are not known to be this Database's.
fn foreign_volumes(seen: &Observed) -> impl Iterator<Item = &Claim> {
    seen.claims.iter().filter(|claim| claim.database_uid.as_deref() != Some(&seen.uid))
}

/// Whether this Database goes on with volumes of an older one.
fn goes_on(seen: &Observed) -> bool {
    seen.claims.iter().any(|claim| claim.adopted) || foreign_volumes(seen).next().is_some()
}

/// A StatefulSet that finds its pods' names taken tries again less and less often, and nobody tells it when they are
/// free: it is made when they are.
fn pods_of_another(seen: &Observed) -> Result<(), HeldUp> {
    let older = seen.instances.iter().filter(|instance| instance.made < seen.made);
    let names: Vec<&str> = older.map(|instance| instance.name.as_str()).collect();
    if names.is_empty() || seen.set.is_some() {
        return Ok(());
    }
    Err(HeldUp {
        reason: "PodsFound",
        message: format!(
            "pods of an older Database of this name are still there ({}). If they do not end by themselves, delete them",
            names.join(", ")
        ),
        waits: true,
    })
}

/// Volumes that an older Database of this name has left are not taken unasked.
fn volumes_of_another(seen: &Observed, replicas: u32) -> Result<Vec<Step>, HeldUp> {
    let foreign: Vec<_> = foreign_volumes(seen).collect();
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    // Where instances are there for all of them, they are taken already, and fewer are another matter.
    let room = seen.set.as_ref().map_or(replicas, |set| set.pods.max(replicas));
    let more = foreign.iter().map(|claim| claim.ordinal + 1).max().filter(|many| *many > room);
    if seen.adopt && more.is_none() || planted::is(Bug::AdoptUnasked) {
        let adopt = |claim: &&Claim| Step::Adopt {
            claim: claim.name.clone(),
            from: claim.database_uid.clone().unwrap_or_default(),
        };
        return Ok(foreign.iter().map(adopt).collect());
    }
    let names: Vec<&str> = foreign.iter().map(|claim| claim.name.as_str()).collect();
    if let Some(many) = more.filter(|_| seen.adopt) {
        return Err(HeldUp {
            reason: "MoreVolumesFound",
            message: format!(
                "an older Database of this name has left volumes of {many} instances ({}), and the newest data may be on \
                 any of them. Set spec.replicas to {many}, and back once it runs; or delete those that are not needed",
                names.join(", ")
            ),
            waits: true,
        });
    }
    Err(HeldUp {
        reason: "VolumesFound",
        message: format!(
            "an older Database of this name has left volumes ({}). To go on with their data, annotate this one \
             with {}=yes; to begin anew, delete them",
            names.join(", "),
            keelson_api::instance::annotations::ADOPT_VOLUMES
        ),
        waits: true,
    })
}

/// Until when the certificate is to be valid: as it is, unless that is soon or the Secrets are others.
fn certificate_until(seen: &Observed, now: Timestamp) -> Timestamp {
    let config = seen.config.as_ref();
    let current = config.and_then(|config| Some((config.certificate.as_ref()?.not_after, &config.secrets)));
    match current {
        Some((until, secrets))
            if until.duration_since(now) > CERTIFICATE_RENEWED
                && *secrets == secrets_id(seen, until)
                && !planted::is(Bug::CertificateAnew) =>
        {
            until
        }
        _ => {
            let until = now.saturating_add(CERTIFICATE_LASTS).unwrap_or(Timestamp::MAX);
            Timestamp::from_second(until.as_second()).unwrap_or(until)
        }
    }
}

fn secrets_id(seen: &Observed, until: Timestamp) -> String {
    if seen.secrets_mark.is_empty() {
        return seen.config.as_ref().map(|config| config.secrets.clone()).unwrap_or_default();
    }
    fingerprint(&format!("{} {until}", seen.secrets_mark))
}

/// Whether somebody misses Secrets, and in how long they are to be written again. Who says that they are
/// damaged is believed, but not all the time.
fn secrets_missed(seen: &Observed, now: Timestamp) -> Option<Duration> {
    let missed = |instance: &Instance| match &instance.report {
        Some(report) => {
            (report.reason.as_deref() == Some(reasons::SECRETS_DAMAGED)).then_some(Duration::ZERO)
        }
        // A pod whose Secret is missing is not started at all, and says no more than that.
        None if instance.unmounted && instance.hindrance.is_none() && !instance.deleting => {
            Some(MOUNTS_TAKE.saturating_sub(trouble::age(instance.made, now)))
        }
        None => None,
    };
    let soonest = seen.instances.iter().filter_map(missed).min()?;
    let rest = seen.lately.secrets.map(|ago| SECRETS_PACE.saturating_sub(ago)).unwrap_or_default();
    Some(soonest.max(rest))
}

struct Scaling {
    pods: u32,
    /// How many agents are told of. Where nobody leads, one that is told to be alone leads with what it has.
    told: u32,
    step: Option<Step>,
    message: Option<String>,
}

/// How many pods there are to be for now. More come all at once; fewer only when none of those that go
/// leads, and commits wait for none of them: agents have been told how many there are to be, and the leader lets one
/// after another go. If several went at once that it waits for, it would wait for ever. While the StatefulSet is being
/// made again for larger volumes, those that there are count: the next one takes them over, and removes what is too many.
fn scale(seen: &Observed, replicas: u32) -> Scaling {
    let names = Names(&seen.name);
    let left = || seen.instances.iter().filter(|one| !one.deleting).map(|one| one.ordinal + 1).max();
    let current = seen.set.as_ref().map(|set| set.pods).or_else(left).unwrap_or(replicas);
    let steady = |message| Scaling { pods: replicas, told: replicas, step: None, message };
    if replicas == current {
        return steady(None);
    }
    let message = format!("from {current} to {replicas} instances");
    if replicas > current {
        return steady(Some(message));
    }
    let stay = |step, why: &str| {
        let message = Some(format!("{message}: {why}"));
        Scaling { pods: current, told: replicas, step, message }
    };
    match seen.leader() {
        None if !seen.exists() && !goes_on(seen) => steady(Some(message)),
        None => {
            Scaling { told: current, ..stay(None, "waits until somebody leads, lest the newest data goes") }
        }
        Some(leader)
            if names.ordinal(leader).is_some_and(|ordinal| ordinal < replicas)
                || planted::is(Bug::ScaleDownLeader) =>
        {
            match awaited(seen, replicas) {
                Some(one) => stay(None, &format!("waits until commits no longer wait for {}", one.name)),
                None => steady(Some(message)),
            }
        }
        Some(leader) => match turns::successor(seen, leader, replicas) {
            Some(to) => {
                let step = Step::HandOver { from: leader.to_owned(), to: to.name.clone() };
                stay(Some(step), &format!("{leader} hands over to {} first", to.name))
            }
            None => stay(None, &format!("waits for a replica that can take over from {leader}")),
        },
    }
}

/// One that serves, and that commits wait for, though it is to go.
fn awaited(seen: &Observed, replicas: u32) -> Option<&Instance> {
    let synchronous = |one: &&Instance| {
        one.serves() && one.report.as_ref().is_some_and(|report| report.role == Role::Synchronous)
    };
    seen.instances.iter().filter(|one| one.ordinal >= replicas).find(synchronous)
}

/// Volumes that are to grow. They never shrink.
struct Growth {
    small: Vec<Step>,
    /// Why the cluster did not let one grow.
    refused: Option<String>,
    /// It is not asked again so soon.
    pause: Option<Duration>,
}

impl Growth {
    fn of(seen: &Observed, storage: Size) -> Growth {
        let small = seen.claims.iter().filter(|claim| {
            !claim.deleting && claim.bound && claim.requested.is_some_and(|size| size < storage)
        });
        let small: Vec<Step> =
            small.map(|claim| Step::Grow { claim: claim.name.clone(), to: storage.to_string() }).collect();
        let refused = seen.lately.growth_refused.as_ref().filter(|_| !small.is_empty());
        let pause = refused.and_then(|(_, ago)| GROWTH_PACE.checked_sub(*ago)).filter(|left| !left.is_zero());
        Growth { refused: refused.map(|(why, _)| why.clone()), pause, small }
    }
}

/// The volumes of instances that are no more stay, unless the policy is that data goes.
fn removed_volumes(seen: &Observed, settings: &Settings) -> Vec<Step> {
    let settled = seen.set.as_ref().is_some_and(|set| !set.deleting && set.pods == settings.replicas);
    if settings.deletion_policy != DeletionPolicy::Delete && !planted::is(Bug::RemoveRetained) {
        return Vec::new();
    }
    let away = |claim: &Claim| !seen.instances.iter().any(|instance| instance.ordinal == claim.ordinal);
    let over = seen.claims.iter().filter(|claim| {
        claim.ordinal >= settings.replicas
            && !claim.deleting
            && claim.database_uid.as_deref() == Some(&seen.uid)
            && (settled && away(claim) || planted::is(Bug::RemoveTooSoon))
    });
    over.map(Claim::removal).collect()
}

/// A handover takes a moment: the same leader is not asked again at once.
fn paced(seen: &Observed, steps: Vec<Step>) -> (Vec<Step>, Option<Duration>) {
    let doubt = seen.lately.doubtful.as_ref().and_then(|(_, ago)| turns::DOUBT.checked_sub(*ago));
    let mut pause = doubt.filter(|left| !left.is_zero());
    let steps = steps.into_iter().filter(|step| match (step, &seen.lately.handover) {
        (Step::HandOver { from, .. }, Some((asked, ago))) if from == asked && *ago < HANDOVER_PACE => {
            pause = Some(HANDOVER_PACE.saturating_sub(*ago));
            false
        }
        (Step::HandOver { .. }, _) => {
            pause = Some(HANDOVER_PACE);
            true
        }
        _ => true,
    });
    let steps = steps.collect();
    (steps, pause)
}

/// Which database this is: once known, never forgotten, so that none is ever made anew in its place.
fn which_database(seen: &Observed) -> Option<String> {
    let told = seen.config.as_ref().and_then(|config| config.system.clone());
    let reports = || seen.instances.iter().filter_map(|instance| instance.report.as_ref());
    told.or_else(|| reports().find(|report| report.writable)?.system_id.clone())
}

/// Where log and backups go. Nothing is told of those that have no place to go.
fn backup(seen: &Observed, settings: &Settings) -> Option<BackupRule> {
    let backup = settings.backup.as_ref()?;
    let to = Store::of(backup.to.as_ref()?, &seen.namespace, &seen.name, Use::BackUp);
    Some(BackupRule {
        to,
        max_data_loss_seconds: backup.max_data_loss.duration().as_secs().max(1),
        bandwidth: backup.bandwidth.map(|bandwidth| bandwidth.bytes()),
        incrementals: backup.incrementals,
        retention: Some(backup.retention.to_string()),
        order: None,
        marks: backup.drill.is_some(),
        drill: drills::note(seen),
    })
}

fn want(
    seen: &Observed,
    settings: &Settings,
    version: Version,
    scaling: &Scaling,
    storage: Size,
    until: Timestamp,
) -> Wanted {
    let failover = &settings.failover;
    let millis =
        |span: keelson_api::value::Span| u64::try_from(span.duration().as_millis()).unwrap_or(u64::MAX);
    let instance = InstanceSettings {
        engine: settings.engine,
        version,
        replicas: scaling.told,
        durability: DurabilityRule { mode: settings.durability, when_alone: failover.standby },
        failover: FailoverTimes {
            ttl_millis: millis(failover.ttl),
            look_millis: millis(failover.interval),
            margin_millis: millis(failover.margin),
            max_lag_bytes: failover.max_lag.bytes(),
            max_reader_lag_bytes: failover.max_reader_lag.bytes(),
        },
        parameters: settings.parameters.clone(),
        app: AppAccess { database: "app".to_owned(), role: "app".to_owned() },
        system: which_database(seen),
        adopted: goes_on(seen),
        secrets: secrets_id(seen, until),
        certificate: Some(CertificateNote { not_after: until }),
        backup: backup(seen, settings),
        restore: restore::rule(seen, settings).ok().flatten(),
        in_place: None,
        settled_restores: Vec::new(),
        discard: seen.discard.clone(),
    };
    Wanted {
        name: seen.name.clone(),
        namespace: seen.namespace.clone(),
        uid: seen.uid.clone(),
        settings: settings.clone(),
        scheduling: seen.spec.scheduling.clone().unwrap_or_default(),
        restart: seen.restart.clone(),
        image: seen.spec.image.clone().unwrap_or_else(|| format!("{}:{version}", settings.engine)),
        pull_secrets: each_once(&seen.spec.image_pull_secrets),
        agent_image: seen.agent_image.clone(),
        pods: scaling.pods,
        storage,
        instance,
    }
}

/// A name that is written twice means once; the API server would not have it twice.
fn each_once(names: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if !once.contains(name) {
            once.push(name.clone());
        }
    }
    once
}

#[cfg(test)]
mod tests;
