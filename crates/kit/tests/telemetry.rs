//! What a whole process says: it is started anew for the test, since logs and the panic hook are set
//! up once in a process.

use std::process::Command;

use keelson_kit::controller::Key;
use keelson_kit::telemetry::{Error, Settings, round_span, start};
use serde_json::Value;

const CHILD: &str = "KEELSON_KIT_TEST_CHILD";

/// What the process does that is looked at.
fn child() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let telemetry = start(Settings::from_env("greeter", "1.2.3")).unwrap();
        assert!(matches!(start(Settings::default()), Err(Error::Twice)));
        let span = round_span("greeting", &Key { namespace: "default".into(), name: "hello".into() });
        let task = tracing::Instrument::instrument(async { panic!("on purpose") }, span);
        let _: Result<(), _> = tokio::spawn(task).await;
        telemetry.shutdown().await;
    });
}

#[test]
fn every_line_of_a_process_is_json_also_that_of_a_panic() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let name = "every_line_of_a_process_is_json_also_that_of_a_panic";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env_clear()
        .envs([(CHILD, "1"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let panic = lines.iter().find(|line| line["message"] == "panicked").expect(&text);
    assert_eq!((&panic["level"], &panic["panic"]), (&"ERROR".into(), &"on purpose".into()));
    assert_eq!((&panic["controller"], &panic["name"]), (&"greeting".into(), &"hello".into()));
    assert!(panic["location"].as_str().unwrap().contains("telemetry.rs:"), "{panic}");
    let about_traces = if cfg!(feature = "otel") { "traces can't be sent" } else { "no traces are sent" };
    let said = lines.iter().filter(|line| line["message"].as_str().unwrap().starts_with(about_traces));
    assert_eq!(said.count(), 1, "{text}");
}
