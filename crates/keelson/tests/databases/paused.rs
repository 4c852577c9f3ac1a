//! The hard case: a leader that stood still while another came to lead, and goes on where it stood, with a session
//! that has been there all the time.

use testbed::{Container, Fault, Look, Which, until};

use crate::bed::{Bed, LONG};
use crate::leading::{Leader, followers};

/// A session that stays on the leader's own address, whoever leads. Each row says when it was written, by the
/// clock of the machine.
const STAY: &str = r#"
rm -f /tmp/direct /tmp/direct-errors; address=$(echo "$URI" | sed "s/@[^:/]*/@$1/")
(i=0; while [ ! -e /tmp/enough-direct ]; do
    i=$((i + 1))
    echo "insert into direct values ('$2-$i') returning id, extract(epoch from clock_timestamp());"
    sleep 0.02
done) | sh -c 'echo $$ > /tmp/direct-pid; exec psql "$1" -XAtq > /tmp/direct 2> /tmp/direct-errors' - "$address"
"#;

/// What a session is told that the server has ended, with or without a word.
const ENDED: [&str; 3] =
    ["terminating connection", "server closed the connection", "connection to server was lost"];

/// How often by default; `ROUNDS` says otherwise.
const ROUNDS: u32 = 3;

#[tokio::test]
async fn a_leader_that_was_paused_beyond_its_lease_acknowledges_nothing() {
    paused_and_resumed("17", "quorum").await;
}

#[tokio::test]
async fn nor_does_one_whose_commits_wait_for_nobody_else() {
    paused_and_resumed("18", "async").await;
}

/// What came of one round.
#[derive(Debug, Default)]
struct Found {
    /// Rows that were acknowledged before it went on.
    before: u32,
    /// Rows that were acknowledged after.
    after: u32,
    /// Of these, rows that were also written after.
    anew: u32,
    /// Of those after, rows that the new leader does not have.
    after_lost: u32,
    /// Rows that the new leader does not have.
    lost: u32,
}

async fn paused_and_resumed(version: &str, durability: &str) {
    let bed = Bed::left_to_itself_with(version, durability).await;
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let mut all = Found::default();
    for round in 0..rounds {
        let found = pause(&bed, round).await;
        println!("{durability}, PostgreSQL {version}, round {round}: {found:?}");
        assert_eq!(found.anew, 0, "written and acknowledged by a leader that was none any more: {found:?}");
        // One commit may have been let through before the pause, and be told of when it is over.
        assert!(found.after <= 1, "{found:?}");
        // It is with whoever leads now, if commits wait for others. Else it is among the last bytes, which may be lost.
        if durability == "quorum" {
            assert_eq!((found.after_lost, found.lost), (0, 0), "{found:?}");
        }
        all.before += found.before;
        all.after += found.after;
        all.after_lost += found.after_lost;
        all.lost += found.lost;
    }
    println!("{durability}, PostgreSQL {version}, {rounds} rounds: {all:?}");
    bed.looked_after_again().await;
}

/// What stands still, in turn: all processes of the instance, its agent alone, or its node.
fn fault(round: u32, container: Container) -> Fault {
    match round % 3 {
        0 => Fault::ProcessPause { container, which: Which::All },
        1 => Fault::ProcessPause { container, which: Which::Main },
        _ => Fault::NodeFreeze { node: container.node },
    }
}

async fn pause(bed: &Bed, round: u32) -> Found {
    let before = bed.whole().await;
    bed.client_away_from(&before.name).await;
    bed.sql("create table if not exists direct (id text)").await;
    let session = Session::start(bed, &before, round).await;
    let container = bed.container_of(&before.name).await;
    let fault = fault(round, container);
    bed.cluster.inject(&fault).unwrap();
    bed.another_than(&before.name).await;
    bed.sql("insert into direct values ('the new one, ' || now())").await;
    follows_another(bed, &before).await;
    match &fault {
        // Whoever read there would be told what is old.
        Fault::ProcessPause { container, which: Which::Main } => nothing_runs(bed, container),
        _ => session.is_there(),
    }
    let then = session.acknowledged();
    let resumed = session.now();
    bed.cluster.heal(&fault).unwrap();
    nobody_follows(bed, &before.name, &resumed).await;
    session.ends().await;
    bed.whole().await;
    Found {
        before: then,
        after: session.acknowledged() - then,
        anew: session.count(&format!("awk -F '|' '$2 > {resumed}' /tmp/direct | wc -l")),
        after_lost: missing(bed, &format!("tail -n +{}", then + 1)).await,
        lost: missing(bed, "cat").await,
    }
}

