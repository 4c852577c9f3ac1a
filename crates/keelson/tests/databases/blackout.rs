//! All that a database has goes at once, and comes back in an awkward order: it is the same database.

use testbed::{Fault, Which};

use crate::bed::Bed;
use crate::leading::followers;

/// After a blackout from which the last leader comes back last, nothing is missing.
pub async fn blackout(bed: &Bed) {
    let leader = bed.whole().await.name;
    let [near, far] = followers(&leader);
    bed.client_away_from(&leader).await;
    bed.sql("create table t (id int)").await;
    bed.sql("insert into t select generate_series(1, 1000)").await;
    let identity = "select system_identifier from pg_control_system()";
    let system = bed.ask(&leader, identity);

    // One that lacks something, and counts for commits no more.
    let paused = Fault::ProcessPause { container: bed.container_of(far).await, which: Which::All };
    bed.cluster.inject(&paused).unwrap();
    bed.sql("insert into t select generate_series(1001, 2000)").await;
    let mut crashes = Vec::new();
    for pod in [leader.as_str(), near, far] {
        crashes.push(Fault::NodeCrash { node: bed.container_of(pod).await.node });
    }
    for crash in &crashes {
        bed.cluster.inject(crash).unwrap();
    }
    for crash in crashes[1..].iter().rev() {
        bed.cluster.heal(crash).unwrap();
    }
    let now = bed.another_than(&leader).await;
    bed.client_away_from(&leader).await;
    assert_eq!(bed.sql("select count(*) from t").await, "2000", "{now:?} has all");
    bed.cluster.heal(&crashes[0]).unwrap();
    bed.whole().await;
    assert_eq!(bed.sql("select count(*), count(distinct id) from t").await, "2000|2000");
    for pod in [leader.as_str(), near, far] {
        bed.says(pod, "postgres", identity, &system).await;
    }
}
