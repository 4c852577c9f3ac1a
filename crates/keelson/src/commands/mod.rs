//! What people do with Keelson, a file or a folder each. All are made alike: facts are gathered, a view follows from
//! them alone, and is printed as text, JSON or YAML. What is printed is tested without a cluster.

pub mod backup;
pub mod cluster;
pub mod completion;
pub mod doctor;
pub mod failure;
pub mod hints;
pub mod install;
pub mod logs;
pub mod output;
pub mod paint;
pub mod plan;
pub mod psql;
#[cfg(test)]
pub mod reference;
pub mod report;
pub mod restart;
pub mod restore;
pub mod status;
pub mod switchover;
pub mod table;
pub mod top;
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
    /// Show how databases are, again and again.
    Top(top::TopArgs),
    /// Show what would be done with a Database, and why, before it is.
    Plan(plan::PlanArgs),
    /// Talk to a Database's primary with psql.
    Psql(psql::PsqlArgs),
    /// Show what all instances of a Database have logged, in the order in which it happened.
    Logs(logs::LogsArgs),
    /// Let another instance of a Database lead, without losing anything.
    Switchover(switchover::SwitchoverArgs),
    /// Give instances new pods, one after another, with the volumes that they have.
    Restart(restart::RestartArgs),
    /// Back a Database up now.
    Backup(backup::BackupArgs),
    /// Make a new Database from a backup, or from a moment of another.
    Restore(restore::RestoreArgs),
    /// See whether the cluster and the installation are as they should be.
    Doctor(doctor::DoctorArgs),
    /// Gather what somebody needs who is to find a bug, without anything secret.
    Report(report::ReportArgs),
    /// Install Keelson, or upgrade it, from what this program carries along.
    Install(install::InstallArgs),
    /// Print what a shell needs to complete these commands.
    Completion(completion::CompletionArgs),
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
        Command::Top(args) => top::top(args).await,
        Command::Plan(args) => plan::plan(args).await,
        Command::Psql(args) => psql::psql(args).await,
        Command::Logs(args) => logs::logs(args).await,
        Command::Switchover(args) => switchover::switchover(args).await,
        Command::Restart(args) => restart::restart(args).await,
        Command::Backup(args) => backup::backup(args).await,
        Command::Restore(args) => restore::restore(args).await,
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Report(args) => report::report(args).await,
        Command::Install(args) => install::install(args).await,
        Command::Completion(args) => completion::completion(args),
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
