//! `keelson restart`: instances get new pods, one after another, with the volumes that they have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{annotations, labels};
use keelson_api::v1::Database;
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::cluster::{Found, Which};
use super::words::{listed, program, span};
use super::{Ended, Failure};

/// What to restart.
#[derive(Args)]
pub struct RestartArgs {
    #[command(flatten)]
    which: Which,
    /// This instance alone.
    #[arg(long, value_name = "POD")]
    instance: Option<String>,
    /// How many seconds to wait until all are back; 0 to only ask for it.
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    timeout: u64,
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Asks for it, and waits until all that were to restart have, and serve.
pub async fn restart(args: RestartArgs) -> Result<Ended, Failure> {
    let Found { client, namespace, database } = args.which.find().await?;
    let name = database.name_any();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let before = uids(&pods, &name).await?;
    let databases: Api<Database> = Api::namespaced(client, &namespace);
    let meant: Vec<String> = match &args.instance {
        Some(instance) if !before.contains_key(instance) => {
            let there: Vec<&String> = before.keys().collect();
            return Err(Failure::Said(format!(
                "{instance} is no instance of {name}. Those are {}",
                listed(&there)
            )));
        }
        Some(instance) => {
            // An eviction is refused while another instance is away. One that leads hands over before it ends.
            let evicted = pods.evict(instance, &EvictParams::default()).await;
            evicted.map_err(|error| refused(instance, &error))?;
            vec![instance.clone()]
        }
        None => {
            let wish = json!({"metadata": {"annotations": {annotations::RESTART_INSTANCES: Timestamp::now().to_string()}}});
            let asked = databases.patch(&name, &PatchParams::default(), &Patch::Merge(wish)).await;
            asked.map_err(Failure::during(format!("asking for a restart of {namespace}/{name}")))?;
            before.keys().cloned().collect()
        }
    };
    if args.timeout == 0 {
        println!(
            "a restart of {} is asked for: `{} status {name}` shows how it goes",
            listed(&meant),
            program()
        );
        return Ok(Ended::Well);
    }
    let (start, mut said) = (Instant::now(), String::new());
    while start.elapsed() < Duration::from_secs(args.timeout) {
        let doing = format!("reading the Database {namespace}/{name}");
        let database = databases.get(&name).await.map_err(Failure::during(doing))?;
        match standing(&database, &meant, &before, &uids(&pods, &name).await?) {
            Standing::Done => {
                let took = i64::try_from(start.elapsed().as_secs()).unwrap_or(i64::MAX);
                println!("{} restarted in {}", listed(&meant), span(took));
                return Ok(Ended::Well);
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
        "not all of {name} have restarted after {} s ({said}); it goes on: `{} status {name}` says what it waits for",
        args.timeout,
        program()
    )))
}

fn refused(instance: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 429 => Failure::Said(format!(
            "{instance} is not restarted while another instance is away: {}. Try again when all serve",
            status.message
        )),
        error => Failure::of(format!("restarting {instance}"), error),
    }
}

async fn uids(pods: &Api<Pod>, database: &str) -> Result<BTreeMap<String, String>, Failure> {
    let of_it = ListParams::default().labels(&format!("{}={database}", labels::DATABASE));
    let found =
        pods.list(&of_it).await.map_err(Failure::during(format!("listing the pods of {database}")))?;
    Ok(found.items.iter().filter_map(|pod| Some((pod.name_any(), pod.uid()?))).collect())
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Goes(String),
    Done,
}

fn standing(
    database: &Database,
    meant: &[String],
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Standing {
    let status = database.status.clone().unwrap_or_default();
    let is_new = |pod: &&String| now.get(*pod).is_some_and(|uid| before.get(*pod) != Some(uid));
    let serves = |pod: &&String| status.instances.iter().any(|one| one.name == **pod && one.ready);
    let new = meant.iter().filter(is_new).count();
    let condition = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
    let ready = condition("Ready").is_some_and(|one| one.status == "True");
    let progress = condition("Progressing").filter(|one| one.status == "True");
    if new == meant.len() && meant.iter().all(|pod| serves(&pod)) && ready && progress.is_none() {
        return Standing::Done;
    }
    let what = match (progress, condition("Degraded").filter(|one| one.status == "True")) {
        (Some(progress), _) => format!(": {}", progress.message),
        (None, Some(degraded)) => format!(": {}", degraded.message),
        (None, None) => String::new(),
    };
    Standing::Goes(format!("{new} of {} restarted{what}", meant.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_done_when_each_has_a_new_pod_and_serves() {
        let pods = |all: &[(&str, &str)]| {
            all.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let database = |ready: bool, progressing: &str| -> Database {
            let condition = |kind: &str, status: &str, message: &str| {
                json!({
                    "type": kind, "status": status, "reason": "R", "message": message,
                    "lastTransitionTime": "2026-11-18T00:00:00Z"
                })
            };
            serde_json::from_value(json!({
                "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "o"}, "spec": {},
                "status": {
                    "instances": [{"name": "o-0", "ready": ready}, {"name": "o-1", "ready": true}],
                    "conditions": [
                        condition("Ready", "True", ""), condition("Progressing", progressing, "o-0 is replaced")
                    ]
                }
            }))
            .unwrap()
        };
        let meant = ["o-0".to_owned(), "o-1".to_owned()];
        let before = pods(&[("o-0", "a"), ("o-1", "b")]);
        let half = standing(&database(true, "True"), &meant, &before, &pods(&[("o-0", "a"), ("o-1", "c")]));
        assert_eq!(half, Standing::Goes("1 of 2 restarted: o-0 is replaced".to_owned()));
        let all = pods(&[("o-0", "d"), ("o-1", "c")]);
        assert_ne!(standing(&database(false, "False"), &meant, &before, &all), Standing::Done);
        assert_ne!(standing(&database(true, "True"), &meant, &before, &all), Standing::Done);
        assert_eq!(standing(&database(true, "False"), &meant, &before, &all), Standing::Done);
    }
}
