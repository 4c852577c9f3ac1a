//! How long nobody can write when something happens to the leader: Keelson beside Patroni, on the same cluster,
//! with the same client.
//!
//! [`case`] is what happens and [`strike`] lets it happen; [`system`] is who runs the database ([`keelson`],
//! [`patroni`]) on a [`site`]; [`writer`] is the client's program and [`client`] its pod; [`mod@run`] is one run,
//! with what the client saw of it, and [`report`] what is made of all.

mod case;
mod client;
mod keelson;
mod patroni;
mod report;
mod run;
mod site;
mod strike;
mod system;
pub(crate) mod writer;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use testbed::Cluster;

use crate::error::{During, Error, Result};
use crate::machine;
use case::Case;
use report::{Measured, Report, read_back};
use site::Site;
use system::System;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each case is tried; the report has the median and the worst
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Only these systems [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<System>,
    /// Only these cases [default: all]
    #[arg(long, value_delimiter = ',')]
    cases: Vec<Case>,
    /// Keep all runs of the report that is there, and do only those that it lacks. Without it, the runs of the
    /// chosen systems and cases are done anew.
    #[arg(long)]
    resume: bool,
    /// The program `keelson`, a release build
    #[arg(long, value_name = "PROGRAM")]
    keelson: PathBuf,
    /// Folder for the report
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"))]
    into: PathBuf,
}

impl Options {
    fn wants_system(&self, system: System) -> bool {
        self.only.is_empty() || self.only.contains(&system)
    }

    fn wants_case(&self, case: Case) -> bool {
        self.cases.is_empty() || self.cases.contains(&case)
    }
}

/// Measures all, writes the report after each run, and fails if a bound is missed.
pub(crate) async fn run(options: Options) -> Result<()> {
    if !options.keelson.exists() {
        return Err(Error::NotBuilt(options.keelson));
    }
    let mut book = Book::open(&options.into)?;
    book.change(|measured| {
        measured.runs.retain(|run| {
            options.resume || !(options.wants_system(run.system) && options.wants_case(run.case))
        });
    })?;
    let cluster = Cluster::from_env().await?;
    // A fault that was left by one who was interrupted would be in the way.
    cluster.heal_all()?;
    client::load(&cluster)?;
    for system in System::ALL.into_iter().filter(|system| options.wants_system(*system)) {
        measure(&cluster, system, &options, &mut book).await?;
    }
    let report = book.report()?;
    println!("{}", report.markdown());
    match report.missed().len() {
        0 => Ok(()),
        missed => Err(Error::Missed(missed)),
    }
}

/// All that is wanted of one system: every case once, then every case again, so that what changes with time is not
/// one case's alone, and whoever stops early has some of all.
async fn measure(cluster: &Cluster, system: System, options: &Options, book: &mut Book) -> Result<()> {
    let cases = Case::ALL.into_iter().filter(|case| options.wants_case(*case));
    let missing = |book: &Book, case: Case, round: usize| book.count(system, case) <= round;
    let rounds = (0..options.runs).flat_map(|round| cases.clone().map(move |case| (round, case)));
    let wanted: Vec<_> = rounds.filter(|(round, case)| missing(book, *case, *round)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    eprintln!("{}: setting up", system.title());
    system.install(cluster, &options.keelson)?;
    let site = Site::open(cluster, &format!("{system:?}").to_lowercase()).await?;
    system.create(&site).await?;
    for (round, case) in wanted {
        let which = format!("{}, {}, run {} of {}", system.title(), case.title(), round + 1, options.runs);
        let run = run::run(&site, system, case, round).await;
        let run = run.inspect_err(|_| eprintln!("{which}: failed"))?;
        eprintln!("{which}: {run}");
        let version = system.patroni_version(&site);
        book.change(|measured| {
            measured.patroni = version.or(measured.patroni.take());
            measured.runs.push(run);
        })?;
    }
    system.close(site).await
}

/// The report as it grows. Others may be adding to it too.
struct Book {
    folder: PathBuf,
    measured: Measured,
}

impl Book {
    fn open(folder: &Path) -> Result<Book> {
        let path = folder.join("failover.json");
        let measured = if path.exists() { read_back(&machine::read(&path)?)? } else { Measured::default() };
        Ok(Book { folder: folder.to_owned(), measured })
    }

    fn count(&self, system: System, case: Case) -> usize {
        self.measured.runs.iter().filter(|run| run.system == system && run.case == case).count()
    }

    /// Changes what is there now, which may be more than was read before.
    fn change(&mut self, change: impl FnOnce(&mut Measured)) -> Result<()> {
        let lock = File::open(&self.folder).during("opening", &self.folder)?;
        lock.lock().during("locking", &self.folder)?;
        *self = Book::open(&self.folder)?;
        change(&mut self.measured);
        let report = self.report()?;
        for (name, text) in [("failover.md", report.markdown()), ("failover.json", report.json()?)] {
            let path = self.folder.join(name);
            fs::write(&path, text).during("writing", &path)?;
        }
        Ok(())
    }

    fn report(&self) -> Result<Report> {
        let measured = self.measured.clone();
        let versions = vec![("Patroni", measured.patroni.clone())];
        Ok(Report { machine: machine::describe(versions)?, measured })
    }
}
