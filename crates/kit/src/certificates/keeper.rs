//! Keeping the certificates: the shell around [`super::plan`].

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::loaded::Certificates;
use super::pair::{self, Fault, Signed};
use super::plan::{Replica, Settings, Sighting, State, Step};
use super::stored;
use super::target::{Found, Target};
use crate::retry::Backoff;

/// For each request.
const LONGEST: Duration = Duration::from_secs(10);
/// Changes that come together are one look.
const GAP: Duration = Duration::from_millis(100);
/// Who wrote it, for those who read `managedFields`.
const MANAGER: &str = "webhook-certificates";

/// Something that could not be done. It is tried again.
#[derive(Debug, Error)]
enum Trouble {
    #[error("{what} was refused: {said}")]
    Refused { what: String, said: String, code: u16 },
    #[error("{what} failed: {why}")]
    Failed { what: String, why: String },
    #[error("{what} was not answered within {LONGEST:?}")]
    Silence { what: String },
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("a certificate is of no use: {0}")]
    Fault(#[from] Fault),
    #[error("writing the document: {0}")]
    Document(#[from] serde_json::Error),
}

impl Trouble {
    /// Somebody else was faster.
    fn is_outdated(&self) -> bool {
        matches!(self, Trouble::Refused { code: 409, .. })
    }
}

/// Keeps the certificates of a webhook: stores them in one Secret, renews them, serves them through its
/// [`Certificates`], and writes the authorities into all [`Target`]s. Every replica runs one. See the
/// [module](super) for how, and for the rights it needs.
pub struct Keeper {
    client: Client,
    namespace: String,
    secret: String,
    names: Vec<String>,
    targets: Vec<Target>,
    settings: Settings,
    certificates: Certificates,
}

impl Keeper {
    /// Certificates that are kept in the given Secret.
    pub fn new(client: Client, namespace: &str, secret: &str) -> Self {
        Keeper {
            client,
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            names: Vec::new(),
            targets: Vec::new(),
            settings: Settings::default(),
            certificates: Certificates::default(),
        }
    }

    /// The names and addresses by which API servers call the webhook. For a Service it is
    /// `SERVICE.NAMESPACE.svc`. There must be at least one.
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// An object that names the webhook.
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// With other times than the default ones.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// What is kept.
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// Keeps them until `stop` is over.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut replica = Replica::new(self.names.clone(), self.settings);
        let backoff = Backoff { first: Duration::from_secs(1), longest: self.settings.look };
        let changed = Arc::new(Notify::new());
        let _watches = self.watch(&changed);
        let rounds = async {
            let mut failures = 0;
            loop {
                let wait = match self.round(&mut replica).await {
                    Ok(again) => {
                        failures = 0;
                        again
                    }
                    Err(error) if error.is_outdated() => GAP,
                    Err(error) => {
                        failures += 1;
                        tracing::warn!(%error, secret = self.secret, "looking after the certificates failed");
                        backoff.delay(failures, fastrand::f64())
                    }
                };
                tokio::select! {
                    () = changed.notified() => tokio::time::sleep(GAP).await,
                    () = tokio::time::sleep(wait) => {}
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = rounds => {}
        }
    }

    /// One look at everything, and what follows from it. Returns when to look again.
    async fn round(&self, replica: &mut Replica<Signed>) -> Result<Duration, Trouble> {
        // The targets before the Secret: the module says why.
        let mut read = Vec::new();
        for target in &self.targets {
            let api = self.api(target);
            read.push(ask(format!("reading {target}"), api.get_opt(target.name())).await);
        }
        let (secret, state) = self.stored().await?;
        let Some(state) = state else {
            let (step, _) = replica.look(None, Vec::new(), Timestamp::now(), Instant::now());
            self.take(step, replica, secret).await?;
            return Ok(Duration::ZERO);
        };
        if self.certificates.load(&state.serving)? {
            let until = state.serving.authority.until.0;
            tracing::info!(%until, "the webhook serves with a certificate that is new to it");
        }
        let sightings = self.inject(read, &state).await;
        let (step, again) = replica.look(Some(&state), sightings, Timestamp::now(), Instant::now());
        self.take(step, replica, secret).await?;
        Ok(if step == Step::Keep { again } else { Duration::ZERO })
    }

    /// Reads the Secret, and what it holds if that makes sense.
    async fn stored(&self) -> Result<(Option<Secret>, Option<State<Signed>>), Trouble> {
        let what = format!("reading Secret {}", self.secret);
        let secret = ask(what, self.secrets().get_opt(&self.secret)).await?;
        let state = match secret.as_ref().map(stored::read) {
            None => None,
            Some(Ok(state)) => Some(state),
            Some(Err(error)) => {
                tracing::error!(
                    %error, secret = self.secret, namespace = self.namespace,
                    "somebody has changed the Secret of the webhook's certificates; it is replaced"
                );
                None
            }
        };
        Ok((secret, state))
    }

    /// Stores what follows from a step, over the Secret that was read.
    async fn take(&self, step: Step, replica: &Replica<Signed>, read: Option<Secret>) -> Result<(), Trouble> {
        let now = Timestamp::now();
        let make = |names: &[String]| {
            let pair = pair::make(names, now, &self.settings)?;
            // What nobody could read again, for a name that is none, would be replaced without end.
            pair::verify(&pair)?;
            Ok::<_, Trouble>(pair)
        };
        let Some(state) = replica.after(step, now, make)? else { return Ok(()) };
        let data = Some(stored::write(&state)?);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let (secrets, what) = (self.secrets(), format!("writing Secret {}", self.secret));
        match read {
            Some(read) => {
                let secret = Secret { data, ..read };
                ask(what, secrets.replace(&self.secret, &params, &secret)).await?;
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.secret.clone()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data, ..Secret::default() };
                ask(what, secrets.create(&params, &secret)).await?;
            }
        }
        match step {
            Step::Begin => tracing::warn!("the webhook has a new certificate and a new authority"),
            Step::Restore => {
                tracing::warn!("the webhook's certificate was stored again, and the next one announced");
            }
            Step::Keep | Step::Announce | Step::Switch => {
                tracing::info!(?step, "the webhook's certificate is being renewed");
            }
        }
        Ok(())
    }

    /// Compares the targets with what they are to carry, writes what differs, and says how it was.
    async fn inject(&self, read: Vec<Looked>, state: &State<Signed>) -> Vec<Sighting> {
        let (bundle, serving) = (state.bundle(), &state.serving.authority.certificate);
        let (mut sightings, mut troubles, mut distrust) = (Vec::new(), Vec::new(), Vec::new());
        for (target, read) in self.targets.iter().zip(read) {
            let sighting = match read {
                Err(error) => {
                    troubles.push(error.to_string());
                    Sighting::Unknown
                }
                Ok(None) => {
                    troubles.push(format!("{target} does not exist"));
                    Sighting::Idle
                }
                Ok(Some(object)) => match target.compare(&object, &bundle, serving) {
                    Found::Idle => {
                        troubles.push(format!("{target} names no webhook"));
                        Sighting::Idle
                    }
                    Found::Carries => Sighting::Carries(object.metadata.generation.unwrap_or_default()),
                    Found::Lacks { patch, trusts } => {
                        if let Err(error) = self.write(target, patch).await {
                            distrust.extend((!trusts).then(|| error.to_string()));
                            troubles.extend((!error.is_outdated()).then(|| error.to_string()));
                        }
                        Sighting::Lacks
                    }
                },
            };
            sightings.push(sighting);
        }
        if !troubles.is_empty() {
            tracing::warn!(troubles = troubles.join("; "), "not everything trusts the webhook");
        }
        // What could not be read is as it was at the last look that could.
        if !sightings.contains(&Sighting::Unknown) || !distrust.is_empty() {
            self.certificates.trusted(if distrust.is_empty() { Ok(()) } else { Err(distrust.join("; ")) });
        }
        sightings
    }

    async fn write(&self, target: &Target, patch: serde_json::Value) -> Result<(), Trouble> {
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let what = format!("writing the authorities into {target}");
        ask(what, self.api(target).patch(target.name(), &params, &patch)).await?;
        tracing::info!(%target, "the webhook's authorities were written");
        Ok(())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn api(&self, target: &Target) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &target.resource())
    }

    /// Tells of changes to the Secret and the targets, for as long as the result is held. It is to
    /// be quick where it can; what it misses, the next look finds.
    fn watch(&self, changed: &Arc<Notify>) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        let resource = ApiResource::erase::<Secret>(&());
        let secrets = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        watches.spawn(tell(secrets, self.secret.clone(), changed.clone()));
        for target in &self.targets {
            let objects = Api::all_with(self.client.clone(), &target.resource());
            watches.spawn(tell(objects, target.name().to_owned(), changed.clone()));
        }
        watches
    }
}

type Looked = Result<Option<DynamicObject>, Trouble>;

async fn tell(objects: Api<PartialObjectMeta<DynamicObject>>, name: String, changed: Arc<Notify>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(objects, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(_) => changed.notify_one(),
            Err(error) => tracing::debug!(%error, name, "watching failed"),
        }
    }
}

/// Asks the API server, for no longer than it may take.
async fn ask<T>(what: String, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(LONGEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            Err(Trouble::Refused { what, said: status.message.clone(), code: status.code })
        }
        // Its message would quote what could not be read, and that may be a key.
        Ok(Err(kube::Error::SerdeError(_))) => {
            Err(Trouble::Failed { what, why: "the answer makes no sense".to_owned() })
        }
        Ok(Err(error)) => Err(Trouble::Failed { what, why: error.to_string() }),
        Err(_) => Err(Trouble::Silence { what }),
    }
}
