//! The one program: the operator, the agent of each instance, and what people do with them.

mod commands;
mod copy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use keelson_kit::telemetry;
use keelson_operator::Options;
use keelson_operator::run::run;
use tokio::runtime::Builder;

const _: () = assert!(!keelson_agent::PLANTED, "bugs are planted for the simulator alone");

/// Databases on Kubernetes that need nobody at night.
#[derive(Parser)]
#[command(name = "keelson", version, after_help = commands::EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    People(commands::Command),
    /// Look after the Databases of a cluster: what the operator's pods run.
    Operator(OperatorArgs),
    /// Run a database, as the first process of its container.
    Agent,
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
    /// Restore the newest backup and look at it, as the first process of a drill's pod.
    #[command(hide = true)]
    Rehearse,
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
            namespace: args.namespace,
            only_in: args.only_in.filter(|namespace| !namespace.is_empty()),
            metrics_port: args.metrics_port,
            health_port: args.health_port,
            webhook_port: (!args.no_webhooks).then_some(args.webhook_port),
        }
    }
}

fn main() -> ExitCode {
    let command = match parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Help and version are no errors; and 2 says that something is wrong with a database.
            let code = if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            drop(error.print());
            return code;
        }
    };
    match command {
        // PostgreSQL goes by what it ends with.
        Command::FetchLog { socket, name, to } => {
            ExitCode::from(keelson_agent::fetch_log(&socket, &name, &to))
        }
        Command::People(command) => commands::run(command),
        command => match act(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("keelson: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// As a plug-in of kubectl it is called as such, also in its help.
fn parse() -> Result<Cli, clap::Error> {
    let command = Cli::command().bin_name(commands::words::program());
    Cli::from_arg_matches(&command.try_get_matches()?)
}

fn act(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Operator(args) => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(run(args.into(), keelson_kit::manager::told_to_stop()))?)
        }
        // A disk that hangs takes threads with it; leadership needs one that does not.
        Command::Agent => on_threads(keelson_agent::run()),
        Command::Rehearse => on_threads(keelson_agent::run_drill()),
        Command::CopyTo { folder } => Ok(copy::copy_to(&folder)?),
        Command::People(_) | Command::FetchLog { .. } => Ok(()),
    }
}

/// Threads of the agent.
const AGENT_THREADS: usize = 4;

fn on_threads<E>(work: impl Future<Output = Result<(), E>>) -> Result<(), Box<dyn std::error::Error>>
where
    E: std::error::Error + 'static,
{
    let runtime = Builder::new_multi_thread().worker_threads(AGENT_THREADS).enable_all().build()?;
    let ended = runtime.block_on(told(work));
    runtime.shutdown_background();
    ended
}

/// With its log as all have it.
async fn told<E>(work: impl Future<Output = Result<(), E>>) -> Result<(), Box<dyn std::error::Error>>
where
    E: std::error::Error + 'static,
{
    let settings = telemetry::Settings::from_env("keelson-agent", env!("CARGO_PKG_VERSION"));
    let telemetry = telemetry::start(settings)?;
    let ended = work.await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the agent can't run");
    }
    telemetry.shutdown().await;
    Ok(ended?)
}
