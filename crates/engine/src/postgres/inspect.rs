//! A look at all of a database, page by page and row by row: what a drill believes nobody's word about.
//!
//! - Page checksums, with PostgreSQL's own `pg_checksums`, while it is stopped.
//! - Tables and B-tree indexes, with the extension `amcheck`: each row is where its index says, and each row that should be
//!   in an index is. It takes locks that only a copy has time for.

use tokio_postgres::Client;

use super::Postgres;
use super::hba::SUPERUSER;
use super::session::{execute, literal, name, value};
use crate::error::{Asking, Error, Result};

const DOING: &str = "checking tables and indexes";
/// Where the extension goes in a database that does not have it.
const SCHEMA: &str = "keelson_drill";

/// What was looked at and found to be good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Databases.
    pub databases: u64,
    /// Tables.
    pub tables: u64,
    /// Indexes.
    pub indexes: u64,
    /// Indexes of other kinds than B-tree, which nothing here can check.
    pub passed_over: u64,
}

/// Tables and what is like them: materialized views, TOAST. All that are stored as heaps.
const TABLES: &str = "SELECT c.oid::text, format('%I.%I', n.nspname, c.relname) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_am a ON a.oid = c.relam \
     WHERE c.relkind IN ('r', 'm', 't') AND a.amname = 'heap' AND c.relpersistence <> 't' ORDER BY c.oid";

const INDEXES: &str = "SELECT c.oid::text, format('%I.%I', n.nspname, c.relname), a.amname \
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_am a ON a.oid = c.relam \
     WHERE c.relkind = 'i' AND c.relpersistence <> 't' AND i.indisready AND i.indisvalid ORDER BY c.oid";

impl Postgres {
    /// Whether the checksum of each page is right, of a database that is stopped. How many pages there are; none
    /// where they have no checksums.
    pub async fn check_pages(&self) -> Result<Option<u64>> {
        self.stopped("checking pages")?;
        let _working = self.working.lock().await;
        let folder = self.programs.layout.data();
        let arguments = ["--check".into(), "-D".into(), folder.into_os_string()];
        let printed = match self.programs.run("pg_checksums", arguments, |_| ()).await {
            Err(Error::Program { said, .. }) if said.contains("data checksums are not enabled") => {
                return Ok(None);
            }
            Err(Error::Program { said, .. }) if said.contains("checksum verification failed") => {
                return Err(Error::Inconsistent { what: "a page".to_owned(), said });
            }
            other => other?,
        };
        let blocks =
            printed.lines().find_map(|line| line.strip_prefix("Blocks scanned:")?.trim().parse().ok());
        let blocks = blocks.ok_or_else(|| Error::Data {
            doing: "checking pages",
            why: format!("pg_checksums does not say how many there are: {}", printed.trim()),
        });
        blocks.map(Some)
    }

    /// Whether all tables and their indexes are consistent, in all databases. The first that is not ends it. None where
    /// the image lacks the extension for it.
    pub async fn check_relations(&self) -> Result<Option<Inspected>> {
        let mut found = Inspected::default();
        for database in self.databases().await? {
            let client = self.local().connect(&database).await?;
            let Some(schema) = amcheck(&client).await? else { return Ok(None) };
            let schema = name(&schema);
            for (oid, table, _) in rows(&client, TABLES).await? {
                let check = format!(
                    "SELECT blkno::text, coalesce(offnum, 0)::text, msg FROM {schema}.verify_heapam({oid}::regclass) LIMIT 1"
                );
                let what = format!("the table {table} in the database {database}");
                let bad = rows(&client, &check).await.map_err(|error| inconsistent(&what, error))?;
                if let Some((block, row, said)) = bad.into_iter().next() {
                    let said = format!("block {block}, row {row}: {said}");
                    return Err(Error::Inconsistent { what, said });
                }
                found.tables += 1;
            }
            for (oid, index, kind) in rows(&client, INDEXES).await? {
                if kind != "btree" {
                    found.passed_over += 1;
                    continue;
                }
                let what = format!("the index {index} in the database {database}");
                // With the rows of the table, and the links between all levels.
                let check = format!("SELECT {schema}.bt_index_parent_check({oid}::regclass, true)");
                let checked = client.batch_execute(&check).await.asking(DOING);
                checked.map_err(|error| inconsistent(&what, error))?;
                found.indexes += 1;
            }
            found.databases += 1;
        }
        Ok(Some(found))
    }

