//! The field reference, written from the definitions.

use std::fmt::{self, Write};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Fields with these names hold types of Kubernetes itself, which are explained elsewhere.
const OF_KUBERNETES: &[&str] = &["conditions", "env", "tolerations"];

const TITLE: &str = "# The kinds and their fields

Written by `make generate`; do not edit. `kubectl explain db.spec`
shows the same. Fields that are not marked *required* can be left out.
";

/// The reference as Markdown.
pub fn markdown(
    crds: &[CustomResourceDefinition],
    policy: &ValidatingAdmissionPolicy,
) -> Result<String, ReferenceError> {
    let mut page = TITLE.to_owned();
    for crd in crds {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let schema = serde_json::to_value(schema)?;
            writeln!(page, "\n## {} {}/{}\n", crd.spec.names.kind, crd.spec.group, version.name)?;
            writeln!(page, "{}", text(&schema, "description"))?;
            if let Some(warning) = &version.deprecation_warning {
                writeln!(page, "\n**Deprecated**: {warning}.")?;
            }
            for part in ["spec", "status"] {
                writeln!(page, "\n### {part}\n\n| field | type | meaning |\n|---|---|---|")?;
                rows(&mut page, &schema["properties"][part], "")?;
            }
            let mut messages = Vec::new();
            rules(&schema, &mut messages);
            write_rules(&mut page, &messages)?;
        }
    }
    let validations = policy.spec.as_ref().and_then(|spec| spec.validations.as_deref()).unwrap_or_default();
    let messages: Vec<String> = validations.iter().filter_map(|rule| rule.message.clone()).collect();
    writeln!(page, "\n## Rules for every version of Database\n")?;
    writeln!(page, "The policy `{}` applies these to a request in any version.", crate::policy::NAME)?;
    write_rules(&mut page, &messages)?;
    Ok(page)
}

/// A reference that could not be written. No input leads here.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// A schema that is not JSON.
    #[error("a schema can't be read: {0}")]
    Schema(#[from] serde_json::Error),
    /// Text that can't be put together.
    #[error("the page can't be written: {0}")]
    Page(#[from] fmt::Error),
}

fn write_rules(page: &mut String, messages: &[String]) -> fmt::Result {
    if !messages.is_empty() {
        writeln!(page, "\nRefused with these words:\n")?;
    }
    messages.iter().try_for_each(|message| writeln!(page, "- {message}"))
}

fn rows(page: &mut String, schema: &Value, prefix: &str) -> fmt::Result {
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (name, field) in fields {
        let path = format!("{prefix}{name}");
        let must = if required.iter().any(|required| required == name) { "*required* " } else { "" };
        let meaning = text(field, "description").replace('\n', " ").replace('|', "\\|");
        writeln!(page, "| `{path}` | {} | {must}{meaning}{} |", kind(field), bounds(field))?;
        if OF_KUBERNETES.contains(&name.as_str()) {
            continue;
        }
        rows(page, field, &format!("{path}."))?;
        if let Some(items) = field.get("items") {
            rows(page, items, &format!("{path}[]."))?;
        }
    }
    Ok(())
}

fn kind(field: &Value) -> String {
    match text(field, "type").as_str() {
        "" => "string or object".to_owned(),
        "array" => format!("list of {}", kind(&field["items"])),
        "object" if field.get("additionalProperties").is_some() => "map of strings".to_owned(),
        "string" if text(field, "format") == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    }
}

fn bounds(field: &Value) -> String {
    let mut said = String::new();
    if let Some(words) = field.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words.iter().map(|word| format!("`{}`", plain(word))).collect();
        said += &format!(" One of {}.", words.join(", "));
    }
    if let (Some(least), Some(most)) = (field.get("minimum"), field.get("maximum")) {
        said += &format!(" From {} to {}.", whole(least), whole(most));
    }
    if let Some(default) = field.get("default") {
        said += &format!(" Default `{}`.", plain(default));
    }
    said
}

fn rules(schema: &Value, messages: &mut Vec<String>) {
    if let Some(rules) = schema.get("x-kubernetes-validations").and_then(Value::as_array) {
        for message in rules.iter().map(|rule| text(rule, "message")) {
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().for_each(|(_, field)| rules(field, messages));
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Bounds are floating-point numbers in a definition, and whole ones in a reader's mind.
fn whole(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| format!("{number:.0}"))
}
