//! The simulator beside the real thing: the same short histories on both, and whether the same comes of them.
//!
//! A history is a file in `scenarios/`, as the simulator reads it (`sim --file`). [`model`] lives through it in the
//! simulator, with many chances; [`real`] on the testbed, once; [`outcome`] is what is compared. What the testbed has
//! last shown is kept in `scenarios/seen.txt`, for those who look at what differs.

mod model;
mod outcome;
mod real;

use std::fs;
use std::path::{Path, PathBuf};

use keelson_sim::Scenario;

use crate::error::{During, Error, Result};
use crate::site::Site;
use outcome::Outcome;

/// What is played.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these, by name [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only in the simulator, beside what the testbed has shown last: no cluster is needed
    #[arg(long)]
    kept: bool,
    /// The program `keelson`
    #[arg(long, value_name = "PROGRAM", required_unless_present = "kept")]
    keelson: Option<PathBuf>,
}

/// A history with its name.
struct Scripted {
    name: String,
    /// In a sentence: the first line of the file.
    what: String,
    scenario: Scenario,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

const SEEN: &str = "seen.txt";

/// All of them, by name; those with fewer instances last, so that databases need not be made anew in between.
fn all() -> Result<Vec<Scripted>> {
    let folder = folder();
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).during("reading", &folder)? {
        let path = entry.during("reading", &folder)?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if path.file_name().is_some_and(|file| file == SEEN) {
            continue;
        }
        let text = fs::read_to_string(&path).during("reading", &path)?;
        let what = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        let scenario =
            text.parse().map_err(|why| Error::Unreadable { what: path.display().to_string(), why })?;
        found.push(Scripted { name, what, scenario });
    }
    found.sort_by_key(|one| (one.scenario.synchronous, one.scenario.instances, one.name.clone()));
    found.reverse();
    Ok(found)
}

/// What the testbed has shown, by name.
fn seen() -> Result<Vec<(String, Outcome)>> {
    let path = folder().join(SEEN);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).during("reading", &path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parsed = lines.map(|line| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let outcome = rest.parse().map_err(|why| Error::Unreadable { what: format!("`{line}`"), why })?;
        Ok((name.to_owned(), outcome))
    });
    parsed.collect()
}

/// Plays all on both, prints a table, keeps what was seen, and fails where they do not agree.
pub(crate) async fn compare(options: Options) -> Result<()> {
    let wanted = |one: &Scripted| options.only.is_empty() || options.only.contains(&one.name);
    let chosen: Vec<Scripted> = all()?.into_iter().filter(wanted).collect();
    chosen.iter().try_for_each(|one| real::playable(&one.scenario))?;
    let mut kept = seen()?;
    let mut site = match options.keelson.filter(|_| !options.kept) {
        Some(keelson) => Some(Site::open(&keelson).await?),
        None => None,
    };
    let mut different = 0;
    println!("{}", outcome::heading());
    for one in &chosen {
        let model = model::live(&one.scenario);
        if let Some(site) = &mut site {
            let played = real::play(site, &one.scenario).await;
            if played.is_err() {
                site.cluster.heal_all()?;
            }
            kept.retain(|(name, _)| *name != one.name);
            kept.push((one.name.clone(), played?));
            keep(&mut kept)?;
        }
        let real = kept.iter().find(|(name, _)| *name == one.name).map(|(_, real)| real);
        let differs = real.and_then(|real| model.differs(real));
        println!("{}", outcome::rows(&one.what, &model, real, differs.as_deref()));
        different += usize::from(differs.is_some());
    }
    if different == 0 { Ok(()) } else { Err(Error::Different(different)) }
}

fn keep(kept: &mut [(String, Outcome)]) -> Result<()> {
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text =
        String::from("# What the testbed has shown of each scenario; written by `make compare`.\n");
    for (name, outcome) in kept {
        text += &format!("{name} {outcome}\n");
    }
    let path = folder().join(SEEN);
    fs::write(&path, text).during("writing", &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_played_on_the_testbed() {
        let all = all().unwrap();
        assert!(all.len() >= 12);
        for one in &all {
            real::playable(&one.scenario).unwrap_or_else(|error| panic!("{}: {error}", one.name));
        }
    }

    #[test]
    fn the_simulator_comes_to_what_the_testbed_has_shown() {
        let (all, seen) = (all().unwrap(), seen().unwrap());
        assert_eq!(seen.len(), all.len(), "play what is missing with `make compare`");
        let differ: Vec<String> = all
            .iter()
            .filter_map(|one| {
                let (_, real) = seen.iter().find(|(name, _)| *name == one.name).unwrap();
                let why = model::live(&one.scenario).differs(real)?;
                Some(format!("{}: on the testbed, {why}", one.name))
            })
            .collect();
        assert_eq!(differ, [""; 0]);
    }
}
