//! The way between an operator and the API server, with what can go wrong on it.
//!
//! Reads of one object, and lists that are not the beginning of a watch, are answered by the API server as it
//! is: they are reads of its storage. What may be behind, or be lost, is what a watch tells, the list
//! included that it begins with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tower::BoxError;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// It is answered with this, and not made.
    Answer(u16),
    /// It is made, and the connection ends before the answer.
    Lost,
    /// It is made, and the server says that it ran out of time.
    LostInTime,
    /// It is not made, and no answer comes for as long as anybody waits for one.
    Hang,
}

/// How long whoever goes this way waits for an answer. The deadline of the real client is beyond this layer, and would
/// not end what hangs in it; that it holds is shown where the client is.
const PATIENCE: Duration = Duration::from_secs(2);

/// A write that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub method: Method,
    pub resource: String,
    pub name: String,
    pub code: u16,
}

/// What watches tell.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    /// Nothing of these kinds.
    silent: BTreeSet<String>,
    /// How often silence about a kind was ended with the news that too much was missed.
    lost: BTreeMap<String, usize>,
}

impl Told {
    fn lost(&self, kind: &str) -> usize {
        self.lost.get(kind).copied().unwrap_or_default()
    }
}

/// What a write is to meet: the first is 1.
type Refuses = Box<dyn Fn(usize) -> Option<Refusal> + Send + Sync>;

#[derive(Clone)]
pub struct Way(Arc<Inner>);

struct Inner {
    dies_with: usize,
    refuses: Refuses,
    /// The version of all lists that watches begin with, for as long as kinds are silent.
    past: Option<String>,
    told: watch::Sender<Told>,
    begun: AtomicUsize,
    made: AtomicUsize,
    dead: Notify,
    written: Mutex<Vec<Write>>,
    moments: Mutex<Vec<String>>,
    listed: Mutex<BTreeSet<String>>,
}

/// All kinds that an operator watches.
pub const WATCHED: [&str; 11] = [
    "databases",
    "configmaps",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "statefulsets",
    "services",
    "poddisruptionbudgets",
    "pods",
    "persistentvolumeclaims",
    "backups",
];

impl Way {
    /// Nothing goes wrong.
    pub fn clear() -> Way {
        Way::new(usize::MAX, None, Box::new(|_| None))
    }

    /// The world of whoever goes this way ends with the n-th write: that one is made, but no answer comes.
    pub fn to_death(with: usize) -> Way {
        Way::new(with, None, Box::new(|_| None))
    }

    /// Writes meet this; the first is 1.
    pub fn refusing(refuses: impl Fn(usize) -> Option<Refusal> + Send + Sync + 'static) -> Way {
        Way::new(usize::MAX, None, Box::new(refuses))
    }

    /// Watches of these kinds tell of the world as it was in this version, until they are let speak.
    pub fn to_the_past(version: &str, kinds: &[&str]) -> Way {
        let way = Way::new(usize::MAX, Some(version.to_owned()), Box::new(|_| None));
        way.silence(kinds);
        way
    }

    fn new(dies_with: usize, past: Option<String>, refuses: Refuses) -> Way {
        Way(Arc::new(Inner {
            dies_with,
            refuses,
            past,
            told: watch::Sender::new(Told::default()),
            begun: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            dead: Notify::new(),
            written: Mutex::default(),
            moments: Mutex::default(),
            listed: Mutex::default(),
        }))
    }

    /// Watches of these kinds tell nothing from now on.
    pub fn silence(&self, kinds: &[&str]) {
        self.0.told.send_modify(|told| told.silent.extend(kinds.iter().map(|kind| (*kind).to_owned())));
    }

    /// Watches tell all that they have not told yet.
    pub fn speak(&self) {
        self.0.told.send_modify(|told| told.silent.clear());
    }

    /// What watches have not told yet is lost, and they end with the news that too much was missed.
    pub fn lose(&self) {
        self.0.told.send_modify(|told| {
            for kind in std::mem::take(&mut told.silent) {
                *told.lost.entry(kind).or_default() += 1;
            }
        });
    }

    /// How many writes were answered, but for those of leadership and events.
    pub fn writes(&self) -> usize {
        self.0.made.load(Ordering::SeqCst)
    }

    /// All that was written and answered.
    pub fn written(&self) -> Vec<Write> {
        self.0.written.lock().unwrap().clone()
    }

    /// The version of the world after each write.
    pub fn moments(&self) -> Vec<String> {
        self.0.moments.lock().unwrap().clone()
    }

    /// Whether watches of all kinds have begun.
    pub fn has_listed(&self) -> bool {
        let listed = self.0.listed.lock().unwrap();
        WATCHED.iter().all(|kind| listed.contains(*kind))
    }

    /// Until whoever goes this way is dead.
    pub async fn death(&self) {
        self.0.dead.notified().await;
    }

