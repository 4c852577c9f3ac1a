//! An App beside its database: requests are answered while the database fails over, while its credentials change and
//! while a bad image is rolled out and taken back.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use keelson_api::v1::{App, AppStatus};
use keelson_operator::app::pooler;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::{Look, until};

use crate::bed::{Bed, LONG, MINUTE, primary};

/// Answers a request when the row with its number is in the database, and tries for a minute. Told to end, it ends when
/// all have their answer.
const SERVER: &str = r#"
use strict; use IO::Socket::INET;
my $door = IO::Socket::INET->new(LocalPort => 8080, Listen => 128, ReuseAddr => 1) or die "no door: $!";
my $end = 0; $SIG{TERM} = sub { $end = 1 };
until ($end) {
    my $client = $door->accept;
    1 while waitpid(-1, 1) > 0;
    next unless $client;
    if (fork) { close $client; next }
    my $asked = <$client> // "";
    my $said = "200 OK";
    if (my ($id) = $asked =~ m{/(\d+)}) {
        my $until = time + 60; $said = "";
        until ($said) {
            my @psql = ("timeout", "10", "psql", "-Xqc", "insert into answers values ($id) on conflict do nothing");
            $said = "200 OK" if system(@psql) == 0;
            $said ||= "503 Unavailable" if time > $until;
            select(undef, undef, undef, 0.2) unless $said;
        }
    }
    print $client "HTTP/1.0 $said\r\n\r\n";
    exit 0;
}
1 while wait > 0;
"#;

/// Asks all the time, each time over a connection of its own, and notes what came of it and how long it took.
const ASK: &str = r#"
rm -f /tmp/enough /tmp/ended; : > /tmp/answers; i=0
while [ ! -e /tmp/enough ]; do
    i=$((i + 1)); begun=$(date +%s%3N)
    said=$(timeout 90 bash -c "exec 3<>/dev/tcp/shop/8080 && printf \"GET /$i HTTP/1.0\r\n\r\n\" >&3 && head -n 1 <&3" 2>&1)
    case $said in *" 200 "*) word=ok ;; *) word=failed ;; esac
    echo "$i $word $(($(date +%s%3N) - begun)) $said" | tr -d "\r" >> /tmp/answers
    sleep 0.1
done
touch /tmp/ended
"#;

fn inside(bed: &Bed, command: &str) -> String {
    bed.kubectl(&["exec", "client", "--", "bash", "-c", command]).trim().to_owned()
}

async fn said(bed: &Bed, what: &str, holds: impl Fn(&AppStatus) -> bool) -> AppStatus {
    let apps = bed.api::<App>();
    let found = until(what, LONG, || async {
        match apps.get("shop").await {
            Ok(app) => {
                let status = app.status.unwrap_or_default();
                match status.observed_generation == app.metadata.generation && holds(&status) {
                    true => Look::There(status),
                    false => Look::NotYet(serde_json::to_string(&status).unwrap()),
                }
            }
            Err(error) => Look::NotYet(error.to_string()),
        }
    });
    found.await.unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()))
}

fn is(status: &AppStatus, phase: &str) -> bool {
    status.phase.as_ref().is_some_and(|it| it.as_str() == phase)
}

fn degraded(status: &AppStatus) -> Option<&str> {
    let found = status.conditions.iter().find(|one| one.type_ == "Degraded" && one.status == "True")?;
    Some(&found.reason)
}

/// The app's pods that are to stay, by name.
async fn pods(bed: &Bed) -> BTreeMap<String, Pod> {
    let found = bed.api::<Pod>().list(&ListParams::default().labels("keelson.dev/app=shop")).await.unwrap();
    let stay = found.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    stay.map(|pod| (pod.name_any(), pod)).collect()
}

fn restarts(pods: &BTreeMap<String, Pod>) -> i32 {
    let statuses = pods.values().flat_map(|pod| pod.status.as_ref()?.container_statuses.clone());
    statuses.flatten().map(|one| one.restart_count).sum()
}

