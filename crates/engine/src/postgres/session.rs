//! Asking the running database, over the local socket: no network, no password, and always a way in, since
//! some connections are reserved for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::hba::SUPERUSER;
use crate::error::{Asking, Error, Result};

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) sockets: PathBuf,
    pub(crate) port: u16,
}

/// In force for all of Keelson's own statements: none of them may end up in the server's log or statistics
/// (some set passwords), and none may hang on what somebody set as a default for everybody.
const OPTIONS: &str = "-c log_statement=none -c log_min_duration_statement=-1 -c log_min_error_statement=panic \
     -c log_duration=off -c pg_stat_statements.track=none -c default_transaction_read_only=off \
     -c statement_timeout=0 -c lock_timeout=2s -c idle_in_transaction_session_timeout=0 -c search_path=pg_catalog \
     -c synchronous_commit=local -c client_min_messages=warning";

impl Local {
    /// A new connection. A new one each time it matters whether clients get in: one that is open keeps
    /// working while the postmaster hangs.
    pub(crate) async fn connect(&self, database: &str) -> Result<Client> {
        let mut config = Config::new();
        config
            .host_path(&self.sockets)
            .port(self.port)
            .user(SUPERUSER)
            .dbname(database)
            .application_name("keelson")
            .options(OPTIONS)
            .connect_timeout(Duration::from_secs(10));
        let (client, connection) = config.connect(NoTls).await.asking("connecting to the local socket")?;
        // Ends with the client, or with the server.
        tokio::spawn(connection);
        Ok(client)
    }
}

/// A connection that is kept, for what is asked every second. It is made anew when it breaks.
#[derive(Debug, Default)]
pub(crate) struct Kept(tokio::sync::Mutex<Option<Arc<Client>>>);

impl Kept {
    /// The one text that a query returns.
    pub(crate) async fn text(&self, local: &Local, doing: &'static str, query: &str) -> Result<String> {
        let client = self.client(local).await?;
        let answer = client.simple_query(query).await.asking(doing);
        if answer.is_err() && client.is_closed() {
            *self.0.lock().await = None;
        }
        first(doing, answer?)
    }

    async fn client(&self, local: &Local) -> Result<Arc<Client>> {
        let mut kept = self.0.lock().await;
        match kept.as_ref().filter(|client| !client.is_closed()) {
            Some(client) => Ok(client.clone()),
            None => Ok(kept.insert(Arc::new(local.connect(SUPERUSER).await?)).clone()),
        }
    }

    /// Lets the connection go.
    pub(crate) async fn close(&self) {
        *self.0.lock().await = None;
    }
}

/// The one value of a query's one row.
pub(crate) async fn value(client: &Client, doing: &'static str, query: &str) -> Result<String> {
    first(doing, client.simple_query(query).await.asking(doing)?)
}

fn first(doing: &'static str, answer: Vec<SimpleQueryMessage>) -> Result<String> {
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let nothing = || Error::Sql { doing, said: "the answer is empty".into(), code: None };
    row.map(str::to_owned).ok_or_else(nothing)
}

/// A statement without an answer.
pub(crate) async fn execute(client: &Client, doing: &'static str, statement: &str) -> Result<()> {
    client.batch_execute(statement).await.asking(doing)
}

/// A name as SQL wants it.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\"").replace('\0', ""))
}

/// A text as SQL wants it, whatever `standard_conforming_strings` says.
pub(crate) fn literal(text: &str) -> String {
    let text = text.replace('\0', "").replace('\'', "''");
    if text.contains('\\') { format!(" E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_can_not_break_out() {
        assert_eq!(name(r#"a"b"#), r#""a""b""#);
        assert_eq!(literal("a'b"), "'a''b'");
        assert_eq!(literal(r"a\'b"), r" E'a\\''b'");
    }
}
