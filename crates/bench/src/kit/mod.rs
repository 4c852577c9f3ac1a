//! The kit's example operator beside the same on Go's controller-runtime.
//!
//! Each contestant gets a control plane of its own, with all Greetings there before it starts. What it
//! asks is read from the API server's own log ([`crate::audit`]), what it uses from the kernel
//! ([`crate::process`]). [`measure`] is the course of it, [`report`] what is made of the numbers.

mod greetings;
mod measure;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Error, Result};
use crate::machine;
use measure::Contestant;
use report::{Report, Run};

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many Greetings there are
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How often everything is measured; the report has the medians
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only these contestants: kit, go, go-metadata [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The kit's example [default: the one that was built beside this program]
    #[arg(long, value_name = "PROGRAM")]
    kit: Option<PathBuf>,
    /// Folder for the report
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"))]
    into: PathBuf,
}

/// Measures all, writes the report, and fails if a bound is missed.
pub(crate) async fn run(options: Options) -> Result<()> {
    let example = match &options.kit {
        Some(path) => path.clone(),
        None => beside_this_program()?,
    };
    if !example.exists() {
        return Err(Error::NotBuilt(example));
    }
    let definition = greetings::definition(&example)?;
    let mut contestants = contestants(&example)?;
    contestants.retain(|one| options.only.is_empty() || options.only.iter().any(|key| key == one.key));
    let mut runs = Vec::new();
    for run in 0..options.runs {
        for turn in 0..contestants.len() {
            // Each comes first, second and last in turn, so that nobody has the warm machine for himself.
            let contestant = &contestants[(run + turn) % contestants.len()];
            eprintln!("run {} of {}: {}", run + 1, options.runs, contestant.title);
            let measures = measure::measure(contestant, &definition, options.objects).await?;
            eprintln!("  {measures}");
            runs.push(Run { contestant: contestant.key.to_owned(), measures });
        }
    }
    let titles = contestants.iter().map(|one| (one.key.to_owned(), one.title.to_owned())).collect();
    let report = Report { machine: machine::describe(versions()?)?, objects: options.objects, titles, runs };
    let text = report.markdown();
    println!("{text}");
    write(&options.into.join("kit.md"), &text)?;
    write(&options.into.join("kit.json"), &report.json()?)?;
    match report.missed().len() {
        0 => Ok(()),
        missed => Err(Error::Missed(missed)),
    }
}

fn beside_this_program() -> Result<PathBuf> {
    let this = std::env::current_exe().during("looking for", "this program")?;
    Ok(this.parent().unwrap_or(Path::new("/")).join("examples/greeting"))
}

fn contestants(example: &Path) -> Result<Vec<Contestant>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/go-greeting");
    let go =
        testbed::build_go("building the example on controller-runtime", &source, "./cmd", "go-greeting")?;
    // Any free ports: the defaults may be taken on a machine where other things run.
    let servers = ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
    let with = |more: &[&str]| servers.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<_>>();
    Ok(vec![
        Contestant { key: "kit", title: "kit", program: example.to_path_buf(), arguments: Vec::new() },
        Contestant { key: "go", title: "controller-runtime", program: go.clone(), arguments: with(&[]) },
        Contestant {
            key: "go-metadata",
            title: "controller-runtime, metadata",
            program: go,
            arguments: with(&["--metadata"]),
        },
    ])
}

/// What the contestants stand on, beside what every report names.
fn versions() -> Result<machine::Versions> {
    let go_mod = machine::read(&machine::checkout().join("bench/go-greeting/go.mod"))?;
    Ok(vec![
        ("go", machine::printed("go", &["env", "GOVERSION"])),
        ("controller-runtime", machine::required(&go_mod, "sigs.k8s.io/controller-runtime")),
        ("client-go", machine::required(&go_mod, "k8s.io/client-go")),
    ])
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).during("writing", path)
}
