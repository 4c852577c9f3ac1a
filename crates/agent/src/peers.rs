//! What agents of one database ask each other: HTTPS, with a certificate of the database's own on both sides
//! ([`trust`]), and with the identifier of its system, where that is known.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use keelson_api::instance::{Report, ports};
use keelson_engine::Lsn;
use keelson_ha::{Answer, Question};
use keelson_kit::serve::{Handler, handler, text};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::environment::Environment;
use crate::facts::Facts;
use crate::trust::{self, TrustError};

/// Of which database the one who asks, or who answers, is an instance: the identifier that its data has.
const SYSTEM: HeaderName = HeaderName::from_static("keelson-system");

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
    Tls(#[from] TrustError),
    /// It is an instance of another database.
    #[error("it has the data of the database {theirs}, and this instance of {ours}")]
    OtherSystem {
        /// The identifier there.
        theirs: String,
        /// And here.
        ours: String,
    },
}

/// A question from another agent, and where the answer goes.
pub type Asked = (Question, oneshot::Sender<Answer>);

/// From where on an instance keeps the log for each of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLog {
    /// The instance.
    pub name: String,
    /// By the names of slots.
    pub slots: BTreeMap<String, Lsn>,
}

impl KeptLog {
    fn of(name: &str, facts: &Facts) -> KeptLog {
        let slots = facts.status.iter().flat_map(|status| &status.slots).filter(|slot| slot.physical);
        let slots = slots.filter_map(|slot| Some((slot.name.clone(), slot.restart?))).collect();
        KeptLog { name: name.to_owned(), slots }
    }
}

/// Answers `GET /v1/state` with the report, `GET /v1/slots` with what is kept of the log, and questions at
/// `POST /v1/ask`.
pub fn page(
    name: &str,
    report: watch::Receiver<Report>,
    facts: watch::Receiver<Facts>,
    questions: mpsc::Sender<Asked>,
) -> Handler {
    let name: Arc<str> = name.into();
    handler(move |request: Request<Bytes>| {
        let (report, questions) = (report.clone(), questions.clone());
        let (name, facts) = (name.clone(), facts.clone());
        async move {
            let ours = report.borrow().system_id.clone();
            if let Err(error) = same_system(ours.as_deref(), request.headers()) {
                return text(StatusCode::MISDIRECTED_REQUEST, error.to_string());
            }
            let mut response = match (request.method(), request.uri().path()) {
                (&Method::GET, "/v1/state") => json(&*report.borrow()),
                (&Method::GET, "/v1/slots") => json(&KeptLog::of(&name, &facts.borrow())),
                (&Method::POST, "/v1/ask") => answer(request.body(), questions).await,
                _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
            };
            name_system(ours.as_deref(), response.headers_mut());
            response
        }
    })
}

/// Names the own system, if it is known.
fn name_system(ours: Option<&str>, headers: &mut HeaderMap) {
    if let Some(value) = ours.and_then(|ours| HeaderValue::from_str(ours).ok()) {
        headers.insert(SYSTEM, value);
    }
}

/// An address, and even a name with its certificate, may belong to another database by now: one that was made anew
/// under the old name. Who has no data yet has nothing to confuse.
fn same_system(ours: Option<&str>, headers: &HeaderMap) -> Result<(), AskError> {
    let theirs = headers.get(SYSTEM).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            Err(AskError::OtherSystem { theirs: theirs.into_owned(), ours: ours.to_owned() })
        }
        _ => Ok(()),
    }
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
    reports: watch::Receiver<Report>,
    addresses: Arc<Mutex<HashMap<String, IpAddr>>>,
}

impl Peers {
    /// Of the same database as this instance, of which these are the reports.
    pub fn new(here: Environment, reports: watch::Receiver<Report>) -> Peers {
        Peers { here, reports, addresses: Arc::default() }
    }

    /// Asks one of them.
    pub async fn ask(&self, name: &str, question: &Question, deadline: Duration) -> Result<Answer, AskError> {
        let body = serde_json::to_vec(question).map_err(|error| AskError::Answer(error.to_string()))?;
        let request = Request::post("/v1/ask").body(Full::new(Bytes::from(body)));
        let answer: Answer = self.converse(name, request, deadline).await?;
        is_of(name, &answer.holder.name)?;
        Ok(answer)
    }

    /// From where on one of them keeps the log for the others.
    pub async fn kept_log(&self, name: &str, deadline: Duration) -> Result<KeptLog, AskError> {
        let request = Request::get("/v1/slots").body(Full::default());
        let kept: KeptLog = self.converse(name, request, deadline).await?;
        is_of(name, &kept.name)?;
        Ok(kept)
    }

    /// Whether connections to its first process are refused, at the address that it has or had.
    pub async fn refuses(&self, name: &str, deadline: Duration) -> bool {
        let connected = tokio::time::timeout(deadline, self.connect(name)).await;
        matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    async fn converse<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        request: Result<Request<Full<Bytes>>, http::Error>,
        deadline: Duration,
    ) -> Result<T, AskError> {
        let wrong = |error: &dyn std::fmt::Display| AskError::Answer(error.to_string());
        let request = request.map_err(|error| wrong(&error))?;
        let answered = tokio::time::timeout(deadline, self.exchange(name, request));
        let body = answered.await.map_err(|_| AskError::Late)??;
        serde_json::from_slice(&body).map_err(|error| wrong(&error))
    }

    async fn exchange(&self, name: &str, mut request: Request<Full<Bytes>>) -> Result<Bytes, AskError> {
        let wrong = |error: &dyn std::fmt::Display| AskError::Answer(error.to_string());
        let stream = self.connect(name).await?;
        let host = self.here.host(name);
        let header = HeaderValue::from_str(&host).map_err(|error| wrong(&error))?;
        request.headers_mut().insert(http::header::HOST, header);
        let ours = self.reports.borrow().system_id.clone();
        name_system(ours.as_deref(), request.headers_mut());
        let server = ServerName::try_from(host).map_err(|error| wrong(&error))?;
        let stream = TlsConnector::from(trust::client()?).connect(server, stream).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| wrong(&error))?;
        // Ends with the sender.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| wrong(&error))?;
        same_system(ours.as_deref(), response.headers())?;
        Ok(response.into_body().collect().await.map_err(|error| wrong(&error))?.to_bytes())
    }

    async fn connect(&self, name: &str) -> io::Result<TcpStream> {
        TcpStream::connect((self.address(name).await?, ports::AGENT)).await
    }

    /// Where it is, or was, if that is known.
    pub async fn find(&self, name: &str) -> Option<IpAddr> {
        self.address(name).await.ok()
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

/// An address may be another's by now.
fn is_of(name: &str, who: &str) -> Result<(), AskError> {
    if who == name { Ok(()) } else { Err(AskError::Answer(format!("{who} answered in place of {name}"))) }
}

/// How long looking a name up may take.
const LOOKUP: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_the_data_of_another_database_is_not_listened_to() {
        let naming = |system: Option<&str>| {
            let mut headers = HeaderMap::new();
            name_system(system, &mut headers);
            headers
        };
        for (ours, theirs, fits) in [
            (Some("7"), Some("7"), true),
            (Some("7"), Some("8"), false),
            (Some("7"), None, true),
            (None, Some("8"), true),
        ] {
            assert_eq!(same_system(ours, &naming(theirs)).is_ok(), fits, "{ours:?} {theirs:?}");
        }
        let error = same_system(Some("7"), &naming(Some("8"))).unwrap_err().to_string();
        assert!(error.contains("the database 8") && error.contains("of 7"), "{error}");
    }
}
