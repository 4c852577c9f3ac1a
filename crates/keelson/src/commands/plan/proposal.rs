//! What the cluster would make of what somebody wrote, and whether it takes it: asked with a dry run, so that defaults,
//! rules and webhooks have their say.

use keelson_api::GROUP;
use keelson_api::convert::{ApiVersion, convert};
use keelson_api::v1::Database;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::commands::Failure;
use crate::commands::cluster::Connected;

/// What kubectl notes when it applies.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Whoever asks.
const MANAGER: &str = "kubectl-keelson";

/// A Database as it is, and as it would be.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// As it is, if there is one.
    pub live: Option<Database>,
    /// As it would be.
    pub next: Database,
    /// Why the cluster would not take it.
    pub refused: Option<String>,
    /// What was not found out, and why.
    pub notes: Vec<String>,
}

impl Proposal {
    /// That it stays as it is.
    pub fn none(database: Database) -> Proposal {
        Proposal { live: Some(database.clone()), next: database, refused: None, notes: Vec::new() }
    }
}

/// Asks.
pub async fn propose(
    connected: &Connected,
    namespace: Option<&str>,
    mut manifest: Value,
) -> Result<Proposal, Failure> {
    let said = |error: String| Failure::Said(error);
    let version = ApiVersion::of(manifest["apiVersion"].as_str().unwrap_or_default());
    let version = version.map_err(|error| said(error.to_string()))?;
    let written = manifest["metadata"]["namespace"].as_str().map(str::to_owned);
    if let (Some(asked), Some(written)) = (namespace, &written)
        && asked != written
    {
        return Err(said(format!(
            "the namespace {written} in the file is not the one that is asked for, {asked}"
        )));
    }
    let namespace = written.unwrap_or_else(|| connected.namespace.clone());
    manifest["metadata"]["namespace"] = json!(namespace);
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(said("a Database in the file has no metadata.name".to_owned()));
    }
    let kind = GroupVersionKind::gvk(GROUP, version.as_str(), "Database");
    let resource = ApiResource::from_gvk_with_plural(&kind, "databases");
    let api: Api<DynamicObject> = Api::namespaced_with(connected.client.clone(), &namespace, &resource);
    let doing = format!("reading the Database {namespace}/{name}");
    let live = api.get_opt(&name).await.map_err(Failure::during(&doing))?.map(|live| json!(live));
    let answer = match &live {
        None => {
            let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
            let object = object(&manifest)?;
            api.create(&params, &object).await
        }
        Some(live) => match applier(live) {
            Some(manager) => {
                let params = PatchParams { dry_run: true, ..PatchParams::apply(&manager).force() };
                api.patch(&name, &params, &Patch::Apply(&manifest)).await
            }
            None => {
                let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
                api.replace(&name, &params, &object(&merged(live, &manifest))?).await
            }
        },
    };
    let doing = format!("asking what would become of {namespace}/{name}");
    let mut notes = Vec::new();
    let (next, refused) = match answer {
        Ok(next) => (json!(next), None),
        Err(kube::Error::Api(status)) if is_no_right(&status) => {
            notes.push(format!("whether the cluster would take it was not asked: {}", status.message));
            (live.as_ref().map_or(manifest.clone(), |live| merged(live, &manifest)), None)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 409 | 422) => (
            live.as_ref().map_or(manifest.clone(), |live| merged(live, &manifest)),
            Some(status.message.clone()),
        ),
        Err(error) => return Err(Failure::of(doing, &error)),
    };
    Ok(Proposal { live: live.map(stored).transpose()?, next: stored(next)?, refused, notes })
}

/// Whether it is the person who may not, and not the object that may not be.
fn is_no_right(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains(" cannot ")
}

fn object(value: &Value) -> Result<DynamicObject, Failure> {
    serde_json::from_value(value.clone())
        .map_err(|error| Failure::Said(format!("the file has something that is no Database: {error}")))
}

/// In the version that everything is stored in.
fn stored(value: Value) -> Result<Database, Failure> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let converted = convert(value, ApiVersion::V1).map_err(|error| Failure::Said(error.to_string()))?;
    serde_json::from_value(converted).map_err(|error| Failure::Said(format!("{name} can't be read: {error}")))
}

/// Who has applied it on the server's side, if anybody has: whoever applies the file next is most likely the same.
fn applier(live: &Value) -> Option<String> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let applied = entries.iter().filter(|entry| {
        entry["operation"] == "Apply" && entry["manager"] != "keelson" && entry.get("subresource").is_none()
    });
    applied.filter_map(|entry| entry["manager"].as_str()).next_back().map(str::to_owned)
}

/// What `kubectl apply` makes of it: what the file has, and without what it had the last time and has no more.
fn merged(live: &Value, file: &Value) -> Value {
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let last: Value = last.and_then(|last| serde_json::from_str(last).ok()).unwrap_or_default();
    let mut next = live.clone();
    for part in [&["spec"][..], &["metadata", "labels"], &["metadata", "annotations"]] {
        let at = |value: &Value| part.iter().fold(value.clone(), |value, name| value[*name].clone());
        let merged = merge(at(live), &at(&last), &at(file));
        if let Some(place) = part.iter().try_fold(&mut next, |value, name| value.get_mut(*name)) {
            *place = merged;
        } else if !merged.is_null() {
            next[part[0]] = match part {
                [_, name] => {
                    let mut outer = next[part[0]].clone();
                    outer[*name] = merged;
                    outer
                }
                _ => merged,
            };
        }
    }
    next
}

fn merge(live: Value, last: &Value, file: &Value) -> Value {
    let (Value::Object(mut fields), Value::Object(wanted)) = (live.clone(), file) else {
        return if file.is_null() { live } else { file.clone() };
    };
    if let Value::Object(last) = last {
        fields.retain(|name, _| wanted.contains_key(name) || !last.contains_key(name));
    }
    for (name, value) in wanted {
        let before = fields.remove(name).unwrap_or_default();
        fields.insert(name.clone(), merge(before, &last[name.as_str()], value));
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_merged_as_kubectl_does_it() {
        let last = json!({"spec": {"replicas": 3, "parameters": {"a": "1", "b": "2"}}});
        let live = json!({
            "metadata": {"annotations": {LAST_APPLIED: last.to_string(), "other": "x"}},
            "spec": {"replicas": 5, "parameters": {"a": "1", "b": "2", "c": "3"}, "engine": "postgres"}
        });
        let file = json!({"spec": {"parameters": {"a": "9"}}, "metadata": {"labels": {"team": "shop"}}});
        let next = merged(&live, &file);
        assert_eq!(next["spec"], json!({"parameters": {"a": "9", "c": "3"}, "engine": "postgres"}));
        assert_eq!(next["metadata"]["labels"], json!({"team": "shop"}));
        assert_eq!(next["metadata"]["annotations"]["other"], "x");
    }

    #[test]
    fn who_applies_on_the_server_s_side_is_known_from_the_last_time() {
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation});
        let entries =
            json!([entry("keelson", "Apply"), entry("flux", "Apply"), entry("kubectl-edit", "Update")]);
        assert_eq!(applier(&json!({"metadata": {"managedFields": entries}})).as_deref(), Some("flux"));
        assert_eq!(applier(&json!({"metadata": {}})), None);
    }
}
