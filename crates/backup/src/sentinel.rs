//! The notes on a base backup, as WAL-G writes and reads them (`BackupSentinelDtoV2`, `ExtendedMetadataDto`,
//! `FilesMetadataDto`), and Keelson's own manifest beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::repository::BACKUPS;

const SENTINEL: &str = "_backup_stop_sentinel.json";
const MANIFEST_FIELD: &str = "keelsonManifest";
const DATE_FORMAT: &str = "%Y-%m-%dT%H:%M:%S.%fZ";

/// Where the note is whose presence makes a backup one. It is written last.
pub(crate) fn sentinel_path(backup: &str) -> String {
    format!("{BACKUPS}/{backup}{SENTINEL}")
}

/// The name of the backup whose note this is.
pub(crate) fn backup_of_sentinel(path: &str) -> Option<&str> {
    let name = path.strip_prefix(BACKUPS)?.strip_prefix('/')?.strip_suffix(SENTINEL)?;
    is_backup_name(name).then_some(name)
}

/// `base_` and a segment, and for an incremental one `_D_` and that of the one below it.
pub(crate) fn is_backup_name(name: &str) -> bool {
    let is_segment = |text: &str| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(rest) = name.strip_prefix("base_") else { return false };
    match rest.split_once("_D_") {
        None => is_segment(rest),
        Some((own, parent)) => is_segment(own) && is_segment(parent),
    }
}

pub(crate) fn part_path(backup: &str, part: &str) -> String {
    format!("{BACKUPS}/{backup}/tar_partitions/{part}")
}

pub(crate) fn note_path(backup: &str, note: &str) -> String {
    format!("{BACKUPS}/{backup}/{note}")
}

/// What makes a backup one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sentinel {
    #[serde(rename = "LSN")]
    pub(crate) start_lsn: Option<u64>,
    #[serde(rename = "DeltaLSN", default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_lsn: Option<u64>,
    #[serde(rename = "DeltaFrom", default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    #[serde(rename = "DeltaFullName", default, skip_serializing_if = "Option::is_none")]
    pub(crate) full: Option<String>,
    #[serde(rename = "DeltaCount", default, skip_serializing_if = "Option::is_none")]
    pub(crate) depth: Option<i32>,
    #[serde(rename = "PgVersion", default)]
    pub(crate) pg_version: i32,
    #[serde(rename = "FinishLSN")]
    pub(crate) finish_lsn: Option<u64>,
    #[serde(rename = "SystemIdentifier", default, skip_serializing_if = "Option::is_none")]
    pub(crate) system_identifier: Option<u64>,
    #[serde(rename = "UncompressedSize", default)]
    pub(crate) size: i64,
    #[serde(rename = "CompressedSize", default)]
    pub(crate) stored: i64,
    #[serde(rename = "DataCatalogSize", default)]
    pub(crate) data_size: i64,
    #[serde(rename = "Spec", default, skip_serializing_if = "Option::is_none")]
    pub(crate) tablespaces: Option<Spec>,
    #[serde(rename = "UserData", default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_data: Option<serde_json::Value>,
    /// Of a storage engine that Keelson does not run; WAL-G wants the field.
    #[serde(rename = "ChkpNum", default)]
    pub(crate) checkpoint: Option<u32>,
    #[serde(rename = "Version", default)]
    pub(crate) version: i32,
    #[serde(rename = "StartTime", default)]
    pub(crate) started: String,
    #[serde(rename = "FinishTime", default)]
    pub(crate) finished: String,
    #[serde(rename = "DateFmt", default)]
    pub(crate) date_format: String,
    #[serde(rename = "Hostname", default)]
    pub(crate) hostname: String,
    #[serde(rename = "DataDir", default)]
    pub(crate) data_dir: String,
    #[serde(rename = "IsPermanent", default)]
    pub(crate) permanent: bool,
}

/// Where tablespaces were: their names, and beside them each with its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) base_prefix: String,
    #[serde(rename = "tablespaces", default)]
    pub(crate) names: Vec<String>,
    #[serde(flatten)]
    pub(crate) places: BTreeMap<String, Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    #[serde(rename = "loc")]
    pub(crate) location: String,
    #[serde(rename = "link")]
    pub(crate) link: String,
}

/// The short note that listings are made from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Metadata {
    start_time: String,
    finish_time: String,
    date_fmt: String,
    hostname: String,
    data_dir: String,
    pg_version: i32,
    start_lsn: u64,
    finish_lsn: u64,
    is_permanent: bool,
    system_identifier: Option<u64>,
    uncompressed_size: i64,
    compressed_size: i64,
}

