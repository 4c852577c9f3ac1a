//! Clusters come and go without a trace.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::sandbox::{self, MINUTE, Sandbox, claim_spec, from_json};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{ListParams, LogParams, PostParams};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use testbed::{Cluster, Fault, Image, Layout, Look, until, until_blocking};

const PROGRAM: &str = env!("CARGO_BIN_EXE_testbed");

/// A folder for a cluster beside the one that the other tests use.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What a cluster could leave behind, on the whole machine.
#[derive(Debug)]
struct Traces(BTreeSet<String>);

impl Traces {
    /// Of processes and control groups only those that have to do with `folder`.
    fn of(folder: &Path) -> Traces {
        let mut traces = BTreeSet::new();
        for (kind, argv) in [
            ("mount", &["cat", "/proc/mounts"][..]),
            ("loop device", &["losetup", "--list", "--noheadings", "--output", "NAME,BACK-INO"]),
            ("link", &["ip", "-o", "link"]),
            ("route", &["ip", "route"]),
            ("namespace", &["lsns", "--noheadings", "--output", "TYPE,NS", "--type", "net"]),
            ("namespace", &["lsns", "--noheadings", "--output", "TYPE,NS", "--type", "pid"]),
        ] {
            let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            traces.extend(text.lines().map(|line| format!("{kind}: {}", line.trim())));
        }
        let wanted = folder.to_string_lossy().into_owned();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.contains(&wanted) {
                traces.insert(format!("process: {command}"));
            }
        }
        for tree in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            for group in fs::read_dir(tree.path()).into_iter().flatten().flatten() {
                let name = group.file_name().to_string_lossy().into_owned();
                if name.starts_with("keelson-testbed-") {
                    traces.insert(format!("control group: {}/{name}", tree.path().display()));
                }
            }
        }
        Traces(traces)
    }

    /// What is there now and was not before. Namespaces go a moment after their last process.
    fn left_since(before: &Traces, folder: &Path) {
        until_blocking("all traces to be gone", Duration::from_secs(20), || {
            let now = Traces::of(folder);
            let left: Vec<&String> = now.0.difference(&before.0).collect();
            if left.is_empty() { Look::There(()) } else { Look::NotYet(format!("{left:#?}")) }
        })
        .unwrap();
        assert!(!folder.exists());
    }
}

