//! The rules of version 1 that the API server itself enforces, in CEL: they hold while the operator is
//! away. Each has an object that it lets pass and one that it refuses in `tests/api_server.rs`.
//!
//! A rule that speaks of `oldSelf` is about a change. [`crate::policy`] repeats those for requests in
//! the other versions, whose schemas can't see every field.

pub use crate::schema::Rule;

const fn rule(rule: &'static str, message: &'static str) -> Rule {
    Rule { rule, message }
}

/// The name of any object that becomes part of other names: those of services, which are DNS labels,
/// and of pods, whose labels are cut at 63 characters.
pub const NAME: &[Rule] = &[rule(
    "size(self.metadata.name) <= 48 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "the name becomes part of host names: use at most 48 lower-case letters, digits and dashes, beginning with a letter",
)];

/// On the spec of a Database.
pub const SPEC: &[Rule] = &[
    rule(
        "!has(self.version) || (has(self.engine) ? self.engine : 'postgres') != 'postgres' \
         || self.version.matches('^(1[4-9]|[2-9][0-9])([.][0-9]+)?$')",
        "there is no such version of PostgreSQL: use 14 or newer, such as 17 or 17.4",
    ),
    rule(
        "!has(self.version) || (has(self.engine) ? self.engine : 'postgres') != 'mysql' \
         || self.version.matches('^(8[.]4|9[.][0-9]+)([.][0-9]+)?$')",
        "there is no such version of MySQL: use 8.4 or 9.x, such as 9.7",
    ),
    rule(
        "(has(self.engine) ? self.engine : 'postgres') == (has(oldSelf.engine) ? oldSelf.engine : 'postgres')",
        "the engine can't be changed: create a new Database and move the data",
    ),
    rule(
        "has(self.version) || !has(oldSelf.version)",
        "the version can't be taken away once it is set: name the version to run",
    ),
    rule(
        "!has(self.restore) || (has(oldSelf.restore) && self.restore == oldSelf.restore) \
         || (has(self.restore.inPlace) && (!has(oldSelf.restore) || !has(oldSelf.restore.inPlace) \
         || self.restore.inPlace != oldSelf.restore.inPlace))",
        "restore says where the first data comes from and can't be added or changed later: to bring this database back to an \
         earlier moment, give restore.inPlace a name that it did not have, as one name stands for one restore",
    ),
];

/// What a database runs, as far as is known: what its status says. An upgrade that has not been switched to
/// yet can so be called off, and a version that does not exist corrected where none has run.
macro_rules! running {
    () => {
        "(has(oldSelf.status) && has(oldSelf.status.version) ? oldSelf.status.version : '0.0')"
    };
}

/// Whether the version of a database of this engine is being changed at all. A status must never be
/// refused for what the spec has long said.
macro_rules! version_changes {
    ($engine:literal) => {
        concat!(
            "(has(self.spec.engine) ? self.spec.engine : 'postgres') != '",
            $engine,
            "' || !has(self.spec.version) || (has(oldSelf.spec.version) && self.spec.version == oldSelf.spec.version)"
        )
    };
}

/// On a whole Database: its spec is measured by its status.
pub const DATABASE: &[Rule] = &[
    rule(
        concat!(
            version_changes!("postgres"),
            " || int(self.spec.version.split('.')[0]) >= int(",
            running!(),
            ".split('.')[0])"
        ),
        "PostgreSQL can't go back to an older major version: restore a backup from before the upgrade into a new Database",
    ),
    rule(
        concat!(
            version_changes!("mysql"),
            " || !self.spec.version.contains('.') || !",
            running!(),
            ".contains('.') || int(self.spec.version.split('.')[0]) * 1000 + int(self.spec.version.split('.')[1]) >= int(",
            running!(),
            ".split('.')[0]) * 1000 + int(",
            running!(),
            ".split('.')[1])"
        ),
        "MySQL can't go back to an older release series: restore a backup from before the upgrade into a new Database",
    ),
];

