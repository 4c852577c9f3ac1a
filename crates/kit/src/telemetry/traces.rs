//! One trace a round of work.

use tracing::Span;
use tracing::field::Empty;

use crate::controller::Key;

/// The span of one round: a root, so that every round is a trace of its own. What is logged inside
/// names the object, and is found by it.
///
/// Its level is the highest one, so that also a log of nothing but errors says which object they are about.
/// With the feature `otel`, and while traces are sent, it also has the field `trace_id`, and so has every
/// line that is logged inside.
pub fn round_span(controller: &str, key: &Key) -> Span {
    let span = tracing::error_span!(
        parent: None,
        "round",
        controller,
        namespace = key.namespace.as_str(),
        name = key.name.as_str(),
        trace_id = Empty,
        otel.name = format!("reconcile {controller}"),
        otel.status_code = Empty,
    );
    #[cfg(feature = "otel")]
    super::otlp::note_trace_id(&span);
    span
}

/// Marks the round of a span as failed, for whoever looks at traces.
pub(crate) fn mark_failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}
