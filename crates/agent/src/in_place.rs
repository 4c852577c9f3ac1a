//! A restore in place: whether it can be, while the database goes on, and then what is made beside its data. When and by
//! whom is for leadership to say (`keelson_ha::Restore`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_api::instance::{
    InPlaceReport, InPlaceRule, InPlaceStage, InstanceSettings, KeptReport, Report, annotations,
    backup_reasons,
};
use keelson_api::v1::Role;
use keelson_backup::archive::{Archiver, Options, Role as Duty};
use keelson_backup::restore::Choice;
use keelson_backup::{Claim, Repository, SegmentSize};
use keelson_engine::postgres::{Postgres, PutAside, Restored};
use keelson_engine::{Data, Error};
use keelson_ha::{Restore, Restores};
use tokio::sync::watch;

use crate::archiving::place::{self, Trouble};
use crate::archiving::{self, Inputs};
use crate::restoring::{self, Serving};
use crate::room::Room;

/// So long it is tried to find out whether it can be, while a store does not answer. It must not begin when nobody thinks
/// of it any more.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often.
const AGAIN: Duration = Duration::from_secs(5);
/// How long the log may take to be sent.
const SENT: Duration = Duration::from_secs(300);
/// So often it is begun, if a store or a disk fails in the midst of it, before the old data serves again.
pub(crate) const TRIES: u32 = 3;
const MIB: u64 = 1 << 20;

/// What was found out about a restore in place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    /// Which.
    pub name: String,
    /// In which epoch this instance led meanwhile.
    pub epoch: u64,
    /// Whether it can be; nothing, while that is not known.
    pub found: Option<Result<(), (String, String)>>,
    /// Why it is not known yet.
    pub trouble: Option<(String, String)>,
}

/// What leadership is to know. What is whole comes first: it may have been decided on. What was found out counts for the
/// epoch in which the data on this volume took its last writes.
pub(crate) fn standing(
    whole: Option<&Restored>,
    given_up: Option<&str>,
    survey: &Survey,
    wanted: Option<&str>,
    led: Option<u64>,
) -> Restore {
    if let Some(whole) = whole {
        return Restore::Whole { name: whole.name.clone(), history: whole.timeline.into() };
    }
    let Some(wanted) = wanted else { return Restore::None };
    let name = wanted.to_owned();
    if given_up == Some(wanted) {
        return Restore::GivenUp { name };
    }
    match &survey.found {
        Some(found) if survey.name == wanted && led == Some(survey.epoch) => match found {
            Ok(()) => Restore::Ready { name },
            Err(_) => Restore::GivenUp { name },
        },
        _ => Restore::None,
    }
}

/// What the leader tells of the restore that is asked for, or of the last one.
pub(crate) fn told(
    wanted: Option<&str>,
    settled: &Restores,
    stopped: bool,
    survey: &Survey,
    failed: Option<&(String, (String, String))>,
) -> Option<InPlaceReport> {
    let name = wanted.map(str::to_owned).or_else(|| settled.settled.clone())?;
    let refused =
        survey.found.as_ref().and_then(|found| found.as_ref().err()).filter(|_| survey.name == name);
    let failed = failed.filter(|(of, _)| *of == name).map(|(_, trouble)| trouble);
    let open = survey.trouble.as_ref().filter(|_| survey.name == name);
    let over = settled.settled.as_deref() == Some(&name);
    let (stage, trouble) = match (over, settled.done) {
        (true, true) => (InPlaceStage::Done, None),
        (true, false) if refused.is_some() => (InPlaceStage::Refused, refused),
        (true, false) => (InPlaceStage::Failed, failed),
        _ if stopped => (InPlaceStage::Restoring, failed),
        _ => (InPlaceStage::Checking, open),
    };
    let (reason, problem) = trouble.cloned().unzip();
    Some(InPlaceReport { name, stage, reason, problem })
}

/// What is told of data that was put aside.
pub(crate) fn kept_report(kept: PutAside, bytes: u64) -> KeptReport {
    let since = jiff::Timestamp::try_from(kept.since).unwrap_or_default();
    KeptReport { restore: kept.name, timeline: kept.timeline, since, bytes }
}

/// Whether there is room for so much beside what is there.
fn has_room(data: u64, segment: u64, room: Room) -> Result<(), String> {
    // Log is fetched ahead while it is replayed, and some more is kept and written.
    let needed = data + data / 10 + 16 * segment + room.reserve();
    if room.size == 0 || room.free >= needed {
        return Ok(());
    }
    Err(format!(
        "the old data stays until the restore has proved itself, and there is no room for both: about {} MiB are needed \
         besides, and {} MiB of {} MiB are free. Raise spec.storage by {} MiB or more, and give the restore another name",
        needed / MIB,
        room.free / MIB,
        room.size / MIB,
        (needed - room.free).div_ceil(MIB)
    ))
}

