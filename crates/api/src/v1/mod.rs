//! Version 1, which is also how objects are stored: [`Database`], [`Backup`] and [`App`].
//!
//! A spec here is what somebody wrote, text and all; [`Settings`] is what it means, with every default
//! filled in. Reading never fails for what a text says (see [`Written`](crate::value::Written)), so one
//! bad object disturbs no other; meaning is asked for one object at a time, and its errors name the
//! field.

mod app;
mod backup;
mod backup_policy;
mod database;
mod failover;
mod placement;
mod repository;
mod restore;
pub mod rules;
mod settings;
mod status;
mod storage;

pub use app::{App, AppHealth, AppPhase, AppPort, AppSpec, AppStatus, Autoscale, Pooler};
pub use backup::{Backup, BackupMethod, BackupPhase, BackupSpec, BackupStatus, Verification, Window};
pub use backup_policy::{BackupPolicy, Drill};
pub use database::{
    Autopilot, Database, DatabaseSpec, DeletionPolicy, Resources, SwitchOver, Tier, Upgrade, UpgradeMethod,
};
pub use failover::{Durability, Failover, StandbyPolicy};
pub use placement::{Scheduling, Spread};
pub use repository::{Azure, Folder, Gcs, Repository, S3};
pub use restore::{Restore, RestoreSource, RestoreTarget};
pub use settings::{
    BackupSettings, DEFAULT_STORAGE, DrillSettings, FailoverSettings, FieldError, Moment, RestoreSettings,
    Settings, StorageSettings,
};
pub use status::{
    BackupSummary, Binding, Cause, DatabaseStatus, DrillResult, DrillRunning, DrillSummary, InstanceStatus,
    Leadership, OldData, Phase, RestoreSummary, Role,
};
pub use storage::{Autogrow, Storage, Volume};

pub use crate::value::Engine;
