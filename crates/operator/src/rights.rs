//! The rights that the operator needs, and those that people are given, from the types.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use keelson_api::crds::NAMESPACE;
use keelson_api::{GROUP, policy};
use keelson_kit::rbac;
use kube::core::ObjectMeta;

use crate::metrics::Databases;
use crate::root::{Root, RootError, SECRET};
use crate::run::{DEFINITION, WEBHOOK_SECRET};
use crate::{NAME, backup, database};

/// What the operator may do.
pub struct Rights {
    /// In each namespace where it looks after Databases.
    pub databases: Vec<PolicyRule>,
    /// In its own namespace.
    pub own: Vec<PolicyRule>,
    /// In the whole cluster, to have its webhooks trusted.
    pub webhooks: Vec<PolicyRule>,
}

/// What the operator may do.
pub fn rights() -> Result<Rights, RootError> {
    let root = Root::read("", &Root::make(Timestamp::UNIX_EPOCH)?)?;
    let kind = database::kind(Arc::new(root), "", Databases::default());
    let mut databases = rbac::of_kind(&kind);
    databases.extend(rbac::of_kind(&backup::kind()));
    databases.extend([
        // Backups that are due are made, those that people have made are marked, and those that are no more removed.
        rule(GROUP, &["backups"], &["create", "patch", "delete"], &[]),
        // To replace and to restart instances, to let volumes grow and go, and for drills.
        rule("", &["pods", "persistentvolumeclaims"], &["create", "patch", "delete"], &[]),
        // To ask for a handover and to clean up. Beyond that, nobody may give to others what they do not have
        // themselves: all that agents may do.
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            &[],
        ),
        rule(
            "discovery.k8s.io",
            &["endpointslices"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            &[],
        ),
    ]);
    let mut own = rbac::of_leadership();
    own.extend([
        // What is to be created can't be restricted by name.
        rule("", &["secrets"], &["create"], &[]),
        rule("", &["secrets"], &["get"], &[SECRET]),
        rule("", &["secrets"], &["get", "list", "watch", "update"], &[WEBHOOK_SECRET]),
    ]);
    let watched = ["get", "list", "watch", "patch"];
    let webhooks = vec![
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &watched, &[DEFINITION]),
        rule("admissionregistration.k8s.io", &["validatingwebhookconfigurations"], &watched, &[policy::NAME]),
    ];
    Ok(Rights { databases, own, webhooks })
}

/// The roles of the operator where it looks after all namespaces.
pub fn cluster_wide() -> Result<(Vec<ClusterRole>, Vec<Role>), RootError> {
    let Rights { databases, own, webhooks } = rights()?;
    let roles = vec![cluster_role(NAME, databases), cluster_role("keelson-webhooks", webhooks)];
    Ok((roles, vec![role(NAME, own)]))
}

/// The roles of the operator where it looks after one namespace, its own.
pub fn in_one_namespace() -> Result<(Vec<ClusterRole>, Vec<Role>), RootError> {
    let Rights { databases, own, webhooks } = rights()?;
    let roles = vec![role(NAME, own), role("keelson-databases", databases)];
    Ok((vec![cluster_role("keelson-webhooks", webhooks)], roles))
}

/// What people may do with our kinds, as a part of the roles `view`, `edit` and `admin` that they have.
pub fn of_people() -> Vec<ClusterRole> {
    let kinds = ["databases", "backups", "apps"];
    let parts: Vec<String> =
        kinds.iter().flat_map(|kind| [(*kind).to_owned(), format!("{kind}/status")]).collect();
    let all: Vec<&str> = parts.iter().map(String::as_str).collect();
    let look = vec![rule(GROUP, &all, &["get", "list", "watch"], &[])];
    let change = vec![
        rule(GROUP, &kinds, &["create", "update", "patch", "delete", "deletecollection"], &[]),
        rule(GROUP, &["databases/scale", "apps/scale"], &["get", "update", "patch"], &[]),
    ];
    vec![
        aggregated("keelson-view", &["view", "edit", "admin"], look),
        aggregated("keelson-edit", &["edit", "admin"], change),
    ]
}

fn aggregated(name: &str, into: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let mut role = cluster_role(name, rules);
    let label = |role: &&str| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true".to_owned());
    role.metadata.labels = Some(into.iter().map(label).collect());
    role
}

fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
}

fn role(name: &str, rules: Vec<PolicyRule>) -> Role {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    Role { metadata, rules: Some(rules) }
}

fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        resource_names: Some(owned(names)).filter(|names| !names.is_empty()),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use keelson_api::instance::Names;

    use super::*;
    use crate::database::children;

    fn allows(rules: &[PolicyRule], group: &str, resource: &str, verb: &str) -> bool {
        let has = |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|one| one == word);
        rules.iter().any(|rule| {
            has(&rule.api_groups, group)
                && has(&rule.resources, resource)
                && rule.verbs.iter().any(|one| one == verb)
                && rule.resource_names.is_none()
        })
    }

    #[test]
    fn no_secret_of_a_database_can_be_listed_or_read_by_name() {
        let rights = rights().unwrap();
        for verb in ["get", "list", "watch", "delete"] {
            assert!(!allows(&rights.databases, "", "secrets", verb), "{verb}");
        }
        assert!(allows(&rights.databases, "", "secrets", "create"));
        assert!(!allows(&rights.own, "", "secrets", "get"));
    }

    #[test]
    fn all_that_agents_are_given_the_operator_has() {
        let rights = rights().unwrap().databases;
        for rule in children::agent_rules(Names("orders")) {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        assert!(allows(&rights, group, resource, verb), "{verb} {resource}.{group}");
                    }
                }
            }
        }
    }
}
