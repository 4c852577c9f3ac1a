//! The one program: the operator, and the agent of each instance.

mod backup;
mod cluster;
mod copy;
mod switchover;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use keelson_kit::telemetry;
use keelson_operator::Options;
use keelson_operator::run::run;

const _: () = assert!(!keelson_agent::PLANTED, "bugs are planted for the simulator alone");

/// Databases on Kubernetes that need nobody at night.
#[derive(Parser)]
#[command(name = "keelson", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look after the Databases of a cluster.
    Operator(OperatorArgs),
    /// Run a database, as the first process of its container.
    Agent,
    /// Let another instance of a Database lead, without losing anything.
    Switchover(switchover::SwitchoverArgs),
    /// Back a Database up now.
    Backup(backup::BackupArgs),
    /// Ask the agent of this container for a file of the log: PostgreSQL does so while it is restored.
    #[command(hide = true)]
    FetchLog {
        /// Where the agent listens.
        socket: PathBuf,
        /// The file's name.
        name: String,
        /// Where it is wanted.
        to: PathBuf,
    },
    /// Copy this program into a folder, for a container that lacks it.
    CopyTo {
        /// The folder.
        folder: PathBuf,
    },
}

#[derive(Args)]
struct OperatorArgs {
    /// The image that instances get the agent from: this program's own.
    #[arg(long, env = "KEELSON_IMAGE")]
    image: String,
    /// The image that connection poolers beside Apps are run from.
    #[arg(long, env = "KEELSON_POOLER_IMAGE", default_value = keelson_operator::app::pooler::IMAGE)]
    pooler_image: String,
    /// The namespace that the operator itself lives in.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Look after Databases in this namespace only.
    #[arg(long, env = "KEELSON_ONLY_IN")]
    only_in: Option<String>,
    /// The port of the metrics.
    #[arg(long, default_value_t = 8080)]
    metrics_port: u16,
    /// The port of /healthz and /readyz.
    #[arg(long, default_value_t = 8081)]
    health_port: u16,
    /// The port of the webhooks.
    #[arg(long, default_value_t = 9443)]
    webhook_port: u16,
    /// Serve no webhooks.
    #[arg(long, env = "KEELSON_NO_WEBHOOKS")]
    no_webhooks: bool,
}

impl From<OperatorArgs> for Options {
    fn from(args: OperatorArgs) -> Options {
        Options {
            agent_image: args.image,
            pooler_image: args.pooler_image,
            namespace: args.namespace,
            only_in: args.only_in.filter(|namespace| !namespace.is_empty()),
            metrics_port: args.metrics_port,
            health_port: args.health_port,
            webhook_port: (!args.no_webhooks).then_some(args.webhook_port),
        }
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // PostgreSQL goes by what it ends with.
    if let Command::FetchLog { socket, name, to } = &command {
        return ExitCode::from(keelson_agent::fetch_log(socket, name, to));
    }
    match act(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keelson: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    use tokio::runtime::Builder;
    match command {
        Command::Operator(args) => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(run(args.into(), keelson_kit::manager::told_to_stop()))?)
        }
        Command::Agent => {
            // A disk that hangs takes threads with it; leadership needs one that does not.
            let runtime = Builder::new_multi_thread().worker_threads(AGENT_THREADS).enable_all().build()?;
            let ended = runtime.block_on(run_agent());
            runtime.shutdown_background();
            ended
        }
        Command::Switchover(args) => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(switchover::switchover(args))?)
        }
        Command::Backup(args) => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(backup::backup(args))?)
        }
        Command::CopyTo { folder } => Ok(copy::copy_to(&folder)?),
        Command::FetchLog { .. } => Ok(()),
    }
}

/// Threads of the agent.
const AGENT_THREADS: usize = 4;

async fn run_agent() -> Result<(), Box<dyn std::error::Error>> {
    let settings = telemetry::Settings::from_env("keelson-agent", env!("CARGO_PKG_VERSION"));
    let telemetry = telemetry::start(settings)?;
    let ended = keelson_agent::run().await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the agent can't run");
    }
    telemetry.shutdown().await;
    Ok(ended?)
}
