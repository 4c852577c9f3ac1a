//! Marks in the log for drills to find: written by whoever leads, as often as log is sent, and only when somebody else has
//! written something since. A database that nobody writes to gets none.

use std::sync::Arc;
use std::time::Duration;

use keelson_api::instance::{BackupRule, Report};
use keelson_engine::postgres::Postgres;
use tokio::sync::watch;

use crate::settings::Known;

/// The shortest time between two.
const LEAST: Duration = Duration::from_secs(1);
/// How long one may take. It is no matter of health.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes marks for as long as the process lives.
pub(crate) async fn follow(
    engine: Arc<Postgres>,
    mut known: watch::Receiver<Known>,
    mut reports: watch::Receiver<Report>,
) {
    loop {
        let wanted = |known: &Known| known.settings.backup.as_ref().is_some_and(|rule| rule.marks);
        if known.wait_for(wanted).await.is_err() {
            return;
        }
        if reports.wait_for(Report::claims_writes).await.is_err() {
            return;
        }
        let mut before = None;
        loop {
            let Some(pace) = pace(known.borrow().settings.backup.as_ref()) else { break };
            if !reports.borrow().claims_writes() {
                break;
            }
            before = write(&engine, before).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "no mark was written");
                before
            });
            tokio::time::sleep(pace).await;
        }
    }
}

/// How often one is written, if any is.
fn pace(rule: Option<&BackupRule>) -> Option<Duration> {
    let rule = rule.filter(|rule| rule.marks)?;
    Some(Duration::from_secs(rule.max_data_loss_seconds).max(LEAST))
}

/// Writes one if it is due, and gives how many rows had been written then.
async fn write(engine: &Postgres, before: Option<u64>) -> Result<Option<u64>, keelson_engine::Error> {
    let now = engine.rows_written(PATIENCE).await?;
    if !is_due(before, now) {
        return Ok(before);
    }
    let (mark, rows) = engine.mark(PATIENCE).await?;
    tracing::debug!(number = mark.number, "a mark was written");
    Ok(Some(now + rows))
}

/// Whether somebody else has written since the last mark. Numbers that are smaller than before began anew.
fn is_due(before: Option<u64>, now: u64) -> bool {
    before != Some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_nobody_writes_to_stays_as_it_is() {
        assert!(is_due(None, 7), "whoever begins to lead writes one: it shows on which timeline it is");
        assert!(!is_due(Some(7), 7), "what was written for the last mark is nobody else's");
        assert!(is_due(Some(7), 8));
        assert!(is_due(Some(7), 2), "the statistics began anew");
    }
}
