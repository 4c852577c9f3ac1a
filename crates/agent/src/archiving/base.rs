//! Base backups that the operator orders from this instance: one at a time, dropped when the order is gone.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use keelson_api::instance::{BackupOrder, BackupReport, BackupRule, backup_reasons};
use keelson_api::v1::{BackupMethod, BackupPhase};
use keelson_api::value::Written;
use keelson_backup::base::{self, Kind, Progress, back_up};
use keelson_backup::{Backup, Error};
use tokio::sync::watch;

use super::place::Trouble;
use super::{Inputs, claim};
use crate::settings::Known;

/// How often progress is told.
const PACE: Duration = Duration::from_secs(10);
/// How long the repository may take to have the log that a backup needs, at the least.
const LOG_WITHIN: Duration = Duration::from_secs(600);
/// On a replica a backup begins with a checkpoint that the primary has made. After how long it is looked for another,
/// where there is a backup from the last one already.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(15);
/// And for how long: PostgreSQL makes one every 5 minutes by default.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(1200);

/// Makes the base backups that are ordered from this instance, for as long as the process lives.
pub(crate) async fn follow(inputs: Inputs, told: watch::Sender<Option<BackupReport>>) {
    let pod = inputs.here.pod.clone();
    let mut known = inputs.known.clone();
    // What was made, or could not be: an order stays until the operator has taken note of that.
    let mut done: Option<String> = None;
    loop {
        let found = order(&known.borrow_and_update(), &pod);
        match found {
            None => {
                done = None;
                told.send_if_modified(|told| told.take().is_some());
            }
            Some((rule, order)) if done.as_ref() != Some(&order.uid) => {
                let mut others = known.clone();
                let withdrawn =
                    others.wait_for(|known| self::order(known, &pod).is_none_or(|(_, now)| now != order));
                tokio::select! {
                    report = make(&inputs, &rule, &order, &told) => {
                        told.send_replace(Some(report));
                        done = Some(order.uid.clone());
                    }
                    _ = withdrawn => {
                        tracing::warn!(backup = order.name, "the backup is given up: it is no longer asked for here");
                        continue;
                    }
                }
            }
            Some(_) => {}
        }
        if known.changed().await.is_err() {
            return;
        }
    }
}

fn order(known: &Known, pod: &str) -> Option<(BackupRule, BackupOrder)> {
    let rule = known.settings.backup.clone()?;
    let order = rule.order.clone().filter(|order| order.instance == pod)?;
    Some((rule, order))
}

/// Makes a backup, and tells from time to time how far it is.
async fn make(
    inputs: &Inputs,
    rule: &BackupRule,
    order: &BackupOrder,
    told: &watch::Sender<Option<BackupReport>>,
) -> BackupReport {
    let mut report = BackupReport {
        uid: order.uid.clone(),
        phase: Written::of(&BackupPhase::Running),
        method: None,
        id: None,
        started: Some(Timestamp::now()),
        finished: None,
        read_bytes: 0,
        total_bytes: 0,
        stored_bytes: 0,
        reason: None,
        problem: None,
    };
    tracing::info!(backup = order.name, "a base backup begins");
    told.send_replace(Some(report.clone()));
    let progress = watch::Sender::new(Progress::default());
    let mut seen = progress.subscribe();
    let running = report.clone();
    let telling = async {
        loop {
            tokio::time::sleep(PACE).await;
            let Progress { read, total, .. } = *seen.borrow_and_update();
            let now = BackupReport { read_bytes: read, total_bytes: total, ..running.clone() };
            told.send_if_modified(|told| told.replace(now.clone()).as_ref() != Some(&now));
        }
    };
    let made = tokio::select! {
        made = attempts(inputs, rule, order, &progress) => made,
        _ = telling => Err(super::failed("nobody tells how far it is".to_owned())),
    };
    report.finished = Some(Timestamp::now());
    let Progress { read, total, .. } = *progress.borrow();
    (report.read_bytes, report.total_bytes) = (read, total);
    match made {
        Ok(backup) => {
            tracing::info!(
                backup = order.name,
                id = backup.name,
                stored = backup.stored,
                "a base backup is complete"
            );
            let method = if backup.parent.is_some() { BackupMethod::Incremental } else { BackupMethod::Full };
            BackupReport {
                phase: Written::of(&BackupPhase::Complete),
                method: Some(Written::of(&method)),
                started: Some(backup.started),
                finished: Some(backup.finished),
                stored_bytes: backup.stored,
                id: Some(backup.name),
                ..report
            }
        }
        Err(trouble) => {
            tracing::error!(
                backup = order.name,
                reason = trouble.reason,
                problem = trouble.problem,
                "no base backup"
            );
            BackupReport {
                phase: Written::of(&BackupPhase::Failed),
                reason: Some(trouble.reason.to_owned()),
                problem: Some(trouble.problem),
                ..report
            }
        }
    }
}

