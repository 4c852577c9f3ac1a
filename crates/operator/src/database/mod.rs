//! The controller of Databases: `observe` gathers [`facts`], [`plan`](mod@plan) decides, `act` does it,
//! [`status`] says it. [`children`] are what a database consists of.

mod act;
pub mod children;
pub mod facts;
mod observe;
pub mod plan;
pub mod status;
pub mod trouble;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use keelson_api::instance::{Names, annotations, labels};
use keelson_api::v1::{Database, DatabaseStatus, DeletionPolicy, Phase};
use keelson_api::value::Written;
use keelson_kit::controller::Key;
use keelson_kit::events::Severity;
use keelson_kit::retry::{Class, Classify};
use keelson_kit::{Kind, Next, Reconciler, Round};
use kube::ResourceExt;
use thiserror::Error;

use self::facts::{Claim, Lately};
use self::plan::{Plan, Step};
use crate::metrics::Databases;
use crate::root::{Root, RootError};

/// What can go wrong with a database.
#[derive(Debug, Error)]
pub enum Failure {
    /// With the API server or an object in it.
    #[error(transparent)]
    Kit(#[from] keelson_kit::Error),
    /// With a certificate.
    #[error(transparent)]
    Root(#[from] RootError),
    /// With the settings for agents.
    #[error("the settings of instances can't be written: {0}. This is a bug in the operator")]
    Settings(#[source] serde_json::Error),
}

impl Classify for Failure {
    fn class(&self) -> Class {
        match self {
            Failure::Kit(error) => error.class(),
            Failure::Root(_) => Class::Transient,
            Failure::Settings(_) => Class::Permanent,
        }
    }
}

/// Looks after Databases.
pub struct DatabaseController {
    root: Arc<Root>,
    agent_image: String,
    metrics: Databases,
    lately: Mutex<HashMap<Key, Marks>>,
}

/// When this process did what can't be seen in the cluster.
#[derive(Debug, Default, Clone)]
struct Marks {
    handover: Option<(String, Instant)>,
    secrets: Option<Instant>,
    growth_refused: Option<(String, Instant)>,
}

/// How far a plan was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// Something was written, or refused, that the next plan follows from.
    LookAgain,
}

/// The kind, with all that belongs to it.
pub fn kind(root: Arc<Root>, agent_image: &str, metrics: Databases) -> Kind<DatabaseController> {
    let agent_image = agent_image.to_owned();
    Kind::new(DatabaseController { root, agent_image, metrics, lately: Mutex::default() })
        .owns_content_of::<ConfigMap>(observe::trim_config)
        .owns_unread::<Secret>()
        .owns_content_of::<ServiceAccount>(observe::trim_account)
        .owns::<Role>()
        .owns::<RoleBinding>()
        .owns_content_of::<StatefulSet>(observe::trim_set)
        .owns::<Service>()
        .owns::<PodDisruptionBudget>()
        .watches::<Pod>(labels::DATABASE, observe::trim_pod)
        .watches::<PersistentVolumeClaim>(labels::DATABASE, observe::trim_claim)
}

/// Whether the cluster will not have it, as opposed to having failed.
fn is_refusal(error: &keelson_kit::Error) -> bool {
    matches!(error, keelson_kit::Error::Api { source: kube::Error::Api(status), .. } if matches!(status.code, 403 | 422))
}

/// The steps of the clean-up. Agents first lose the right to write, or they would make anew what is removed.
const RIGHTS: &str = "rights";
const LEADERSHIP: &str = "leadership";
const VOLUMES: &str = "volumes";

impl Reconciler for DatabaseController {
    type Object = Database;
    type Error = Failure;

    const CLEANUP: &'static [&'static str] = &[RIGHTS, LEADERSHIP, VOLUMES];

    async fn reconcile(&self, database: &Database, round: &mut Round) -> Result<Next, Failure> {
        let lately = self.lately(round.key());
        let seen = observe::observe(database, round, &self.root, lately, &self.agent_image)?;
        let plan = plan::plan(&seen, Timestamp::now());
        let done = self.carry_out(&plan, database, round).await;
        // What is known is said also when something could not be done.
        let said = self.say(&plan, round).await;
        said?;
        if done? == Done::LookAgain {
            return Ok(Next::After(Duration::ZERO));
        }
        Ok(plan.again.map_or(Next::Change, Next::After))
    }

    async fn clean(&self, step: &'static str, database: &Database, round: &mut Round) -> Result<(), Failure> {
        let name = database.name_any();
        match step {
            RIGHTS => {
                let phase = Some(Written::of(&Phase::Deleting));
                let status = DatabaseStatus { phase, ..database.status.clone().unwrap_or_default() };
                round.set_status(&status).await?;
                self.metrics.is(round.key(), Phase::Deleting.as_str());
                round.remove::<RoleBinding>(&name).await?;
            }
            LEADERSHIP => {
                act::delete_labelled::<Lease>(round, &Names(&name).lease()).await?;
                act::delete_labelled::<EndpointSlice>(round, &Names(&name).writers()).await?;
            }
            _ => self.clean_volumes(database, round).await?,
        }
        Ok(())
    }

    fn gone(&self, key: &Key) {
        self.marks().remove(key);
        self.metrics.gone(key);
    }

    fn forget(&self) {
        self.marks().clear();
        self.metrics.forget();
    }
}

impl DatabaseController {
    async fn carry_out(&self, plan: &Plan, database: &Database, round: &Round) -> Result<Done, Failure> {
        let mut done = Done::All;
        if let Some(wanted) = &plan.wanted {
            if let Some(until) = plan.secrets {
                let rotation = database.annotations().get(annotations::ROTATE_SECRETS);
                let rotation = rotation.map(String::as_str).unwrap_or_default();
                act::write_secrets(wanted, &self.root, rotation, until, round).await?;
                if plan.repair {
                    self.marks().entry(round.key().clone()).or_default().secrets = Some(Instant::now());
                }
            }
            // What this process has written itself is no news to it, and nobody else would tell.
            if act::apply(wanted, plan.apply_set, round).await? {
                done = Done::LookAgain;
            }
        }
        for step in &plan.steps {
            let taken = act::take(step, &database.uid().unwrap_or_default(), round).await;
            let mut marks = self.marks();
            let marks = marks.entry(round.key().clone()).or_default();
            match (step, taken) {
                // A volume that may not grow is said, and is in the way of nothing else.
                (Step::Grow { .. }, Err(error)) if is_refusal(&error) => {
                    marks.growth_refused = Some((error.to_string(), Instant::now()));
                    done = Done::LookAgain;
                }
                (_, Err(error)) => return Err(error.into()),
                (Step::Grow { .. }, Ok(())) => marks.growth_refused = None,
                (Step::HandOver { from, .. }, Ok(())) => {
                    marks.handover = Some((from.clone(), Instant::now()))
                }
                (_, Ok(())) => {}
            }
        }
        Ok(done)
    }

