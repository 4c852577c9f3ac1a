//! The way to the primary: an EndpointSlice that the leader writes in the act of becoming leader.

use futures::future::ready;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use keelson_api::instance::{Names, labels, ports};
use keelson_kit::desired::is_within;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Error};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::environment::Environment;

/// Leads writers here.
pub async fn lead_here(client: &Client, here: &Environment) -> Result<(), Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &here.namespace);
    let name = Names(&here.database).writers();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(slice(here))).await.map(drop)
}

/// Tells each time that the way is seen not to lead here: to another, as ever on a replica, or nowhere.
pub fn strays(client: &Client, here: &Environment) -> BoxStream<'static, ()> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &here.namespace);
    let config = Config::default().fields(&format!("metadata.name={}", Names(&here.database).writers()));
    let wanted = slice(here);
    let mut there = false;
    let stray = move |event| {
        let stray = match event {
            Event::Init => {
                there = false;
                false
            }
            Event::InitApply(found) | Event::Apply(found) => {
                there = true;
                !leads_here(&wanted, &found)
            }
            Event::InitDone => !there,
            Event::Delete(_) => true,
        };
        ready(stray.then_some(()))
    };
    watcher(api, config).default_backoff().filter_map(|event| ready(event.ok())).filter_map(stray).boxed()
}

fn leads_here(wanted: &Value, found: &EndpointSlice) -> bool {
    serde_json::to_value(found).is_ok_and(|found| is_within(wanted, &found))
}

fn slice(here: &Environment) -> Value {
    let name = Names(&here.database).writers();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "ownerReferences": [here.owner()],
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "keelson.dev",
                labels::DATABASE: here.database,
            }
        },
        "addressType": if here.address.is_ipv6() { "IPv6" } else { "IPv4" },
        "ports": [{ "name": "postgres", "port": ports::POSTGRES, "protocol": "TCP" }],
        "endpoints": [{
            "addresses": [here.address],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "targetRef": {
                "kind": "Pod", "name": here.pod, "namespace": here.namespace, "uid": here.uid
            }
        }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(address: &str) -> Environment {
        let variable = |name: &str| {
            let value = match name {
                "KEELSON_DATABASE" => "orders",
                "POD_NAME" => "orders-1",
                "POD_IP" => address,
                "MEMORY_BYTES" | "CPU_MILLIS" => "1000",
                other => other,
            };
            Some(value.to_owned())
        };
        Environment::read(variable).unwrap()
    }

    #[test]
    fn a_way_that_somebody_has_changed_does_not_lead_here() {
        let wanted = slice(&here("10.0.0.7"));
        let found = |value: &Value| serde_json::from_value::<EndpointSlice>(value.clone()).unwrap();
        assert!(leads_here(&wanted, &found(&wanted)));
        assert!(!leads_here(&wanted, &found(&slice(&here("10.0.0.8")))));
        for (path, value) in [
            ("/endpoints/0/conditions/ready", json!(false)),
            ("/endpoints", json!([])),
            ("/ports/0/port", json!(5433)),
            ("/metadata/labels", json!({})),
        ] {
            let mut changed = wanted.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(!leads_here(&wanted, &found(&changed)), "{path}");
        }
    }
}
