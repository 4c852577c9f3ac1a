//! `keelson status`: how databases are, and above all what is wrong with them and what to do.
//!
//! [`facts`] asks the cluster, [`judge`] says what that means, as a [`view`], [`text`] prints it.

pub mod facts;
mod judge;
mod lease;
pub mod text;
pub mod view;

#[cfg(test)]
pub mod tests;

use clap::Args;
use jiff::Timestamp;
use keelson_api::v1::Database;
use kube::Api;
use kube::api::ListParams;

use self::view::{DatabaseView, Row, Verdict};
use super::cluster::{ClusterArgs, Connected, find};
use super::output::OutputArgs;
use super::paint::Paint;
use super::{Ended, Failure};

/// Of which databases, and how.
#[derive(Args)]
pub struct StatusArgs {
    /// The Database; without it, a table of all.
    database: Option<String>,
    /// In all namespaces.
    #[arg(long, short = 'A', conflicts_with = "database")]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints how things are, and ends with what is the worst of it.
pub async fn status(args: StatusArgs) -> Result<Ended, Failure> {
    let connected = args.cluster.connect().await?;
    let (text, worst) = match &args.database {
        Some(name) => {
            let view = look(&connected, name).await?;
            (args.output.say(&view, || text::database(&view, Paint::of_stdout()))?, view.verdict)
        }
        None => {
            let rows = rows(&connected, args.all_namespaces).await?;
            let place = (!args.all_namespaces).then_some(connected.namespace.as_str());
            let text = args.output.say(&rows, || text::table(&rows, place, Paint::of_stdout()))?;
            (text, judge::worst(&rows))
        }
    };
    print!("{text}");
    Ok(match worst {
        Verdict::Well => Ended::Well,
        Verdict::Wrong => Ended::Wrong,
        Verdict::UnderWay => Ended::More,
    })
}

/// One Database, in full.
pub async fn look(connected: &Connected, name: &str) -> Result<DatabaseView, Failure> {
    let Connected { client, namespace } = connected;
    let database = find(client, namespace, name).await?;
    Ok(judge::database(&facts::gather(client, database).await, Timestamp::now()))
}

/// All of a namespace, or of all.
pub async fn rows(connected: &Connected, all_namespaces: bool) -> Result<Vec<Row>, Failure> {
    let Connected { client, namespace } = connected;
    let (databases, place): (Api<Database>, _) = match all_namespaces {
        true => (Api::all(client.clone()), "all namespaces".to_owned()),
        false => (Api::namespaced(client.clone(), namespace), format!("the namespace {namespace}")),
    };
    let found = databases.list(&ListParams::default()).await;
    let found = found.map_err(Failure::during(format!("listing Databases of {place}")))?.items;
    let now = Timestamp::now();
    let mut rows: Vec<Row> = found.iter().map(|database| judge::row(database, now)).collect();
    rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(rows)
}
