//! Roles and their passwords, and the database of the application. All of it is wanted state: it is made so
//! again and again, and whatever is so already is left alone.

use tokio_postgres::Client;

use super::Postgres;
use super::hba::SUPERUSER;
use super::scram::{verifier, verifies};
use super::session::{execute, literal, name, value};
use crate::error::{Asking, Result};
use crate::secret::Secret;

/// What a role may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    LogIn,
    Replicate,
}

/// What `pg_rewind` reads its source with. Before that, the source writes a checkpoint.
const REWIND: &str = "GRANT EXECUTE ON FUNCTION pg_ls_dir(text, boolean, boolean), \
     pg_stat_file(text, boolean), pg_read_binary_file(text), pg_read_binary_file(text, bigint, bigint, boolean) TO ";

impl Postgres {
    /// Makes a role of that name able to log in, if it is not there yet, and gives it this password. The
    /// server is given a verifier, never the password. One that fits already is left, so that nothing is
    /// written when nothing has changed.
    pub async fn set_password(&self, role: &str, password: &Secret) -> Result<()> {
        let client = self.local().connect(SUPERUSER).await?;
        ensure_role(&client, role, May::LogIn).await?;
        set_password(&client, role, password).await
    }

    /// Makes the role with which replicas connect, from the settings.
    pub async fn ensure_replication(&self) -> Result<()> {
        let credentials = self.wanted().settings.replication;
        let client = self.local().connect(SUPERUSER).await?;
        ensure_role(&client, &credentials.role, May::Replicate).await?;
        let granted = format!(
            "SELECT has_function_privilege({role}, 'pg_read_binary_file(text, bigint, bigint, boolean)', 'EXECUTE') \
             AND pg_has_role({role}, 'pg_checkpoint', 'MEMBER')",
            role = literal(&credentials.role)
        );
        if value(&client, "looking at the rights of the role for replication", &granted).await? == "f" {
            let role = name(&credentials.role);
            let grant = format!("{REWIND}{role}; GRANT pg_checkpoint TO {role}");
            execute(&client, "giving the role for replication its rights", &grant).await?;
        }
        set_password(&client, &credentials.role, &credentials.password).await
    }

    /// Makes the application's role and a database that belongs to it.
    pub async fn ensure_app(&self, role: &str, database: &str, password: &Secret) -> Result<()> {
        let client = self.local().connect(SUPERUSER).await?;
        ensure_role(&client, role, May::LogIn).await?;
        set_password(&client, role, password).await?;
        let there = format!("SELECT count(*) FROM pg_database WHERE datname = {}", literal(database));
        if value(&client, "looking for the database", &there).await? == "0" {
            let create = format!("CREATE DATABASE {} OWNER {}", name(database), name(role));
            execute(&client, "creating the database", &create).await?;
        }
        Ok(())
    }
}

async fn ensure_role(client: &Client, role: &str, may: May) -> Result<()> {
    let there = format!("SELECT count(*) FROM pg_roles WHERE rolname = {}", literal(role));
    if value(client, "looking for the role", &there).await? == "0" {
        let rights = if may == May::Replicate { "LOGIN REPLICATION" } else { "LOGIN" };
        execute(client, "creating the role", &format!("CREATE ROLE {} {rights}", name(role))).await?;
    }
    Ok(())
}

async fn set_password(client: &Client, role: &str, password: &Secret) -> Result<()> {
    let query = "SELECT rolpassword FROM pg_authid WHERE rolname = $1";
    let row = client.query_one(query, &[&role]).await.asking("looking at the role's password")?;
    let stored: Option<String> = row.get(0);
    if stored.is_some_and(|stored| verifies(&stored, password)) {
        return Ok(());
    }
    let alter = format!("ALTER ROLE {} PASSWORD {}", name(role), literal(&verifier(password)));
    execute(client, "setting the role's password", &alter).await
}
