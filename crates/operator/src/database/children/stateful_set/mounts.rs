//! What a person's repositories need in the pods: Secrets to sign in with, keys, volumes. The operator may read no
//! Secret, so it is the kubelet that brings them to the agents.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume};
use keelson_api::instance::{Store, paths};

use super::super::Wanted;

/// One thing that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Mount {
    /// The volume's name in the pod.
    pub name: &'static str,
    /// Where it is found.
    pub path: &'static str,
    /// What it is.
    pub source: Source,
    /// Whether nothing is written there.
    pub read_only: bool,
}

/// Where something that is mounted comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Source {
    Secret(String),
    Claim(String),
}

impl Source {
    pub(super) fn name(&self) -> &str {
        match self {
            Source::Secret(name) | Source::Claim(name) => name,
        }
    }
}

impl Mount {
    pub(in super::super) fn volume(&self) -> Volume {
        let name = self.name.to_owned();
        match &self.source {
            Source::Secret(secret) => Volume {
                name,
                secret: Some(SecretVolumeSource {
                    secret_name: Some(secret.clone()),
                    default_mode: Some(0o440),
                    // One that is missing is said by the agent, and keeps no database from starting.
                    optional: Some(true),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            },
            Source::Claim(claim) => Volume {
                name,
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim.clone(),
                    read_only: self.read_only.then_some(true),
                }),
                ..Volume::default()
            },
        }
    }
}

/// The names and places of what one repository needs.
struct Places {
    credentials: (&'static str, &'static str),
    key: (&'static str, &'static str),
    folder: (&'static str, &'static str),
    read_only: bool,
}

const BACKUP: Places = Places {
    credentials: ("backup-credentials", paths::BACKUP_CREDENTIALS),
    key: ("backup-key", paths::BACKUP_KEY),
    folder: ("backup-folder", paths::BACKUP_FOLDER),
    read_only: false,
};

const RESTORE: Places = Places {
    credentials: ("restore-credentials", paths::RESTORE_CREDENTIALS),
    key: ("restore-key", paths::RESTORE_KEY),
    folder: ("restore-folder", paths::RESTORE_FOLDER),
    read_only: true,
};

/// All that is mounted for the repositories of a database.
pub(super) fn of(wanted: &Wanted) -> Vec<Mount> {
    let to = wanted.instance.backup.as_ref().map(|rule| (&rule.to, BACKUP));
    let from = wanted.instance.restore.as_ref().map(|rule| (&rule.from, RESTORE));
    to.into_iter().chain(from).flat_map(|(store, places)| of_store(store, &places)).collect()
}

/// What is mounted for a drill, which only reads.
pub(in super::super) fn of_drill(from: &Store) -> Vec<Mount> {
    of_store(from, &RESTORE)
}

fn of_store(store: &Store, places: &Places) -> Vec<Mount> {
    let repository = &store.repository;
    let secret = |(name, path), secret: &str| Mount {
        name,
        path,
        source: Source::Secret(secret.to_owned()),
        read_only: true,
    };
    let folder = repository.folder.as_ref().map(|folder| Mount {
        name: places.folder.0,
        path: places.folder.1,
        source: Source::Claim(folder.claim.clone()),
        read_only: places.read_only,
    });
    let credentials = repository.credentials_secret().map(|name| secret(places.credentials, name));
    let key = repository.encryption_secret.as_deref().map(|name| secret(places.key, name));
    [credentials, key, folder].into_iter().flatten().collect()
}
