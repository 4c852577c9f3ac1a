//! What the kernel counts for this process, read when somebody asks.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The kernel's unit of processor time towards programs: the same on every platform that Rust and
/// Kubernetes have in common.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collects from `/proc/self`. What can't be read is left out.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
        let mut gauge = |name, help, value: Option<f64>| -> Result<(), std::fmt::Error> {
            let Some(gauge) = value.map(ConstGauge::new) else { return Ok(()) };
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let resident = status_number(&status, "VmRSS").map(|kilobytes| kilobytes * 1024.0);
        gauge("process_resident_memory_bytes", "Resident memory size in bytes", resident)?;
        gauge("process_threads", "Number of threads", status_number(&status, "Threads"))?;
        gauge("process_open_fds", "Number of open file descriptors", open_files())?;
        let started = started(&stat, &read("/proc/stat"));
        gauge("process_start_time_seconds", "Start time since the Unix epoch in seconds", started)?;
        if let Some(cpu) = cpu_seconds(&stat).map(ConstCounter::new) {
            let help = "Total user and system CPU time spent in seconds";
            cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        }
        Ok(())
    }
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // The listing is itself an open file.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

/// A number of `/proc/self/status`, such as `VmRSS:     1234 kB`.
fn status_number(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A field of `/proc/self/stat` by its number in proc(5), which begins at 1. The second is the name of the
/// program, which may itself have blanks and parentheses.
fn stat_number(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_number(stat, 14)? + stat_number(stat, 15)?) / TICKS_PER_SECOND)
}

fn started(stat: &str, system: &str) -> Option<f64> {
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat_number(stat, 22)? / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "42 (a (strange) name) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 12345 1 2 3";

    #[test]
    fn the_kernels_words_are_understood_whatever_the_program_is_called() {
        assert_eq!(cpu_seconds(STAT), Some(3.0));
        assert_eq!(started(STAT, "cpu 1 2 3\nbtime 1000\nprocesses 7\n"), Some(1123.45));
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t7\n";
        assert_eq!(
            (status_number(status, "VmRSS"), status_number(status, "Threads")),
            (Some(2048.0), Some(7.0))
        );
    }

    #[test]
    fn what_is_missing_is_nothing_and_not_zero() {
        assert_eq!((cpu_seconds(""), started("", ""), status_number("", "VmRSS")), (None, None, None));
        assert_eq!(stat_number(STAT, 1), None);
    }
}
