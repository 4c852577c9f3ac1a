//! `keelson logs`: what all instances of a database have logged, in the order in which it happened.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use clap::Args;
use futures::AsyncBufReadExt;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use keelson_api::instance::{Names, labels};
use keelson_api::value::Span;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use tokio::sync::mpsc;

use super::cluster::{Found, Which};
use super::paint::{Paint, Tone};
use super::{Ended, Failure};

/// Of which database, and how much.
#[derive(Args)]
pub struct LogsArgs {
    #[command(flatten)]
    which: Which,
    /// Only of this instance.
    #[arg(long, value_name = "POD")]
    instance: Option<String>,
    /// Only what is newer than this, such as `15m`.
    #[arg(long, value_name = "SPAN")]
    since: Option<Span>,
    /// Go on with what is logged from now on.
    #[arg(long, short)]
    follow: bool,
    /// So many of the newest lines of each instance.
    #[arg(long, default_value_t = 1000, value_name = "LINES")]
    tail: i64,
}

/// Lines of several instances come so far apart from the order in which they were written.
const GATHER: Duration = Duration::from_millis(250);
/// How often new instances are looked for.
const LOOK: Duration = Duration::from_secs(2);
/// The container of the database.
const CONTAINER: &str = "database";

/// A line of one instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    time: Timestamp,
    pod: String,
    text: String,
}

/// Prints them.
pub async fn logs(args: LogsArgs) -> Result<Ended, Failure> {
    let Found { client, namespace, database } = args.which.find().await?;
    let name = database.name_any();
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let there = names(&pods, &name, args.instance.as_deref()).await?;
    if there.is_empty() {
        return Err(Failure::Said(match &args.instance {
            Some(instance) => format!("{name} has no instance {instance}"),
            None => format!("{name} has no instances yet"),
        }));
    }
    let seconds = args.since.as_ref().and_then(|span| i64::try_from(span.duration().as_secs()).ok());
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        timestamps: true,
        since_seconds: seconds.map(|seconds| seconds.max(1)),
        tail_lines: Some(args.tail),
        ..LogParams::default()
    };
    let paint = Paint::of_stdout();
    let mut lines = Vec::new();
    let mut newest = BTreeMap::new();
    let mut unread = Vec::new();
    for pod in &there {
        match pods.logs(pod, &params).await {
            Ok(text) => lines.extend(text.lines().filter_map(|text| parse(pod, text))),
            // One that has not started yet has logged nothing.
            Err(kube::Error::Api(status)) if status.code == 400 || status.code == 404 => {
                unread.push(format!("{pod}: {}", status.message));
            }
            Err(error) => return Err(Failure::of(format!("reading the log of {pod}"), &error)),
        }
    }
    lines.sort();
    for line in &lines {
        newest.insert(line.pod.clone(), line.time);
        println!("{}", printed(line, paint));
    }
    for unread in unread {
        eprintln!("{unread}");
    }
    if args.follow {
        follow(&pods, &name, args.instance.as_deref(), newest, paint).await?;
    }
    Ok(Ended::Well)
}

/// The pods that are meant, in the order of their names.
async fn names(pods: &Api<Pod>, database: &str, only: Option<&str>) -> Result<Vec<String>, Failure> {
    let of_it = ListParams::default().labels(&format!("{}={database}", labels::DATABASE));
    let found =
        pods.list(&of_it).await.map_err(Failure::during(format!("listing the pods of {database}")))?;
    let names = found.items.iter().map(ResourceExt::name_any);
    Ok(names
        .filter(|pod| Names(database).ordinal(pod).is_some() && only.is_none_or(|only| only == pod))
        .collect())
}

/// Until somebody ends it. Instances that come are joined, and those whose container ended are asked again.
async fn follow(
    pods: &Api<Pod>,
    database: &str,
    only: Option<&str>,
    mut newest: BTreeMap<String, Timestamp>,
    paint: Paint,
) -> Result<(), Failure> {
    let (sender, mut receiver) = mpsc::channel(1024);
    let mut reading: BTreeMap<String, tokio::task::JoinHandle<()>> = BTreeMap::new();
    let mut look = tokio::time::interval(LOOK);
    let mut print = tokio::time::interval(GATHER);
    let mut waiting: Vec<Line> = Vec::new();
    loop {
        tokio::select! {
            _ = look.tick() => {
                reading.retain(|_, task| !task.is_finished());
                for pod in names(pods, database, only).await? {
                    if let Entry::Vacant(place) = reading.entry(pod) {
                        let since = newest.get(place.key()).copied().unwrap_or_else(Timestamp::now);
                        let task = read(pods.clone(), place.key().clone(), since, sender.clone());
                        place.insert(tokio::spawn(task));
                    }
                }
            }
            _ = print.tick() => {
                waiting.sort();
                for line in waiting.drain(..) {
                    println!("{}", printed(&line, paint));
                }
            }
            Some(line) = receiver.recv() => {
                let line: Line = line;
                // Whoever begins anew is told of whole seconds.
                if newest.get(&line.pod).is_none_or(|seen| *seen < line.time) {
                    newest.insert(line.pod.clone(), line.time);
                    waiting.push(line);
                }
            }
        }
    }
}

/// Reads one log until it ends.
async fn read(pods: Api<Pod>, pod: String, since: Timestamp, sender: mpsc::Sender<Line>) {
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        timestamps: true,
        follow: true,
        since_time: Some(since),
        ..LogParams::default()
    };
    let Ok(stream) = pods.log_stream(&pod, &params).await else { return };
    let mut lines = stream.lines();
    while let Some(Ok(text)) = lines.next().await {
        if let Some(line) = parse(&pod, &text)
            && sender.send(line).await.is_err()
        {
            return;
        }
    }
}

/// A line as the kubelet writes it: when, and what.
fn parse(pod: &str, text: &str) -> Option<Line> {
    let (time, text) = text.split_once(' ').unwrap_or((text, ""));
    Some(Line { time: time.parse().ok()?, pod: pod.to_owned(), text: text.to_owned() })
}

fn printed(line: &Line, paint: Paint) -> String {
    format!("{} {}", paint.tone(Tone::Faint, &format!("{} |", line.pod)), line.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_instances_are_in_the_order_of_their_times() {
        let of = |pod: &str, text: &str| text.lines().filter_map(|line| parse(pod, line)).collect::<Vec<_>>();
        let mut lines = of("orders-0", "2026-11-18T12:00:00.5Z second\n2026-11-18T12:00:03Z fourth\nno time");
        lines.extend(of(
            "orders-1",
            "2026-11-18T12:00:00.123456789Z first\n2026-11-18T12:00:01Z third {\"a\": 1}\n",
        ));
        lines.sort();
        let printed: Vec<String> = lines.iter().map(|line| printed(line, Paint::OFF)).collect();
        assert_eq!(
            printed,
            ["orders-1 | first", "orders-0 | second", "orders-1 | third {\"a\": 1}", "orders-0 | fourth"]
        );
        assert_eq!(parse("orders-0", "2026-11-18T12:00:00Z").unwrap().text, "");
    }
}
