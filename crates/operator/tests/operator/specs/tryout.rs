//! A database on the API server whose spec is changed and changed back, with an operator of its own.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use keelson_api::instance::{Names, SETTINGS_KEY, annotations, fingerprint};
use keelson_api::v1::Database;
use keelson_kit::desired;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use testbed::{Look, until};

use super::schema::Field;
use crate::acts::{QUIET, difference, state};
use crate::admission;
use crate::way::Way;
use crate::world::{DEADLINE, Operator, World};

/// How long it may take that all is as it was, when nothing is under way any more.
const PATIENCE: Duration = Duration::from_secs(40);

/// What came of a change.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// The API server would not have it.
    Refused,
    /// It came to an end, and nothing was left of it.
    TakenBack,
    /// It came to an end, and the API server would not have it taken back.
    OneWay,
    /// The API server would have it, and it was not asked for.
    Known,
}

pub struct Tryout {
    pub world: World,
    operator: Operator,
    base: Value,
    before: Value,
}

impl Tryout {
    /// A database that runs, or says why not.
    pub async fn begin(namespace: &str, base: &Value) -> Tryout {
        let world = World::new(namespace).await;
        world.label(admission::LABEL, "yes").await;
        refuses(&world).await;
        let operator = world.hasty_operator_on(Way::clear()).await;
        api(&world).create(&PostParams::default(), &object(base)).await.unwrap();
        let mut tryout = Tryout { world, operator, base: base.clone(), before: Value::Null };
        tryout.settles().await.unwrap();
        tryout.operator.is_quiet_for(QUIET).await;
        tryout.before = tryout.state().await;
        tryout
    }

    pub async fn end(self) {
        self.operator.stop().await;
    }

    /// Asks for one spec after the other, the last of which is the one that it began with. Everything that
    /// is not as it should be is said.
    pub async fn goes_through(&self, fields: &[&Field], specs: &[Value]) -> Result<Outcome, String> {
        let mut current = self.base.clone();
        let back = specs.iter().chain([&self.base]);
        for (number, spec) in back.enumerate() {
            if let Err(message) = self.ask(&current, spec).await {
                helps(fields, &message)?;
                if number == 0 {
                    return Ok(Outcome::Refused);
                }
                return Ok(Outcome::OneWay);
            }
            current = spec.clone();
            self.settles().await?;
        }
        self.becomes(&self.before).await.map(|()| Outcome::TakenBack)
    }

    /// Waits until all is like that.
    async fn becomes(&self, expected: &Value) -> Result<(), String> {
        let same = until("all to be as it was", PATIENCE, || async {
            let differs = difference(expected, &self.state().await);
            if differs.is_empty() { Look::There(()) } else { Look::NotYet(format!("{differs:#?}")) }
        });
        same.await.map_err(|error| format!("leaves something behind: {error}"))
    }

    /// What the API server says of a spec, without it coming about.
    pub async fn is_refused_or_known(&self, fields: &[&Field], spec: &Value) -> Result<Outcome, String> {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        match self.send(&self.base, spec, &dry).await {
            Err(message) => helps(fields, &message).map(|()| Outcome::Refused),
            Ok(()) => Ok(Outcome::Known),
        }
    }

    async fn ask(&self, from: &Value, to: &Value) -> Result<(), String> {
        self.send(from, to, &PatchParams::default()).await
    }

