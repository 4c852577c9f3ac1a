//! The command `testbed`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testbed::{
    Cluster, ControlPlane, Fault, HubComponent, Image, Layout, Node, Result, Which, Who, internal,
};

/// A whole real Kubernetes on one machine, with faults on demand.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Where the cluster lives [default: $TESTBED_DIR, else target/testbed of the checkout]
    #[arg(long, global = true, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Build what is not built, start a cluster, and wait until it is ready
    Up {
        /// How many nodes
        #[arg(long)]
        nodes: Option<u8>,
    },
    /// End the cluster and remove all traces of it
    Down,
    /// Show machines, components, memory and faults in force
    Status,
    /// Make something go wrong until it is healed
    #[command(subcommand)]
    Fault(FaultWords),
    /// Make it right again
    #[command(subcommand)]
    Heal(HealWords),
    /// Kill processes in a pod, without a goodbye
    Kill(Target),
    /// Run a program in a pod without the help of the API server or the kubelet
    Exec {
        /// pod/NAME, primary/DATABASE or replica/DATABASE
        who: Who,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// Container of the pod [default: the first]
        #[arg(short, long)]
        container: Option<String>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
    /// Make an image from a static program, or take an OCI archive, and load it into every node
    Load {
        /// Name of the image, for example keelson:dev
        #[arg(long, required_unless_present = "archive")]
        name: Option<String>,
        /// PATH-IN-IMAGE=FILE; the first is the entry point
        #[arg(long = "program", value_name = "PATH=FILE", required_unless_present = "archive")]
        programs: Vec<String>,
        /// An OCI archive instead
        #[arg(long, conflicts_with_all = ["name", "programs"])]
        archive: Option<PathBuf>,
    },
    /// Start an API server without nodes, until interrupted
    ControlPlane,
    #[command(hide = true)]
    Init { spec: PathBuf },
    #[command(hide = true)]
    Gate,
    #[command(hide = true)]
    Volumes {
        #[arg(long)]
        node: Node,
        #[arg(long)]
        kubeconfig: PathBuf,
    },
}

#[derive(Subcommand)]
enum HealWords {
    /// Everything
    All,
    #[command(flatten)]
    One(FaultWords),
}

#[derive(Subcommand)]
enum FaultWords {
    /// The node loses power: everything on it dies at once
    NodeCrash { node: Node },
    /// The node stands still, and goes on later as if nothing had been
    NodeFreeze { node: Node },
    /// The node runs, but nobody reaches it and it reaches nobody
    NodeCutOff { node: Node },
    /// Two nodes can't reach each other
    LinkCut {
        from: Node,
        to: Node,
        /// Only what the first sends is lost
        #[arg(long)]
        one_way: bool,
    },
    /// The node and the API server can't reach each other
    ApiCut { node: Node },
    /// Some of the node's packets are lost
    PacketLoss {
        node: Node,
        #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
        percent: u8,
    },
    /// A component of the control plane is gone
    Stop { component: HubComponent },
    /// A component of the control plane stands still
    Pause { component: HubComponent },
    /// A component of the control plane answers late
    Slow {
        component: HubComponent,
        /// The longest that an answer is held up
        #[arg(long, default_value_t = 500)]
        milliseconds: u64,
    },
    /// Processes in a pod stand still
    ProcessPause(Target),
    /// A volume has no room left
    VolumeFull(Claim),
    /// Writes to a volume hang
    VolumeFreeze(Claim),
    /// A volume turns read-only, as after an error of the disk
    VolumeReadOnly(Claim),
    /// The disk below a volume fails with EIO
    VolumeIoError(Claim),
}

#[derive(clap::Args)]
struct Target {
    /// pod/NAME, primary/DATABASE or replica/DATABASE
    who: Who,
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Container of the pod [default: the first]
    #[arg(short, long)]
    container: Option<String>,
    /// main (PID 1), all, or the name of a program
    #[arg(long, default_value = "all")]
    process: Which,
}

