//! The two containers of an instance: one that brings the agent, and the database that the agent runs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, Probe,
    ResourceFieldSelector, ResourceRequirements, SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use keelson_api::instance::{paths, ports};

use super::super::Wanted;
use super::{DATA, mounts};

/// Copies the agent to where the database's container finds it.
pub(in super::super) fn agent(wanted: &Wanted) -> Container {
    Container {
        name: "agent".to_owned(),
        image: Some(wanted.agent_image.clone()),
        command: Some(["/keelson", "copy-to", paths::BIN].map(str::to_owned).to_vec()),
        volume_mounts: Some(vec![mount("bin", paths::BIN, false)]),
        resources: Some(resources("10m", "64Mi")),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

/// The official image, with the agent as its first process.
pub(super) fn database(wanted: &Wanted) -> Container {
    let settings = &wanted.settings;
    Container {
        name: "database".to_owned(),
        image: Some(wanted.image.clone()),
        command: Some([paths::PROGRAM, "agent"].map(str::to_owned).to_vec()),
        env: Some(environment(wanted)),
        ports: Some(
            [("postgres", ports::POSTGRES), ("agent", ports::AGENT), ("metrics", ports::METRICS)]
                .map(|(name, number)| ContainerPort {
                    name: Some(name.to_owned()),
                    container_port: number.into(),
                    protocol: Some("TCP".to_owned()),
                    ..ContainerPort::default()
                })
                .to_vec(),
        ),
        volume_mounts: Some(mounted(wanted)),
        resources: Some(resources(&settings.cpu.to_string(), &settings.memory.to_string())),
        security_context: Some(restricted()),
        // The agent answers as soon as it runs; that it takes long to start means that it does not.
        startup_probe: Some(probe("/healthz", 1, 5, 60)),
        liveness_probe: Some(probe("/healthz", 10, 5, 6)),
        readiness_probe: Some(probe("/readyz", 2, 2, 2)),
        ..Container::default()
    }
}

fn mounted(wanted: &Wanted) -> Vec<VolumeMount> {
    let own = [
        mount("bin", paths::BIN, true),
        mount(DATA, paths::VOLUME, false),
        mount("run", paths::RUN, false),
        mount("tmp", "/tmp", false),
        mount("shm", "/dev/shm", false),
        mount("config", paths::CONFIG, true),
        mount("superuser", paths::SUPERUSER, true),
        mount("replication", paths::REPLICATION, true),
        mount("app", paths::APP, true),
        mount("tls", paths::TLS, true),
    ];
    let more = mounts::of(wanted);
    own.into_iter().chain(more.iter().map(|it| mount(it.name, it.path, it.read_only))).collect()
}

fn environment(wanted: &Wanted) -> Vec<EnvVar> {
    vec![
        plain("KEELSON_DATABASE", wanted.name.clone()),
        plain("KEELSON_DATABASE_UID", wanted.uid.clone()),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_IP", "status.podIP"),
        field("POD_UID", "metadata.uid"),
        field("NODE_NAME", "spec.nodeName"),
        // There is no limit that could be asked for.
        plain("CPU_MILLIS", wanted.settings.cpu.as_millis().to_string()),
        memory(),
    ]
}

pub(in super::super) fn plain(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value), ..EnvVar::default() }
}

/// What the pod knows of itself.
pub(in super::super) fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// How much memory the container may use.
pub(in super::super) fn memory() -> EnvVar {
    EnvVar {
        name: "MEMORY_BYTES".to_owned(),
        value_from: Some(EnvVarSource {
            resource_field_ref: Some(ResourceFieldSelector {
                container_name: Some("database".to_owned()),
                resource: "limits.memory".to_owned(),
                divisor: Some(Quantity("1".to_owned())),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// All of its memory is its own, so that it is not evicted for what its neighbours do. Processors that
/// nobody else uses may be used.
pub(in super::super) fn resources(cpu: &str, memory: &str) -> ResourceRequirements {
    let quantity = |name: &str, value: &str| (name.to_owned(), Quantity(value.to_owned()));
    ResourceRequirements {
        requests: Some(BTreeMap::from([quantity("cpu", cpu), quantity("memory", memory)])),
        limits: Some(BTreeMap::from([quantity("memory", memory)])),
        ..ResourceRequirements::default()
    }
}

pub(in super::super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

pub(in super::super) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn probe(path: &str, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(ports::METRICS.into()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}
