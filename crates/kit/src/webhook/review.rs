//! The conversations that an API server has with webhooks: what is around the objects.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use thiserror::Error;

use super::{Answer, Outcome, Verdict};

/// Something that is no review.
#[derive(Debug, Error)]
pub(super) enum Malformed {
    #[error("the body is not JSON: {0}")]
    Json(#[source] serde_json::Error),
    #[error("the body is not a review: it has no `{0}`")]
    Without(&'static str),
}

/// Answers a `ConversionReview`: all objects converted, or the reason why not.
pub(super) fn conversion<E: fmt::Display>(
    mut sent: Value,
    convert: impl Fn(Value, &str) -> Result<Value, E>,
) -> Answer {
    let uid = uid(&sent)?;
    let desired = sent.pointer("/request/desiredAPIVersion").and_then(Value::as_str);
    let desired = desired.ok_or(Malformed::Without("request.desiredAPIVersion"))?.to_owned();
    let Some(Value::Array(objects)) = sent.pointer_mut("/request/objects").map(Value::take) else {
        return Err(Malformed::Without("request.objects"));
    };
    let one = |object: Value| {
        let name = name(&object);
        convert(object, &desired).map_err(|error| format!("{name} can't be converted to {desired}: {error}"))
    };
    let (response, outcome) = match objects.into_iter().map(one).collect::<Result<Vec<Value>, String>>() {
        Ok(objects) => {
            let result = json!({ "status": "Success" });
            (json!({ "uid": uid, "convertedObjects": objects, "result": result }), Outcome::Done)
        }
        Err(message) => {
            let result = json!({ "status": "Failure", "message": message });
            (json!({ "uid": uid, "result": result }), Outcome::Refused)
        }
    };
    let answer = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response
    });
    Ok((answer, outcome))
}

/// Answers an `AdmissionReview` with yes or no.
pub(super) fn validation(sent: Value, validate: impl Fn(&Value) -> Verdict) -> Answer {
    let uid = uid(&sent)?;
    Ok(admission(&uid, validate(&sent["request"]), None))
}

/// Answers an `AdmissionReview` with what is to be changed.
pub(super) fn mutation(sent: Value, mutate: impl Fn(&Value) -> Result<Value, Verdict>) -> Answer {
    let uid = uid(&sent)?;
    let request = &sent["request"];
    Ok(match mutate(request) {
        Ok(object) => {
            let patch = json_patch::diff(request.get("object").unwrap_or(&Value::Null), &object);
            // No patch at all rather than an empty one: nothing is to be changed.
            let patch = (!patch.0.is_empty()).then(|| json!(patch).to_string());
            admission(&uid, Verdict::default(), patch)
        }
        Err(verdict) => admission(&uid, verdict, None),
    })
}

fn admission(uid: &str, verdict: Verdict, patch: Option<String>) -> (Value, Outcome) {
    let allowed = verdict.objections.is_empty();
    let mut response = json!({ "uid": uid, "allowed": allowed });
    if !allowed {
        let message = verdict.objections.join("; ");
        response["status"] = json!({ "code": 422, "reason": "Invalid", "message": message });
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = verdict.warnings.into();
    }
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch).into();
    }
    let outcome = if allowed { Outcome::Done } else { Outcome::Refused };
    let answer =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    (answer, outcome)
}

/// What the API server knows its question by.
fn uid(sent: &Value) -> Result<String, Malformed> {
    let uid = sent.pointer("/request/uid").and_then(Value::as_str);
    uid.map(str::to_owned).ok_or(Malformed::Without("request.uid"))
}

/// An object, as people call it.
fn name(object: &Value) -> String {
    let part = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let kind = part("/kind");
    match part("/metadata/namespace") {
        "" => format!("{kind} {}", part("/metadata/name")),
        namespace => format!("{kind} {namespace}/{}", part("/metadata/name")),
    }
}
