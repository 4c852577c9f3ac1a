//! Slots: what keeps the log for each replica, and only for as long as the volume allows
//! (`max_slot_wal_keep_size`).

use std::collections::BTreeSet;

use super::Postgres;
use super::hba::SUPERUSER;
use super::session::{execute, literal, value};
use crate::error::{Error, Result};
use crate::lsn::Lsn;

/// The beginning of the names of Keelson's own.
pub const PREFIX: &str = "keelson_";

/// The slot of an instance. Names of pods have dashes and no underscores, those of slots the other way
/// round, so no two instances share one.
pub fn slot_name(instance: &str) -> String {
    let plain = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '_',
    };
    let name: String = PREFIX.chars().chain(instance.chars().map(plain)).collect();
    name.chars().take(63).collect()
}

/// What is to be done about the slots that are there.
fn changes(there: &BTreeSet<String>, wanted: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let missing = wanted.difference(there).cloned().collect();
    let ours = there.iter().filter(|name| name.starts_with(PREFIX));
    (missing, ours.filter(|name| !wanted.contains(*name)).cloned().collect())
}

impl Postgres {
    /// Makes the slots of these names, and drops others of Keelson's own. One that has lost what it kept is
    /// made anew: nobody could use it. On a replica as well: there they keep the log for when it is promoted,
    /// if they are moved along ([`Postgres::advance_slot`]). A slot that is in use is left for the next time.
    pub async fn ensure_slots(&self, names: &BTreeSet<String>) -> Result<()> {
        let client = self.local().connect(SUPERUSER).await?;
        let lost = format!(
            "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE slot_type = 'physical' \
             AND NOT temporary AND NOT active AND wal_status = 'lost' AND starts_with(slot_name, {})",
            literal(PREFIX)
        );
        value(&client, "dropping slots that have lost their log", &lost).await?;
        let query = "SELECT coalesce(json_agg(slot_name), '[]') FROM pg_replication_slots \
                     WHERE slot_type = 'physical' AND NOT temporary";
        let there = value(&client, "listing slots", query).await?;
        let there = serde_json::from_str(&there).map_err(|error| Error::Sql {
            doing: "listing slots",
            said: error.to_string(),
            code: None,
        })?;
        let (missing, unwanted) = changes(&there, names);
        for slot in missing {
            let create = format!("SELECT pg_create_physical_replication_slot({}, true)", literal(&slot));
            execute(&client, "making a slot", &create).await?;
        }
        for slot in unwanted {
            let drop = format!(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {} AND NOT active",
                literal(&slot)
            );
            execute(&client, "dropping a slot", &drop).await?;
        }
        Ok(())
    }

    /// Lets a slot keep the log from here on only, at most from where this instance is itself. A position
    /// that it has passed already is no error.
    pub async fn advance_slot(&self, slot: &str, to: Lsn) -> Result<()> {
        let client = self.local().connect(SUPERUSER).await?;
        let advance = format!(
            "SELECT pg_replication_slot_advance(slot_name, {}::pg_lsn) FROM pg_replication_slots \
             WHERE slot_name = {} AND NOT active AND restart_lsn < {0}::pg_lsn",
            literal(&to.to_string()),
            literal(slot)
        );
        execute(&client, "moving a slot", &advance).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_slot_is_named_after_its_instance() {
        assert_eq!(slot_name("orders-0"), "keelson_orders_0");
        assert_eq!(slot_name(&"x".repeat(80)).len(), 63);
    }

    #[test]
    fn only_keelsons_own_slots_are_dropped() {
        let there = set(&["keelson_a", "keelson_b", "somebodys"]);
        let (missing, unwanted) = changes(&there, &set(&["keelson_b", "keelson_c"]));
        assert_eq!((missing, unwanted), (vec!["keelson_c".to_owned()], vec!["keelson_a".to_owned()]));
    }
}
