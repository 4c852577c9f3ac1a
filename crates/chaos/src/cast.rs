//! The databases that are disturbed.

use std::fmt;

use keelson_sim::Scenario;
use serde_json::{Value, json};

/// What a commit waits for, and with it what is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing that was acknowledged is lost.
    Nothing,
    /// Of the end of what one primary acknowledged, no more than so many bytes of log are lost.
    AtMost(u64),
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Of PostgreSQL.
    pub(crate) version: &'static str,
    /// How many instances it has.
    pub(crate) instances: usize,
    /// What may be lost.
    pub(crate) promise: Promise,
    /// Whether commits go on where no standby is left.
    pub(crate) alone: bool,
    /// Term, look and margin in milliseconds.
    times: [u64; 3],
}

const TIMES: [u64; 3] = [5000, 1000, 1000];
/// Enough for clients that wait in vain.
pub(crate) const CONNECTIONS: u32 = 200;

/// The databases of a run.
pub(crate) fn cast() -> Vec<Database> {
    let bound = Promise::AtMost(1 << 20);
    vec![
        Database::new("three", "18", 3, Promise::Nothing, false),
        Database::new("pair", "17", 2, Promise::Nothing, true),
        Database::new("loose", "15", 2, bound, false),
    ]
}

impl Database {
    fn new(
        name: &'static str,
        version: &'static str,
        instances: usize,
        promise: Promise,
        alone: bool,
    ) -> Database {
        Database { name, version, instances, promise, alone, times: TIMES }
    }

    /// The one of a scenario.
    pub(crate) fn of(scenario: &Scenario, name: &'static str) -> Database {
        let promise = if scenario.synchronous { Promise::Nothing } else { Promise::AtMost(scenario.max_lag) };
        let made = Database::new(name, "17", scenario.instances, promise, !scenario.required);
        Database { times: scenario.times, ..made }
    }

    /// The names of its instances, with one more that there may be for a while.
    pub(crate) fn instance(&self, ordinal: usize) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// Whether commits wait for others.
    pub(crate) fn synchronous(&self) -> bool {
        self.promise == Promise::Nothing
    }

    /// The object that asks for it.
    pub(crate) fn object(&self) -> Value {
        let [ttl, look, margin] = self.times.map(|time| format!("{time}ms"));
        let mut failover = json!({ "ttl": ttl, "interval": look, "margin": margin });
        match self.promise {
            Promise::Nothing => {
                failover["standby"] = (if self.alone { "preferred" } else { "required" }).into();
            }
            Promise::AtMost(bytes) => failover["maxLag"] = bytes.to_string().into(),
        }
        json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": { "name": self.name },
            "spec": {
                "version": self.version, "replicas": self.instances, "storage": "1Gi",
                "durability": if self.synchronous() { "quorum" } else { "async" },
                "failover": failover,
                "parameters": { "max_connections": CONNECTIONS.to_string() },
                "deletionPolicy": "Delete",
            },
        })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let durability = match (self.promise, self.alone) {
            (Promise::Nothing, false) => "quorum",
            (Promise::Nothing, true) => "quorum, preferred",
            (Promise::AtMost(_), _) => "async",
        };
        let Database { name, version, instances, .. } = self;
        write!(f, "{name} (PostgreSQL {version}, {instances} instances, {durability})")
    }
}
