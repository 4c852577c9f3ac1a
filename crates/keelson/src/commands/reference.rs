//! docs/commands.md, from the commands themselves.

use clap::{Command, CommandFactory};

use super::EXIT_CODES;
use super::hints::{HINTS, Hint};
use crate::Cli;

/// What stands before the commands.
const HEAD: &str = include_str!("reference.md");

/// Examples, and what they print where that is checked in.
const EXAMPLES: &[(&str, &[&str], Option<&str>)] = &[
    (
        "status",
        &["kubectl keelson status -A", "kubectl keelson status orders"],
        Some(include_str!("golden/status-bad.txt")),
    ),
    ("top", &["kubectl keelson top -A"], Some(include_str!("golden/status-table-all.txt"))),
    ("plan", &["kubectl keelson plan -f orders.yaml"], Some(include_str!("golden/plan-resources.txt"))),
    ("psql", &["kubectl keelson psql orders", "kubectl keelson psql orders -- -c 'select now()'"], None),
    ("logs", &["kubectl keelson logs orders --since 15m --follow"], None),
    ("switchover", &["kubectl keelson switchover orders --to orders-1"], None),
    (
        "restart",
        &["kubectl keelson restart orders", "kubectl keelson restart orders --instance orders-2"],
        None,
    ),
    ("backup", &["kubectl keelson backup orders --keep"], None),
    (
        "restore",
        &[
            "kubectl keelson restore orders --to 2026-11-18T11:00:00Z --dry-run",
            "kubectl keelson restore orders --to 15m --as orders-before",
        ],
        Some(include_str!("golden/restore.yaml")),
    ),
    ("doctor", &["kubectl keelson doctor"], Some(include_str!("golden/doctor-bad.txt"))),
    ("report", &["kubectl keelson report orders"], None),
    ("install", &["kubectl keelson install --image NAME:TAG", "kubectl keelson install --dry-run"], None),
    ("completion", &["source <(keelson completion bash)"], None),
];

/// The page.
fn page() -> String {
    let mut page = HEAD.replace("EXIT_CODES", EXIT_CODES);
    for command in Cli::command().get_subcommands_mut().filter(|command| is_for_people(command)) {
        let name = command.get_name().to_owned();
        page += &format!("\n## {name}\n\n");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        page += &format!("{about}.\n\n");
        if let Some((_, examples, printed)) = EXAMPLES.iter().find(|(one, ..)| *one == name) {
            page += &format!("```\n{}\n```\n\n", examples.join("\n"));
            if let Some(printed) = printed {
                let which = if examples.len() > 1 { "The last of them prints" } else { "It prints" };
                page += &format!("{which}, for example:\n\n```\n{}```\n\n", *printed);
            }
        }
        let help = command
            .clone()
            .bin_name(format!("kubectl keelson {name}"))
            .term_width(100)
            .render_help()
            .to_string();
        let (_, usage) = help.split_once("Usage:").unwrap_or(("", &help));
        let usage: Vec<&str> = usage.trim().lines().map(str::trim_end).collect();
        page += &format!("```\n{}\n```\n", usage.join("\n"));
    }
    page += "\n## Reasons\n\nThe reasons of conditions that something is wrong, and what to do. `status` shows the same beside \
             each.\n\n| reason | what to do | more |\n|---|---|---|\n";
    for (reason, Hint { what, docs }) in HINTS {
        let link = docs.trim_start_matches("docs/");
        let more = if link == "commands.md#reasons" { String::new() } else { format!("[{link}]({link})") };
        page += &format!("| `{reason}` | {what} | {more} |\n");
    }
    page
}

fn is_for_people(command: &Command) -> bool {
    !["operator", "agent", "fetch-log", "copy-to", "help"].contains(&command.get_name())
}

#[test]
fn the_page_is_current_and_has_an_example_of_every_command() {
    for command in Cli::command().get_subcommands().filter(|command| is_for_people(command)) {
        assert!(EXAMPLES.iter().any(|(name, ..)| *name == command.get_name()), "{}", command.get_name());
    }
    super::golden::golden("../../../../../docs/commands.md", &page());
}

#[test]
fn the_commands_fit_together() {
    Cli::command().debug_assert();
}
