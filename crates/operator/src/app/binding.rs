//! How credentials come to a program, as servicebinding.io has it: a folder of files below `SERVICE_BINDING_ROOT`, and
//! the same as environment for those who read no files. Only references are written: the operator reads no Secret.

use k8s_openapi::api::core::v1::{
    EnvVar, EnvVarSource, SecretKeySelector, SecretVolumeSource, Volume, VolumeMount,
};

use super::pooler;

/// Where bindings are, each a folder.
pub const ROOT: &str = "/bindings";
/// The name of the volume.
const VOLUME: &str = "keelson-binding";

/// The environment of a container whose database is reached as the binding says.
pub fn direct(secret: &str) -> Vec<EnvVar> {
    vec![
        plain("SERVICE_BINDING_ROOT", ROOT),
        of_secret("DATABASE_URL", secret, "uri"),
        of_secret("PGHOST", secret, "host"),
        of_secret("PGPORT", secret, "port"),
        of_secret("PGDATABASE", secret, "database"),
        of_secret("PGUSER", secret, "username"),
        of_secret("PGPASSWORD", secret, "password"),
        // The server has a certificate at all times.
        plain("PGSSLMODE", "require"),
    ]
}

/// The environment of a container whose database is reached through the pooler beside it.
pub fn pooled(secret: &str) -> Vec<EnvVar> {
    let url = format!("postgresql://$(PGUSER):$(PGPASSWORD)@{}:{}/$(PGDATABASE)", pooler::HOST, pooler::PORT);
    vec![
        plain("SERVICE_BINDING_ROOT", ROOT),
        plain("PGHOST", pooler::HOST),
        plain("PGPORT", &pooler::PORT.to_string()),
        of_secret("PGDATABASE", secret, "database"),
        of_secret("PGUSER", secret, "username"),
        of_secret("PGPASSWORD", secret, "password"),
        plain("PGSSLMODE", "disable"),
        // After what it is made of.
        plain("DATABASE_URL", &format!("{url}?sslmode=disable")),
    ]
}

/// What a person has set wins.
pub fn beside(ours: Vec<EnvVar>, theirs: &[EnvVar]) -> Vec<EnvVar> {
    let taken = |name: &str| theirs.iter().any(|one| one.name == name);
    ours.into_iter().filter(|one| !taken(&one.name)).chain(theirs.iter().cloned()).collect()
}

/// The volume with the files.
pub fn volume(secret: &str) -> Volume {
    Volume {
        name: VOLUME.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            // Whoever runs in the pod may read them, under whatever account.
            default_mode: Some(0o444),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Where the files are.
pub fn mount(name: &str) -> VolumeMount {
    VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: format!("{ROOT}/{name}"),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

pub(super) fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), ..EnvVar::default() }
}

fn of_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_has_set_wins() {
        let theirs = [plain("PGHOST", "elsewhere"), plain("COLOUR", "blue")];
        let all = beside(direct("orders-app"), &theirs);
        let hosts: Vec<_> = all.iter().filter(|one| one.name == "PGHOST").collect();
        assert_eq!(hosts, [&theirs[0]]);
        assert!(all.iter().any(|one| one.name == "PGPASSWORD" && one.value.is_none()));
    }

    #[test]
    fn a_url_through_the_pooler_is_made_of_what_comes_before_it() {
        let all = pooled("orders-app");
        let last = all.last().unwrap();
        let value = last.value.as_deref().unwrap();
        assert_eq!(
            value,
            "postgresql://$(PGUSER):$(PGPASSWORD)@127.0.0.1:6432/$(PGDATABASE)?sslmode=disable"
        );
    }
}