/// Tries until there is one, as far as trying again can help.
async fn attempts(
    inputs: &Inputs,
    rule: &BackupRule,
    order: &BackupOrder,
    progress: &watch::Sender<Progress>,
) -> Result<Backup, Trouble> {
    let began = Instant::now();
    let method = order.method.as_ref().and_then(|method| method.parse().ok());
    let mut full = false;
    loop {
        let writer = claim(inputs, rule).await?;
        let backups = writer.repository().backups().await.map_err(|error| Trouble::from(&error))?;
        let wanted = if full { Some(BackupMethod::Full) } else { method };
        let kind = kind(&backups, wanted, rule.incrementals).map_err(refused)?;
        let incremental = kind != Kind::Full;
        let client = inputs.engine.connect().await.map_err(|error| super::failed(error.to_string()))?;
        let options = base::Options {
            kind,
            rate: rule.bandwidth,
            log_within: LOG_WITHIN.max(3 * Duration::from_secs(rule.max_data_loss_seconds)),
            hostname: inputs.here.pod.clone(),
            permanent: order.keep,
            ..base::Options::default()
        };
        match back_up(&writer, client, inputs.engine.data_folder(), &options, progress).await {
            Ok(backup) => return Ok(backup),
            Err(Error::TooSoon { .. }) if began.elapsed() < CHECKPOINT_WITHIN => {
                tokio::time::sleep(CHECKPOINT_LOOK).await;
            }
            // Nobody has asked for one that builds on another.
            Err(error @ Error::Refused(_)) if incremental && method.is_none() && !full => {
                tracing::warn!(%error, "a full backup is made instead of an incremental one");
                full = true;
            }
            Err(error) => return Err(Trouble::from(&error)),
        }
    }
}

fn refused(problem: String) -> Trouble {
    Trouble { reason: backup_reasons::REFUSED, problem, passes: false }
}

/// Full, or on top of the newest: as is asked for, or as is due.
fn kind(backups: &[Backup], method: Option<BackupMethod>, incrementals: u32) -> Result<Kind, String> {
    let newest = backups.iter().max_by_key(|backup| backup.finished);
    match (method, newest) {
        (Some(BackupMethod::Full), _) | (None, None) => Ok(Kind::Full),
        (Some(BackupMethod::Incremental), Some(newest)) => Ok(Kind::IncrementalTo(newest.clone())),
        (Some(BackupMethod::Incremental), None) => {
            Err("there is no backup yet that an incremental one could build on: take a full one first"
                .to_owned())
        }
        (None, Some(newest)) if newest.depth < incrementals => Ok(Kind::IncrementalTo(newest.clone())),
        (None, Some(_)) => Ok(Kind::Full),
    }
}

#[cfg(test)]
mod tests {
    use keelson_backup::Lsn;

    use super::*;

    fn backup(day: i64, depth: u32) -> Backup {
        let at = Timestamp::from_second(day * 86_400).unwrap();
        Backup {
            name: format!("base_{day}"),
            timeline: 1,
            start: Lsn(1),
            finish: Lsn(2),
            started: at,
            finished: at,
            parent: (depth > 0).then(|| format!("base_{}", day - 1)),
            depth,
            version: 170_005,
            size: 1,
            stored: 1,
            permanent: false,
            manifest: None,
        }
    }

    #[test]
    fn so_many_incremental_backups_follow_a_full_one_as_the_policy_says() {
        let due = |backups: &[Backup], incrementals| kind(backups, None, incrementals).unwrap();
        assert_eq!(due(&[], 6), Kind::Full, "there is nothing to build on");
        let chain = [backup(1, 0), backup(2, 1)];
        assert_eq!(due(&chain, 6), Kind::IncrementalTo(backup(2, 1)));
        assert_eq!(due(&chain, 1), Kind::Full);
        assert_eq!(due(&chain[..1], 0), Kind::Full, "every backup is full");
    }

    #[test]
    fn who_asks_for_a_method_gets_it_or_hears_why_not() {
        let chain = [backup(1, 0), backup(2, 6)];
        assert_eq!(kind(&chain, Some(BackupMethod::Full), 6), Ok(Kind::Full));
        let asked = kind(&chain, Some(BackupMethod::Incremental), 6);
        assert_eq!(asked, Ok(Kind::IncrementalTo(backup(2, 6))));
        let none = kind(&[], Some(BackupMethod::Incremental), 6).unwrap_err();
        assert!(none.contains("full one first"), "{none}");
    }
}
