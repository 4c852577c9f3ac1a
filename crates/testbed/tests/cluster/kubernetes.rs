//! What any Kubernetes does, and this one, too. These tests need only a kubeconfig: with
//! `CLUSTER=current` they run on the cluster that `kubectl` talks to.

use std::collections::BTreeSet;

use crate::sandbox::{self, MINUTE, Sandbox, claim_spec, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::{Look, NAMESPACE, S3_NAME, until};

#[tokio::test]
async fn three_nodes_are_ready() {
    let sandbox = Sandbox::open("nodes").await;
    let nodes = Api::<Node>::all(sandbox.cluster.client()).list(&ListParams::default()).await.unwrap();
    let ready = nodes.iter().filter(|node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    });
    assert!(ready.count() >= 3, "{:?}", names(nodes.items));
    sandbox.close().await;
}

#[tokio::test]
async fn pods_on_different_nodes_talk_by_name_and_a_service_balances() {
    let sandbox = Sandbox::open("talk").await;
    sandbox.three_pods().await;
    let mut nodes = BTreeSet::new();
    for pod in ["web-0", "web-1", "web-2"] {
        nodes.insert(sandbox.pod(pod).await.spec.unwrap().node_name.unwrap());
        let answer = sandbox.exec("web-0", &format!("wget -qO- http://{pod}.web:8080")).unwrap();
        assert_eq!(answer.trim(), pod);
    }
    assert_eq!(nodes.len(), 3, "anti-affinity spreads the pods");

    let ask = "for i in $(seq 60); do wget -qO- http://balanced; done";
    let answers = sandbox.exec("web-0", ask).unwrap();
    let served: BTreeSet<&str> = answers.split_whitespace().collect();
    assert_eq!(served, BTreeSet::from(["web-0", "web-1", "web-2"]));
    sandbox.close().await;
}

