//! What is known of an app and of what belongs to it: all that a plan follows from.

use keelson_api::v1::{AppSpec, AppStatus, Binding};

use super::revision::{Revision, Undone};

/// What is known of an app.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// What a person asks for.
    pub spec: AppSpec,
    /// The text by which a person has asked for a restart.
    pub restart: Option<String>,
    /// The status, as it was last written.
    pub status: AppStatus,
    /// The Database that it names, if there is one.
    pub database: Option<DatabaseFact>,
    /// Its Deployment, if there is one.
    pub deployment: Option<DeploymentFact>,
    /// Its pods, by name.
    pub pods: Vec<PodFact>,
    /// Which other children there are.
    pub has: Has,
    /// The image of poolers.
    pub pooler_image: String,
}

/// Which children there are, of those that are not always to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Has {
    /// A Service.
    pub service: bool,
    /// A HorizontalPodAutoscaler.
    pub autoscaler: bool,
    /// A PodDisruptionBudget.
    pub disruption: bool,
}

/// A Database, as far as those who use it need to know.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DatabaseFact {
    /// Whether it takes writes.
    pub ready: bool,
    /// Why not, in its own words.
    pub why: String,
    /// Where its credentials are, and which.
    pub binding: Option<Binding>,
}

/// The Deployment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeploymentFact {
    /// The [`Revision`] that it is told to run.
    pub asked: Option<String>,
    /// The credentials that its pods are to start with.
    pub credentials: Option<String>,
    /// How many pods it is to have.
    pub desired: i32,
    /// Whether somebody else has set that.
    pub scaled_by_others: bool,
    /// Whether its controller has seen what it is told.
    pub is_seen: bool,
    /// How many pods there are, of any revision.
    pub pods: i32,
    /// How many are of the revision that it is told to run.
    pub updated: i32,
    /// How many can be sent requests.
    pub ready: i32,
    /// How many could for a while.
    pub available: i32,
    /// Whether it has made no progress for too long.
    pub stalled: bool,
    /// Why pods can't be made.
    pub refused: Option<String>,
    /// The revision that was ready last.
    pub last_ready: Option<Revision>,
    /// The revision that was taken back.
    pub undone: Option<Undone>,
}

impl DeploymentFact {
    /// Whether all pods that were counted last are of one revision and serve, and none is missing.
    pub fn is_full(&self) -> bool {
        [self.updated, self.pods, self.available].iter().all(|count| *count == self.desired)
    }

    /// Whether that is so of what it is told now.
    pub fn is_complete(&self) -> bool {
        self.is_seen && self.is_full()
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodFact {
    /// Its name.
    pub name: String,
    /// The revision that it is of.
    pub asked: Option<String>,
    /// Whether it can be sent requests.
    pub ready: bool,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// What is wrong with it.
    pub trouble: Option<Trouble>,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In a word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

impl Trouble {
    /// A word and a sentence.
    pub fn new(reason: &str, message: impl Into<String>) -> Trouble {
        Trouble { reason: reason.to_owned(), message: message.into() }
    }
}
