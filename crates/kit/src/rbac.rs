//! The rights that an operator needs, from what it looks after: no more, no less.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::ApiResource;

use crate::reconcile::{Kind, Reconciler};

fn rule(group: &str, resources: &[String], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.to_vec()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// The rights to look after a kind, in each namespace where it is looked after.
pub fn of_kind<R: Reconciler>(kind: &Kind<R>) -> Vec<PolicyRule> {
    let ApiResource { group, plural, .. } = kind.resource();
    let verbs: &[&str] =
        if kind.cleans_up() { &["get", "list", "watch", "patch"] } else { &["get", "list", "watch"] };
    let mut rules = vec![
        rule(group, std::slice::from_ref(plural), verbs),
        rule(group, &[format!("{plural}/status")], &["patch"]),
        // Owner references that keep the owner until the child is gone.
        rule(group, &[format!("{plural}/finalizers")], &["update"]),
    ];
    rules.extend(kind.children().map(|child| {
        // An apply is a patch, and makes what is not there.
        let verbs = ["get", "list", "watch", "create", "patch", "delete"];
        rule(&child.group, std::slice::from_ref(&child.plural), &verbs)
    }));
    rules.extend(kind.unread().map(|child| {
        // Who may patch an object can see it in the answer, but can't find out which there are.
        rule(&child.group, std::slice::from_ref(&child.plural), &["create", "patch"])
    }));
    rules.extend(kind.related().map(|related| {
        rule(&related.group, std::slice::from_ref(&related.plural), &["get", "list", "watch"])
    }));
    rules.push(rule("events.k8s.io", &["events".to_owned()], &["create", "patch"]));
    rules
}

/// The rights to take part in leadership, in the operator's own namespace.
pub fn of_leadership() -> Vec<PolicyRule> {
    vec![rule("coordination.k8s.io", &["leases".to_owned()], &["get", "create", "update"])]
}
