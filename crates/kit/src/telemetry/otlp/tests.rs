//! Traces as a collector gets them, and what happens when there is none.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::time::Instant;

use futures::{FutureExt, StreamExt};
use http::StatusCode;
use testbed::{Look, until};
use tokio::net::TcpListener;
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;

use super::*;
use crate::controller::{Change, Controller, Key};
use crate::retry::{Class, Classify};
use crate::serve::{handler, serve, text};
use crate::telemetry::logs::tests::Buffer;
use crate::telemetry::{Format, Telemetry, assemble, round_span};

const SECOND: Duration = Duration::from_secs(1);

/// A field of a protobuf message: its number, and what it holds where that is bytes.
type Part<'a> = (u64, &'a [u8]);

/// The parts of a message. Enough of protobuf to see what was sent.
fn parts(mut rest: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let length = match tag & 7 {
            0 => {
                let before = rest;
                varint(&mut rest);
                parts.push((tag >> 3, &before[..before.len() - rest.len()]));
                continue;
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut rest)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (part, after) = rest.split_at(length);
        parts.push((tag >> 3, part));
        rest = after;
    }
    parts
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().unwrap();
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number that does not end");
}

fn within(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    parts(message).into_iter().filter(move |(found, _)| *found == number).map(|(_, part)| part)
}

fn string(message: &[u8], number: u64) -> String {
    within(message, number).next().map(|text| String::from_utf8(text.to_vec()).unwrap()).unwrap_or_default()
}

/// A span as it was received.
#[derive(Clone, Debug)]
struct Received {
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    attributes: Vec<(String, String)>,
    failed: bool,
}

impl Received {
    fn read(span: &[u8]) -> Received {
        let bytes = |number| within(span, number).next().unwrap_or_default().to_vec();
        let attribute = |pair: &[u8]| {
            let value = within(pair, 2).next().map(|value| string(value, 1)).unwrap_or_default();
            (string(pair, 1), value)
        };
        Received {
            trace: bytes(1),
            id: bytes(2),
            parent: bytes(4),
            name: string(span, 5),
            attributes: within(span, 9).map(attribute).collect(),
            failed: within(span, 15).any(|status| within(status, 3).any(|code| code == [2])),
        }
    }

    fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Received>>>);

impl Kept {
    async fn start() -> (Kept, String) {
        let kept = Kept::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mine = kept.clone();
        let keep = handler(move |request: Request<Bytes>| {
            let mine = mine.clone();
            async move {
                assert_eq!(request.uri().path(), "/v1/traces");
                assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                let body = request.into_body();
                for resource in within(&body, 1) {
                    let about: String = within(resource, 1).map(String::from_utf8_lossy).collect();
                    assert!(about.contains("service.name") && about.contains("greeter"), "{about}");
                    let spans = within(resource, 2).flat_map(|scope| within(scope, 2));
                    mine.0.lock().unwrap().extend(spans.map(Received::read));
                }
                text(StatusCode::OK, "")
            }
        });
        tokio::spawn(serve(listener, None, keep, std::future::pending()));
        (kept, endpoint)
    }

    /// What has come in, once it is so much.
    async fn spans(&self, count: usize) -> Vec<Received> {
        until("the spans to come in", 30 * SECOND, || async {
            let spans = self.0.lock().unwrap().clone();
            if spans.len() >= count { Look::There(spans) } else { Look::NotYet(format!("{spans:?}")) }
        })
        .await
        .unwrap()
    }
}

fn begin(endpoint: &str) -> (Telemetry, Buffer, DefaultGuard) {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let settings = Settings {
        service: "greeter".into(),
        version: "1.2.3".into(),
        format: Format::Json,
        filter: None,
        otlp: Some(endpoint.to_owned()),
    };
    let (dispatch, telemetry) = assemble(&settings, move || writer.clone(), false).unwrap();
    (telemetry, buffer, tracing::dispatcher::set_default(&dispatch))
}

#[derive(Debug, thiserror::Error)]
#[error("failed on purpose")]
struct Failure;

