//! The way to an app's pods.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Wanted, selector};

pub(super) fn service(wanted: &Wanted) -> Service {
    let ports = wanted.ports.iter().map(|port| ServicePort {
        name: Some(port.name.clone()),
        port: port.port,
        target_port: Some(IntOrString::String(port.name.clone())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    });
    Service {
        metadata: wanted.meta(),
        spec: Some(ServiceSpec {
            ports: Some(ports.collect()),
            selector: Some(selector(&wanted.name)),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
