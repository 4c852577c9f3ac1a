//! `keelson top`: the table of `status`, again and again.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::cluster::ClusterArgs;
use super::paint::Paint;
use super::words::moment;
use super::{Ended, Failure, status};

/// Of what, and how often.
#[derive(Args)]
pub struct TopArgs {
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// How many seconds lie between two looks.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Clears the screen, and begins at its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Until somebody ends it; once, where nobody looks at a terminal.
pub async fn top(args: TopArgs) -> Result<Ended, Failure> {
    let connected = args.cluster.connect().await?;
    let place = (!args.all_namespaces).then_some(connected.namespace.as_str());
    let live = std::io::stdout().is_terminal();
    let mut last = String::new();
    loop {
        // A cluster that stutters is no reason to stop looking at it.
        let (table, note) = match status::rows(&connected, args.all_namespaces).await {
            Ok(rows) => (status::text::table(&rows, place, Paint::of_stdout()), String::new()),
            Err(failure) if last.is_empty() => return Err(failure),
            Err(failure) => (last.clone(), format!("\nas it was before: {failure}\n")),
        };
        if !live {
            print!("{table}");
            return Ok(Ended::Well);
        }
        print!(
            "{CLEAR}{}  every {} s, Ctrl-C ends it\n\n{table}{note}",
            moment(Timestamp::now()),
            args.interval
        );
        drop(std::io::stdout().flush());
        last = table;
        tokio::time::sleep(Duration::from_secs(args.interval)).await;
    }
}
