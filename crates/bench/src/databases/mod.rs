//! What databases and the operator cost.
//!
//! [`few`] is the real thing: the testbed's cluster, the operator installed as people do, PostgreSQL.
//! [`many`] is a control plane with fake nodes ([`fakes`]) and more Databases than any machine could run.
//! [`report`] is what is made of the numbers.

mod fakes;
mod few;
mod limit;
mod many;
mod report;

use std::fs;
use std::path::PathBuf;

use crate::error::{During, Error, Result};
use crate::machine;
use limit::Limit;
use many::Size;
use report::Report;

/// What the chart gives the operator of a processor, in thousandths.
const CHART_LIMIT: u32 = 100;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many Databases there are on fake nodes
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// How many instances each of them has
    #[arg(long, default_value_t = 3)]
    instances: u32,
    /// How often a database is made on the real cluster; the report has the median and the worst
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only these parts: few, many [default: both]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The program `keelson`, a release build
    #[arg(long, value_name = "PROGRAM")]
    keelson: PathBuf,
    /// Folder for the report
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"))]
    into: PathBuf,
}

/// Measures all, writes the report, and fails if a bound is missed.
pub(crate) async fn run(options: Options) -> Result<()> {
    let keelson = options.keelson;
    if !keelson.exists() {
        return Err(Error::NotBuilt(keelson));
    }
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|one| one == part);
    let few = match wanted("few") {
        true => Some(few::measure(&keelson, options.runs).await?),
        false => None,
    };
    let size = Size { objects: options.objects, instances: options.instances };
    let mut many = Vec::new();
    if wanted("many") {
        for limit in [Some(CHART_LIMIT), None] {
            many.push(many::measure(&keelson, size, limit.map(Limit::thousandths).transpose()?).await?);
        }
    }
    let report = Report { machine: machine::describe(versions()?)?, size, few, many };
    let text = report.markdown();
    println!("{text}");
    for (name, text) in [("databases.md", text), ("databases.json", report.json()?)] {
        let path = options.into.join(name);
        fs::write(&path, text).during("writing", &path)?;
    }
    match report.missed().len() {
        0 => Ok(()),
        missed => Err(Error::Missed(missed)),
    }
}

fn versions() -> Result<machine::Versions> {
    let kwok = machine::read(&machine::checkout().join("bench/kwok/go.mod"))?;
    Ok(vec![("kwok", machine::required(&kwok, "sigs.k8s.io/kwok"))])
}
