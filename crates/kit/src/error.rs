//! What can go wrong in a round, said so that a person can act on it, and what class it is of.

use kube::core::Status;
use thiserror::Error;

use crate::retry::{Class, Classify};

/// A round's failure.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("{doing} {object}: {}", says(source))]
    Api {
        /// What was tried: `applying`, `reading`.
        doing: &'static str,
        /// On what: `ConfigMap default/hello`.
        object: String,
        /// What came of it.
        #[source]
        source: kube::Error,
    },
    /// The object is not what its kind says.
    #[error("{object} can't be read: {source}. Correct it; nothing is done for it until then")]
    Unreadable {
        /// The object.
        object: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// Something has the name of a child and is not one.
    #[error(
        "{object} is there already and does not belong to {owner}: {why}. \
         Rename or remove it, and it will be made anew"
    )]
    Taken {
        /// What is there.
        object: String,
        /// Who would need the name.
        owner: String,
        /// Whose it is, as far as is known.
        why: String,
    },
    /// What is known of it is not what is there any more.
    #[error("{object} is not what it was when it was last heard of: it is looked at again")]
    Outdated {
        /// The object.
        object: String,
    },
    /// A value that can't be written as JSON, or has no name: a mistake in the operator itself.
    #[error("{object} can't be written: {why}. This is a bug in the operator")]
    Unwritable {
        /// What it was.
        object: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Error::Api { source, .. } => source.class(),
            Error::Outdated { .. } => Class::Conflict,
            Error::Unreadable { .. } | Error::Unwritable { .. } => Class::Permanent,
            // Whoever has the name may be on its way out: its collection is no event of the object's.
            Error::Taken { .. } => Class::Transient,
        }
    }
}

impl Classify for kube::Error {
    fn class(&self) -> Class {
        match self {
            kube::Error::Api(status) => of_code(status.code),
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => Class::Permanent,
            _ => Class::Transient,
        }
    }
}

fn of_code(code: u16) -> Class {
    match code {
        // Something else was written meanwhile, or what was to be changed is gone: look again.
        404 | 409 | 410 => Class::Conflict,
        // The same request would be refused again.
        400 | 405 | 406 | 413 | 415 | 422 => Class::Permanent,
        // Rights can be given (403), and a server can recover.
        _ => Class::Transient,
    }
}

/// What the API server says, without the wrapping that programmers see.
pub(crate) fn says(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => match status.as_ref() {
            Status { message, code, .. } if message.is_empty() => format!("refused with status {code}"),
            Status { message, .. } => message.clone(),
        },
        kube::Error::Service(source) => source.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_next_follows_from_the_answer() {
        let class = |code| kube::Error::Api(Status::failure("no", "X").with_code(code).boxed()).class();
        for code in [403, 429, 500, 502, 503, 504] {
            assert_eq!(class(code), Class::Transient, "{code}");
        }
        for code in [404, 409, 410] {
            assert_eq!(class(code), Class::Conflict, "{code}");
        }
        for code in [400, 413, 422] {
            assert_eq!(class(code), Class::Permanent, "{code}");
        }
    }

    #[test]
    fn a_message_names_what_was_tried_on_what_and_the_servers_own_words() {
        let source = kube::Error::Api(Status::failure("name is too long", "Invalid").with_code(422).boxed());
        let error = Error::Api { doing: "applying", object: "ConfigMap default/hello".into(), source };
        assert_eq!(error.to_string(), "applying ConfigMap default/hello: name is too long");
    }
}
