//! A connection pooler beside a program: PgBouncer, which listens on the pod's own loopback alone.
//!
//! It starts before the program and ends after it. It signs in with the binding's credentials, which it reads from the
//! mounted files; when they change it goes on with the new ones, while programs in the pod, which were started with
//! the old ones, are still let in with those.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, ExecAction, Probe, ResourceRequirements,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::binding;

/// Where it listens.
pub const HOST: &str = "127.0.0.1";
/// On this port.
pub const PORT: u16 = 6432;
/// The image that has it, unless another is named.
pub const IMAGE: &str = "edoburu/pgbouncer:v1.24.1-p1";
/// How many connections to the database it may have, unless a number is given.
pub const CONNECTIONS: i32 = 10;

/// The container's name.
pub const NAME: &str = "pooler";
/// Its own folder, in memory: the password is in it.
const FOLDER: &str = "/run/pooler";
const VOLUME: &str = "keelson-pooler";
/// An account that no image has, since nothing in the image is written to.
const USER: i64 = 65_532;

/// What does not follow from the binding. A primary that is gone says no farewell, so connections are tried; and one that
/// can't be reached is tried again each second, since another will lead in a few.
fn settings(connections: i32) -> String {
    [
        format!("listen_addr = {HOST}"),
        format!("listen_port = {PORT}"),
        format!("unix_socket_dir = {FOLDER}"),
        format!("auth_file = {FOLDER}/users.txt"),
        "auth_type = scram-sha-256".to_owned(),
        "pool_mode = transaction".to_owned(),
        format!("default_pool_size = {connections}"),
        "max_client_conn = 1000".to_owned(),
        // Drivers ask for it, and all want the same.
        "ignore_startup_parameters = extra_float_digits".to_owned(),
        "server_login_retry = 1".to_owned(),
        "server_connect_timeout = 3".to_owned(),
        "query_wait_timeout = 60".to_owned(),
        "tcp_keepalive = 1".to_owned(),
        "tcp_keepidle = 3".to_owned(),
        "tcp_keepintvl = 1".to_owned(),
        "tcp_keepcnt = 3".to_owned(),
        "tcp_user_timeout = 6000".to_owned(),
        "log_connections = 0".to_owned(),
        "log_disconnections = 0".to_owned(),
    ]
    .join("\n")
}

/// The pooler of a database's clients: a container that starts before all others of its pod and ends after them.
pub fn container(image: &str, database: &str, connections: i32) -> Container {
    let binding = binding::mount(database);
    Container {
        name: NAME.to_owned(),
        image: Some(image.to_owned()),
        command: Some(["/bin/sh", "-c", include_str!("pooler.sh")].map(str::to_owned).to_vec()),
        working_dir: Some(FOLDER.to_owned()),
        restart_policy: Some("Always".to_owned()),
        env: Some(vec![
            binding::plain("BINDING", &binding.mount_path),
            binding::plain("SETTINGS", &settings(connections)),
        ]),
        ports: Some(vec![ContainerPort {
            name: Some(NAME.to_owned()),
            container_port: PORT.into(),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        volume_mounts: Some(vec![
            binding,
            VolumeMount { name: VOLUME.to_owned(), mount_path: FOLDER.to_owned(), ..VolumeMount::default() },
        ]),
        // The kubelet can't reach its port, but the socket is there as soon as it listens.
        startup_probe: Some(Probe {
            exec: Some(ExecAction {
                command: Some(vec![
                    "/bin/sh".to_owned(),
                    "-c".to_owned(),
                    format!("test -S {FOLDER}/.s.PGSQL.{PORT}"),
                ]),
            }),
            period_seconds: Some(1),
            timeout_seconds: Some(5),
            failure_threshold: Some(60),
            ..Probe::default()
        }),
        resources: Some(ResourceRequirements {
            requests: Some(quantities([("cpu", "10m"), ("memory", "32Mi")])),
            limits: Some(quantities([("memory", "128Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            run_as_non_root: Some(true),
            read_only_root_filesystem: Some(true),
            ..restricted()
        }),
        ..Container::default()
    }
}

/// The folder that it writes to.
pub fn volume() -> Volume {
    Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity("1Mi".to_owned())),
        }),
        ..Volume::default()
    }
}

/// What no container needs.
pub(super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        seccomp_profile: Some(k8s_openapi::api::core::v1::SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..Default::default()
        }),
        ..SecurityContext::default()
    }
}

pub(super) fn quantities<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), Quantity(value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_in_what_a_pod_says_of_its_pooler() {
        let container = container(IMAGE, "orders", 10);
        let env = container.env.unwrap();
        assert!(env.iter().all(|one| one.value_from.is_none()), "the password would be in its environment");
        assert_eq!(env[0].value.as_deref(), Some("/bindings/orders"));
        assert!(env[1].value.as_deref().unwrap().contains("default_pool_size = 10"));
    }
}
