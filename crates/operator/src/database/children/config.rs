//! What agents are told.

use k8s_openapi::api::core::v1::ConfigMap;
use keelson_api::instance::SETTINGS_KEY;

use super::{Wanted, texts};

pub(super) fn config(wanted: &Wanted) -> Result<ConfigMap, serde_json::Error> {
    let settings = wanted.instance.to_json()?;
    Ok(ConfigMap {
        metadata: wanted.meta(wanted.names().config()),
        data: Some(texts([(SETTINGS_KEY, &settings)])),
        ..ConfigMap::default()
    })
}
