//! A client's session with a database, encrypted as libpq does it unless told otherwise.

use std::net::IpAddr;
use std::str::FromStr;

use tokio::task::AbortHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config};

use crate::error::{Error, Result};
use crate::tls::Tls;

/// Where sessions are made.
#[derive(Clone)]
pub struct Door {
    config: Config,
    tls: Tls,
}

impl Door {
    /// As the application's Secret says it, in a variable of the environment.
    pub fn of_variable(name: &str) -> Result<Door> {
        let tls = Tls::new().map_err(|error| unreadable("TLS", &error.to_string()))?;
        Ok(Door { config: variable(name)?, tls })
    }

    /// The same database at this address, so that no name has to be looked up.
    pub fn at(&self, address: IpAddr) -> Door {
        let mut door = self.clone();
        door.config.hostaddr(address);
        door
    }

    /// For sessions that can write, and no others: where a node has not heard yet of a change of leadership, the Service
    /// for writers leads to one that follows by now.
    pub fn to_write(&self) -> Door {
        let mut door = self.clone();
        door.config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        door
    }

    /// Goes in.
    pub async fn open(&self) -> Result<Session, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        Ok(Session { client, connection: tokio::spawn(connection).abort_handle() })
    }
}

/// A session, whose connection ends with it: by itself it would wait for an answer that may never come.
pub struct Session {
    /// What asks.
    pub client: Client,
    connection: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// What a variable of the environment says.
pub fn variable<T: FromStr>(name: &str) -> Result<T> {
    let text = std::env::var(name).map_err(|error| unreadable(name, &error.to_string()))?;
    // What is wrong with it is not said: it may have a password in it.
    text.parse().map_err(|_| unreadable(name, "it is not what it should be"))
}

fn unreadable(what: &str, why: &str) -> Error {
    Error::Unreadable { what: what.to_owned(), why: why.to_owned() }
}

/// Why something failed, in a line, with what it was caused by.
pub fn reason(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}").replace('\n', " "),
        None => error.to_string().replace('\n', " "),
    }
}
