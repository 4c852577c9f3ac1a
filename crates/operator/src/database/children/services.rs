//! The ways to a database.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use keelson_api::instance::{labels, ports, roles};

use super::Wanted;

/// A name for each instance, also for those that do not serve: agents find each other by it.
pub(super) fn instances(wanted: &Wanted) -> Service {
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        publish_not_ready_addresses: Some(true),
        selector: Some(wanted.selector()),
        ports: Some(vec![
            port("postgres", ports::POSTGRES),
            port("agent", ports::AGENT),
            port("metrics", ports::METRICS),
        ]),
        ..ServiceSpec::default()
    };
    service(wanted, wanted.name.clone(), spec)
}

/// The way to the primary. Without a selector: the leader itself writes where it leads, in the act of
/// becoming leader, so that it moves with leadership and not after it.
pub(super) fn writers(wanted: &Wanted) -> Service {
    let spec = ServiceSpec { ports: Some(vec![port("postgres", ports::POSTGRES)]), ..ServiceSpec::default() };
    service(wanted, wanted.names().writers(), spec)
}

/// The way to replicas that are fit to be read.
pub(super) fn readers(wanted: &Wanted) -> Service {
    let mut selector = wanted.selector();
    selector.insert(labels::ROLE.to_owned(), roles::REPLICA.to_owned());
    let spec = ServiceSpec {
        selector: Some(selector),
        ports: Some(vec![port("postgres", ports::POSTGRES)]),
        ..ServiceSpec::default()
    };
    service(wanted, wanted.names().readers(), spec)
}

fn service(wanted: &Wanted, name: String, spec: ServiceSpec) -> Service {
    Service { metadata: wanted.meta(name), spec: Some(spec), ..Service::default() }
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(number.into())),
        ..ServicePort::default()
    }
}