/// On `spec.failover` of a Database.
pub const FAILOVER: &[Rule] = &[
    rule(
        "!has(self.ttl) || (duration(self.ttl) >= duration('2s') && duration(self.ttl) <= duration('5m'))",
        "ttl must be from 2s to 5m",
    ),
    rule(
        "(!has(self.interval) || duration(self.interval) >= duration('100ms')) \
         && (!has(self.margin) || duration(self.margin) >= duration('100ms'))",
        "interval and margin must be at least 100ms",
    ),
    rule(
        "(has(self.ttl) ? duration(self.ttl) : duration('5s')) \
         >= (has(self.margin) ? duration(self.margin) : duration('500ms')) \
         + (has(self.interval) ? duration(self.interval) : duration('1s')) \
         + (has(self.interval) ? duration(self.interval) : duration('1s'))",
        "ttl must be at least margin plus twice the interval (5s, 500ms and 1s unless set), or one slow answer would cost the primary its leadership",
    ),
];

/// On `spec.parameters` of a Database: what Keelson itself sets, since replication, failover, backups
/// or the safety of commits depend on it.
pub const PARAMETERS: &[Rule] = &[rule(
    crate::parameters::RULE,
    "one of these parameters is set by Keelson itself, as replication and safe commits depend on it: remove it (see durability, failover and backup for what can be chosen)",
)];

/// On a repository, wherever there is one.
pub const REPOSITORY: &[Rule] = &[rule(
    "[has(self.s3), has(self.gcs), has(self.azure), has(self.folder)].filter(given, given).size() == 1",
    "name exactly one place for backups: s3, gcs, azure or folder",
)];

/// On `spec.restore` of a Database.
pub const RESTORE: &[Rule] = &[
    rule(
        "has(self.from) || has(self.inPlace)",
        "restore.from is missing: name a backup, a database or a repository",
    ),
    rule(
        "!has(self.inPlace) || !has(self.from) || has(self.from.backup)",
        "in place a database is restored from its own repository: leave restore.from out, or name one of its Backups",
    ),
];

/// On `spec.restore.from` of a Database.
pub const RESTORE_SOURCE: &[Rule] = &[rule(
    "[has(self.backup), has(self.database), has(self.repository)].filter(given, given).size() == 1",
    "name exactly one source: backup, database or repository",
)];

/// On `spec.restore.to` of a Database.
pub const RESTORE_TARGET: &[Rule] = &[rule(
    "[has(self.time), has(self.lsn), has(self.name)].filter(given, given).size() <= 1",
    "name at most one moment: time, lsn or name; none is the latest",
)];

/// On the spec of a Backup.
pub const BACKUP: &[Rule] =
    &[rule("self == oldSelf", "a Backup can't be changed once it is asked for: create another one")];

/// On the spec of an App.
pub const APP: &[Rule] = &[
    rule(
        "!has(self.progressDeadline) || (duration(self.progressDeadline) >= duration('10s') \
         && duration(self.progressDeadline) <= duration('1h'))",
        "progressDeadline must be from 10s to 1h",
    ),
    rule(
        "!has(self.health) || (has(self.ports) && size(self.ports) > 0 \
         && (!has(self.health.port) || self.ports.exists(port, port.name == self.health.port)))",
        "health needs a port: name one of ports, or list it there",
    ),
    rule(
        "!has(self.pooler) || has(self.database) || (has(self.pooler.enabled) && !self.pooler.enabled)",
        "a pooler needs a database: name it",
    ),
];

/// On `spec.autoscale` of an App.
pub const AUTOSCALE: &[Rule] =
    &[rule("!has(self.min) || self.min <= self.max", "autoscale.min must not be more than autoscale.max")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Engine;

    #[test]
    fn the_rules_know_the_default_engine() {
        let rules = SPEC.iter().map(|rule| rule.rule).collect::<String>();
        assert!(rules.contains(&format!("self.engine : '{}'", Engine::Postgres)));
    }
}
