//! `keelson doctor`: whether the cluster and the installation are as they should be, and what to do where they are not.
//!
//! [`facts`] asks the cluster, [`checks`] judges. What may not be read is a warning, and never a failure.

mod checks;
mod facts;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::cluster::{ClusterArgs, Connected};
use super::output::OutputArgs;
use super::paint::{Paint, Tone};
use super::table::{Cell, Table};
use super::{Ended, Failure};

/// Of which cluster.
#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How one thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth a look, or not known.
    Warn,
    /// Wrong.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What was looked at.
    pub what: &'static str,
    /// How it is.
    pub level: Level,
    /// In a sentence.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

/// Prints what was found, a line each, and ends with the worst of it.
pub async fn doctor(args: DoctorArgs) -> Result<Ended, Failure> {
    let connected = args.cluster.connect().await?;
    let checks = look(&connected).await?;
    print!("{}", args.output.say(&checks, || text(&checks, Paint::of_stdout()))?);
    let worst = checks.iter().map(|check| check.level).max();
    Ok(if worst == Some(Level::Fail) { Ended::Wrong } else { Ended::Well })
}

/// All that is looked at.
pub async fn look(connected: &Connected) -> Result<Vec<Check>, Failure> {
    let facts = facts::gather(&connected.client, &connected.namespace).await?;
    Ok(checks::checks(&facts, Timestamp::now()))
}

/// For people.
pub fn text(checks: &[Check], paint: Paint) -> String {
    let mut table = Table::default();
    for check in checks {
        let (word, tone) = match check.level {
            Level::Ok => ("ok", Tone::Good),
            Level::Warn => ("warn", Tone::Warn),
            Level::Fail => ("FAIL", Tone::Bad),
        };
        table.row([Cell::of(word, tone), check.what.into(), check.message.replace('\n', " ").into()]);
        if let Some(todo) = &check.todo {
            table.row(["".into(), "".into(), format!("→ {todo}").into()]);
        }
    }
    table.text(paint)
}
