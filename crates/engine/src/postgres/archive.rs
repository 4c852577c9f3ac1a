//! What those need who archive the log and copy the files of a running database.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Client;

use super::Postgres;
use super::hba::SUPERUSER;
use super::session::value;
use crate::error::{Error, Result, within};

impl Postgres {
    /// The folder of the running database.
    pub fn data_folder(&self) -> PathBuf {
        self.programs.layout.data()
    }

    /// Its log, with what PostgreSQL says of each segment in `archive_status` below.
    pub fn log_folder(&self) -> PathBuf {
        self.data_folder().join("pg_wal")
    }

    /// A connection as superuser over the local socket, which is the caller's own and ends when it is dropped.
    pub async fn connect(&self) -> Result<Client> {
        self.local().connect(SUPERUSER).await
    }

    /// Ends the segment that is written to, so that all that was committed so far can be archived.
    pub async fn end_segment(&self) -> Result<()> {
        const DOING: &str = "ending a file of the log";
        let ended = async { value(&self.connect().await?, DOING, "SELECT pg_switch_wal()").await.map(drop) };
        within(super::TAKEN, DOING, ended).await
    }

    /// How many bytes of log a segment holds.
    pub async fn segment_size(&self, deadline: Duration) -> Result<u64> {
        const DOING: &str = "asking for the size of segments";
        let asked = async {
            let client = self.connect().await?;
            value(&client, DOING, "SELECT bytes_per_wal_segment FROM pg_control_init()").await
        };
        let size = within(deadline, DOING, asked).await?;
        size.parse().map_err(|_| Error::Sql {
            doing: DOING,
            said: format!("`{size}` is no size"),
            code: None,
        })
    }
}
