//! Who runs the database: what only the one or the other knows.

use std::path::Path;

use serde::{Deserialize, Serialize};
use testbed::Cluster;

use super::site::Site;
use super::{keelson, patroni};
use crate::error::Result;

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// Keelson, with its default settings.
    Keelson,
    /// Patroni, with its default times.
    Patroni,
    /// Patroni, with the shortest times that it takes.
    PatroniFast,
}

impl System {
    pub(crate) const ALL: [System; 3] = [System::Keelson, System::Patroni, System::PatroniFast];

    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            System::Keelson => "Keelson",
            System::Patroni => "Patroni, defaults",
            System::PatroniFast => "Patroni, fastest",
        }
    }

    /// Puts on the cluster what it needs beside its database.
    pub(super) fn install(self, cluster: &Cluster, program: &Path) -> Result<()> {
        match self {
            System::Keelson => crate::install(cluster, program),
            System::Patroni | System::PatroniFast => Ok(cluster.load_debian(patroni::IMAGE)?),
        }
    }

    /// Makes a database of three. It need not run yet.
    pub(super) async fn create(self, site: &Site<'_>) -> Result<()> {
        match self {
            System::Keelson => keelson::make(site).await,
            System::Patroni => patroni::create(site, patroni::DEFAULTS),
            System::PatroniFast => patroni::create(site, patroni::FASTEST),
        }
    }

    /// Who leads, if the two others may follow him at any moment.
    pub(super) async fn leader_of_all(self, site: &Site<'_>) -> Result<Option<String>> {
        match self {
            System::Keelson => keelson::leader_of_all(site).await,
            System::Patroni | System::PatroniFast => patroni::leader_of_all(site).await,
        }
    }

    /// The Service for those who write.
    pub(super) fn writers(self) -> &'static str {
        match self {
            System::Keelson => "orders-rw",
            System::Patroni | System::PatroniFast => "orders",
        }
    }

    /// Where PostgreSQL has its files in the container.
    pub(super) fn files(self) -> &'static str {
        match self {
            System::Keelson => "/var/lib/keelson/data",
            System::Patroni | System::PatroniFast => "/var/lib/postgresql/pgdata/pgroot",
        }
    }

    /// Asks another to lead. What was asked may be done later.
    pub(super) fn hand_over(self, site: &Site<'_>, leader: &str) -> Result<()> {
        match self {
            System::Keelson => keelson::hand_over(site),
            System::Patroni | System::PatroniFast => patroni::hand_over(site, leader),
        }
    }

    /// Has all pods replaced, one after another.
    pub(super) fn restart_all(self, site: &Site<'_>, run: usize) -> Result<()> {
        match self {
            System::Keelson => keelson::restart_all(site, run),
            System::Patroni | System::PatroniFast => patroni::restart_all(site),
        }
    }

    /// Of Patroni, from a database that runs.
    pub(super) fn patroni_version(self, site: &Site<'_>) -> Option<String> {
        match self {
            System::Keelson => None,
            System::Patroni | System::PatroniFast => patroni::version(site),
        }
    }

    /// Removes the database and its namespace.
    pub(super) async fn close(self, site: Site<'_>) -> Result<()> {
        if self == System::Keelson {
            keelson::remove(&site).await?;
        }
        site.close().await
    }
}
