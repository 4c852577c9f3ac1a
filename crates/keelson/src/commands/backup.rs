//! `keelson backup`: a base backup now, because somebody wants one.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use keelson_api::v1::{Backup, BackupMethod, BackupPhase, BackupSpec, BackupStatus, Database};
use keelson_api::value::Written;
use kube::Api;
use kube::api::PostParams;

use super::cluster::{Found, Which};
use super::words::bytes;
use super::{Ended, Failure};

/// What to back up, and how.
#[derive(Args)]
pub struct BackupArgs {
    #[command(flatten)]
    which: Which,
    /// What to call it; without it, after the Database and the time.
    #[arg(long)]
    name: Option<String>,
    /// `full` or `incremental`; without it, what is due.
    #[arg(long, value_parser = method)]
    method: Option<BackupMethod>,
    /// Keep it whatever the retention says.
    #[arg(long)]
    keep: bool,
    /// How many seconds to wait until it is complete; 0 to only ask for it.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    timeout: u64,
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

fn method(text: &str) -> Result<BackupMethod, String> {
    text.parse().map_err(|_| "it is `full` or `incremental`".to_owned())
}

/// Asks for a backup, and waits until there is one.
pub async fn backup(args: BackupArgs) -> Result<Ended, Failure> {
    let Found { client, namespace, database } = args.which.find().await?;
    let of = &args.which.database;
    if !has_place(&database) {
        return Err(Failure::Said(format!("{of} has no place for backups: set spec.backup.to")));
    }
    let name = args.name.unwrap_or_else(|| format!("{of}-{}", Timestamp::now().strftime("%Y%m%d%H%M%S")));
    let spec = BackupSpec {
        database: of.clone(),
        method: args.method.as_ref().map(Written::of),
        keep: args.keep.then_some(true),
    };
    let backups: Api<Backup> = Api::namespaced(client, &namespace);
    let asked = backups.create(&PostParams::default(), &Backup::new(&name, spec)).await;
    asked.map_err(Failure::during(format!("asking for the backup {name}")))?;
    let start = Instant::now();
    let mut said = String::new();
    while start.elapsed() < Duration::from_secs(args.timeout) {
        let found =
            backups.get(&name).await.map_err(Failure::during(format!("reading the backup {name}")))?;
        let status = found.status.unwrap_or_default();
        match outcome(&name, &status) {
            Outcome::Goes(now) if now != said => {
                eprintln!("{now}");
                said = now;
            }
            Outcome::Goes(_) => {}
            Outcome::Complete(words) => {
                println!("{words}");
                return Ok(Ended::Well);
            }
            Outcome::Failed(words) => return Err(Failure::Said(words)),
        }
        tokio::time::sleep(LOOK).await;
    }
    if args.timeout == 0 {
        println!("{name} is asked for: kubectl get backup {name} shows where it stands");
        return Ok(Ended::Well);
    }
    Err(Failure::Said(format!(
        "{name} is not complete after {} s, and goes on: kubectl get backup {name} shows where it stands",
        args.timeout
    )))
}

/// Whether its backups go anywhere.
fn has_place(database: &Database) -> bool {
    database.spec.backup.as_ref().is_some_and(|backup| backup.to.is_some())
}

/// Where a backup stands, in words.
#[derive(Debug, PartialEq)]
enum Outcome {
    Goes(String),
    Complete(String),
    Failed(String),
}

fn outcome(name: &str, status: &BackupStatus) -> Outcome {
    let said = status.conditions.iter().find(|condition| condition.type_ == "Complete");
    let why = said.map(|said| said.message.as_str()).unwrap_or_default();
    match status.phase.as_ref().and_then(|phase| phase.parse().ok()) {
        Some(BackupPhase::Complete) => {
            let how = status.method.as_ref().map_or("", |method| method.as_str());
            let bytes = bytes(status.stored_bytes.unwrap_or_default());
            Outcome::Complete(format!("{name} is complete: {how}, {bytes} in the repository"))
        }
        Some(BackupPhase::Failed) => Outcome::Failed(format!("{name} failed: {why}")),
        Some(BackupPhase::Running) => match (status.read_bytes, status.total_bytes) {
            (Some(read), Some(total)) if total > 0 => Outcome::Goes(format!(
                "{name} runs: {} % of {}",
                read.saturating_mul(100) / total,
                bytes(total)
            )),
            _ => Outcome::Goes(format!("{name} runs")),
        },
        _ if why.is_empty() => Outcome::Goes(format!("{name} waits for its turn")),
        _ => Outcome::Goes(format!("{name} waits for its turn: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_a_backup_stands_is_said_in_words() {
        let of = |status| outcome("b", &serde_json::from_value(status).unwrap());
        assert_eq!(of(json!({})), Outcome::Goes("b waits for its turn".into()));
        let running = json!({"phase": "Running", "readBytes": 25, "totalBytes": 100});
        assert_eq!(of(running), Outcome::Goes("b runs: 25 % of 100 B".into()));
        assert_eq!(of(json!({"phase": "Running"})), Outcome::Goes("b runs".into()));
        let complete = json!({"phase": "Complete", "method": "full", "storedBytes": 7});
        assert_eq!(of(complete), Outcome::Complete("b is complete: full, 7 B in the repository".into()));
        let failed = json!({"phase": "Failed", "conditions": [{
            "type": "Complete", "status": "False", "reason": "StoreDenied", "message": "the store says no",
            "lastTransitionTime": "2026-11-18T00:00:00Z"
        }]});
        assert_eq!(of(failed), Outcome::Failed("b failed: the store says no".into()));
    }

    #[test]
    fn a_database_without_a_place_for_backups_is_known() {
        let of = |spec| {
            let database = json!({
                "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec
            });
            has_place(&serde_json::from_value(database).unwrap())
        };
        assert!(!of(json!({})));
        assert!(!of(json!({"backup": {"schedule": "0 2 * * *"}})));
        assert!(of(json!({"backup": {"to": {"s3": {"bucket": "b"}}}})));
        assert!(method("full").is_ok() && method("some").is_err());
    }
}
