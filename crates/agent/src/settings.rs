//! The settings of the instance, as the operator writes them: watched in the API server, so that a change
//! is known at once, and read from the mounted file while that is away.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_api::instance::{InstanceSettings, Names, SETTINGS_KEY, fingerprint, paths};
use keelson_api::v1::{Durability, StandbyPolicy};
use keelson_ha::Settings;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::environment::Environment;

/// Settings, and a short name for the text that they were read from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    /// What they say.
    pub settings: InstanceSettings,
    /// Which ones they are.
    pub fingerprint: String,
}

/// Reads settings from a text. What can't be read is said, and what was known before stays.
fn parse(text: &str, from: &str) -> Option<Known> {
    match serde_json::from_str(text) {
        Ok(settings) => Some(Known { settings, fingerprint: fingerprint(text) }),
        Err(error) => {
            tracing::error!(%error, from, "the settings can't be read, and those known before stay in force");
            None
        }
    }
}

/// From the mounted file.
fn from_file() -> Option<Known> {
    let path = Path::new(paths::CONFIG).join(SETTINGS_KEY);
    let text = std::fs::read_to_string(&path)
        .inspect_err(|error| tracing::warn!(%error, path = %path.display(), "no settings are mounted"));
    parse(&text.ok()?, "the mounted file")
}

/// Follows the settings until nobody listens any more. The first are there when this returns.
pub(crate) async fn follow(client: Client, here: &Environment) -> watch::Receiver<Known> {
    let api: Api<ConfigMap> = Api::namespaced(client, &here.namespace);
    let name = Names(&here.database).config();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut found = watcher(api, config)
        .default_backoff()
        .applied_objects()
        .filter_map(|found| async {
            let text = found.ok()?.data?.remove(SETTINGS_KEY)?;
            parse(&text, "the API server")
        })
        .boxed();
    let first = loop {
        // The file is as old as the kubelet makes it; but with the API server away it is all there is.
        let patience = Duration::from_secs(5);
        match tokio::time::timeout(patience, found.next()).await {
            Ok(Some(known)) => break known,
            Ok(None) | Err(_) => {
                if let Some(known) = from_file() {
                    break known;
                }
            }
        }
    };
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        while let Some(known) = found.next().await {
            sender.send_if_modified(|current| {
                let changed = *current != known;
                *current = known;
                changed
            });
            if sender.is_closed() {
                return;
            }
        }
    });
    receiver
}

/// What leadership takes from them.
pub fn times(settings: &InstanceSettings) -> Settings {
    let times = settings.failover;
    Settings {
        ttl: Duration::from_millis(times.ttl_millis),
        look: Duration::from_millis(times.look_millis),
        margin: Duration::from_millis(times.margin_millis),
        instances: settings.replicas,
        system: settings.system.clone(),
        existing: settings.adopted,
        synchronous: settings.durability.mode == Durability::Quorum,
        required: settings.durability.when_alone == StandbyPolicy::Required,
        max_lag: times.max_lag_bytes,
        restore: settings.in_place.as_ref().map(|rule| rule.name.clone()),
    }
}
