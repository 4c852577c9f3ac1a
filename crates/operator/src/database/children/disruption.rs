//! How many instances may be taken away at once by those who ask first.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Wanted;

/// One at a time, also of a database with a single instance: a node could never be drained otherwise.
pub(super) fn disruption(wanted: &Wanted) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: wanted.meta(wanted.name.clone()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(wanted.selector()),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