#[tokio::test]
async fn a_volume_has_exactly_its_size_fills_up_and_grows_while_in_use() {
    let sandbox = Sandbox::open("volume").await;
    sandbox.three_pods().await;
    let size = || -> u64 {
        let bytes = sandbox.exec("web-0", "stat -f -c '%b %S' /data").unwrap();
        bytes.split_whitespace().map(|number| number.parse::<u64>().unwrap()).product()
    };
    // The file system keeps a part for itself.
    let before = size();
    assert!((48 << 20..=64 << 20).contains(&before), "{before}");

    let full = sandbox.exec("web-0", "dd if=/dev/zero of=/data/fill bs=64k conv=fsync 2>&1; echo").unwrap();
    assert!(full.contains("No space left on device"), "{full}");
    let used: u64 = sandbox.exec("web-0", "stat -c %s /data/fill").unwrap().trim().parse().unwrap();
    assert!(used > before * 9 / 10, "all of it could be used: {used} of {before}");

    sandbox.grow("data-web-0", "128Mi").await;
    until("the file system to grow", MINUTE, || async {
        let now = size();
        if now > 100 << 20 { Look::There(()) } else { Look::NotYet(format!("{now} bytes")) }
    })
    .await
    .unwrap();
    sandbox.exec("web-0", "dd if=/dev/zero of=/data/more bs=1M count=40 conv=fsync").unwrap();
    let claims = sandbox.api::<PersistentVolumeClaim>();
    until("the claim to say so", MINUTE, || async {
        let claim = claims.get("data-web-0").await.unwrap();
        let capacity = claim.status.and_then(|status| status.capacity).unwrap_or_default();
        match capacity.get("storage") {
            Some(size) if size.0 == "128Mi" => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    assert_eq!(sandbox.restarts("web-0").await, 0, "nothing was restarted for it");
    sandbox.close().await;
}

#[tokio::test]
async fn volumes_go_or_stay_as_their_class_says() {
    let sandbox = Sandbox::open("reclaim").await;
    let volumes = Api::<PersistentVolume>::all(sandbox.cluster.client());
    for (name, class, kept) in
        [("goes", testbed::STORAGE_CLASS, false), ("stays", testbed::STORAGE_CLASS_KEPT, true)]
    {
        sandbox
            .create::<PersistentVolumeClaim>(
                json!({ "metadata": { "name": name }, "spec": claim_spec("16Mi", Some(class)) }),
            )
            .await;
        sandbox
            .create::<Pod>(json!({ "metadata": { "name": name }, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": "busybox:stable",
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
            }}))
            .await;
        sandbox.pod_ready(name).await;
        let claims = sandbox.api::<PersistentVolumeClaim>();
        let volume = claims.get(name).await.unwrap().spec.unwrap().volume_name.unwrap();
        sandbox.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
        claims.delete(name, &DeleteParams::default()).await.unwrap();
        until("the volume to follow its claim", MINUTE, || async {
            let found = volumes.get_opt(&volume).await.unwrap();
            let phase = found.and_then(|volume| volume.status?.phase);
            match phase.as_deref() {
                None if !kept => Look::There(()),
                Some("Released") if kept => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        if kept {
            volumes.delete(&volume, &DeleteParams::default()).await.unwrap();
        }
    }
    sandbox.close().await;
}

#[tokio::test]
async fn a_drain_moves_pods_to_another_node() {
    let sandbox = Sandbox::open("drain").await;
    let labels = json!({ "app": "moves" });
    let container = json!({ "name": "main", "image": "busybox:stable" });
    let pod = json!({ "terminationGracePeriodSeconds": 0, "containers": [container] });
    sandbox
        .create::<Deployment>(json!({ "metadata": { "name": "moves" }, "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        }}))
        .await;
    let pods = sandbox.api::<Pod>();
    let placed = async |not: &str| {
        until("the pod to run elsewhere", MINUTE, || async {
            let listed = pods.list(&ListParams::default()).await.unwrap();
            let ready = listed.iter().find(|pod| sandbox::is_ready(pod));
            match ready.and_then(|pod| pod.spec.as_ref()?.node_name.clone()) {
                Some(node) if node != not => Look::There(node),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap()
    };
    let first = placed("").await;
    let drained = sandbox.cluster.kubectl(&[
        "drain",
        &first,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
    ]);
    placed(&first).await;
    sandbox.cluster.kubectl(&["uncordon", &first]).unwrap();
    drained.unwrap();
    sandbox.close().await;
}

#[tokio::test]
async fn databases_run_from_the_official_image_names() {
    let sandbox = Sandbox::open("images").await;
    let postgres = "set -e; id -u | grep -qx 999; initdb --pgdata=$DATA/db --locale=en_US.utf8 >/dev/null; \
         pg_ctl --pgdata=$DATA/db --wait --log=/tmp/log start >/dev/null; \
         psql --host=/var/run/postgresql --username=postgres -tAc 'show server_version'";
    let mysql = "set -e; id -u | grep -qx 999; mysqld --initialize-insecure --datadir=$DATA/db 2>/dev/null; \
         mysqld --datadir=$DATA/db --socket=/tmp/my.sock --mysqlx=OFF --secure-file-priv=NULL --pid-file=/tmp/pid >/tmp/log 2>&1 & \
         until mysqladmin --socket=/tmp/my.sock --user=root ping >/dev/null 2>&1; do kill -0 $!; sleep 0.2; done; \
         mysql --socket=/tmp/my.sock --user=root -Ne 'select version()'";
    for (image, script) in [
        ("postgres:15", postgres),
        ("postgres:17", postgres),
        ("postgres:18", postgres),
        ("mysql:9.7", mysql),
    ] {
        let name = image.replace([':', '.'], "-");
        let spec = claim_spec("1Gi", None);
        sandbox.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": name }, "spec": spec })).await;
        sandbox
            .create::<Pod>(json!({ "metadata": { "name": name }, "spec": {
                "terminationGracePeriodSeconds": 0,
                "securityContext": { "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999, "runAsNonRoot": true },
                "containers": [{
                    "name": "main", "image": image, "command": ["sleep", "infinity"],
                    "env": [{ "name": "DATA", "value": "/data" }],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
            }}))
            .await;
        sandbox.pod_ready(&name).await;
        let version = sandbox.exec(&name, script).unwrap();
        let wanted = image.split_once(':').unwrap().1;
        assert!(version.trim().starts_with(wanted), "{image} says {version}");
    }
    sandbox.close().await;
}

#[tokio::test]
async fn the_object_store_takes_and_gives_with_the_credentials_of_its_secret() {
    let sandbox = Sandbox::open("s3").await;
    sandbox.three_pods().await;
    let secrets = Api::<Secret>::namespaced(sandbox.cluster.client(), NAMESPACE);
    let data = secrets.get(S3_NAME).await.unwrap().data.unwrap();
    let value = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let host = value("endpoint").trim_start_matches("http://").to_owned();
    let (server, port) = host.split_once(':').unwrap();
    let presign = |method: &str| {
        presigned(
            method,
            &host,
            &format!("/{}/greeting", value("bucket")),
            &value("region"),
            &value("accessKeyId"),
            &value("secretAccessKey"),
        )
    };

    let put = format!(
        "printf 'PUT {} HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello' | nc -w 5 {server} {port}",
        presign("PUT").replace('%', "%%")
    );
    let answer = sandbox.exec("web-0", &put).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let got = sandbox.exec("web-1", &format!("wget -qO- 'http://{host}{}'", presign("GET"))).unwrap();
    assert_eq!(got, "hello");
    let unsigned =
        sandbox.exec("web-1", &format!("wget -O- http://{host}/{}/greeting 2>&1", value("bucket")));
    assert!(sandbox::said(unsigned).contains("403"), "without credentials it gives nothing");
    sandbox.close().await;
}

/// An S3 request that carries its signature in its address (Signature Version 4).
fn presigned(method: &str, host: &str, path: &str, region: &str, access: &str, secret: &str) -> String {
    use aws_lc_rs::{digest, hmac};
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let sign = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/{region}/s3/aws4_request", &now[..8]);
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={access}%2F{}&X-Amz-Date={now}&X-Amz-Expires=600&X-Amz-SignedHeaders=host",
        scope.replace('/', "%2F")
    );
    let request = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let hashed = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let key = [&now[..8], region, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{secret}").into_bytes(), |key, part| sign(&key, part));
    let signature = hex(&sign(&key, &format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}")));
    format!("{path}?{query}&X-Amz-Signature={signature}")
}
