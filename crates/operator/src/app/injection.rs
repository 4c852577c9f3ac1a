//! A pooler beside a program that is no App: its pod is changed when it is made. Like all webhooks it works on JSON, so
//! that fields which this release has never heard of are kept.

use k8s_openapi::api::core::v1::EnvVar;
use keelson_api::injection::{ANNOTATION, CONNECTIONS};
use keelson_api::instance::Names;
use serde_json::{Value, json};

use super::{binding, pooler};

/// The object of a `request`, with a pooler if it asks for one. What can't be understood is left as it is: nobody's pod is
/// refused for it.
pub fn inject(request: &Value, image: &str) -> Value {
    let mut pod = request.get("object").cloned().unwrap_or_default();
    let note = |name: &str| {
        let note = pod.get("metadata")?.get("annotations")?.get(name)?.as_str()?.trim();
        Some(note.to_owned()).filter(|note| !note.is_empty())
    };
    let Some(database) = note(ANNOTATION) else { return pod };
    let connections = note(CONNECTIONS).and_then(|text| text.parse().ok()).filter(|count| *count > 0);
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return pod };
    let named = |list: &Value| list.as_array().into_iter().flatten().any(|one| one["name"] == pooler::NAME);
    if named(&spec["containers"]) || named(&spec["initContainers"]) {
        return pod;
    }
    let secret = Names(&database).app();
    let container = pooler::container(image, &database, connections.unwrap_or(pooler::CONNECTIONS));
    // Containers that prepare something may need the database, too.
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let theirs: Vec<EnvVar> = serde_json::from_value(container["env"].clone()).unwrap_or_default();
            let theirs: Vec<&str> = theirs.iter().map(|one| one.name.as_str()).collect();
            let ours =
                binding::pooled(&secret).into_iter().filter(|one| !theirs.contains(&one.name.as_str()));
            let ours = ours.map(|one| json!(one)).collect();
            put_first(container, "env", ours);
            put_first(container, "volumeMounts", vec![json!(binding::mount(&database))]);
        }
    }
    put_first(spec, "initContainers", vec![json!(container)]);
    put_first(spec, "volumes", vec![json!(binding::volume(&secret)), json!(pooler::volume())]);
    pod
}

/// Puts entries before those of a list, which may not be there.
fn put_first(object: &mut Value, list: &str, mut entries: Vec<Value>) {
    match object.get_mut(list).and_then(Value::as_array_mut) {
        Some(known) => drop(known.splice(0..0, entries.drain(..))),
        None => object[list] = Value::Array(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(annotations: Value) -> Value {
        json!({"object": {
            "metadata": {"name": "job", "annotations": annotations},
            "spec": {
                "futureField": 7,
                "initContainers": [{"name": "migrate"}],
                "containers": [{"name": "job", "env": [{"name": "PGUSER", "value": "me"}]}]
            }
        }})
    }

    #[test]
    fn a_pod_that_names_a_database_gets_a_pooler_before_all_else() {
        let asked = request(json!({ANNOTATION: "orders", CONNECTIONS: "3"}));
        let pod = inject(&asked, "bouncer:1");
        let spec = &pod["spec"];
        assert_eq!(spec["initContainers"][0]["name"], "pooler");
        assert_eq!(spec["initContainers"][0]["restartPolicy"], "Always");
        assert!(
            spec["initContainers"][0]["env"][1]["value"].as_str().unwrap().contains("default_pool_size = 3")
        );
        assert_eq!(spec["initContainers"][1]["name"], "migrate");
        assert_eq!(spec["futureField"], 7, "what is not known is kept");
        for container in [&spec["initContainers"][1], &spec["containers"][0]] {
            let env = container["env"].as_array().unwrap();
            let value = |name: &str| {
                let found: Vec<_> = env.iter().filter(|one| one["name"] == name).collect();
                assert_eq!(found.len(), 1, "{name}: {env:?}");
                found[0].clone()
            };
            assert_eq!(value("PGHOST")["value"], "127.0.0.1");
            assert_eq!(value("PGPASSWORD")["valueFrom"]["secretKeyRef"]["name"], "orders-app");
            value("PGUSER");
        }
        assert_eq!(spec["volumes"][0]["secret"]["secretName"], "orders-app");
        assert_eq!(inject(&json!({"object": pod}), "bouncer:1"), pod, "once is enough");
    }

    #[test]
    fn every_other_pod_is_left_as_it_is() {
        for annotations in [json!(null), json!({}), json!({ANNOTATION: ""}), json!({ANNOTATION: 7})] {
            let asked = request(annotations);
            assert_eq!(inject(&asked, "bouncer:1"), asked["object"]);
        }
        assert_eq!(inject(&json!({}), "bouncer:1"), Value::Null);
        let odd = json!({"object": {"metadata": {"annotations": {ANNOTATION: "orders"}}, "spec": "odd"}});
        assert_eq!(inject(&odd, "bouncer:1"), odd["object"]);
    }
}
