//! A database that is left alone, and one whose operator is upgraded.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use testbed::{Look, until};

use crate::bed::{Bed, MINUTE, TAG, upgrade};

/// How long nothing is written: longer than anything that is looked at in turns.
const QUIET: Duration = Duration::from_secs(20);

/// What a person could list of a database, but for the Lease, which is renewed all the time, and events.
const KINDS: &str = "databases,configmaps,secrets,serviceaccounts,roles,rolebindings,statefulsets,services,\
                     endpointslices,poddisruptionbudgets,pods,persistentvolumeclaims,controllerrevisions";

/// The version of every object, by kind and name.
fn versions(bed: &Bed) -> BTreeMap<String, String> {
    let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion";
    let listed = bed.kubectl(&["get", KINDS, "--no-headers", "--output", columns]);
    let line = |line: &str| {
        let (object, version) = line.trim().rsplit_once(' ').unwrap();
        (object.split_whitespace().collect::<Vec<_>>().join(" "), version.to_owned())
    };
    listed.lines().map(line).collect()
}

/// Waits until nothing is written for a while. It fails if there is always something.
async fn quiet(bed: &Bed) -> BTreeMap<String, String> {
    let mut before = versions(bed);
    assert!(before.len() > 12, "{before:?}");
    for _ in 0..3 {
        tokio::time::sleep(QUIET).await;
        let after = versions(bed);
        if after == before {
            return after;
        }
        before = after;
    }
    panic!("something is written all the time");
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changes() {
    let bed = Bed::open("quiet").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    bed.ready(2).await;
    quiet(&bed).await;
    let leases: Api<Lease> = bed.api();
    assert_eq!(leases.list(&Default::default()).await.unwrap().items.len(), 1, "one Lease, which is renewed");
    bed.close().await;
}

/// The image from which a new pod would get its agent.
async fn agent_image(bed: &Bed) -> String {
    let sets: Api<StatefulSet> = bed.api();
    let pod = sets.get("orders").await.unwrap().spec.unwrap().template.spec.unwrap();
    pod.init_containers.unwrap()[0].image.clone().unwrap()
}

#[tokio::test]
async fn an_upgrade_of_the_operator_restarts_no_database() {
    let bed = Bed::open("upgrade").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    bed.ready(2).await;
    let before = bed.started().await;
    let newer = format!("{}-newer", *TAG);
    bed.cluster.name_image(&format!("keelson:{}", *TAG), &format!("keelson:{newer}")).unwrap();
    upgrade(&bed.cluster, &newer);
    // New pods get their agent from the newer image; that the set says so shows that the newer operator is at
    // work.
    until("the newer operator to be at work", MINUTE, || async {
        match agent_image(&bed).await {
            image if image == format!("keelson:{newer}") => Look::There(()),
            image => Look::NotYet(image),
        }
    })
    .await
    .unwrap();
    bed.ready(2).await;
    quiet(&bed).await;
    bed.patch(json!({"spec": {"parameters": {"work_mem": "7MB"}}})).await;
    for pod in ["orders-0", "orders-1"] {
        bed.says(pod, "postgres", "show work_mem", "7MB").await;
    }
    bed.ready(2).await;
    assert_eq!(bed.started().await, before, "nothing was started anew");
    bed.close().await;
}