impl Sentinel {
    /// With all that does not differ between backups.
    pub(crate) fn new(start_lsn: u64, finish_lsn: u64, started: String, finished: String) -> Sentinel {
        Sentinel {
            start_lsn: Some(start_lsn),
            parent_lsn: None,
            parent: None,
            full: None,
            depth: None,
            pg_version: 0,
            finish_lsn: Some(finish_lsn),
            system_identifier: None,
            size: 0,
            stored: 0,
            data_size: 0,
            tablespaces: None,
            user_data: None,
            checkpoint: None,
            version: 2,
            started,
            finished,
            date_format: DATE_FORMAT.into(),
            hostname: String::new(),
            data_dir: String::new(),
            permanent: false,
        }
    }

    /// SHA-256 of the manifest, so that the chain of checks begins with the note that makes a backup one. It is in
    /// the field that WAL-G leaves to its users; other people's words in there are let be.
    pub(crate) fn manifest(&self) -> Option<&str> {
        self.user_data.as_ref()?.get(MANIFEST_FIELD)?.as_str()
    }

    pub(crate) fn set_manifest(&mut self, sha256: &str) {
        self.user_data = Some(serde_json::json!({ MANIFEST_FIELD: sha256 }));
    }

    pub(crate) fn metadata(&self) -> Metadata {
        Metadata {
            start_time: self.started.clone(),
            finish_time: self.finished.clone(),
            date_fmt: self.date_format.clone(),
            hostname: self.hostname.clone(),
            data_dir: self.data_dir.clone(),
            pg_version: self.pg_version,
            start_lsn: self.start_lsn.unwrap_or_default(),
            finish_lsn: self.finish_lsn.unwrap_or_default(),
            is_permanent: self.permanent,
            system_identifier: self.system_identifier,
            uncompressed_size: self.size,
            compressed_size: self.stored,
        }
    }
}

/// Which files are in a backup, and in which part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FilesMetadata {
    #[serde(rename = "Files", default)]
    pub(crate) files: BTreeMap<String, FileNote>,
    #[serde(rename = "TarFileSets", default)]
    pub(crate) parts: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileNote {
    #[serde(rename = "IsIncremented", default)]
    pub(crate) incremented: bool,
    #[serde(rename = "IsSkipped", default)]
    pub(crate) skipped: bool,
    #[serde(rename = "MTime")]
    pub(crate) modified: String,
    #[serde(rename = "UpdatesCount", default)]
    pub(crate) updates: u64,
}

/// Keelson's manifest: what every part must be, to the byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) parts: BTreeMap<String, PartSum>,
    /// SHA-256 of `files_metadata.json`.
    pub(crate) files_metadata: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartSum {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backups_are_told_from_others() {
        let (own, parent) = ("000000010000000000000002", "000000010000000000000001");
        assert!(is_backup_name(&format!("base_{own}")));
        assert!(is_backup_name(&format!("base_{own}_D_{parent}")));
        for bad in ["base_", "base_x", "20260101", &format!("base_{own}_D_"), &format!("base_{own}/..")] {
            assert!(!is_backup_name(bad), "{bad}");
        }
        assert_eq!(backup_of_sentinel(&sentinel_path(&format!("base_{own}"))), Some(&*format!("base_{own}")));
    }

    #[test]
    fn a_sentinel_has_the_fields_that_wal_g_reads() {
        let mut sentinel = Sentinel::new(
            33_554_472,
            33_554_776,
            "2026-11-18T03:30:18Z".into(),
            "2026-11-18T03:30:19Z".into(),
        );
        sentinel.system_identifier = Some(7_654_321_098_765_432_100);
        let mut places = BTreeMap::new();
        places.insert("16384".to_owned(), Place { location: "/ts".into(), link: "pg_tblspc/16384".into() });
        sentinel.tablespaces =
            Some(Spec { base_prefix: "/data".into(), names: vec!["16384".into()], places });
        let json = serde_json::to_value(&sentinel).unwrap();
        assert_eq!(json["LSN"], 33_554_472);
        assert_eq!(json["FinishLSN"], 33_554_776);
        assert_eq!(json["Version"], 2);
        assert_eq!(json["SystemIdentifier"], 7_654_321_098_765_432_100_u64);
        assert_eq!(json["Spec"]["16384"]["loc"], "/ts");
        assert!(json.get("DeltaFrom").is_none() && json["ChkpNum"].is_null());
        let back: Sentinel = serde_json::from_value(json).unwrap();
        assert_eq!(back.tablespaces, sentinel.tablespaces);
    }

    #[test]
    fn a_sentinel_of_wal_gs_own_is_read_with_what_keelson_does_not_know() {
        let text = r#"{"LSN":1,"FinishLSN":2,"PgVersion":150004,"UncompressedSize":9,"CompressedSize":3,
            "UserData":"by hand","ChkpNum":null,"Version":2,"StartTime":"2026-01-01T00:00:00Z","Future":{}}"#;
        // Somebody else's words in `UserData` are of any form.
        let sentinel: Result<Sentinel, _> = serde_json::from_str(text);
        assert!(sentinel.is_ok(), "{sentinel:?}");
    }
}
