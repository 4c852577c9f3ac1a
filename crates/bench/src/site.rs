//! What every measurement on a cluster needs: Keelson on it, objects made, and objects gone.

use std::path::Path;
use std::time::Duration;

use kube::Resource;
use kube::api::{Api, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::{Cluster, Image, Look, until};

use crate::error::{Asking, Error, Result};
use crate::machine::checkout;

/// Where the operator lives.
pub(crate) const HOME: &str = "keelson-system";

/// How long anything may take that is not measured.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// Installs this program with the chart as it is, under a tag of its own each time, so that what runs is what was
/// built.
pub(crate) fn install(cluster: &Cluster, program: &Path) -> Result<()> {
    let (repository, tag) = ("keelson", format!("bench-{}", std::process::id()));
    let scratch = cluster.testbed()?.root().join("image-bench");
    let image = Image::of_programs(&format!("{repository}:{tag}"), &[("/keelson", program)], &scratch)?;
    cluster.load_image(&image)?;
    let chart = checkout().join("charts/keelson").display().to_string();
    let repository = format!("image.repository={repository}");
    let tag = format!("image.tag={tag}");
    let words = ["upgrade", "--install", "keelson", &chart, "--namespace", HOME, "--create-namespace"];
    let values = ["--set", &repository, "--set-string", &tag, "--wait", "--timeout", "180s"];
    cluster.helm(&[&words[..], &values[..]].concat())?;
    Ok(())
}

/// Makes an object.
pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object)
        .map_err(|error| Error::Unreadable { what: "what is made".into(), why: error.to_string() })?;
    api.create(&PostParams::default(), &object).await.asking("creating what is measured")?;
    Ok(())
}

/// Waits until there is none of a kind.
pub(crate) async fn gone<K>(api: &Api<K>) -> Result<()>
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