async fn change(bed: &Bed, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    bed.api::<App>().patch("shop", &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until so many more requests were answered.
async fn answers(bed: &Bed, more: u32) {
    let count = || inside(bed, "grep -c ok /tmp/answers || true").parse::<u32>().unwrap();
    let before = count();
    until("more requests to be answered", MINUTE, || async {
        match count() {
            now if now >= before + more => Look::There(()),
            now => Look::NotYet(format!("{now} so far")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
}

/// No request has failed so far; the longest took so long.
fn none_failed(bed: &Bed, meanwhile: &str) -> Duration {
    let failed = inside(bed, "grep -v ' ok ' /tmp/answers || true");
    assert_eq!(failed, "", "requests that failed while {meanwhile}\n{}", bed.evidence());
    let longest = inside(bed, "awk '$3 > most { most = $3 } END { print most + 0 }' /tmp/answers");
    let longest = Duration::from_millis(longest.parse().unwrap());
    println!("the longest request while {meanwhile} took {longest:?}");
    inside(bed, "sed -i '$!d' /tmp/answers");
    longest
}

#[tokio::test]
async fn an_app_answers_while_its_database_fails_over_its_credentials_change_and_a_bad_image_is_taken_back() {
    let bed = Bed::open("apps").await;
    bed.cluster.load_debian(pooler::IMAGE).unwrap();
    let app: App = serde_json::from_value(json!({
        "apiVersion": "keelson.dev/v1", "kind": "App", "metadata": {"name": "shop"},
        "spec": {
            "image": "postgres:17", "runAsUser": 999, "command": ["perl", "-e", SERVER], "replicas": 2,
            "ports": [{"name": "http", "port": 8080}], "database": "orders", "pooler": {}, "progressDeadline": "30s",
            "env": [{"name": "PGCONNECT_TIMEOUT", "value": "5"}]
        }
    }))
    .unwrap();
    bed.api::<App>().create(&PostParams::default(), &app).await.unwrap();
    said(&bed, "the app to wait for its database", |status| is(status, "Pending")).await;
    bed.create(json!({"replicas": 3, "storage": "1Gi"})).await;
    bed.ready(3).await;
    bed.client().await;
    bed.sql("create table answers (id int primary key)").await;
    said(&bed, "the app to run", |status| is(status, "Running")).await;
    bed.kubectl(&["exec", "client", "--", "sh", "-c", ": > /tmp/answers"]);
    bed.kubectl(&["exec", "client", "--", "bash", "-c", &format!("nohup bash -c '{ASK}' >/dev/null 2>&1 &")]);
    answers(&bed, 10).await;

    let before = pods(&bed).await;
    let leader = primary(&bed.ready(3).await);
    bed.kubectl(&["delete", "pod", &leader, "--force", "--grace-period=0"]);
    bed.until("another to lead", LONG, |database| {
        primary(database) != leader && !primary(database).is_empty()
    })
    .await;
    bed.ready(3).await;
    answers(&bed, 10).await;
    let longest = none_failed(&bed, "the database failed over");
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    let after = pods(&bed).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "pods were replaced");
    assert_eq!(restarts(&after), restarts(&before), "containers were restarted");

    bed.patch(json!({"metadata": {"annotations": {"keelson.dev/rotate-secrets": "again"}}})).await;
    until("all pods to be replaced", LONG, || async {
        let now = pods(&bed).await;
        match now.len() == 2 && now.keys().all(|name| !after.contains_key(name)) {
            true => Look::There(()),
            false => Look::NotYet(format!("{:?}", now.keys())),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
    said(&bed, "the app to run with other credentials", |status| is(status, "Running")).await;
    answers(&bed, 10).await;
    none_failed(&bed, "credentials changed");

    let before = pods(&bed).await;
    change(&bed, json!({"image": "nowhere/shop:bad"})).await;
    said(&bed, "the bad image to be taken back", |status| {
        degraded(status) == Some("ImagePull")
            && status.updated_replicas == Some(2)
            && status.replicas == Some(2)
    })
    .await;
    answers(&bed, 10).await;
    none_failed(&bed, "a bad image was rolled out and taken back");
    let after = pods(&bed).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "pods were replaced");
    change(&bed, json!({"image": "postgres:17"})).await;
    said(&bed, "the app to run as asked", |status| is(status, "Running") && degraded(status).is_none()).await;
    bed.kubectl(&["delete", "app", "shop", "--wait"]);
    bed.close().await;
}
