//! What an operator tells about itself: logs, metrics, traces.
//!
//! - [`logs`]: lines for people on a terminal, one JSON object a line for machines. Whatever is said in a
//!   round names the object that the round is for.
//! - [`metrics`]: counted by construction in few series, whatever happens.
//! - [`traces`]: one trace a round of work, sent to an OpenTelemetry collector with the feature `otel`.
//!
//! ```no_run
//! # async fn operator() -> Result<(), keelson_kit::telemetry::Error> {
//! use keelson_kit::telemetry::{self, Metrics, Settings};
//!
//! let telemetry = telemetry::start(Settings::from_env("greeter", env!("CARGO_PKG_VERSION")))?;
//! let metrics = Metrics::new("greeter");
//! metrics.build(env!("CARGO_PKG_VERSION"));
//! // Work, with `metrics.observer("greeting")` as a controller's observer.
//! telemetry.shutdown().await;
//! # Ok(())
//! # }
//! ```

pub mod logs;
pub mod metrics;
#[cfg(feature = "otel")]
mod otlp;
mod process;
pub mod settings;
pub mod traces;

use std::io::IsTerminal;

use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

pub use metrics::{Metrics, MetricsObserver};
pub use settings::{Format, Settings};
pub use traces::round_span;

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is not one.
    #[error(
        "LOG_LEVEL or RUST_LOG is {filter:?}, which is no filter ({why}); write for example \"info\" or \"info,kube=debug\""
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else has set up logging in this process.
    #[error("logging is set up already in this process; start telemetry once, and before anything else does")]
    Twice,
    /// Traces can't be sent to this place.
    #[error("traces can't be sent to the OTLP endpoint: {0}; write for example \"http://collector:4318\"")]
    Endpoint(String),
    /// Traces are sent by the runtime, and there is none.
    #[error("traces need a Tokio runtime: start telemetry inside of one")]
    NoRuntime,
}

/// Telemetry that has been started. Logs go on until the process ends, whatever becomes of this.
#[derive(Debug)]
#[must_use = "the last spans are lost without a shutdown"]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    sender: Option<otlp::Sender>,
}

impl Telemetry {
    /// Sends the spans that are still waiting. It takes a few seconds at most, also when the
    /// collector is away or hangs.
    pub async fn shutdown(self) {
        #[cfg(feature = "otel")]
        if let Some(sender) = self.sender {
            sender.shutdown().await;
        }
    }
}

/// Sets up logs, and traces if an endpoint is set, for the whole process. Logs go to standard error. A panic,
/// wherever it happens, becomes a line of the log like any other.
pub fn start(settings: Settings) -> Result<Telemetry, Error> {
    let terminal = std::io::stderr().is_terminal();
    let (dispatch, telemetry) = assemble(&settings, std::io::stderr, terminal)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| Error::Twice)?;
    std::panic::set_hook(Box::new(logs::log_panic));
    if settings.otlp.is_some() && !cfg!(feature = "otel") {
        tracing::warn!("no traces are sent: this program was built without the feature `otel`");
    }
    Ok(telemetry)
}

/// All of it but the part that can be done only once in a process.
fn assemble<W>(settings: &Settings, writer: W, terminal: bool) -> Result<(Dispatch, Telemetry), Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = logs::filter(settings.filter.as_deref())?;
    let format = settings.format.on(terminal);
    let registry = tracing_subscriber::registry();
    #[cfg(feature = "otel")]
    let (registry, telemetry) = {
        let (layer, sender) =
            settings.otlp.as_deref().map(|to| otlp::layer(to, settings)).transpose()?.unzip();
        // Before the logs, so that a line can name the trace that it belongs to.
        (registry.with(layer), Telemetry { sender })
    };
    #[cfg(not(feature = "otel"))]
    let telemetry = Telemetry {};
    Ok((Dispatch::new(registry.with(logs::layer(format, filter, writer, terminal))), telemetry))
}
