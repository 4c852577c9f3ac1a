//! `keelson psql`: a session with the primary, as a person would have it with kubectl.
//!
//! It goes over the socket in the instance's own container, where PostgreSQL knows who asks: there is no password, and so
//! none in an argument. kubectl does it, since it knows terminals, proxies and every way to sign in to a cluster.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use keelson_api::v1::Database;

use super::cluster::{Found, Which};
use super::words::{listed, program};
use super::{Ended, Failure};

/// With which database, and what to ask it.
#[derive(Args)]
pub struct PsqlArgs {
    #[command(flatten)]
    which: Which,
    /// Another instance than the primary.
    #[arg(long, value_name = "POD")]
    instance: Option<String>,
    /// What psql is given, such as `-c 'select 1'`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Becomes kubectl.
pub async fn psql(args: PsqlArgs) -> Result<Ended, Failure> {
    let Found { namespace, database, .. } = args.which.find().await?;
    let pod = instance(&database, args.instance.as_deref())?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let words = words(&args.which.cluster.for_kubectl(&namespace), &pod, terminal, &args.arguments);
    let error = Command::new("kubectl").args(words).exec();
    Err(Failure::Said(format!("starting kubectl: {error}. It has to be on the PATH")))
}

/// The instance that is meant.
fn instance(database: &Database, named: Option<&str>) -> Result<String, Failure> {
    let name = database.metadata.name.as_deref().unwrap_or_default();
    let status = database.status.clone().unwrap_or_default();
    let all: Vec<String> = status.instances.iter().map(|one| one.name.clone()).collect();
    match named {
        Some(named) if all.iter().any(|one| one == named) => Ok(named.to_owned()),
        Some(named) => Err(Failure::Said(format!("{named} is no instance of {name}. Those are {}", listed(&all)))),
        None => status.primary.ok_or_else(|| {
            Failure::Said(format!(
                "nobody takes writes of {name} at the moment: `{} status {name}` says why. --instance asks another one \
                 of {}",
                program(),
                listed(&all)
            ))
        }),
    }
}

fn words(cluster: &[String], pod: &str, terminal: bool, arguments: &[String]) -> Vec<String> {
    let mut words: Vec<&str> = vec!["exec", pod, "--container", "database", "--stdin"];
    if terminal {
        words.push("--tty");
    }
    words.extend(cluster.iter().map(String::as_str));
    // What is named later wins, so a person's own -d and -U do.
    words.extend(["--", "psql", "--username", "postgres", "--dbname", "app"]);
    words.extend(arguments.iter().map(String::as_str));
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn database(primary: Option<&str>) -> Database {
        serde_json::from_value(json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": {},
            "status": {"primary": primary, "instances": [{"name": "orders-0"}, {"name": "orders-1"}]}
        }))
        .unwrap()
    }

    #[test]
    fn kubectl_is_told_where_and_psql_what() {
        let cluster = ["--namespace", "shop"].map(str::to_owned);
        let arguments = ["-c", "select 1"].map(str::to_owned);
        assert_eq!(
            words(&cluster, "orders-1", true, &arguments).join(" "),
            "exec orders-1 --container database --stdin --tty --namespace shop -- psql --username postgres --dbname app \
             -c select 1"
        );
        assert!(!words(&cluster, "orders-1", false, &[]).contains(&"--tty".to_owned()));
    }

    #[test]
    fn the_primary_is_asked_unless_another_is_named() {
        assert_eq!(instance(&database(Some("orders-1")), None).unwrap(), "orders-1");
        assert_eq!(instance(&database(Some("orders-1")), Some("orders-0")).unwrap(), "orders-0");
        let wrong = instance(&database(None), Some("orders-7")).unwrap_err().to_string();
        assert_eq!(wrong, "orders-7 is no instance of orders. Those are orders-0 and orders-1");
        let nobody = instance(&database(None), None).unwrap_err().to_string();
        assert!(nobody.contains("status orders` says why"), "{nobody}");
    }
}
