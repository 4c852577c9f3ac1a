//! From installation over upgrades to the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::DynamicObject;
use serde_json::json;

use crate::bed::{Bed, SHOP, SYSTEM};
use crate::rendered::chart;

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn small() -> serde_json::Value {
    json!({ "replicas": 1, "backup": { "schedule": "0 2 * * *", "retention": "30d" } })
}

#[tokio::test]
async fn once_installed_two_operators_convert_check_and_look_after() {
    let bed = Bed::open().await;
    let start = Instant::now();
    bed.install(&chart(), &[]).unwrap();
    println!("installed and ready after {:.1} s", start.elapsed().as_secs_f64());
    let pods = bed.pods().await;
    assert_eq!(pods.iter().filter(|pod| is_ready(pod)).count(), 2);

    bed.create("v1alpha1", SHOP, "orders", small()).await.unwrap();
    let shown = bed.databases("v1", SHOP).get("orders").await.unwrap();
    assert_eq!(shown.data["spec"]["backup"]["retention"], "30d");
    bed.looked_after(SHOP, "orders").await;

    let never = json!({ "backup": { "schedule": "0 0 30 2 *" } });
    let refused = bed.create("v1", SHOP, "never", never).await.unwrap_err().to_string();
    assert!(refused.contains("spec.backup.schedule: `0 0 30 2 *` never happens"), "{refused}");
    let nothing = json!({ "storage": "0" });
    let refused = bed.create("v1", SHOP, "nothing", nothing).await.unwrap_err().to_string();
    assert!(refused.contains("such as 50Gi"), "the policy is in force: {refused}");

    for pod in &pods {
        println!("{}: {:.1} MiB resident", pod.metadata.name.as_deref().unwrap(), resident(&bed, pod));
    }
    bed.close().await;
}

/// The memory of an operator by its own account, in MiB.
fn resident(bed: &Bed, pod: &Pod) -> f64 {
    let name = pod.metadata.name.as_deref().unwrap();
    let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{name}:8080/proxy/metrics");
    let metrics = bed.cluster.kubectl(&["get", "--raw", &path]).unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    line.unwrap().parse::<f64>().unwrap() / f64::from(1 << 20)
}

/// The chart as an older version may have been.
fn older() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("older-chart");
    let _ = fs::remove_dir_all(&folder);
    assert!(Command::new("cp").arg("--recursive").args([&chart(), &folder]).status().unwrap().success());
    let version = env!("CARGO_PKG_VERSION");
    for (file, now, then) in [
        ("Chart.yaml", version, "0.0.1"),
        ("templates/generated/crds/keelson.dev.databases.yaml", "    - db\n", "    - dbs\n"),
        ("templates/generated/webhook.yaml", "timeoutSeconds: 5", "timeoutSeconds: 4"),
    ] {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(now), "{file} has no {now:?}");
        fs::write(&path, text.replace(now, then)).unwrap();
    }
    folder
}

/// Asks for a Database in another version than the stored one until told to stop. Returns how often it was
/// asked for, and what went wrong.
async fn converted(databases: Api<DynamicObject>, enough: Arc<AtomicBool>) -> (u32, Vec<String>) {
    let (mut asked, mut failures) = (0, Vec::new());
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    while !enough.load(Ordering::Relaxed) {
        pace.tick().await;
        asked += 1;
        if let Err(error) = databases.get("orders").await {
            failures.push(error.to_string());
        }
    }
    (asked, failures)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_from_an_older_chart_changes_what_it_should_and_nobody_notices() {
    let bed = Bed::open().await;
    bed.install(&older(), &[]).unwrap();
    bed.create("v1alpha1", SHOP, "orders", small()).await.unwrap();
    bed.looked_after(SHOP, "orders").await;
    let before = bed.databases("v1", SHOP).get("orders").await.unwrap();
    let bundles = bed.bundles().await;
    assert!(bundles.iter().all(Option::is_some), "{bundles:?}");

    let enough = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(converted(bed.databases("v1alpha1", SHOP), enough.clone()));
    let generations = bed.generations().await;
    bed.install(&chart(), &[]).unwrap();
    // One change each, Helm's own: nobody took the authorities away and put them back.
    assert_eq!(bed.generations().await, generations.map(|generation| generation + 1));
    // Once more with another value: what is at work is replaced, the definitions are not touched.
    bed.install(&chart(), &["log.level=debug"]).unwrap();
    enough.store(true, Ordering::Relaxed);
    let (asked, failures) = asking.await.unwrap();
    println!("{asked} conversions during two upgrades, {} failed", failures.len());
    assert!(asked > 50 && failures.is_empty(), "{asked} asked for, {failures:?}");

    assert_eq!(bed.definition().await.spec.names.short_names.unwrap(), ["db"]);
    assert_eq!(bed.webhook().await.webhooks.unwrap()[0].timeout_seconds, Some(5));
    assert_eq!(bed.generations().await, generations.map(|generation| generation + 1));
    assert_eq!(bed.bundles().await, bundles);
    let after = bed.databases("v1", SHOP).get("orders").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.data["spec"], before.data["spec"]);
    bed.close().await;
}

#[tokio::test]
async fn what_was_uninstalled_leaves_databases_behind_and_can_be_installed_again() {
    let bed = Bed::open().await;
    bed.install(&chart(), &[]).unwrap();
    bed.create("v1alpha1", SHOP, "orders", small()).await.unwrap();
    bed.looked_after(SHOP, "orders").await;
    let uid = bed.databases("v1", SHOP).get("orders").await.unwrap().metadata.uid;
    let secrets = Api::<Secret>::namespaced(bed.cluster.client(), SYSTEM);
    let root = secrets.get("keelson-root").await.unwrap().data;

    bed.uninstall();
    let left = bed.databases("v1", SHOP).get("orders").await.unwrap();
    assert_eq!(left.metadata.uid, uid);
    let rules = bed.cluster.kubectl(&["get", "validatingwebhookconfiguration,clusterrole", "--output=name"]);
    assert!(!rules.unwrap().contains("keelson"), "all else is gone");

    bed.install(&chart(), &[]).unwrap();
    let again = bed.databases("v1alpha1", SHOP).get("orders").await.unwrap();
    assert_eq!(again.metadata.uid, uid);
    assert_eq!(secrets.get("keelson-root").await.unwrap().data, root, "all passwords are as they were");
    bed.close().await;
}

#[cfg(feature = "long-tests")]
#[tokio::test]
async fn the_file_that_needs_no_helm_installs_the_same() {
    let bed = Bed::open().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/install.yaml").display().to_string();
    bed.cluster.name_image(crate::bed::IMAGE, &format!("keelson:{}", env!("CARGO_PKG_VERSION"))).unwrap();
    bed.cluster.kubectl(&["apply", "--server-side", "--filename", &file]).unwrap();
    let wait = ["rollout", "status", "deployment/keelson", "--namespace", SYSTEM, "--timeout=60s"];
    bed.cluster.kubectl(&wait).unwrap();
    bed.create("v1alpha1", SHOP, "orders", small()).await.unwrap();
    bed.looked_after(SHOP, "orders").await;
    // Once more changes nothing, and takes nothing away that the operator has written.
    let (generations, bundles) = (bed.generations().await, bed.bundles().await);
    bed.cluster.kubectl(&["apply", "--server-side", "--filename", &file]).unwrap();
    assert_eq!((bed.generations().await, bed.bundles().await), (generations, bundles));
    bed.release().await;
    bed.cluster.kubectl(&["delete", "--filename", &file, "--timeout=2m"]).unwrap();
    bed.close().await;
}
