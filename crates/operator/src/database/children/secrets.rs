//! Passwords and the certificate of a database.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use keelson_api::instance::{BINDING_REVISION, Names, ports};
use keelson_api::value::Engine;

use super::Wanted;
use crate::root::{Root, RootError, Whose};

/// All Secrets of a database. It has no `Debug`: nobody should print it.
pub struct Secrets {
    /// For Keelson itself.
    pub superuser: Secret,
    /// With which replicas follow.
    pub replication: Secret,
    /// For applications, as servicebinding.io has it.
    pub app: Secret,
    /// Certificate and key of every instance.
    pub tls: Secret,
}

/// The Secrets of a database, with a certificate until then.
pub fn secrets(
    wanted: &Wanted,
    root: &Root,
    rotation: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Secrets, RootError> {
    let Wanted { name, namespace, uid, .. } = wanted;
    let whose = Whose { namespace, name, uid, rotation };
    let names = wanted.names();
    let login = |secret: String, purpose: &str, username: &str| {
        let password = root.password(whose, purpose);
        let data = bytes([("username", username), ("password", &password)]);
        Secret { metadata: wanted.meta(secret), data: Some(data), ..Secret::default() }
    };
    let leaf = root.sign(&format!("{name}.{namespace}"), &hosts(names, namespace), now, until)?;
    let pair = [("ca.crt", root.authority()), ("tls.crt", &leaf.certificate), ("tls.key", &leaf.key)];
    let tls = Secret {
        metadata: wanted.meta(names.tls()),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(bytes(pair)),
        ..Secret::default()
    };
    Ok(Secrets {
        superuser: login(names.superuser(), "superuser", "postgres"),
        replication: login(names.replication(), "replication", "keelson_replication"),
        app: app(wanted, root, whose),
        tls,
    })
}

fn app(wanted: &Wanted, root: &Root, whose: Whose<'_>) -> Secret {
    let password = &root.password(whose, "app");
    let kind = match wanted.settings.engine {
        Engine::Postgres => "postgresql",
        Engine::Mysql => "mysql",
    };
    let (host, port) = (host(wanted.names(), &wanted.namespace), ports::POSTGRES.to_string());
    let access = &wanted.instance.app;
    let (role, database) = (&access.role, &access.database);
    let uri = format!("{kind}://{role}:{password}@{host}:{port}/{database}");
    Secret {
        metadata: wanted.meta(wanted.names().app()),
        type_: Some(format!("servicebinding.io/{kind}")),
        data: Some(bytes([
            ("type", kind),
            ("provider", crate::NAME),
            ("host", &host),
            ("port", &port),
            ("database", database),
            ("username", role),
            ("password", password),
            ("uri", &uri),
            // With what the server is known by, and which of its credentials these are.
            ("ca.crt", root.authority()),
            (BINDING_REVISION, &root.mark(whose)),
        ])),
        ..Secret::default()
    }
}

fn bytes<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, ByteString> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
}

/// Where to write to.
pub fn host(names: Names<'_>, namespace: &str) -> String {
    format!("{}.{namespace}.svc", names.writers())
}

/// All names by which an instance is called.
fn hosts(names: Names<'_>, namespace: &str) -> Vec<String> {
    let services = [names.0.to_owned(), names.writers(), names.readers(), format!("*.{}", names.0)];
    let domains = [
        "".to_owned(),
        format!(".{namespace}"),
        format!(".{namespace}.svc"),
        format!(".{namespace}.svc.cluster.local"),
    ];
    let all =
        services.iter().flat_map(|service| domains.iter().map(move |domain| format!("{service}{domain}")));
    // A wildcard needs something behind it to be a name at all.
    all.filter(|host| !host.starts_with('*') || host.matches('.').count() > 1)
        .chain(["localhost".to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::wanted;
    use super::*;

    fn made() -> Secrets {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let root = Root::read("keelson-system", &Root::make(now).unwrap()).unwrap();
        secrets(&wanted(), &root, "", now, now + jiff::SignedDuration::from_hours(24)).unwrap()
    }

    fn text(secret: &Secret, key: &str) -> String {
        String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap()
    }

    #[test]
    fn applications_find_all_that_a_binding_needs() {
        let app = made().app;
        assert_eq!(app.type_.as_deref(), Some("servicebinding.io/postgresql"));
        assert_eq!(
            (text(&app, "host").as_str(), text(&app, "port").as_str()),
            ("orders-rw.shop.svc", "5432")
        );
        let uri = format!("postgresql://app:{}@orders-rw.shop.svc:5432/app", text(&app, "password"));
        assert_eq!(text(&app, "uri"), uri);
        assert!(text(&app, "ca.crt").contains("BEGIN CERTIFICATE") && !text(&app, "revision").is_empty());
    }

    #[test]
    fn each_has_a_password_of_its_own() {
        let Secrets { superuser, replication, app, tls } = made();
        let all = [&superuser, &replication, &app].map(|secret| text(secret, "password"));
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        let keys: Vec<String> = tls.data.unwrap().into_keys().collect();
        assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
    }

    #[test]
    fn the_certificate_is_for_services_instances_and_the_machine_itself() {
        let hosts = hosts(Names("orders"), "shop");
        for host in
            ["orders", "orders-rw.shop", "orders-ro.shop.svc", "*.orders.shop.svc.cluster.local", "localhost"]
        {
            assert!(hosts.iter().any(|one| one == host), "{host} {hosts:?}");
        }
    }
}
