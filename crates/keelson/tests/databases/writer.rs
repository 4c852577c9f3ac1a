//! A program that writes all the time and remembers what was acknowledged.

use testbed::{Look, until};

use crate::bed::{Bed, MINUTE};

/// Each write is a connection of its own, so that it goes to whoever leads at that moment.
const WRITE: &str = r#"
rm -f /tmp/enough /tmp/ended; : > /tmp/acknowledged; : > /tmp/times; i=0
export PGCONNECT_TIMEOUT=2
while [ ! -e /tmp/enough ]; do
    i=$((i + 1))
    timeout 5 psql "$URI" -XAtq -c "insert into written values ($i)" && {
        echo $i >> /tmp/acknowledged
        date +%s%3N >> /tmp/times
    }
    sleep 0.05
done
touch /tmp/ended
"#;

/// Writes in the pod `client` until it is told to finish.
pub struct Writer<'a> {
    bed: &'a Bed,
}

impl<'a> Writer<'a> {
    /// Begins, and returns when the first write was acknowledged.
    pub async fn start(bed: &'a Bed) -> Writer<'a> {
        bed.sql("drop table if exists written").await;
        bed.sql("create table written (id int primary key)").await;
        let write = format!("nohup sh -c '{WRITE}' >/dev/null 2>&1 &");
        bed.kubectl(&["exec", "client", "--", "sh", "-c", &write]);
        let writer = Writer { bed };
        writer.acknowledges().await;
        writer
    }

    fn run(&self, command: &str) -> String {
        self.bed.kubectl(&["exec", "client", "--", "sh", "-c", command]).trim().to_owned()
    }

    fn acknowledged(&self) -> u32 {
        self.run("wc -l < /tmp/acknowledged").parse().unwrap()
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
        .unwrap();
    }

    /// The longest time between two writes that were acknowledged, in milliseconds: for people to read.
    pub fn longest_gap(&self) -> u32 {
        self.run("awk '{ if (last && $1 - last > gap) gap = $1 - last; last = $1 } END { print gap + 0 }' /tmp/times")
            .parse()
            .unwrap()
    }

    /// Ends, and finds every write that was acknowledged. Returns how many they are.
    pub async fn finish(self) -> u32 {
        self.run("touch /tmp/enough");
        until("the writer to end", MINUTE, || async {
            match self.run("ls /tmp").contains("ended") {
                true => Look::There(()),
                false => Look::NotYet("it still writes".to_owned()),
            }
        })
        .await
        .unwrap();
        let lost = self.bed.missing("written", "int", "/tmp/acknowledged").await;
        assert_eq!(lost, 0, "writes that were acknowledged and are gone");
        self.acknowledged()
    }
}
