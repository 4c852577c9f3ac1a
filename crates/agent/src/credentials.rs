//! The Secrets that are mounted, read anew every so often: rotation is that they change.

use std::hash::{Hash, Hasher};
use std::path::Path;

use keelson_api::instance::{BINDING_REVISION, paths};
use keelson_engine::Secret;

/// What the Secrets hold, as far as the database needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Of the superuser.
    pub superuser: Account,
    /// With which replicas follow.
    pub replication: Account,
    /// Of applications.
    pub app: Account,
    /// Which credentials of applications these are, where that is said.
    pub revision: Option<String>,
    /// Changes whenever the certificate, its key or the authority does.
    pub tls: u64,
}

/// A role and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The role.
    pub name: String,
    /// Its password.
    pub password: Secret,
}

/// Reads them. The error names what is missing, and nothing that is there.
pub fn read() -> Result<Credentials, String> {
    Ok(Credentials {
        superuser: account(Path::new(paths::SUPERUSER))?,
        replication: account(Path::new(paths::REPLICATION))?,
        app: account(Path::new(paths::APP))?,
        revision: std::fs::read_to_string(Path::new(paths::APP).join(BINDING_REVISION)).ok(),
        tls: mark(Path::new(paths::TLS)),
    })
}

/// Stands for what is in the files, within this process.
fn mark(folder: &Path) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        std::fs::read(folder.join(name)).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

fn account(folder: &Path) -> Result<Account, String> {
    let entry = |name: &str| {
        let secret = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match std::fs::read_to_string(folder.join(name)) {
            Ok(text) if !text.is_empty() => Ok(text),
            Ok(_) => Err(format!("the Secret for {secret} has an empty {name}")),
            Err(_) => Err(format!("the Secret for {secret} has no {name}")),
        }
    };
    Ok(Account { name: entry("username")?, password: Secret::new(entry("password")?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_what_is_there_is_not() {
        let folder =
            std::env::temp_dir().join(format!("keelson-credentials-{}", std::process::id())).join("app");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("username"), "app").unwrap();
        assert_eq!(account(&folder).unwrap_err(), "the Secret for app has no password");
        std::fs::write(folder.join("password"), "").unwrap();
        assert_eq!(account(&folder).unwrap_err(), "the Secret for app has an empty password");
        std::fs::write(folder.join("password"), "hunter2").unwrap();
        let account = account(&folder).unwrap();
        assert_eq!(account.name, "app");
        assert!(!format!("{account:?}").contains("hunter2"));
        let before = mark(&folder);
        std::fs::write(folder.join("tls.crt"), "another").unwrap();
        assert!(mark(&folder) != before && mark(&folder) == mark(&folder));
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
