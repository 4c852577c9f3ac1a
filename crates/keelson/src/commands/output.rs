//! For people or for programs.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Failure;

/// What programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Print it for programs, instead of for people.
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<Format>,
}

impl OutputArgs {
    /// The view in the format that was asked for, or else as the text.
    pub fn say(&self, view: &impl Serialize, text: impl FnOnce() -> String) -> Result<String, Failure> {
        match self.output {
            None => Ok(text()),
            Some(format) => machine(format, view),
        }
    }
}

/// A view as programs read it.
pub fn machine(format: Format, view: &impl Serialize) -> Result<String, Failure> {
    let said =
        |error: String| Failure::Said(format!("this can't be written: {error}. This is a bug in Keelson"));
    match format {
        Format::Json => {
            let text = serde_json::to_string_pretty(view).map_err(|error| said(error.to_string()))?;
            Ok(text + "\n")
        }
        Format::Yaml => yaml(view),
    }
}

/// As YAML.
pub fn yaml(view: &impl Serialize) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(view).map_err(|error| {
        Failure::Said(format!("this can't be written: {error}. This is a bug in Keelson"))
    })?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}
