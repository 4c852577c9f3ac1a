//! On what it was measured: a report without it can't be compared with another.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

pub(super) use keelson_rig::install::checkout;

use crate::error::{During, Result};

/// The machine and the versions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) processor: String,
    /// Of what else went on: the processes that wanted to run in the last minute, on average, the control
    /// plane and the contestants among them.
    pub(super) load: String,
    pub(super) versions: Vec<(String, String)>,
}

/// Names with versions; none where it could not be found out.
pub(super) type Versions = Vec<(&'static str, Option<String>)>;

/// The machine, the versions that every report names, and more of them.
pub(super) fn describe(more: Versions) -> Result<Machine> {
    let lock = read(&checkout().join("Cargo.lock"))?;
    let kubernetes = read(&checkout().join("crates/testbed/go/kubernetes/go.mod"))?;
    let versions = [
        ("Kubernetes", required(&kubernetes, "k8s.io/kubernetes")),
        ("rustc", printed("rustc", &["--version"])),
        ("kube", locked(&lock, "kube")),
    ];
    Ok(Machine {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_gib: memory_gib(&read(Path::new("/proc/meminfo"))?),
        processor: processor(&read(Path::new("/proc/cpuinfo"))?),
        load: read(Path::new("/proc/loadavg"))?.split(' ').next().unwrap_or_default().to_owned(),
        versions: versions
            .into_iter()
            .chain(more)
            .map(|(name, version)| (name.to_owned(), version.unwrap_or_else(|| "unknown".into())))
            .collect(),
    })
}

/// A whole file.
pub(super) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).during("reading", path)
}

/// What a program prints of its version.
pub(super) fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().trim_start_matches("rustc ").trim_start_matches("go").to_owned())
}

/// The version of a module that a `go.mod` requires.
pub(super) fn required(go_mod: &str, module: &str) -> Option<String> {
    let words = go_mod.lines().map(|line| line.trim().trim_start_matches("require ").split_whitespace());
    words.into_iter().find_map(|mut words| {
        let found = words.next() == Some(module);
        words
            .next()
            .filter(|version| found && version.starts_with('v'))
            .map(|version| version[1..].to_owned())
    })
}

/// The version of a crate in a `Cargo.lock`.
fn locked(lock: &str, name: &str) -> Option<String> {
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    Some(lines.nth(1)?.strip_prefix("version = \"")?.trim_end_matches('"').to_owned())
}

fn memory_gib(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kib / (1 << 20)
}

fn processor(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_where_they_are_pinned() {
        let go_mod =
            "module a\n\nrequire (\n\tk8s.io/api v0.37.2\n\tk8s.io/client-go v0.37.1 // indirect\n)\n";
        assert_eq!(required(go_mod, "k8s.io/client-go").as_deref(), Some("0.37.1"));
        assert_eq!(
            required("require k8s.io/kubernetes v1.36.3\n", "k8s.io/kubernetes").as_deref(),
            Some("1.36.3")
        );
        assert_eq!(required(go_mod, "k8s.io/none"), None);
        let lock = "[[package]]\nname = \"kube-core\"\nversion = \"4.0.0\"\n\n[[package]]\nname = \"kube\"\nversion = \"5.0.0\"\n";
        assert_eq!(locked(lock, "kube").as_deref(), Some("5.0.0"));
        assert_eq!(locked(lock, "none"), None);
    }

    #[test]
    fn the_machine_is_described() {
        let machine = describe(vec![("none", None)]).unwrap();
        assert!(machine.cores > 0 && machine.memory_gib > 0);
        let unknown = machine.versions.iter().filter(|(_, version)| version == "unknown");
        let unknown: Vec<&str> = unknown.map(|(name, _)| name.as_str()).collect();
        assert_eq!(unknown, ["none"], "{:?}", machine.versions);
    }
}