/// Whose agent alone stands still is without a database by the time that another leads.
fn nothing_runs(bed: &Bed, container: &Container) {
    let ask = "grep -lx postgres /proc/[0-9]*/comm | while read it; do grep -q '^State:.Z' ${it%comm}status || echo $it; done | wc -l";
    let found = bed.cluster.run_in(container, &["sh", "-c", ask]).unwrap();
    assert_eq!(found.trim(), "0", "processes of PostgreSQL beside an agent that stands still");
}

/// The session on the leader's own address.
struct Session<'a> {
    bed: &'a Bed,
    inside: Container,
}

impl<'a> Session<'a> {
    /// Begins, and returns when something was acknowledged.
    async fn start(bed: &'a Bed, leader: &Leader, round: u32) -> Session<'a> {
        let address = bed.address_of(&leader.name).await;
        let stay =
            format!("nohup sh -c '{}' - {address} {round} >/dev/null 2>&1 &", STAY.replace('\'', r"'\''"));
        bed.kubectl(&["exec", "client", "--", "sh", "-c", &stay]);
        let client = "pod/client".parse().unwrap();
        let inside = bed.cluster.container(&bed.namespace, &client, None).await.unwrap();
        let session = Session { bed, inside };
        until("the session to write", LONG, || async {
            match session.run("wc -l < /tmp/direct || echo 0").trim().parse::<u32>() {
                Ok(1..) => Look::There(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        session
    }

    fn run(&self, command: &str) -> String {
        self.bed.cluster.run_in(&self.inside, &["sh", "-c", command]).unwrap().trim().to_owned()
    }

    fn count(&self, command: &str) -> u32 {
        self.run(command).parse().unwrap()
    }

    fn acknowledged(&self) -> u32 {
        self.count("wc -l < /tmp/direct")
    }

    /// The time of day: there is one clock for all nodes.
    fn now(&self) -> String {
        self.run("date +%s.%6N")
    }

    /// It waits for an answer, and has heard of nothing amiss.
    fn is_there(&self) {
        let state = self.run("kill -0 $(cat /tmp/direct-pid) && echo there; cat /tmp/direct-errors");
        assert_eq!(state, "there", "the session is to live for as long as its leader stands still");
    }

    /// Waits until the server has ended it.
    async fn ends(&self) {
        let ended = until("the session to be ended by the server", LONG, || async {
            match self.run("cat /tmp/direct-errors") {
                said if ENDED.iter().any(|words| said.contains(words)) => Look::There(said),
                said => Look::NotYet(said),
            }
        });
        let said = ended.await.unwrap_or_else(|error| panic!("{error}\n{}", self.bed.evidence()));
        println!("what the session was told: {}", said.lines().next().unwrap_or_default());
        self.bed.kubectl(&["exec", "client", "--", "touch", "/tmp/enough-direct"]);
    }
}

/// How many of the rows that are noted in the client's file, after this filter, the new leader does not have.
async fn missing(bed: &Bed, filter: &str) -> u32 {
    bed.kubectl(&[
        "exec",
        "client",
        "--",
        "sh",
        "-c",
        &format!("{filter} /tmp/direct | cut -d '|' -f 1 > /tmp/ids"),
    ]);
    bed.missing("direct", "text", "/tmp/ids").await
}

/// Of those that could confirm a commit, none listens to the one that stands still.
async fn follows_another(bed: &Bed, before: &Leader) {
    let old = bed.address_of(&before.name).await;
    for pod in followers(&before.name) {
        let hears = bed.ask(pod, "select sender_host from pg_stat_wal_receiver where status = 'streaming'");
        let refused = [old.as_str(), &before.name];
        assert!(
            !refused.iter().any(|old| hears.split('.').next() == Some(old) || hears == *old),
            "{pod}: {hears}"
        );
    }
}

/// Looks at the old leader from the moment it goes on until it follows another: no standby has told it anything in
/// that time. What it has from before, it had before.
async fn nobody_follows(bed: &Bed, leader: &str, since: &str) {
    let sql = format!(
        "select pg_is_in_recovery(), count(*) filter (where client_addr is not null and reply_time > to_timestamp({since})) \
         from pg_stat_replication"
    );
    until(&format!("{leader} to follow another"), LONG, || async {
        let psql = ["psql", "-XAtq", "-U", "postgres", "-d", "postgres", "-c", &sql];
        let command = [&["-n", &bed.namespace, "exec", leader, "-c", "database", "--"], &psql[..]].concat();
        match bed.cluster.kubectl(&command).map(|said| said.trim().to_owned()) {
            Ok(said) if said == "t|0" => Look::There(()),
            Ok(said) if said == "f|0" => Look::NotYet("it has not noticed yet".to_owned()),
            Ok(said) => Look::Never(format!("somebody follows it: {said}")),
            // It has ended, and is being started again.
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", bed.evidence()));
}
