//! Parameters that follow from memory, cpu and volume, each with its reason. Somebody who names a
//! parameter gets what they named, but for how much log is kept for replicas: that guards the volume.

use super::settings::Resources;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A parameter, its value, and why it has this one.
pub(crate) type Derived = (&'static str, String, &'static str);

/// What an instance of this size gets.
pub(crate) fn sizes(resources: &Resources) -> Vec<Derived> {
    [memory(resources.memory), cpu(resources.cpu_millis), volume(resources.volume)].concat()
}

fn memory(memory: u64) -> Vec<Derived> {
    let buffers = (memory / 4).max(16 * MIB);
    // A query may use several, a hash twice; every connection at once would need three times this.
    let work = (memory.saturating_sub(buffers) / (3 * CONNECTIONS)).clamp(2 * MIB, 256 * MIB);
    vec![
        (
            "max_connections",
            CONNECTIONS.to_string(),
            "not by memory: a replica must not have fewer than its primary, so a resize would need an order",
        ),
        (
            "shared_buffers",
            megabytes(buffers),
            "a quarter of memory: the rest serves as the kernel's cache, and for queries",
        ),
        (
            "effective_cache_size",
            megabytes((memory / 4 * 3).max(16 * MIB)),
            "what a query can hope to find in memory: three quarters",
        ),
        (
            "work_mem",
            megabytes(work),
            "what is left beside shared_buffers, by connections, by the sorts of a query",
        ),
        (
            "maintenance_work_mem",
            megabytes((memory / 20).clamp(16 * MIB, GIB)),
            "a twentieth: three autovacuum workers and an index build may use it at once",
        ),
    ]
}

/// How many connections there are unless somebody says otherwise.
const CONNECTIONS: u64 = 100;

fn cpu(millis: u64) -> Vec<Derived> {
    let cores = (millis / 1000).max(1);
    let of_a_query = (cores / 2).min(4);
    vec![
        (
            "max_worker_processes",
            (cores + 8).to_string(),
            "one a core, and some for replication and extensions",
        ),
        ("max_parallel_workers", cores.to_string(), "one a core"),
        (
            "max_parallel_workers_per_gather",
            of_a_query.to_string(),
            "half the cores, so that one query leaves room for another; none on a single core",
        ),
        ("max_parallel_maintenance_workers", of_a_query.to_string(), "the same for building an index"),
    ]
}

fn volume(volume: u64) -> Vec<Derived> {
    let most = (volume / 10).clamp(64 * MIB, 8 * GIB);
    let segment = 16 * MIB;
    vec![
        (
            "max_wal_size",
            megabytes(most),
            "a tenth of the volume: checkpoints by time rather than by log, while the log can't fill the volume",
        ),
        (
            "min_wal_size",
            megabytes((most / 4).clamp(2 * segment, GIB)),
            "a quarter of that: segments are used again instead of made anew",
        ),
        (
            "max_slot_wal_keep_size",
            megabytes((volume / 5).clamp(256 * MIB, 64 * GIB)),
            "a fifth of the volume: a replica that is away longer is cloned anew, before it fills the primary's volume",
        ),
        (
            "wal_keep_size",
            megabytes((volume / 20).clamp(2 * segment, GIB)),
            "for a replica that comes from a primary which kept its slot, and for pg_rewind",
        ),
    ]
}

/// Rounded down, as nothing may add up to more than there is.
fn megabytes(bytes: u64) -> String {
    format!("{}MB", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(resources: &Resources, name: &str) -> u64 {
        let (_, value, _) = sizes(resources).into_iter().find(|(found, ..)| *found == name).unwrap();
        value.trim_end_matches("MB").parse().unwrap()
    }

    #[test]
    fn a_medium_instance_gets_what_a_person_would_give_it() {
        let medium = Resources { memory: GIB, cpu_millis: 1000, volume: 50 * GIB };
        for (name, expected) in [
            ("shared_buffers", 256),
            ("effective_cache_size", 768),
            ("work_mem", 2),
            ("maintenance_work_mem", 51),
            ("max_parallel_workers_per_gather", 0),
            ("max_wal_size", 5120),
            ("max_slot_wal_keep_size", 10240),
        ] {
            assert_eq!(value(&medium, name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn memory_is_not_promised_twice(memory in 256 * MIB..1024 * GIB) {
            let resources = Resources { memory, cpu_millis: 1000, volume: GIB };
            let fixed = value(&resources, "shared_buffers") + 3 * value(&resources, "maintenance_work_mem");
            prop_assert!(fixed * MIB <= memory / 2, "{fixed} MiB of {memory}");
        }

        #[test]
        fn the_log_leaves_most_of_the_volume_to_the_data(volume in 2 * GIB..64 * 1024 * GIB) {
            let resources = Resources { memory: GIB, cpu_millis: 1000, volume };
            let log = value(&resources, "max_wal_size") + value(&resources, "max_slot_wal_keep_size");
            prop_assert!(log * MIB <= volume / 3, "{log} MiB of {volume}");
            prop_assert!(value(&resources, "min_wal_size") < value(&resources, "max_wal_size"));
        }

        #[test]
        fn no_size_is_out_of_what_postgresql_takes(memory: u64, cpu_millis in 0u64..1_000_000, volume: u64) {
            for (name, text, why) in sizes(&Resources { memory, cpu_millis, volume }) {
                let number: u64 = text.trim_end_matches("MB").parse().unwrap();
                let least = u64::from(!name.starts_with("max_parallel"));
                prop_assert!(number >= least, "{name} {text}");
                prop_assert!(!why.is_empty());
            }
        }
    }
}
