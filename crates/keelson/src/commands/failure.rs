//! Why a command could not do its work, with what to do next.

use std::error::Error as _;

use thiserror::Error;

use super::words::{listed, program};

/// Why a command could not do its work.
#[derive(Debug, Error)]
pub enum Failure {
    /// There is nothing to connect to.
    #[error(
        "no way to a cluster is known: {why}. Name a kubeconfig with --kubeconfig or KUBECONFIG; \
         `kubectl config get-contexts` lists what there is"
    )]
    NoKubeconfig {
        /// What was found instead.
        why: String,
    },
    /// The cluster does not answer.
    #[error(
        "{doing}: the cluster does not answer ({why}). Is it running, and is it the one you mean? \
         `kubectl cluster-info` asks the same one"
    )]
    Away {
        /// What was tried.
        doing: String,
        /// What came of it.
        why: String,
    },
    /// The cluster knows no Databases.
    #[error(
        "{doing}: this cluster does not know the kinds of Keelson. `{0} install` installs it, `{0} doctor` says what is \
         missing",
        program()
    )]
    NotInstalled {
        /// What was tried.
        doing: String,
    },
    /// The cluster does not know who asks.
    #[error(
        "{doing}: the cluster does not accept who you say you are ({said}). Sign in again, or choose another --context"
    )]
    Unauthorized {
        /// What was tried.
        doing: String,
        /// What it says.
        said: String,
    },
    /// The person may not.
    #[error("{doing}: you may not ({said}). Ask whoever runs this cluster for that right")]
    Forbidden {
        /// What was tried.
        doing: String,
        /// What the cluster says.
        said: String,
    },
    /// The cluster refuses what was asked for.
    #[error("{doing}: the cluster refuses it: {said}")]
    Refused {
        /// What was tried.
        doing: String,
        /// What the cluster says.
        said: String,
    },
    /// There is no such Database.
    #[error("there is no Database {name} in the namespace {namespace}{}", instead(.near, .elsewhere, .none))]
    NoDatabase {
        /// What was asked for.
        name: String,
        /// Where.
        namespace: String,
        /// Databases there whose names are like it.
        near: Vec<String>,
        /// Namespaces that have one of that name.
        elsewhere: Vec<String>,
        /// Whether there is no Database at all in that namespace.
        none: bool,
    },
    /// Something that only the command itself can say.
    #[error("{0}")]
    Said(String),
}

impl Failure {
    /// What an answer of the cluster means for what was tried.
    pub fn of(doing: impl Into<String>, error: &kube::Error) -> Failure {
        let doing = doing.into();
        match error {
            kube::Error::Api(status) => {
                let said = status.message.trim().to_owned();
                // Only where the kind itself is unknown; a name that is not there is named in the message.
                let unknown = said.contains("could not find the requested resource")
                    || said.contains("page not found")
                    || said.is_empty();
                match status.code {
                    401 => Failure::Unauthorized { doing, said },
                    403 => Failure::Forbidden { doing, said },
                    404 if unknown => Failure::NotInstalled { doing },
                    400 | 409 | 422 => Failure::Refused { doing, said },
                    _ => Failure::Said(format!("{doing}: {said}")),
                }
            }
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                Failure::Away { doing, why: innermost(error) }
            }
            other => Failure::Said(format!("{doing}: {other}")),
        }
    }

    /// The same, for a request that has just failed.
    pub fn during(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Failure {
        move |error| Failure::of(doing, &error)
    }
}

/// What lies under all that wraps it.
fn innermost(error: &kube::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        said = inner.to_string();
        source = inner.source();
    }
    said
}

fn instead(near: &[String], elsewhere: &[String], none: &bool) -> String {
    let program = program();
    match (near, elsewhere) {
        ([], []) if *none => format!(", nor any other. `{program} status --all-namespaces` lists all"),
        ([], []) => format!(". `{program} status` lists those that are there"),
        ([], [only]) => format!(", but in {only}: add --namespace {only}"),
        ([], several) => format!(", but in {}: name the one you mean with --namespace", listed(several)),
        ([only], _) => format!(". Do you mean {only}?"),
        (several, _) => format!(". Do you mean one of {}?", listed(several)),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
    }

    #[test]
    fn each_answer_of_a_cluster_says_what_to_do_next() {
        let said = |code, message: &str| Failure::of("reading orders", &answer(code, message)).to_string();
        assert!(said(401, "Unauthorized").contains("Sign in again"));
        assert!(said(403, "databases is forbidden").contains("you may not (databases is forbidden)"));
        let unknown = said(404, "the server could not find the requested resource");
        assert!(unknown.contains("install` installs it"), "{unknown}");
        assert_eq!(said(404, "pods \"x\" not found"), "reading orders: pods \"x\" not found");
        assert!(said(422, "spec is immutable").contains("the cluster refuses it: spec is immutable"));
    }

    #[test]
    fn who_mistypes_a_name_is_told_of_near_ones() {
        let said = |near: &[&str], elsewhere: &[&str], none| {
            let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
            let (near, elsewhere) = (texts(near), texts(elsewhere));
            let (name, namespace) = ("ordres".to_owned(), "shop".to_owned());
            Failure::NoDatabase { name, namespace, near, elsewhere, none }.to_string()
        };
        let start = "there is no Database ordres in the namespace shop";
        assert_eq!(said(&["orders"], &["x"], false), format!("{start}. Do you mean orders?"));
        assert_eq!(said(&["a", "b", "c"], &[], false), format!("{start}. Do you mean one of a, b and c?"));
        assert_eq!(said(&[], &["prod"], true), format!("{start}, but in prod: add --namespace prod"));
        assert!(said(&[], &[], true).ends_with("status --all-namespaces` lists all"));
        assert!(said(&[], &[], false).ends_with("status` lists those that are there"));
    }
}
