//! The command `bench`: measures Keelson beside its peers, in one run and on one machine, so that what
//! counts is the ratio.

mod error;
mod kit;

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
}

#[tokio::main]
async fn main() -> ExitCode {
    let Commands::Kit(options) = Arguments::parse().command;
    match kit::run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
