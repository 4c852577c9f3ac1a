//! `keelson restore`: a new Database from a backup, or from a moment of another. The other one stays as it is.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use keelson_api::v1::{Backup, Database, Repository, Restore, RestoreSource, RestoreTarget};
use keelson_api::value::{Span, Written};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::cluster::{Found, Which};
use super::output::yaml;
use super::words::{moment, program, span};
use super::{Ended, Failure};

/// What to bring back, as what.
#[derive(Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    which: Which,
    /// The name of the new Database; without it, the old one's with `-restored`.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// The Backup to begin with; without it, the one that fits best.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// The moment: a time such as `2026-11-16T09:30:00Z`, or a span ago such as `15m`; without it, the latest.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["lsn", "point"])]
    to: Option<String>,
    /// The place in the log, such as `0/3000060`.
    #[arg(long, conflicts_with = "point")]
    lsn: Option<String>,
    /// A point that was named with `pg_create_restore_point`.
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// How many instances it is to have; without it, as many as the old one.
    #[arg(long)]
    replicas: Option<i32>,
    /// Print the manifest, and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many seconds to wait until it takes writes; 0 to only ask for it.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    timeout: u64,
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Makes it, and waits until it takes writes.
pub async fn restore(args: RestoreArgs) -> Result<Ended, Failure> {
    let Found { client, namespace, database } = args.which.find().await?;
    let backup = match &args.backup {
        Some(name) => {
            let backups: Api<Backup> = Api::namespaced(client.clone(), &namespace);
            let found = backups.get_opt(name).await;
            let found = found.map_err(Failure::during(format!("reading the Backup {namespace}/{name}")))?;
            Some(found.ok_or_else(|| Failure::Said(no_backup(name, &database.name_any())))?)
        }
        None => None,
    };
    let target = target(&args, Timestamp::now())?;
    check(&database, backup.as_ref(), &target)?;
    let new = manifest(&args, &database, target);
    let name = new.name_any();
    let text = yaml(&written(&new))?;
    if args.dry_run {
        print!("{text}");
        return Ok(Ended::Well);
    }
    let databases: Api<Database> = Api::namespaced(client, &namespace);
    let made = databases.create(&PostParams::default(), &new).await;
    made.map_err(|error| match &error {
        kube::Error::Api(status) if status.is_already_exists() => Failure::Said(format!(
            "there is a Database {name} already, and data is brought back only into a new one: choose another name with --as"
        )),
        error => Failure::of(format!("making the Database {namespace}/{name}"), error),
    })?;
    if args.timeout == 0 {
        println!("{name} is asked for: `{} status {name}` shows how it goes", program());
        return Ok(Ended::Well);
    }
    wait(&databases, &name, args.timeout).await
}

