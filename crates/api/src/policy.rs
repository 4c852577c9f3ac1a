//! Rules that no schema can state, as an admission policy: CEL too, run by the API server, so they hold
//! while the operator is away just as well.
//!
//! Two kinds of rule are here. `spec.storage` takes a string or an object, and the CEL of a schema sees
//! no field without a type. And a request in `v1alpha1` or `v1beta1` is checked against that version's
//! schema only, which can't see most fields; a policy sees every request as `v1`, whatever it was
//! written in.
//!
//! The policy looks only at a changed spec. A delete, a status, or the end of a finalizer never meets it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use kube::core::ObjectMeta;

use crate::GROUP;
use crate::schema::Rule;
use crate::v1::rules;

/// The name of the policy and of what puts it in force.
pub const NAME: &str = "databases.keelson.dev";

/// About `spec.storage`. The policy's `variables` hold its parts, whichever form it has.
pub const STORAGE: &[Rule] = &[
    Rule {
        rule: "!has(object.spec.storage) || type(object.spec.storage) == string \
               || (type(object.spec.storage) == map && object.spec.storage.all(key, key in ['size', 'class', 'autogrow']))",
        message: "storage is a size such as 50Gi, or an object with size, class and autogrow",
    },
    Rule {
        rule: "isQuantity(variables.size) && quantity(variables.size).isGreaterThan(quantity('0'))",
        message: "the size of storage must be more than nothing, such as 50Gi",
    },
    Rule {
        rule: "oldObject == null || !isQuantity(variables.size) || !isQuantity(variables.oldSize) \
               || quantity(variables.size).compareTo(quantity(variables.oldSize)) >= 0",
        message: "storage can't shrink: volumes only grow; to use less, restore a backup into a new Database",
    },
    Rule {
        rule: "oldObject == null || variables.class == variables.oldClass",
        message: "the storage class can't be changed: create a new Database with it and move the data",
    },
    Rule {
        rule: "variables.limit == '' || !isQuantity(variables.limit) || !isQuantity(variables.size) \
               || quantity(variables.limit).compareTo(quantity(variables.size)) >= 0",
        message: "storage.autogrow.limit must not be less than the size of storage",
    },
];

/// Names for both forms of `spec.storage`, before and after.
const VARIABLES: &[(&str, &str)] = &[
    ("storage", "has(object.spec.storage) ? dyn(object.spec.storage) : dyn({})"),
    (
        "oldStorage",
        "oldObject != null && has(oldObject.spec.storage) ? dyn(oldObject.spec.storage) : dyn({})",
    ),
    ("size", SIZE),
    ("oldSize", OLD_SIZE),
    (
        "class",
        "type(variables.storage) == map && has(variables.storage.class) ? string(variables.storage.class) : ''",
    ),
    (
        "oldClass",
        "type(variables.oldStorage) == map && has(variables.oldStorage.class) ? string(variables.oldStorage.class) : ''",
    ),
    (
        "limit",
        "type(variables.storage) == map && has(variables.storage.autogrow) && has(variables.storage.autogrow.limit) \
         ? string(variables.storage.autogrow.limit) : ''",
    ),
];

const SIZE: &str = "type(variables.storage) == string ? string(variables.storage) \
     : type(variables.storage) == map && has(variables.storage.size) ? string(variables.storage.size) : '10Gi'";
const OLD_SIZE: &str = "type(variables.oldStorage) == string ? string(variables.oldStorage) \
     : type(variables.oldStorage) == map && has(variables.oldStorage.size) ? string(variables.oldStorage.size) : '10Gi'";

/// The policy.
pub fn policy() -> ValidatingAdmissionPolicy {
    let variable = |(name, expression): &(&str, &str)| Variable {
        name: (*name).to_owned(),
        expression: (*expression).to_owned(),
    };
    ValidatingAdmissionPolicy {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                // `Equivalent` shows requests in other versions as this one.
                match_policy: Some("Equivalent".to_owned()),
                resource_rules: Some(vec![NamedRuleWithOperations {
                    api_groups: Some(vec![GROUP.to_owned()]),
                    api_versions: Some(vec!["v1".to_owned()]),
                    operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                    resources: Some(vec!["databases".to_owned()]),
                    ..NamedRuleWithOperations::default()
                }]),
                ..MatchResources::default()
            }),
            match_conditions: Some(vec![MatchCondition {
                name: "the-spec-has-changed".to_owned(),
                expression: "oldObject == null || object.spec != oldObject.spec".to_owned(),
            }]),
            variables: Some(VARIABLES.iter().map(variable).collect()),
            validations: Some(validations()),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        ..ValidatingAdmissionPolicy::default()
    }
}

/// What puts the policy in force, everywhere.
pub fn binding() -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: NAME.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    }
}

fn validations() -> Vec<Validation> {
    let of_the_spec = rules::SPEC.iter().map(|rule| (in_policy(rule.rule, ".spec"), rule.message));
    let of_the_whole = rules::DATABASE.iter().map(|rule| (in_policy(rule.rule, ""), rule.message));
    let of_storage = STORAGE.iter().map(|rule| (rule.rule.to_owned(), rule.message));
    let validation = |(expression, message): (String, &str)| Validation {
        expression,
        message: Some(message.to_owned()),
        reason: Some("Invalid".to_owned()),
        ..Validation::default()
    };
    of_storage.chain(of_the_spec).chain(of_the_whole).map(validation).collect()
}

/// A rule on a part of the object, in the words of a policy.
fn in_policy(rule: &str, part: &str) -> String {
    let translated = rule.replace("oldSelf.", &format!("oldObject{part}."));
    let translated = translated.replace("self.", &format!("object{part}."));
    if rule.contains("oldSelf") { format!("oldObject == null || ({translated})") } else { translated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_translated_whole() {
        for (rule, part) in rules::SPEC
            .iter()
            .map(|rule| (rule, ".spec"))
            .chain(rules::DATABASE.iter().map(|rule| (rule, "")))
        {
            let translated = in_policy(rule.rule, part);
            assert!(!translated.contains("self") && !translated.contains("Self"), "{translated}");
        }
    }

    #[test]
    fn the_policy_knows_the_default_size() {
        let default = format!("'{}'", crate::v1::DEFAULT_STORAGE);
        assert!(SIZE.ends_with(&default) && OLD_SIZE.ends_with(&default));
    }
}
