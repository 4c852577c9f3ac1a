//! What the pod tells the agent.

use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use keelson_api::GROUP;
use keelson_api::instance::Names;
use keelson_ha::{Holder, Identity};
use thiserror::Error;

/// Something that the pod should have told is missing or makes no sense: the agent was not started by
/// Keelson.
#[derive(Debug, Error)]
#[error("the environment variable {name} {problem}: the agent is to be started by a pod that Keelson made")]
pub struct EnvironmentError {
    name: &'static str,
    problem: String,
}

/// What the pod tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The Database.
    pub database: String,
    /// Its uid: what the agent makes goes with it.
    pub database_uid: String,
    /// Its namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// Its address.
    pub address: IpAddr,
    /// Its number.
    pub ordinal: u32,
    /// How much memory it may use, in bytes.
    pub memory: u64,
    /// How much of a processor it has, in thousandths.
    pub cpu_millis: u64,
}

impl Environment {
    /// Reads it, from `std::env::var` for one.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, EnvironmentError> {
        let text = |name: &'static str| {
            let problem = || EnvironmentError { name, problem: "is missing".to_owned() };
            variable(name).filter(|text| !text.is_empty()).ok_or_else(problem)
        };
        let database = text("KEELSON_DATABASE")?;
        let pod = text("POD_NAME")?;
        let ordinal = Names(&database).ordinal(&pod).ok_or_else(|| EnvironmentError {
            name: "POD_NAME",
            problem: format!("is {pod}, which is no instance of {database}"),
        })?;
        Ok(Environment {
            namespace: text("POD_NAMESPACE")?,
            database_uid: text("KEELSON_DATABASE_UID")?,
            uid: text("POD_UID")?,
            address: parse("POD_IP", &text("POD_IP")?)?,
            memory: parse("MEMORY_BYTES", &text("MEMORY_BYTES")?)?,
            cpu_millis: parse("CPU_MILLIS", &text("CPU_MILLIS")?)?,
            database,
            pod,
            ordinal,
        })
    }

    /// Who this is in matters of leadership.
    pub fn identity(&self) -> Identity {
        Identity {
            holder: Holder { name: self.pod.clone(), incarnation: self.uid.clone() },
            ordinal: self.ordinal,
        }
    }

    /// What makes an object go when the Database does. A Lease that outlived it would tell of a database
    /// that is no more, and keep the next one of its name from being made.
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{GROUP}/v1"),
            kind: "Database".to_owned(),
            name: self.database.clone(),
            uid: self.database_uid.clone(),
            ..OwnerReference::default()
        }
    }

    /// The name under which another instance is reached, which is also in its certificate.
    pub fn host(&self, pod: &str) -> String {
        format!("{pod}.{}.{}.svc", self.database, self.namespace)
    }
}

fn parse<T: FromStr>(name: &'static str, text: &str) -> Result<T, EnvironmentError> {
    text.parse().map_err(|_| EnvironmentError { name, problem: format!("makes no sense: {text}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        let value = match name {
            "KEELSON_DATABASE" => "orders",
            "KEELSON_DATABASE_UID" => "7e1d",
            "POD_NAME" => "orders-2",
            "POD_NAMESPACE" => "shop",
            "POD_UID" => "1f0c",
            "POD_IP" => "10.1.2.3",
            "MEMORY_BYTES" => "536870912",
            "CPU_MILLIS" => "500",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn a_pod_tells_who_it_is() {
        let environment = Environment::read(variable).unwrap();
        assert_eq!((environment.ordinal, environment.memory), (2, 512 << 20));
        assert_eq!(environment.identity().holder.to_string(), "orders-2/1f0c");
        assert_eq!(environment.host("orders-0"), "orders-0.orders.shop.svc");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let without = |missing: &'static str| move |name: &str| variable(name).filter(|_| name != missing);
        let error = Environment::read(without("POD_IP")).unwrap_err().to_string();
        assert!(error.starts_with("the environment variable POD_IP is missing"), "{error}");
        let other = |name: &str| if name == "POD_NAME" { Some("else-1".into()) } else { variable(name) };
        let error = Environment::read(other).unwrap_err().to_string();
        assert!(error.contains("else-1, which is no instance of orders"), "{error}");
    }
}
