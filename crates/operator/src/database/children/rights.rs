//! Who the agents of a database are, and what they may do: their own Lease, EndpointSlice and pods, and no
//! more than can be said by name.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use keelson_api::instance::Names;

use super::Wanted;

/// The most instances that a database can have.
const MOST: u32 = 10;

pub(super) fn account(wanted: &Wanted) -> ServiceAccount {
    ServiceAccount { metadata: wanted.meta(wanted.name.clone()), ..ServiceAccount::default() }
}

pub(super) fn role(wanted: &Wanted) -> Role {
    Role { metadata: wanted.meta(wanted.name.clone()), rules: Some(rules(wanted.names())) }
}

/// Nobody can give rights that they do not have: the operator has all of these itself.
pub(super) fn rules(names: Names<'_>) -> Vec<PolicyRule> {
    let pods = (0..MOST).map(|ordinal| names.pod(ordinal)).collect();
    vec![
        // What is to be created can't be restricted by name.
        rule("coordination.k8s.io", "leases", &["create"], vec![]),
        rule(
            "coordination.k8s.io",
            "leases",
            &["get", "list", "watch", "update", "patch"],
            vec![names.lease()],
        ),
        rule("discovery.k8s.io", "endpointslices", &["create"], vec![]),
        rule(
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch", "update", "patch"],
            vec![names.writers()],
        ),
        rule("", "pods", &["get", "list", "watch"], vec![]),
        rule("", "pods", &["patch"], pods),
        rule("", "configmaps", &["get", "list", "watch"], vec![names.config()]),
        rule("events.k8s.io", "events", &["create", "patch"], vec![]),
    ]
}

fn rule(group: &str, resource: &str, verbs: &[&str], names: Vec<String>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names).filter(|names| !names.is_empty()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

pub(super) fn binding(wanted: &Wanted) -> RoleBinding {
    RoleBinding {
        metadata: wanted.meta(wanted.name.clone()),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: wanted.name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: wanted.name.clone(),
            namespace: Some(wanted.namespace.clone()),
            ..Subject::default()
        }]),
    }
}
