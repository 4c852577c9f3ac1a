//! The conversation that the API server has with a conversion webhook.

use serde_json::{Map, Value, json};

use super::{ApiVersion, ConversionError, convert};

/// Answers a `ConversionReview`, whatever it holds: all of its objects converted, or the reason why not.
/// The answer's `response.result` says which, as the API server expects; there is no other error.
pub fn review(mut review: Value) -> Value {
    let request = review.get_mut("request").map(Value::take).unwrap_or_default();
    let uid = request.get("uid").cloned().unwrap_or_else(|| "".into());
    let mut response = Map::new();
    response.insert("uid".to_owned(), uid);
    match converted(request) {
        Ok(objects) => {
            response.insert("convertedObjects".to_owned(), Value::Array(objects));
            response.insert("result".to_owned(), json!({ "status": "Success" }));
        }
        Err(error) => {
            let result = json!({ "status": "Failure", "message": error.to_string() });
            response.insert("result".to_owned(), result);
        }
    }
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response })
}

fn converted(mut request: Value) -> Result<Vec<Value>, ConversionError> {
    let desired = request.get("desiredAPIVersion").and_then(Value::as_str).unwrap_or_default();
    let desired = ApiVersion::of(desired)?;
    match request.get_mut("objects").map(Value::take) {
        Some(Value::Array(objects)) => objects.into_iter().map(|object| convert(object, desired)).collect(),
        _ => Ok(Vec::new()),
    }
}
