//! Whether PostgreSQL would take a configuration, before it is written over a good one.
//!
//! `postgres -C shared_memory_size` reads the whole configuration, loads what is to be preloaded, checks what
//! fits together with what, works out how much shared memory it would take, prints that and ends, in some
//! 20 ms. It needs a data folder for this, but only looks at the version and the control file; so it gets
//! a folder with copies of these, and does not notice the server that may be running.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::conf::is_name;
use super::folders::write;
use super::program::Programs;
use super::settings::Settings;
use crate::error::{During, Error, Result};

/// Refuses a configuration that PostgreSQL would refuse.
pub(crate) async fn check(programs: &Programs, settings: &Settings, conf: &str) -> Result<()> {
    if let Some(name) = settings.parameters.keys().find(|name| !is_name(name)) {
        return Err(Error::Parameter {
            parameter: Some(name.clone()),
            said: "this is no name of a parameter".into(),
        });
    }
    let candidate = programs.layout.config_file("candidate.conf");
    write(&candidate, conf)?;
    for _ in 0..5 {
        match ask(programs, settings, &candidate).await {
            // Copied while the server was writing it: nothing to do with the parameters.
            Err(Error::Program { said, .. }) if said.contains("control file") => {}
            Err(Error::Program { said, .. }) => return Err(explained(&said, settings)),
            other => return other,
        }
    }
    Err(Error::Data { doing: "checking parameters", why: "the control file can't be read".into() })
}

async fn ask(programs: &Programs, settings: &Settings, candidate: &Path) -> Result<()> {
    let folder = scratch(programs)?;
    // What is computed needs a control file, and exists since version 15.
    let deep = programs.major >= 15 && folder.join("global/pg_control").exists();
    let asked = if deep { "shared_memory_size" } else { "max_connections" };
    let arguments = [
        "-D".into(),
        folder.into_os_string(),
        format!("--config-file={}", candidate.display()).into(),
        "-c".into(),
        "log_line_prefix=".into(),
        "-C".into(),
        asked.into(),
    ];
    let printed = programs.run("postgres", arguments, |_| ()).await?;
    if deep { fits(settings, printed.trim()) } else { Ok(()) }
}

fn scratch(programs: &Programs) -> Result<PathBuf> {
    let (folder, data) = (programs.layout.config_file("check"), programs.layout.data());
    let global = folder.join("global");
    fs::create_dir_all(&global).during("creating", &global)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).during("protecting", &folder)?;
    let version = folder.join("PG_VERSION");
    fs::write(&version, format!("{}\n", programs.major)).during("writing", &version)?;
    // Of another run, perhaps of another process that now has its number.
    let _ = fs::remove_file(folder.join("postmaster.pid"));
    let control = data.join("global/pg_control");
    if control.exists() {
        fs::copy(&control, global.join("pg_control")).during("copying", &control)?;
    }
    Ok(folder)
}

/// PostgreSQL would find out only at its next start, and then not start at all.
fn fits(settings: &Settings, printed: &str) -> Result<()> {
    let memory = settings.resources.memory >> 20;
    match printed.parse::<u64>() {
        Ok(shared) if shared > memory / 10 * 9 => {
            let said = format!(
                "with these parameters it would need {shared} MB of shared memory, and the instance has {memory} MB in all"
            );
            Err(Error::Parameter { parameter: Some("shared_buffers".into()), said })
        }
        _ => Ok(()),
    }
}

/// Finds the parameter and PostgreSQL's own words in what it printed.
fn explained(printed: &str, settings: &Settings) -> Error {
    let noise = ["skipping missing configuration file", "contains errors"];
    let mut said: Vec<&str> = Vec::new();
    for line in printed.lines().filter(|line| !noise.iter().any(|noise| line.contains(noise))) {
        let text = line.split_once(":  ").map_or(line, |(_, text)| text).trim_start_matches("postgres: ");
        let more = line.starts_with("DETAIL:") || line.starts_with("HINT:");
        // The first complaint, with its detail and hint, is enough to act on.
        if !said.is_empty() && !more {
            break;
        }
        said.push(text);
    }
    let text = said.join("; ");
    // Not "at line 7 of a file": nobody outside sees that file.
    let text = text.split(" in file \"").next().unwrap_or(&text).to_owned();
    let quoted = text.split_once("parameter \"").and_then(|(_, rest)| rest.split('"').next());
    let asked = || settings.parameters.keys().find(|name| text.contains(name.as_str())).map(String::as_str);
    let preload = || text.starts_with("could not access file").then_some("shared_preload_libraries");
    let parameter = quoted.or_else(asked).or_else(preload).map(str::to_owned);
    Error::Parameter { parameter, said: text }
}

#[cfg(test)]
mod tests {
    use super::super::conf::tests::settings;
    use super::*;

    fn told(printed: &str) -> (Option<String>, String) {
        let mut settings = settings();
        settings.parameters.insert("max_connections".into(), "5".into());
        match explained(printed, &settings) {
            Error::Parameter { parameter, said } => (parameter, said),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_parameter_and_the_reason_are_found_in_what_postgresql_prints() {
        for (printed, parameter, said) in [
            (
                "LOG:  skipping missing configuration file \"/x/postgresql.auto.conf\"\n\
                 LOG:  invalid value for parameter \"work_mem\": \"3 parsecs\"\n\
                 HINT:  Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".\n\
                 FATAL:  configuration file \"/x/candidate.conf\" contains errors",
                Some("work_mem"),
                "invalid value for parameter \"work_mem\": \"3 parsecs\"; \
                 Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
            ),
            (
                "LOG:  unrecognized configuration parameter \"nonsense\" in file \"/x/candidate.conf\" line 1\n\
                 FATAL:  configuration file \"/x/candidate.conf\" contains errors",
                Some("nonsense"),
                "unrecognized configuration parameter \"nonsense\"",
            ),
            (
                "postgres: superuser_reserved_connections (10) must be less than max_connections (5)",
                Some("max_connections"),
                "superuser_reserved_connections (10) must be less than max_connections (5)",
            ),
            (
                "FATAL:  could not access file \"nope\": No such file or directory",
                Some("shared_preload_libraries"),
                "could not access file \"nope\": No such file or directory",
            ),
            ("something else", None, "something else"),
        ] {
            assert_eq!(told(printed), (parameter.map(str::to_owned), said.to_owned()));
        }
    }

    #[test]
    fn more_shared_memory_than_there_is_is_refused() {
        assert!(fits(&settings(), "300").is_ok());
        let error = fits(&settings(), "1000").unwrap_err().to_string();
        assert!(error.contains("shared_buffers") && error.contains("1024 MB in all"), "{error}");
    }
}