    /// A client that goes this way.
    pub fn client(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let way = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (way, client) = (way.clone(), client.clone());
            async move { way.send(client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, client: Client, request: Request<Body>) -> Result<Answer, BoxError> {
        let what = What::of(&request);
        if what.aside {
            return plain(client.send(request).await?);
        }
        if self.0.begun.load(Ordering::SeqCst) >= self.0.dies_with {
            std::future::pending::<()>().await;
        }
        match (&what.reads, request.method()) {
            (Reads::Watch, _) => self.watch(client, request, what.resource).await,
            (Reads::First, _) => {
                self.0.listed.lock().unwrap().insert(what.resource.clone());
                let request = self.rewound(request, &what.resource);
                plain(client.send(request).await?)
            }
            (Reads::Other, &Method::GET) => plain(client.send(request).await?),
            _ => self.write(client, request, what).await,
        }
    }

    async fn write(&self, client: Client, request: Request<Body>, what: What) -> Result<Answer, BoxError> {
        let number = self.0.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let method = request.method().clone();
        let refusal = (self.0.refuses)(number);
        if let Some(Refusal::Answer(code)) = refusal {
            return Ok(failure(code));
        }
        if refusal == Some(Refusal::Hang) {
            tokio::time::sleep(PATIENCE).await;
            return Err("no answer came in time".into());
        }
        let answer = client.clone().send(request).await?;
        let write =
            Write { method, resource: what.resource, name: what.name, code: answer.status().as_u16() };
        self.0.written.lock().unwrap().push(write);
        self.0.made.fetch_add(1, Ordering::SeqCst);
        if let Some(version) = version(&client, &what.namespace).await {
            self.0.moments.lock().unwrap().push(version);
        }
        if number >= self.0.dies_with {
            self.0.dead.notify_one();
            std::future::pending::<()>().await;
        }
        match refusal {
            Some(Refusal::Lost) => Err("the connection was lost before the answer".into()),
            Some(Refusal::LostInTime) => Ok(failure(504)),
            _ => plain(answer),
        }
    }

    /// The list that a watch begins with, as it once was.
    fn rewound(&self, request: Request<Body>, kind: &str) -> Request<Body> {
        let Some(past) = self.0.past.as_ref().filter(|_| self.0.told.borrow().silent.contains(kind)) else {
            return request;
        };
        let (mut head, body) = request.into_parts();
        // A page after the first has its version in the token that it goes on from.
        if !head.uri.query().unwrap_or_default().contains("continue=") {
            let exact = format!("{}&resourceVersion={past}&resourceVersionMatch=Exact", head.uri);
            head.uri = exact.parse::<Uri>().unwrap();
        }
        Request::from_parts(head, body)
    }

    async fn watch(&self, client: Client, request: Request<Body>, kind: String) -> Result<Answer, BoxError> {
        let (head, body) = client.send(request).await?.into_parts();
        let told = self.0.told.subscribe();
        let begun = told.borrow().lost(&kind);
        let events = lines(body.into_data_stream().map(|chunk| chunk.map_err(BoxError::from)));
        let state = (Box::pin(events), told, kind, begun, false);
        let passed = stream::unfold(state, |(mut events, mut told, kind, lost, ended)| async move {
            if ended {
                return None;
            }
            let line = tokio::select! {
                line = events.next() => Some(line?),
                changed = told.wait_for(|told| told.lost(&kind) != lost) => { drop(changed); None }
            };
            // What comes while nothing may be told waits here, and all behind it.
            drop(told.wait_for(|told| !told.silent.contains(&kind)).await);
            let missed = told.borrow().lost(&kind) != lost;
            let frame = match line {
                Some(line) if !missed => line.map(Frame::data),
                _ => Ok(Frame::data(too_old())),
            };
            Some((frame, (events, told, kind, lost, missed)))
        });
        Ok(Response::from_parts(head, StreamBody::new(passed).boxed_unsync()))
    }
}

/// What a request is about.
struct What {
    namespace: String,
    resource: String,
    name: String,
    reads: Reads,
    /// Leadership and events are no part of what is tried.
    aside: bool,
}

enum Reads {
    Watch,
    /// The list that a watch begins with.
    First,
    Other,
}

impl What {
    fn of(request: &Request<Body>) -> What {
        let path = request.uri().path();
        let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1).map(str::to_owned);
        let (namespace, resource, name) = (parts.next(), parts.next(), parts.next());
        let query = request.uri().query().unwrap_or_default();
        let reads = match (request.method(), &name) {
            (&Method::GET, None) if query.contains("watch=true") => Reads::Watch,
            (&Method::GET, None) if query.contains("limit=") => Reads::First,
            _ => Reads::Other,
        };
        let aside = path.contains("-op-") || path.contains("/events");
        What {
            namespace: namespace.unwrap_or_default(),
            resource: resource.unwrap_or_default(),
            name: name.unwrap_or_default(),
            reads,
            aside,
        }
    }
}

fn plain(answer: Response<Body>) -> Result<Answer, BoxError> {
    Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
}

fn failure(code: u16) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": format!("refused with {code}"), "reason": "Test"
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

fn too_old() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
        "reason": "Expired", "message": "too old resource version"
    });
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

/// Whole lines of what comes in pieces.
fn lines(
    chunks: impl Stream<Item = Result<Bytes, BoxError>> + Send,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    let state = (Box::pin(chunks), BytesMut::new());
    stream::unfold(state, |(mut chunks, mut buffer)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1).freeze();
                return Some((Ok(line), (chunks, buffer)));
            }
            match chunks.next().await? {
                Ok(chunk) => buffer.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), (chunks, buffer))),
            }
        }
    })
}

/// The version that the world of a namespace has now.
async fn version(client: &Client, namespace: &str) -> Option<String> {
    let list = format!("/apis/keelson.dev/v1/namespaces/{namespace}/databases?limit=1");
    let list: Value = client.request(Request::get(list).body(Vec::new()).unwrap()).await.ok()?;
    list["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}
