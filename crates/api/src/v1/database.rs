//! A database, as a person asks for it.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{BackupPolicy, DatabaseStatus, Durability, Failover, Restore, Scheduling, Storage, rules};
use crate::schema::{NAME, validations};
use crate::value::{Engine, Size, Span, Version, Written, words};

/// What a database should be. Every field can be left out; `{}` is a small PostgreSQL.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1",
    kind = "Database",
    plural = "databases",
    namespaced,
    shortname = "db",
    category = "keelson",
    status = "DatabaseStatus",
    derive = "PartialEq",
    doc = "A database that is installed, kept available, backed up and upgraded by Keelson.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name": "Engine", "type": "string", "jsonPath": ".spec.engine"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".status.version"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Primary", "type": "string", "jsonPath": ".status.primary"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::SPEC)))]
pub struct DatabaseSpec {
    /// The database program: `postgres` (the default) or `mysql`. It can't be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "postgres"))]
    pub engine: Option<Written<Engine>>,

    /// The version, such as `17`, `17.4` or `9.7`; without it, the one that Keelson prefers when the
    /// database is created (PostgreSQL 17, MySQL 9.7). `17` follows the newest 17. A higher major version
    /// is an upgrade; once it runs, there is no way down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Written<Version>>,

    /// A tier: `small` is 1 instance with 500m cpu and 512Mi memory, `medium` 2 with 1 and 1Gi, `large`
    /// 3 with 2 and 2Gi. `replicas` and `resources` win over it. Changing it scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Written<Tier>>,

    /// How many instances there are, the primary included. Without it, what `size` says, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,

    /// What each instance gets of processor and memory. Without it, what `size` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// The volume of each instance: a size such as `50Gi`, or an object with `size`, `class` and
    /// `autogrow`. Without it, 10Gi. It can grow and can't shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// Whether, when and where to back up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupPolicy>,

    /// Where the first data comes from, instead of an empty database. Only when it is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,

    /// What a commit waits for: `quorum` (the default from 2 instances up) until a standby has it on
    /// disk too, so that no failover loses it; `async` for this instance alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Written<Durability>>,

    /// How soon, and on what terms, another instance takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,

    /// Settings of the database program by name, such as `work_mem: 64MB`. What is not named is derived
    /// from the instance's memory and cpu. Those that Keelson itself must set are refused. `"on"` and
    /// `"off"` need their quotes, or YAML takes them for truth values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<String, Written<String>>,

    /// How a new major version is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,

    /// Whether Keelson looks for better settings: `none` (the default), `advise` (it says so in the status)
    /// or `act` (it applies them, and takes them back if they do not help).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autopilot: Option<Written<Autopilot>>,

    /// Where instances may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,

    /// An image instead of the official one of that version. It must hold the same version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][-A-Za-z0-9._/:@]*$"))]
    pub image: Option<String>,

    /// Names of the Secrets with which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253), regex(pattern = NAME)))]
    pub image_pull_secrets: Vec<String>,

    /// What becomes of the volumes when this object is deleted: `Retain` (the default) or `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<Written<DeletionPolicy>>,
}

/// Numbers may stand without quotes, as people write them.
fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "x-kubernetes-int-or-string": true, "maxLength": 512 },
        "x-kubernetes-validations": validations(rules::PARAMETERS)
    })
}

words! {
    /// A ready-made size.
    Tier, "size" {
        /// 1 instance, 500m cpu, 512Mi memory.
        Small = "small",
        /// 2 instances, 1 cpu, 1Gi memory each.
        Medium = "medium",
        /// 3 instances, 2 cpu, 2Gi memory each.
        Large = "large",
    }
}

impl Tier {
    /// How many instances it has.
    pub const fn replicas(self) -> u32 {
        match self {
            Tier::Small => 1,
            Tier::Medium => 2,
            Tier::Large => 3,
        }
    }

    /// How much of a processor each instance gets.
    pub const fn cpu(self) -> Size {
        match self {
            Tier::Small => Size::millis(500),
            Tier::Medium => Size::millis(1000),
            Tier::Large => Size::millis(2000),
        }
    }

    /// How much memory each instance gets.
    pub const fn memory(self) -> Size {
        match self {
            Tier::Small => Size::mebibytes(512),
            Tier::Medium => Size::gibibytes(1),
            Tier::Large => Size::gibibytes(2),
        }
    }
}

/// Processor and memory. A pod asks for exactly this much and may use no more memory, so that an
/// instance is not evicted for what its neighbours do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Processors, such as `500m` or `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Written<Size>>,
    /// Memory, such as `512Mi` or `4Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Written<Size>>,
}

/// How a new major version is reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// `SideBySide` (the default): the new version is built beside the old one, caught up and switched
    /// to. `InPlace`: the files are converted, with the database closed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Written<UpgradeMethod>>,
    /// Whether the switch to the new version comes by itself when it has caught up (`Automatic`, the
    /// default) or when a person says so (`Manual`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_over: Option<Written<SwitchOver>>,
    /// How long the old version is kept for a way back. Without it, one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_old_for: Option<Written<Span>>,
}

words! {
    /// How files of a new major version come to be.
    UpgradeMethod, "upgrade method" {
        /// Beside the old one, by logical replication.
        SideBySide = "SideBySide",
        /// Converted where they are.
        InPlace = "InPlace",
    }
}

words! {
    /// Who says when the new version takes over.
    SwitchOver, "way to switch over" {
        /// As soon as it has caught up.
        Automatic = "Automatic",
        /// When a person says so.
        Manual = "Manual",
    }
}

words! {
    /// What Keelson may do to settings by itself.
    Autopilot, "autopilot mode" {
        /// Nothing.
        None = "none",
        /// Say what would help.
        Advise = "advise",
        /// Do it, and undo it when it does not help.
        Act = "act",
    }
}

words! {
    /// What becomes of data when its object is deleted.
    DeletionPolicy, "deletion policy" {
        /// Volumes stay.
        Retain = "Retain",
        /// Volumes go.
        Delete = "Delete",
    }
}
