//! Leadership on a real API server: never two at work, through handovers and outages.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keelson_kit::election::Timing;
use keelson_kit::leader::{Leader, Term};
use testbed::{ControlPlane, Look, connect, until};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const TIMING: Timing = Timing {
    term: Duration::from_secs(3),
    look: Duration::from_millis(300),
    margin: Duration::from_millis(600),
};

/// Who was at work, from when to when.
type Log = Arc<Mutex<Vec<(&'static str, Instant, Instant)>>>;

struct Candidate {
    stop: Option<oneshot::Sender<()>>,
    done: JoinHandle<()>,
}

impl Candidate {
    async fn start(plane: &ControlPlane, name: &'static str, log: &Log) -> Candidate {
        let client = connect(&plane.kubeconfig()).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let log = log.clone();
        let work = move |term: Term| {
            let log = log.clone();
            async move {
                let row = {
                    let mut log = log.lock().unwrap();
                    log.push((name, Instant::now(), Instant::now()));
                    log.len() - 1
                };
                let mut tick = tokio::time::interval(Duration::from_millis(10));
                while term.holds() {
                    log.lock().unwrap()[row].2 = Instant::now();
                    tick.tick().await;
                }
            }
        };
        let leader = Leader::new(client, "default", "operator", name).timing(TIMING);
        let done = tokio::spawn(leader.run(async move { drop(stopped.await) }, work));
        Candidate { stop: Some(stop), done }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(10 * SECOND, self.done).await.unwrap().unwrap();
    }
}

async fn at_work(log: &Log, since: Instant) -> &'static str {
    until("somebody to be at work", 30 * SECOND, || async {
        let log = log.lock().unwrap();
        match log.last() {
            Some((name, _, last)) if *last > since => Look::There(*name),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap()
}

fn never_two_at_once(log: &Log) {
    let log = log.lock().unwrap();
    for pair in log.windows(2) {
        let ((one, _, ended), (other, began, _)) = (pair[0], pair[1]);
        assert!(began > ended, "{other} began before {one} had ended: {log:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_works_the_other_takes_over_at_once_when_it_is_told_to_stop() {
    let plane = ControlPlane::start().await.unwrap();
    let log = Log::default();
    let first = Candidate::start(&plane, "first", &log).await;
    assert_eq!(at_work(&log, Instant::now()).await, "first");
    let second = Candidate::start(&plane, "second", &log).await;
    assert_eq!(at_work(&log, Instant::now() + SECOND).await, "first", "a leader that is well stays");
    first.stop().await;
    let released = Instant::now();
    assert_eq!(at_work(&log, released).await, "second");
    let took = log.lock().unwrap().last().unwrap().1 - released;
    assert!(took < TIMING.term - TIMING.look, "the Lease was released, not left to run out: {took:?}");
    second.stop().await;
    never_two_at_once(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_api_server_is_silent_or_gone_nobody_works_longer_than_the_term() {
    let mut plane = ControlPlane::start().await.unwrap();
    let log = Log::default();
    let first = Candidate::start(&plane, "first", &log).await;
    let second = Candidate::start(&plane, "second", &log).await;
    at_work(&log, Instant::now()).await;
    for outage in ["silent", "gone"] {
        let began = Instant::now();
        match outage {
            "silent" => plane.pause(),
            _ => plane.stop().unwrap(),
        }
        let ended = until("the work to end", 30 * SECOND, || async {
            let last = log.lock().unwrap().last().unwrap().2;
            match last.elapsed() {
                quiet if quiet > SECOND => Look::There(last),
                quiet => Look::NotYet(format!("{quiet:?} ago")),
            }
        })
        .await
        .unwrap();
        assert!(ended < began + TIMING.term, "{outage}: it worked for {:?}", ended - began);
        match outage {
            "silent" => plane.resume(),
            _ => plane.start_again().await.unwrap(),
        }
        at_work(&log, Instant::now()).await;
    }
    first.stop().await;
    second.stop().await;
    never_two_at_once(&log);
}