#[tokio::test]
async fn down_leaves_nothing_also_with_a_pod_that_waits_for_a_frozen_volume() {
    let _turn = sandbox::turn().await;
    let folder = folder("down");
    let layout = Layout::new(&folder).unwrap();
    Cluster::down(&layout).unwrap();
    let before = Traces::of(&folder);

    let cluster = Cluster::up(&layout, Some(1)).await.unwrap();
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(cluster.client());
    let claim = from_json(json!({ "metadata": { "name": "data" }, "spec": claim_spec("64Mi", None) }));
    claims.create(&PostParams::default(), &claim).await.unwrap();
    let pod = from_json(json!({ "metadata": { "name": "writer" }, "spec": {
        "containers": [{
            "name": "main", "image": "busybox:stable",
            "command": ["sh", "-c", "while true; do date > /data/now; sync; touch /tmp/done; done"],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
    }}));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until("the pod to run", MINUTE, || async {
        match pods.get("writer").await {
            Ok(pod) if sandbox::is_ready(&pod) => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let volume = cluster.volume("default", "data").await.unwrap();
    cluster.inject(&Fault::VolumeFreeze { volume }).unwrap();
    assert!(Traces::of(&folder).0.len() > before.0.len() + 20, "there is something to remove");

    Cluster::down(&layout).unwrap();
    Traces::left_since(&before, &folder);
}

#[tokio::test]
async fn a_start_that_broke_off_is_made_good_by_the_next_and_a_second_start_does_nothing() {
    let _turn = sandbox::turn().await;
    let folder = folder("broken-off");
    let layout = Layout::new(&folder).unwrap();
    Cluster::down(&layout).unwrap();
    let before = Traces::of(&folder);
    let kubeconfig = || fs::read_to_string(layout.kubeconfig()).unwrap();

    for end in ["up", "down"] {
        let mut starting = Command::new(PROGRAM)
            .args(["--dir", &folder.to_string_lossy(), "up", "--nodes", "1"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until_blocking("the start to be under way", MINUTE, || {
            if layout.logs("node-1").join("containerd.log").exists() {
                return Look::There(());
            }
            Look::NotYet("no node yet".into())
        })
        .unwrap();
        starting.kill().unwrap();
        starting.wait().unwrap();
        if end == "up" {
            let start = Instant::now();
            Cluster::up(&layout, Some(1)).await.unwrap();
            let took = start.elapsed();
            println!("up, when all is built: {took:?}");
            assert!(took < Duration::from_secs(30), "{took:?}");
            let (first, start) = (kubeconfig(), Instant::now());
            Cluster::up(&layout, None).await.unwrap();
            println!("up, when it runs: {:?}", start.elapsed());
            assert_eq!(kubeconfig(), first, "the second time does nothing");
            let other = sandbox::said(Cluster::up(&layout, Some(2)).await.map(drop));
            assert!(other.contains("cluster-down"), "{other}");
        }
        Cluster::down(&layout).unwrap();
        Traces::left_since(&before, &folder);
    }
}

#[tokio::test]
async fn nothing_of_the_cluster_is_on_the_machines_own_network() {
    let sandbox = Sandbox::open("leak").await;
    let [pod, _, _] = &sandbox.three_pods().await;
    for argv in [&["ip", "-o", "address"][..], &["ip", "route", "show", "table", "all"]] {
        let listed = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for network in ["10.90.", "10.96.", "10.244."] {
            assert!(!listed.contains(network), "{network} is in\n{listed}");
        }
    }
    // An address for documentation: whatever way out there were, it would be tried.
    let out = sandbox.inside(pod, "timeout 5 nc -w 5 192.0.2.1 80 -e true 2>&1");
    assert!(sandbox::said(out).contains("unreachable"), "there is no way out");
    sandbox.close().await;
}

/// The kernel tells everybody in the terminal's foreground group, which is the group that started it.
#[tokio::test]
async fn a_cluster_outlives_the_terminal_that_it_was_started_from() {
    let _turn = sandbox::turn().await;
    let folder = folder("terminal");
    let layout = Layout::new(&folder).unwrap();
    Cluster::down(&layout).unwrap();
    let dir = folder.to_string_lossy().into_owned();
    // The shell is the group's first process, and there for as long as the terminal is.
    let mut terminal = Command::new("sh")
        .args(["-c", "\"$@\" && echo up && sleep 600", "sh", PROGRAM, "--dir", &dir, "up", "--nodes", "1"])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(terminal.stdout.take().unwrap()).lines();
    assert!(said.map_while(Result::ok).any(|line| line == "up"));
    // Who was started in the background ignores the first two.
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        killpg(Pid::from_raw(terminal.id().try_into().unwrap()), signal).unwrap();
    }
    terminal.wait().unwrap();
    let cluster = Cluster::attach(&layout).await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    assert_eq!(sandbox::names(nodes.list(&ListParams::default()).await.unwrap().items), ["node-1"]);
    Cluster::down(&layout).unwrap();
}

#[tokio::test]
async fn what_the_project_builds_becomes_an_image_by_one_call() {
    let sandbox = Sandbox::open("load").await;
    let scratch = folder("image");
    let image =
        Image::of_programs("keelson/probe:1", &[("/bin/probe", Path::new(PROGRAM))], &scratch).unwrap();
    sandbox.cluster.load_image(&image).unwrap();
    sandbox
        .create::<Pod>(json!({ "metadata": { "name": "probe" }, "spec": {
            "restartPolicy": "Never",
            "securityContext": { "runAsNonRoot": true },
            "containers": [{ "name": "main", "image": "keelson/probe:1", "args": ["--version"] }],
        }}))
        .await;
    let pods = sandbox.api::<Pod>();
    until("the pod to end", MINUTE, || async {
        let status = pods.get("probe").await.unwrap().status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Succeeded") => Look::There(()),
            _ => Look::NotYet(format!("{status:?}")),
        }
    })
    .await
    .unwrap();
    let log = pods.logs("probe", &LogParams::default()).await.unwrap();
    assert_eq!(log.trim(), concat!("testbed ", env!("CARGO_PKG_VERSION")));
    sandbox.close().await;
}

/// Runs by itself, and once more below with another environment.
#[tokio::test]
async fn the_cluster_of_the_environment_answers() {
    let sandbox = Sandbox::open("env").await;
    let nodes = Api::<Node>::all(sandbox.cluster.client()).list(&ListParams::default()).await.unwrap();
    assert!(!nodes.items.is_empty());
    let faults = sandbox.cluster.faults();
    match std::env::var("CLUSTER").as_deref() {
        Ok("current") => assert!(sandbox::said(faults).contains("CLUSTER=current")),
        _ => assert_eq!(faults.unwrap(), []),
    }
    sandbox.close().await;
}

#[tokio::test]
async fn a_cluster_that_one_already_has_will_do() {
    let sandbox = Sandbox::open("current").await;
    let kubeconfig = sandbox.cluster.testbed().unwrap().kubeconfig();
    let run = |cluster: &str| {
        let test = ["--exact", "lifecycle::the_cluster_of_the_environment_answers", "--nocapture"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(test).env("CLUSTER", cluster).env("KUBECONFIG", &kubeconfig);
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (good, printed) = run("current");
    assert!(good && printed.contains("1 passed"), "{printed}");
    let (good, printed) = run("elsewhere");
    assert!(!good && printed.contains("say CLUSTER=current"), "{printed}");
    sandbox.close().await;
}
