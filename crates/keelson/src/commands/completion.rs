//! `keelson completion`: what a shell needs to complete these commands.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::{Ended, Failure};
use crate::Cli;

/// For which shell.
#[derive(Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: For,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

/// Prints it.
pub fn completion(args: CompletionArgs) -> Result<Ended, Failure> {
    print!("{}", script(args.shell));
    Ok(Ended::Well)
}

fn script(shell: For) -> String {
    let shell = match shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
        For::Powershell => Shell::PowerShell,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "keelson", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_the_commands() {
        for shell in For::value_variants() {
            let script = script(*shell);
            assert!(script.contains("switchover") && script.contains("all-namespaces"), "{shell:?}");
        }
    }
}
