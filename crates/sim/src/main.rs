//! Lives through simulated histories, and tells of the first that goes wrong.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use keelson_sim::hunt::hunt;
use keelson_sim::shrink::shrink;
use keelson_sim::{Outcome, Scenario, World};

/// Lives through simulated histories of a database, each made from a seed.
#[derive(Parser)]
#[command(name = "sim")]
struct Cli {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this one, with all that happens in it.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// The history in this file, with all that happens in it.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed"])]
    file: Option<PathBuf>,
    /// So many instances in every history.
    #[arg(long)]
    instances: Option<usize>,
    /// An operator in every history.
    #[arg(long, conflicts_with = "instances")]
    operated: bool,
    /// Plant a bug in the real code.
    #[cfg(feature = "planted")]
    #[arg(long)]
    bug: Option<String>,
}

impl Cli {
    fn draw(&self, seed: u64) -> Scenario {
        match self.instances {
            _ if self.operated => Scenario::operated(seed),
            Some(instances) => Scenario::sized(seed, instances.clamp(2, 5)),
            None => Scenario::draw(seed),
        }
    }

    #[cfg(feature = "planted")]
    fn prepare(&self) {
        use keelson_ha::planted;
        let named = |bug: &&planted::Bug| Some(format!("{bug:?}")) == self.bug;
        let all = planted::ALL.iter().chain(&planted::RARE).chain(&planted::OPERATOR);
        planted::plant(all.copied().find(|bug| named(&bug)));
    }

    #[cfg(not(feature = "planted"))]
    fn prepare(&self) {}
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.prepare();
    let single = match (&cli.seed, &cli.file) {
        (Some(seed), _) => Some(Ok(cli.draw(*seed))),
        (None, Some(file)) => Some(
            std::fs::read_to_string(file)
                .map_err(|error| format!("{}: {error}", file.display()))
                .and_then(|text| text.parse()),
        ),
        (None, None) => None,
    };
    match single {
        Some(Ok(scenario)) => replay(&scenario),
        Some(Err(wrong)) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
        None => run(&cli),
    }
}

/// One history with its timeline. The same input prints the same bytes.
fn replay(scenario: &Scenario) -> ExitCode {
    let outcome = World::live(scenario, true);
    print!("{scenario}");
    println!();
    outcome.story.iter().for_each(|line| println!("{line}"));
    println!();
    let Outcome { violation, long, events, mark, acknowledged, terms, .. } = outcome;
    let long = long as f64 / 1e6;
    println!("{long:.3} s, {events} events, {acknowledged} writes, {terms} terms, mark {mark:016x}");
    match violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("{}: {}", violation.kind, violation.what);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> ExitCode {
    let start = Instant::now();
    let found = hunt(cli.from, cli.seeds, |seed| cli.draw(seed), || cli.prepare());
    let took = start.elapsed().as_secs_f64();
    let minutes = found.long as f64 / 60e6;
    println!(
        "{} seeds in {took:.1} s ({:.0} a minute): {minutes:.0} virtual minutes, {} events, {} writes acknowledged, {} terms",
        found.seeds,
        found.seeds as f64 * 60.0 / took,
        found.events,
        found.acknowledged,
        found.terms,
    );
    let Some((seed, violation)) = found.found else { return ExitCode::SUCCESS };
    let scenario = cli.draw(seed);
    println!("\nSEED {seed} violates {}: {}\n\n{scenario}", violation.kind, violation.what);
    let shortest = shrink(&scenario, violation.kind);
    println!("The shortest history that was found to do the same, and what happens in it:\n");
    let _ = replay(&shortest);
    let operated = if cli.operated { "OPERATED=1 " } else { "" };
    println!("\nReplay it with: make sim {operated}SEED={seed}");
    ExitCode::FAILURE
}