#[derive(clap::Args)]
struct Claim {
    /// Name of the claim
    claim: String,
    #[arg(short, long, default_value = "default")]
    namespace: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        // PID 1 of a machine is one plain thread.
        Commands::Init { spec } => internal::init(spec),
        _ => on_runtime(run(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn on_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .map_err(|source| testbed::Error::Io { what: "starting the runtime".into(), source })?
        .block_on(work)
}

async fn run(arguments: Arguments) -> Result<()> {
    let layout = || match &arguments.dir {
        Some(folder) => Layout::new(folder),
        None => Layout::of_checkout(),
    };
    match arguments.command {
        Commands::Up { nodes } => up(&layout()?, nodes).await,
        Commands::Down => Cluster::down(&layout()?),
        Commands::Status => {
            print!("{}", testbed::report(&layout()?)?);
            Ok(())
        }
        Commands::Fault(words) => {
            let cluster = Cluster::attach(&layout()?).await?;
            let fault = resolve(&cluster, words).await?;
            cluster.inject(&fault)?;
            println!("{fault}");
            Ok(())
        }
        Commands::Heal(HealWords::All) => testbed::heal_all(&layout()?),
        Commands::Heal(HealWords::One(words)) => {
            let cluster = Cluster::attach(&layout()?).await?;
            let meant = resolve(&cluster, words).await?;
            let faults = cluster.faults()?;
            match faults.iter().find(|fault| fault.means(&meant)) {
                Some(fault) => cluster.heal(fault),
                None => Err(testbed::Error::Refused(format!(
                    "not in force: {meant}. `testbed status` shows what is, `testbed heal all` undoes all of it"
                ))),
            }
        }
        Commands::Kill(Target { who, namespace, container, process }) => {
            let cluster = Cluster::attach(&layout()?).await?;
            let found = cluster.container(&namespace, &who, container.as_deref()).await?;
            cluster.kill(&found, &process)
        }
        Commands::Exec { who, namespace, container, argv } => {
            let cluster = Cluster::attach(&layout()?).await?;
            let found = cluster.container(&namespace, &who, container.as_deref()).await?;
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            print!("{}", cluster.run_in(&found, &argv)?);
            Ok(())
        }
        Commands::Load { name, programs, archive } => {
            let layout = layout()?;
            let cluster = Cluster::attach(&layout).await?;
            match archive {
                Some(archive) => cluster.load_archive(&archive),
                None => {
                    let programs: Vec<(&str, &std::path::Path)> = programs
                        .iter()
                        .filter_map(|program| program.split_once('='))
                        .map(|(inside, file)| (inside, std::path::Path::new(file)))
                        .collect();
                    let scratch = layout.root().join("image");
                    cluster.load_image(&Image::of_programs(&name.unwrap_or_default(), &programs, &scratch)?)
                }
            }
        }
        Commands::ControlPlane => {
            let plane = ControlPlane::start().await?;
            println!("export KUBECONFIG={}", plane.kubeconfig().display());
            // Whatever ends the wait, the control plane ends with it.
            let _ = tokio::signal::ctrl_c().await;
            Ok(())
        }
        Commands::Init { spec } => internal::init(&spec),
        Commands::Gate => internal::gate().await,
        Commands::Volumes { node, kubeconfig } => internal::volumes(node, &kubeconfig).await,
    }
}

async fn up(layout: &Layout, nodes: Option<u8>) -> Result<()> {
    let cluster = Cluster::up(layout, nodes).await?;
    for fault in cluster.faults()? {
        eprintln!("still in force: {fault} (`testbed heal all` undoes it)");
    }
    println!("export KUBECONFIG={}", layout.kubeconfig().display());
    println!("export PATH={}:$PATH    # for kubectl and helm", layout.root().join("bin").display());
    Ok(())
}

async fn resolve(cluster: &Cluster, words: FaultWords) -> Result<Fault> {
    let volume = async |claim: Claim| cluster.volume(&claim.namespace, &claim.claim).await;
    Ok(match words {
        FaultWords::NodeCrash { node } => Fault::NodeCrash { node },
        FaultWords::NodeFreeze { node } => Fault::NodeFreeze { node },
        FaultWords::NodeCutOff { node } => Fault::NodeCutOff { node },
        FaultWords::LinkCut { from, to, one_way } => Fault::LinkCut { from, to, both: !one_way },
        FaultWords::ApiCut { node } => Fault::ApiCut { node },
        FaultWords::PacketLoss { node, percent } => Fault::PacketLoss { node, percent },
        FaultWords::Stop { component } => Fault::ComponentStop { component },
        FaultWords::Pause { component } => Fault::ComponentPause { component },
        FaultWords::Slow { component, milliseconds } => Fault::ComponentSlow { component, milliseconds },
        FaultWords::ProcessPause(Target { who, namespace, container, process }) => {
            let container = cluster.container(&namespace, &who, container.as_deref()).await?;
            Fault::ProcessPause { container, which: process }
        }
        FaultWords::VolumeFull(claim) => Fault::VolumeFull { volume: volume(claim).await? },
        FaultWords::VolumeFreeze(claim) => Fault::VolumeFreeze { volume: volume(claim).await? },
        FaultWords::VolumeReadOnly(claim) => Fault::VolumeReadOnly { volume: volume(claim).await? },
        FaultWords::VolumeIoError(claim) => Fault::VolumeIoError { volume: volume(claim).await? },
    })
}
