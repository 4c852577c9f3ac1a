//! What a replica knows of the log that its leader keeps for the others. It keeps as much itself, in slots of its
//! own: so when it is promoted, those who follow find a slot, and in it all that they lack.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_api::instance::{Names, Report};
use keelson_engine::Lsn;
use keelson_engine::postgres::slot_name;
use tokio::sync::watch;

use crate::peers::{KeptLog, Peers};

/// How often the leader is asked.
const OFTEN: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(2);

/// What the leader keeps, as this replica learns it.
pub fn of_the_leader(peers: Peers, reports: watch::Receiver<Report>) -> watch::Receiver<Option<KeptLog>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        while !sender.is_closed() {
            let leader = Some(reports.borrow()).filter(|it| it.follows()).map(|it| it.leader.clone());
            if let Some(leader) = leader {
                match peers.kept_log(&leader, ANSWER).await {
                    Ok(kept) => drop(sender.send(Some(kept))),
                    Err(error) => tracing::debug!(%error, leader, "what it keeps of the log is not known"),
                }
            }
            tokio::time::sleep(OFTEN).await;
        }
    });
    receiver
}

/// The slots that an instance has: one for each of the others.
pub fn wanted(names: Names<'_>, me: &str, instances: u32) -> impl Iterator<Item = String> {
    (0..instances)
        .map(move |ordinal| names.pod(ordinal))
        .filter(move |name| name != me)
        .map(|name| slot_name(&name))
}

/// From where on a replica that has come so far keeps the log, by slots. Nobody knows better than the leader how
/// much the others have; the leader itself has everything, and so all that this replica has. A slot that
/// the leader does not have yet keeps what it keeps.
pub fn to_keep(slots: impl Iterator<Item = String>, kept: &KeptLog, reached: Lsn) -> BTreeMap<String, Lsn> {
    let leaders = slot_name(&kept.name);
    let from = |slot: String| match kept.slots.get(&slot) {
        _ if slot == leaders => Some((slot, reached)),
        Some(from) => Some((slot, reached.min(*from))),
        None => None,
    };
    slots.filter_map(from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_keeps_what_the_others_lack_and_of_its_own_log_no_more() {
        let slots = wanted(Names("orders"), "orders-1", 4);
        let kept = KeptLog {
            name: "orders-0".into(),
            slots: [("keelson_orders_1", 90), ("keelson_orders_2", 70)]
                .map(|(name, from)| (name.to_owned(), Lsn(from)))
                .into(),
        };
        let expected = [("keelson_orders_0", 80), ("keelson_orders_2", 70)];
        let expected = expected.map(|(name, from)| (name.to_owned(), Lsn(from))).into();
        assert_eq!(to_keep(slots, &kept, Lsn(80)), expected);
        let further = KeptLog { slots: [("keelson_orders_2".to_owned(), Lsn(99))].into(), ..kept };
        let slots = wanted(Names("orders"), "orders-1", 3);
        assert_eq!(to_keep(slots, &further, Lsn(80))["keelson_orders_2"], Lsn(80));
    }
}
