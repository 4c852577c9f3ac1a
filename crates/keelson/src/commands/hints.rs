//! What to do about a reason that a condition gives, and where the docs say more. The message of the condition has the
//! particulars of the case; this has what holds for all of them.

/// Advice on a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// What to do.
    pub what: &'static str,
    /// Where more is said.
    pub docs: &'static str,
}

const BACKUPS: &str = "docs/backups.md#what-is-said";
const RESTORE: &str = "docs/backups.md#restoring";
const FAILOVER: &str = "docs/failover.md#where-to-look";
const REASONS: &str = "docs/commands.md#reasons";

/// By reason, in the order of the alphabet. [docs/commands.md] has the same table, from here.
pub const HINTS: &[(&str, Hint)] = &[
    hint("ArchiveFailed", "Look at the primary's log: PostgreSQL's own files can't be read.", BACKUPS),
    hint(
        "ChildRefused",
        "Change what the cluster's message names in the spec, or the rule that refuses it.",
        REASONS,
    ),
    hint("ContainerFails", "Read the log of the container as it was before it ended.", REASONS),
    hint(
        "CredentialsMissing",
        "Make the Secret that spec.backup.to names, with the entries that its store needs.",
        BACKUPS,
    ),
    hint(
        "DataLost",
        "Restore a backup into a new Database, or bring back a volume that has the data.",
        FAILOVER,
    ),
    hint(
        "EncryptionKeyMissing",
        "Bring back the Secret with the key: backups can't be read without it.",
        BACKUPS,
    ),
    hint("EngineNotSupported", "Make a new Database with engine postgres.", REASONS),
    hint(
        "ImageNotPulled",
        "Correct spec.version or spec.image, and let nodes pull it (spec.imagePullSecrets).",
        REASONS,
    ),
    hint("InstanceNotReady", "Look at the instance's log and at its pod's events.", REASONS),
    hint("InstanceProblem", "Look at the instance's log.", REASONS),
    hint("InstancesMissing", "Usually they come back by themselves; see which, and on which node.", FAILOVER),
    hint(
        "InvalidSpec",
        "Correct the field that the message names; nothing is done until then.",
        "docs/api.md",
    ),
    hint("MajorUpgradeNotSupported", "Set spec.version back.", REASONS),
    hint(
        "MoreVolumesFound",
        "Set spec.replicas to as many as there are volumes, or delete those that are not needed.",
        REASONS,
    ),
    hint("NoBackupYet", "Wait for the first one, or ask for it now with the command `backup`.", BACKUPS),
    hint(
        "NoPrimary",
        "Another instance takes over within seconds; if none does, see what is said of each.",
        FAILOVER,
    ),
    hint(
        "NoRepository",
        "Name a place for backups in spec.backup.to, or set spec.backup.enabled to false.",
        BACKUPS,
    ),
    hint(
        "NoStandby",
        "Bring back the instances that are away: until then one more loss loses data, or nothing commits.",
        FAILOVER,
    ),
    hint("NotSupported", "Nothing comes of this field yet: do not rely on it.", "docs/api.md"),
    hint("ParameterRefused", "Change or remove the parameter in spec.parameters.", REASONS),
    hint(
        "PodNotMade",
        "See what the StatefulSet's events say: a quota, an admission rule or a missing class.",
        REASONS,
    ),
    hint("PodsFound", "Wait until the pods of the older Database have ended, or delete them.", REASONS),
    hint(
        "RepositoryCorrupt",
        "Make a full backup now, and find out what has changed the repository.",
        BACKUPS,
    ),
    hint("RepositoryForeign", "Give this Database a path of its own in spec.backup.to.", BACKUPS),
    hint("RepositoryRefused", "Correct spec.backup.to.", BACKUPS),
    hint(
        "RestartDidNotHelp",
        "Change or remove the parameter that PostgreSQL refuses: its log names it.",
        REASONS,
    ),
    hint("RestoreFailed", "Look at the log of the first instance.", RESTORE),
    hint(
        "RestoreSourceMissing",
        "Name a Backup that is complete, or a Database or repository that is there.",
        RESTORE,
    ),
    hint(
        "RestoreTargetRefused",
        "Choose a moment within the window that the message names, in a new Database.",
        RESTORE,
    ),
    hint(
        "SecretsDamaged",
        "Wait a minute: they are written again. If that does not help, see who changes them.",
        REASONS,
    ),
    hint("Stalled", "See what is wrong beside it: the roll-out goes on when that is mended.", REASONS),
    hint("StoreDenied", "Check the rights of the account in the Secret, and the bucket's name.", BACKUPS),
    hint("StoreFull", "Make room in the store, or shorten spec.backup.retention.", BACKUPS),
    hint("StoreUnreachable", "Check the endpoint, and that pods may reach it.", BACKUPS),
    hint("Unschedulable", "Add nodes, or ask for less in spec.resources or spec.scheduling.", REASONS),
    hint("VolumeCannotShrink", "Set spec.storage back: volumes only grow.", REASONS),
    hint("VolumeFull", "Ask for more in spec.storage: volumes grow while the database runs.", REASONS),
    hint(
        "VolumeNotBound",
        "Check spec.storage.class, and that the class can make a volume of that size.",
        REASONS,
    ),
    hint(
        "VolumeNotGrown",
        "Allow growth in the storage class (allowVolumeExpansion), or set spec.storage back.",
        REASONS,
    ),
    hint(
        "VolumesFound",
        "Annotate the Database with keelson.dev/adopt-volumes=yes to go on with them, or delete them.",
        REASONS,
    ),
];

