//! Readers are led to replicas that know almost all, and to no other.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use testbed::{Fault, Look, until};

use crate::bed::{Bed, MINUTE};
use crate::leading::followers;

/// Log of 110 MiB: more than a replica may lack and still serve readers, and not twice as much.
const LOG: &str =
    "select count(pg_logical_emit_message(false, 'much', repeat('x', 1 << 20))) from generate_series(1, 110)";

#[tokio::test]
async fn a_replica_that_is_far_behind_or_hears_nothing_serves_no_readers_until_it_has_caught_up() {
    let bed = Bed::open_alone("readers").await;
    bed.create(json!({"replicas": 3, "storage": "2Gi"})).await;
    bed.ready(3).await;
    let leader = bed.whole().await.name;
    let [near, far] = followers(&leader);
    serve(&bed, &[near, far]).await;

    // It has received all, and shows what was there before.
    bed.ask(far, "select pg_wal_replay_pause()");
    bed.ask(&leader, LOG);
    serve(&bed, &[near]).await;
    bed.ask(far, "select pg_wal_replay_resume()");
    serve(&bed, &[near, far]).await;

    let (from, to) = (bed.container_of(&leader).await.node, bed.container_of(far).await.node);
    let cut = Fault::LinkCut { from, to, both: false };
    bed.cluster.inject(&cut).unwrap();
    serve(&bed, &[near]).await;
    bed.cluster.heal(&cut).unwrap();
    serve(&bed, &[near, far]).await;
    assert_eq!(bed.whole().await.name, leader);
    bed.close().await;
}

/// Waits until these are behind the Service for readers, and no other.
async fn serve(bed: &Bed, pods: &[&str]) {
    let slices: Api<EndpointSlice> = bed.api();
    let of_readers = ListParams::default().labels("kubernetes.io/service-name=orders-ro");
    let wanted: BTreeSet<String> = pods.iter().map(ToString::to_string).collect();
    let what = format!("{wanted:?} to serve readers, and no other");
    let served = until(&what, MINUTE, || async {
        let found = slices.list(&of_readers).await.unwrap().items;
        let endpoints = found.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        let ready = endpoints.filter(|one| one.conditions.as_ref().is_some_and(|it| it.ready == Some(true)));
        match ready.filter_map(|one| one.target_ref?.name).collect::<BTreeSet<String>>() {
            found if found == wanted => Look::There(()),
            found => Look::NotYet(format!("{found:?}")),
        }
    });
    served.await.unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
}
