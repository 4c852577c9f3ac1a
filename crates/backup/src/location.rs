//! Where a repository is, and how one signs in there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};

use crate::error::{Error, Result, of_file};
use crate::secret::Secret;

/// Where a repository is.
#[derive(Clone, Debug)]
pub enum Location {
    /// S3, or any server that speaks it.
    S3 {
        /// The bucket, which must exist.
        bucket: String,
        /// The path in it that is this database's own.
        prefix: String,
        /// `us-east-1` where the server has none.
        region: Option<String>,
        /// The server's address, if it is not Amazon's. Plain `http` is taken as it is written.
        endpoint: Option<String>,
        /// How to sign in.
        credentials: S3Credentials,
        /// Authorities to trust besides those of the system, as PEM.
        authorities: Option<Vec<u8>>,
    },
    /// Google Cloud Storage.
    Gcs {
        /// The bucket, which must exist.
        bucket: String,
        /// The path in it that is this database's own.
        prefix: String,
        /// How to sign in.
        credentials: GcsCredentials,
    },
    /// Azure Blob Storage.
    Azure {
        /// The storage account.
        account: String,
        /// The container, which must exist.
        container: String,
        /// The path in it that is this database's own.
        prefix: String,
        /// Another server's address: an emulator, or a cloud of one's own.
        endpoint: Option<String>,
        /// How to sign in.
        credentials: AzureCredentials,
    },
    /// A folder, mounted from somewhere that outlives the database.
    Folder {
        /// It is made if it is not there.
        path: PathBuf,
    },
}

/// How to sign in to S3.
#[derive(Clone, Debug)]
pub enum S3Credentials {
    /// With keys.
    Keys {
        /// The access key's identifier.
        id: String,
        /// The secret key.
        secret: Secret,
        /// A session's token, where the keys are for a while.
        token: Option<Secret>,
    },
    /// With the token of a service account, exchanged for a role.
    WebIdentity {
        /// The role.
        role: String,
        /// The file that the kubelet keeps fresh.
        token_file: PathBuf,
    },
    /// With what the machine or the pod is given by the cloud.
    Instance,
}

/// How to sign in to Google Cloud Storage.
#[derive(Clone, Debug)]
pub enum GcsCredentials {
    /// With the key of a service account, as JSON.
    Key(Secret),
    /// With what the machine or the pod is given by the cloud.
    Instance,
}

/// How to sign in to Azure.
#[derive(Clone, Debug)]
pub enum AzureCredentials {
    /// With the account's key.
    Key(Secret),
    /// With the token of a service account.
    WebIdentity {
        /// The application.
        client: String,
        /// The tenant.
        tenant: String,
        /// The file that the kubelet keeps fresh.
        token_file: PathBuf,
    },
    /// With what the machine or the pod is given by the cloud.
    Instance,
}

impl Location {
    /// As a person would write it, without any secret.
    pub fn describe(&self) -> String {
        match self {
            Location::S3 { bucket, prefix, .. } => format!("s3://{bucket}/{prefix}"),
            Location::Gcs { bucket, prefix, .. } => format!("gs://{bucket}/{prefix}"),
            Location::Azure { container, prefix, .. } => format!("azure://{container}/{prefix}"),
            Location::Folder { path } => format!("file://{}", path.display()),
        }
    }

