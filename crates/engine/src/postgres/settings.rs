//! What a PostgreSQL instance is to be, as its owner says it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::secret::Secret;

/// What an instance is to be. Everything in its configuration follows from this, from its role and from
/// whom it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of this instance, under which its primary knows it: the pod's.
    pub name: String,
    /// The TCP port.
    pub port: u16,
    /// The addresses it listens on: `*`, or a list with commas.
    pub listen: String,
    /// What it may use.
    pub resources: Resources,
    /// What somebody asked for by name. Names in [`keelson_api::parameters::KEPT`] are ignored.
    pub parameters: BTreeMap<String, String>,
    /// Its certificate. Without one, nothing but the local socket is served unless `plain` is set.
    pub tls: Option<Tls>,
    /// Whether clients may come without TLS. Replication never does.
    pub plain: bool,
    /// As whom replicas connect to their primary; the same for all instances.
    pub replication: Credentials,
    /// Whether finished segments of the log are kept until somebody has marked them as archived. Without, they are
    /// let go.
    pub archive: Option<Archive>,
}

/// How the log is archived: by somebody who watches for what PostgreSQL says is ready, and not by PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archive {
    /// A segment is finished after so many seconds, also when it is not full.
    pub segment_seconds: u64,
}

/// What an instance may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Bytes of memory.
    pub memory: u64,
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Bytes of its volume.
    pub volume: u64,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whom to trust: the authority that signs all instances.
    pub ca: PathBuf,
    /// This instance's certificate.
    pub certificate: PathBuf,
    /// Its key. PostgreSQL insists that nobody but root and its own account may read it.
    pub key: PathBuf,
}

/// A role and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The role.
    pub role: String,
    /// The password.
    pub password: Secret,
}
