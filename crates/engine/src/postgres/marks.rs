//! Marks: rows that the primary writes now and then into a table of Keelson's own, in the database `postgres`. Where one
//! is found in what was restored, all is there that was committed before it. A message in the log would leave nothing to
//! be found.
//!
//! They are numbered without gaps, and the last 128 are kept. They wait for no replica, as the heartbeat does not.

use std::time::Duration;

use super::Postgres;
use super::hba::SUPERUSER;
use super::session::{execute, value};
use crate::error::{Error, Result, within};

const DOING: &str = "writing a mark";

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// One more than the one before.
    pub number: i64,
    /// When it was written, in microseconds since 1970.
    pub micros: i64,
}

/// The marks of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The number of the oldest.
    pub first: i64,
    /// The newest.
    pub last: Mark,
    /// How many there are.
    pub count: u64,
}

impl Marks {
    /// Whether none is missing between the oldest and the newest.
    pub fn are_whole(&self) -> bool {
        u64::try_from(self.last.number - self.first + 1).is_ok_and(|wanted| wanted == self.count)
    }
}

/// Nobody but the superuser sees it.
const MAKE: &str = "CREATE SCHEMA IF NOT EXISTS keelson; \
     CREATE TABLE IF NOT EXISTS keelson.mark (number bigint PRIMARY KEY, written timestamptz NOT NULL); \
     COMMENT ON TABLE keelson.mark IS 'Written now and then by Keelson, for drills of its backups to find'";

/// The next one is written, and those go that are too old. Their number in the end, since they count as writes.
const WRITE: &str = "WITH last AS (SELECT coalesce(max(number), 0) AS number FROM keelson.mark), \
     gone AS (DELETE FROM keelson.mark WHERE number <= (SELECT number FROM last) - 127 RETURNING 1), \
     made AS (INSERT INTO keelson.mark SELECT number + 1, clock_timestamp() FROM last RETURNING number, written) \
     SELECT number || ' ' || (extract(epoch FROM written) * 1000000)::bigint || ' ' || (SELECT count(*) FROM gone) + 1 \
     FROM made";

const READ: &str = "SELECT coalesce((SELECT min(number) || ' ' || max(number) || ' ' \
     || (extract(epoch FROM (array_agg(written ORDER BY number DESC))[1]) * 1000000)::bigint || ' ' || count(*) FROM keelson.mark), '')";

impl Postgres {
    /// How many rows were written so far, in all databases. It starts again when the statistics do.
    pub async fn rows_written(&self, deadline: Duration) -> Result<u64> {
        const ROWS: &str =
            "SELECT coalesce(sum(tup_inserted + tup_updated + tup_deleted), 0)::bigint FROM pg_stat_database";
        let asked = async {
            let client = self.local().connect(SUPERUSER).await?;
            value(&client, "asking how much was written", ROWS).await
        };
        let rows = within(deadline, "asking how much was written", asked).await?;
        Ok(rows.parse().unwrap_or_default())
    }

    /// Writes a mark on a primary. Also gives how many rows were written for it.
    pub async fn mark(&self, deadline: Duration) -> Result<(Mark, u64)> {
        let written = async {
            let client = self.local().connect(SUPERUSER).await?;
            if value(&client, DOING, "SELECT to_regclass('keelson.mark') IS NULL").await? == "t" {
                execute(&client, DOING, MAKE).await?;
            }
            value(&client, DOING, WRITE).await
        };
        let written = within(deadline, DOING, written).await?;
        let [number, micros, rows] = numbers(&written)?;
        Ok((Mark { number, micros }, rows.unsigned_abs()))
    }

    /// The marks that there are.
    pub async fn marks(&self) -> Result<Option<Marks>> {
        const DOING: &str = "looking for marks";
        let client = self.local().connect(SUPERUSER).await?;
        if value(&client, DOING, "SELECT to_regclass('keelson.mark') IS NULL").await? == "t" {
            return Ok(None);
        }
        let found = value(&client, DOING, READ).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let [first, number, micros, count] = numbers(&found)?;
        Ok(Some(Marks { first, last: Mark { number, micros }, count: count.unsigned_abs() }))
    }
}

fn numbers<const N: usize>(text: &str) -> Result<[i64; N]> {
    let numbers: Vec<i64> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().map_err(|_| Error::Sql {
        doing: DOING,
        said: format!("`{text}` is no mark"),
        code: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_marks_is_seen() {
        let marks = |first, number, count| Marks { first, last: Mark { number, micros: 0 }, count };
        assert!(marks(1, 1, 1).are_whole() && marks(5, 132, 128).are_whole());
        assert!(!marks(1, 3, 2).are_whole());
    }
}