    async fn send(&self, from: &Value, to: &Value, params: &PatchParams) -> Result<(), String> {
        let Some(change) = desired::difference(from, to) else { return Ok(()) };
        let change = Patch::Merge(json!({ "spec": change }));
        match api(&self.world).patch("orders", params, &change).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => Err(status.message.clone()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Waits until nothing more comes of what was asked for, and that is said.
    async fn settles(&self) -> Result<(), String> {
        let mut last = (self.operator.writes(), Instant::now());
        let what = format!("{} comes to rest", self.world.namespace);
        let rest = until(&what, DEADLINE, || {
            if self.operator.writes() != last.0 {
                last = (self.operator.writes(), Instant::now());
            }
            let quiet = last.1.elapsed();
            async move {
                match self.is_at_rest(quiet).await {
                    Ok(()) => Look::There(()),
                    Err(why) => Look::NotYet(why),
                }
            }
        });
        rest.await.map_err(|error| error.to_string())
    }

    /// Whether it is, when nothing has been written for so long; else what is under way.
    async fn is_at_rest(&self, quiet: Duration) -> Result<(), String> {
        let found = self.world.api::<Database>().get("orders").await.map_err(|error| error.to_string())?;
        let status = found.status.clone().unwrap_or_default();
        if status.observed_generation != found.metadata.generation {
            return Err(format!("the newest spec has not been seen: {status:?}"));
        }
        // What is under way is seen; what hangs is known by nothing happening any more.
        let long = Duration::from_millis(if says(&found)? { 150 } else { 1500 });
        if quiet < long {
            return Err(format!("written {quiet:?} ago: {status:?}"));
        }
        self.agents_have_heard().await
    }

    /// What agents have not read yet, something may come of.
    async fn agents_have_heard(&self) -> Result<(), String> {
        let configs = self.world.all::<ConfigMap>().await;
        let told = configs.iter().find(|one| one.name_any() == Names("orders").config());
        let Some(told) = told.and_then(|one| one.data.as_ref()?.get(SETTINGS_KEY)) else { return Ok(()) };
        let told = fingerprint(told);
        for pod in self.world.all::<Pod>().await {
            let report = pod.annotations().get(annotations::REPORT);
            let report = report.and_then(|report| serde_json::from_str::<Value>(report).ok());
            if let Some(report) = report.filter(|report| report["settings"] != told) {
                return Err(format!("{} has not heard of {told}: {report}", pod.name_any()));
            }
        }
        Ok(())
    }

    /// All that there is, and all that is said.
    pub async fn state(&self) -> Value {
        let mut state = state(&self.world).await;
        let database = self.world.api::<Database>().get("orders").await.unwrap();
        let conditions = database.status.unwrap_or_default().conditions;
        let conditions = conditions.into_iter().map(|one| {
            let message = one.message.replace(&self.world.namespace, "NAMESPACE");
            (one.type_, json!([one.status, one.reason, message]))
        });
        state["conditions"] = Value::Object(conditions.collect());
        state
    }

    /// Whether the API server would let this one have another spec.
    pub async fn would_take(&self, from: &Value, to: &Value) -> bool {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        self.send(from, to, &dry).await.is_ok()
    }

    /// Goes on without what was said in the beginning, where that is allowed.
    pub async fn is_left_out(&self, base: &Value, expected: &Value) -> Result<(), String> {
        if self.ask(&self.base, base).await.is_err() {
            return Ok(());
        }
        self.settles().await?;
        self.becomes(expected).await
    }

    /// Whether a new Database could have this spec.
    pub async fn could_begin_with(&self, spec: &Value) -> bool {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let mut object = object(spec);
        object.metadata.name = Some("another".to_owned());
        api(&self.world).create(&dry, &object).await.is_ok()
    }
}

fn api(world: &World) -> Api<DynamicObject> {
    Api::namespaced_with(world.client.clone(), &world.namespace, &ApiResource::erase::<Database>(&()))
}

fn object(spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec
    });
    serde_json::from_value(object).unwrap()
}

/// Waits until policy and webhook are in force in a namespace.
async fn refuses(world: &World) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until("policy and webhook are in force", DEADLINE, || async {
        for (wrong, says) in [
            (json!({"storage": {"weight": "5kg"}}), "storage is a size"),
            (json!({"backup": {"schedule": "61 * * * *"}}), "61 in the minute field"),
        ] {
            match api(world).create(&dry, &object(&wrong)).await {
                Err(Error::Api(status)) if status.message.contains(says) => {}
                other => return Look::NotYet(format!("{:?}", other.map(|_| ()))),
            }
        }
        Look::There(())
    })
    .await
    .unwrap();
}

/// Whether a refusal names what is wrong, and says what would be right.
fn helps(fields: &[&Field], message: &str) -> Result<(), String> {
    const ALLOWED: [&str; 13] = [
        "should",
        "goes from",
        "must",
        "may not",
        "can't",
        "supported values",
        "use ",
        "exactly one",
        "at most",
        "Required",
        "such as",
        "remove it",
        "expected",
    ];
    let lower = message.to_lowercase();
    let words: Vec<&str> = lower.split(|one: char| !one.is_alphanumeric()).collect();
    let named = fields.iter().any(|field| {
        let above = field.path.first().unwrap();
        lower.contains(&field.last().to_lowercase()) || words.contains(&above.to_lowercase().as_str())
    });
    match named && ALLOWED.iter().any(|word| message.contains(word)) {
        true => Ok(()),
        false => Err(format!("is refused without help: {message}")),
    }
}

/// Whether all is well; what can't be had must be said.
fn says(database: &Database) -> Result<bool, String> {
    let status = database.status.clone().unwrap_or_default();
    let phase = status.phase.as_ref().map(ToString::to_string).unwrap_or_default();
    let holds = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind && one.status == "True");
    let (ready, progressing, degraded) = (holds("Ready"), holds("Progressing"), holds("Degraded"));
    match (phase.as_str(), degraded) {
        ("Running", None) if ready.is_some() && progressing.is_none() => Ok(true),
        ("Degraded" | "Failed", Some(one)) if !one.message.is_empty() => Ok(false),
        _ => Err(format!("it is not well, and nothing is said to be in the way: {status:#?}")),
    }
}
