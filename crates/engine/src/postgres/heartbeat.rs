//! A write that reaches the disk, as the proof of health.
//!
//! It is an empty message in the log, in a transaction of its own: the commit flushes the log, and nothing
//! else is touched, so that nothing grows and nothing needs to be vacuumed. A row that is updated every
//! second would need both. The connection is a new one each time, since one that is open keeps working while
//! the postmaster hangs and no client gets in. Replicas are not waited for (`synchronous_commit=local`):
//! whether they answer is another question.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::hba::SUPERUSER;
use super::session::{Local, execute};
use crate::error::{Error, Result};

const WRITE: &str = "SELECT pg_logical_emit_message(true, 'keelson', '')";

/// How a beat went, once it is known; for all who wait for it.
type Beat = watch::Receiver<Option<Arc<Result<()>>>>;

/// The beat under way, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Heart(Mutex<Option<Beat>>);

impl Heart {
    /// Writes once. At most one write is under way: while a disk hangs, each would leave a process behind
    /// that can't be ended, until no connection is left. Whoever asks meanwhile waits for the same one, and
    /// if it gets through, that it did is just as new.
    pub(crate) async fn beat(&self, local: &Local, deadline: Duration) -> Result<()> {
        const DOING: &str = "writing the heartbeat";
        let mut beat = self.current(local);
        let ended = beat.wait_for(Option::is_some);
        match tokio::time::timeout(deadline, ended).await {
            Ok(Ok(outcome)) => match outcome.as_deref() {
                Some(Err(Error::Sql { doing, said, code })) => {
                    Err(Error::Sql { doing, said: said.clone(), code: code.clone() })
                }
                Some(Err(error)) => Err(Error::Sql { doing: DOING, said: error.to_string(), code: None }),
                _ => Ok(()),
            },
            Ok(Err(_)) => Err(Error::Sql { doing: DOING, said: "it was called off".into(), code: None }),
            Err(_) => Err(Error::Late { doing: DOING, after: deadline }),
        }
    }

    fn current(&self, local: &Local) -> Beat {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has its outcome is of the past; one whose task is gone has none to come.
        if let Some(beat) =
            current.as_ref().filter(|beat| beat.borrow().is_none() && beat.has_changed().is_ok())
        {
            return beat.clone();
        }
        let (outcome, beat) = watch::channel(None);
        let local = local.clone();
        tokio::spawn(async move {
            let written = tokio::select! {
                written = write(&local) => written,
                // Forgotten: the server is gone.
                () = outcome.closed() => return,
            };
            outcome.send_replace(Some(Arc::new(written)));
        });
        *current = Some(beat.clone());
        beat
    }

    /// Forgets the one under way: the server it was meant for is gone.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

async fn write(local: &Local) -> Result<()> {
    let client = local.connect(SUPERUSER).await?;
    execute(&client, "writing the heartbeat", WRITE).await
}
