//! The command `chaos`: random faults of the testbed against databases under load, from a seed.
//!
//! [`cast`] is the databases, [`trouble`] what can be done to them and [`schedule`] when it is, all from a seed; [`site`]
//! is the cluster with all on it and [`strike`] lets things happen there; [`client`] is the program that writes and
//! [`record`] what it writes down; [`judge`] says what that breaks, [`whole`] whether all is well, [`timeline`] what
//! happened when, [`report`] what came of it, and [`evidence`] keeps what a person wants to see. [`mod@run`] is all of
//! it together. [`scripted`] plays short histories on the testbed that the simulator can live through too.

mod cast;
mod client;
mod error;
mod evidence;
mod judge;
mod record;
mod report;
mod run;
mod schedule;
mod scripted;
mod site;
mod strike;
mod timeline;
mod trouble;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Random faults of the testbed against databases under load, from a seed
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Disturb several databases for a while, and see that nothing is broken
    Run(run::Options),
    /// Play scripted histories in the simulator and on the testbed, and compare what comes of them
    Compare(scripted::Options),
    /// The program in a client's pod
    #[command(hide = true)]
    Client,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Commands::Run(options) => run::run(options).await,
        Commands::Compare(options) => scripted::compare(options).await,
        Commands::Client => client::run().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
