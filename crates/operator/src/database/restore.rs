//! Where the first data of a database comes from. Once agents have been told, it stays as it was told: the object that
//! was asked may be gone by the time that the data is there.

use keelson_api::instance::{RestorePoint, RestoreRule, Store, Use};
use keelson_api::v1::{Backup, Database, Moment, Repository, RestoreSource, Settings};
use keelson_kit::{Error, Round};

use super::act;
use super::facts::Observed;

/// What another object says of where data comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A repository, with its path filled in.
    Found {
        /// Which.
        repository: Box<Repository>,
        /// The backup in it to begin with, if one is named.
        backup: Option<String>,
    },
    /// Nothing that could be restored, and why.
    Missing(String),
}

/// Where a new database takes its data from, if not from nowhere. The error says what is missing.
pub(super) fn rule(seen: &Observed, settings: &Settings) -> Result<Option<RestoreRule>, String> {
    let told = seen.config.as_ref().and_then(|config| config.restore.clone());
    let Some(restore) = settings.restore.as_ref() else { return Ok(None) };
    if told.is_some() || is_there(seen) {
        return Ok(told);
    }
    let to = point(&restore.to);
    let timeline = restore.timeline;
    let Some(source) = &restore.from else { return Ok(None) };
    let from = |repository: &Repository| Store::of(repository, &seen.namespace, &seen.name, Use::Restore);
    match (&source.repository, &seen.source) {
        (Some(repository), _) => Ok(Some(RestoreRule { from: from(repository), backup: None, to, timeline })),
        (None, Some(Source::Found { repository, backup })) => {
            Ok(Some(RestoreRule { from: from(repository), backup: backup.clone(), to, timeline }))
        }
        (None, Some(Source::Missing(why))) => Err(why.clone()),
        (None, None) => {
            Err("spec.restore.from names nothing: name a backup, a database or a repository".to_owned())
        }
    }
}

/// A moment, as agents are told of it.
pub(super) fn point(moment: &Moment) -> RestorePoint {
    match moment {
        Moment::Latest => RestorePoint::Latest,
        Moment::Time(time) => RestorePoint::Time(*time),
        Moment::Lsn(lsn) => RestorePoint::Lsn(lsn.clone()),
        Moment::Name(name) => RestorePoint::Name(name.clone()),
    }
}

/// Whether there is a database already: then where it came from is of no interest any more.
pub(super) fn is_there(seen: &Observed) -> bool {
    seen.exists() || seen.config.as_ref().is_some_and(|config| config.system.is_some())
}

/// Whether another object has to be asked where data comes from.
pub fn is_to_be_asked_for(seen: &Observed) -> bool {
    let from = seen.spec.restore.as_ref().and_then(|restore| restore.from.as_ref());
    let told = seen.config.as_ref().is_some_and(|config| config.restore.is_some());
    from.is_some_and(|from| from.repository.is_none()) && !told && !is_there(seen)
}

/// Asks the Backup or the Database that the spec names.
pub(super) async fn find(seen: &Observed, round: &Round) -> Result<Option<Source>, Error> {
    let Some(from) = seen.spec.restore.as_ref().and_then(|restore| restore.from.as_ref()) else {
        return Ok(None);
    };
    let (database, backup) = match from {
        RestoreSource { backup: Some(name), .. } => {
            let found = act::api::<Backup>(round).get_opt(name).await;
            let found = found.map_err(|source| act::failed::<Backup>("reading", round, name, source))?;
            match of_backup(name, found) {
                Ok((database, id)) => (database, Some(id)),
                Err(missing) => return Ok(Some(missing)),
            }
        }
        RestoreSource { database: Some(name), .. } => (name.clone(), None),
        _ => return Ok(None),
    };
    let found = act::api::<Database>(round).get_opt(&database).await;
    let found = found.map_err(|source| act::failed::<Database>("reading", round, &database, source))?;
    Ok(Some(of_database(&seen.namespace, &database, backup, found)))
}

/// The Database that a Backup is of, and what it is called in the repository.
pub fn of_backup(name: &str, found: Option<Backup>) -> Result<(String, String), Source> {
    let known = found.and_then(|backup| Some((backup.spec.database, backup.status?.id?)));
    known.ok_or_else(|| {
        let why =
            format!("there is no complete Backup {name} in this namespace: name another, or wait for it");
        Source::Missing(why)
    })
}

/// The repository that a Database names, with its path.
pub fn of_database(namespace: &str, name: &str, backup: Option<String>, found: Option<Database>) -> Source {
    match found.and_then(|found| found.spec.backup?.to) {
        Some(repository) => {
            let path = format!("{namespace}/{name}");
            Source::Found { repository: Box::new(repository.with_path(&path)), backup }
        }
        None => Source::Missing(format!(
            "there is no Database {name} in this namespace that says where its backups are: name the repository \
             itself in spec.restore.from.repository"
        )),
    }
}
