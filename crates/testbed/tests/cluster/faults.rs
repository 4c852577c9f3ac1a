//! Each fault really bites, as seen from inside a pod, and heals.

use std::time::{Duration, Instant};

use crate::sandbox::{self, MINUTE, Sandbox, clock, node, node_is, said};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::{Cluster, Container, Fault, HubComponent, Look, Volume, Which, Who, until};

const SECONDS: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_node_that_crashes_falls_silent_forgets_what_was_not_synced_and_comes_back() {
    let sandbox = Sandbox::open("crash").await;
    let [watcher, victim, _] = sandbox.three_pods().await;
    let address = sandbox.address("web-1").await;
    sandbox.inside(&victim, "echo kept > /data/synced; sync").unwrap();
    sandbox.inside(&victim, "echo lost > /data/unsynced").unwrap();
    let fault = Fault::NodeCrash { node: victim.node };

    sandbox.cluster.inject(&fault).unwrap();
    let connect = format!("timeout 2 nc {address} 8080 </dev/null 2>/dev/null; echo $?");
    let silence = sandbox.inside(&watcher, &connect).unwrap();
    assert!(
        silence.ends_with("143\n"),
        "no refusal, no error, just nothing until the time is over: {silence}"
    );
    assert!(
        victim.processes(sandbox.cluster.testbed().unwrap(), &Which::All).is_empty(),
        "nothing runs on it"
    );

    sandbox.cluster.heal(&fault).unwrap();
    until("the pod to be started again", 2 * MINUTE, || async {
        match sandbox.restarts("web-1").await {
            0 => Look::NotYet("not yet".into()),
            _ => Look::There(()),
        }
    })
    .await
    .unwrap();
    sandbox.pod_ready("web-1").await;
    let again = sandbox.container("web-1").await;
    assert_eq!(sandbox.inside(&again, "cat /data/synced").unwrap().trim(), "kept");
    let unsynced = sandbox.inside(&again, "cat /data/unsynced 2>/dev/null; true").unwrap();
    assert_eq!(unsynced.trim(), "", "what was not on the disk is lost");
    sandbox.reaches_again(&watcher, "web-1.web").await;
    sandbox.close().await;
}

