//! What a pod of an app is made from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, HTTPGetAction, Lifecycle, LifecycleHandler, LocalObjectReference,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SleepAction,
    TCPSocketAction, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use keelson_api::v1::{AppSpec, Pooler};
use keelson_api::value::Size;
use kube::core::ObjectMeta;

use super::{labels, selector, texts};
use crate::annotations;
use crate::app::{binding, pooler};

/// The name of the program's container.
pub const CONTAINER: &str = "app";
/// So long a pod that is to end still answers, until all have heard that nothing is to be sent to it any more.
const FAREWELL_SECONDS: i64 = 5;
/// What is set aside for a pod that asks for nothing.
const CPU: Size = Size::millis(100);
const MEMORY: Size = Size::mebibytes(128);

/// What a pod is made from, with the Secret that its database says is bound.
pub fn template(
    name: &str,
    spec: &AppSpec,
    asked: &str,
    secret: Option<&str>,
    pooler_image: &str,
) -> PodTemplateSpec {
    let bound = spec.database.as_deref().zip(secret);
    let pooler = spec.pooler.as_ref().filter(|pooler| bound.is_some() && pooler.enabled.unwrap_or(true));
    let mut container = program(spec);
    let mut volumes = Vec::new();
    if let Some((database, secret)) = bound {
        let ours = if pooler.is_some() { binding::pooled(secret) } else { binding::direct(secret) };
        container.env = Some(binding::beside(ours, &spec.env));
        container.volume_mounts = Some(vec![binding::mount(database)]);
        volumes.push(binding::volume(secret));
    }
    let beside = bound.zip(pooler).map(|((database, _), Pooler { connections, enabled: _ })| {
        volumes.push(pooler::volume());
        vec![pooler::container(pooler_image, database, connections.unwrap_or(pooler::CONNECTIONS))]
    });
    let pull_secrets: Vec<_> =
        spec.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(name)),
            annotations: Some(texts([(annotations::ASKED, asked)])),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            // It has no business with the cluster.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: spec.run_as_user,
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            init_containers: beside,
            containers: vec![container],
            volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
            image_pull_secrets: Some(pull_secrets).filter(|all| !all.is_empty()),
            topology_spread_constraints: Some(
                ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
                    .map(|over| apart(name, over))
                    .to_vec(),
            ),
            ..PodSpec::default()
        }),
    }
}

fn apart(name: &str, over: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: over.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(selector(name)),
            ..LabelSelector::default()
        }),
        // Pods of an older revision are about to go.
        match_label_keys: Some(vec!["pod-template-hash".to_owned()]),
        ..TopologySpreadConstraint::default()
    }
}

fn program(spec: &AppSpec) -> Container {
    let ports = spec.ports.iter().map(|port| ContainerPort {
        name: Some(port.name.clone()),
        container_port: port.port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    });
    let ports: Vec<_> = ports.collect();
    let some = |words: &[String]| Some(words.to_vec()).filter(|words| !words.is_empty());
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        command: some(&spec.command),
        args: some(&spec.args),
        env: Some(spec.env.clone()).filter(|env| !env.is_empty()),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
        resources: Some(resources(spec)),
        readiness_probe: readiness(spec),
        // Only what is sent to could lose anything by ending at once.
        lifecycle: (!spec.ports.is_empty()).then(|| Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction { seconds: FAREWELL_SECONDS }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        security_context: Some(pooler::restricted()),
        ..Container::default()
    }
}

fn resources(spec: &AppSpec) -> ResourceRequirements {
    let given = spec.resources.clone().unwrap_or_default();
    let text = |written: Option<&str>, usual: Size| {
        Quantity(written.map_or_else(|| usual.to_string(), str::to_owned))
    };
    let (cpu, memory) =
        (given.cpu.as_ref().map(|it| it.as_str()), given.memory.as_ref().map(|it| it.as_str()));
    let requests = [("cpu", text(cpu, CPU)), ("memory", text(memory, MEMORY))];
    let limits = memory.map(|memory| BTreeMap::from([("memory".to_owned(), Quantity(memory.to_owned()))]));
    ResourceRequirements {
        requests: Some(requests.map(|(name, size)| (name.to_owned(), size)).into()),
        limits,
        ..ResourceRequirements::default()
    }
}

/// When a pod can be sent requests.
fn readiness(spec: &AppSpec) -> Option<Probe> {
    let first = spec.ports.first()?;
    let probe = Probe {
        period_seconds: Some(2),
        timeout_seconds: Some(2),
        failure_threshold: Some(2),
        ..Probe::default()
    };
    Some(match &spec.health {
        Some(health) => Probe {
            http_get: Some(HTTPGetAction {
                path: Some(health.path.clone()),
                port: IntOrString::String(health.port.clone().unwrap_or_else(|| first.name.clone())),
                scheme: Some("HTTP".to_owned()),
                ..HTTPGetAction::default()
            }),
            ..probe
        },
        None => Probe {
            tcp_socket: Some(TCPSocketAction {
                port: IntOrString::String(first.name.clone()),
                ..TCPSocketAction::default()
            }),
            ..probe
        },
    })
}