const fn hint(reason: &'static str, what: &'static str, docs: &'static str) -> (&'static str, Hint) {
    (reason, Hint { what, docs })
}

/// What to do about a reason, if that is known.
pub fn of(reason: &str) -> Option<Hint> {
    HINTS.binary_search_by_key(&reason, |(reason, _)| reason).ok().map(|found| HINTS[found].1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn hints_are_found_by_their_reason() {
        assert!(HINTS.is_sorted_by_key(|(reason, _)| reason));
        assert!(of("VolumeFull").unwrap().what.contains("spec.storage"));
        assert_eq!(of("Settled"), None);
    }

    #[test]
    fn hints_point_at_pages_and_headings_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (reason, Hint { docs, .. }) in HINTS {
            let (page, heading) = docs.split_once('#').unwrap_or((docs, ""));
            let text = fs::read_to_string(root.join(page))
                .unwrap_or_else(|_| panic!("{reason}: there is no {page}"));
            let is_it =
                |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading;
            assert!(
                heading.is_empty() || text.lines().any(is_it),
                "{reason}: {page} has no heading {heading}"
            );
        }
    }

    fn anchor(heading: &str) -> String {
        let kept = heading.chars().filter(|one| one.is_alphanumeric() || " -".contains(*one));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    }

    /// Words that the operator and the agents use for what is wrong are here too.
    #[test]
    fn no_reason_for_trouble_is_without_a_hint() {
        use keelson_api::instance::{backup_reasons as backup, reasons};
        let known = [
            reasons::SECRETS_DAMAGED,
            reasons::PARAMETER_REFUSED,
            reasons::VOLUME_FULL,
            backup::CREDENTIALS_MISSING,
            backup::KEY_MISSING,
            backup::DENIED,
            backup::UNREACHABLE,
            backup::FULL,
            backup::FOREIGN,
            backup::CORRUPT,
            backup::REFUSED,
            backup::FAILED,
            backup::TARGET_REFUSED,
        ];
        for reason in known {
            assert!(of(reason).is_some(), "{reason} has no hint");
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator/src/database");
        for file in ["trouble.rs", "plan.rs", "turns.rs"] {
            let text = fs::read_to_string(sources.join(file)).unwrap();
            // `reason: "Word"`, `add("Word"` and `after(…, "Word"`.
            for line in text.lines().filter(|line| {
                ["reason: \"", "add(", "held_up(\"", "after("].iter().any(|it| line.contains(it))
            }) {
                for word in line.split('"').skip(1).step_by(2).filter(|word| is_reason(word)) {
                    assert!(of(word).is_some(), "{file}: {word} has no hint");
                }
            }
        }
    }

    fn is_reason(word: &str) -> bool {
        word.len() > 3 && word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric)
    }
}
