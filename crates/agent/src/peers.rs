//! What agents of one database ask each other: HTTPS, with a certificate of the database's own on both sides.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use keelson_api::instance::{Report, paths, ports};
use keelson_ha::{Answer, Question};
use keelson_kit::serve::{Handler, handler, text};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

use crate::environment::Environment;

/// Why the agent's own page can't be served.
#[derive(Debug, Error)]
pub enum PeersError {
    /// A file of the Secret.
    #[error("the Secret for tls has no usable {file}: {why}")]
    File {
        /// Which.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// What is in them does not fit together.
    #[error("the certificate in the Secret for tls can't be used: {0}")]
    Tls(String),
}

/// Why another agent has not answered.
#[derive(Debug, Error)]
pub enum AskError {
    /// It could not be reached.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// Not in time.
    #[error("no answer in time")]
    Late,
    /// Its answer makes no sense.
    #[error("{0}")]
    Answer(String),
    /// The own certificate.
    #[error(transparent)]
    Tls(#[from] PeersError),
}

/// A question from another agent, and where the answer goes.
pub type Asked = (Question, oneshot::Sender<Answer>);

fn wrong(error: &dyn std::fmt::Display) -> PeersError {
    PeersError::Tls(error.to_string())
}

fn certificates(name: &'static str) -> Result<Vec<CertificateDer<'static>>, PeersError> {
    let file = |why: rustls::pki_types::pem::Error| PeersError::File { file: name, why: why.to_string() };
    let found = CertificateDer::pem_file_iter(Path::new(paths::TLS).join(name)).map_err(file)?;
    found.collect::<Result<Vec<_>, _>>().map_err(file)
}

fn key() -> Result<PrivateKeyDer<'static>, PeersError> {
    let file =
        |why: rustls::pki_types::pem::Error| PeersError::File { file: "tls.key", why: why.to_string() };
    PrivateKeyDer::from_pem_file(Path::new(paths::TLS).join("tls.key")).map_err(file)
}

fn trusted() -> Result<Arc<RootCertStore>, PeersError> {
    let mut trusted = RootCertStore::empty();
    for authority in certificates("ca.crt")? {
        trusted.add(authority).map_err(|error| wrong(&error))?;
    }
    Ok(Arc::new(trusted))
}

/// Whoever has no certificate that this database's authority has signed is not answered.
pub fn tls() -> Result<Arc<ServerConfig>, PeersError> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted()?, provider.clone());
    let verifier = verifier.build().map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates("tls.crt")?, key()?)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

fn client_tls() -> Result<Arc<ClientConfig>, PeersError> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(trusted()?)
        .with_client_auth_cert(certificates("tls.crt")?, key()?)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

/// Answers `GET /v1/state` with the report, and questions at `POST /v1/ask`.
pub fn page(report: watch::Receiver<Report>, questions: mpsc::Sender<Asked>) -> Handler {
    handler(move |request: Request<Bytes>| {
        let (report, questions) = (report.clone(), questions.clone());
        async move {
            match (request.method(), request.uri().path()) {
                (&Method::GET, "/v1/state") => json(&*report.borrow()),
                (&Method::POST, "/v1/ask") => answer(request.body(), questions).await,
                _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
            }
        }
    })
}

fn json(value: &impl serde::Serialize) -> Response<Bytes> {
    match serde_json::to_string(value) {
        Ok(value) => text(StatusCode::OK, value),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn answer(body: &Bytes, questions: mpsc::Sender<Asked>) -> Response<Bytes> {
    let question = match serde_json::from_slice(body) {
        Ok(question) => question,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let (sender, receiver) = oneshot::channel();
    let busy = || text(StatusCode::SERVICE_UNAVAILABLE, "the agent does not answer");
    if questions.send((question, sender)).await.is_err() {
        return busy();
    }
    receiver.await.map_or_else(|_| busy(), |answer| json(&answer))
}

/// Asks other agents. Their addresses are remembered, for when names can't be looked up.
#[derive(Clone)]
pub struct Peers {
    here: Environment,
    addresses: Arc<Mutex<HashMap<String, IpAddr>>>,
}

impl Peers {
    /// Of the same database.
    pub fn new(here: Environment) -> Peers {
        Peers { here, addresses: Arc::default() }
    }

    /// Asks one of them.
    pub async fn ask(&self, name: &str, question: &Question, deadline: Duration) -> Result<Answer, AskError> {
        tokio::time::timeout(deadline, self.converse(name, question)).await.map_err(|_| AskError::Late)?
    }

    /// Whether connections to its first process are refused, at the address that it has or had.
    pub async fn refuses(&self, name: &str, deadline: Duration) -> bool {
        let connected = tokio::time::timeout(deadline, self.connect(name)).await;
        matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    async fn converse(&self, name: &str, question: &Question) -> Result<Answer, AskError> {
        let stream = self.connect(name).await?;
        let host = self.here.host(name);
        let server =
            ServerName::try_from(host.clone()).map_err(|error| AskError::Answer(error.to_string()))?;
        let stream = TlsConnector::from(client_tls()?).connect(server, stream).await?;
        let wrong = |error: &dyn std::fmt::Display| AskError::Answer(error.to_string());
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| wrong(&error))?;
        // Ends with the sender.
        tokio::spawn(connection);
        let body = serde_json::to_vec(question).map_err(|error| wrong(&error))?;
        let request = Request::post("/v1/ask")
            .header(http::header::HOST, host)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| wrong(&error))?;
        let response = sender.send_request(request).await.map_err(|error| wrong(&error))?;
        let body = response.into_body().collect().await.map_err(|error| wrong(&error))?.to_bytes();
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
        match answer.holder.name == name {
            true => Ok(answer),
            false => Err(AskError::Answer(format!("{} answered in place of {name}", answer.holder.name))),
        }
    }

    async fn connect(&self, name: &str) -> io::Result<TcpStream> {
        TcpStream::connect((self.address(name).await?, ports::AGENT)).await
    }

    /// Where it is, or was.
    async fn address(&self, name: &str) -> io::Result<IpAddr> {
        let lookup = tokio::net::lookup_host((self.here.host(name), ports::AGENT));
        let found = match tokio::time::timeout(LOOKUP, lookup).await {
            Ok(found) => found.map(|mut found| found.next().map(|address| address.ip())),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(Some(address)) => {
                known.insert(name.to_owned(), address);
                Ok(address)
            }
            Ok(None) => known.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into()),
            Err(error) => known.get(name).copied().ok_or(error),
        }
    }
}

/// How long looking a name up may take.
const LOOKUP: Duration = Duration::from_millis(300);
