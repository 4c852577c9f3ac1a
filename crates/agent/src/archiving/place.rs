//! From what the settings say of a repository to one that can be used: Secrets are read from where they are
//! mounted, anew each time, so that other keys are taken without a restart.

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use keelson_api::instance::{Store, backup_reasons as reasons};
use keelson_backup::{
    AzureCredentials, Class, Error, Format, GcsCredentials, Key, Location, Repository, S3Credentials, Secret,
};

/// What is wrong with backups: in a word, and in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub reason: &'static str,
    pub problem: String,
    /// Whether time alone may help.
    pub passes: bool,
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Trouble {
        of(error.class(), error.to_string())
    }
}

/// Of a class, with what was said.
pub(crate) fn of(class: Class, problem: String) -> Trouble {
    let reason = match class {
        Class::Denied => reasons::DENIED,
        Class::Unreachable => reasons::UNREACHABLE,
        Class::Full => reasons::FULL,
        Class::Foreign => reasons::FOREIGN,
        Class::Corrupt | Class::NotFound => reasons::CORRUPT,
        Class::Refused => reasons::REFUSED,
        Class::Local => reasons::FAILED,
    };
    Trouble { reason, problem: short(problem), passes: class.passes() }
}

/// A store may answer with a page. What is told goes into a status.
fn short(mut problem: String) -> String {
    const MOST: usize = 800;
    if let Some((end, _)) = problem.char_indices().nth(MOST) {
        problem.truncate(end);
        problem.push('…');
    }
    problem
}

/// Gets ready to use a repository. Nothing is asked of the store yet.
pub(crate) fn open(store: &Store) -> Result<Repository, Trouble> {
    let location = location(store, &|name| std::env::var(name).ok())?;
    let format = Format { key: key(store)?, ..Format::default() };
    Repository::open(&location, format).map_err(|error| Trouble::from(&error))
}

