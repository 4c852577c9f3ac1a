//! Running other programs, here or inside a machine of the cluster.

use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Runs a program to its end and returns what it printed on standard output.
pub(crate) fn run(argv: &[&str]) -> Result<String> {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]);
    run_command(command)
}

/// The same for a command that needs more than arguments.
pub(crate) fn run_command(mut command: Command) -> Result<String> {
    let line = line_of(&command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Io { what: format!("starting `{line}`"), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut printed = output.stdout;
    printed.extend(output.stderr);
    let printed = String::from_utf8_lossy(&printed);
    Err(Error::Command { command: line, status: output.status.to_string(), output: last_lines(&printed, 20) })
}

/// Runs a program with a text on its standard input.
pub(crate) fn run_with_input(argv: &[&str], input: &str) -> Result<()> {
    use std::io::Write;
    let io = |source| Error::Io { what: format!("running `{}`", argv.join(" ")), source };
    let mut child = Command::new(argv[0])
        .args(&argv[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(io)?;
    }
    let output = child.wait_with_output().map_err(io)?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        command: argv.join(" "),
        status: output.status.to_string(),
        output: last_lines(&printed, 20),
    })
}

/// Lets a program run on its own. Somebody must take note of its end, or it stays as a zombie for as
/// long as this process lives.
pub(crate) fn let_go(mut child: std::process::Child) {
    std::thread::spawn(move || child.wait());
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The last `count` lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
