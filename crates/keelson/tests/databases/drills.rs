//! Backups are restored by themselves, and what is wrong with them is said.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use keelson_api::instance::{annotations, ask_for_drill};
use keelson_api::v1::{Backup, Database, DrillResult};
use kube::Api;
use serde_json::json;
use testbed::{Look, until};

use crate::backups::{Store, archived, can_be_restored};
use crate::bed::{Bed, LONG, MINUTE, condition, primary};

/// The last drill that has ended.
fn last(database: &Database) -> Option<DrillResult> {
    database.status.clone()?.backup?.drill?.last
}

/// Asks for a drill and waits until it has ended and nothing is left of it.
async fn drilled(bed: &Bed, text: &str) -> (Database, DrillResult) {
    bed.patch(ask_for_drill(text)).await;
    let ended = bed
        .until(&format!("the drill {text}"), 2 * LONG, |database| {
            let drill = database.status.clone().and_then(|status| status.backup?.drill).unwrap_or_default();
            drill.asked.as_deref() == Some(text) && drill.running.is_none() && last(database).is_some()
        })
        .await;
    let (pods, claims): (Api<Pod>, Api<PersistentVolumeClaim>) = (bed.api(), bed.api());
    until("pod and claim to be gone", MINUTE, || async {
        let (pod, claim) = (pods.get_opt("orders-drill").await, claims.get_opt("orders-drill").await);
        match (pod.unwrap(), claim.unwrap()) {
            (None, None) => Look::There(()),
            (pod, claim) => Look::NotYet(format!("pod {}, claim {}", pod.is_some(), claim.is_some())),
        }
    })
    .await
    .unwrap();
    let result = last(&ended).unwrap();
    (ended, result)
}

/// Waits until a line is among the metrics of an instance.
async fn shows(bed: &Bed, pod: &str, line: &str) {
    let page = format!("/api/v1/namespaces/{}/pods/{pod}:9187/proxy/metrics", bed.namespace);
    until(&format!("{pod} to show {line}"), LONG, || async {
        match bed.cluster.kubectl(&["get", "--raw", &page]) {
            Ok(text) if text.lines().any(|found| found.starts_with(line)) => Look::There(()),
            Ok(text) => Look::NotYet(text.lines().filter(|line| line.contains("drill")).collect::<String>()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
}

/// The files whose paths end so, below a folder: the S3 server keeps objects as files.
fn objects(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(objects(&path, end));
        } else if kind.is_file() && path.to_str().is_some_and(|path| path.ends_with(end)) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_drill_proves_the_newest_backup_and_a_damaged_one_is_loud() {
    let bed = Bed::open("drills").await;
    let store = Store::open(&bed).await;
    let path = format!("{}/first", bed.namespace);
    bed.create(json!({
        "replicas": 1, "storage": "1Gi", "deletionPolicy": "Delete",
        "backup": {"maxDataLoss": "5s", "to": store.at(&path), "drill": {"schedule": "0 4 * * 0", "deadline": "10m"}}
    }))
    .await;
    bed.ready(1).await;
    let database = bed.until("the first backup", LONG, can_be_restored).await;
    assert_eq!(condition(&database, "BackupVerified").unwrap().1, "NoDrillYet");
    let leader = primary(&database);
    bed.ask(&leader, "create table t as select generate_series(1, 1000) id");
    bed.says(&leader, "postgres", "select count(*) > 0 from keelson.mark", "t").await;
    archived(&bed, &leader).await;

    let (database, good) = drilled(&bed, "good").await;
    assert!(good.passed && good.reason == "DrillSucceeded", "{good:?}\n{}", bed.evidence());
    assert!(good.rto_seconds.is_some() && good.rpo_seconds.is_some() && good.marks.is_some(), "{good:?}");
    assert!(
        good.pages.is_some_and(|pages| pages > 1000) && good.indexes.is_some_and(|many| many > 100),
        "{good:?}"
    );
    assert!(condition(&database, "BackupVerified").unwrap().0);
    let summary = database.status.unwrap().backup.unwrap();
    assert!(summary.last_drill.is_some() && summary.drill.unwrap().next.is_some());
    let backups: Api<Backup> = bed.api();
    let name = summary.last_backup.unwrap();
    let verified = backups.get(&name).await.unwrap().status.unwrap().verified.unwrap();
    assert!(verified.passed && verified.how == "drill", "{verified:?}");
    shows(&bed, &leader, "keelson_agent_drill_failing 0.0").await;
    shows(&bed, &leader, "keelson_agent_drill_last_success_timestamp_seconds").await;

    // One byte of the base backup is another, as a bad disk of the store might have it.
    let id = good.backup.unwrap();
    let folder = bed.cluster.testbed().unwrap().root();
    let parts = objects(folder, &format!("{path}/basebackups_005/{id}/tar_partitions/part_001.tar.zst"));
    let [part] = parts.as_slice() else { panic!("{parts:?} below {}", folder.display()) };
    let mut bytes = std::fs::read(part).unwrap_or_else(|error| panic!("{}: {error}", part.display()));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(part, bytes).unwrap();
    let (database, bad) = drilled(&bed, "bad").await;
    assert!(!bad.passed && bad.reason == "RepositoryCorrupt" && bad.message.contains("part_001"), "{bad:?}");
    let (holds, reason, message) = condition(&database, "BackupVerified").unwrap();
    assert!(!holds && reason == "RepositoryCorrupt" && message.contains("part_001"), "{message}");
    assert!(condition(&database, "Ready").unwrap().0, "it is in nobody's way");
    let events = bed.kubectl(&["get", "events"]);
    assert!(events.contains("DrillFailed"), "{events}");
    shows(&bed, &leader, "keelson_agent_drill_failing 1.0").await;
    let verified = backups.get(&name).await.unwrap().status.unwrap().verified.unwrap();
    assert!(!verified.passed, "{verified:?}");
    let pods: Api<Pod> = bed.api();
    let pod = pods.get(&leader).await.unwrap();
    assert!(!pod.metadata.annotations.unwrap_or_default().contains_key(annotations::DRILL_REPORT));
    bed.close().await;
}
