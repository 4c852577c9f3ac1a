//! How many pods there are, by load.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, CrossVersionObjectReference, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
};
use keelson_api::v1::Autoscale;

use super::Wanted;
use super::template::CONTAINER;

/// The share of its cpu that a pod should use, in percent.
const CPU_PERCENT: i32 = 80;

pub(super) fn autoscaler(wanted: &Wanted, autoscale: &Autoscale) -> HorizontalPodAutoscaler {
    HorizontalPodAutoscaler {
        metadata: wanted.meta(),
        spec: HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: "Deployment".to_owned(),
                name: wanted.name.clone(),
            },
            min_replicas: Some(autoscale.min.unwrap_or(1)),
            max_replicas: autoscale.max,
            metrics: Some(vec![MetricSpec {
                type_: "ContainerResource".to_owned(),
                // The program's own load, not that of what is beside it.
                container_resource: Some(ContainerResourceMetricSource {
                    container: CONTAINER.to_owned(),
                    name: "cpu".to_owned(),
                    target: MetricTarget {
                        type_: "Utilization".to_owned(),
                        average_utilization: Some(autoscale.cpu_percent.unwrap_or(CPU_PERCENT)),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            ..HorizontalPodAutoscalerSpec::default()
        },
        ..HorizontalPodAutoscaler::default()
    }
}
