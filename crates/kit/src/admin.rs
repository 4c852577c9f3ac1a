//! The pages for those who watch over the process: `/metrics` on one port (8080 by custom), `/healthz` and
//! `/readyz` on another (8081), which says 200 or 503 and why.

use std::future::Future;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::net::TcpListener;

use crate::health::Health;
use crate::serve::{self, Handler, handler, text};
use crate::telemetry::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves both ports until `stop` is over.
///
/// They are apart because different people may reach them: the kubelet asks for health without credentials,
/// while metrics may be kept to those who collect them.
pub async fn serve(
    metrics_listener: TcpListener,
    health_listener: TcpListener,
    metrics: Metrics,
    health: Health,
    stop: impl Future<Output = ()>,
) {
    let stop = stop.shared();
    tokio::join!(
        serve::serve(metrics_listener, None, pages(Some(metrics), None), stop.clone()),
        serve::serve(health_listener, None, pages(None, Some(health)), stop)
    );
}

/// The pages themselves, for whoever wants both on one port.
pub fn pages(metrics: Option<Metrics>, health: Option<Health>) -> Handler {
    handler(move |request| {
        let (metrics, health) = (metrics.clone(), health.clone());
        async move {
            page(&request, |path| match path {
                "/metrics" => metrics.map(|metrics| numbers(&metrics, request.headers())),
                "/healthz" => health.map(|health| state(health.liveness())),
                "/readyz" => health.map(|health| state(health.readiness())),
                _ => None,
            })
        }
    })
}

/// The page at a path, for those who only want to read.
fn page(request: &Request<Bytes>, find: impl FnOnce(&str) -> Option<Response<Bytes>>) -> Response<Bytes> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    find(request.uri().path()).unwrap_or_else(|| text(StatusCode::NOT_FOUND, "there is nothing here\n"))
}

fn numbers(metrics: &Metrics, headers: &HeaderMap) -> Response<Bytes> {
    let (body, kind) = match wants_open_metrics(headers) {
        true => (metrics.render(), OPEN_METRICS),
        false => (metrics.render_plain(), PLAIN),
    };
    let mut response = text(StatusCode::OK, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Prometheus names the format when it can read it. Whoever does not, such as a person with a browser, gets
/// the older one, which everything can read.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let named =
            parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
        named && !parts.any(|part| ["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&part))
    })
}

fn state((well, lines): (bool, String)) -> Response<Bytes> {
    match well {
        true => text(StatusCode::OK, lines),
        false => text(StatusCode::SERVICE_UNAVAILABLE, lines),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;

    struct Admin {
        metrics: u16,
        health: u16,
        well: Arc<AtomicBool>,
        stop: oneshot::Sender<()>,
        done: JoinHandle<()>,
    }

    impl Admin {
        async fn start() -> Admin {
            let metrics_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let health_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let ports = [&metrics_listener, &health_listener].map(|one| one.local_addr().unwrap().port());
            let (stop, stopped) = oneshot::channel();
            let well = Arc::new(AtomicBool::new(true));
            let (health, now) = (Health::new(), well.clone());
            health.live("process", || Ok(()));
            health.ready("watches", move || now.load(Ordering::SeqCst).then_some(()).ok_or("gone".into()));
            let metrics = Metrics::new("greeter");
            metrics.leading(true);
            let stop_when = async move { drop(stopped.await) };
            let done = tokio::spawn(serve(metrics_listener, health_listener, metrics, health, stop_when));
            Admin { metrics: ports[0], health: ports[1], well, stop, done }
        }
    }

    /// The first line, the headers, the body.
    async fn ask(port: u16, method: &str, path: &str, accept: &str) -> (String, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        (status.to_owned(), headers.to_ascii_lowercase(), body.to_owned())
    }

    #[tokio::test]
    async fn health_is_told_as_it_is_at_that_moment() {
        let admin = Admin::start().await;
        let (status, _, body) = ask(admin.health, "GET", "/readyz", "*/*").await;
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "[+] watches ok\n"));
        admin.well.store(false, Ordering::SeqCst);
        let (status, _, body) = ask(admin.health, "GET", "/readyz?verbose", "*/*").await;
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("HTTP/1.1 503 Service Unavailable", "[-] watches: gone\n")
        );
        let (status, _, body) = ask(admin.health, "GET", "/healthz", "*/*").await;
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "[+] process ok\n"));
        let (status, _, body) = ask(admin.health, "HEAD", "/readyz", "*/*").await;
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 503 Service Unavailable", ""));
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_that_was_asked_for() {
        let admin = Admin::start().await;
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let (status, headers, body) = ask(admin.metrics, "GET", "/metrics", prometheus).await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(headers.contains("content-type: application/openmetrics-text; version=1.0.0"), "{headers}");
        assert!(body.contains("\ngreeter_leader 1\n") && body.ends_with("# EOF\n"), "{body}");
        for accept in ["*/*", "text/plain", "application/openmetrics-text;q=0, text/plain"] {
            let (_, headers, body) = ask(admin.metrics, "GET", "/metrics", accept).await;
            assert!(headers.contains("content-type: text/plain; version=0.0.4"), "{headers}");
            assert!(body.contains("\ngreeter_leader 1\n") && !body.contains("# EOF"), "{body}");
        }
    }

    #[tokio::test]
    async fn nothing_else_is_there_and_nothing_can_be_sent() {
        let admin = Admin::start().await;
        for (port, path) in [(admin.metrics, "/healthz"), (admin.health, "/metrics"), (admin.health, "/")] {
            assert_eq!(ask(port, "GET", path, "*/*").await.0, "HTTP/1.1 404 Not Found");
        }
        for (port, path) in [(admin.metrics, "/metrics"), (admin.health, "/healthz")] {
            let (status, headers, _) = ask(port, "POST", path, "*/*").await;
            assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
            assert!(headers.contains("allow: get, head"), "{headers}");
        }
    }

    #[tokio::test]
    async fn both_ports_are_closed_when_it_is_to_stop() {
        let admin = Admin::start().await;
        drop(admin.stop);
        admin.done.await.unwrap();
        for port in [admin.metrics, admin.health] {
            assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
        }
    }
}
