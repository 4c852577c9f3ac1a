//! Certificates change many times under load, and no call fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{DeleteParams, PostParams};
use testbed::{ControlPlane, Look, connect, until};

use crate::plane::{QUICK, Replica, authority, bundles, in_force, install, ready, stored, thing, things};

/// So many renewals are waited for: the first authority has expired by then, and is dropped.
const RENEWALS: usize = 6;

/// Creates things in the old version, reads them in the new one and deletes them, until told to stop.
async fn load(client: Client, number: usize, stop: Arc<AtomicBool>, calls: Arc<AtomicUsize>) {
    let (old, new) = (things(&client, "v1"), things(&client, "v2"));
    for count in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("load-{number}-{count}");
        let size = i64::from(u8::try_from(count % 100).unwrap());
        old.create(&PostParams::default(), &thing(&name, size)).await.unwrap();
        let read = new.get(&name).await.unwrap();
        assert_eq!(read.data["spec"]["extent"]["size"], size);
        assert_eq!(read.data["spec"]["note"], "seen");
        let wrong = old.create(&PostParams::default(), &thing("wrong", 1000)).await.unwrap_err();
        assert!(wrong.to_string().contains("too large a thing"), "refused for another reason: {wrong}");
        old.delete(&name, &DeleteParams::default()).await.unwrap();
        calls.fetch_add(4, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_change_under_load_and_no_request_fails() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let replicas = [Replica::start(&plane, QUICK).await, Replica::start(&plane, QUICK).await];
    install(&client, &replicas[0].url, &replicas[1].url).await;
    for replica in &replicas {
        ready(replica).await;
    }
    in_force(&client).await;
    let first = authority(&stored(&client).await.unwrap().0, "serving");

    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut loads = tokio::task::JoinSet::new();
    for number in 0..4 {
        let client = connect(&plane.kubeconfig()).await.unwrap();
        loads.spawn(load(client, number, stop.clone(), calls.clone()));
    }
    let start = Instant::now();
    let seen = std::sync::Mutex::new(BTreeSet::new());
    until("several renewals, and the end of the first authority", Duration::from_secs(180), || async {
        for replica in &replicas {
            replica.certificates.valid().unwrap();
        }
        let serving = authority(&stored(&client).await.unwrap().0, "serving");
        let carried = bundles(&client).await;
        assert!(carried.iter().all(|(bundle, _)| bundle.contains(&serving)), "served before it was carried");
        let mut seen = seen.lock().unwrap();
        seen.insert(serving);
        let gone = carried.iter().all(|(bundle, _)| !bundle.contains(&first));
        match seen.len() > RENEWALS && gone {
            true => Look::There(()),
            false => Look::NotYet(format!("{} authorities, the first is gone: {gone}", seen.len())),
        }
    })
    .await
    .unwrap();
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = loads.join_next().await {
        ended.unwrap();
    }
    let (calls, renewals) = (calls.load(Ordering::Relaxed), seen.lock().unwrap().len() - 1);
    println!("{calls} requests in {:?}, {renewals} renewals, none failed", start.elapsed());
    assert!(calls > 100, "{calls} are no load");
    for replica in replicas {
        replica.stop().await;
    }
}
