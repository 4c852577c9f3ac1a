//! `keelson plan`: what the operator would do with a Database, and why, before it does.
//!
//! [`manifest`] reads what somebody wrote, [`proposal`] asks the cluster what it would make of that and whether it takes
//! it, [`facts`] gathers what the operator would go by and asks its own plan, [`view`] says it, [`text`] prints it.
//! Nothing is changed, and no Secret is read.

mod diff;
mod facts;
mod manifest;
mod proposal;
mod text;
mod view;

#[cfg(test)]
mod tests;

use clap::Args;

use self::view::{PlanView, Verdict};
use super::cluster::{ClusterArgs, find};
use super::output::OutputArgs;
use super::paint::Paint;
use super::{Ended, Failure};

/// Of what.
#[derive(Args)]
pub struct PlanArgs {
    /// A Database as it is, instead of a file: what is still to be done about it.
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    database: Option<String>,
    /// Files with Databases, `-` for standard input, or folders of `.yaml`, `.yml` and `.json`.
    #[arg(long, short, value_name = "FILE")]
    filename: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints it, and ends with the weightiest of it.
pub async fn plan(args: PlanArgs) -> Result<Ended, Failure> {
    let manifests = args.filename.iter().map(|name| manifest::read(name)).collect::<Result<Vec<_>, _>>()?;
    let (databases, others) = manifest::sorted(manifests.into_iter().flatten().collect());
    let connected = args.cluster.connect().await?;
    let mut views = Vec::new();
    if let Some(name) = &args.database {
        let database = find(&connected.client, &connected.namespace, name).await?;
        let proposal = proposal::Proposal::none(database);
        views.push(view::view(&facts::gather(&connected.client, proposal).await?));
    }
    for manifest in databases {
        let proposal = proposal::propose(&connected, args.cluster.namespace.as_deref(), manifest).await?;
        views.push(view::view(&facts::gather(&connected.client, proposal).await?));
    }
    if views.is_empty() {
        return Err(Failure::Said(format!(
            "there is no Database in {}: name a file that has one",
            args.filename.join(", ")
        )));
    }
    print!("{}", args.output.say(&views, || text::plans(&views, &others, Paint::of_stdout()))?);
    ended(&views)
}

fn ended(views: &[PlanView]) -> Result<Ended, Failure> {
    let refused: Vec<String> = views
        .iter()
        .filter(|view| view.verdict == Verdict::Refused)
        .map(|view| format!("{}/{}", view.namespace, view.name))
        .collect();
    if !refused.is_empty() {
        let names = super::words::listed(&refused);
        return Err(Failure::Said(format!("nothing would be done about {names}: see above why")));
    }
    Ok(match views.iter().map(|view| view.verdict).max() {
        Some(Verdict::Restarts) => Ended::More,
        Some(Verdict::Changes) => Ended::Wrong,
        _ => Ended::Well,
    })
}