    async fn say(&self, plan: &Plan, round: &mut Round) -> Result<(), Failure> {
        let mut status = plan.status.clone();
        status.conditions = round.conditions(&status.conditions, &plan.findings);
        let phase = status.phase.as_ref().map(|phase| phase.as_str().to_owned()).unwrap_or_default();
        if round.set_status(&status).await? {
            for news in &plan.news {
                round.event(news.severity, &news.reason, news.note.clone());
            }
        }
        self.metrics.is(round.key(), &phase);
        Ok(())
    }

    async fn clean_volumes(&self, database: &Database, round: &Round) -> Result<(), Failure> {
        let seen = observe::observe(database, round, &self.root, Lately::default(), &self.agent_image)?;
        // Or its controller would make anew what is removed.
        round.remove::<StatefulSet>(&seen.name).await?;
        let own = seen.claims.iter().filter(|claim| claim.database_uid.as_deref() == Some(&seen.uid));
        // A policy that can't be read removes nothing. A claim that has no volume holds nothing.
        let policy = database.spec.deletion_policy.as_ref().and_then(|policy| policy.parse().ok());
        let (go, stay): (Vec<_>, Vec<_>) =
            own.partition(|claim| policy == Some(DeletionPolicy::Delete) || !claim.bound);
        for claim in &go {
            let step = Step::RemoveClaim { claim: claim.name.clone(), uid: claim.uid.clone() };
            act::take(&step, &seen.uid, round).await?;
        }
        let names =
            |claims: &[&Claim]| claims.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>().join(", ");
        if !go.is_empty() {
            round.event(Severity::Normal, "Deleted", format!("volumes go: {}", names(&go)));
        }
        if !stay.is_empty() {
            let note = format!(
                "volumes stay: {}. A new Database of this name can take them with the annotation {}=yes",
                names(&stay),
                annotations::ADOPT_VOLUMES
            );
            round.event(Severity::Normal, "Retained", note);
        }
        Ok(())
    }

    fn lately(&self, key: &Key) -> Lately {
        let marks = self.marks().get(key).cloned().unwrap_or_default();
        let ago = |since: Instant| -> Duration { since.elapsed() };
        Lately {
            handover: marks.handover.map(|(leader, since)| (leader, ago(since))),
            secrets: marks.secrets.map(ago),
            growth_refused: marks.growth_refused.map(|(why, since)| (why, ago(since))),
        }
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Key, Marks>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