impl Classify for Failure {
    fn class(&self) -> Class {
        Class::Permanent
    }
}

/// A round as an operator has them: a step, and in it a request to the API server.
async fn round(key: Key) -> Result<Option<Duration>, Failure> {
    async {
        tokio::task::yield_now().await;
        // As `kube` makes them.
        tracing::debug_span!(target: "kube_client::client::builder", "HTTP", otel.name = "get")
            .in_scope(|| {});
        tracing::debug_span!(target: "hyper::client", "of the one that sends").in_scope(|| {});
        tracing::info!("done");
    }
    .instrument(tracing::info_span!("step"))
    .await;
    if key.name == "object-0" { Err(Failure) } else { Ok(None) }
}

async fn rounds(count: usize) {
    let key = |number| Key { namespace: "default".into(), name: format!("object-{number}") };
    let changes = futures::stream::iter((0..count).map(move |number| Change::Touched(key(number))));
    let (all, mut over) = tokio::sync::watch::channel(0);
    let end = futures::stream::once(async move {
        let _ = over.wait_for(|done| *done == count).await;
    });
    let changes = changes.chain(end.filter_map(|()| async { None }));
    let mut controller = Controller { name: "greeting", ..Controller::default() };
    controller.limits.per_second = 100_000;
    let count_one = move |key| {
        let all = all.clone();
        round(key).inspect(move |_| all.send_modify(|done| *done += 1))
    };
    controller.run(changes, count_one, ()).await;
}

#[tokio::test]
async fn each_round_is_one_trace_with_all_that_was_done_in_it() {
    let (kept, endpoint) = Kept::start().await;
    let (telemetry, log, _guard) = begin(&endpoint);
    // Made for nothing: no trace.
    tracing::debug_span!(target: "kube_client::client::builder", "HTTP", otel.name = "watch").in_scope(|| {});
    rounds(40).await;
    telemetry.shutdown().await;

    let spans = kept.spans(3 * 40).await;
    assert_eq!(spans.len(), 3 * 40, "{spans:?}");
    let roots: Vec<_> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert!(roots.iter().all(|root| root.name == "reconcile greeting"), "{roots:?}");
    assert_eq!(roots.iter().map(|root| &root.trace).collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(roots.iter().map(|root| root.attribute("name")).collect::<BTreeSet<_>>().len(), 40);
    for root in roots {
        let of = |parent: &Received, name: &str| {
            let found = spans.iter().find(|span| span.parent == parent.id && span.name == name).unwrap();
            assert_eq!(found.trace, root.trace);
            found.clone()
        };
        of(&of(root, "step"), "get");
        assert_eq!((root.attribute("controller"), root.attribute("namespace")), ("greeting", "default"));
        assert_eq!(root.failed, root.attribute("name") == "object-0", "{root:?}");
        let trace: String = root.trace.iter().map(|byte| format!("{byte:02x}")).collect();
        let lines = log.text();
        let mut lines = lines.lines().filter(|line| line.contains(&format!("\"trace_id\":\"{trace}\"")));
        assert!(lines.all(|line| line.contains(&format!("\"name\":\"{}\"", root.attribute("name")))));
        assert!(log.text().contains(&trace), "the log leads to the trace");
    }
}

/// With the real client, so that it is noticed when its spans change.
#[tokio::test]
async fn a_request_to_the_api_server_is_part_of_the_trace_that_it_is_made_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let answer = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hello"}}"#;
    let api_server = handler(move |_| async move { text(StatusCode::OK, answer) });
    tokio::spawn(serve(listener, None, api_server, std::future::pending()));
    let client = kube::Client::try_from(kube::Config::new(address)).unwrap();
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);

    let (kept, endpoint) = Kept::start().await;
    let (telemetry, _log, _guard) = begin(&endpoint);
    let key = Key { namespace: "default".into(), name: "hello".into() };
    maps.get("hello").await.unwrap();
    maps.get("hello").instrument(round_span("greeting", &key)).await.unwrap();
    telemetry.shutdown().await;

    let spans = kept.spans(2).await;
    let names: BTreeSet<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!((spans.len(), names), (2, BTreeSet::from(["get", "reconcile greeting"])), "{spans:?}");
    assert_eq!(spans[0].trace, spans[1].trace);
}