    /// Up to where the log was replayed before this database's timeline began, by its own account: the timeline before,
    /// and the place. None where it has not been restored.
    pub fn replayed_to(&self) -> Option<(u32, String)> {
        let log = self.log_folder();
        let names =
            std::fs::read_dir(&log).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let newest = names.filter(|name| name.ends_with(".history")).max()?;
        last_switch(&std::fs::read_to_string(log.join(newest)).ok()?)
    }

    async fn databases(&self) -> Result<Vec<String>> {
        let client = self.local().connect(SUPERUSER).await?;
        let query = "SELECT datname::text, '', '' FROM pg_database WHERE datallowconn ORDER BY oid";
        Ok(rows(&client, query).await?.into_iter().map(|(name, ..)| name).collect())
    }
}

/// The last line of a timeline's history: from which one it came, and where.
fn last_switch(history: &str) -> Option<(u32, String)> {
    let line = history.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
    let mut fields = line.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.to_owned()))
}

/// The schema of the extension, which is made if need be. None where the image does not have it.
async fn amcheck(client: &Client) -> Result<Option<String>> {
    let there = format!("SELECT count(*) FROM pg_available_extensions WHERE name = {}", literal("amcheck"));
    if value(client, DOING, &there).await? == "0" {
        return Ok(None);
    }
    let make = format!(
        "CREATE SCHEMA IF NOT EXISTS {SCHEMA}; CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA {SCHEMA}"
    );
    execute(client, DOING, &make).await?;
    let schema = "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
         WHERE e.extname = 'amcheck'";
    value(client, DOING, schema).await.map(Some)
}

/// What a check says of damage is the database's own error.
fn inconsistent(what: &str, error: Error) -> Error {
    match error {
        // XX000 to XX002: what PostgreSQL itself calls corrupt, or never expected to find. 58030: it can't be read.
        Error::Sql { said, code: Some(code), .. } if code.starts_with("XX") || code == "58030" => {
            Error::Inconsistent { what: what.to_owned(), said }
        }
        other => other,
    }
}

/// Rows of up to three texts.
async fn rows(client: &Client, query: &str) -> Result<Vec<(String, String, String)>> {
    let answer = client.simple_query(query).await.asking(DOING)?;
    let text = |row: &tokio_postgres::SimpleQueryRow, at: usize| match at < row.len() {
        true => row.get(at).unwrap_or_default().to_owned(),
        false => String::new(),
    };
    let found = answer.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some((text(row, 0), text(row, 1), text(row, 2))),
        _ => None,
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_log_ended_is_in_the_last_line_of_the_history() {
        let history =
            "1\t0/3000060\tno recovery target specified\n\n2\t0/5000110\tno recovery target specified\n";
        assert_eq!(last_switch(history), Some((2, "0/5000110".to_owned())));
        assert_eq!(last_switch(""), None);
    }

    #[test]
    fn only_what_postgresql_calls_corrupt_is_damage() {
        let said = |code: &str| Error::Sql { doing: DOING, said: "x".into(), code: Some(code.into()) };
        assert!(matches!(inconsistent("t", said("XX002")), Error::Inconsistent { .. }));
        assert!(matches!(inconsistent("t", said("XX001")), Error::Inconsistent { .. }));
        assert!(
            matches!(inconsistent("t", said("55P03")), Error::Sql { .. }),
            "a lock that it did not get is none"
        );
    }
}
