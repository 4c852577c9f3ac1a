//! What the operator would go by, as whoever asks may read it; and what it would do then, by its own plan.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ServiceAccount};
use keelson_api::instance::{Names, annotations, labels};
use keelson_api::v1::{Backup, Database};
use keelson_operator::database::children::{self, Children};
use keelson_operator::database::facts::Observed;
use keelson_operator::database::foretell::{Story, foretell};
use keelson_operator::database::observe::{Found, facts};
use keelson_operator::database::restore::{self, Source};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::proposal::Proposal;
use crate::commands::Failure;

/// All that is shown follows from this.
pub struct Facts {
    /// What is asked for.
    pub proposal: Proposal,
    /// What the operator would see.
    pub seen: Observed,
    /// What it would do.
    pub story: Story,
    /// Each child as it should be, and as it is.
    pub children: Vec<ChildFact>,
    /// Whether other passwords are asked for.
    pub rotates: bool,
}

/// A child as it should be, and as it is.
pub struct ChildFact {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// As it should be.
    pub desired: Value,
    /// As it is, if it is there.
    pub found: Option<Value>,
    /// Why that is not known.
    pub unread: Option<String>,
}

/// Gathers them. Nothing is written.
pub async fn gather(client: &Client, proposal: Proposal) -> Result<Facts, Failure> {
    let next = &proposal.next;
    let (name, namespace) = (next.name_any(), next.namespace().unwrap_or_default());
    let found = found(client, &namespace, &name).await?;
    let image = agent_image(client, found.set.as_ref()).await;
    let mut seen = facts(next, found, mark(&proposal), &image);
    if restore::is_to_be_asked_for(&seen) {
        seen.source = source(client, &seen).await?;
    }
    let story = foretell(&seen, Timestamp::now());
    let mut all = Vec::new();
    if let Some(wanted) = &story.first.wanted {
        let made = children::children(wanted)
            .map_err(|error| Failure::Said(format!("{name}: what it consists of can't be told: {error}")))?;
        let Children { config, account, role, binding, set, instances, writers, readers, disruption } = made;
        all.push(child(client, &namespace, &config).await);
        all.push(child(client, &namespace, &account).await);
        all.push(child(client, &namespace, &role).await);
        all.push(child(client, &namespace, &binding).await);
        all.push(child(client, &namespace, &set).await);
        for service in [&instances, &writers, &readers] {
            all.push(child(client, &namespace, service).await);
        }
        all.push(child(client, &namespace, &disruption).await);
    }
    let rotates = proposal.live.is_some() && !mark(&proposal).is_empty();
    Ok(Facts { seen, story, children: all, rotates, proposal })
}

/// What stands for its Secrets follows from a key that is the operator's alone. That others are asked for is seen all the
/// same.
fn mark(proposal: &Proposal) -> String {
    let rotation = |database: &Database| database.annotations().get(annotations::ROTATE_SECRETS).cloned();
    match &proposal.live {
        Some(live) if rotation(live) != rotation(&proposal.next) => "others are asked for".to_owned(),
        _ => String::new(),
    }
}

async fn found(client: &Client, namespace: &str, name: &str) -> Result<Found, Failure> {
    let of_it = ListParams::default().labels(&format!("{}={name}", labels::DATABASE));
    let drill_of = ListParams::default().labels(&format!("{}={name}", labels::DRILL_OF));
    Ok(Found {
        config: get::<ConfigMap>(client, namespace, &Names(name).config()).await?,
        account: get::<ServiceAccount>(client, namespace, name).await?,
        set: get::<StatefulSet>(client, namespace, name).await?,
        pods: list::<Pod>(client, namespace, &of_it).await?,
        claims: list::<PersistentVolumeClaim>(client, namespace, &of_it).await?,
        backups: list::<Backup>(client, namespace, &of_it).await?,
        drills: list::<Pod>(client, namespace, &drill_of).await?,
    })
}

async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.map_err(Failure::during(format!("reading the {} {namespace}/{name}", K::kind(&()))))
}

async fn list<K>(client: &Client, namespace: &str, params: &ListParams) -> Result<Vec<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).list(params).await;
    Ok(found.map_err(Failure::during(format!("listing {} of {namespace}", K::plural(&()))))?.items)
}

async fn child<K>(client: &Client, namespace: &str, desired: &K) -> ChildFact
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let name = desired.name_any();
    let (found, unread) = match get::<K>(client, namespace, &name).await {
        Ok(found) => (found.map(|found| json!(found)), None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    ChildFact { kind: K::kind(&()).into_owned(), name, desired: json!(desired), found, unread }
}

/// The image that the operator gives to agents: its own. Where that may not be read, the one that there is.
async fn agent_image(client: &Client, set: Option<&StatefulSet>) -> String {
    let operators = ListParams::default().labels("app.kubernetes.io/name=keelson");
    let there = Api::<Deployment>::all(client.clone()).list(&operators).await.map(|list| list.items);
    let of_operator = there.unwrap_or_default().into_iter().find_map(|operator| {
        let pod = operator.spec?.template.spec?;
        let container = pod.containers.into_iter().next()?;
        let named = container.env.into_iter().flatten().find(|one| one.name == "KEELSON_IMAGE");
        named.and_then(|one| one.value).or(container.image)
    });
    let of_set = || {
        let pod = set?.spec.as_ref()?.template.spec.as_ref()?;
        pod.init_containers.iter().flatten().find(|one| one.name == "agent")?.image.clone()
    };
    of_operator.or_else(of_set).unwrap_or_else(|| "keelson".to_owned())
}

async fn source(client: &Client, seen: &Observed) -> Result<Option<Source>, Failure> {
    let Some(from) = seen.spec.restore.as_ref().and_then(|restore| restore.from.as_ref()) else {
        return Ok(None);
    };
    let namespace = &seen.namespace;
    let (database, backup) = match (&from.backup, &from.database) {
        (Some(name), _) => match restore::of_backup(name, get::<Backup>(client, namespace, name).await?) {
            Ok((database, id)) => (database, Some(id)),
            Err(missing) => return Ok(Some(missing)),
        },
        (None, Some(name)) => (name.clone(), None),
        (None, None) => return Ok(None),
    };
    let found = get::<Database>(client, namespace, &database).await?;
    Ok(Some(restore::of_database(namespace, &database, backup, found)))
}
