//! What pods are made from. A revision is kept with the Deployment once all its pods were ready: it is what a
//! roll-out that fails is taken back to, and it is used again for as long as the same is asked for, so that a newer
//! operator, which would write another template, restarts no app.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use keelson_api::instance::fingerprint;
use keelson_api::v1::AppSpec;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// On the Deployment, by the operator: the [`Revision`] that was ready last, as JSON.
pub const LAST_READY: &str = "keelson.dev/last-ready";
/// On the Deployment, by the operator: the revision that was taken back, as JSON.
pub const UNDONE: &str = "keelson.dev/undone";
/// On the pod template, by the operator: the credentials that pods start with.
pub const CREDENTIALS: &str = "keelson.dev/credentials";
/// On an App, by a person: any text. Another one restarts its pods in order, and tries again what was taken back.
pub const RESTART: &str = "keelson.dev/restart";
/// The label of an App's pods, with its name.
pub const APP: &str = "keelson.dev/app";

/// What pods are made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// Stands for what a person has asked for.
    pub asked: String,
    /// The image, to tell it by.
    pub image: String,
    /// The Database that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The credentials that its pods had when they were ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// What pods are made from, but for the credentials, which are those of the moment.
    pub template: PodTemplateSpec,
}

/// A revision that was taken back, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Which.
    pub asked: String,
    /// In a word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

/// Stands for all that a person has asked for and that takes new pods to get.
pub fn asked(spec: &AppSpec, restart: Option<&str>) -> String {
    let AppSpec {
        image,
        run_as_user,
        image_pull_secrets,
        command,
        args,
        ports,
        env,
        resources,
        health,
        database,
        pooler,
        replicas: _,
        autoscale: _,
        progress_deadline: _,
    } = spec;
    let asked = json!({
        "image": image, "pullSecrets": image_pull_secrets, "command": command, "args": args, "ports": ports,
        "env": env, "resources": resources, "health": health, "database": database, "pooler": pooler,
        "restart": restart, "user": run_as_user
    });
    fingerprint(&asked.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_number_of_pods_is_no_other_revision_and_a_restart_is_one() {
        let spec = AppSpec { image: "shop:1".into(), ..AppSpec::default() };
        let more = AppSpec { replicas: Some(3), progress_deadline: Some("1m".into()), ..spec.clone() };
        assert_eq!(asked(&spec, None), asked(&more, None));
        assert_ne!(asked(&spec, None), asked(&spec, Some("again")));
        assert_ne!(asked(&spec, None), asked(&AppSpec { image: "shop:2".into(), ..spec.clone() }, None));
    }
}
