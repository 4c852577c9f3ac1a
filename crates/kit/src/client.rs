//! A client of the API server that does not wait for ever, does not repeat itself, and stops writing
//! when it may no longer write.
//!
//! [`kube`]'s own defaults do not fit a controller: a server that falls silent hangs a call for ever,
//! and a refused write is sent up to 15 times, minutes later, by which time it may be wrong. Here each
//! request has a deadline, and whether to try again is decided where all the facts are: by the
//! [queue](crate::queue), per object.

use std::error::Error as StdError;
use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};

use crate::leader::Term;
use crate::telemetry::Metrics;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// To connect.
    pub connect: Duration,
    /// For a whole request and its answer, unless it is a watch or another stream.
    pub request: Duration,
    /// How long a watch may be silent. The API server sends a bookmark about every minute.
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(15),
            silence: Duration::from_secs(90),
        }
    }
}

/// Connects to the cluster that the environment names: the one that this runs in, or the one that
/// `kubectl` would talk to.
pub async fn connect(deadlines: Deadlines, metrics: &Metrics) -> Result<Client, kube::Error> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    with_config(config, deadlines, metrics)
}

/// Connects as a configuration says.
pub fn with_config(
    mut config: Config,
    deadlines: Deadlines,
    metrics: &Metrics,
) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(deadlines.connect);
    config.read_timeout = Some(deadlines.silence);
    config.write_timeout = Some(deadlines.silence);
    config.default_retry = false;
    let bounds = Bounds { deadline: deadlines.request, metrics: metrics.clone() };
    Ok(ClientBuilder::try_from(config)?.with_layer(&bounds).build())
}

/// The same client, which sends no write once the term is over.
///
/// Work that is ended when leadership is lost may have been about to write; and a process that was
/// paused for a minute goes on exactly where it stood, before any timer of its own is looked at. So the
/// question is asked at the last moment, for every write, by construction.
pub fn guarded(client: Client, term: Term) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, term) = (client.clone(), term.clone());
        async move {
            if !is_read(request.method()) && !term.holds() {
                return Err(BoxError::from(NotLeading));
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

/// A write was not sent because this process does not lead, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeading;

impl fmt::Display for NotLeading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not sent: this process no longer leads")
    }
}

impl StdError for NotLeading {}

/// The API server did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate(Duration);

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the API server did not answer within {:?}", self.0)
    }
}

impl StdError for TooLate {}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[derive(Clone)]
struct Bounds {
    deadline: Duration,
    metrics: Metrics,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bounds: self.clone() }
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Bounds each request, and counts it.
struct Bounded<S> {
    inner: S,
    bounds: Bounds,
}

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(&request);
        let stream = is_stream(&request);
        let Bounds { deadline, metrics } = self.bounds.clone();
        let answer = self.inner.call(request);
        let start = Instant::now();
        Box::pin(async move {
            let whole = async {
                let (head, body) = answer.await?.into_parts();
                // A deadline on the head alone would let a server that stops in mid-sentence hang us.
                let body = match stream {
                    true => body.map_err(Into::into).boxed_unsync(),
                    false => {
                        let whole = body.collect().await.map_err(Into::into)?.to_bytes();
                        Full::new(whole).map_err(|never| match never {}).boxed_unsync()
                    }
                };
                Ok(Response::from_parts(head, body))
            };
            let answer = tokio::time::timeout(deadline, whole).await;
            let answer = answer.unwrap_or_else(|_| Err(TooLate(deadline).into()));
            let code = answer.as_ref().map_or(0, |answer: &Answer| answer.status().as_u16());
            metrics.request(verb, code, start.elapsed());
            answer
        })
    }
}

/// Whether the answer goes on for as long as somebody listens. A deadline is then for its beginning.
fn is_stream(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let asked = |name: &str| query.split('&').any(|part| part == name);
    asked("watch=true") || asked("follow=true") || request.headers().contains_key(header::UPGRADE)
}

/// The verb, as Kubernetes itself counts requests.
fn verb(request: &Request<Body>) -> &'static str {
    let apply = || {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        kind.is_some_and(|kind| kind.starts_with("application/apply-patch"))
    };
    match *request.method() {
        Method::GET if is_stream(request) => "watch",
        Method::GET if names_an_object(request.uri().path()) => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if apply() => "apply",
        Method::PATCH => "patch",
        Method::DELETE if names_an_object(request.uri().path()) => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

/// `/api/v1/nodes` is a list, `/apis/apps/v1/namespaces/x/deployments/y` is not.
fn names_an_object(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let skipped = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return true,
    };
    let rest: Vec<_> = parts.skip(skipped).collect();
    match rest.as_slice() {
        ["namespaces", _, _] | [_] | [] => false,
        ["namespaces", _] | [_, _, ..] => true,
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    fn request(method: Method, path: &str) -> Request<Body> {
        Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
    }

    #[test]
    fn requests_are_counted_under_the_verbs_that_kubernetes_uses() {
        for (method, path, expected) in [
            (Method::GET, "/api/v1/nodes", "list"),
            (Method::GET, "/api/v1/nodes/one", "get"),
            (Method::GET, "/api/v1/namespaces", "list"),
            (Method::GET, "/api/v1/namespaces/here", "get"),
            (Method::GET, "/api/v1/namespaces/here/pods?limit=500", "list"),
            (Method::GET, "/apis/apps/v1/namespaces/here/deployments/one/status", "get"),
            (Method::GET, "/apis/apps/v1/deployments?watch=true&timeoutSeconds=290", "watch"),
            (Method::GET, "/version", "get"),
            (Method::DELETE, "/api/v1/namespaces/here/pods", "deletecollection"),
            (Method::DELETE, "/api/v1/namespaces/here/pods/one", "delete"),
            (Method::POST, "/api/v1/namespaces/here/pods", "create"),
            (Method::PATCH, "/api/v1/namespaces/here/pods/one", "patch"),
            (Method::PUT, "/api/v1/namespaces/here/pods/one", "update"),
        ] {
            assert_eq!(verb(&request(method, path)), expected, "{path}");
        }
        let mut apply = request(Method::PATCH, "/api/v1/namespaces/here/pods/one");
        apply.headers_mut().insert(header::CONTENT_TYPE, "application/apply-patch+yaml".parse().unwrap());
        assert_eq!(verb(&apply), "apply");
    }

    /// An API server that answers the head of an answer and then nothing.
    fn half_an_answer() -> impl Service<
        Request<Body>,
        Response = Answer,
        Error = BoxError,
        Future = impl Future<Output = Result<Answer, BoxError>> + Send,
    > {
        tower::service_fn(|_| async {
            let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, BoxError>>();
            Ok(Response::new(http_body_util::StreamBody::new(never).boxed_unsync()))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stops_in_the_middle_is_an_error_and_a_watch_that_is_quiet_is_none() {
        let bounds = Bounds { deadline: Duration::from_secs(15), metrics: Metrics::new("test") };
        let hung = bounds.layer(half_an_answer()).oneshot(request(Method::GET, "/api/v1/nodes")).await;
        assert!(hung.unwrap_err().downcast_ref::<TooLate>().is_some());
        let watch = request(Method::GET, "/api/v1/nodes?watch=true");
        assert!(bounds.layer(half_an_answer()).oneshot(watch).await.is_ok());
    }
}
