//! The Lease, as an instance sees it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Position, Quorum, Restores};

/// Who holds a Lease: an instance, in one incarnation of it. Written `orders-0/1f0c…`.
///
/// The name alone would not do: a pod that was removed by force may still run on a node that nobody can
/// reach, while another of the same name is started elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The instance.
    pub name: String,
    /// Which one of that name: its pod's uid. The same one cannot run twice.
    pub incarnation: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation.as_str() {
            "" => f.write_str(&self.name),
            incarnation => write!(f, "{}/{incarnation}", self.name),
        }
    }
}

impl FromStr for Holder {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, incarnation) = text.split_once('/').unwrap_or((text, ""));
        Ok(Holder { name: name.to_owned(), incarnation: incarnation.to_owned() })
    }
}

/// To whom leadership should go, in a planned way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Successor {
    /// To this instance.
    Named(String),
    /// To whichever is best.
    Any,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Changes with every write, whoever writes.
    pub version: String,
    /// Changes with every write of an instance, and with no other: somebody who puts a label on it, or asks for a
    /// handover, shows nothing of whether its holder lives.
    pub renewal: String,
    /// Nobody, after a release.
    pub holder: Option<Holder>,
    /// How long it lasts without renewal, as the holder wrote it.
    pub ttl: Duration,
    /// Grows by one each time that somebody takes it.
    pub epoch: u64,
    /// Which database this is, once there is one.
    pub system: Option<String>,
    /// Somebody asks for a handover; or, where nobody holds it, whose it is to take.
    pub successor: Option<Successor>,
    /// Who may be elected, and who of them must have a commit.
    pub quorum: Quorum,
    /// The newest history that anybody has begun, or was to begin: the next one gets a number of its own, also where
    /// nobody has heard of the one before.
    pub history: u64,
    /// What there was of restores in place.
    pub restores: Restores,
    /// How far the holder's log was when it wrote this, or when that was last known.
    pub end: Option<Position>,
}