/// The times here are far from both sides: what it takes without waiting, on a slow machine, and what it
/// would take if anybody waited for the collector even once a batch.
#[tokio::test]
async fn a_collector_that_hangs_slows_nothing_and_does_not_hold_up_the_end() {
    // Connections are made, and nobody ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (telemetry, _log, _guard) = begin(&format!("http://{}", listener.local_addr().unwrap()));
    let key = Key { namespace: "default".into(), name: "hello".into() };
    let start = Instant::now();
    // Three spans each, and so three times what the queue holds: the rest is dropped.
    for _ in 0..QUEUE {
        round(key.clone()).instrument(round_span("greeting", &key)).await.unwrap();
    }
    let batches = u32::try_from(3 * QUEUE / BATCH).unwrap();
    assert!(start.elapsed() < LONGEST_TRY * batches / 2, "somebody waited: {:?}", start.elapsed());
    let start = Instant::now();
    telemetry.shutdown().await;
    let left = u32::try_from(QUEUE / BATCH).unwrap();
    assert!(start.elapsed() < LONGEST_TRY * left / 2, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_collector_that_is_away_is_mentioned_once() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (telemetry, log, _guard) = begin(&format!("http://{nobody}"));
    let said = |log: &Buffer| log.text().matches("traces can't be sent").count();
    for _ in 0..3 {
        // A whole batch each time, so that it is sent at once.
        (0..BATCH).for_each(|_| drop(tracing::info_span!("step").entered()));
        until("the log to say that it is away", 30 * SECOND, || async {
            if said(&log) > 0 { Look::There(()) } else { Look::NotYet(log.text()) }
        })
        .await
        .unwrap();
    }
    telemetry.shutdown().await;
    assert_eq!(said(&log), 1, "{}", log.text());
    assert!(log.text().contains(&format!("\"collector\":\"{nobody}\"")), "{}", log.text());
}

#[tokio::test]
async fn that_a_collector_is_back_is_said_as_well() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (_telemetry, log, _guard) = begin(&format!("http://{nobody}"));
    let collector = Collector { address: "collector:4318".into(), away: AtomicBool::new(false) };
    let with = |status: StatusCode| {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        Ok(response)
    };
    let refused = || Err(io::Error::other("refused").into());
    for answer in
        [with(StatusCode::OK), refused(), refused(), with(StatusCode::FORBIDDEN), with(StatusCode::OK)]
    {
        collector.answered(&answer);
    }
    collector.answered(&with(StatusCode::OK));
    let log = log.text();
    let messages: Vec<_> = log.lines().filter_map(|line| line.split("\"message\":\"").nth(1)).collect();
    assert_eq!(messages.len(), 2, "{log}");
    assert!(messages[0].starts_with("traces can't be sent") && messages[0].contains("\"error\":\"refused\""));
    assert!(messages[1].starts_with("traces are sent again"));
}

#[test]
fn without_a_runtime_it_says_so() {
    assert!(matches!(Post::new(&"http://collector:4318".parse().unwrap()), Err(Error::NoRuntime)));
}

#[test]
fn an_address_gets_the_path_that_collectors_have() {
    let whole = |text: &str| address(text).map(|uri| uri.to_string());
    assert_eq!(whole("http://collector:4318").unwrap(), "http://collector:4318/v1/traces");
    assert_eq!(whole("https://collector/").unwrap(), "https://collector/v1/traces");
    assert_eq!(whole("http://collector/otlp/v1/traces").unwrap(), "http://collector/otlp/v1/traces");
    for wrong in ["collector:4318", "grpc://collector", "", "http://"] {
        let error = whole(wrong).unwrap_err();
        assert!(matches!(error, Error::Endpoint(_)), "{error}");
    }
    let error = whole("ftp://user:password@collector").unwrap_err();
    assert!(!error.to_string().contains("password"), "{error}");
}
