//! The objects of the benchmark: made, changed and checked by the harness.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{Look, until};

use crate::error::{Asking, During, Error, Result};

/// As a real cluster has them: in several namespaces.
const NAMESPACES: usize = 10;
/// How many requests the harness has under way when it makes objects.
const AT_ONCE: usize = 32;
const PAGE: u32 = 2000;

fn greeting() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Greeting"))
}

fn namespace(index: usize) -> String {
    format!("greetings-{}", index % NAMESPACES)
}

fn name(index: usize) -> String {
    format!("greeting-{index:05}")
}

/// The definition of the kind, as the kit's example prints it: all contestants get the same.
pub(super) fn definition(program: &Path) -> Result<CustomResourceDefinition> {
    let output = Command::new(program).arg("crd").output().during("running", program)?;
    serde_yaml_ng::from_slice(&output.stdout).map_err(|error| Error::Unreadable {
        what: format!("what `{} crd` prints", program.display()),
        why: error.to_string(),
    })
}

/// Everything that is there before a contestant starts: the kind, its rights, and the objects.
pub(super) async fn prepare(
    client: &Client,
    definition: &CustomResourceDefinition,
    user: &str,
    count: usize,
) -> Result<()> {
    create::<CustomResourceDefinition>(client, definition).await?;
    // By a role and not as one of `system:masters`, whom the API server's priority and fairness lets pass.
    let binding = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    create::<ClusterRoleBinding>(client, binding).await?;
    for index in 0..NAMESPACES {
        create::<Namespace>(client, json!({ "metadata": { "name": namespace(index) } })).await?;
    }
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &greeting());
    until("Greetings to be served", Duration::from_secs(60), || async {
        match all.list(&ListParams::default()).await {
            Ok(_) => Look::There(()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await?;
    stream::iter(0..count).map(Ok).try_for_each_concurrent(AT_ONCE, |index| create_one(client, index)).await
}

async fn create<K>(client: &Client, object: impl serde::Serialize) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K: serde::Serialize,
    K::DynamicType: Default,
{
    let unreadable = |error: serde_json::Error| Error::Unreadable {
        what: K::kind(&Default::default()).into_owned(),
        why: error.to_string(),
    };
    let object = serde_json::to_value(object).and_then(serde_json::from_value::<K>).map_err(unreadable)?;
    Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await.asking("preparing")?;
    Ok(())
}

async fn create_one(client: &Client, index: usize) -> Result<()> {
    let object = DynamicObject::new(&name(index), &greeting())
        .data(json!({ "spec": { "name": format!("guest {index}") } }));
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace(index), &greeting());
    api.create(&PostParams::default(), &object).await.asking("creating a Greeting")?;
    Ok(())
}

/// Changes one Greeting of each namespace, spread over all that there are, and says which.
pub(super) async fn edit_some(client: &Client, count: usize) -> Result<Vec<(String, String)>> {
    let step = (count / NAMESPACES).max(1);
    let some = (0..NAMESPACES.min(count)).map(|part| part * step + part % step);
    let mut edited = Vec::new();
    for index in some {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace(index), &greeting());
        let patch = Patch::Merge(json!({ "spec": { "name": format!("somebody else {index}") } }));
        api.patch(&name(index), &PatchParams::default(), &patch).await.asking("editing a Greeting")?;
        edited.push((namespace(index), name(index)));
    }
    Ok(edited)
}

/// How many Greetings are not yet as they should be.
pub(super) async fn unfinished(client: &Client, count: usize) -> Result<usize> {
    let greetings: Api<DynamicObject> = Api::all_with(client.clone(), &greeting());
    let config_maps: Api<ConfigMap> = Api::all(client.clone());
    let texts: HashMap<(String, String), (String, String)> = pages(&config_maps)
        .await?
        .into_iter()
        .filter_map(|map| {
            let owner =
                map.owner_references().iter().find(|owner| owner.controller == Some(true))?.uid.clone();
            let text = map.data.as_ref()?.get("text")?.clone();
            Some(((map.namespace()?, map.name_any()), (owner, text)))
        })
        .collect();
    let good = pages(&greetings).await?.into_iter().filter(|greeting| {
        let key = (greeting.namespace().unwrap_or_default(), greeting.name_any());
        let name = greeting.data.pointer("/spec/name").and_then(Value::as_str).unwrap_or_default();
        let wanted = (greeting.uid().unwrap_or_default(), format!("Hello, {name}!"));
        is_ready(greeting) && texts.get(&key) == Some(&wanted)
    });
    Ok(count.saturating_sub(good.count()))
}

fn is_ready(greeting: &DynamicObject) -> bool {
    let generation = greeting.metadata.generation;
    let observed = greeting.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    let conditions = greeting.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Ready" && condition["status"] == "True" && condition["reason"] == "Greeted"
    });
    ready && observed == generation
}

async fn pages<K>(api: &Api<K>) -> Result<Vec<K>>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.asking("checking what was made")?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        all.extend(page.items);
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_status(status: Value) -> DynamicObject {
        let mut object = DynamicObject::new("a", &greeting()).data(json!({ "status": status }));
        object.metadata.generation = Some(2);
        object
    }

    #[test]
    fn ready_counts_only_for_the_generation_that_it_speaks_of() {
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Greeted" }]);
        assert!(is_ready(&with_status(json!({ "observedGeneration": 2, "conditions": ready }))));
        assert!(!is_ready(&with_status(json!({ "observedGeneration": 1, "conditions": ready }))));
        assert!(!is_ready(&with_status(json!({ "observedGeneration": 2, "conditions": [] }))));
        assert!(!is_ready(&with_status(Value::Null)));
    }
}
