//! A control plane that is away, refuses, or is used by somebody else too: no reason to stop or to start anything. The
//! operator is away all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Fault, HubComponent, Look, Which, until};

use crate::bed::{Bed, LONG};
use crate::blackout::blackout;
use crate::leading::{Leader, followers};
use crate::pods::Started;
use crate::writer::Writer;

/// How long the API server is away.
const OUTAGE: Duration = Duration::from_secs(60);
/// What healthy parts may be silent for.
const HICCUP: Duration = Duration::from_secs(3);
/// How often somebody else writes to the Lease, and for how long: several terms.
const RIVAL_PACE: Duration = Duration::from_millis(5);
const RIVAL: Duration = Duration::from_secs(20);
/// A pause that people would not call one, and what a machine of two cores that runs everything may add to it.
const MOMENT: Duration = Duration::from_secs(3);

/// A database that is left alone, and all that must not change.
struct Undisturbed<'a> {
    bed: &'a Bed,
    leader: Leader,
    started: BTreeMap<String, Started>,
    writer: Writer<'a>,
}

impl<'a> Undisturbed<'a> {
    async fn start(bed: &'a Bed) -> Undisturbed<'a> {
        let leader = bed.whole().await;
        bed.client_away_from(&leader.name).await;
        let started = bed.started().await;
        Undisturbed { bed, leader, started, writer: Writer::start(bed).await }
    }

    /// Nobody else leads, nothing was started anew, and writes never waited for longer than this.
    async fn is_undisturbed(&self, what: &str, gap: Duration) {
        self.writer.acknowledges().await;
        assert_eq!(self.bed.whole().await, self.leader, "nobody else leads: {what}");
        assert_eq!(self.bed.started().await, self.started, "nothing was started anew: {what}");
        let longest = self.writer.longest_gap();
        println!("{what}: longest gap {longest:.1?}");
        assert!(longest < gap, "{what}: no write for {longest:?}");
        self.writer.forget_times();
    }

    /// Something that lasts for a while.
    async fn while_in_force(&self, fault: &Fault, lasts: Duration) {
        self.bed.cluster.inject(fault).unwrap();
        tokio::time::sleep(lasts).await;
        self.bed.cluster.heal(fault).unwrap();
    }
}

#[tokio::test]
async fn without_the_api_server_the_leader_goes_on_and_what_breaks_meanwhile_or_all_at_once_is_whole_again() {
    let bed = Bed::left_to_itself("17").await;
    goes_on(&bed).await;
    breaks_meanwhile(&bed).await;
    blackout(&bed).await;
    bed.looked_after_again().await;
}

/// Writes never wait, and it is said how it leads.
async fn goes_on(bed: &Bed) {
    let all = Undisturbed::start(bed).await;
    let address = bed.address_of(&all.leader.name).await;
    for fault in [
        Fault::ComponentStop { component: HubComponent::ApiServer },
        Fault::ComponentPause { component: HubComponent::ApiServer },
    ] {
        bed.cluster.inject(&fault).unwrap();
        let start = all.writer.acknowledged();
        tokio::time::sleep(OUTAGE / 2).await;
        let half = all.writer.acknowledged();
        shows(bed, &all.writer, &address, "keelson_agent_failsafe 1").await;
        tokio::time::sleep(OUTAGE / 2).await;
        let end = all.writer.acknowledged();
        bed.cluster.heal(&fault).unwrap();
        assert!(start < half && half < end, "writes went on: {start}, {half}, {end} ({fault})");
        all.is_undisturbed(&fault.to_string(), MOMENT).await;
        shows(bed, &all.writer, &address, "keelson_agent_failsafe 0").await;
    }
    all.writer.finish().await;
}

/// Waits until a line is among the metrics of an instance, without help from the API server.
async fn shows(bed: &Bed, writer: &Writer<'_>, address: &str, line: &str) {
    let ask = r"exec 3<>/dev/tcp/$0/9187; printf 'GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n' >&3; cat <&3";
    until(line, LONG, || async {
        match bed.cluster.run_in(writer.inside(), &["bash", "-c", ask, address]) {
            Ok(page) if page.lines().any(|found| found.starts_with(line)) => Look::There(()),
            Ok(page) => Look::NotYet(page),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap();
}

/// What breaks while the API server is away is whole again when it is back, and nothing is lost.
async fn breaks_meanwhile(bed: &Bed) {
    let leader = bed.whole().await;
    bed.client_away_from(&leader.name).await;
    let writer = Writer::start(bed).await;
    let main = bed.container_of(&leader.name).await;
    let lost = bed.container_of(followers(&leader.name)[1]).await;
    let outage = Fault::ComponentStop { component: HubComponent::ApiServer };
    bed.cluster.inject(&outage).unwrap();
    let start = std::time::Instant::now();
    // Leadership of before is over by now, but for what the others confirm.
    tokio::time::sleep(OUTAGE / 6).await;

    let kill = "kill -9 $(head -1 /var/lib/keelson/data/postmaster.pid)";
    bed.cluster.run_in(&main, &["sh", "-c", kill]).unwrap();
    writer.acknowledges().await;
    println!("Postgres was killed, and takes writes {:.1?} into the outage", start.elapsed());

    let crash = Fault::NodeCrash { node: lost.node };
    bed.cluster.inject(&crash).unwrap();
    tokio::time::sleep(OUTAGE / 6).await;
    writer.acknowledges().await;
    let before = writer.acknowledged();
    println!(
        "a node of three is gone, and there were {before} writes {:.1?} into the outage",
        start.elapsed()
    );

    // Nobody may take over without the Lease, and the old leader knows of nothing when it is back.
    bed.cluster.kill(&main, &Which::Main).unwrap();
    tokio::time::sleep(OUTAGE.saturating_sub(start.elapsed())).await;
    bed.cluster.heal(&outage).unwrap();
    bed.cluster.heal(&crash).unwrap();
    writer.acknowledges().await;
    let after = bed.whole().await;
    let written = writer.finish().await;
    println!("{leader:?} -> {after:?}, {written} writes, none lost");
}

#[tokio::test]
async fn a_short_silence_refusals_and_somebody_else_at_the_lease_change_nothing() {
    let bed = Bed::left_to_itself("17").await;
    let all = Undisturbed::start(&bed).await;
    let node = bed.container_of(&all.leader.name).await.node;
    let other = bed.container_of(followers(&all.leader.name)[1]).await.node;
    for _ in 0..2 {
        // While nobody reaches it, there is nobody to write to; and a connection that was lost is tried again.
        let gap = HICCUP + Duration::from_secs(7);
        let cut = Fault::LinkCut { from: node, to: other, both: true };
        for fault in [Fault::NodeFreeze { node }, cut, Fault::NodeCutOff { node }] {
            all.while_in_force(&fault, HICCUP).await;
            all.is_undisturbed(&format!("for 3 s, {fault}"), gap).await;
        }
    }
    without_rights(&all).await;
    beside_a_rival(&all).await;
    all.writer.finish().await;
    bed.looked_after_again().await;
}

/// Everything that agents ask for is refused.
async fn without_rights(all: &Undisturbed<'_>) {
    let roles: Api<Role> = all.bed.api();
    let mut role = roles.get("orders").await.unwrap();
    all.writer.forget_times();
    all.bed.kubectl(&["delete", "role", "orders"]);
    tokio::time::sleep(OUTAGE).await;
    role.metadata.resource_version = None;
    role.metadata.uid = None;
    roles.create(&PostParams::default(), &role).await.unwrap();
    all.is_undisturbed("agents without rights", MOMENT).await;
}

/// Somebody writes to the Lease all the time, so that most of what its leader writes comes too late.
async fn beside_a_rival(all: &Undisturbed<'_>) {
    let leases: Api<Lease> = all.bed.api();
    let (end, mut count) = (tokio::time::Instant::now() + RIVAL, 0);
    all.writer.forget_times();
    let mut pace = tokio::time::interval(RIVAL_PACE);
    while tokio::time::Instant::now() < end {
        pace.tick().await;
        count += 1;
        let note = Patch::Merge(json!({"metadata": {"annotations": {"rival": count.to_string()}}}));
        leases.patch("orders-leader", &PatchParams::default(), &note).await.unwrap();
    }
    let clean = Patch::Merge(json!({"metadata": {"annotations": {"rival": null}}}));
    leases.patch("orders-leader", &PatchParams::default(), &clean).await.unwrap();
    all.is_undisturbed(&format!("{count} writes to the Lease by somebody else"), MOMENT).await;
}