/// Finds out whether what is asked for can be, for as long as the process lives. Nothing is stopped for it.
pub(crate) async fn survey(inputs: Inputs, settled: watch::Receiver<Restores>, told: watch::Sender<Survey>) {
    let (mut known, mut reports, mut settled) = (inputs.known.clone(), inputs.reports.clone(), settled);
    let mut since: Option<(String, Instant)> = None;
    loop {
        let rule = known.borrow_and_update().settings.in_place.clone();
        let over = settled.borrow_and_update().settled.clone();
        let (leads, epoch) = leads(&reports.borrow_and_update());
        let done = told.borrow().clone();
        let rule = rule.filter(|rule| leads && over.as_deref() != Some(&rule.name));
        let rule =
            rule.filter(|rule| (&done.name, done.epoch) != (&rule.name, epoch) || done.found.is_none());
        let Some(rule) = rule else {
            tokio::select! {
                changed = known.changed() => if changed.is_err() { return },
                changed = reports.changed() => if changed.is_err() { return },
                changed = settled.changed() => if changed.is_err() { return },
            }
            continue;
        };
        if since.as_ref().is_none_or(|(name, _)| *name != rule.name) {
            since = Some((rule.name.clone(), Instant::now()));
        }
        let waited = since.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        let survey = match look(&inputs, &rule).await {
            Ok(()) => Survey { name: rule.name, epoch, found: Some(Ok(())), trouble: None },
            Err(trouble) => {
                let passes = trouble.passes && waited < PATIENCE;
                let words = (trouble.reason.to_owned(), trouble.problem);
                tracing::warn!(
                    restore = rule.name,
                    reason = words.0,
                    problem = words.1,
                    passes,
                    "no restore in place"
                );
                let found = (!passes).then(|| Err(words.clone()));
                Survey { name: rule.name, epoch, found, trouble: Some(words) }
            }
        };
        let open = survey.found.is_none();
        told.send_replace(survey);
        if open {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn leads(report: &Report) -> (bool, u64) {
    (report.role == Role::Primary && report.writable, report.epoch)
}

/// Looks whether the moment can be reached, and whether there is room, after all log so far was sent: a moment just now is
/// then one that can be.
pub(crate) async fn look(inputs: &Inputs, rule: &InPlaceRule) -> Result<(), Trouble> {
    let engine = &inputs.engine;
    if let Some(kept) = engine.kept() {
        return Err(restoring::refused(format!(
            "data that the restore `{}` has put aside is still on the volume. Annotate the Database with {}={} to remove it, \
             and give this restore another name",
            kept.name,
            annotations::DISCARD_OLD_DATA,
            kept.name
        )));
    }
    if engine.is_damaged() {
        return Err(restoring::refused(
            "the disk of the primary has failed its data: hand over first".to_owned(),
        ));
    }
    let system = system(engine).await?;
    let repository = place::open(&rule.rule.from)?;
    let size = own(&repository, system).await?;
    let sent = async {
        engine.end_segment().await.map_err(|error| archiving::failed(error.to_string()))?;
        while archiving::waiting(&engine.log_folder()).await > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok::<(), Trouble>(())
    };
    match tokio::time::timeout(SENT, sent).await {
        Ok(sent) => sent?,
        Err(_) => {
            return Err(archiving::failed(
                "the log so far could not be sent to the repository, and would be lost: see the condition BackupReady"
                    .to_owned(),
            ));
        }
    }
    let choice = restoring::chosen(&repository, &rule.rule).await?;
    fits(engine, &choice)?;
    let whole = choice.chain.iter().map(|backup| backup.size).max().unwrap_or_default();
    let data = engine.data_size().await.map_err(|error| archiving::failed(error.to_string()))?;
    let room = *inputs.room.borrow();
    // What is brought back may be larger than what is there now, and grows to what it is by the log.
    has_room(whole.max(data), size.bytes(), room).map_err(|problem| Trouble {
        reason: "RestoreNeedsRoom",
        problem,
        passes: false,
    })
}

fn fits(engine: &Postgres, choice: &Choice) -> Result<(), Trouble> {
    let major = choice.chain.last().map(|backup| backup.version / 10_000).unwrap_or_default();
    match major == engine.major() {
        true => Ok(()),
        false => Err(restoring::refused(format!(
            "the backup is of PostgreSQL {major}, and this is {}: restore it into a new Database with spec.version {major}",
            engine.major()
        ))),
    }
}

async fn system(engine: &Postgres) -> Result<u64, Trouble> {
    match keelson_engine::Engine::data(engine).await {
        Ok(Data::Present(offline)) => Ok(offline.system),
        other => Err(archiving::failed(format!("the data of the database can't be read: {other:?}"))),
    }
}

/// Sees that a repository is this database's own, and says how large its segments are.
async fn own(repository: &Repository, system: u64) -> Result<SegmentSize, Trouble> {
    let mark = repository.marked().await.map_err(|error| Trouble::from(&error))?;
    match (mark.system_identifier(), mark.segment_size()) {
        (Some(found), Some(size)) if found == system => Ok(size),
        _ => Err(Trouble {
            reason: backup_reasons::FOREIGN,
            problem: format!(
                "{} is the repository of another database: restore it into a new Database",
                repository.location()
            ),
            passes: false,
        }),
    }
}

/// Makes the data beside the old one. The database has ended; what it left of its log is sent first, so that a later
/// restore can come back to all of it. `owner` is whose repository it is.
pub(crate) async fn restore(
    engine: &Arc<Postgres>,
    rule: &InPlaceRule,
    owner: &str,
    timeline: u64,
    program: &str,
) -> Result<(), Trouble> {
    let system = system(engine).await?;
    let repository = place::open(&rule.rule.from)?;
    let segment_size = own(&repository, system).await?;
    let claim = Claim { system_identifier: system, segment_size, owner: owner.to_owned() };
    let writer = repository.claim(&claim).await.map_err(|error| Trouble::from(&error))?;
    let mut archiver = Archiver::new(writer, engine.log_folder(), Options::default());
    let drained = tokio::time::timeout(SENT, archiver.drain(Duty::Leader)).await;
    let late =
        || archiving::failed("the end of the log could not be sent to the repository in time".to_owned());
    drained.map_err(|_| late())?.map_err(|error| Trouble::from(&error))?;

    let choice = restoring::chosen(&repository, &rule.rule).await?;
    let failed = |error: Error| {
        let problem = format!("the restore in place from {} failed: {error}", repository.location());
        match error {
            Error::OutOfLog { .. } => {
                restoring::refused(format!("{problem}. Ask for an earlier moment, or for the latest"))
            }
            _ => Trouble { reason: "RestoreFailed", problem, passes: true },
        }
    };
    tracing::info!(restore = rule.name, target = %choice.target, timeline, "the database is restored in place");
    let folder = engine.begin_restore_beside().await.map_err(failed)?;
    let (serving, recovery) = Serving::bring_back(&repository, &choice, &folder, program).await?;
    let timeline = u32::try_from(timeline).unwrap_or(u32::MAX);
    let made = engine.finish_restore_beside(&recovery, &rule.name, timeline).await;
    // PostgreSQL only says that it was not given a file of the log.
    let made = made.map_err(|error| serving.trouble().unwrap_or_else(|| failed(error)));
    serving.end(&folder).await;
    tracing::info!(restore = rule.name, timeline = made?, "its data is whole, beside the old one");
    Ok(())
}

/// Removes what was put aside when a person has said so, and tells what there is, for as long as the process lives.
pub(crate) async fn look_after_kept(
    engine: Arc<Postgres>,
    settings: impl Fn() -> InstanceSettings,
    told: watch::Sender<Option<KeptReport>>,
) {
    loop {
        if let Some(name) = settings().discard {
            match engine.discard_kept(&name).await {
                Ok(true) => tracing::warn!(
                    restore = name,
                    "the old data that a restore has put aside was removed, as asked"
                ),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the old data could not be removed"),
            }
        }
        let now = engine.kept();
        let known = told.borrow().as_ref().map(|kept| (kept.restore.clone(), kept.timeline));
        // It does not change while it lies there, and is measured once.
        if known != now.as_ref().map(|kept| (kept.name.clone(), kept.timeline)) {
            let size = engine.kept_size().await.unwrap_or_default();
            told.send_replace(now.map(|kept| kept_report(kept, size)));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// What a volume that fills up has on it besides.
pub(crate) fn told_of_room(room: Room, kept: Option<&KeptReport>) -> String {
    match kept {
        None => room.told(),
        Some(kept) => format!(
            "{}, or let go of the {} MiB of old data that the restore `{}` has put aside, with the annotation {}={} on the \
             Database",
            room.told(),
            kept.bytes / MIB,
            kept.restore,
            annotations::DISCARD_OLD_DATA,
            kept.restore
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(epoch: u64) -> Survey {
        Survey { name: "x".into(), epoch, found: Some(Ok(())), trouble: None }
    }

    #[test]
    fn what_was_found_out_counts_for_the_restore_and_the_leadership_it_was_found_out_for() {
        let of = |survey: &Survey, wanted, led| standing(None, None, survey, wanted, led);
        assert_eq!(of(&ready(3), Some("x"), Some(3)), Restore::Ready { name: "x".into() });
        assert_eq!(of(&ready(3), Some("x"), Some(4)), Restore::None, "it led again: it is looked once more");
        assert_eq!(of(&ready(3), Some("x"), None), Restore::None, "it follows");
        assert_eq!(of(&ready(3), Some("y"), Some(3)), Restore::None);
        assert_eq!(of(&ready(3), None, Some(3)), Restore::None);
        let no = Survey { found: Some(Err(("TooEarly".into(), "no".into()))), ..ready(3) };
        assert_eq!(of(&no, Some("x"), Some(3)), Restore::GivenUp { name: "x".into() });
        let failed = standing(None, Some("x"), &ready(3), Some("x"), Some(3));
        assert_eq!(failed, Restore::GivenUp { name: "x".into() }, "it is not begun over and over");
        let whole = Restored { name: "x".into(), timeline: 7, placed: false };
        let found = standing(Some(&whole), None, &Survey::default(), None, None);
        assert_eq!(found, Restore::Whole { name: "x".into(), history: 7 }, "it may be decided on already");
    }

    #[test]
    fn what_is_told_of_it_ends_with_what_became_of_it() {
        let none = Restores::default();
        let settled = |done| Restores { settled: Some("x".into()), done, origin: 0 };
        let stage = |wanted, settled: &Restores, stopped, survey: &Survey| {
            told(wanted, settled, stopped, survey, None).map(|told| told.stage)
        };
        assert_eq!(stage(None, &none, false, &Survey::default()), None);
        assert_eq!(stage(Some("x"), &none, false, &ready(3)), Some(InPlaceStage::Checking));
        assert_eq!(stage(Some("x"), &none, true, &ready(3)), Some(InPlaceStage::Restoring));
        assert_eq!(stage(Some("x"), &settled(true), false, &ready(3)), Some(InPlaceStage::Done));
        assert_eq!(stage(None, &settled(true), false, &ready(3)), Some(InPlaceStage::Done), "also later");
        assert_eq!(
            stage(Some("y"), &settled(true), false, &ready(3)),
            Some(InPlaceStage::Checking),
            "another one"
        );
        let no = Survey { found: Some(Err(("TooEarly".into(), "no".into()))), ..ready(3) };
        let refused = told(Some("x"), &settled(false), false, &no, None).unwrap();
        assert_eq!((refused.stage, refused.problem.as_deref()), (InPlaceStage::Refused, Some("no")));
        let broke = ("x".to_owned(), ("RestoreFailed".to_owned(), "it broke off".to_owned()));
        let failed = told(Some("x"), &settled(false), false, &ready(3), Some(&broke)).unwrap();
        assert_eq!((failed.stage, failed.problem.as_deref()), (InPlaceStage::Failed, Some("it broke off")));
    }

    #[test]
    fn there_is_room_for_both_or_it_is_said_how_much_is_missing() {
        let gib = 1024 * MIB;
        let room = |free| Room { size: 10 * gib, free };
        assert_eq!(has_room(4 * gib, 16 * MIB, room(5 * gib)), Ok(()));
        let no = has_room(4 * gib, 16 * MIB, room(3 * gib)).unwrap_err();
        assert!(
            no.contains("3072 MiB of 10240 MiB are free") && no.contains("Raise spec.storage by"),
            "{no}"
        );
        assert_eq!(has_room(4 * gib, 16 * MIB, Room::default()), Ok(()), "what is not known is not full");
    }

    #[test]
    fn a_volume_that_fills_up_names_the_old_data_on_it() {
        let kept = KeptReport {
            restore: "x".into(),
            timeline: 3,
            since: jiff::Timestamp::UNIX_EPOCH,
            bytes: 5 * MIB,
        };
        let told = told_of_room(Room { size: 100 * MIB, free: MIB }, Some(&kept));
        assert!(
            told.contains("5 MiB of old data") && told.contains("keelson.dev/discard-old-data=x"),
            "{told}"
        );
    }
}
