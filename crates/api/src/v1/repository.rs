//! Where backups are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::schema::validations;

/// Where backups and the log are kept: exactly one of the four. Each database needs a path of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::REPOSITORY)))]
pub struct Repository {
    /// S3, or any server that speaks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,
    /// Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<Gcs>,
    /// Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<Azure>,
    /// A volume that is mounted into every instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<Folder>,
    /// The Secret with the key (entry `key`) that backups are encrypted with before they leave the
    /// instance. Without it they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub encryption_secret: Option<String>,
}

impl Repository {
    /// The Secret to sign in with, if one is named.
    pub fn credentials_secret(&self) -> Option<&str> {
        let named = [
            self.s3.as_ref().map(|s3| &s3.credentials_secret),
            self.gcs.as_ref().map(|gcs| &gcs.credentials_secret),
            self.azure.as_ref().map(|azure| &azure.credentials_secret),
        ];
        named.into_iter().flatten().find_map(Option::as_deref)
    }

    /// The same, with this path where none is named.
    pub fn with_path(&self, path: &str) -> Repository {
        let mut filled = self.clone();
        let paths = [
            filled.s3.as_mut().map(|s3| &mut s3.path),
            filled.gcs.as_mut().map(|gcs| &mut gcs.path),
            filled.azure.as_mut().map(|azure| &mut azure.path),
            filled.folder.as_mut().map(|folder| &mut folder.path),
        ];
        for named in paths.into_iter().flatten() {
            if named.as_deref().is_none_or(|named| named.trim_matches('/').is_empty()) {
                *named = Some(path.to_owned());
            }
        }
        filled
    }
}

/// A bucket of S3, or of any server that speaks it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3 {
    /// The bucket's name.
    #[schemars(length(min = 3, max = 63))]
    pub bucket: String,
    /// The folder in it. Without it, namespace and name of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
    /// The server's address, such as `https://s3.example.com`. Without it, Amazon's for the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = "^https?://[^ ]+$"))]
    pub endpoint: Option<String>,
    /// The region, such as `eu-central-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// The Secret with `accessKeyId` and `secretAccessKey`. Without it, the pod's own identity (web
    /// identity or instance role).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret: Option<String>,
}

/// A bucket of Google Cloud Storage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gcs {
    /// The bucket's name.
    #[schemars(length(min = 3, max = 222))]
    pub bucket: String,
    /// The folder in it. Without it, namespace and name of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
    /// The Secret with `serviceAccountKey`. Without it, the pod's own identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret: Option<String>,
}

/// A container of Azure Blob Storage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Azure {
    /// The storage account.
    #[schemars(length(min = 3, max = 24))]
    pub account: String,
    /// The container's name.
    #[schemars(length(min = 3, max = 63))]
    pub container: String,
    /// The folder in it. Without it, namespace and name of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
    /// The Secret with `accountKey`. Without it, the pod's own identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret: Option<String>,
}

/// A folder on a volume that all instances can mount at once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Folder {
    /// The PersistentVolumeClaim.
    #[schemars(length(min = 1, max = 253))]
    pub claim: String,
    /// The folder on it. Without it, namespace and name of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
}