/// Stands for what is in the mounted files, within this process.
pub(crate) fn mark(store: &Store) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for folder in [&store.credentials, &store.key].into_iter().flatten() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        for path in paths {
            path.hash(&mut hasher);
            std::fs::read(&path).unwrap_or_default().hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn location(store: &Store, variable: &dyn Fn(&str) -> Option<String>) -> Result<Location, Trouble> {
    let repository = &store.repository;
    let prefix = |path: &Option<String>| path.clone().unwrap_or_default();
    let file = |name: &str| variable(name).map(PathBuf::from);
    let secret = repository.credentials_secret().unwrap_or_default();
    let entry = |name: &str| entry(store.credentials.as_deref(), secret, name);
    if let Some(s3) = &repository.s3 {
        let identity = variable("AWS_ROLE_ARN").zip(file("AWS_WEB_IDENTITY_TOKEN_FILE"));
        let credentials = match (&store.credentials, identity) {
            (Some(folder), _) => S3Credentials::Keys {
                id: entry("accessKeyId")?,
                secret: Secret::new(entry("secretAccessKey")?),
                token: read(Path::new(folder), "sessionToken").map(Secret::new),
            },
            (None, Some((role, token_file))) => S3Credentials::WebIdentity { role, token_file },
            (None, None) => S3Credentials::Instance,
        };
        let authorities = store.credentials.as_deref().and_then(|folder| read(Path::new(folder), "ca.crt"));
        return Ok(Location::S3 {
            bucket: s3.bucket.clone(),
            prefix: prefix(&s3.path),
            region: s3.region.clone(),
            endpoint: s3.endpoint.clone(),
            credentials,
            authorities: authorities.map(String::into_bytes),
        });
    }
    if let Some(gcs) = &repository.gcs {
        let credentials = match &store.credentials {
            Some(_) => GcsCredentials::Key(Secret::new(entry("serviceAccountKey")?)),
            None => GcsCredentials::Instance,
        };
        return Ok(Location::Gcs { bucket: gcs.bucket.clone(), prefix: prefix(&gcs.path), credentials });
    }
    if let Some(azure) = &repository.azure {
        let identity = variable("AZURE_CLIENT_ID").zip(variable("AZURE_TENANT_ID"));
        let credentials = match (&store.credentials, identity.zip(file("AZURE_FEDERATED_TOKEN_FILE"))) {
            (Some(_), _) => AzureCredentials::Key(Secret::new(entry("accountKey")?)),
            (None, Some(((client, tenant), token_file))) => {
                AzureCredentials::WebIdentity { client, tenant, token_file }
            }
            (None, None) => AzureCredentials::Instance,
        };
        return Ok(Location::Azure {
            account: azure.account.clone(),
            container: azure.container.clone(),
            prefix: prefix(&azure.path),
            endpoint: None,
            credentials,
        });
    }
    let folder = repository.folder.as_ref().zip(store.folder.as_deref());
    let Some((folder, mounted)) = folder else {
        let problem =
            "the repository names no kind of store that this agent knows: use s3, gcs, azure or folder";
        return Err(Trouble { reason: reasons::REFUSED, problem: problem.to_owned(), passes: false });
    };
    let path = prefix(&folder.path);
    let path = path.trim_matches('/');
    if path.split('/').any(|part| part == "..") {
        let problem = format!("the path `{path}` leads out of the volume: name a folder in it");
        return Err(Trouble { reason: reasons::REFUSED, problem, passes: false });
    }
    Ok(Location::Folder { path: Path::new(mounted).join(path) })
}

fn key(store: &Store) -> Result<Option<Key>, Trouble> {
    let Some(folder) = &store.key else { return Ok(None) };
    let secret = store.repository.encryption_secret.clone().unwrap_or_default();
    let missing = |problem: String| Trouble { reason: reasons::KEY_MISSING, problem, passes: false };
    let text = entry(Some(folder), &secret, "key").map_err(|trouble| missing(trouble.problem))?;
    let key = Key::from_hex(&Secret::new(text));
    key.map(Some).map_err(|error| missing(format!("the Secret {secret}: {error}")))
}

fn entry(folder: Option<&str>, secret: &str, name: &str) -> Result<String, Trouble> {
    let found = folder.and_then(|folder| read(Path::new(folder), name));
    found.ok_or_else(|| Trouble {
        reason: reasons::CREDENTIALS_MISSING,
        problem: format!(
            "the Secret {secret} is missing or has no {name}: create it in the namespace of the Database; it is \
             taken by itself within a minute or two"
        ),
        passes: false,
    })
}

fn read(folder: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim_end_matches('\n').to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use keelson_api::instance::Use;
    use serde_json::{Value, json};

    use super::*;

    fn store(repository: Value) -> Store {
        Store::of(&serde_json::from_value(repository).unwrap(), "shop", "orders", Use::BackUp)
    }

    /// A store whose Secrets are in a folder that goes with the test.
    fn mounted(name: &str, repository: Value) -> (Store, PathBuf) {
        let folder = std::env::temp_dir().join(format!("keelson-place-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut store = store(repository);
        let path = folder.display().to_string();
        store.credentials = store.credentials.map(|_| path.clone());
        store.key = store.key.map(|_| path);
        (store, folder)
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn what_is_missing_in_a_secret_is_named_and_what_is_there_is_not() {
        let s3 = json!({"s3": {"bucket": "backups", "credentialsSecret": "keys"}});
        let (store, folder) = mounted("missing", s3);
        let trouble = location(&store, &none).unwrap_err();
        assert_eq!(trouble.reason, reasons::CREDENTIALS_MISSING);
        assert!(trouble.problem.contains("Secret keys") && trouble.problem.contains("accessKeyId"));
        std::fs::write(folder.join("accessKeyId"), "AKIA\n").unwrap();
        std::fs::write(folder.join("secretAccessKey"), "hunter2").unwrap();
        let before = mark(&store);
        let found = location(&store, &none).unwrap();
        assert!(
            matches!(&found, Location::S3 { prefix, credentials: S3Credentials::Keys { id, token: None, .. }, .. }
            if prefix == "shop/orders" && id == "AKIA")
        );
        assert!(!format!("{found:?}").contains("hunter2"));
        std::fs::write(folder.join("secretAccessKey"), "another").unwrap();
        assert_ne!(mark(&store), before, "other keys are noticed");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_a_secret_the_pod_signs_in_as_itself() {
        let s3 = store(json!({"s3": {"bucket": "backups"}}));
        let found = location(&s3, &none).unwrap();
        assert!(matches!(found, Location::S3 { credentials: S3Credentials::Instance, .. }));
        let found = location(&s3, &|name| Some(format!("value of {name}"))).unwrap();
        assert!(matches!(found, Location::S3 { credentials: S3Credentials::WebIdentity { .. }, .. }));
        let azure = store(json!({"azure": {"account": "a", "container": "c"}}));
        let found = location(&azure, &|name| Some(format!("value of {name}"))).unwrap();
        assert!(matches!(found, Location::Azure { credentials: AzureCredentials::WebIdentity { .. }, .. }));
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_being_shown() {
        let folder = json!({"folder": {"claim": "disk"}, "encryptionSecret": "seal"});
        let (store, folder) = mounted("key", folder);
        assert_eq!(key(&store).unwrap_err().reason, reasons::KEY_MISSING);
        std::fs::write(folder.join("key"), "hunter2").unwrap();
        let trouble = key(&store).unwrap_err();
        assert!(trouble.problem.contains("openssl rand") && !trouble.problem.contains("hunter2"));
        std::fs::write(folder.join("key"), "0f".repeat(32)).unwrap();
        assert!(key(&store).unwrap().is_some());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_store_that_answers_with_a_page_is_cut_short() {
        let told = of(Class::Unreachable, "ö".repeat(5000));
        assert_eq!(told.problem.chars().count(), 801);
        assert_eq!(of(Class::Denied, "no".into()).problem, "no");
    }

    #[test]
    fn no_path_leads_out_of_the_volume() {
        let inside = store(json!({"folder": {"claim": "disk"}}));
        let found = location(&inside, &none).unwrap();
        assert!(
            matches!(found, Location::Folder { path } if path.ends_with("shop/orders") && path.is_absolute())
        );
        let outside = store(json!({"folder": {"claim": "disk", "path": "a/../../etc"}}));
        assert_eq!(location(&outside, &none).unwrap_err().reason, reasons::REFUSED);
    }
}
