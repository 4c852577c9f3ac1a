//! Cases of all tests side by side, as many as the machine bears.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;

/// Most of a case is waiting.
const AT_ONCE: usize = 8;

static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// Room for one case.
pub async fn room() -> SemaphorePermit<'static> {
    ROOM.acquire().await.unwrap()
}

/// Tries each case, and returns what came of them in their order.
pub async fn each<T, F, R>(
    cases: impl IntoIterator<Item = T>,
    run: impl Fn(T) -> F + Send + Sync + 'static,
) -> Vec<R>
where
    T: Send + 'static,
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let (mut running, run) = (JoinSet::new(), Arc::new(run));
    for (number, case) in cases.into_iter().enumerate() {
        let run = run.clone();
        running.spawn(async move {
            let _room = room().await;
            (number, run(case).await)
        });
    }
    let mut done = Vec::new();
    while let Some(ended) = running.join_next().await {
        done.push(ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
