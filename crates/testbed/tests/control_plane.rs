//! An API server without nodes, for tests: quick, several at once, gone with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use testbed::{ControlPlane, Look, until, until_blocking};
use tokio::sync::Mutex;

const SECONDS: Duration = Duration::from_secs(1);

/// One after the other: two starts at once would tell nothing about how long one takes.
static SERIAL: Mutex<()> = Mutex::const_new(());

async fn write(plane: &ControlPlane, name: &str) -> Result<ConfigMap, kube::Error> {
    let object: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::default_namespaced(plane.client()).create(&PostParams::default(), &object).await
}

fn processes_of(folder: &Path) -> Vec<String> {
    let wanted = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = all.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    let commands = commands.map(|command| String::from_utf8_lossy(&command).replace('\0', " "));
    commands.filter(|command| command.contains(&wanted)).collect()
}

fn folder_of(plane: &ControlPlane) -> PathBuf {
    plane.kubeconfig().parent().unwrap().to_path_buf()
}

#[tokio::test]
async fn control_planes_start_in_seconds_stand_apart_and_leave_nothing() {
    let _turn = SERIAL.lock().await;
    let start = Instant::now();
    let one = ControlPlane::start().await.unwrap();
    let took = start.elapsed();
    println!("a control plane took {took:?}");
    assert!(took < 5 * SECONDS, "{took:?}");

    let (two, three) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    let (two, three) = (two.unwrap(), three.unwrap());
    write(&one, "mine").await.unwrap();
    for other in [&two, &three] {
        let listed =
            Api::<ConfigMap>::default_namespaced(other.client()).list(&ListParams::default()).await.unwrap();
        assert!(listed.iter().all(|object| object.metadata.name.as_deref() != Some("mine")));
    }
    let folders: Vec<PathBuf> = [&one, &two, &three].into_iter().map(folder_of).collect();
    assert!(folders.iter().all(|folder| processes_of(folder).len() >= 2));
    drop((one, two, three));
    for folder in folders {
        assert_eq!(processes_of(&folder), [""; 0]);
        assert!(!folder.exists(), "{}", folder.display());
    }
}

#[tokio::test]
async fn the_api_server_can_stand_still_or_go_away_and_keeps_what_it_was_told() {
    let _turn = SERIAL.lock().await;
    let mut plane = ControlPlane::start().await.unwrap();
    write(&plane, "before").await.unwrap();

    plane.pause();
    let silent = tokio::time::timeout(SECONDS, write(&plane, "silent")).await;
    assert!(silent.is_err(), "no answer, no error: {silent:?}");
    plane.resume();
    write(&plane, "after-the-pause").await.unwrap();

    plane.stop().unwrap();
    let gone = tokio::time::timeout(10 * SECONDS, write(&plane, "gone")).await;
    assert!(matches!(gone, Ok(Err(_))), "refused: {gone:?}");
    plane.start_again().await.unwrap();
    Api::<ConfigMap>::default_namespaced(plane.client()).get("before").await.unwrap();
    write(&plane, "after-the-stop").await.unwrap();
}

#[tokio::test]
async fn with_controllers_a_stateful_set_gets_its_pod_and_they_go_with_the_rest() {
    let _turn = SERIAL.lock().await;
    let mut plane = ControlPlane::start().await.unwrap();
    plane.start_controllers(&["--concurrent-statefulset-syncs=1"]).unwrap();
    let labels = json!({ "app": "web" });
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "serviceName": "web", "replicas": 1, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    });
    let set: StatefulSet = serde_json::from_value(set).unwrap();
    Api::default_namespaced(plane.client()).create(&PostParams::default(), &set).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    until("the pod to be made", 60 * SECONDS, || async {
        match pods.get_opt("web-0").await.unwrap() {
            Some(_) => Look::There(()),
            None => Look::NotYet("none".into()),
        }
    })
    .await
    .unwrap();
    let folder = folder_of(&plane);
    drop(plane);
    assert_eq!(processes_of(&folder), [""; 0]);
}

#[tokio::test]
async fn the_requests_of_one_user_are_written_down_and_no_others() {
    let _turn = SERIAL.lock().await;
    let (plane, audited) = ControlPlane::start_audited("somebody").await.unwrap();
    write(&plane, "by-the-test-itself").await.unwrap();
    let client = testbed::connect(&audited.kubeconfig).await.unwrap();
    let refused = Api::<ConfigMap>::default_namespaced(client).get("asked-for").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403), "it has no rights");
    let line =
        until_blocking("the request to be written down", 10 * SECONDS, || {
            match std::fs::read_to_string(&audited.log) {
                Ok(text) if text.ends_with('\n') => Look::There(text),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).expect("one line");
    assert_eq!(event["user"]["username"], "somebody");
    assert_eq!(event["objectRef"]["name"], "asked-for");
    assert_eq!(event["responseStatus"]["code"], 403);
}

#[test]
fn a_control_plane_goes_with_whoever_started_it_however_that_ends() {
    let _turn = SERIAL.blocking_lock();
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .arg("control-plane")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let kubeconfig = PathBuf::from(line.trim().strip_prefix("export KUBECONFIG=").unwrap());
    let folder = kubeconfig.parent().unwrap();
    assert!(processes_of(folder).len() >= 2);
    owner.kill().unwrap();
    owner.wait().unwrap();
    until_blocking("its processes to end", 20 * SECONDS, || {
        let left = processes_of(folder);
        if left.is_empty() && !folder.exists() { Look::There(()) } else { Look::NotYet(format!("{left:?}")) }
    })
    .unwrap();
}
