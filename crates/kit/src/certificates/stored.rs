//! The Secret: one document with everything in it, so that it is changed as a whole or not at all.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use thiserror::Error;

use super::pair::{self, Fault, Signed};
use super::plan::State;

/// The key in the Secret's data.
const DOCUMENT: &str = "certificates.json";

/// A Secret that holds something else. What it holds is not told, since keys may be among it.
#[derive(Debug, Error)]
pub(crate) enum Unreadable {
    #[error("it has no `{DOCUMENT}`")]
    Empty,
    #[error("its `{DOCUMENT}` can't be read: line {line}, column {column}")]
    Document { line: usize, column: usize },
    #[error("the {which} pair is of no use: {fault}")]
    Pair { which: &'static str, fault: Fault },
    #[error("an authority is of no use: {0}")]
    Authority(Fault),
}

/// Reads a Secret. All that is said there is checked, so that what is loaded can be served with and what
/// is written into targets is accepted.
pub(crate) fn read(secret: &Secret) -> Result<State<Signed>, Unreadable> {
    let document = secret.data.as_ref().and_then(|data| data.get(DOCUMENT)).ok_or(Unreadable::Empty)?;
    let state: State<Signed> = serde_json::from_slice(&document.0).map_err(|error| {
        // Not the message itself: it quotes what it could not make sense of.
        Unreadable::Document { line: error.line(), column: error.column() }
    })?;
    let pairs = [("serving", Some(&state.serving)), ("next", state.next.as_ref())];
    for (which, pair) in pairs.into_iter().filter_map(|(which, pair)| Some((which, pair?))) {
        pair::verify(pair).map_err(|fault| Unreadable::Pair { which, fault })?;
    }
    for authority in &state.trusted {
        pair::roots(authority).map_err(Unreadable::Authority)?;
    }
    Ok(state)
}

/// The data of a Secret with this in it.
pub(crate) fn write(state: &State<Signed>) -> Result<BTreeMap<String, ByteString>, serde_json::Error> {
    let document = serde_json::to_vec(state)?;
    Ok(BTreeMap::from([(DOCUMENT.to_owned(), ByteString(document))]))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::certificates::Settings;

    fn state() -> State<Signed> {
        let make = |second| {
            let now = Timestamp::from_second(second).unwrap();
            pair::make(&["a.example".to_owned()], now, &Settings::default()).unwrap()
        };
        let (one, two, three) = (make(1_800_000_000), make(1_800_000_001), make(1_700_000_000));
        State { serving: one, next: Some(two), trusted: vec![three.authority] }
    }

    fn secret(document: Vec<u8>) -> Secret {
        let data = BTreeMap::from([(DOCUMENT.to_owned(), ByteString(document))]);
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let state = state();
        let secret = Secret { data: Some(write(&state).unwrap()), ..Secret::default() };
        assert_eq!(read(&secret).unwrap(), state);
    }

    #[test]
    fn whatever_somebody_did_to_it_is_noticed_and_not_repeated_aloud() {
        let good = serde_json::to_value(state()).unwrap();
        let changes: [fn(&mut Value); 10] = [
            |doc| doc["serving"]["key"] = doc["next"]["key"].clone(),
            |doc| doc["serving"]["certificate"] = doc["next"]["certificate"].clone(),
            |doc| doc["serving"]["authority"] = doc["next"]["authority"].clone(),
            |doc| doc["serving"]["authority"]["until"] = "2099-01-01T00:00:00Z".into(),
            |doc| doc["next"]["from"] = "2001-01-01T00:00:00Z".into(),
            |doc| doc["next"]["names"] = serde_json::json!(["b.example"]),
            |doc| doc["next"]["names"] = serde_json::json!([]),
            |doc| doc["trusted"][0]["certificate"] = "nonsense".into(),
            |doc| doc["serving"] = doc["serving"]["key"].clone(),
            |doc| *doc = Value::Null,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut document = good.clone();
            change(&mut document);
            let error = read(&secret(document.to_string().into_bytes())).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("PRIVATE KEY"), "{number}: {error}");
        }
        let cut = good.to_string().into_bytes();
        assert!(matches!(read(&secret(cut[..cut.len() / 2].to_vec())), Err(Unreadable::Document { .. })));
        assert!(matches!(read(&Secret::default()), Err(Unreadable::Empty)));
    }
}
