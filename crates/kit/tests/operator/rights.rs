//! The rights that are generated are enough, and nothing is asked for beyond them.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use keelson_kit::client::with_config;
use keelson_kit::telemetry::Metrics;
use keelson_kit::{Kind, rbac};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Look, until};

use crate::greeting::Greeter;
use crate::world::{DEADLINE, DEADLINES, World, config};

pub async fn grant(world: &World, user: &str, rules: Vec<PolicyRule>) {
    let role: Role = serde_json::from_value(json!({"metadata": {"name": user}, "rules": rules})).unwrap();
    let roles: Api<Role> = Api::namespaced(world.client.clone(), &world.namespace);
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    }))
    .unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &world.namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

#[tokio::test]
async fn an_operator_with_just_its_generated_rights_can_do_all_that_it_has_to() {
    let world = World::new("rights").await;
    let kind = Kind::new(Greeter).owns::<ConfigMap>();
    grant(&world, "greeter-user", [rbac::of_kind(&kind), rbac::of_leadership()].concat()).await;
    let metrics = Metrics::new("test");
    let mut config = config(&world.kubeconfig).await;
    config.auth_info.impersonate = Some("greeter-user".into());
    let client = with_config(config, DEADLINES, &metrics).unwrap();
    let operator = world.operator_with(client, metrics, kind);

    world.greet("hello", "world").await;
    world.says("hello", "Hello, world!").await;
    world.change("hello", "everybody").await;
    world.says("hello", "Hello, everybody!").await;
    let edit = Patch::Merge(json!({"data": {"text": "Go away!"}}));
    world.config_maps().patch("hello", &PatchParams::default(), &edit).await.unwrap();
    world.says("hello", "Hello, everybody!").await;
    world.config_maps().delete("hello", &DeleteParams::default()).await.unwrap();
    world.says("hello", "Hello, everybody!").await;
    let refused = operator.metric("test_api_requests_total", &["code=\"403\""]);
    assert_eq!(refused, 0.0, "{}", operator.metrics.render());
    operator.stop().await;
}

#[tokio::test]
async fn an_operator_that_may_not_watch_says_so_and_is_ready_once_it_may() {
    let world = World::new("blind").await;
    let kind = Kind::new(Greeter).owns::<ConfigMap>();
    let rules = [rbac::of_kind(&kind), rbac::of_leadership()].concat();
    let children = |rule: &PolicyRule| rule.resources.iter().flatten().any(|one| one == "configmaps");
    let (missing, given): (Vec<_>, Vec<_>) = rules.into_iter().partition(children);
    grant(&world, "blind-user", given).await;
    let metrics = Metrics::new("test");
    let mut config = config(&world.kubeconfig).await;
    config.auth_info.impersonate = Some("blind-user".into());
    let client = with_config(config, DEADLINES, &metrics).unwrap();
    let operator = world.operator_with(client, metrics, kind);
    world.greet("hello", "world").await;

    let is = |ready: bool, says: &'static str| {
        let health = operator.health.clone();
        until("readiness to tell the truth", DEADLINE, move || {
            let (now, lines) = health.readiness();
            let holds = now == ready && lines.contains(says);
            async move { if holds { Look::There(()) } else { Look::NotYet(lines) } }
        })
    };
    is(false, "[-] watches: ConfigMap can't be watched").await.unwrap();
    assert!(world.config_maps().get_opt("hello").await.unwrap().is_none(), "it does not act half-blind");
    grant(&world, "seeing-user", missing).await;
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &world.namespace);
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "blind-user"}]);
    let patch = Patch::Merge(json!({ "subjects": subjects }));
    bindings.patch("seeing-user", &PatchParams::default(), &patch).await.unwrap();
    is(true, "[+] watches ok").await.unwrap();
    world.says("hello", "Hello, world!").await;
    operator.stop().await;
}
