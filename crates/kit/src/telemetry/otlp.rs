//! Traces to an OpenTelemetry collector, as OTLP over HTTP with protobuf.
//!
//! Spans that have ended go into a queue of bounded length. A thread of its own takes them out in batches and
//! sends them. When the collector is away, the queue fills up and further spans are dropped: nothing waits
//! for it. That it is away is said once, and so is that it is back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::KeyValue;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::logs::reasons;
use super::{Error, Settings};

/// Spans that wait to be sent, at most: some MiB.
const QUEUE: usize = 2048;
const BATCH: usize = 512;
/// How long a span waits for others.
const DELAY: Duration = Duration::from_secs(5);
/// One try to send a batch.
const LONGEST_TRY: Duration = Duration::from_secs(5);
/// What is still to be sent when the process ends.
const LONGEST_FLUSH: Duration = Duration::from_secs(3);
/// A collector answers with a few bytes.
const LARGEST_ANSWER: usize = 1 << 20;

/// The layer that makes spans of what `tracing` sees, and what sends them.
pub(super) fn layer<S>(
    endpoint: &str,
    settings: &Settings,
) -> Result<(impl Layer<S> + Send + Sync + use<S>, Sender), Error>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let address = address(endpoint)?;
    let client = Post::new(&address)?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(address.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(LONGEST_TRY)
        .build()
        .map_err(|error| Error::Endpoint(reasons(&error)))?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(DELAY)
        .build();
    let resource = Resource::builder()
        .with_service_name(settings.service.clone())
        .with_attribute(KeyValue::new("service.version", settings.version.clone()))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(env!("CARGO_PKG_NAME")))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(
            dynamic_filter_fn(|metadata, context| traced(metadata, || context.lookup_current().is_some()))
                .with_max_level_hint(LevelFilter::DEBUG),
        );
    Ok((layer, Sender { provider }))
}

/// What goes into traces: what is worth a line in the log, and each request to the API server that is made for
/// something. Nothing of the libraries that send traces themselves, or each span sent would make new ones.
fn traced(metadata: &Metadata<'_>, inside: impl FnOnce() -> bool) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    match library {
        "h2" | "hyper" | "hyper_util" | "hyper_rustls" | "rustls" | "tower" | "tower_http" => false,
        name if name.starts_with("opentelemetry") => false,
        "kube_client" => metadata.is_span() && *metadata.level() <= Level::DEBUG && inside(),
        _ => *metadata.level() <= Level::INFO,
    }
}

/// Gives the log lines of a span the id of its trace, if it is sent.
pub(super) fn note_trace_id(span: &Span) {
    let context = span.context();
    let span_in_context = context.span();
    let known = span_in_context.span_context();
    if known.is_valid() && known.is_sampled() {
        span.record("trace_id", known.trace_id().to_string());
    }
}

/// The whole address from what a person wrote: the path that collectors have by custom is added where none
/// is given.
fn address(endpoint: &str) -> Result<Uri, Error> {
    // The text may have a password in it, so it is not repeated.
    let uri: Uri = endpoint.parse().map_err(|error| Error::Endpoint(format!("it is no address: {error}")))?;
    let mut parts = uri.into_parts();
    let scheme = parts.scheme.as_ref().map(ToString::to_string);
    if !matches!(scheme.as_deref(), Some("http" | "https")) || parts.authority.is_none() {
        return Err(Error::Endpoint("its address begins neither with http:// nor with https://".to_owned()));
    }
    if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/v1/traces"));
    }
    Uri::from_parts(parts).map_err(|error| Error::Endpoint(format!("it is no address: {error}")))
}

/// What sends spans, and is to be ended.
pub(super) struct Sender {
    provider: SdkTracerProvider,
}

impl Sender {
    /// Sends what is waiting, within a bound. On a thread of its own, since it blocks and the runtime is
    /// needed for sending; and not on one that the runtime would wait for at its end.
    pub(super) async fn shutdown(self) {
        let (done, over) = tokio::sync::oneshot::channel();
        let flush = move || {
            let flushed = self.provider.shutdown_with_timeout(LONGEST_FLUSH);
            let _ = done.send(flushed.is_ok());
        };
        if std::thread::Builder::new().name("flush-traces".to_owned()).spawn(flush).is_err() {
            return;
        }
        let flushed = tokio::time::timeout(LONGEST_FLUSH + Duration::from_millis(500), over).await;
        if !matches!(flushed, Ok(Ok(true))) {
            tracing::debug!("some traces were not sent before the end");
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The client that requests go through. They run on the runtime that was there at the start, since the thread
/// that asks for them has none.
struct Post {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    collector: Arc<Collector>,
}

impl Post {
    fn new(address: &Uri) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let connector = HttpsConnectorBuilder::new();
        let trusting = if address.scheme_str() == Some("https") {
            connector.with_provider_and_native_roots(default_provider()).map_err(|error| {
                Error::Endpoint(format!("no certificate authorities were found for https ({error})"))
            })?
        } else {
            let nobody = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| Error::Endpoint(reasons(&error)))?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            connector.with_tls_config(nobody)
        };
        let connector = trusting.https_or_http().enable_http1().build();
        let collector = Collector {
            address: format!("{}:{}", address.host().unwrap_or_default(), port(address)),
            away: AtomicBool::new(false),
        };
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Post { client, runtime, collector: Arc::new(collector) })
    }
}

fn port(address: &Uri) -> u16 {
    address.port_u16().unwrap_or(if address.scheme_str() == Some("https") { 443 } else { 80 })
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("collector", &self.collector.address).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (client, collector) = (self.client.clone(), self.collector.clone());
        let sending = async move {
            let tried = tokio::time::timeout(LONGEST_TRY, send(client, request)).await;
            let tried = tried.unwrap_or_else(|_| Err("no answer in time".into()));
            collector.answered(&tried);
            tried
        };
        self.runtime.spawn(sending).await?
    }
}

async fn send(
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, LARGEST_ANSWER).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Whether the collector takes what it is sent, as far as is known.
struct Collector {
    address: String,
    away: AtomicBool,
}

impl Collector {
    /// Says what has changed, and nothing while it stays as it is.
    fn answered(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let error = match answer {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(reasons(error.as_ref())),
        };
        let collector = &self.address;
        match error {
            Some(error) if !self.away.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    collector,
                    error,
                    "traces can't be sent, and are lost until this is said to be over"
                );
            }
            None if self.away.swap(false, Ordering::Relaxed) => {
                tracing::info!(collector, "traces are sent again")
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
