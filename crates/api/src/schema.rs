//! Pieces of schema that several kinds share, and what Kubernetes wants said differently.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// A DNS label that begins with a letter, as names of ports and services do.
pub(crate) const LABEL: &str = "^[a-z]([a-z0-9-]*[a-z0-9])?$";

/// The name of an object, as most kinds have it: a DNS subdomain.
pub(crate) const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The name of a label, with or without a domain before it.
pub(crate) const LABEL_NAME: &str =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// A map of labels, bounded so that rules over it stay cheap.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
        }
    })
}

/// Conditions, one of each type, so that several writers can apply theirs.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    let item = generator.subschema_for::<Condition>();
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}

/// Joins the lines of every description: they are broken where the source is, and `kubectl explain` breaks
/// them again.
pub(crate) fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => {
                        let paragraphs: Vec<String> =
                            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
                        *text = paragraphs.join("\n\n");
                    }
                    value => join_lines(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// Takes out `nullable` and the null in lists of words, everywhere. The API server drops a null where none is allowed, so rules and
/// readers never meet one; where it is allowed it would be kept, and `has()` would be true for it.
pub(crate) fn drop_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            if let Some(Value::Array(words)) = fields.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            fields.values_mut().for_each(drop_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nullable),
        _ => {}
    }
}

/// A rule in CEL, as it stands in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// What must be true. `self` is what the rule is attached to, `oldSelf` what it was before.
    pub rule: &'static str,
    /// What a person reads when it is not.
    pub message: &'static str,
}

/// Rules as `x-kubernetes-validations`.
pub(crate) fn validations(rules: &[Rule]) -> Value {
    let entry = |rule: &Rule| {
        let fields = [("rule", rule.rule), ("message", rule.message)];
        Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<Map<_, _>>())
    };
    Value::Array(rules.iter().map(entry).collect())
}
