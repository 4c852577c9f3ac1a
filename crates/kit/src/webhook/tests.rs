use std::sync::Mutex;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::*;

/// Converts anything whose name is not `odd`, objects to negative replicas, and names a shelf.
fn webhooks() -> Webhooks {
    Webhooks::new()
        .convert("/convert", |mut object, desired| {
            if object["metadata"]["name"] == "odd" {
                return Err("nobody knows how");
            }
            object["apiVersion"] = desired.into();
            Ok(object)
        })
        .validate("/validate", |request| match request["object"]["replicas"].as_i64() {
            Some(replicas) if replicas < 0 => vec!["less than nothing".to_owned(), "no".to_owned()],
            _ => Vec::new(),
        })
        .mutate("/mutate", |request| {
            let mut object = request["object"].clone();
            if object["shelf"] == "none" {
                return Err("it needs a shelf".to_owned());
            }
            object["shelf"] = "a/b".into();
            Ok(object)
        })
        .validate("/panic", |request| -> Verdict { panic!("on purpose: {request}") })
}

async fn ask(webhooks: Webhooks, path: &str, body: String) -> (StatusCode, String) {
    let request = Request::post(format!("https://x{path}?timeout=10s")).body(Bytes::from(body)).unwrap();
    let response = webhooks.handler()(request).await;
    (response.status(), String::from_utf8(response.into_body().to_vec()).unwrap())
}

async fn review(path: &str, request: Value) -> Value {
    let (status, answer) = ask(webhooks(), path, json!({ "request": request }).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["response"].clone()
}

#[tokio::test]
async fn a_conversion_is_answered_whole_or_with_the_reason() {
    let thing = |name: &str| json!({ "kind": "Thing", "metadata": { "name": name, "namespace": "x" } });
    let request = |objects: Value| json!({ "uid": "7", "desiredAPIVersion": "a/v2", "objects": objects });
    let answer = review("/convert", request(json!([thing("one"), thing("two")]))).await;
    assert_eq!((&answer["uid"], &answer["result"]["status"]), (&json!("7"), &json!("Success")));
    assert_eq!(answer["convertedObjects"][1]["metadata"]["name"], "two");
    assert_eq!(answer["convertedObjects"][1]["apiVersion"], "a/v2");
    let answer = review("/convert", request(json!([thing("one"), thing("odd")]))).await;
    assert_eq!((&answer["uid"], answer.get("convertedObjects")), (&json!("7"), None));
    let expected = json!({
        "status": "Failure", "message": "Thing x/odd can't be converted to a/v2: nobody knows how"
    });
    assert_eq!(answer["result"], expected);
}

#[tokio::test]
async fn objections_are_told_all_at_once() {
    let answer = review("/validate", json!({ "uid": "8", "object": { "replicas": 1 } })).await;
    assert_eq!(answer, json!({ "uid": "8", "allowed": true }));
    let answer = review("/validate", json!({ "uid": "8", "object": { "replicas": -1 } })).await;
    assert_eq!((&answer["uid"], &answer["allowed"]), (&json!("8"), &json!(false)));
    assert_eq!(answer["status"]["message"], "less than nothing; no");
}

#[tokio::test]
async fn a_change_is_told_as_a_difference_and_none_as_none() {
    let answer = review("/mutate", json!({ "uid": "9", "object": { "replicas": 1 } })).await;
    assert_eq!((&answer["allowed"], &answer["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch = BASE64_STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch, json!([{ "op": "add", "path": "/shelf", "value": "a/b" }]));
    let answer = review("/mutate", json!({ "uid": "9", "object": { "shelf": "a/b" } })).await;
    assert_eq!(answer, json!({ "uid": "9", "allowed": true }));
    let answer = review("/mutate", json!({ "uid": "9", "object": { "shelf": "none" } })).await;
    assert_eq!(answer["status"]["message"], "it needs a shelf");
}

#[tokio::test]
async fn what_is_no_review_is_refused_in_words() {
    for (path, body, says) in [
        ("/convert", "nonsense", "not JSON"),
        ("/convert", "{}", "request.uid"),
        ("/convert", r#"{"request": {"uid": "7"}}"#, "request.desiredAPIVersion"),
        ("/convert", r#"{"request": {"uid": "7", "desiredAPIVersion": "v1"}}"#, "request.objects"),
        ("/validate", "[]", "request.uid"),
        ("/mutate", "", "not JSON"),
    ] {
        let (status, answer) = ask(webhooks(), path, body.to_owned()).await;
        assert!(status == StatusCode::BAD_REQUEST && answer.contains(says), "{path} {body}: {answer}");
    }
    assert_eq!(ask(webhooks(), "/other", String::new()).await.0, StatusCode::NOT_FOUND);
    let get = Request::get("https://x/convert").body(Bytes::new()).unwrap();
    assert_eq!(webhooks().handler()(get).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_panic_is_an_error_of_one_request_and_is_counted() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let rows = seen.clone();
    let webhooks = webhooks().observe(move |path, outcome, _| {
        rows.lock().unwrap().push((path.to_owned(), outcome.label()));
    });
    let body = json!({ "request": { "uid": "1", "object": {} } }).to_string();
    for (path, status) in [
        ("/panic", StatusCode::INTERNAL_SERVER_ERROR),
        ("/validate", StatusCode::OK),
        ("/convert", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(ask(webhooks.clone(), path, body.clone()).await.0, status);
    }
    let expected = [("/panic", "panic"), ("/validate", "success"), ("/convert", "malformed")];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(path, label)| (path.to_owned(), label)));
}
