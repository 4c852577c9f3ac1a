//! Webhooks: conversion, validation and mutation, as plain functions on paths of one server.
//!
//! ```text
//! let webhooks = Webhooks::new()
//!     .convert("/convert", |object, desired| convert(object, desired))
//!     .validate("/validate", |request| objections(request))
//!     .mutate("/mutate", |request| Ok(with_defaults(&request["object"])));
//! serve(listener, Some(certificates.tls()?), webhooks.handler(), stop).await;
//! ```
//!
//! The functions get JSON as the API server sent it, and not types: an object may have fields that this
//! release has never heard of, and a webhook that loses them, or that can't read a whole object
//! because of one of them, does harm. Whoever wants types makes them from the part of interest.
//!
//! A function does no IO; it runs on a thread where it may compute, since a list of ten thousand objects
//! is converted in one go. If it panics, that request is answered with an error, and no other.

mod review;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::Value;

use crate::serve::{Handler, handler, text};
use review::Malformed;

/// What is said about an object that somebody wants to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why not; allowed if there is nothing.
    pub objections: Vec<String>,
    /// What the person is told in any case.
    pub warnings: Vec<String>,
}

/// Objections alone: none of them is a yes.
impl From<Vec<String>> for Verdict {
    fn from(objections: Vec<String>) -> Self {
        Verdict { objections, warnings: Vec::new() }
    }
}

/// One objection.
impl From<String> for Verdict {
    fn from(objection: String) -> Self {
        vec![objection].into()
    }
}

/// How a review came out, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Converted, allowed or changed.
    Done,
    /// An object was objected to, or could not be converted.
    Refused,
    /// What was sent was no review.
    Malformed,
    /// The function panicked.
    Panicked,
}

impl Outcome {
    /// The name under which it is counted.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Done => "success",
            Outcome::Refused => "refused",
            Outcome::Malformed => "malformed",
            Outcome::Panicked => "panic",
        }
    }
}

type Answer = Result<(Value, Outcome), Malformed>;
type Review = Arc<dyn Fn(Value) -> Answer + Send + Sync>;
type Observer = Arc<dyn Fn(&str, Outcome, Duration) + Send + Sync>;

/// The webhooks of one server, by path.
#[derive(Clone, Default)]
pub struct Webhooks {
    paths: BTreeMap<String, Review>,
    observer: Option<Observer>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths.keys()).finish()
    }
}

impl Webhooks {
    /// None yet.
    pub fn new() -> Self {
        Webhooks::default()
    }

    /// Converts objects: given one and the `apiVersion` that is wanted, the same object in it. One that
    /// can't be converted makes the whole review fail, in words that name it: there is no
    /// other way for an API server to hear of it.
    pub fn convert<E: fmt::Display>(
        self,
        path: &str,
        convert: impl Fn(Value, &str) -> Result<Value, E> + Send + Sync + 'static,
    ) -> Self {
        self.with(path, move |sent| review::conversion(sent, &convert))
    }

    /// Judges what somebody wants to write, from the `request` of an AdmissionReview.
    pub fn validate<V: Into<Verdict>>(
        self,
        path: &str,
        validate: impl Fn(&Value) -> V + Send + Sync + 'static,
    ) -> Self {
        self.with(path, move |sent| review::validation(sent, |request| validate(request).into()))
    }

    /// Changes what somebody wants to write: from the `request` of an AdmissionReview the object as it
    /// should be. It is compared with what was sent, and the difference is the answer. An error
    /// refuses the request.
    pub fn mutate<V: Into<Verdict>>(
        self,
        path: &str,
        mutate: impl Fn(&Value) -> Result<Value, V> + Send + Sync + 'static,
    ) -> Self {
        self.with(path, move |sent| review::mutation(sent, |request| mutate(request).map_err(Into::into)))
    }

    /// Tells how each review came out, and how long it took.
    pub fn observe(mut self, observer: impl Fn(&str, Outcome, Duration) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    fn with(mut self, path: &str, review: impl Fn(Value) -> Answer + Send + Sync + 'static) -> Self {
        self.paths.insert(path.to_owned(), Arc::new(review));
        self
    }

    /// For [`crate::serve::serve`].
    pub fn handler(self) -> Handler {
        let webhooks = Arc::new(self);
        handler(move |request| {
            let webhooks = webhooks.clone();
            async move { webhooks.answer(request).await }
        })
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        // An API server adds `?timeout=10s`, which is not part of the path.
        let path = request.uri().path().to_owned();
        let Some(review) = self.paths.get(&path).cloned() else {
            return text(StatusCode::NOT_FOUND, format!("there is no webhook at {path}"));
        };
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "send a review with POST");
        }
        let (start, body) = (Instant::now(), request.into_body());
        let reviewed = tokio::task::spawn_blocking(move || {
            let sent = serde_json::from_slice(&body).map_err(Malformed::Json)?;
            let (answer, outcome) = review(sent)?;
            Ok::<_, Malformed>((answer.to_string(), outcome))
        });
        let (response, outcome) = match reviewed.await {
            Ok(Ok((answer, outcome))) => (json(answer), outcome),
            Ok(Err(malformed)) => (text(StatusCode::BAD_REQUEST, malformed.to_string()), Outcome::Malformed),
            Err(_) => {
                tracing::error!(path, "a webhook panicked");
                let said = format!("the webhook at {path} panicked; its log says where");
                (text(StatusCode::INTERNAL_SERVER_ERROR, said), Outcome::Panicked)
            }
        };
        if let Some(observer) = &self.observer {
            observer(&path, outcome, start.elapsed());
        }
        response
    }
}

fn json(body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