async fn wait(databases: &Api<Database>, name: &str, timeout: u64) -> Result<Ended, Failure> {
    let (start, mut said) = (Instant::now(), String::new());
    while start.elapsed() < Duration::from_secs(timeout) {
        let found =
            databases.get(name).await.map_err(Failure::during(format!("reading the Database {name}")))?;
        match standing(&found) {
            Standing::Done(endpoint) => {
                let took = i64::try_from(start.elapsed().as_secs()).unwrap_or(i64::MAX);
                println!("{name} takes writes at {endpoint}, after {}", span(took));
                return Ok(Ended::Well);
            }
            Standing::Wrong(why) => {
                return Err(Failure::Said(format!(
                    "{name} is not brought back: {why}. It is there, and `{} status {name}` says more; to try otherwise, \
                     delete it first",
                    program()
                )));
            }
            Standing::Goes(words) if words != said => {
                eprintln!("{words}");
                said = words;
            }
            Standing::Goes(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(Failure::Said(format!(
        "{name} does not take writes after {timeout} s ({said}); it goes on: `{} status {name}` says where it stands",
        program()
    )))
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Goes(String),
    Done(String),
    Wrong(String),
}

fn standing(database: &Database) -> Standing {
    let status = database.status.clone().unwrap_or_default();
    let condition = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
    let phase = status.phase.as_ref().map_or("New", |phase| phase.as_str());
    if condition("Ready").is_some_and(|one| one.status == "True") {
        return Standing::Done(status.endpoint.unwrap_or_default());
    }
    if let Some(one) = condition("Degraded").filter(|one| one.status == "True" && phase == "Failed") {
        return Standing::Wrong(format!("{}: {}", one.reason, one.message));
    }
    let message = condition("Ready").map(|one| one.message.clone()).unwrap_or_default();
    Standing::Goes(format!("{phase}: {message}").trim_end_matches([':', ' ']).to_owned())
}

fn no_backup(name: &str, database: &str) -> String {
    format!(
        "there is no Backup {name}: kubectl get backups lists them; without --backup, the one of {database} that fits best is taken"
    )
}

fn target(args: &RestoreArgs, now: Timestamp) -> Result<Option<RestoreTarget>, Failure> {
    let time = args.to.as_deref().map(|text| point_in_time(text, now)).transpose()?;
    let target = RestoreTarget {
        time: time.map(|time| Written::of(&time)),
        lsn: args.lsn.clone(),
        name: args.point.clone(),
        timeline: None,
    };
    Ok((target != RestoreTarget::default()).then_some(target))
}

/// A time, or a span before now.
fn point_in_time(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let ago = text.trim_start_matches('-').trim_end_matches("ago").trim();
    let ago = ago.parse::<Span>().ok().and_then(|ago| jiff::SignedDuration::try_from(ago.duration()).ok());
    ago.and_then(|ago| now.checked_sub(ago).ok()).ok_or_else(|| {
        Failure::Said(format!(
            "`{text}` is no moment: write a time with its zone, such as 2026-11-16T09:30:00Z, or a span ago, such as 15m"
        ))
    })
}

/// What can be known before it is tried.
fn check(
    database: &Database,
    backup: Option<&Backup>,
    target: &Option<RestoreTarget>,
) -> Result<(), Failure> {
    let name = database.name_any();
    let said = |words: String| Err(Failure::Said(words));
    if database.spec.backup.as_ref().and_then(|policy| policy.to.as_ref()).is_none() {
        return said(format!("{name} has no backups: spec.backup.to names no place for them"));
    }
    if let Some(backup) = backup {
        if backup.spec.database != name {
            return said(format!(
                "{} is a Backup of {}, and not of {name}",
                backup.name_any(),
                backup.spec.database
            ));
        }
        if backup.status.as_ref().and_then(|status| status.id.as_ref()).is_none() {
            return said(format!("{} is not complete: wait for it, or name another", backup.name_any()));
        }
    }
    let summary = database.status.as_ref().and_then(|status| status.backup.clone()).unwrap_or_default();
    let time = target.as_ref().and_then(|target| target.time.as_ref()?.parse().ok());
    let (first, last) =
        (summary.first_recoverable.map(|time| time.0), summary.last_recoverable.map(|time| time.0));
    match (time, first, last) {
        (Some(time), Some(first), _) if time < first => said(format!(
            "{name} can be brought back to {} at the earliest, and not to {}",
            moment(first),
            moment(time)
        )),
        (Some(time), _, Some(last)) if time > last => said(format!(
            "the log of {name} in the repository goes to {} so far, and not to {}: leave --to away for the latest",
            moment(last),
            moment(time)
        )),
        (_, None, None) if backup.is_none() => said(format!(
            "{name} has nothing to restore from yet: `{} backup {name}` makes a backup",
            program()
        )),
        _ => Ok(()),
    }
}

/// The new one: as the old one, but for what it is called, where its data comes from, and where its own backups go.
fn manifest(args: &RestoreArgs, database: &Database, to: Option<RestoreTarget>) -> Database {
    let old = database.name_any();
    let name = args.name.clone().unwrap_or_else(|| format!("{old}-restored"));
    let mut spec = database.spec.clone();
    let from = match &args.backup {
        Some(backup) => RestoreSource { backup: Some(backup.clone()), ..RestoreSource::default() },
        None => RestoreSource { database: Some(old), ..RestoreSource::default() },
    };
    spec.restore = Some(Restore { from: Some(from), to, in_place: None });
    if args.replicas.is_some() {
        spec.replicas = args.replicas;
    }
    // Two databases can't share a path. Without one it follows from the name.
    if let Some(to) = spec.backup.as_mut().and_then(|policy| policy.to.as_mut()) {
        without_path(to);
    }
    let mut new = Database::new(&name, spec);
    new.metadata.namespace = database.namespace();
    new
}

fn without_path(to: &mut Repository) {
    let Repository { s3, gcs, azure, folder, .. } = to;
    let paths = [
        s3.as_mut().map(|s3| &mut s3.path),
        gcs.as_mut().map(|gcs| &mut gcs.path),
        azure.as_mut().map(|azure| &mut azure.path),
        folder.as_mut().map(|folder| &mut folder.path),
    ];
    paths.into_iter().flatten().for_each(|path| *path = None);
}

/// As a person would write it.
fn written(database: &Database) -> Value {
    json!({
        "apiVersion": "keelson.dev/v1",
        "kind": "Database",
        "metadata": {"name": database.name_any(), "namespace": database.namespace()},
        "spec": database.spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cluster::ClusterArgs;
    use crate::commands::golden::golden;

    fn args() -> RestoreArgs {
        RestoreArgs {
            which: Which { database: "orders".to_owned(), cluster: ClusterArgs::default() },
            name: None,
            backup: None,
            to: Some("2026-11-18T11:00:00Z".to_owned()),
            lsn: None,
            point: None,
            replicas: None,
            dry_run: true,
            timeout: 0,
        }
    }

    fn database() -> Database {
        serde_json::from_value(json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {
                "replicas": 3, "storage": "50Gi",
                "backup": {"retention": "30d", "to": {"s3": {"bucket": "backups", "path": "shop/orders"}}}
            },
            "status": {"backup": {
                "firstRecoverable": "2026-10-19T02:30:00Z", "lastRecoverable": "2026-11-18T11:59:20Z"
            }}
        }))
        .unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-18T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_new_one_is_as_the_old_one_with_backups_of_its_own() {
        let args = args();
        let target = target(&args, now()).unwrap();
        let text = yaml(&written(&manifest(&args, &database(), target))).unwrap();
        golden("restore.yaml", &text);
    }

    #[test]
    fn moments_are_times_or_spans_ago() {
        let at = |text: &str| point_in_time(text, now()).map(|time| time.to_string());
        assert_eq!(at("2026-11-18T11:00:00+01:00").unwrap(), "2026-11-18T10:00:00Z");
        assert_eq!(at("15m").unwrap(), "2026-11-18T11:45:00Z");
        assert_eq!(at("15m ago").unwrap(), "2026-11-18T11:45:00Z");
        assert!(at("yesterday").unwrap_err().to_string().contains("`yesterday` is no moment"));
    }

    #[test]
    fn what_can_t_come_out_well_is_not_begun() {
        let to = |time: &str| Some(RestoreTarget { time: Some(time.into()), ..RestoreTarget::default() });
        let said =
            |database: &Database, target| check(database, None, &target).map_err(|why| why.to_string());
        assert_eq!(said(&database(), to("2026-11-18T11:00:00Z")), Ok(()));
        assert!(said(&database(), to("2026-10-01T00:00:00Z")).unwrap_err().contains("at the earliest"));
        assert!(said(&database(), to("2026-11-18T12:30:00Z")).unwrap_err().contains("leave --to away"));
        let mut none = database();
        none.status = None;
        assert!(said(&none, None).unwrap_err().contains("nothing to restore from yet"));
        none.spec.backup = None;
        assert!(said(&none, None).unwrap_err().contains("spec.backup.to names no place"));
        let backup = serde_json::from_value(json!({
            "apiVersion": "keelson.dev/v1", "kind": "Backup", "metadata": {"name": "b"}, "spec": {"database": "billing"}
        }))
        .unwrap();
        let other = check(&database(), Some(&backup), &None).unwrap_err().to_string();
        assert_eq!(other, "b is a Backup of billing, and not of orders");
    }

    #[test]
    fn where_it_stands_is_said_until_it_takes_writes_or_can_t() {
        let of = |status: Value| {
            let mut found = database();
            found.status = serde_json::from_value(status).unwrap();
            standing(&found)
        };
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!([{
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-18T00:00:00Z"
            }])
        };
        let restoring = condition("Ready", "False", "Restoring", "its data is being brought back");
        let goes = of(json!({"phase": "Restoring", "conditions": restoring}));
        assert_eq!(goes, Standing::Goes("Restoring: its data is being brought back".to_owned()));
        let refused = condition("Degraded", "True", "RestoreTargetRefused", "too early");
        let wrong = of(json!({"phase": "Failed", "conditions": refused}));
        assert_eq!(wrong, Standing::Wrong("RestoreTargetRefused: too early".to_owned()));
        let ready = condition("Ready", "True", "Writable", "");
        assert_eq!(
            of(json!({"endpoint": "e:5432", "conditions": ready})),
            Standing::Done("e:5432".to_owned())
        );
        assert_eq!(of(json!({})), Standing::Goes("New".to_owned()));
    }
}
