//! Waiting for a condition with a deadline: never sleep and hope.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// What a look at the world found.
pub enum Look<T> {
    /// The condition holds.
    There(T),
    /// Not yet; this is what was seen instead.
    NotYet(String),
    /// It never will; this is why.
    Never(String),
}

const PAUSE: Duration = Duration::from_millis(50);

/// Looks until the condition holds. A missed deadline is an error that tells the last state seen.
pub async fn until<T, F>(what: &str, deadline: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Look<T>>,
{
    let start = Instant::now();
    let mut state = "nothing yet".to_owned();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Look::There(value)) => return Ok(value),
            Ok(Look::NotYet(seen)) => state = seen,
            Ok(Look::Never(why)) => return Err(never(what, &why)),
            Err(_) if left.is_zero() => {}
            Err(_) => state = format!("{state} (and the last look hung)"),
        }
        if start.elapsed() >= deadline {
            return Err(Error::Missed { what: what.to_owned(), after: deadline, state });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for looks that need no `await`, on a thread that may block.
pub fn until_blocking<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Look<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match look() {
            Look::There(value) => return Ok(value),
            Look::Never(why) => return Err(never(what, &why)),
            Look::NotYet(state) if start.elapsed() >= deadline => {
                return Err(Error::Missed { what: what.to_owned(), after: deadline, state });
            }
            Look::NotYet(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn never(what: &str, why: &str) -> Error {
    Error::Refused(format!("no use in waiting for {what}: {why}"))
}
