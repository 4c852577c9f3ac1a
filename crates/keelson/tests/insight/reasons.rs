//! Every reason that a person can see is explained. Reasons are words in CamelCase in the programs' source: each such
//! word there is either in the document or on the list of those that mean something else.

use std::collections::BTreeSet;
use std::path::Path;

use crate::known::{project, text};

/// Where reasons are given.
const SOURCES: [&str; 4] =
    ["crates/operator/src", "crates/agent/src", "crates/api/src/instance.rs", "crates/api/src/instance"];

/// Words in CamelCase that are no reasons of ours: kinds and words of Kubernetes, conditions, types.
const OTHERS: &[&str] = &[
    "Always",
    "AlwaysAllow",
    "BackupReady",
    "BackupVerified",
    "Bound",
    "Checking",
    "Complete",
    "Completed",
    "ContainerResource",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "Database",
    "Deadlocks",
    "Degraded",
    "Deployment",
    "Done",
    "EndpointSlice",
    "ErrImageNeverPull",
    "ErrImagePull",
    "Error",
    "Exporter",
    "False",
    "ImagePullBackOff",
    "Infeasible",
    "InvalidImageName",
    "Memory",
    "Never",
    "None",
    "OnDelete",
    "OnRootMismatch",
    "Parallel",
    "Pod",
    "PodReadyToStartContainers",
    "PodScheduled",
    "ProgressDeadlineExceeded",
    "Progressing",
    "ReadWriteOnce",
    "Ready",
    "Refused",
    "ReplicaFailure",
    "ResizeError",
    "Role",
    "RollingUpdate",
    "RunContainerError",
    "RuntimeDefault",
    "ScheduleAnyway",
    "ServiceAccount",
    "SpecEffective",
    "Succeeded",
    "True",
    "Utilization",
];

/// What the kit says on its own for any kind.
const OF_THE_KIT: &str = "Failed";

fn is_a_word(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_uppercase())
        && text.len() > 2
        && letters.clone().any(|letter| letter.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_alphabetic())
}

/// The words in quotes in a file's own code, tests and comments aside.
fn words_in(source: &str, found: &mut BTreeSet<String>) {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        found.extend(line.split('"').skip(1).step_by(2).filter(|word| is_a_word(word)).map(str::to_owned));
    }
}

fn words_under(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            words_under(&entry.unwrap().path(), found);
        }
    } else if !path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests")) {
        words_in(&std::fs::read_to_string(path).unwrap(), found);
    }
}

/// The words in the first column of the document's tables.
fn explained() -> BTreeSet<String> {
    let document = text("docs/reasons.md");
    let first = document.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let words = first.flat_map(|cell| cell.split('`')).filter(|word| is_a_word(word));
    words.map(str::to_owned).collect()
}

#[test]
fn every_reason_is_explained_and_no_other() {
    let mut said: BTreeSet<String> = BTreeSet::from([OF_THE_KIT.to_owned()]);
    for source in SOURCES {
        words_under(&project(source).canonicalize().unwrap(), &mut said);
    }
    // A few are both a condition, or a state of Kubernetes, and a reason.
    let conditions = [
        "Ready",
        "Progressing",
        "Degraded",
        "BackupReady",
        "BackupVerified",
        "DatabaseReady",
        "RestoredInPlace",
        "SpecEffective",
    ];
    let explained = explained();
    let is_other = |word: &&String| OTHERS.contains(&word.as_str());
    let missing: Vec<&String> =
        said.iter().filter(|word| !explained.contains(*word) && !is_other(word)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?}: explain each reason in docs/reasons.md, with what to do; what is no reason goes on this test's list"
    );
    let never: Vec<&String> = explained
        .iter()
        .filter(|word| !said.contains(*word) && !conditions.contains(&word.as_str()))
        .collect();
    assert!(never.is_empty(), "{never:?} are explained in docs/reasons.md, and no program says them");
}

#[test]
fn a_reason_in_code_is_found_and_one_in_a_test_or_a_comment_is_not() {
    let mut found = BTreeSet::new();
    words_in("x(\"NoStandby\", \"a text\");\n// \"Comment\"\n#[cfg(test)]\ny(\"InATest\")", &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["NoStandby"]);
}
