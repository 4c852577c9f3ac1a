//! Log lines: for people, or one JSON object a line.
//!
//! A JSON line is flat. It has `timestamp`, `level`, `target` and `message`, then what the line says in fields
//! of its own, then what the spans around it say; of two fields with the same name the innermost counts.
//! So `controller`, `namespace` and `name` of a round are in every line that is logged in it.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error as StdError;
use std::fmt;
use std::panic::PanicHookInfo;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::{Error, Format};

/// The libraries below, which have much to say about each request.
const QUIET: [&str; 9] =
    ["h2", "hyper", "hyper_util", "kube", "kube_client", "kube_runtime", "rustls", "tower", "tower_http"];

/// What is logged, from the text that a person gave.
pub(super) fn filter(given: Option<&str>) -> Result<EnvFilter, Error> {
    let wrong = |why: &dyn fmt::Display| Error::Filter {
        filter: given.unwrap_or_default().to_owned(),
        why: why.to_string(),
    };
    // Before the defaults are put around it, so that what is wrong is said of what was given.
    EnvFilter::try_new(given.unwrap_or_default()).map_err(|error| wrong(&error))?;
    EnvFilter::try_new(directives(given)).map_err(|error| wrong(&error))
}

/// The defaults, then what was given: of two directives for one thing the last counts.
fn directives(given: Option<&str>) -> String {
    let given = given.unwrap_or_default();
    let words = given.split(',').map(str::trim).filter(|word| !word.is_empty());
    let overall = words.filter_map(|word| word.parse::<LevelFilter>().ok()).next_back();
    let mut all = vec!["info".to_owned()];
    if overall.is_none_or(|level| level > LevelFilter::WARN) {
        all.extend(QUIET.map(|library| format!("{library}=warn")));
    }
    all.extend((!given.trim().is_empty()).then(|| given.to_owned()));
    all.join(",")
}

/// Writes the lines that pass the filter.
pub(super) fn layer<S, W>(
    format: Format,
    filter: EnvFilter,
    writer: W,
    terminal: bool,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(terminal);
    match format.on(terminal) {
        Format::Human => lines.with_filter(filter).boxed(),
        _ => lines.fmt_fields(JsonFields::new()).event_format(Flat).with_filter(filter).boxed(),
    }
}

/// One flat JSON object a line.
struct Flat;

impl<S> FormatEvent<S, JsonFields> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = Line::default();
        event.record(&mut line);
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>().map(|fields| fields.fields.as_str());
            let fields = fields.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
            fields.into_iter().flatten().for_each(|(name, value)| line.add(&name, || value));
        }
        let metadata = event.metadata();
        let head = [
            ("timestamp", Value::from(timestamp)),
            ("level", Value::from(metadata.level().as_str())),
            ("target", Value::from(metadata.target())),
            ("message", Value::from(line.message)),
        ];
        // The head first, where the eye looks for it, and not among the others in the order of the alphabet.
        let head = head.map(|(name, value)| format!("\"{name}\":{value}")).join(",");
        match serde_json::to_string(&line.fields).map_err(|_| fmt::Error)?.strip_prefix('{') {
            Some(rest) if !line.fields.is_empty() => writeln!(writer, "{{{head},{rest}"),
            _ => writeln!(writer, "{{{head}}}"),
        }
    }
}

/// The names that every line has, and no field may take.
const HEAD: [&str; 4] = ["timestamp", "level", "target", "message"];

/// What a line says.
#[derive(Default)]
struct Line {
    message: String,
    fields: Map<String, Value>,
}

impl Line {
    /// Adds a field, unless one with its name is there already.
    fn add(&mut self, name: &str, value: impl FnOnce() -> Value) {
        // Those are for the traces.
        if name.starts_with("otel.") {
            return;
        }
        let name = if HEAD.contains(&name) { format!("{name}_") } else { name.to_owned() };
        self.fields.entry(name).or_insert_with(value);
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.add(name, || Value::from(format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.add(name, || Value::from(value)),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), || Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), || Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), || Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), || Value::from(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn StdError + 'static)) {
        self.add(field.name(), || Value::from(reasons(value)));
    }
}

/// An error and what is behind it, in one line: `this failed: because of that: because of this`. What an
/// error has already said of its cause is not said twice.
pub fn reasons(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A panic as a line of the log, with the object of the round in which it happened.
pub(super) fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    // Only where it was asked for with RUST_BACKTRACE.
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(panic = message, location, %backtrace, "panicked"),
        _ => tracing::error!(panic = message, location, "panicked"),
    }
}

#[cfg(test)]
pub(super) mod tests;
