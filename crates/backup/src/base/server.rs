//! What PostgreSQL is asked for a base backup.

use tokio_postgres::Client;

use crate::error::{Error, Result};
use crate::lsn::Lsn;

/// What must be known of it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) version: i32,
    pub(crate) system_identifier: u64,
    pub(crate) replica: bool,
    pub(crate) segment_size: u64,
    pub(crate) block_size: u64,
    pub(crate) data_directory: String,
}

/// What it says at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) finish: Lsn,
    pub(crate) label: String,
    pub(crate) tablespace_map: String,
}

/// Everything as text: there is little to convert, and one way to fail.
async fn ask<const N: usize>(
    client: &Client,
    doing: &'static str,
    query: &str,
    parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<[String; N]> {
    let failed = |reason: String| Error::Database { doing, reason };
    let row = client.query_one(query, parameters).await.map_err(|error| failed(explain(&error)))?;
    let mut answers = std::array::from_fn(|_| String::new());
    for (at, answer) in answers.iter_mut().enumerate() {
        *answer = row.try_get(at).map_err(|error| failed(explain(&error)))?;
    }
    Ok(answers)
}

fn explain(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
}

fn number<T: std::str::FromStr>(doing: &'static str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::Database { doing, reason: format!("`{text}` is not what was expected") })
}

pub(crate) async fn facts(client: &Client) -> Result<Facts> {
    const DOING: &str = "asking PostgreSQL about itself";
    let query = "SELECT current_setting('server_version_num'), system_identifier::text, \
                 pg_is_in_recovery()::text, bytes_per_wal_segment::text, database_block_size::text, \
                 current_setting('data_directory') FROM pg_control_system(), pg_control_init()";
    let [version, system_identifier, replica, segment_size, block_size, data_directory] =
        ask(client, DOING, query, &[]).await?;
    // Shown as a signed number by PostgreSQL, which it is not.
    let signed: i64 = number(DOING, &system_identifier)?;
    Ok(Facts {
        version: number(DOING, &version)?,
        system_identifier: signed.cast_unsigned(),
        replica: replica == "true",
        segment_size: number(DOING, &segment_size)?,
        block_size: number(DOING, &block_size)?,
        data_directory,
    })
}

/// On which timeline the last checkpoint was made.
pub(crate) async fn timeline(client: &Client) -> Result<u32> {
    const DOING: &str = "asking PostgreSQL for its timeline";
    let [timeline] = ask(client, DOING, "SELECT timeline_id::text FROM pg_control_checkpoint()", &[]).await?;
    number(DOING, &timeline)
}

/// Begins a backup. It goes on until it is ended, or until the connection is.
pub(crate) async fn start(client: &Client, label: &str, fast: bool) -> Result<Lsn> {
    const DOING: &str = "beginning a base backup";
    let [lsn] = ask(client, DOING, "SELECT pg_backup_start($1, $2)::text", &[&label, &fast]).await?;
    number(DOING, &lsn)
}

/// Ends it. Whether the log has arrived is looked for in the repository itself.
pub(crate) async fn stop(client: &Client) -> Result<Stopped> {
    const DOING: &str = "ending a base backup";
    let query = "SELECT lsn::text, labelfile, coalesce(spcmapfile, '') FROM pg_backup_stop(false)";
    let [lsn, label, tablespace_map] = ask(client, DOING, query, &[]).await?;
    Ok(Stopped { finish: number(DOING, &lsn)?, label, tablespace_map })
}

/// The timeline that a backup began on, as its label says.
pub(crate) fn timeline_of_label(label: &str) -> Option<u32> {
    label.lines().find_map(|line| line.strip_prefix("START TIMELINE: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_on_which_timeline_it_began() {
        let label = "START WAL LOCATION: 0/2000028 (file 000000030000000000000002)\nBACKUP FROM: standby\nSTART TIMELINE: 3\n";
        assert_eq!(timeline_of_label(label), Some(3));
        assert_eq!(timeline_of_label("nonsense"), None);
    }
}