#[tokio::test]
async fn a_frozen_node_stands_still_and_goes_on_as_if_nothing_had_been() {
    let sandbox = Sandbox::open("freeze").await;
    let [watcher, victim, _] = sandbox.three_pods().await;
    let address = sandbox.address("web-1").await;
    let fault = Fault::NodeFreeze { node: victim.node };
    let (_, pause_before) = clock(&sandbox, &victim);
    assert!(pause_before < 3, "{pause_before}");

    sandbox.cluster.inject(&fault).unwrap();
    let since = Instant::now();
    while since.elapsed() < 4 * SECONDS {
        assert!(!sandbox.reaches(&watcher, &address));
    }
    sandbox.cluster.heal(&fault).unwrap();
    sandbox.reaches_again(&watcher, &address).await;
    until("the clock to tell how long it stood still", MINUTE, || async {
        match clock(&sandbox, &victim) {
            (_, pause) if pause >= 4 => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(sandbox.restarts("web-1").await, 0);
    sandbox.close().await;
}

#[tokio::test]
async fn links_break_as_told_and_no_others() {
    let sandbox = Sandbox::open("links").await;
    let pods = sandbox.three_pods().await;
    let [a, b, c] = &pods;
    let addresses =
        [sandbox.address("web-0").await, sandbox.address("web-1").await, sandbox.address("web-2").await];
    let cluster = &sandbox.cluster;

    let both = Fault::LinkCut { from: a.node, to: b.node, both: true };
    cluster.inject(&both).unwrap();
    assert!(!sandbox.reaches(a, &addresses[1]) && !sandbox.reaches(b, &addresses[0]));
    assert!(
        sandbox.reaches(a, &addresses[2])
            && sandbox.reaches(b, &addresses[2])
            && sandbox.reaches(c, &addresses[0])
    );
    cluster.heal(&both).unwrap();
    sandbox.reaches_again(a, &addresses[1]).await;

    let one_way = Fault::LinkCut { from: a.node, to: b.node, both: false };
    cluster.inject(&one_way).unwrap();
    assert_eq!(pings_that_arrive(&sandbox, a, b, &addresses[1]), 0, "from a to b all is lost");
    assert_eq!(pings_that_arrive(&sandbox, b, a, &addresses[0]), 5, "from b to a all arrives");
    cluster.heal(&one_way).unwrap();
    assert_eq!(pings_that_arrive(&sandbox, a, b, &addresses[1]), 5);

    let cut_off = Fault::NodeCutOff { node: c.node };
    cluster.inject(&cut_off).unwrap();
    assert!(!sandbox.reaches(a, &addresses[2]) && !sandbox.reaches(c, &addresses[0]));
    assert!(!asks_api_server(&sandbox, c) && asks_api_server(&sandbox, a));
    assert!(sandbox.reaches(c, "localhost"), "it runs all the same");
    cluster.heal(&cut_off).unwrap();
    sandbox.reaches_again(a, &addresses[2]).await;
    sandbox.close().await;
}

/// How many of five pings get to the other pod, by its own count: no answer is needed for it.
fn pings_that_arrive(sandbox: &Sandbox, from: &Container, to: &Container, address: &str) -> u64 {
    let arrived = || -> u64 {
        let counters = sandbox.inside(to, "grep ^Icmp: /proc/net/snmp").unwrap();
        let mut lines = counters.lines().map(|line| line.split(' '));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        names.zip(values).find(|(name, _)| *name == "InEchos").unwrap().1.parse().unwrap()
    };
    let before = arrived();
    sandbox.inside(from, &format!("ping -q -i 0.05 -W 1 -c 5 {address} || true")).unwrap();
    arrived() - before
}

/// Whether the API server answers a pod. A plain request is refused by a server that wants TLS, but
/// it is answered.
fn asks_api_server(sandbox: &Sandbox, container: &Container) -> bool {
    let ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 2 nc 10.96.0.1 443";
    sandbox.inside(container, ask).is_ok_and(|answer| answer.contains("HTTP"))
}

#[tokio::test]
async fn a_node_can_lose_the_api_server_alone() {
    let sandbox = Sandbox::open("apicut").await;
    let [a, b, _] = &sandbox.three_pods().await;
    let fault = Fault::ApiCut { node: a.node };
    assert!(asks_api_server(&sandbox, a));

    sandbox.cluster.inject(&fault).unwrap();
    assert!(!asks_api_server(&sandbox, a), "the API server is out of reach");
    assert!(asks_api_server(&sandbox, b), "for this node only");
    assert!(sandbox.reaches(a, "web-1.web"), "names and pods are not");
    sandbox.cluster.heal(&fault).unwrap();
    until("the API server to answer again", MINUTE, || async {
        if asks_api_server(&sandbox, a) { Look::There(()) } else { Look::NotYet("silence".into()) }
    })
    .await
    .unwrap();
    sandbox.close().await;
}

#[tokio::test]
async fn packets_get_lost_in_the_share_that_was_asked_for() {
    let sandbox = Sandbox::open("loss").await;
    let [a, _, _] = &sandbox.three_pods().await;
    let address = sandbox.address("web-1").await;
    let lost = || -> u32 {
        let ping = sandbox.inside(a, &format!("ping -q -i 0.01 -W 1 -c 200 {address} || true")).unwrap();
        let percent = ping.split("% packet loss").next().unwrap().rsplit(' ').next().unwrap();
        percent.parse().unwrap_or_else(|_| panic!("{ping}"))
    };
    let fault = Fault::PacketLoss { node: a.node, percent: 30 };
    assert_eq!(lost(), 0);
    sandbox.cluster.inject(&fault).unwrap();
    // There and back again: 1 - 0.7², about half.
    let share = lost();
    assert!((30..=70).contains(&share), "{share}%");
    sandbox.cluster.heal(&fault).unwrap();
    assert_eq!(lost(), 0);
    sandbox.close().await;
}

#[tokio::test]
async fn the_api_server_can_be_stopped_paused_and_slow() {
    let sandbox = Sandbox::open("api").await;
    let [a, b, _] = &sandbox.three_pods().await;
    let component = HubComponent::ApiServer;
    let connects = || sandbox.inside(a, "nc -w 2 10.96.0.1 443 -e true").is_ok();

    let stopped = Fault::ComponentStop { component };
    sandbox.cluster.inject(&stopped).unwrap();
    assert!(!connects(), "nobody listens");
    assert!(sandbox.reaches(a, "web-1.web"), "pods go on without it");
    sandbox.cluster.heal(&stopped).unwrap();
    api_answers(&sandbox.cluster).await;

    let paused = Fault::ComponentPause { component };
    sandbox.cluster.inject(&paused).unwrap();
    assert!(connects(), "the kernel still takes connections");
    assert!(!asks_api_server(&sandbox, a), "but nobody says a word");
    sandbox.cluster.heal(&paused).unwrap();
    api_answers(&sandbox.cluster).await;

    let slow = Fault::ComponentSlow { component, milliseconds: 800 };
    sandbox.cluster.inject(&slow).unwrap();
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let start = Instant::now();
        sandbox.inside(b, "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc 10.96.0.1 443").unwrap();
        longest = longest.max(start.elapsed());
    }
    assert!(longest > 300 * SECONDS / 1000, "{longest:?}");
    sandbox.cluster.heal(&slow).unwrap();
    api_answers(&sandbox.cluster).await;
    sandbox.close().await;
}

#[tokio::test]
async fn etcd_can_be_stopped_paused_and_slow_and_keeps_what_it_knew() {
    let sandbox = Sandbox::open("etcd").await;
    sandbox.create::<ConfigMap>(json!({ "metadata": { "name": "before" } })).await;
    for fault in [
        Fault::ComponentPause { component: HubComponent::Etcd },
        Fault::ComponentStop { component: HubComponent::Etcd },
    ] {
        sandbox.cluster.inject(&fault).unwrap();
        let write = async {
            let object: ConfigMap = sandbox::from_json(json!({ "metadata": { "generateName": "during-" } }));
            sandbox.api::<ConfigMap>().create(&PostParams::default(), &object).await
        };
        let written = tokio::time::timeout(3 * SECONDS, write).await;
        assert!(!matches!(written, Ok(Ok(_))), "nothing can be written under {fault}: {written:?}");
        sandbox.cluster.heal(&fault).unwrap();
        api_answers(&sandbox.cluster).await;
        sandbox.api::<ConfigMap>().get("before").await.unwrap();
    }
    let slow = Fault::ComponentSlow { component: HubComponent::Etcd, milliseconds: 800 };
    sandbox.cluster.inject(&slow).unwrap();
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let start = Instant::now();
        sandbox.create::<ConfigMap>(json!({ "metadata": { "generateName": "slow-" } })).await;
        longest = longest.max(start.elapsed());
    }
    assert!(longest > 300 * SECONDS / 1000, "{longest:?}");
    sandbox.cluster.heal(&slow).unwrap();
    api_answers(&sandbox.cluster).await;
    sandbox.close().await;
}

async fn api_answers(cluster: &Cluster) {
    until("the API server to answer", MINUTE, || async {
        match cluster.client().apiserver_version().await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
    for number in 1..=3 {
        node_is(cluster, number, true).await;
    }
}

#[tokio::test]
async fn processes_are_found_by_role_paused_and_killed() {
    let sandbox = Sandbox::open("process").await;
    let [watcher, primary, _] = &sandbox.three_pods().await;
    sandbox
        .create::<Lease>(
            json!({ "metadata": { "name": "orders-leader" }, "spec": { "holderIdentity": "web-1/7" } }),
        )
        .await;
    let role: Who = "primary/orders".parse().unwrap();
    let found = sandbox.cluster.container(&sandbox.namespace, &role, None).await.unwrap();
    assert_eq!(&found, primary);
    let nobody = sandbox.cluster.container(&sandbox.namespace, &Who::Primary("bills".into()), None).await;
    assert!(said(nobody).contains("bills-leader"));

    // All of it: the page and the clock.
    let all = Fault::ProcessPause { container: found.clone(), which: Which::All };
    sandbox.cluster.inject(&all).unwrap();
    assert!(!sandbox.reaches(watcher, "web-1.web"));
    let (tick, _) = clock(&sandbox, primary);
    assert!(!sandbox.reaches(watcher, "web-1.web"));
    assert_eq!(clock(&sandbox, primary).0, tick, "its clock stands still");
    sandbox.cluster.heal(&all).unwrap();
    sandbox.reaches_again(watcher, "web-1.web").await;

    // One program only: the page, while the clock goes on.
    let named = Fault::ProcessPause { container: found.clone(), which: Which::Named("httpd".into()) };
    sandbox.cluster.inject(&named).unwrap();
    let (tick, _) = clock(&sandbox, primary);
    assert!(!sandbox.reaches(watcher, "web-1.web"));
    assert!(clock(&sandbox, primary).0 > tick, "its clock goes on");
    sandbox.cluster.heal(&named).unwrap();
    sandbox.reaches_again(watcher, "web-1.web").await;

    let none = sandbox.cluster.kill(&found, &Which::Named("postgres".into()));
    assert!(said(none).contains("no such process"));
    sandbox.cluster.kill(&found, &Which::Main).unwrap();
    until("the container to be started again", MINUTE, || async {
        match sandbox.restarts("web-1").await {
            1 => Look::There(()),
            other => Look::NotYet(format!("{other} restarts")),
        }
    })
    .await
    .unwrap();
    sandbox.close().await;
}

#[tokio::test]
async fn volumes_fill_hang_fail_and_turn_read_only() {
    let sandbox = Sandbox::open("disk").await;
    let [pod, other, _] = &sandbox.three_pods().await;
    let volume = sandbox.cluster.volume(&sandbox.namespace, "data-web-0").await.unwrap();
    let write = |container: &Container| {
        let dd = "f=/data/$(cut -d' ' -f1 /proc/uptime); \
                  timeout -s KILL 5 dd if=/dev/zero of=$f bs=64k count=4 conv=fsync 2>&1 && rm $f";
        sandbox.inside(container, dd)
    };
    let bites = |fault: &Fault, message: &str| {
        write(pod).unwrap();
        sandbox.cluster.inject(fault).unwrap();
        let refused = said(write(pod));
        assert!(refused.contains(message), "{fault}: {refused}");
        write(other).unwrap();
        sandbox.cluster.heal(fault).unwrap();
        write(pod).unwrap();
    };
    bites(&Fault::VolumeFull { volume: volume.clone() }, "No space left on device");
    bites(&Fault::VolumeIoError { volume: volume.clone() }, "Input/output error");

    // A write to a frozen volume can't even be killed: it ends when the volume is healed.
    let frozen = Fault::VolumeFreeze { volume: volume.clone() };
    sandbox.cluster.inject(&frozen).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(pod));
        let since = Instant::now();
        while since.elapsed() < 3 * SECONDS {
            write(other).unwrap();
            assert!(!writing.is_finished(), "the write hangs");
        }
        sandbox.cluster.heal(&frozen).unwrap();
        writing.join().unwrap().unwrap();
    });

    let read_only = Fault::VolumeReadOnly { volume: volume.clone() };
    sandbox.inside(pod, "echo here > /data/before; sync").unwrap();
    for (round, (change, message)) in
        [(true, Some("Read-only file system")), (false, None)].into_iter().enumerate()
    {
        match change {
            true => sandbox.cluster.inject(&read_only).unwrap(),
            false => sandbox.cluster.heal(&read_only).unwrap(),
        }
        until("the container to be started again", MINUTE, || async {
            match sandbox.restarts("web-0").await {
                restarts if restarts > round as i32 => Look::There(()),
                other => Look::NotYet(format!("{other} restarts")),
            }
        })
        .await
        .unwrap();
        sandbox.pod_ready("web-0").await;
        let again = sandbox.container("web-0").await;
        assert_eq!(sandbox.inside(&again, "cat /data/before").unwrap().trim(), "here");
        match message {
            Some(message) => assert!(said(write(&again)).contains(message)),
            None => drop(write(&again).unwrap()),
        }
    }
    sandbox.close().await;
}

