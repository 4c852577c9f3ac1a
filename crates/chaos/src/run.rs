//! A run: bursts of trouble, one after another, and after each it is looked whether all is well and nothing was broken.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use keelson_rig::clock::now;
use tokio::time::{sleep, timeout};

use crate::cast::cast;
use crate::error::{Error, Result};
use crate::evidence;
use crate::judge::{Judgement, judge};
use crate::report::Report;
use crate::schedule::{Burst, Schedule};
use crate::site::{Site, Snapshot};
use crate::strike::{Struck, heal, strike};
use crate::timeline::{Timeline, longest_within};
use crate::trouble::{Kind, Trouble};
use crate::whole::{Well, all_write, whole};

/// How to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// What all chance follows from [default: the time of day]
    #[arg(long)]
    seed: Option<u64>,
    /// Only print what would be done
    #[arg(long)]
    show: bool,
    /// The program `keelson`
    #[arg(long, value_name = "PROGRAM", required_unless_present = "show")]
    keelson: Option<PathBuf>,
    /// Folder for what is kept when a promise is broken
    #[arg(long, value_name = "FOLDER", default_value = "target/chaos")]
    into: PathBuf,
}

/// No burst with its rest is shorter.
const SHORTEST: u64 = 15;
/// How long it may take to find out who is where.
const LOOK: Duration = Duration::from_secs(5);

/// Runs, and fails with the first promise that is broken.
pub(crate) async fn run(options: Options) -> Result<()> {
    let seed = options.seed.unwrap_or_else(|| now() / 1000 % 1_000_000);
    let most = usize::try_from(options.minutes * 60 / SHORTEST).unwrap_or(usize::MAX).max(1);
    let schedule = Schedule::draw(seed, &cast(), most);
    let Some(keelson) = options.keelson.filter(|_| !options.show) else {
        print!("{schedule}");
        return Ok(());
    };
    println!("seed {seed}, {} minutes", options.minutes);
    let mut site = Site::open(&keelson).await?;
    let length = Duration::from_secs(options.minutes * 60);
    let mut run = Run { seed, folder: options.into.join(format!("seed-{seed}")), ..Run::default() };
    let done = run.all(&mut site, &schedule, length).await;
    if let Err(error) = &done
        && !matches!(error, Error::Violated { .. })
    {
        let folder = evidence::save(&site, &run.folder, &[("failed.txt", &error.to_string())])?;
        println!("what was seen is in {}", folder.display());
    }
    let healed = site.cluster.heal_all();
    let report = done?;
    healed?;
    println!("{}", report.text());
    Ok(())
}

/// What is known of a run.
#[derive(Default)]
struct Run {
    seed: u64,
    folder: PathBuf,
    began: u64,
    timeline: Timeline,
    report: Report,
    /// The last epoch of each database whose leadership is in the timeline, and the first.
    told: Vec<(u64, u64)>,
    /// What was struck so far, for people.
    struck: String,
}

impl Run {
    async fn all(&mut self, site: &mut Site, schedule: &Schedule, length: Duration) -> Result<Report> {
        site.set(cast()).await?;
        self.began = now();
        self.report = Report {
            seed: self.seed,
            databases: site.databases.iter().map(ToString::to_string).collect(),
            ..Report::default()
        };
        for database in &site.databases {
            let well = whole(site, database).await?;
            self.told.push((well.epoch, well.epoch));
        }
        site.begin_clients().await?;
        all_write(site).await?;
        println!("all is well after {:.0} s\n", (now() - self.began) as f64 / 1000.0);
        let start = Instant::now();
        for burst in &schedule.bursts {
            if start.elapsed() >= length {
                break;
            }
            self.burst(site, burst).await?;
            self.report.minutes = start.elapsed().as_secs_f64() / 60.0;
        }
        Ok(self.report.clone())
    }

    async fn burst(&mut self, site: &Site, burst: &Burst) -> Result<()> {
        print!("{burst}");
        self.struck += &burst.to_string();
        let from = now();
        let done = self.strike_all(site, burst).await?;
        let healed = now();
        let wells = match self.settle(site).await {
            Ok(wells) => wells,
            Err(error) => return self.broken(site, &[error.to_string()]),
        };
        let settled = (now() - healed) as f64 / 1000.0;
        let told = site.told()?;
        let mut broken = Vec::new();
        self.report.found.clear();
        let mut gaps = Vec::new();
        for (at, (database, well)) in site.databases.iter().zip(&wells).enumerate() {
            let (rows, asked) = site.rows(&well.leader)?;
            let found: Judgement = judge(database, &told[at], &rows, asked);
            broken.extend(found.broken.iter().map(|one| format!("{}: {one}", database.name)));
            self.tell_leaderships(at, database.name, well);
            self.report.found.push((found, well.epoch - self.told[at].1));
            gaps.push(longest_within(&told[at], from, now()));
        }
        self.report.add(&done, &gaps, settled);
        let gaps: Vec<String> = gaps.iter().map(|gap| format!("{gap:.1} s")).collect();
        println!("  well after {settled:.0} s; longest without writes: {}\n", gaps.join(", "));
        if broken.is_empty() { Ok(()) } else { self.broken(site, &broken) }
    }

