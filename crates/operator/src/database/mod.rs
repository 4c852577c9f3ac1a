//! The controller of Databases: `observe` gathers [`facts`], [`plan`](mod@plan) decides, `act` does it in the order
//! that [`orders`] have, [`status`] says it. [`children`] are what a database consists of.

mod act;
mod archive;
pub mod backups;
pub mod children;
mod drilling;
pub mod drills;
pub mod facts;
pub mod foretell;
mod in_place;
pub mod lately;
pub mod observe;
pub mod orders;
pub mod plan;
pub mod restore;
pub mod status;
pub mod trouble;
mod turns;
pub mod unbuilt;

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
use keelson_api::v1::{Backup, Database, DatabaseStatus, Phase};
use keelson_api::value::Written;
use keelson_kit::controller::Key;
use keelson_kit::events::Severity;
use keelson_kit::retry::{Class, Classify};
use keelson_kit::{Kind, Next, Reconciler, Round};
use kube::ResourceExt;
use thiserror::Error;

use self::facts::{Claim, Lately, Observed};
use self::lately::Marks;
use self::orders::{Order, Parting, parting};
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
        .watches::<Pod>(labels::DRILL_OF, observe::trim_drill)
        .watches::<PersistentVolumeClaim>(labels::DATABASE, observe::trim_claim)
        .watches::<Backup>(labels::DATABASE, observe::trim_backup)
}

/// Whether the cluster will not have it, as opposed to having failed.
fn is_refusal(error: &keelson_kit::Error) -> bool {
    matches!(error, keelson_kit::Error::Api { source: kube::Error::Api(status), .. } if matches!(status.code, 403 | 422))
}

/// Whether the cluster says that what was asked for can't be.
fn is_invalid(error: &keelson_kit::Error) -> bool {
    matches!(error, keelson_kit::Error::Api { source: kube::Error::Api(status), .. } if status.code == 422)
}

impl Reconciler for DatabaseController {
    type Object = Database;
    type Error = Failure;

