//! What may hold a secret is masked: better too much than too little.

use serde_json::Value;

/// What is there instead.
const MASKED: &str = "(masked)";

/// Annotations whose values are known to hold none.
const KNOWN: &[&str] =
    &["keelson.dev/", "deployment.kubernetes.io/", "pv.kubernetes.io/", "volume.kubernetes.io/"];

/// Words in the names of fields and parameters whose values are masked.
const SECRET: &[&str] =
    &["password", "passwd", "secret", "token", "credential", "accesskey", "apikey", "privatekey", "conninfo"];

/// An object without what may hold a secret, and without the account of who has set which field.
pub fn mask(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            for (name, value) in annotations {
                if !KNOWN.iter().any(|known| name.starts_with(known)) {
                    *value = MASKED.into();
                }
            }
        }
    }
    within(&mut object);
    object
}

fn within(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Array(all) if name == "env" => all.iter_mut().for_each(variable),
                    Value::String(text) if is_secret(name) && !is_name_of_one(name) => {
                        *text = MASKED.to_owned()
                    }
                    other => within(other),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(within),
        Value::String(text) => *text = mask_text(text),
        _ => {}
    }
}

/// A variable keeps its name, and where its value comes from.
fn variable(variable: &mut Value) {
    if variable.get("value").is_some() {
        variable["value"] = MASKED.into();
    }
}

fn is_secret(name: &str) -> bool {
    let name: String = name.chars().filter(|one| one.is_alphanumeric()).collect::<String>().to_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// A field that says in which Secret something is, such as `credentialsSecret`, holds none itself.
fn is_name_of_one(name: &str) -> bool {
    ["credentialsSecret", "encryptionSecret", "secretName", "secrets"].contains(&name)
}

/// A text without passwords, as far as they can be told: `password=…`, `"token": "…"`, and what stands before the `@` of
/// an address.
pub fn mask_text(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = next(rest) {
        masked.push_str(&rest[..before]);
        masked.push_str(MASKED);
        rest = &rest[after..];
    }
    masked.push_str(rest);
    masked
}

/// Where the next secret begins and ends.
fn next(text: &str) -> Option<(usize, usize)> {
    let address = text.find("://").and_then(|at| {
        let start = at + 3;
        let end = start + text[start..].find(['/', ' ', '"', '\'', '\n']).unwrap_or(text.len() - start);
        let at = start + text[start..end].rfind('@')?;
        let colon = start + text[start..at].find(':')?;
        Some((colon + 1, at))
    });
    let lower = text.to_ascii_lowercase();
    let named = SECRET.iter().filter_map(|word| value_after(&lower, word)).min();
    [address, named].into_iter().flatten().filter(|(start, end)| &text[*start..*end] != MASKED).min()
}

/// The value that is given to a name, such as `password=x`, `"password": "x"` or `password 'x'`.
fn value_after(text: &str, word: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = text[from..].find(word) {
        let after = from + found + word.len();
        let name_ends = after
            + text[after..]
                .find(|one: char| !one.is_alphanumeric() && one != '_')
                .unwrap_or(text.len() - after);
        let rest = &text[name_ends..];
        let skipped =
            rest.find(|one: char| !matches!(one, '"' | '\'' | '=' | ':' | ' ' | '\\')).unwrap_or(rest.len());
        let between = &rest[..skipped];
        let given = between.contains(['=', ':']) || between.contains(" '");
        let start = name_ends + skipped;
        let end = start
            + text[start..]
                .find([' ', '"', '\'', ',', '\n', '}', '&', '\\', ')'])
                .unwrap_or(text.len() - start);
        if given && end > start && &text[start..end] != "(masked" {
            return Some((start, end));
        }
        from = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_variables_and_of_others_annotations_are_masked() {
        let masked = mask(json!({
            "metadata": {
                "name": "orders", "managedFields": [{}],
                "annotations": {"keelson.dev/report": "{\"role\": \"primary\"}", "team.example/key": "hunter2"}
            },
            "spec": {
                "containers": [{"env": [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {"x": 1}}]}],
                "parameters": {"work_mem": "8MB", "primary_conninfo": "hunter2"},
                "backup": {"to": {"s3": {"bucket": "b", "credentialsSecret": "s3"}}}
            }
        }));
        assert!(!masked.to_string().contains("hunter2"), "{masked}");
        assert_eq!(masked["metadata"]["annotations"]["keelson.dev/report"], "{\"role\": \"primary\"}");
        assert_eq!(masked["spec"]["containers"][0]["env"][1]["valueFrom"]["x"], 1);
        assert_eq!(masked["spec"]["parameters"]["work_mem"], "8MB");
        assert_eq!(masked["spec"]["backup"]["to"]["s3"]["credentialsSecret"], "s3");
        assert!(masked["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn passwords_in_texts_are_masked_and_the_rest_stays() {
        for (text, expected) in [
            (
                "connecting to postgres://app:hunter2@orders-rw:5432/app failed",
                "connecting to postgres://app:(masked)@orders-rw:5432/app failed",
            ),
            ("host=x password=hunter2 user=y\nnext", "host=x password=(masked) user=y\nnext"),
            (
                r#"{"level":"info","password":"hunter2","n":1}"#,
                r#"{"level":"info","password":"(masked)","n":1}"#,
            ),
            ("ALTER ROLE app PASSWORD 'hunter2'", "ALTER ROLE app PASSWORD '(masked)'"),
            ("token: hunter2", "token: (masked)"),
            ("two: password=hunter2, token=hunter2", "two: password=(masked), token=(masked)"),
            (
                "the password is wrong; the Secret orders-app is missing",
                "the password is wrong; the Secret orders-app is missing",
            ),
            ("https://example.com/a@b:c", "https://example.com/a@b:c"),
        ] {
            assert_eq!(mask_text(text), expected);
        }
    }
}
