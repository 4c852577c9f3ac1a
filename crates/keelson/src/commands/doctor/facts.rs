//! What there is of the cluster and of the installation. What could not be asked says why.

use futures::{StreamExt, stream};
use http::Request;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::v1::{Database, DatabaseSpec};
use keelson_api::{GROUP, policy};
use keelson_operator::NAME;
use keelson_operator::rights::rights;
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::commands::Failure;
use crate::commands::status::view::Row;
use crate::commands::{cluster::Connected, status};

/// What was asked, or why there is no answer.
pub type Asked<T> = Result<T, String>;

/// What there is.
pub struct Facts {
    /// The version of the API server, such as `v1.36.1`.
    pub version: Asked<String>,
    /// The time that the API server has, and that of this machine at the same moment.
    pub clocks: Option<(Timestamp, Timestamp)>,
    /// The definitions of the group.
    pub definitions: Asked<Vec<CustomResourceDefinition>>,
    /// The operators.
    pub operators: Asked<Vec<Deployment>>,
    /// Who of them is at work.
    pub lease: Asked<Option<Lease>>,
    /// The rules that hold without an operator.
    pub policy: Asked<Option<ValidatingAdmissionPolicy>>,
    /// What the operator is asked before something is stored.
    pub webhook: Asked<Option<ValidatingWebhookConfiguration>>,
    /// What came of a Database that makes no sense, and of one that does; both with a dry run.
    pub admission: (Asked<()>, Asked<()>),
    /// How volumes are made.
    pub classes: Asked<Vec<StorageClass>>,
    /// What the operator should be able to do and can't.
    pub missing_rights: Asked<Vec<String>>,
    /// What whoever asks can't do.
    pub own_missing: Asked<Vec<String>>,
    /// Whether the operator's metrics can be had.
    pub metrics: Asked<bool>,
    /// How databases are.
    pub databases: Asked<Vec<Row>>,
}

/// Asks. Only a cluster that does not answer at all is an error.
pub async fn gather(client: &Client, namespace: &str) -> Result<Facts, Failure> {
    let (version, clocks) = version(client).await?;
    let all = ListParams::default();
    let of_us = ListParams::default().labels("app.kubernetes.io/name=keelson");
    let definitions = list::<CustomResourceDefinition>(client, &all).await;
    let operators = list::<Deployment>(client, &of_us).await;
    let first = operators.as_ref().ok().and_then(|all| all.first());
    let place = first.and_then(ResourceExt::namespace).unwrap_or_else(|| "keelson-system".to_owned());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &place);
    let pods = pods.list(&of_us).await.map(|list| list.items).unwrap_or_default();
    let account =
        first.and_then(|one| one.spec.as_ref()?.template.spec.as_ref()?.service_account_name.clone());
    let account = account.unwrap_or_else(|| NAME.to_owned());
    let connected = Connected { client: client.clone(), namespace: namespace.to_owned() };
    Ok(Facts {
        version,
        clocks,
        definitions: definitions.map(|all| all.into_iter().filter(|one| one.spec.group == GROUP).collect()),
        lease: said(Api::<Lease>::namespaced(client.clone(), &place).get_opt(NAME).await),
        policy: said(Api::all(client.clone()).get_opt(policy::NAME).await),
        webhook: said(Api::all(client.clone()).get_opt(policy::NAME).await),
        admission: (
            try_out(client, namespace, "61 * * * *").await,
            try_out(client, namespace, "0 2 * * *").await,
        ),
        classes: list::<StorageClass>(client, &all).await,
        missing_rights: missing(client, &place, &account).await,
        own_missing: own(client, namespace).await,
        metrics: metrics(client, &place, &pods).await,
        databases: match status::rows(&connected, true).await {
            Ok(rows) => Ok(rows),
            Err(failure) => Err(failure.to_string()),
        },
        operators,
    })
}

fn said<T>(answer: Result<T, kube::Error>) -> Asked<T> {
    answer.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    })
}

async fn list<K>(client: &Client, params: &ListParams) -> Asked<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    said(Api::<K>::all(client.clone()).list(params).await.map(|list| list.items))
}

/// The version, and what time it is over there.
async fn version(client: &Client) -> Result<(Asked<String>, Option<(Timestamp, Timestamp)>), Failure> {
    let doing = "asking the cluster for its version";
    let request = Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| Failure::Said(format!("{doing}: {error}")))?;
    let answer = client.send(request).await.map_err(Failure::during(doing))?;
    let here = Timestamp::now();
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let there = date.and_then(|date| rfc2822::parse(date).ok()).map(|time| time.timestamp());
    let version = client.apiserver_version().await;
    Ok((said(version.map(|info| info.git_version)), there.map(|there| (there, here))))
}

/// Whether a Database with this schedule would be taken.
async fn try_out(client: &Client, namespace: &str, schedule: &str) -> Asked<()> {
    let backup = json!({"backup": {"schedule": schedule}});
    let spec: DatabaseSpec = serde_json::from_value(backup).map_err(|error| error.to_string())?;
    let databases: Api<Database> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    said(databases.create(&params, &Database::new("keelson-doctor", spec)).await.map(drop))
}

/// What the operator's account lacks.
async fn missing(client: &Client, namespace: &str, account: &str) -> Asked<Vec<String>> {
    let rights = rights().map_err(|error| error.to_string())?;
    let mut wanted = Vec::new();
    for rule in &rights.databases {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    wanted.push((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    wanted.sort();
    wanted.dedup();
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answers = stream::iter(wanted).map(|(group, resource, verb)| {
        let (reviews, user) = (reviews.clone(), user.clone());
        async move {
            let spec = SubjectAccessReviewSpec {
                resource_attributes: Some(attributes(&group, &resource, &verb, None)),
                user: Some(user),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let answer = said(reviews.create(&PostParams::default(), &review).await)?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((!allowed).then(|| format!("{verb} {resource}")))
        }
    });
    let answers: Vec<Asked<Option<String>>> = answers.buffered(8).collect().await;
    let lacks = answers.into_iter().collect::<Asked<Vec<_>>>()?;
    Ok(lacks.into_iter().flatten().collect())
}

/// What commands here need of whoever calls them.
async fn own(client: &Client, namespace: &str) -> Asked<Vec<String>> {
    let wanted = [
        (GROUP, "databases", "list"),
        (GROUP, "databases", "patch"),
        (GROUP, "backups", "create"),
        ("coordination.k8s.io", "leases", "patch"),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
        ("", "pods/exec", "create"),
        ("", "pods/eviction", "create"),
    ];
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut lacks = Vec::new();
    for (group, resource, verb) in wanted {
        let attributes = attributes(group, resource, verb, Some(namespace));
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = said(reviews.create(&PostParams::default(), &review).await)?;
        if !answer.status.is_some_and(|status| status.allowed) {
            lacks.push(format!("{verb} {resource}"));
        }
    }
    Ok(lacks)
}

fn attributes(group: &str, resource: &str, verb: &str, namespace: Option<&str>) -> ResourceAttributes {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
        verb: Some(verb.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}

/// Whether an operator's page of metrics has anything on it.
async fn metrics(client: &Client, namespace: &str, pods: &[Pod]) -> Asked<bool> {
    let pod = pods.first().ok_or("no operator runs")?.name_any();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy/metrics");
    let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    said(client.request_text(request).await.map(|page| page.contains("keelson_")))
}
