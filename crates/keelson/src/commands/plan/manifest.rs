//! What somebody wrote, from files.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::commands::Failure;

/// The objects of a file, of standard input or of a folder.
pub fn read(name: &str) -> Result<Vec<Value>, Failure> {
    if name == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::Said(format!("reading standard input: {error}")))?;
        return objects("standard input", &text);
    }
    let path = Path::new(name);
    let unread = |error| Failure::Said(format!("reading {name}: {error}"));
    if !path.is_dir() {
        return objects(name, &fs::read_to_string(path).map_err(unread)?);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if ["yaml", "yml", "json"].contains(&kind) && path.is_file() {
            files.push(path.display().to_string());
        }
    }
    files.sort();
    let all = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn objects(name: &str, text: &str) -> Result<Vec<Value>, Failure> {
    let read: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Failure::Said(format!("{name} is neither YAML nor JSON: {error}")))?;
    let mut found = Vec::new();
    for object in read.into_iter().filter(|object| !object.is_null()) {
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array() {
            found.extend(object["items"].as_array().cloned().unwrap_or_default());
        } else if object["kind"].is_string() {
            found.push(object);
        } else {
            return Err(Failure::Said(format!("{name} has something in it that has no `kind`")));
        }
    }
    Ok(found)
}

/// Databases; and what else there is, by kind and name.
pub fn sorted(objects: Vec<Value>) -> (Vec<Value>, Vec<String>) {
    let is_database = |object: &Value| {
        object["kind"] == "Database"
            && object["apiVersion"].as_str().is_some_and(|it| it.starts_with("keelson.dev/"))
    };
    let (databases, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_database);
    let told = |object: &Value| {
        let word = |value: &Value| value.as_str().unwrap_or("without a name").to_owned();
        format!("{} {}", word(&object["kind"]), word(&object["metadata"]["name"]))
    };
    (databases, others.iter().map(told).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn databases_are_found_in_files_of_several_objects_and_in_lists() {
        let text = "---\napiVersion: keelson.dev/v1\nkind: Database\nmetadata: {name: a}\n---\n---\nkind: Secret\nmetadata: {name: s}\n";
        let (databases, others) = sorted(objects("x", text).unwrap());
        assert_eq!(databases.len(), 1);
        assert_eq!(others, ["Secret s"]);
        let list =
            json!({"kind": "List", "items": [{"apiVersion": "keelson.dev/v1beta1", "kind": "Database"}]});
        assert_eq!(sorted(objects("x", &list.to_string()).unwrap()).0.len(), 1);
        assert!(objects("x", "a: [").unwrap_err().to_string().contains("x is neither YAML nor JSON"));
        assert!(objects("x", "a: 1").unwrap_err().to_string().contains("no `kind`"));
        assert!(read("/nowhere/x.yaml").unwrap_err().to_string().contains("reading /nowhere/x.yaml"));
    }
}