    /// The store, and the path in it.
    pub(crate) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let unfit = |error: object_store::Error| Error::Settings {
            field: "backup.to",
            reason: format!("`{}` can't be used: {error}", self.describe()),
        };
        Ok(match self {
            Location::S3 { prefix, .. } => (Arc::new(self.s3()?.build().map_err(unfit)?), path(prefix)?),
            Location::Gcs { bucket, prefix, credentials } => {
                let builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(retry());
                let builder = match credentials {
                    GcsCredentials::Key(key) => builder.with_service_account_key(key.reveal()),
                    GcsCredentials::Instance => builder,
                };
                (Arc::new(builder.with_client_options(client()).build().map_err(unfit)?), path(prefix)?)
            }
            Location::Azure { prefix, .. } => {
                (Arc::new(self.azure()?.build().map_err(unfit)?), path(prefix)?)
            }
            Location::Folder { path } => {
                std::fs::create_dir_all(path).map_err(|error| of_file("creating", path, error))?;
                let folder = LocalFileSystem::new_with_prefix(path).map_err(unfit)?;
                // What was acknowledged must outlive a power cut.
                (Arc::new(folder.with_fsync(true).with_automatic_cleanup(true)), Path::default())
            }
        })
    }

    fn s3(&self) -> Result<AmazonS3Builder> {
        let Location::S3 { bucket, region, endpoint, credentials, authorities, .. } = self else {
            return Err(Error::Settings { field: "backup.to", reason: "it is not S3".into() });
        };
        let mut options = client();
        if let Some(pem) = authorities {
            let parsed = Certificate::from_pem_bundle(pem).map_err(|error| Error::Settings {
                field: "backup.to.authorities",
                reason: format!("they are no certificates in PEM: {error}"),
            })?;
            options = parsed.into_iter().fold(options, ClientOptions::with_root_certificate);
        }
        let region = region.as_deref().unwrap_or("us-east-1");
        let mut builder =
            AmazonS3Builder::new().with_bucket_name(bucket).with_region(region).with_retry(retry());
        if let Some(endpoint) = endpoint {
            options = options.with_allow_http(endpoint.starts_with("http://"));
            builder = builder.with_endpoint(endpoint);
        }
        builder = builder.with_client_options(options);
        Ok(match credentials {
            S3Credentials::Keys { id, secret, token } => {
                let keyed = builder.with_access_key_id(id).with_secret_access_key(secret.reveal());
                match token {
                    Some(token) => keyed.with_token(token.reveal()),
                    None => keyed,
                }
            }
            S3Credentials::WebIdentity { role, token_file } => builder
                .with_config(AmazonS3ConfigKey::RoleArn, role)
                .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file.to_string_lossy()),
            S3Credentials::Instance => builder,
        })
    }

    fn azure(&self) -> Result<MicrosoftAzureBuilder> {
        let Location::Azure { account, container, endpoint, credentials, .. } = self else {
            return Err(Error::Settings { field: "backup.to", reason: "it is not Azure".into() });
        };
        let mut options = client();
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(container)
            .with_retry(retry());
        if let Some(endpoint) = endpoint {
            options = options.with_allow_http(endpoint.starts_with("http://"));
            builder = builder.with_endpoint(endpoint.clone());
        }
        builder = builder.with_client_options(options);
        Ok(match credentials {
            AzureCredentials::Key(key) => builder.with_access_key(key.reveal()),
            AzureCredentials::WebIdentity { client, tenant, token_file } => builder
                .with_config(AzureConfigKey::ClientId, client)
                .with_config(AzureConfigKey::AuthorityId, tenant)
                .with_config(AzureConfigKey::FederatedTokenFile, token_file.to_string_lossy()),
            AzureCredentials::Instance => builder,
        })
    }
}

fn path(prefix: &str) -> Result<Path> {
    let path = Path::parse(prefix.trim_matches('/')).map_err(|error| Error::Settings {
        field: "backup.to.prefix",
        reason: format!("`{prefix}` is no path: {error}"),
    })?;
    if path.as_ref().is_empty() {
        return Err(Error::Settings {
            field: "backup.to.prefix",
            reason: "it is empty; a database needs a path of its own, such as `production/orders`".into(),
        });
    }
    Ok(path)
}

/// Short: who archives or backs up has its own way to wait, and says meanwhile what is wrong.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 4,
        retry_timeout: Duration::from_secs(30),
    }
}

fn client() -> ClientOptions {
    // No limit for a request as a whole: one that fetches a part of a gigabyte takes as long as the disk that it is
    // written to. A connection on which nothing comes is given up.
    ClientOptions::new()
        .with_connect_timeout(Duration::from_secs(5))
        .with_timeout_disabled()
        .with_read_timeout(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(prefix: &str) -> Location {
        let secret = Secret::new("hush-hush");
        let credentials = S3Credentials::Keys { id: "id".into(), secret, token: None };
        let (bucket, prefix) = ("backups".into(), prefix.into());
        Location::S3 { bucket, prefix, region: None, endpoint: None, credentials, authorities: None }
    }

    #[test]
    fn a_database_needs_a_path_of_its_own() {
        for bad in ["", "/", "//"] {
            let error = s3(bad).connect().unwrap_err();
            assert!(matches!(error, Error::Settings { field: "backup.to.prefix", .. }), "{error}");
        }
        assert_eq!(s3("/production/orders/").connect().unwrap().1.as_ref(), "production/orders");
    }

    #[test]
    fn nothing_secret_is_shown() {
        let location = s3("production/orders");
        assert!(!format!("{location:?} {}", location.describe()).contains("hush"));
    }

    #[test]
    fn each_store_and_way_to_sign_in_can_be_connected() {
        let token_file = PathBuf::from("/var/run/secrets/token");
        let mut web = s3("p");
        if let Location::S3 { credentials, .. } = &mut web {
            *credentials = S3Credentials::WebIdentity {
                role: "arn:aws:iam::1:role/x".into(),
                token_file: token_file.clone(),
            };
        }
        let mut instance = s3("p");
        if let Location::S3 { credentials, .. } = &mut instance {
            *credentials = S3Credentials::Instance;
        }
        let gcs =
            Location::Gcs { bucket: "b".into(), prefix: "p".into(), credentials: GcsCredentials::Instance };
        let azure = |credentials| Location::Azure {
            account: "a".into(),
            container: "c".into(),
            prefix: "p".into(),
            endpoint: None,
            credentials,
        };
        let key = azure(AzureCredentials::Key(Secret::new("aGVsbG8=")));
        let (client, tenant) = ("client".to_owned(), "tenant".to_owned());
        let federated = azure(AzureCredentials::WebIdentity { client, tenant, token_file });
        for location in [web, instance, gcs, key, federated, azure(AzureCredentials::Instance)] {
            location.connect().unwrap_or_else(|error| panic!("{location:?}: {error}"));
        }
    }
}
