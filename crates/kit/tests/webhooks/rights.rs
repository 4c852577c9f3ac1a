//! The rights that the module's documentation lists are enough, and without them nobody is told that all
//! is well.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::{ControlPlane, Look, until};

use crate::plane::{CONFIGURATION, CRD, DEADLINE, Replica, SECRET, STEADY, create, in_force, install, ready};

const USER: &str = "operator";

/// A client that is nobody but this user.
async fn as_operator(plane: &ControlPlane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some(USER.to_owned());
    Client::try_from(config).unwrap()
}

async fn may_keep_the_secret(client: &Client) {
    let create = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] });
    let mut keep = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET] });
    keep["verbs"] = json!(["get", "list", "watch", "update"]);
    let rules = [create, keep];
    let role: Role = serde_json::from_value(json!({ "metadata": { "name": USER }, "rules": rules })).unwrap();
    let roles: Api<Role> = Api::default_namespaced(client.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings: Api<RoleBinding> = Api::default_namespaced(client.clone());
    let binding = serde_json::from_value(bound("Role")).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

async fn may_write_the_targets(client: &Client) {
    let rule = |group: &str, resources: &[&str], name: &str| {
        json!({
            "apiGroups": [group], "resources": resources, "resourceNames": [name],
            "verbs": ["get", "list", "watch", "patch"]
        })
    };
    let configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
    let rules = [
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], CRD),
        rule("admissionregistration.k8s.io", &configurations, CONFIGURATION),
    ];
    create::<ClusterRole>(client, json!({ "metadata": { "name": USER }, "rules": rules })).await;
    create::<ClusterRoleBinding>(client, bound("ClusterRole")).await;
}

fn bound(kind: &str) -> Value {
    json!({
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": USER },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough_and_what_lacks_is_told() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let replica = Replica::start_with(as_operator(&plane).await, STEADY).await;
    assert!(replica.certificates.valid().unwrap_err().contains("no certificate has been loaded"));
    install(&client, &replica.url, &replica.url).await;
    may_keep_the_secret(&client).await;
    until("the certificate to be there and the authority not", DEADLINE, || async {
        match (replica.certificates.until(), replica.certificates.valid()) {
            (Some(_), Err(why)) if why.contains("nobody has looked yet") => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    may_write_the_targets(&client).await;
    ready(&replica).await;
    in_force(&client).await;
    replica.stop().await;
}