#[test]
fn a_fault_is_meant_also_when_its_container_has_been_started_again() {
    let paused = |pod: &str, id: &str| {
        let container = Container { node: node(1), pod: pod.into(), id: id.into() };
        Fault::ProcessPause { container, which: Which::All }
    };
    assert!(paused("a/b", "old").means(&paused("a/b", "new")));
    assert!(!paused("a/b", "old").means(&paused("a/c", "old")));
    let volume = |claim: &str, name: &str| Volume { node: node(1), name: name.into(), claim: claim.into() };
    let full = |claim, name| Fault::VolumeFull { volume: volume(claim, name) };
    assert!(full("a/b", "pvc-1").means(&full("a/b", "pvc-2")));
    assert!(!full("a/b", "pvc-1").means(&Fault::VolumeFreeze { volume: volume("a/b", "pvc-1") }));
    assert!(!full("a/b", "pvc-1").means(&full("a/c", "pvc-1")));
    assert!(Fault::NodeCrash { node: node(1) }.means(&Fault::NodeCrash { node: node(1) }));
    assert!(!Fault::NodeCrash { node: node(1) }.means(&Fault::NodeCrash { node: node(2) }));
}

#[tokio::test]
async fn heal_all_undoes_everything_at_once() {
    let sandbox = Sandbox::open("heal").await;
    let [a, b, c] = &sandbox.three_pods().await;
    let volume = sandbox.cluster.volume(&sandbox.namespace, "data-web-1").await.unwrap();
    let faults = [
        Fault::PacketLoss { node: a.node, percent: 90 },
        Fault::VolumeFreeze { volume },
        Fault::ComponentPause { component: HubComponent::Scheduler },
        Fault::NodeCrash { node: c.node },
        Fault::LinkCut { from: a.node, to: b.node, both: true },
        Fault::ProcessPause { container: b.clone(), which: Which::Main },
    ];
    for fault in &faults {
        sandbox.cluster.inject(fault).unwrap();
        sandbox.cluster.inject(fault).unwrap();
    }
    assert_eq!(sandbox.cluster.faults().unwrap(), faults, "once each, in order");
    let status = testbed::report(sandbox.cluster.testbed().unwrap()).unwrap();
    for fault in &faults {
        assert!(status.contains(&fault.to_string()), "{fault} is missing in\n{status}");
    }
    sandbox.cluster.heal_all().unwrap();
    assert_eq!(sandbox.cluster.faults().unwrap(), []);
    sandbox.reaches_again(a, "web-1.web").await;
    sandbox.inside(b, "dd if=/dev/zero of=/data/x bs=4k count=1 conv=fsync").unwrap();
    sandbox.pod_ready("web-2").await;
    sandbox.reaches_again(a, "web-2.web").await;
    sandbox.close().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_says_why() {
    let sandbox = Sandbox::open("refuse").await;
    let cluster = &sandbox.cluster;
    assert!(said(cluster.inject(&Fault::NodeCrash { node: node(77) })).contains("no node-77"));
    assert!(said(cluster.volume(&sandbox.namespace, "nothing").await).contains("nothing"));
    let gone = Volume { node: node(1), name: "pvc-gone".into(), claim: "a/b".into() };
    assert!(said(cluster.inject(&Fault::VolumeFull { volume: gone })).contains("pvc-gone"));
    assert_eq!(cluster.faults().unwrap(), [], "nothing of it was done");
    let volumes = Api::<PersistentVolume>::all(cluster.client()).list(&Default::default()).await.unwrap();
    assert!(volumes.iter().all(|volume| volume.name_any() != "pvc-gone"));
    sandbox.close().await;
}