    /// Does all of a burst, each at its time, and undoes it. Returns what was done.
    async fn strike_all(&mut self, site: &Site, burst: &Burst) -> Result<Vec<Kind>> {
        let begun = Instant::now();
        let mut snapshot = site.look().await?;
        let mut done = Vec::new();
        let mut open: Vec<(u64, String, Struck)> = Vec::new();
        let mut next = burst.troubles.iter().peekable();
        loop {
            let heals = open.iter().map(|(at, ..)| *at).min();
            let strikes = next.peek().map(|trouble| trouble.at);
            let Some(due) = [heals, strikes].into_iter().flatten().min() else { return Ok(done) };
            sleep(Duration::from_millis(due).saturating_sub(begun.elapsed())).await;
            if heals == Some(due) {
                let Some(first) = open.iter().position(|(at, ..)| *at == due) else { continue };
                let (_, words, struck) = open.swap_remove(first);
                self.note(format!("    over: {words}"));
                heal(site, &struck)?;
            } else if let Some(trouble) = next.next() {
                let away = open.iter().any(|(.., struck)| takes_api(struck));
                self.refresh(site, &mut snapshot, away).await;
                let (words, struck) = self.strike(site, &snapshot, trouble, burst.number);
                if !matches!(struck, Struck::Not(_)) {
                    done.push(trouble.kind);
                    let begun = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                    if trouble.long > 0 {
                        open.push((begun + trouble.long, words, struck));
                    }
                }
            }
        }
    }

    /// Who is where, as far as the API server can be asked.
    async fn refresh(&mut self, site: &Site, snapshot: &mut Snapshot, away: bool) {
        if away {
            return;
        }
        match timeout(LOOK, site.look()).await {
            Ok(Ok(seen)) => *snapshot = seen,
            Ok(Err(error)) => self.note(format!("    who is where can't be seen: {error}")),
            Err(_) => self.note("    who is where can't be seen in time".to_owned()),
        }
    }

    fn strike(
        &mut self,
        site: &Site,
        snapshot: &Snapshot,
        trouble: &Trouble,
        number: usize,
    ) -> (String, Struck) {
        let at = now();
        // What could not be asked for, since something else is wrong, was not done.
        let (struck, whom) = strike(site, snapshot, trouble, number)
            .unwrap_or_else(|error| (Struck::Not(error.to_string()), trouble.target.to_string()));
        let words = format!("{whom}: {}", trouble.kind.title());
        match &struck {
            Struck::Not(why) => self.timeline.add(at, format!("    not done: {words}: {why}")),
            _ => self.timeline.add(at, format!("    {words}")),
        }
        (words, struck)
    }

    fn note(&mut self, what: String) {
        self.timeline.add(now(), what);
    }

    /// Waits until all databases are well, and all clients write.
    async fn settle(&mut self, site: &Site) -> Result<Vec<Well>> {
        let mut wells = Vec::new();
        for database in &site.databases {
            wells.push(whole(site, database).await?);
        }
        all_write(site).await?;
        self.note("all is well".to_owned());
        Ok(wells)
    }

    fn tell_leaderships(&mut self, at: usize, database: &str, well: &Well) {
        let known = self.told[at].0;
        for one in &well.leaderships {
            let epoch = one.epoch.and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or_default();
            if epoch > known {
                let since = u64::try_from(one.since.0.as_millisecond()).unwrap_or_default();
                let why = one.why.as_ref().map(ToString::to_string).unwrap_or_default();
                self.timeline.add(since, format!("{database}: {} leads in epoch {epoch} ({why})", one.who));
            }
        }
        self.told[at].0 = well.epoch.max(known);
    }

    /// Shows and saves all that is known, and fails.
    fn broken(&mut self, site: &Site, broken: &[String]) -> Result<()> {
        let told = site.told()?;
        let mut timeline = self.timeline.clone();
        for (records, database) in told.iter().zip(&site.databases) {
            timeline = timeline.with_gaps(database.name, records);
        }
        let timeline = timeline.text(self.began);
        let what = broken.join("\n");
        println!("BROKEN, seed {}:\n{what}\n\nWhat was done:\n{}\n{timeline}", self.seed, self.struck);
        let texts =
            [("broken.txt", what.as_str()), ("schedule.txt", &self.struck), ("timeline.txt", &timeline)];
        let folder = evidence::save(site, &self.folder, &texts)?;
        println!("Again with: make chaos SEED={}", self.seed);
        Err(Error::Violated { count: broken.len(), folder })
    }
}

fn takes_api(struck: &Struck) -> bool {
    use testbed::Fault::{ComponentPause, ComponentStop};
    matches!(struck, Struck::Fault(ComponentStop { .. } | ComponentPause { .. }))
}
