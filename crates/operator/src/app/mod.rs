//! The controller of Apps: `observe` gathers [`facts`], [`plan`](mod@plan) decides, [`status`] says it, and the kit does
//! the rest. [`children`] are what an app consists of; [`pooler`] is what may be beside it, and beside other people's
//! pods by [`injection`].

pub mod binding;
pub mod children;
pub mod facts;
pub mod injection;
mod observe;
pub mod plan;
pub mod pooler;
pub mod revision;
pub mod status;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::v1::{App, Database};
use keelson_kit::conditions::Finding;
use keelson_kit::controller::Key;
use keelson_kit::retry::{Class, Classify};
use keelson_kit::{Error, Kind, Next, Reconciler, Round};
use kube::ResourceExt;

use self::children::Children;
use self::facts::Has;
use self::plan::Plan;
use crate::metrics::Apps;

/// Looks after Apps.
pub struct AppController {
    pooler_image: String,
    metrics: Apps,
}

/// The kind, with all that belongs to it. Poolers are run from this image.
pub fn kind(pooler_image: &str, metrics: Apps) -> Kind<AppController> {
    Kind::new(AppController { pooler_image: pooler_image.to_owned(), metrics })
        .owns_content_of::<Deployment>(observe::trim_deployment)
        .owns_content_of::<Service>(observe::trim_child)
        .owns_content_of::<HorizontalPodAutoscaler>(observe::trim_child)
        .owns_content_of::<PodDisruptionBudget>(observe::trim_child)
        .watches::<Pod>(revision::APP, observe::trim_pod)
        .refers_to::<Database>(
            |app| Some(app.data.pointer("/spec/database")?.as_str()?.to_owned()),
            observe::trim_database,
        )
}

impl Reconciler for AppController {
    type Object = App;
    type Error = Error;

    async fn reconcile(&self, app: &App, round: &mut Round) -> Result<Next, Error> {
        if app.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        let mut seen = observe::observe(app, round, &self.pooler_image)?;
        let mut plan = plan::plan(&seen);
        if plan.undoes {
            // What runs well must not be taken back for what was said of it long ago.
            seen = observe::ask(seen, app, round).await?;
            plan = plan::plan(&seen);
        }
        let done = carry_out(&plan, seen.has, &app.name_any(), round).await;
        // What is known is said also when something could not be done; what could not is said in other words.
        let said = done.as_ref().is_err_and(|error| !self.findings(error).is_empty());
        if !said {
            self.say(&plan, round).await?;
        }
        done?;
        Ok(Next::Change)
    }

    fn gone(&self, key: &Key) {
        self.metrics.gone(key);
    }

    fn forget(&self) {
        self.metrics.forget();
    }

    fn findings(&self, error: &Error) -> Vec<Finding> {
        let reason = match error {
            Error::Taken { .. } => "NameTaken",
            _ if error.class() == Class::Permanent => "Failed",
            _ => return Vec::new(),
        };
        let degraded = |kind: &str, holds: bool| Finding {
            kind: kind.to_owned(),
            holds: Some(holds),
            reason: reason.to_owned(),
            message: error.to_string(),
        };
        vec![degraded("Degraded", true)]
    }
}

impl AppController {
    async fn say(&self, plan: &Plan, round: &mut Round) -> Result<(), Error> {
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
}

/// Makes children what they should be. An autoscaler goes before the number of pods is set by hand, and comes after
/// there is something to scale.
async fn carry_out(plan: &Plan, has: Has, name: &str, round: &Round) -> Result<(), Error> {
    let Some(wanted) = &plan.wanted else { return Ok(()) };
    let made = children::children(wanted).map_err(|error| Error::Unwritable {
        object: format!("Deployment {name}"),
        why: error.to_string(),
    })?;
    let Children { deployment, service, autoscaler, disruption } = made;
    if has.autoscaler && autoscaler.is_none() {
        round.remove::<HorizontalPodAutoscaler>(name).await?;
    }
    match service {
        Some(service) => drop(round.apply(&service).await?),
        None if has.service => drop(round.remove::<Service>(name).await?),
        None => {}
    }
    round.apply(&deployment).await?;
    if let Some(autoscaler) = autoscaler {
        round.apply(&autoscaler).await?;
    }
    match disruption {
        Some(disruption) => drop(round.apply(&disruption).await?),
        None if has.disruption => drop(round.remove::<PodDisruptionBudget>(name).await?),
        None => {}
    }
    Ok(())
}
