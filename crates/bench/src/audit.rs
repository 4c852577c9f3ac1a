//! What a program asks of the API server, as the API server itself writes it down.
//!
//! Each is a user of its own, and only that user's requests are in the log. So the harness
//! can look on as it likes without being counted, and needs to ask the API server nothing to see how far
//! it has come.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{During, Error, Result};

/// One request, seen when it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) verb: String,
    /// With the subresource: `greetings/status`. The path, for what is not a resource.
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) code: u16,
    pub(super) at: Timestamp,
}

impl Request {
    pub(super) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    pub(super) fn succeeded(&self) -> bool {
        self.code < 400
    }

    /// Whether it is part of staying leader, which all do all the time.
    pub(super) fn is_lease(&self) -> bool {
        self.resource == "leases"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    stage_timestamp: Timestamp,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Event {
    fn request(self) -> Request {
        let object = self.object_ref;
        let resource = match (object.resource.as_str(), object.subresource.as_str()) {
            ("", _) => self.request_uri.split('?').next().unwrap_or_default().to_owned(),
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        };
        Request {
            verb: self.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: self.response_status.code,
            at: self.stage_timestamp,
        }
    }
}

/// Makes requests of text that comes in pieces. A watch is in the log when it begins and again when it
/// ends; it is one request.
#[derive(Debug, Default)]
struct Parser {
    rest: Vec<u8>,
    watches: HashSet<String>,
}

impl Parser {
    fn take(&mut self, piece: &[u8]) -> Result<Vec<Request>> {
        self.rest.extend_from_slice(piece);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let mut requests = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = serde_json::from_slice(line).map_err(|error| Error::Unreadable {
                what: "a line of the audit log".into(),
                why: error.to_string(),
            })?;
            if event.verb != "watch" || self.watches.insert(event.audit_id.clone()) {
                requests.push(event.request());
            }
        }
        Ok(requests)
    }
}

/// The log of one user, read as it grows.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: Option<File>,
    parser: Parser,
    requests: Vec<Request>,
}

impl Log {
    pub(super) fn new(path: PathBuf) -> Self {
        Log { path, file: None, parser: Parser::default(), requests: Vec::new() }
    }

    /// Reads what was added.
    pub(super) fn read(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                // It is made with the first line.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                opened => Some(opened.during("opening", &self.path)?),
            };
        }
        let mut piece = Vec::new();
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut piece).during("reading", &self.path)?;
        }
        self.requests.extend(self.parser.take(&piece)?);
        Ok(())
    }

    /// How many there are so far; a place to count from later.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// When the last was answered of those that were read after the first `from`, but for the Lease.
    pub(super) fn last_since(&self, from: usize) -> Option<Timestamp> {
        self.since(from).iter().filter(|request| !request.is_lease()).map(|request| request.at).max()
    }

    /// Those that were read after the first `from`.
    pub(super) fn since(&self, from: usize) -> &[Request] {
        &self.requests[from.min(self.requests.len())..]
    }
}

/// How many there are of a sort.
pub(super) fn count(requests: &[Request], which: impl Fn(&Request) -> bool) -> u64 {
    requests.iter().filter(|request| which(request)).count() as u64
}

/// From one moment to another.
pub(super) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// How many of which: `verb resource` to a number, with `(code)` where it was refused.
pub(super) type Tally = BTreeMap<String, u64>;

/// Counts requests.
pub(super) fn tally(requests: &[Request]) -> Tally {
    let mut tally = Tally::new();
    for request in requests {
        let refused = if request.succeeded() { String::new() } else { format!(" ({})", request.code) };
        let resource = if request.resource.starts_with('/') { "(discovery)" } else { &request.resource };
        *tally.entry(format!("{} {resource}{refused}", request.verb)).or_default() += 1;
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &str, id: &str, verb: &str, rest: &str) -> String {
        format!(
            r#"{{"kind":"Event","level":"Metadata","auditID":"{id}","stage":"{stage}","requestURI":"/api?x=1","verb":"{verb}","stageTimestamp":"2026-11-16T10:00:00.250000Z"{rest}}}"#
        ) + "\n"
    }

    fn status_update() -> String {
        let object = r#","objectRef":{"resource":"greetings","namespace":"a","name":"b","subresource":"status"},"responseStatus":{"metadata":{},"code":409}"#;
        line("ResponseComplete", "1", "update", object)
    }

    #[test]
    fn a_line_of_the_log_is_a_request() {
        let requests = Parser::default().take(status_update().as_bytes()).unwrap();
        let [request] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!(request.resource, "greetings/status");
        assert_eq!((request.namespace.as_str(), request.name.as_str()), ("a", "b"));
        assert!(request.is_write() && !request.succeeded() && !request.is_lease());
        assert_eq!(request.at.as_millisecond() % 1000, 250);
    }

    #[test]
    fn a_line_that_is_written_in_pieces_is_read_once() {
        let text = status_update();
        let (one, other) = text.split_at(100);
        let mut parser = Parser::default();
        assert_eq!(parser.take(one.as_bytes()).unwrap(), []);
        assert_eq!(parser.take(other.as_bytes()).unwrap().len(), 1);
        assert_eq!(parser.take(b"").unwrap(), []);
    }

    #[test]
    fn a_watch_counts_once_whether_it_began_well_or_was_refused() {
        let text = line("ResponseStarted", "1", "watch", "")
            + &line("ResponseComplete", "1", "watch", "")
            + &line("ResponseComplete", "2", "watch", r#","responseStatus":{"code":410}"#);
        let requests = Parser::default().take(text.as_bytes()).unwrap();
        assert_eq!(requests.len(), 2);
        let counted = tally(&requests);
        assert_eq!(counted.get("watch (discovery)"), Some(&1));
        assert_eq!(counted.get("watch (discovery) (410)"), Some(&1));
    }

    #[test]
    fn nonsense_is_an_error_and_not_nothing() {
        assert!(Parser::default().take(b"{}\n").is_err());
    }
}