    const CLEANUP: &'static [&'static str] = orders::CLEANUP;

    async fn reconcile(&self, database: &Database, round: &mut Round) -> Result<Next, Failure> {
        let lately = self.lately(round.key());
        let mut seen = observe::observe(database, round, &self.root, lately.clone(), &self.agent_image)?;
        self.miss(&mut seen, round.key());
        if restore::is_to_be_asked_for(&seen) {
            seen.source = restore::find(&seen, round).await?;
        }
        let mut plan = plan::plan(&seen, Timestamp::now());
        if plan.is_weighty(&seen) {
            let source = seen.source.take();
            seen = observe::ask(database, round, &self.root, lately, &self.agent_image).await?;
            self.miss(&mut seen, round.key());
            seen.source = source;
            plan = plan::plan(&seen, Timestamp::now());
        }
        let mut done = self.carry_out(&plan, database, round).await;
        // A child that the cluster will not have is said in the words of the cluster. What runs goes on.
        if let Err(Failure::Kit(error)) = &done
            && is_invalid(error)
        {
            seen.lately.refused = Some(error.to_string());
            plan = plan::plan(&seen, Timestamp::now());
            plan.again = Some(plan::REFUSED_PACE);
            done = Ok(Done::All);
        }
        // What is known is said also when something could not be done.
        let said = self.say(&plan, round).await;
        said?;
        if done? == Done::LookAgain {
            return Ok(Next::After(Duration::ZERO));
        }
        Ok(plan.again.map_or(Next::Change, Next::After))
    }

    async fn clean(&self, step: &'static str, database: &Database, round: &mut Round) -> Result<(), Failure> {
        // A volume that nobody has told of yet would be left over, and one that is to stay would go.
        let seen = match orders::is_weighty(step) {
            true => observe::ask(database, round, &self.root, Lately::default(), &self.agent_image).await?,
            false => observe::observe(database, round, &self.root, Lately::default(), &self.agent_image)?,
        };
        for step in drills::end(&seen.drill) {
            drilling::take(&step, None, round).await?;
        }
        let parting = parting(step, &seen);
        for part in &parting {
            match part {
                Parting::Say => {
                    let phase = Some(Written::of(&Phase::Deleting));
                    let status = DatabaseStatus { phase, ..database.status.clone().unwrap_or_default() };
                    round.set_status(&status).await?;
                    self.metrics.is(round.key(), Phase::Deleting.as_str());
                }
                Parting::RemoveBinding => drop(round.remove::<RoleBinding>(&seen.name).await?),
                Parting::RemoveSet => {
                    if let Some(set) = &seen.set {
                        act::remove_set(round, &set.uid).await?;
                    }
                }
                Parting::RemoveLease => {
                    act::delete_labelled::<Lease>(round, &Names(&seen.name).lease()).await?
                }
                Parting::RemoveWriters => {
                    act::delete_labelled::<EndpointSlice>(round, &Names(&seen.name).writers()).await?;
                }
                Parting::Take(step) => act::take(step, &seen.uid, round).await?,
            }
        }
        if parting.contains(&Parting::RemoveSet) {
            tell_of_volumes(&seen, round);
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
        let children = plan.wanted.as_ref().map(children::children).transpose().map_err(Failure::Settings)?;
        for order in plan.orders() {
            match (&order, &plan.wanted, &children) {
                (Order::Secrets { until }, Some(wanted), _) => {
                    let rotation = database.annotations().get(annotations::ROTATE_SECRETS);
                    let rotation = rotation.map(String::as_str).unwrap_or_default();
                    act::write_secrets(wanted, &self.root, rotation, *until, round).await?;
                    if plan.repair {
                        self.mark(round.key(), |marks| marks.repaired(Instant::now()));
                    }
                }
                (Order::Apply(child), _, Some(children)) => {
                    if act::apply(*child, children, round).await? && child.is_planned_from() {
                        done = Done::LookAgain;
                    }
                }
                (Order::Take(step), ..) => {
                    match act::take(step, &database.uid().unwrap_or_default(), round).await {
                        // A volume that may not grow is said, and is in the way of nothing else.
                        Err(error) if matches!(step, Step::Grow { .. }) && is_refusal(&error) => {
                            self.mark(round.key(), |marks| marks.refused(error.to_string(), Instant::now()));
                            done = Done::LookAgain;
                        }
                        Err(error) => {
                            if error.class() == Class::Transient {
                                self.mark(round.key(), |marks| marks.tried(step, Instant::now()));
                            }
                            return Err(error.into());
                        }
                        Ok(()) => self.mark(round.key(), |marks| marks.took(step, Instant::now())),
                    }
                }
                (Order::Secrets { .. } | Order::Apply(_), ..) => {}
            }
        }
        for step in &plan.backups {
            act::back_up(step, round).await?;
        }
        for step in &plan.drills {
            drilling::take(step, plan.wanted.as_ref(), round).await?;
        }
        Ok(done)
    }

    async fn say(&self, plan: &Plan, round: &mut Round) -> Result<(), Failure> {
        let mut status = plan.status.clone();
        status.conditions = round.conditions(&status.conditions, &plan.findings);
        let phase = status.phase.as_ref().map(|phase| phase.as_str().to_owned()).unwrap_or_default();
        if round.set_status(&status).await? {
            self.metrics.drilled(plan.drilled);
            for news in &plan.news {
                round.event(news.severity, &news.reason, news.note.clone());
            }
        }
        self.metrics.is(round.key(), &phase);
        Ok(())
    }

    fn lately(&self, key: &Key) -> Lately {
        self.marks().get(key).map(|marks| marks.lately(Instant::now())).unwrap_or_default()
    }

    /// Keeps account of how long pods have not been there.
    fn miss(&self, seen: &mut Observed, key: &Key) {
        let absent = seen.absent();
        if absent.is_empty() && !self.marks().contains_key(key) {
            return;
        }
        self.mark(key, |marks| marks.miss(absent, Instant::now()));
        seen.lately.absent = self.lately(key).absent;
    }

    fn mark(&self, key: &Key, note: impl FnOnce(&mut Marks)) {
        note(self.marks().entry(key.clone()).or_default());
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Key, Marks>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which volumes go with a database, and which stay.
fn tell_of_volumes(seen: &Observed, round: &Round) {
    let (go, stay) = orders::volumes(seen);
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
}
