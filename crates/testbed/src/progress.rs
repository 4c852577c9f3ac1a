//! Telling the person what is being done, and how long it took last time.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Result;
use crate::layout::Cache;

/// Runs steps and remembers their times.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    memory: PathBuf,
    bars: indicatif::MultiProgress,
}

impl Progress {
    pub(crate) fn new(cache: &Cache) -> Self {
        Progress { memory: cache.file("times.json"), bars: indicatif::MultiProgress::new() }
    }

    /// Says one line.
    pub(crate) fn say(&self, line: &str) {
        if self.bars.println(line).is_err() || self.bars.is_hidden() {
            eprintln!("{line}");
        }
    }

    /// Does one step that takes a while, with a clock beside it.
    pub(crate) fn step<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let step = self.begin(name);
        let result = work();
        step.end(result.is_ok());
        result
    }

    /// The same for a step that is spread over several awaits.
    pub(crate) fn begin(&self, name: &str) -> Step {
        let last = self.times().get(name).copied();
        let hint = last.map(|seconds| format!(" (last time {})", brief(seconds))).unwrap_or_default();
        let bar = self.bars.add(ProgressBar::new_spinner());
        if self.bars.is_hidden() {
            eprintln!("… {name}{hint}");
        } else {
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_message(format!("{name}{hint}"));
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Step { name: name.to_owned(), start: Instant::now(), bar, progress: self.clone() }
    }

    fn times(&self) -> BTreeMap<String, f64> {
        fs::read(&self.memory).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn remember(&self, name: &str, took: Duration) {
        let mut times = self.times();
        times.insert(name.to_owned(), took.as_secs_f64());
        // A hint for next time: not worth failing for.
        if let Ok(text) = serde_json::to_vec_pretty(&times) {
            let _ = fs::write(&self.memory, text);
        }
    }
}

/// A step under way.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    start: Instant,
    bar: ProgressBar,
    progress: Progress,
}

impl Step {
    /// Ends the step; only good ones are remembered.
    pub(crate) fn end(self, good: bool) {
        let took = self.start.elapsed();
        self.bar.finish_and_clear();
        self.progress.bars.remove(&self.bar);
        let mark = if good { "✓" } else { "✗" };
        self.progress.say(&format!("{mark} {} ({})", self.name, brief(took.as_secs_f64())));
        if good {
            self.progress.remember(&self.name, took);
        }
    }
}

fn brief(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1}s"),
        s if s < 60.0 => format!("{s:.0}s"),
        s => format!("{}m{:02}s", s as u64 / 60, s as u64 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn times_are_short_to_read() {
        assert_eq!(brief(0.44), "0.4s");
        assert_eq!(brief(59.4), "59s");
        assert_eq!(brief(61.0), "1m01s");
    }
}
