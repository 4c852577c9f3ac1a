//! The command `bench`: measures Keelson beside its peers, in one run and on one machine, so that what
//! counts is the ratio.

mod audit;
mod databases;
mod error;
mod failover;
mod kit;
mod machine;
mod process;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures Keelson beside its peers
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// The kit's example operator beside the same on Go's controller-runtime
    Kit(kit::Options),
    /// What databases and the operator cost, beside what was measured of CloudNativePG
    Databases(databases::Options),
    /// How long nobody can write when something happens to the leader, beside Patroni
    Failover(failover::Options),
    /// The client of `failover`, in its pod
    #[command(hide = true)]
    Write,
}

/// Installs this program, under a tag of its own each time.
fn install(cluster: &testbed::Cluster, program: &std::path::Path) -> error::Result<()> {
    let tag = format!("bench-{}", std::process::id());
    Ok(keelson_rig::install::install(cluster, program, &tag, &[])?)
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Commands::Kit(options) => kit::run(options).await,
        Commands::Databases(options) => databases::run(options).await,
        Commands::Failover(options) => failover::run(options).await,
        Commands::Write => failover::writer::run().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
