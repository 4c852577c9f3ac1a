//! Objects made, and objects gone.

use std::time::Duration;

use kube::Resource;
use kube::api::{Api, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::{Look, until};

use crate::error::{Asking, Error, Result};

/// How long anything may take that is not measured.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Makes an object.
pub async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object)
        .map_err(|error| Error::Unreadable { what: "what is made".into(), why: error.to_string() })?;
    api.create(&PostParams::default(), &object).await.asking("creating what is tried")?;
    Ok(())
}

/// Waits until there is none of a kind.
pub async fn gone<K>(api: &Api<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let what = format!("every {} to be gone", K::kind(&()));
    let gone = until(&what, DEADLINE, || async {
        match api.list(&ListParams::default()).await {
            Ok(list) if list.items.is_empty() => Look::There(()),
            Ok(list) => Look::NotYet(format!("{} are left", list.items.len())),
            Err(error) => Look::NotYet(error.to_string()),
        }
    });
    Ok(gone.await?)
}
