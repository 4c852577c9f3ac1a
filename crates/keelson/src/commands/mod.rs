//! What people do with Keelson, a file or a folder each. All are made alike: facts are gathered, a view follows from
//! them alone, and is printed as text, JSON or YAML. What is printed is tested without a cluster.

pub mod backup;
pub mod cluster;
pub mod failure;
pub mod hints;
pub mod output;
pub mod paint;
pub mod plan;
pub mod status;
pub mod switchover;
pub mod table;
pub mod words;

#[cfg(test)]
pub mod golden;

use std::process::ExitCode;

use clap::Subcommand;

pub use self::failure::Failure;
use self::words::program;

/// Said in the help and in docs/commands.md.
pub const EXIT_CODES: &str = "\
Exit codes of the commands for people:
  0  all is well, or there is nothing to do
  1  the command could not do its work, and said why
  2  something is wrong (status, doctor), or there is something to do (plan)
  3  a database is being made or brought back (status), or instances would restart (plan)";

/// What people do.
#[derive(Subcommand)]
pub enum Command {
    /// Show how databases are, what is wrong with them and what to do.
    Status(status::StatusArgs),
    /// Show what would be done with a Database, and why, before it is.
    Plan(plan::PlanArgs),
    /// Let another instance of a Database lead, without losing anything.
    Switchover(switchover::SwitchoverArgs),
    /// Back a Database up now.
    Backup(backup::BackupArgs),
}

/// Runs it, and says why it could not.
pub fn run(command: Command) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refused(&Failure::Said(format!("this program can't start: {error}"))),
    };
    match runtime.block_on(act(command)) {
        Ok(ended) => ended.into(),
        Err(failure) => refused(&failure),
    }
}

fn refused(failure: &Failure) -> ExitCode {
    eprintln!("{}: {failure}", program());
    ExitCode::FAILURE
}

async fn act(command: Command) -> Result<Ended, Failure> {
    match command {
        Command::Status(args) => status::status(args).await,
        Command::Plan(args) => plan::plan(args).await,
        Command::Switchover(args) => switchover::switchover(args).await,
        Command::Backup(args) => backup::backup(args).await,
    }
}

/// How a command has ended that did its work. One that could not is a [`Failure`], and ends with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All is well, or there is nothing to do.
    Well,
    /// Something is wrong, or there is something to do.
    Wrong,
    /// Something is under way, or restarts instances.
    More,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> ExitCode {
        ExitCode::from(match ended {
            Ended::Well => 0,
            Ended::Wrong => 2,
            Ended::More => 3,
        })
    }
}
