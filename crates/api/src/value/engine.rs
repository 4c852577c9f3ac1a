//! Which database it is, and what its version numbers mean.

use super::{Version, words};

words! {
    /// The database program.
    Engine, "engine" {
        /// PostgreSQL.
        Postgres = "postgres",
        /// MySQL.
        Mysql = "mysql",
    }
}

/// A line of versions that share their files on disk: within it, going up or down is a restart;
/// between two of them lies a major upgrade, and there is no way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series(pub u32, pub u32);

impl Engine {
    /// The version that a database gets when its spec names none.
    pub const fn default_version(self) -> Version {
        match self {
            Engine::Postgres => Version { major: 17, minor: None, patch: None },
            Engine::Mysql => Version { major: 9, minor: Some(7), patch: None },
        }
    }

    /// The line that a version belongs to. PostgreSQL counts in one number (17.4 and 17.9 share their
    /// files), MySQL in two (8.4 and 9.7 do not, nor do 9.6 and 9.7).
    pub const fn series(self, version: &Version) -> Series {
        match (self, version.minor) {
            (Engine::Postgres, _) | (Engine::Mysql, None) => Series(version.major, 0),
            (Engine::Mysql, Some(minor)) => Series(version.major, minor),
        }
    }

    /// Whether there is, or may one day be, such a version. The rules in the schema say the same.
    pub const fn plausible(self, version: &Version) -> bool {
        match self {
            Engine::Postgres => version.major >= 14 && version.major < 100 && version.patch.is_none(),
            Engine::Mysql => match (version.major, version.minor) {
                (8, Some(minor)) => minor == 4,
                (9, Some(_)) => true,
                _ => false,
            },
        }
    }

    /// What a version of this engine looks like, for messages.
    pub const fn version_examples(self) -> &'static str {
        match self {
            Engine::Postgres => "14 or newer, such as 17 or 17.4",
            Engine::Mysql => "8.4 or 9.x, such as 9.7",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn a_series_is_what_shares_its_files() {
        let postgres = |text| Engine::Postgres.series(&version(text));
        assert_eq!(postgres("17"), postgres("17.4"));
        assert!(postgres("18.0") > postgres("17.9"));
        let mysql = |text| Engine::Mysql.series(&version(text));
        assert_eq!(mysql("9.7"), mysql("9.7.4"));
        assert!(mysql("9.7") > mysql("9.6"));
        assert!(mysql("9.0") > mysql("8.4"));
    }

    #[test]
    fn versions_that_never_were_are_not_plausible() {
        for (engine, good, bad) in [
            (Engine::Postgres, ["14", "15.2", "18"], ["9.6", "13", "17.4.1"]),
            (Engine::Mysql, ["8.4", "9.7", "9.7.4"], ["17", "5.7", "8"]),
        ] {
            assert!(good.iter().all(|text| engine.plausible(&version(text))));
            assert!(!bad.iter().any(|text| engine.plausible(&version(text))));
            assert!(engine.plausible(&engine.default_version()));
        }
    }

    #[test]
    fn an_unknown_engine_is_answered_with_those_there_are() {
        let error = "oracle".parse::<Engine>().unwrap_err();
        assert_eq!(error.to_string(), "`oracle` is no engine: use one of postgres, mysql");
    }
}
