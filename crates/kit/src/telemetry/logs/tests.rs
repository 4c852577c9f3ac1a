//! Log lines as they come out.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::controller::{Change, Controller, Key};
use crate::retry::{Class, Classify};
use crate::telemetry::{Settings, assemble, round_span};

/// What was written, for a test to look at.
#[derive(Clone, Default)]
pub(in crate::telemetry) struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    pub(in crate::telemetry) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Map<String, Value>> {
        self.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(format: Format, filter: Option<&str>, terminal: bool, say: impl FnOnce()) -> Buffer {
    let buffer = Buffer::default();
    let settings = Settings { format, filter: filter.map(str::to_owned), ..Settings::default() };
    let writer = buffer.clone();
    let (dispatch, _telemetry) = assemble(&settings, move || writer.clone(), terminal).unwrap();
    tracing::dispatcher::with_default(&dispatch, say);
    buffer
}

fn key() -> Key {
    Key { namespace: "default".into(), name: "hello".into() }
}

#[derive(Debug, thiserror::Error)]
#[error("asking the API server failed")]
struct Failure(#[source] io::Error);

impl Classify for Failure {
    fn class(&self) -> Class {
        Class::Transient
    }
}

#[test]
fn a_json_line_is_one_flat_object_that_names_the_object_it_is_about() {
    let buffer = logged(Format::Auto, None, false, || {
        let _round = round_span("greeting", &key()).entered();
        let _step = tracing::info_span!("step", name = "inner", step = 3).entered();
        let error = Failure(io::Error::other("the line\nis \"cut\""));
        tracing::warn!(
            count = 7,
            well = false,
            level = "odd",
            error = &error as &dyn StdError,
            "it {}",
            "failed"
        );
    });
    let [line] = &buffer.lines()[..] else { panic!("{}", buffer.text()) };
    assert!(buffer.text().starts_with("{\"timestamp\":\"2") && buffer.text().ends_with("}\n"));
    let expected = [
        ("level", Value::from("WARN")),
        ("target", Value::from(module_path!())),
        ("message", Value::from("it failed")),
        ("count", Value::from(7)),
        ("well", Value::from(false)),
        ("level_", Value::from("odd")),
        ("error", Value::from("asking the API server failed: the line\nis \"cut\"")),
        ("step", Value::from(3)),
        ("name", Value::from("inner")),
        ("namespace", Value::from("default")),
        ("controller", Value::from("greeting")),
    ];
    for (name, value) in &expected {
        assert_eq!(line.get(*name), Some(value), "{name}");
    }
    assert_eq!(line.len(), expected.len() + 1, "and the timestamp: {line:?}");
}

#[test]
fn a_line_for_people_is_readable_and_has_colours_only_on_a_terminal() {
    let say = || round_span("greeting", &key()).in_scope(|| tracing::info!(count = 7, "said hello"));
    let text = logged(Format::Human, None, false, say).text();
    let ending = r#" INFO round{controller="greeting" namespace="default" name="hello""#;
    assert!(text.contains(ending) && text.ends_with("said hello count=7\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(logged(Format::Auto, None, true, say).text().contains('\u{1b}'));
}

#[test]
fn also_a_log_of_nothing_but_errors_names_the_object() {
    let say = || round_span("greeting", &key()).in_scope(|| tracing::error!("broken"));
    assert_eq!(logged(Format::Json, Some("error"), false, say).lines()[0]["name"], "hello");
}

#[test]
fn the_libraries_below_are_quiet_unless_they_are_named() {
    let say = || {
        tracing::debug!("own debug");
        tracing::info!("own info");
        tracing::info!(target: "kube_client::client", "library info");
        tracing::warn!(target: "hyper_util::client", "library warning");
    };
    let messages = |filter: Option<&str>| {
        let lines = logged(Format::Json, filter, false, say).lines();
        lines.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(messages(None), ["own info", "library warning"]);
    assert_eq!(messages(Some("debug")), ["own debug", "own info", "library warning"]);
    assert_eq!(messages(Some("warn")), ["library warning"]);
    assert!(messages(Some("error")).is_empty() && messages(Some("off")).is_empty());
    assert_eq!(messages(Some("kube_client=info")), ["own info", "library info", "library warning"]);
}

#[test]
fn a_filter_that_is_none_is_refused_with_its_text() {
    let error = filter(Some("info,kube=loud")).unwrap_err();
    assert!(error.to_string().contains("\"info,kube=loud\""), "{error}");
}

#[test]
fn causes_are_told_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeating(#[source] io::Error);
    assert_eq!(reasons(&Repeating(io::Error::other("inner"))), "outer: inner");
    assert_eq!(reasons(&Failure(io::Error::other("cut"))), "asking the API server failed: cut");
}

/// What a controller logs about rounds that end in different ways.
#[tokio::test(start_paused = true)]
async fn a_round_that_fails_is_logged_with_its_object_and_its_reason() {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let settings = Settings { format: Format::Json, ..Settings::default() };
    let (dispatch, _telemetry) = assemble(&settings, move || writer.clone(), false).unwrap();
    let _guard = tracing::dispatcher::set_default(&dispatch);
    let reconcile = |key: Key| async move {
        tracing::info!("working");
        match key.name.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "fails" => Err(Failure(io::Error::other("cut"))),
            _ => Ok(None),
        }
    };
    let names = ["panics", "hangs", "fails", "well"];
    let touched = names.map(|name| Change::Touched(Key { namespace: "default".into(), name: name.into() }));
    let rest = futures::StreamExt::boxed(futures::stream::pending());
    let changes = futures::StreamExt::chain(futures::stream::iter(touched), rest);
    let controller =
        Controller { name: "greeting", deadline: Duration::from_secs(1), ..Controller::default() };
    let _ = tokio::time::timeout(Duration::from_secs(2), controller.run(changes, reconcile, ())).await;

    let lines = buffer.lines();
    let of = |name: &str| lines.iter().filter(|line| line["name"] == name).cloned().collect::<Vec<_>>();
    let texts = |name: &str| {
        let pick = |line: &Map<String, Value>| {
            ["level", "message", "class", "error", "panic"]
                .iter()
                .filter_map(|field| line.get(*field)?.as_str())
                .collect::<Vec<_>>()
                .join("|")
        };
        of(name).iter().map(pick).collect::<Vec<_>>()
    };
    assert!(lines.iter().all(|line| line["controller"] == "greeting" && line["namespace"] == "default"));
    assert_eq!(texts("panics"), ["INFO|working", "ERROR|a round panicked|on purpose"]);
    assert_eq!(
        texts("hangs"),
        ["INFO|working", "WARN|a round was dropped|transient|it took longer than it may"]
    );
    let failed = "WARN|a round failed|transient|asking the API server failed: cut";
    assert_eq!(texts("fails"), ["INFO|working", failed]);
    assert_eq!(texts("well"), ["INFO|working"]);
    assert_eq!(of("hangs")[1]["seconds"], 1.0, "as the runtime's time goes");
}
