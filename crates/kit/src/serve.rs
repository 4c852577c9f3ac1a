//! A small HTTP server, plain or behind TLS: for webhooks, metrics and health.
//!
//! It answers whole requests with whole answers. A body has a largest size, a request a longest time,
//! and so has a connection that says nothing. When it is told to stop, it takes no new connection and
//! lets requests under way end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Answers a request.
pub type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The largest body that is read: an API server sends objects, and those have at most 3 MiB; a
/// conversion can hold several.
const LARGEST_BODY: usize = 32 << 20;
/// For the TLS handshake, and for the body and the answer of a request.
const LONGEST: Duration = Duration::from_secs(10);
/// How long a connection may stay open without a request. API servers, as all that is written in Go, give
/// up such a connection after 90 s. It must not be closed from here before that: a request that
/// is sent at that very moment would be lost.
const IDLE: Duration = Duration::from_secs(120);
/// How long requests under way may take to end, once the server is to stop.
const GRACE: Duration = Duration::from_secs(10);

/// A handler from a function.
pub fn handler<F>(answer: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Response<Bytes>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(answer(request)))
}

/// An answer of plain text.
pub fn text(status: StatusCode, text: impl Into<String>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text.into()));
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

/// Serves until `stop` is over, then until the requests under way have ended.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Handler,
    stop: impl Future<Output = ()>,
) {
    converse_with_all(listener, tls.map(|tls| watch::channel(tls).1), handler, stop).await;
}

/// The same, with TLS as it is when somebody connects: certificates, and whom to trust, may change meanwhile. The port is
/// open all the time, and connections that are open go on.
pub async fn serve_current(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    handler: Handler,
    stop: impl Future<Output = ()>,
) {
    converse_with_all(listener, Some(tls), handler, stop).await;
}

async fn converse_with_all(
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    handler: Handler,
    stop: impl Future<Output = ()>,
) {
    let (ending, ended) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: others will be closed.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.borrow().clone()));
        let (handler, ended) = (handler.clone(), ended.clone());
        connections.spawn(async move {
            let done = match acceptor {
                None => converse(stream, handler, ended).await,
                Some(acceptor) => match tokio::time::timeout(LONGEST, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, handler, ended).await,
                    Ok(Err(error)) => Err(error.into()),
                    Err(_) => Ok(()),
                },
            };
            if let Err(error) = done {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    let _ = ending.send(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, rest).await;
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn converse<S>(stream: S, handler: Handler, mut ended: watch::Receiver<bool>) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(answer(request, handler).await.map(Full::new)) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return Ok(done?),
        _ = ended.wait_for(|ended| *ended) => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

async fn answer(request: Request<Incoming>, handler: Handler) -> Response<Bytes> {
    let whole = async {
        let (head, body) = request.into_parts();
        match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => handler(Request::from_parts(head, body.to_bytes())).await,
            Err(error) => text(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}")),
        }
    };
    let late = |_| text(StatusCode::SERVICE_UNAVAILABLE, "it took too long");
    tokio::time::timeout(LONGEST, whole).await.unwrap_or_else(late)
}

/// Listens on a port of all addresses.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, port)).await {
        // A machine without IPv6.
        Err(error) if error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(97) => {
            TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).await
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    async fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A certificate that only those trust who know it: for a server, and for its clients.
    fn certificate() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let provider = Arc::new(default_provider());
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut trusted = RootCertStore::empty();
        trusted.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        (Arc::new(server), Arc::new(client))
    }

    async fn ask_as(client: &Arc<ClientConfig>, port: u16) -> io::Result<String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the port is open all the time");
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(client.clone()).connect(name, stream).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        Ok(answer)
    }

    #[tokio::test]
    async fn another_certificate_closes_no_port_and_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (begin, mut begun) = watch::channel(false);
        let (go_on, gone_on) = watch::channel(false);
        let slow = handler(move |_| {
            let (begin, mut gone_on) = (begin.clone(), gone_on.clone());
            async move {
                let _ = begin.send(true);
                let _ = gone_on.wait_for(|go| *go).await;
                text(StatusCode::OK, "well")
            }
        });
        let ((first, trusts_first), (second, trusts_second)) = (certificate(), certificate());
        let (tls, current) = watch::channel(first);
        tokio::spawn(serve_current(listener, current, slow, std::future::pending()));
        let open = tokio::spawn({
            let trusts_first = trusts_first.clone();
            async move { ask_as(&trusts_first, port).await }
        });
        begun.wait_for(|begun| *begun).await.unwrap();
        tls.send(second).unwrap();
        ask_as(&trusts_first, port).await.expect_err("the first is not shown any more");
        go_on.send(true).unwrap();
        assert!(ask_as(&trusts_second, port).await.unwrap().ends_with("well"));
        assert!(open.await.unwrap().unwrap().ends_with("well"), "what was under way is answered");
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_after_the_server_was_told_to_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let (begin, begun) = watch::channel(false);
        let (go_on, gone_on) = watch::channel(false);
        let slow = handler(move |request: Request<Bytes>| {
            let (begin, mut gone_on) = (begin.clone(), gone_on.clone());
            async move {
                let _ = begin.send(true);
                let _ = gone_on.wait_for(|go| *go).await;
                text(StatusCode::OK, format!("{} bytes", request.body().len()))
            }
        });
        let server = tokio::spawn(serve(listener, None, slow, async { drop(stopped.await) }));
        let request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        let answer = tokio::spawn(ask(port, request));
        begun.clone().wait_for(|begun| *begun).await.unwrap();
        drop(stop);
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go_on.send(true).unwrap();
        assert!(answer.await.unwrap().ends_with("5 bytes"));
        server.await.unwrap();
    }
}
