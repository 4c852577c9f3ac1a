//! A program that writes all the time and remembers what was acknowledged, and by whom.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use testbed::{Container, Look, until};

use crate::bed::{Bed, LONG, MINUTE};

/// Each write is a connection of its own, so that it goes to whoever leads at that moment. It says which instance
/// took it, and on which timeline. Nothing in the table would refuse a write that comes twice.
const WRITE: &str = r#"
rm -f /tmp/enough /tmp/ended; : > /tmp/acknowledged; : > /tmp/times; : > /tmp/errors; i=0
export PGCONNECT_TIMEOUT=2
while [ ! -e /tmp/enough ]; do
    i=$((i + 1))
    said=$(timeout 3 psql "$URI" -XAtq -c "insert into written values
        ($i, inet_server_addr(), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)) returning *" 2>> /tmp/errors) && {
        echo "$said" >> /tmp/acknowledged
        date +%s%3N >> /tmp/times
    }
    sleep 0.05
done
touch /tmp/ended
"#;

/// What is to be 0 in the end: writes that were acknowledged and are gone; that are there twice; that somebody
/// acknowledged on an older timeline than one before it; and instances that took writes again on the same timeline
/// after another had.
const CHECK: &str = r"
with told as (
    select id, at, timeline, lag(timeline) over (order by id) as past, lag(at) over (order by id) as previous
    from acknowledged
), turns as (
    select at, timeline, count(*) as turns from told
    where (at, timeline) is distinct from (previous, past) group by at, timeline
)
select (select count(*) from acknowledged left join written using (id) where written.id is null),
       (select count(*) - count(distinct id) from written),
       (select count(*) from told where timeline < past),
       (select count(*) from turns where turns > 1)";

/// Writes in the pod `client` until it is told to finish.
pub struct Writer<'a> {
    bed: &'a Bed,
    inside: Container,
}

impl<'a> Writer<'a> {
    /// Begins, and returns when the first write was acknowledged.
    pub async fn start(bed: &'a Bed) -> Writer<'a> {
        Writer::begin(bed, "").await
    }

    /// The same, without a need for names: it knows the address of the Service.
    pub async fn start_by_address(bed: &'a Bed) -> Writer<'a> {
        let service = bed.api::<Service>().get("orders-rw").await.unwrap();
        let address = service.spec.unwrap().cluster_ip.unwrap();
        Writer::begin(bed, &format!("export PGHOSTADDR={address}")).await
    }

    async fn begin(bed: &'a Bed, first: &str) -> Writer<'a> {
        bed.sql("drop table if exists written").await;
        bed.sql("create table written (id int, at inet, timeline text)").await;
        // Before it is in the background: somebody may look at once.
        bed.kubectl(&["exec", "client", "--", "sh", "-c", ": > /tmp/acknowledged; : > /tmp/times"]);
        let write = format!("nohup sh -c '{first}{WRITE}' >/dev/null 2>&1 &");
        bed.kubectl(&["exec", "client", "--", "sh", "-c", &write]);
        let client = "pod/client".parse().unwrap();
        let inside = bed.cluster.container(&bed.namespace, &client, None).await.unwrap();
        let writer = Writer { bed, inside };
        writer.acknowledges().await;
        writer
    }

    /// Tells it something, as itself: not even root may write to the files of others where all may make some.
    fn tell(&self, command: &str) {
        self.bed.kubectl(&["exec", "client", "--", "sh", "-c", command]);
    }

    /// Looks at what it has noted, whatever the state of the API server.
    fn look(&self, command: &str) -> String {
        let said = self.bed.cluster.run_in(&self.inside, &["sh", "-c", command]);
        said.unwrap_or_else(|error| panic!("{command}: {error}")).trim().to_owned()
    }

    /// Where it runs.
    #[cfg(feature = "long-tests")]
    pub fn inside(&self) -> &Container {
        &self.inside
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> u32 {
        self.look("wc -l < /tmp/acknowledged").parse().unwrap()
    }

    /// Waits until one more write was acknowledged than before.
    pub async fn acknowledges(&self) {
        let before = self.acknowledged();
        until("a write to be acknowledged", MINUTE, || async {
            match self.acknowledged() {
                now if now > before => Look::There(()),
                now => Look::NotYet(format!("{now} so far")),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", self.bed.evidence()));
    }

    /// The longest time between two writes that were acknowledged.
    pub fn longest_gap(&self) -> Duration {
        let longest =
            "awk '{ if (last && $1 - last > gap) gap = $1 - last; last = $1 } END { print gap + 0 }'";
        Duration::from_millis(self.look(&format!("{longest} /tmp/times")).parse().unwrap())
    }

    /// Forgets when writes were acknowledged, but for the last: what comes next may begin before there is another.
    pub fn forget_times(&self) {
        self.tell("sed -i '$!d' /tmp/times");
    }

    /// Ends, and finds every write that was acknowledged, once, in an order in which no two can have taken writes at
    /// the same time. Returns how many they are.
    pub async fn finish(self) -> u32 {
        self.tell("touch /tmp/enough");
        until("the writer to end", MINUTE, || async {
            match self.look("ls /tmp").contains("ended") {
                true => Look::There(()),
                false => Look::NotYet("it still writes".to_owned()),
            }
        })
        .await
        .unwrap();
        let ask = format!(
            r#"PGCONNECT_TIMEOUT=5 timeout 60 psql "$URI" -XAtq -v ON_ERROR_STOP=1 \
               -c "create temp table acknowledged (id int, at inet, timeline text)" \
               -c "\copy acknowledged from /tmp/acknowledged with (delimiter '|')" -c "{CHECK}""#
        );
        let asked = ["-n", &self.bed.namespace, "exec", "client", "--", "sh", "-c", &ask];
        let found = until("an answer to what became of the writes", LONG, || async {
            match self.bed.cluster.kubectl(&asked) {
                Ok(said) => Look::There(said.trim().to_owned()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        let found = found.await.unwrap_or_else(|error| panic!("{error}\n{}", self.bed.evidence()));
        assert_eq!(found, "0|0|0|0", "lost, doubled, on an older timeline, and taking turns");
        // Who is let in where another leads by now can read what is old, and a pool that keeps the session can't write.
        let misled = self.look("grep read-only /tmp/errors || true");
        assert_eq!(misled, "", "the Service for writers has led to one that did not lead");
        self.acknowledged()
    }
}
