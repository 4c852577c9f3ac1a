//! Whether the disk has failed the data: PostgreSQL gave up because what it had written could not be brought to disk.
//! The kernel reports such an error once and forgets what it could not write, so nothing that is read back later can be
//! trusted, also after a restart of everything. Hence a note beside the data, which holds until the data is
//! replaced, or a person removes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folders;
use crate::layout::Layout;

/// How long it is waited before the note is tried again: the disk that is to take it is the one that has failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of the data.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    layout: Layout,
    known: Arc<Mutex<Known>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing is wrong with it.
    Sound,
    /// This folder is damaged, and the volume does not say so yet.
    Told(String),
    /// The volume says which folder is damaged, and has the last word.
    Noted,
}

impl Damage {
    /// As the volume says.
    pub(crate) fn read(layout: &Layout) -> Damage {
        let known = if folders::is_damaged(layout) { Known::Noted } else { Known::Sound };
        Damage { layout: layout.clone(), known: Arc::new(Mutex::new(known)) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the data is damaged.
    pub(crate) fn is_there(&self) -> bool {
        match *self.known() {
            Known::Sound => false,
            Known::Told(_) => true,
            Known::Noted => folders::is_damaged(&self.layout),
        }
    }

    /// PostgreSQL has told of it. It counts from now on; the volume is told as soon as it takes the note.
    pub(crate) fn tell(&self) {
        let folder = folders::identity(&self.layout);
        if self.is_there() || folder.is_empty() {
            return;
        }
        *self.known() = Known::Told(folder.clone());
        let damage = self.clone();
        tokio::spawn(async move {
            while !damage.note(&folder).await {
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// Tells the volume, if there is still something to tell. Says whether that is done with.
    async fn note(&self, folder: &str) -> bool {
        let told = Known::Told(folder.to_owned());
        if *self.known() != told {
            return true;
        }
        let (layout, number) = (self.layout.clone(), folder.to_owned());
        let noted = tokio::task::spawn_blocking(move || folders::set_damaged(&layout, &number)).await;
        match noted {
            Ok(Ok(())) => {
                let mut known = self.known();
                if *known == told {
                    *known = Known::Noted;
                }
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the volume can't be told yet that its disk has failed");
                false
            }
            Err(_) => true,
        }
    }

    /// The data was replaced by a copy. A note of the folder before does not speak of it.
    pub(crate) fn forget(&self) {
        *self.known() = Known::Sound;
    }
}
