//! Log that the leader no longer has, from the repository: for a replica that was away for too long. It is put where the
//! replica keeps its own while that is stopped, and PostgreSQL finds it there when it is started.
//!
//! There is no `restore_command` for this: PostgreSQL would call it once more before a promotion, and a store that hangs
//! would be in the way of a failover.

use std::path::Path;
use std::time::Duration;

use keelson_api::instance::{Store, backup_reasons as reasons};
use keelson_backup::archive::{Fetched, Fetcher};
use keelson_backup::{History, Lsn, Segment};
use keelson_engine::Offline;
use keelson_engine::postgres::Postgres;

use crate::archiving::place::{self, Trouble};
use crate::room::Room;

/// So much is brought before it is replayed: a volume need not have room for all of it at once.
const AT_ONCE: u64 = 1 << 30;
/// How many files of the log are fetched ahead of time.
const AHEAD: usize = 4;
/// How long a store may take for one of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many bytes of log may be brought at once: what is replayed makes room again, but needs some itself.
pub(crate) fn at_once(room: Room) -> u64 {
    match room.size {
        0 => AT_ONCE,
        _ => (room.free.saturating_sub(2 * room.reserve()) / 2).min(AT_ONCE),
    }
}

/// Brings up to so many bytes of the log that comes behind what a stopped replica has replayed. Says whether there may be
/// more.
pub(crate) async fn bring_log(
    engine: &Postgres,
    store: &Store,
    replica: &Offline,
    most: u64,
) -> Result<bool, Trouble> {
    let trouble = |error| Trouble::from(&error);
    let repository = place::open(store)?;
    let mark = in_time(repository.marked()).await?.map_err(trouble)?;
    let size = match (mark.system_identifier(), mark.segment_size()) {
        (Some(system), Some(size)) if system == replica.system => size,
        _ => {
            let problem = format!("{} is the repository of another database", repository.location());
            return Err(Trouble { reason: reasons::FOREIGN, problem, passes: false });
        }
    };
    let folder = engine.log_folder();
    let history = history(&folder, replica.timeline).await?;
    let most = most / size.bytes();
    let wanted = history.path(1, Lsn(replica.lsn.0), size).into_iter().flat_map(|stretch| {
        let numbers = stretch.first..stretch.end.unwrap_or(u64::MAX);
        numbers.map(move |number| Segment { timeline: stretch.timeline, number }.name(size))
    });
    let ahead = engine.data_folder().with_extension("ahead");
    let fetcher = in_time(Fetcher::new(repository, &ahead, AHEAD)).await?.map_err(trouble)?;
    let mut brought = 0;
    let mut come_to_end = false;
    for name in wanted {
        if brought == most {
            break;
        }
        if in_time(fetcher.fetch(&name, &folder.join(&name))).await?.map_err(trouble)? == Fetched::Absent {
            come_to_end = true;
            break;
        }
        // As PostgreSQL does with what comes from elsewhere: it is in the repository, and not sent there again.
        let note = |what: &str| folder.join("archive_status").join(format!("{name}.{what}"));
        tokio::fs::write(note("done"), "").await.map_err(|error| local(&note("done"), &error))?;
        let _ = tokio::fs::remove_file(note("ready")).await;
        brought += 1;
    }
    drop(fetcher);
    let _ = tokio::fs::remove_dir_all(&ahead).await;
    tracing::info!(segments = brought, "log was brought from the repository");
    Ok(brought > 0 && !come_to_end)
}

async fn in_time<T>(asked: impl Future<Output = T>) -> Result<T, Trouble> {
    tokio::time::timeout(PATIENCE, asked).await.map_err(|_| Trouble {
        reason: reasons::UNREACHABLE,
        problem: format!("the repository has not answered within {} s", PATIENCE.as_secs()),
        passes: true,
    })
}

/// The history of the timeline that the replica follows: it has that from its leader.
async fn history(folder: &Path, timeline: u32) -> Result<History, Trouble> {
    if timeline <= 1 {
        return Ok(History::first(timeline));
    }
    let path = folder.join(format!("{timeline:08X}.history"));
    let text = tokio::fs::read_to_string(&path).await.map_err(|error| local(&path, &error))?;
    History::parse(timeline, &text).map_err(|error| local(&path, &error))
}

fn local(path: &Path, error: &dyn std::fmt::Display) -> Trouble {
    Trouble { reason: reasons::FAILED, problem: format!("{}: {error}", path.display()), passes: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_not_filled_with_log() {
        const GIB: u64 = 1 << 30;
        assert_eq!(at_once(Room { size: 100 * GIB, free: 50 * GIB }), AT_ONCE);
        assert_eq!(at_once(Room::default()), AT_ONCE, "nothing is known of it");
        let little = Room { size: GIB, free: 256 << 20 };
        assert_eq!(at_once(little), ((256 - 64) / 2) << 20);
        assert_eq!(at_once(Room { size: GIB, free: 40 << 20 }), 0);
    }

    #[tokio::test]
    async fn the_first_timeline_needs_no_history_and_others_do() {
        let folder = std::env::temp_dir().join(format!("keelson-catching-up-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(history(&folder, 1).await.unwrap(), History::first(1));
        let missing = history(&folder, 2).await.unwrap_err();
        assert!(missing.problem.contains("00000002.history"), "{}", missing.problem);
        std::fs::write(folder.join("00000002.history"), "1\t0/3000060\tno recovery target specified\n")
            .unwrap();
        assert!(history(&folder, 2).await.unwrap().has(1, Lsn(0x300_0060)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
