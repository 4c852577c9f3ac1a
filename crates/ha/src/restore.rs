//! A restore in place: the database goes back to an earlier moment under its own name, while those that follow it still
//! have all that came after.
//!
//! 1. The leader is told the name of one ([`Settings::restore`](crate::Settings::restore)), looks whether it can be, and
//!    says so ([`Restore::Ready`]). Nothing has been stopped until then.
//! 2. It writes the number of the history that the restored data is to begin into the Lease, greater than any before.
//!    Then its program ends, and the data is made beside the old one ([`Target::Restore`](crate::Target::Restore)). Who
//!    may be elected stays as it was: if the leader is lost now, another leads with the old data, of which nothing is
//!    missing, and begins anew.
//! 3. When the data is whole ([`Restore::Whole`]), one write of the Lease decides: the restore is settled, histories
//!    before its own no longer count ([`Restores::origin`]), and nobody else may be elected. Only what is of that history,
//!    or of one that came of it, may lead from here on; so no copy of the old data can, however much it has.
//! 4. The leader puts the data in its place ([`Target::Place`](crate::Target::Place)), which it goes on with after a
//!    crash, and takes writes. The others find that theirs is of before, and copy it ([`Target::Copy`](crate::Target::Copy)).
//!
//! One that is refused or fails is settled too, with the old data: a name stands for one attempt, whoever leads.

use serde::{Deserialize, Serialize};

/// What the Lease says of restores in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Restores {
    /// The last one that came to an end, good or bad: it is not tried again.
    pub settled: Option<String>,
    /// Whether that one took the place of the data.
    pub done: bool,
    /// The history that the last one which did began; 0 for none. What is of an earlier one is of no use any more.
    pub origin: u64,
}

/// How it stands with a restore in place, as far as the own instance knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restore {
    /// Nothing is known of any.
    #[default]
    None,
    /// It was looked at, and can be begun.
    Ready {
        /// Its name.
        name: String,
    },
    /// Its data is on the volume, complete: beside the old one, or in its place.
    Whole {
        /// Its name.
        name: String,
        /// The history that it is on.
        history: u64,
    },
    /// It was refused, or came to nothing.
    GivenUp {
        /// Its name.
        name: String,
    },
}

impl Restore {
    /// Of which restore it speaks.
    pub fn name(&self) -> Option<&str> {
        match self {
            Restore::None => None,
            Restore::Ready { name } | Restore::Whole { name, .. } | Restore::GivenUp { name } => Some(name),
        }
    }
}
