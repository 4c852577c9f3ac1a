//! What instances ask each other. Every question may be lost, doubled or late.

use serde::{Deserialize, Serialize};

use crate::{Holder, Position};

/// A question, or news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// A leader that can't renew its Lease asks whether it is still seen as leader. Who says so counts
    /// that as a renewal, and elects nobody before it is over.
    Confirm {
        /// The leader.
        leader: Holder,
        /// Its epoch.
        epoch: u64,
    },
    /// A candidate sees nobody lead, and asks to receive nothing more from who did.
    Hold {
        /// The version of the Lease that it sees.
        version: String,
    },
    /// There is no Lease, and there may have been a database: one that has led asks whether somebody has led after
    /// it, and one that would make a database whether somebody has one.
    Led,
    /// A leader has ended its database, and will not start it again.
    Left {
        /// The leader.
        leader: Holder,
        /// Its epoch.
        epoch: u64,
    },
}

/// What an instance says of itself at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Who answers.
    pub holder: Holder,
    /// The epoch of the leader that it confirms.
    pub confirms: Option<u64>,
    /// It receives nothing, and will not before it sees another version of the Lease than this.
    pub holds: Option<String>,
    /// How far its log is.
    pub position: Option<Position>,
    /// Whether it would lead if it were elected.
    pub able: bool,
    /// Whether its volume has almost no room left.
    #[serde(default)]
    pub full: bool,
    /// The last epoch in which its data took writes, 0 for never; nothing, while it does not know.
    #[serde(default)]
    pub led: Option<u64>,
    /// Whether it is known to have no data.
    #[serde(default)]
    pub empty: bool,
}

/// Why a leader is taken for gone before its term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It said so itself.
    Word,
    /// Its address refuses connections to its first process. So would a firewall; this counts only
    /// where a second leader could do no harm.
    Refused,
}
